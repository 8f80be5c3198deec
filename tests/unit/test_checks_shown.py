"""P25–P29 on stories written by hand: what is allowed raises nothing, and every planted fault exactly what the table lists."""

from __future__ import annotations

from random import Random

import pytest

from tests.shown_stories import SHOWN_FOCUS, ShownHistories, shown, shown_histories
from tests.view_stories import Histories, told
from unisono.trace.checks import CHECKERS, Violation, judge
from unisono.trace.promises import PROMISES, promises
from unisono.trace.schema import SHOWN

SHOWN_ONES = tuple(SHOWN_FOCUS)

STORIES = {
    "a partition and a heal": """
        a,b,c VIEW 1@a a b c
        a,b,c SHOW
        a CAST x
        a,b,c DELIVER x
        a CAST y
        a DELIVER y
        a RECEIPT y delivered
        a,b BLOCK
        c BLOCK
        b DELIVER y
        a,b VIEW 2@a a b from a b
        a,b TRANSITION
        a RECEIPT y stable uncertain known=a,b
        a,b SHOW
        c VIEW 2@c c from c
        c TRANSITION
        c SHOW
        a,b VIEW 3@a a b c from a b
        a,b TRANSITION
        a,b SHOW
        c VIEW 3@a a b c from c
        c TRANSITION
        c SHOW
        b CAST z
        a,b,c DELIVER z
        b RECEIPT z delivered
        b RECEIPT z applied
        b RECEIPT z stable
        all END
    """,
    "one view is closed twice": """
        a,b,c VIEW 1@a a b c
        a,b,c SHOW
        a CAST x
        a,b DELIVER x
        a,b VIEW 2@a a b c from a b cut=left
        c VIEW 2@a a b c from c cut=right
        a,b,c TRANSITION
        a,b,c SHOW
        all END
    """,
    "a member that leaves": """
        a,b VIEW 1@a a b
        a,b SHOW
        a CAST x
        a,b DELIVER x
        a,b BLOCK
        b TRANSITION together=a,b
        b LEAVE
        a VIEW 2@a a from a
        a TRANSITION
        a SHOW
        a RECEIPT x stable
        a END
    """,
    "two members leave at once": """
        a,b VIEW 1@a a b
        a,b SHOW
        a CAST x
        b CAST y
        a,b DELIVER x
        a,b DELIVER y
        a,b BLOCK
        a,b TRANSITION together=a,b
        a,b LEAVE
    """,
    "some messages are not for everyone": """
        a,b VIEW 1@a a b
        a,b SHOW
        a CAST x to a
        a CAST y datagram
        a DELIVER x
        b PLACE x
        a DELIVER y
        a RECEIPT x stable
        a,b VIEW 2@a a b from a b
        a,b TRANSITION
        a,b SHOW
        all END
    """,
    "a joiner that gets a state": """
        a VIEW 1@a a
        a SHOW
        a CAST x
        a DELIVER x
        b JOIN
        a VIEW 2@a a b from a
        a TRANSITION
        a SHOW
        b VIEW 2@a a b
        a CAST y
        a,b DELIVER y
        a RECEIPT y stable
        b STATE replaced=false
        b SHOW
        a,b VIEW 3@a a b from a b
        a,b TRANSITION
        b SHOW shown=0 digest=0000000000000000 chain=0000000000000000
        a SHOW
        all END
    """,
    "primaries with a state": """
        a,b,c VIEW 1@a a b c primary=true holds=true
        a,b,c SHOW
        a CAST x safe=true
        a,b,c DELIVER x
        a,b,c BLOCK
        c VIEW 2@c c from c primary=false cut=2@c
        a,b VIEW 2@a a b from a b primary=true previous_primary=1@a cut=2@a state=1@a/2@a holds=true
        a,b,c TRANSITION
        a,b,c SHOW
        b CAST y safe=true
        a,b DELIVER y
        a,b BLOCK
        c BLOCK
        a,b VIEW 3@a a b c d from a b primary=true previous_primary=2@a cut=3@a state=2@a/3@a holds=true
        c VIEW 3@a a b c d from c primary=true previous_primary=2@a cut=3@c state=2@a/3@a holds=false
        d VIEW 3@a a b c d primary=true previous_primary=2@a state=2@a/3@a holds=false
        a,b TRANSITION
        a,b SHOW
        c,d SNAPSHOT_IN ordinal=0
        c STATE source=2@a replaced=true
        d STATE source=2@a replaced=false
        c TRANSITION
        c,d SHOW
        a CRASH
        b,c,d BLOCK
        b VIEW 4@c b from b primary=false cut=4@b
        c,d VIEW 4@d c d from c d primary=true previous_primary=3@a cut=4@d state=3@a/4@d holds=true
        b,c,d TRANSITION
        b,c,d SHOW
        all END
    """,
    "a primary that a member never installed": """
        a,b,c VIEW 1@a a b c primary=true holds=true
        a,b,c SHOW
        a VIEW 2@a a b from a b primary=true previous_primary=1@a cut=2@a state=1@a/2@a holds=true
        a TRANSITION
        a SHOW
        a CRASH
        b,c VIEW 3@b b c from b c primary=true previous_primary=2@a cut=3@b state=1@a/3@b holds=true
        b,c TRANSITION
        b,c SHOW
        all END
    """,
    "a joiner of a minority is the last holder": """
        a,b,c VIEW 1@a a b c primary=true holds=true
        a,b,c SHOW
        a CAST x safe=true
        a,b,c DELIVER x
        a,b CRASH
        c BLOCK
        c VIEW 2@c c d from c primary=false cut=2@c
        d VIEW 2@c c d primary=false
        c TRANSITION
        c SHOW
        d STATE replaced=false
        d SHOW
        c CRASH
        d VIEW 3@d d e from d primary=false cut=3@d
        e VIEW 3@d d e primary=false
        e VIEW 4@e e from e primary=false cut=4@e
        d TRANSITION
        d SHOW
        d CRASH
        e STATE replaced=false
        e SHOW view=3@d members=d,e together=e joined=d
        e TRANSITION
        e SHOW left=d
        e VIEW 5@e a#1 b#1 e from e primary=true previous_primary=1@a cut=5@e state=4@e/5@e holds=true
        a#1,b#1 VIEW 5@e a#1 b#1 e primary=true previous_primary=1@a state=4@e/5@e holds=false
        a#1,b#1 STATE source=4@e replaced=false
        e TRANSITION
        e,a#1,b#1 SHOW
        all END
    """,
}
HEAL, CUT, JOIN, PRIMARY = (
    "a partition and a heal", "one view is closed twice", "a joiner that gets a state", "primaries with a state",
)  # fmt: skip

