"""P15–P24 on stories written by hand: what is allowed raises nothing, and every planted fault exactly what the table lists."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from random import Random

import pytest

from tests.view_damage import FOCUS, histories
from tests.view_stories import Histories, told
from unisono.trace.checks import Violation, judge
from unisono.trace.checks.p19_state_transfer import START, chained, summed
from unisono.trace.checks.p24_determinism import judge_twins
from unisono.trace.digest import digest_of_trace

LATER = tuple(FOCUS)


def chain(*messages: str) -> str:
    return reduce(chained, messages, START)


def total(*messages: str) -> str:
    return reduce(summed, messages, START)


STORIES = {
    "a partition, a merge and a join": """
        a,b,c,d VIEW 1@a a b c d
        a CAST x
        b,c,d RECEIVE x
        a,b,c,d DELIVER x
        a,b,c,d BLOCK
        a,b VIEW 2@a a b from a b parts=1@a
        c,d VIEW 2@c c d from c d parts=1@a
        c CAST y
        d RECEIVE y
        c,d DELIVER y
        d CRASH
        e JOIN
        a,b VIEW 3@a a b c d e from a b parts=2@a,2@c
        c VIEW 3@a a b c d e from c d parts=2@a,2@c
        e VIEW 3@a a b c d e from e parts=2@a,2@c
        b CAST z
        a,b,c,e DELIVER z
        all END
    """,
    "one view is closed twice": """
        a,b,c,d VIEW 1@a a b c d
        a,b VIEW 2@a a b c d from a b cut=left
        c,d VIEW 2@a a b c d from c d cut=right
        all END
    """,
    "safe messages, one of them in a cut": """
        a,b,c VIEW 1@a a b c
        a CAST x count 2 safe=true
        b,c RECEIVE x
        a,b,c STABLE x[0:1]
        a,b,c STABLE x[1:2]
        a,b,c DELIVER x
        b CAST y safe=true
        a RECEIVE y
        c CRASH
        a,b BLOCK
        a,b STABLE y
        a,b DELIVER y
        a,b VIEW 2@a a b from a b
        all END
    """,
    "transactions": """
        a,b,c VIEW 1@a a b c
        a CAST x transaction=t1
        b,c RECEIVE x
        a,b,c VOTE transaction=t1 decision=yes
        a,b,c DECIDE transaction=t1 decision=commit
        a,b,c DELIVER x
        b CAST y transaction=t2
        a,c RECEIVE y
        a VOTE transaction=t2 decision=yes
        c VOTE transaction=t2 decision=no
        a,b,c DECIDE transaction=t2 decision=abort
        a,b VOTE transaction=t4 decision=yes
        c CAST z transaction=t3
        a,b RECEIVE z
        c CRASH
        a,b BLOCK
        a,b DECIDE transaction=t3 decision=commit recovery=true
        a,b DELIVER z
        a,b DECIDE transaction=t4 decision=commit recovery=true
        a,b VIEW 2@a a b from a b
        all END
    """,
    "parts that recover apart": """
        a,b,c,d VIEW 1@a a b c d
        a CAST x transaction=t1
        b RECEIVE x
        a,b,c,d BLOCK
        a,b DECIDE transaction=t1 decision=commit recovery=true
        c,d DECIDE transaction=t1 decision=abort recovery=true
        a,b DELIVER x
        a,b VIEW 2@a a b from a b
        c,d VIEW 2@c c d from c d
        all END
    """,
    "a snapshot for a joiner": f"""
        a,b VIEW 1@a a b
        a CAST x
        a,b DELIVER x
        c JOIN
        a,b VIEW 2@a a b c from a b
        c VIEW 2@a a b c from c
        b CAST y
        a,b,c DELIVER y
        a SNAPSHOT_OUT ordinal=1 chain={chain("a:0", "b:0")}
        b CAST z
        a,b,c DELIVER z
        c SNAPSHOT_IN ordinal=1 chain={chain("a:0", "b:0")}
        b SNAPSHOT_OUT ordinal=2 chain={chain("a:0", "b:0", "b:1")}
        all END
    """,
    "a snapshot without an order": f"""
        a,b VIEW 1@a a b
        a CAST x causal
        b CAST y causal
        a DELIVER x
        a DELIVER y
        b DELIVER y
        b DELIVER x
        a SNAPSHOT_OUT ordinal=1 service=causal digest={total("a:0")}
        a,b VIEW 2@a a b c from a b
        c VIEW 2@a a b c
        b SNAPSHOT_OUT ordinal=0 service=causal digest={total("b:0", "a:0")}
        c SNAPSHOT_IN ordinal=0 service=causal digest={total("a:0", "b:0")}
        all END
    """,
    "primaries": """
        a,b,c,d,e VIEW 1@a a b c d e primary=true
        a,b,c VIEW 2@a a b c from a b c primary=true previous_primary=1@a
        d,e VIEW 2@d d e from d e
        a,b VIEW 4@a a b from a b primary=true previous_primary=3@a,2@a
        c VIEW 3@c c from c
        d,e VIEW 3@d d e from d e
        all END
    """,
    "a first primary that was confirmed and never installed": """
        a,b VIEW 2@a a b primary=true previous_primary=1@a
        a,b VIEW 3@a a b from a b primary=true previous_primary=2@a
        all END
    """,
    "attacks": """
        a,b VIEW 1@a a b
        b CAST x
        a RECEIVE x sender=b
        a DROP forged injected=2
        a DROP stale
        a DROP replayed injected=1
        a COUNTERS injected=3 accepted_forged=0
        b COUNTERS packets=7
        a,b DELIVER x
        all END
    """,
    "a heal": """
        a,b,c VIEW 1@a a b c
        a,b BLOCK
        a,b VIEW 2@a a b from a b
        c VIEW 2@c c from c
        c BLOCK at=100
        a,b,c HEAL bound_ns=50 at=1000
        a CAST x at=1010
        a,b BLOCK
        a,b DELIVER x at=1020
        a,b VIEW 3@a a b c from a b parts=2@a,2@c at=1030
        c VIEW 3@a a b c from c parts=2@a,2@c
        b CAST y at=2000
        a,b,c DELIVER y at=2020
        all END at=2030
    """,
    "a heal in two components": """
        a,b,c,d VIEW 1@a a b c d
        a,b HEAL bound_ns=50 component=left at=100
        c,d HEAL bound_ns=50 component=right
        a,b VIEW 2@a a b from a b at=120
        c,d VIEW 2@c c d from c d
        all END at=200
    """,
    "counters": """
        a VIEW 1@a a
        a COUNTERS queue_max=4 queue_max_limit=4 resends=1.5 resends_limit=2 packets=9 window_limit=3
        a END
    """,
}

Fault = tuple[str, str, str, set[str]]
MERGE, SAFE, COMMIT, JOIN, HEAL = (
    "a partition, a merge and a join", "safe messages, one of them in a cut", "transactions", "a snapshot for a joiner",
    "a heal",
)  # fmt: skip
PLANTED: dict[str, Fault] = {
    "someone in the set who did not come along": (MERGE, "3@a a b c d e from c d", "3@a a b c d e from b c d", {"P15 set"}),
    "someone missing in the set": (MERGE, "a,b VIEW 2@a a b from a b", "a,b VIEW 2@a a b from a", {"P15 set"}),
    "a set for a joiner": (MERGE, "d e from e", "d e from a e", {"P15 set"}),
    "no set": (MERGE, "c,d VIEW 2@c c d from c d", "c,d VIEW 2@c c d", {"P15 set"}),
    "another previous view": (
        MERGE, "from c d parts=2@a,2@c", "from c d parts=2@a,2@c previous_view=1@a",
        {"P15 came from", "P16 parts"},
    ),
    "two cuts that are not told apart": ("one view is closed twice", "from c d cut=right", "from c d cut=left", {"P15 set"}),
    "a part too few": (MERGE, "from a b parts=2@a,2@c", "from a b parts=2@a", {"P16 parts"}),
    "a part too many": (MERGE, "from a b parts=1@a", "from a b parts=1@a,1@b", {"P16 parts"}),
    "no parts in a merge": (MERGE, "from e parts=2@a,2@c", "from e", {"P16 parts"}),
    "received after the new view": (MERGE, "c CAST y", "b RECEIVE x view=1@a\nc CAST y", {"P16 row"}),
    "delivered after the new view": (MERGE, "c CAST y", "b DELIVER x\nc CAST y", {"P16 message"}),
    "delivered before STABLE": (SAFE, "a,b,c STABLE x[1:2]", "a,b STABLE x[1:2]", {"P17 unstable"}),
    "safe but not received by all": (SAFE, "b,c RECEIVE x", "b RECEIVE x", {"P17 not held"}),
    "safe outside of a cut": (SAFE, "a,b BLOCK", "", {"P17 not held"}),
    "in a cut, not received by one": (SAFE, "a RECEIVE y", "", {"P17 not held"}),
    "a flipped DECIDE": (
        COMMIT, "a,b,c DECIDE transaction=t1 decision=commit",
        "a,b DECIDE transaction=t1 decision=commit\nc DECIDE transaction=t1 decision=abort",
        {"P18 two decisions", "P18 undecided"},
    ),
    "a commit against a vote": (
        COMMIT, "a,b,c VOTE transaction=t1 decision=yes", "a,b VOTE transaction=t1 decision=yes\nc VOTE transaction=t1 decision=no",
        {"P18 votes"},
    ),
    "a commit without a vote": (COMMIT, "a,b,c VOTE transaction=t1", "a,b VOTE transaction=t1", {"P18 votes"}),
    "recovered without a failure": (COMMIT, "c CRASH\n        a,b BLOCK", "c CRASH", {"P18 votes"}),
    "recovered without holding it": (COMMIT, "a,b RECEIVE z", "a RECEIVE z", {"P18 not held"}),
    "delivered though aborted": (COMMIT, "a,b VOTE transaction=t4", "a DELIVER y\na,b VOTE transaction=t4", {"P18 undecided"}),
    "committed but not delivered": (COMMIT, "a,b DELIVER z", "a DELIVER z", {"P18 not delivered"}),
    "two decisions that went on together": (
        COMMIT, "a,b DECIDE transaction=t4 decision=commit recovery=true",
        "a DECIDE transaction=t4 decision=commit recovery=true\nb DECIDE transaction=t4 decision=abort",
        {"P18 two decisions"},
    ),
    "a wrong state given": (
        JOIN, f"OUT ordinal=1 chain={chain('a:0', 'b:0')}", f"OUT ordinal=1 chain={chain('b:0', 'a:0')}",
        {"P19 donor", "P19 joiner"},
    ),
    "a wrong state taken": (
        JOIN, f"IN ordinal=1 chain={chain('a:0', 'b:0')}", f"IN ordinal=1 chain={chain('b:0')}",
        {"P19 joiner", "P19 other"},
    ),
    "another one has another state": (JOIN, "a,b DELIVER x", "a DELIVER x", {"P19 donor", "P19 other"}),
    "more than was delivered": (JOIN, "b SNAPSHOT_OUT ordinal=2", "b SNAPSHOT_OUT ordinal=3", {"P19 not reached"}),
    "of a view that was not installed": (JOIN, "c SNAPSHOT_IN", "c SNAPSHOT_IN view=1@a", {"P19 foreign view"}),
    "a wrong sum": ("a snapshot without an order", f"digest={total('a:0')}", f"digest={total('b:0')}", {"P19 donor"}),
    "two primaries": (
        "primaries", "d,e VIEW 3@d d e from d e", "d,e VIEW 3@d d e from d e primary=true previous_primary=2@a",
        {"P20 fork"},
    ),
    "two first primaries": ("primaries", "d,e VIEW 2@d d e from d e", "d,e VIEW 2@d d e from d e primary=true", {"P20 two firsts"}),
    "a primary after none": ("primaries", "previous_primary=3@a,2@a", "previous_primary=3@a", {"P20 two firsts"}),
    "two primaries after what nobody installed": (
        "a first primary that was confirmed and never installed", "previous_primary=2@a", "previous_primary=1@a",
        {"P20 two firsts"},
    ),
    "a primary after a later one": ("primaries", "previous_primary=1@a", "previous_primary=4@a", {"P20 number"}),
    "not everyone says primary": (
        "primaries", "c VIEW 3@c c from c\n        d,e VIEW 3@d d e from d e",
        "c VIEW 3@c c from c\nd VIEW 3@d d e from d e primary=true previous_primary=1@a\ne VIEW 3@d d e from d e",
        {"P20 disagree", "P20 fork"},
    ),
    "a packet of a stranger": ("attacks", "sender=b", "sender=m", {"P21 stranger"}),
    "a packet that was not authenticated": ("attacks", "sender=b", "authenticated=false", {"P21 unauthenticated"}),
    "an attack that was not counted": ("attacks", "a DROP replayed injected=1", "", {"P21 uncounted"}),
    "a forged packet accepted": ("attacks", "accepted_forged=0", "accepted_forged=1", {"P21 forged"}),
    "two views after the heal": (HEAL, "c VIEW 3@a a b c from c parts=2@a,2@c", "", {"P22 views", "P22 blocked"}),
    "a view too late": (HEAL, "parts=2@a,2@c at=1030", "parts=2@a,2@c at=1070", {"P22 views", "P22 blocked"}),
    "delivered too late": (HEAL, "a,b,c DELIVER y at=2020", "a,b DELIVER y at=2020\nc DELIVER y at=2060", {"P22 late"}),
    "blocked too long": (HEAL, "b CAST y at=2000", "a BLOCK at=1500\na UNBLOCK at=1600\nb CAST y at=2000", {"P22 blocked"}),
    "a dead member in the view": (HEAL, "c BLOCK at=100", "c CRASH", {"P22 outsiders"}),
    "the other component in the view": (
        "a heal in two components", "a,b VIEW 2@a a b from a b", "a,b VIEW 2@a a b c d from a b c d",
        {"P22 outsiders"},
    ),
    "over a limit": ("counters", "queue_max=4", "queue_max=5", {"P23 over"}),
    "a counter that is no number": ("counters", "resends=1.5", "resends=many", {"P23 unreadable"}),
}  # fmt: skip
"""The story, what to replace in it by what, and which faults of which properties must come of it."""


def broken(violations: list[Violation]) -> set[str]:
    return {f"{one.property} {one.witness['what']}" for one in violations}


@pytest.mark.parametrize("name", STORIES)
def test_what_is_allowed_raises_nothing(name: str) -> None:
    assert [str(one) for one in judge(told(STORIES[name]), LATER).violations] == []


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_raises_exactly_what_the_table_lists(name: str) -> None:
    story, old, new, expected = PLANTED[name]
    assert old in STORIES[story]
    violations = judge(told(STORIES[story].replace(old, new)), LATER).violations
    assert broken(violations) == expected, [str(one) for one in violations]
    assert all(one.sentence.endswith(".") and one.members for one in violations)


@pytest.mark.parametrize("property", FOCUS)
def test_every_fault_of_a_property_is_planted(property: str) -> None:
    """What a random history can raise, some line of the table raises too."""
    raised = {fault for _, events in histories(property, 60) for fault in broken(judge(events, [property]).violations)}
    assert raised <= {fault for *_, expected in PLANTED.values() for fault in expected}


def test_random_histories_raise_nothing_before_they_are_damaged() -> None:
    for seed in range(150):
        service = ("total", "causal")[seed % 2]
        events = told(Histories(Random(f"clean/{seed}"), service).story(), service=service)
        assert [str(one) for one in judge(events, LATER).violations] == []


def test_what_a_gap_hides_is_never_held_against_anyone() -> None:
    for seed in range(150):
        random = Random(f"gaps/{seed}")
        events = told(Histories(random).story())
        kept = [event for event in events if random.random() > 0.15]
        assert [str(one) for one in judge(kept, LATER).violations] == []


TWINS = {
    name: [
        replace(event, attributes={"twin": label}) if not event.local_index else event for event in told(story, name)
    ]
    for name, label, story in (
        ("one", "seed 7", STORIES[SAFE]),
        ("the same", "seed 7", STORIES[SAFE]),
        ("the same with another name for a message", "seed 7", STORIES[SAFE].replace(" y", " w")),
        ("another one", "seed 8", STORIES[COMMIT]),
    )
}


def test_twins_are_equal_or_told_apart() -> None:
    violations = judge_twins(event for events in TWINS.values() for event in events)
    assert {(one.witness["run"], one.members, one.witness["local"]) for one in violations} == {
        ("the same with another name for a message", ("a",), 5),
        ("the same with another name for a message", ("b",), 5),
    }
    assert digest_of_trace(TWINS["one"]) == digest_of_trace(TWINS["the same"])
    assert "twins" in violations[0].sentence


def test_a_life_with_a_gap_is_not_compared_with_its_twin() -> None:
    kept = [event for event in TWINS["the same"] if (event.member, event.local_index) != ("a", 2)]
    assert judge_twins([*TWINS["one"], *kept]) == []