Fault = tuple[str, str, str, set[str]]
PLANTED: dict[str, Fault] = {
    "together too large at both": (
        CUT,
        "a,b,c TRANSITION\n        a,b,c SHOW",
        "a,b,c TRANSITION together=a,b,c\n a,b,c SHOW together=a,b,c joined=- left=-",
        {"P25 differ", "P25 companions"},
    ),
    "together too large at one": (
        CUT,
        "a,b,c TRANSITION\n        a,b,c SHOW",
        "a,b TRANSITION\n c TRANSITION together=a,c\n a,b SHOW\n c SHOW together=a,c joined=b left=b",
        {"P25 not together", "P25 companions"},
    ),
    "somebody who came through another view": (
        HEAL,
        "c VIEW 3@a a b c from c\n        c TRANSITION\n        c SHOW",
        "c VIEW 3@a a b c from c\n c TRANSITION together=a,c\n c SHOW together=a,c joined=b left=-",
        {"P25 not together", "P25 companions"},
    ),
    "joined as members of the last view": (
        CUT,
        "a,b,c SHOW\n        all END",
        "a,b,c SHOW joined=-\nall END",
        {"P25 joined"},
    ),
    "swapped by one of two that leave": (
        "two members leave at once",
        "a,b DELIVER x\n        a,b DELIVER y",
        "a DELIVER x\n a DELIVER y\n b DELIVER y\n b DELIVER x",
        {"P25 left differing"},
    ),
    "left as members of this view": (CUT, "a,b,c SHOW\n        all END", "a,b,c SHOW left=-\nall END", {"P25 left"}),
    "the remainder before the transition": (
        HEAL,
        "a RECEIPT y stable uncertain",
        "b TRANSITION shown=2\na RECEIPT y stable uncertain",
        {"P25 transition", "P25 remainder"},
    ),
    "an ordinary message behind the transition": (
        HEAL,
        "a,b TRANSITION\n        a RECEIPT",
        "a,b TRANSITION shown=1\n a RECEIPT",
        {"P25 remainder"},
    ),
    "no transition": (
        HEAL,
        "c TRANSITION\n        c SHOW\n        a,b VIEW 3",
        "c SHOW\n a,b VIEW 3",
        {"P25 transition"},
    ),
    "a transition before the first view": (
        JOIN,
        "b SHOW\n        a,b VIEW",
        "b TRANSITION\n b SHOW\n a,b VIEW",
        {"P25 transition"},
    ),
    "a transition that names others": (
        HEAL,
        "c TRANSITION\n        c SHOW\n        a,b V",
        "c TRANSITION together=b,c\nc SHOW\na,b V",
        {"P25 transition set"},
    ),
    "an event dropped on its way": (
        CUT,
        "a,b,c SHOW\n        all END",
        "a,c SHOW\n b SHOW shown=0 digest=0000000000000000\n all END",
        {"P25 altered", "P25 differ"},
    ),
    "an order altered on its way": (
        HEAL,
        "a,b SHOW\n        c VIEW 2@c",
        "a SHOW\n b SHOW chain=0123456789abcdef\nc VIEW 2@c",
        {"P25 altered", "P25 differ"},
    ),
    "a view altered on its way": (
        CUT,
        "a,b,c SHOW\n        all END",
        "a,b SHOW\n c SHOW members=b,c joined=b\n all END",
        {"P25 view"},
    ),
    "a view that was not installed": (
        HEAL,
        "b CAST z",
        "b SHOW view=4@b\nb CAST z",
        {"P25 view", "P25 transition", "P25 altered"},
    ),
    "somebody together who is not in the view": (
        HEAL,
        "c TRANSITION\n        c SHOW\n        a,b V",
        "c TRANSITION together=b,c\nc SHOW together=b,c left=a\na,b V",
        {"P25 set", "P25 companions"},
    ),
    "all are told that they came alone": (
        HEAL,
        "a,b TRANSITION\n        a,b SHOW\n        c VIEW 3@a",
        "a TRANSITION together=a\nb TRANSITION together=b\na SHOW together=a joined=b,c left=b\n"
        "b SHOW together=b joined=a,c left=a\nc VIEW 3@a",
        {"P25 companions"},
    ),
    "a state that was restored from nowhere": (
        HEAL,
        "a,b SHOW\n        c VIEW 2@c",
        "a SHOW\nb SHOW restored=true\nc VIEW 2@c",
        {"P25 restored"},
    ),
    "primary at some": (CUT, "a,b,c SHOW\n        all END", "a,c SHOW\nb SHOW primary=false\nall END", {"P25 primary"}),
    "a first view with others": (
        HEAL,
        "a,b,c SHOW\n        a CAST x",
        "a,b SHOW\nc SHOW together=b,c joined=a\na CAST x",
        {"P25 first"},
    ),
    "another last view": (CUT, "a,b,c SHOW\n        all END", "a,b,c SHOW previous=1@b\nall END", {"P25 previous"}),
    "stable on receipt": (HEAL, "a,b,c DELIVER z", "a,b DELIVER z", {"P26 lost"}),
    "stable, but not for a member that leaves": (
        "a member that leaves",
        "a,b DELIVER x",
        "a DELIVER x",
        {"P25 left differing", "P26 lost"},
    ),
    "stable, but not at an addressee": (
        "some messages are not for everyone",
        "a CAST x to a",
        "a CAST x to a,b",
        {"P26 lost"},
    ),
    "delivered before it is delivered": (
        HEAL,
        "a DELIVER y\n        a RECEIPT y delivered",
        "a RECEIPT y delivered\na DELIVER y",
        {"P28 too early"},
    ),
    "a receipt before the message is cast": (
        HEAL,
        "b CAST z\n        a,b,c DELIVER z\n        b RECEIPT z delivered",
        "b CAST z\na,b,c DELIVER z\nc RECEIPT z delivered\nb RECEIPT z delivered",
        {"P28 not cast"},
    ),
    "receipts out of order": (
        HEAL,
        "b RECEIPT z delivered\n        b RECEIPT z applied",
        "b RECEIPT z applied\nb RECEIPT z delivered",
        {"P28 order"},
    ),
    "an answer after a doubt": (
        HEAL,
        "b RECEIPT z applied",
        "b RECEIPT z applied uncertain known=b",
        {"P28 after a doubt"},
    ),
    "a doubt taken back": (
        HEAL,
        "b RECEIPT z stable",
        "b RECEIPT z stable uncertain known=b\nb RECEIPT z stable",
        {"P28 after a doubt"},
    ),
    "into a later primary without a safe message": (
        PRIMARY,
        "a,b,c DELIVER x",
        "a,c DELIVER x",
        {"P25 differ", "P27 came without"},
    ),
    "the state of the minority is carried on": (
        PRIMARY,
        "state=2@a/3@a",
        "state=2@c/3@c",
        {"P27 not in the state", "P29 other part"},
    ),
    "a state without its holders": (
        PRIMARY,
        "cut=3@a state=2@a/3@a holds=true",
        "cut=3@a state=2@a/3@a holds=false",
        {"P29 not held", "P29 without state"},
    ),
    "a state from before a primary that all its members installed": (
        "a primary that a member never installed",
        "a VIEW 2@a a b from a b",
        "a VIEW 2@a a from a",
        {"P29 other part"},
    ),
    "a last holder that never took a state over": (
        "a joiner of a minority is the last holder",
        "d STATE replaced=false",
        "",
        {"P29 other part"},
    ),
    "a last holder that got its state where nobody had it": (
        "a joiner of a minority is the last holder",
        "c VIEW 2@c c d from c primary=false cut=2@c\n        d VIEW 2@c c d primary=false",
        "c VIEW 2@c c from c primary=false cut=2@c\n d VIEW 2@d d primary=false",
        {"P29 other part"},
    ),
    "a last holder that got its state after the holder was gone": (
        "a joiner of a minority is the last holder",
        "d STATE replaced=false\n        d SHOW\n        c CRASH",
        "d SHOW\n c CRASH\n d STATE replaced=false",
        {"P29 other part"},
    ),
    "a primary by amnesia": (
        PRIMARY,
        "c,d VIEW 4@d c d from c d primary=true previous_primary=3@a cut=4@d state=3@a/4@d holds=true",
        "c,d VIEW 4@d c d from c d primary=true previous_primary=3@a cut=4@d holds=true",
        {"P29 no state"},
    ),
    "a primary by amnesia that one member calls explicit": (
        PRIMARY,
        "c,d VIEW 4@d c d from c d primary=true previous_primary=3@a cut=4@d state=3@a/4@d holds=true",
        "c VIEW 4@d c d from c d primary=true previous_primary=3@a cut=4@d holds=true abandons=3@a\n"
        "d VIEW 4@d c d from c d primary=true previous_primary=3@a cut=4@d holds=true",
        {"P29 abandons", "P29 no state"},
    ),
    "a primary that gave up what there never was": (
        PRIMARY,
        "c,d VIEW 4@d c d from c d primary=true previous_primary=3@a cut=4@d state=3@a/4@d holds=true",
        "c,d VIEW 4@d c d from c d primary=true previous_primary=3@a cut=4@d holds=true abandons=9@z",
        {"P29 no state"},
    ),
    "members name several states": (
        PRIMARY,
        "cut=3@c state=2@a/3@a holds=false",
        "cut=3@c state=2@c/3@c holds=false",
        {"P29 disagree"},
    ),
    "shown a view without its state": (
        PRIMARY,
        "d STATE source=2@a replaced=false",
        "",
        {"P29 without state", "P29 in silence"},
    ),
    "a state replaced without a STATE row": (
        PRIMARY,
        "b,c,d TRANSITION\n        b,c,d SHOW",
        "c SNAPSHOT_IN ordinal=0\nb,c,d TRANSITION\nb,c,d SHOW",
        {"P29 in silence"},
    ),
    "a holder's state replaced": (
        PRIMARY,
        "a CRASH",
        "b STATE source=2@c replaced=true\na CRASH",
        {"P29 holder"},
    ),
}
"""The story, what to replace in it by what, and which faults of which properties must come of it."""


def broken(violations: list[Violation]) -> set[str]:
    return {f"{one.property} {one.witness['what']}" for one in violations}


@pytest.mark.parametrize("name", STORIES)
def test_what_is_allowed_raises_nothing(name: str) -> None:
    assert [str(one) for one in judge(shown(STORIES[name]), SHOWN_ONES).violations] == []


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_raises_exactly_what_the_table_lists(name: str) -> None:
    story, old, new, expected = PLANTED[name]
    assert old in STORIES[story]
    violations = judge(shown(STORIES[story].replace(old, new)), SHOWN_ONES).violations
    assert broken(violations) == expected, [str(one) for one in violations]
    assert all(one.sentence.endswith(".") and one.members for one in violations)


@pytest.mark.parametrize("property", SHOWN_FOCUS)
def test_every_fault_of_a_property_is_planted(property: str) -> None:
    """What a random history can raise, some line of the table raises too."""
    raised = {
        fault for _, events in shown_histories(property, 120) for fault in broken(judge(events, [property]).violations)
    }
    assert raised
    assert raised <= {fault for *_, expected in PLANTED.values() for fault in expected}


def test_random_histories_raise_nothing_before_they_are_damaged() -> None:
    for seed in range(150):
        service = ("total", "causal")[seed % 2]
        events = shown(ShownHistories(Random(f"clean/{seed}"), service).story(), service=service)
        assert [str(one) for one in judge(events, SHOWN_ONES).violations] == []


def test_what_a_gap_hides_is_never_held_against_anyone() -> None:
    for seed in range(150):
        random = Random(f"gaps/{seed}")
        events = shown(ShownHistories(random).story())
        kept = [event for event in events if random.random() > 0.15]
        assert [str(one) for one in judge(kept, SHOWN_ONES).violations] == []


def test_a_trace_without_an_application_is_not_judged() -> None:
    for seed in range(30):
        events = told(Histories(Random(f"clean/{seed}")).story())
        assert not SHOWN & {event.kind for event in events}
        assert judge(events, SHOWN_ONES).violations == []


DOUBTS = {
    "an unknown stage": (HEAL, "b RECEIPT z applied", "b RECEIPT z aplied", "b"),
    "an unknown outcome": (HEAL, "b RECEIPT z applied", "b RECEIPT z applied OK", "b"),
    "nobody is known": (HEAL, "stable uncertain known=a,b", "stable uncertain", "a"),
    "a receipt and no view": (JOIN, "a SHOW", "", "a"),
    "a view that was not shown": (CUT, "a,b,c SHOW\n        all END", "a,b SHOW\nall END", "c"),
    "a state from nobody": (HEAL, "b CAST z", "b STATE replaced=true\nb CAST z", "b"),
}
"""The story, what to replace in it by what, and whose verdict that leaves open."""


@pytest.mark.parametrize("name", DOUBTS)
def test_what_cannot_be_judged_does_not_pass(name: str) -> None:
    story, old, new, doubtful = DOUBTS[name]
    assert old in STORIES[story]
    assert not judge(shown(STORIES[story])).unknown
    assert judge(shown(STORIES[story].replace(old, new))).unknown.keys() == {doubtful}


NO_DOUBTS = {
    "a joiner crashes before it has a state": """
        a VIEW 1@a a
        a SHOW
        b JOIN
        a VIEW 2@a a b from a
        a TRANSITION
        a SHOW
        b VIEW 2@a a b
        b CAST x
        a,b DELIVER x
        b RECEIPT x delivered
        b RECEIPT x stable
        b CRASH
        a END
    """,
    "the state of a member that came along": """
        a,b,c VIEW 1@a a b c primary=true holds=true
        a,b,c SHOW
        a,b,c BLOCK
        a VIEW 2@a a from a primary=true previous_primary=1@a cut=2@a state=1@a/2@a holds=true
        b VIEW 2@b b from b primary=false cut=2@b
        c VIEW 2@c c from c primary=false cut=2@c
        a,b,c TRANSITION
        a,b,c SHOW
        a CRASH
        b VIEW 3@b b c from b primary=false cut=3@b
        c VIEW 3@b b c from c primary=false cut=3@c
        b,c TRANSITION
        b,c SHOW
        b VIEW 4@b b c from b c primary=true previous_primary=2@a cut=4@b state=3@b/4@b holds=true abandons=2@a
        c VIEW 4@b b c from b c primary=true previous_primary=2@a cut=4@b state=3@b/4@b holds=false abandons=2@a
        b TRANSITION
        b SHOW
        c STATE source=1@a replaced=true
        c TRANSITION
        c SHOW
        b,c END
    """,
}
"""What is legal, although the rows of an application alone do not tell why."""


@pytest.mark.parametrize("name", NO_DOUBTS)
def test_what_is_legal_leaves_no_doubt(name: str) -> None:
    verdict = judge(shown(NO_DOUBTS[name]))
    assert not verdict.unknown
    assert [str(one) for one in verdict.violations] == []


def test_a_life_that_was_told_what_it_applied_was_shown_a_view() -> None:
    story = NO_DOUBTS["a joiner crashes before it has a state"]
    assert judge(shown(story.replace("b RECEIPT x stable", "b RECEIPT x applied"))).unknown.keys() == {"b"}


def test_an_operator_may_give_a_state_up() -> None:
    old = "previous_primary=3@a cut=4@d state=3@a/4@d holds=true"
    events = shown(STORIES[PRIMARY].replace(old, "previous_primary=3@a cut=4@d holds=true abandons=3@a"))
    assert not judge(events, SHOWN_ONES).violations


def test_the_differing_messages_are_named() -> None:
    story, old, new, _ = PLANTED["together too large at both"]
    found = judge(shown(STORIES[story].replace(old, new)), ["P25"]).violations
    [violation] = [one for one in found if one.witness["what"] == "differ"]
    assert violation.witness["messages"] == ["a:0"]
    assert "a:0 only to a" in violation.sentence
    assert violation.members == ("a", "c")


@pytest.mark.parametrize("order", PROMISES)
def test_every_order_owes_what_applications_are_shown(order: str) -> None:
    assert promises(order) >= set(SHOWN_ONES)
    assert CHECKERS.keys() >= set(SHOWN_ONES)
