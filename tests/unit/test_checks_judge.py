"""From violations and gaps to a verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unisono.trace.checks import IMPLIES, Observer, Result, Verdict, judge, judge_all
from unisono.trace.checks.checker import VIOLATIONS_MAX
from unisono.trace.promises import promises
from unisono.trace.schema import Event, TraceError
from unisono.trace.story import renumber, tell

OWED = promises("causal-total")
SHORT = "a,b VIEW 1@a a b\na CAST x\na,b DELIVER x\n"


def test_a_whole_and_clean_run_passes() -> None:
    verdict = judge(tell(SHORT + "all END"), OWED)
    assert verdict.result is Result.PASS
    assert verdict.members == {"a": Result.PASS, "b": Result.PASS}
    assert verdict.weakest == ()
    assert str(verdict).startswith("PASS")


def test_a_member_that_stops_without_an_ending_is_unknown() -> None:
    verdict = judge(tell(SHORT + "a END"), OWED)
    assert verdict.result is Result.UNKNOWN
    assert verdict.members == {"a": Result.PASS, "b": Result.UNKNOWN}
    assert verdict.unknown == {"b": "its trace stops without END, LEAVE or CRASH"}


def test_a_crash_is_an_ending() -> None:
    assert judge(tell(SHORT + "a END\nb CRASH"), OWED).result is Result.PASS


def test_a_member_of_a_view_without_a_trace_is_unknown() -> None:
    verdict = judge(tell("a VIEW 1@a a b\na END"), OWED)
    assert verdict.result is Result.UNKNOWN
    assert verdict.unknown == {"b": "there is no trace of it"}


def test_nothing_at_all_is_unknown() -> None:
    assert judge([], OWED).result is Result.UNKNOWN


def test_casts_beyond_the_end_of_a_trace_are_unknown_and_not_created() -> None:
    """b's trace stops before the CAST of y, which a delivered."""
    story = SHORT + "b CAST y\na,b DELIVER y\na END"
    events = [event for event in tell(story) if not (event.member == "b" and event.local_index >= 2)]
    verdict = judge(events, OWED)
    assert verdict.result is Result.UNKNOWN
    assert not verdict.violations


def test_messages_of_a_member_without_a_trace_are_unknown_and_not_created() -> None:
    events = [event for event in tell(SHORT + "all END") if event.member == "b"]
    verdict = judge(events, OWED)
    assert verdict.result is Result.UNKNOWN
    assert not verdict.violations


def test_a_violation_outweighs_a_gap() -> None:
    events = tell("a,b VIEW 1@a a b\na CAST x\na DELIVER x\na DELIVER x\na END\nb END")
    events = [event for event in events if (event.member, event.kind) != ("b", "END")]
    verdict = judge(events, OWED)
    assert verdict.result is Result.FAIL
    assert verdict.members == {"a": Result.FAIL, "b": Result.UNKNOWN}


def test_in_the_stay_before_a_gap_a_member_is_still_judged() -> None:
    """b's first view is whole, so what it lacks there counts, although rows of its second view are missing."""
    story = "a,b VIEW 1@a a b\na CAST x\na DELIVER x\na,b VIEW 2@a a b from a b\nb PAUSE\nall END"
    events = [event for event in tell(story) if event.kind != "PAUSE"]
    assert judge(events, OWED).broken == {"P5", "P14"}


def test_the_weakest_broken_property_is_named() -> None:
    story = "a,b VIEW 1@a a b\na CAST x\nb CAST y\na DELIVER x\na DELIVER y\nb DELIVER y\nb DELIVER x\nall END"
    verdict = judge(tell(story), OWED)
    assert verdict.broken == {"P9a", "P9b", "P9c"}
    assert verdict.weakest == ("P9a",)
    assert "P9c:" not in str(verdict)
    assert IMPLIES["P9c"] == {"P9a", "P9b"}


def test_a_circle_is_weaker_than_another_sequence() -> None:
    story = "a,b VIEW 1@a a b\na CAST x\na CAST y\na DELIVER x\na DELIVER y\nb DELIVER y\nall END"
    assert judge(tell(story), promises("sequencer")).weakest == ("P5", "P9c", "P14")


def test_violations_are_counted_and_the_first_ones_told() -> None:
    lines = ["a VIEW 1@a a", *(f"a CAST m{n}" for n in range(VIOLATIONS_MAX + 5)), "a END"]
    verdict = judge(tell("\n".join(lines)), OWED)
    assert verdict.counts == {"P4": VIOLATIONS_MAX + 5}
    assert len(verdict.violations) == VIOLATIONS_MAX


def test_an_observer_tells_as_soon_as_it_is_certain() -> None:
    observer = Observer(OWED)
    for event in tell(SHORT + "b DELIVER x"):
        assert not observer.violations
        observer.observe(event)
    assert [violation.property for violation in observer.violations] == ["P2", "P6"]


def test_an_observer_knows_only_what_it_can_judge() -> None:
    with pytest.raises(TraceError, match="there is no checker for P98, P99"):
        Observer(["P0", "P99", "P98"])


def test_two_runs_are_judged_apart() -> None:
    events = tell(SHORT + "all END", run="one") + tell(SHORT + "a END", run="two", protocol="abcast")
    with pytest.raises(TraceError, match="judge each alone"):
        judge(events, OWED)
    verdicts = judge_all(events)
    assert {whose: verdict.result for whose, verdict in verdicts.items()} == {
        ("one", "g"): Result.PASS,
        ("two", "g"): Result.UNKNOWN,
    }
    assert verdicts["two", "g"].owed == promises("abcast")
    assert judge_all(events, ["P0"])["one", "g"].owed == {"P0"}


def test_a_missing_cast_holds_nobody_up_for_ever() -> None:
    """Everyone waits for a CAST that is not there, for another's behind it, and in a circle; all rows are judged."""
    story = """
        a,b,c VIEW 1@a a b c
        a CAST x
        b CAST y
        c CAST z
        a,b,c DELIVER x
        a,b,c DELIVER y
        a,b,c DELIVER z
        a CAST w
        a,b,c DELIVER w
        b DELIVER w
        all END
    """
    rows = [event for event in tell(story) if not (event.kind == "CAST" and event.member == "c")]
    for backwards in (False, True):
        events = sorted(renumber(rows), key=lambda event: event.member, reverse=backwards)
        assert judge(events, OWED).counts == {"P1": 3, "P2": 1, "P6": 1}


def test_rows_of_a_view_whose_installation_was_lost() -> None:
    """Behind a hole rows may name a view that was never seen installed: unknown, and no violation."""
    story = SHORT + "a,b VIEW 2@a a b from a b\nb CAST y\na,b DELIVER y\nall END"
    events = [event for event in tell(story) if (event.member, event.kind, event.view) != ("a", "VIEW", "2@a")]
    verdict = judge(events, OWED)
    assert not verdict.violations
    assert verdict.unknown == {"a": "row 3 is missing"}


def test_a_trace_that_begins_behind_a_hole() -> None:
    events = [event for event in tell(SHORT + "all END") if not (event.member == "b" and event.local_index == 0)]
    verdict = judge(events, OWED)
    assert not verdict.violations
    assert verdict.unknown == {"b": "row 0 is missing"}


def test_ordinals_may_not_go_back_behind_a_hole() -> None:
    story = "a VIEW 1@a a\na CAST x count 3\na DELIVER x[0:1]\na PAUSE\na DELIVER x[1:2]\na DELIVER x[2:3]\na END"
    events = [event for event in tell(story) if event.kind != "PAUSE"]
    assert judge(events, OWED).result is Result.UNKNOWN
    events[3] = replace(events[3], ordinal=7)
    assert judge(events, OWED).broken == {"P0"}


SWITCHED = """
a,b VIEW 1@a a b
a CAST x
b CAST y
a DELIVER x
a DELIVER y
b DELIVER x
b DELIVER y
a,b VIEW 2@a a b from a b
a CAST v fifo
a CAST w fifo
b CAST u fifo
a DELIVER v
a DELIVER w
a DELIVER u
b DELIVER u
b DELIVER v
b DELIVER w
all END
"""


def only(events: list[Event]) -> Verdict:
    (verdict,) = judge_all(events).values()
    return verdict


def switched(story: str = SWITCHED, order: str = "fifo") -> list[Event]:
    """The run began as `fifo-total`; its second view has another order."""
    events = tell(story, protocol="fifo-total")
    return [replace(event, reason=order) if event.kind == "VIEW" and event.view == "2@a" else event for event in events]


def test_a_run_whose_order_is_switched_owes_in_each_view_what_its_order_promises() -> None:
    verdict = only(switched())
    assert verdict.result is Result.PASS
    assert verdict.owed == promises("fifo-total") | promises("fifo")
    assert judge(switched(), also={"P15"}).owed == verdict.owed | {"P15"}


@pytest.mark.parametrize("view", ["first", "second"])
def test_a_fault_against_what_both_promise_is_found_in_either_view(view: str) -> None:
    old, new = (
        ("b DELIVER v\nb DELIVER w", "b DELIVER w\nb DELIVER v")
        if view == "second"
        else ("a CAST x\n", "a CAST x\na CAST z\nb DELIVER z\n")
    )
    assert old in SWITCHED
    verdict = only(switched(SWITCHED.replace(old, new)))
    assert "P6" in verdict.broken, verdict


def test_what_only_the_first_order_promises_is_owed_in_its_view_alone() -> None:
    """The second view delivers u and v in two orders, which `fifo` allows; in the first, `fifo-total` does not."""
    swapped = SWITCHED.replace("b DELIVER x\nb DELIVER y", "b DELIVER y\nb DELIVER x")
    verdict = only(switched(swapped))
    assert verdict.broken == {"P9a", "P9b", "P9c"}
    assert {violation.view for violation in verdict.violations} == {"1@a"}


def test_an_order_that_is_not_known_keeps_a_run_from_passing() -> None:
    verdict = only(switched(order="raft"))
    assert verdict.result is Result.UNKNOWN
    assert verdict.owed == promises("fifo-total")
    assert verdict.unknown == dict.fromkeys("ab", "nothing is known of the order 'raft' of view 2@a")


def test_what_every_order_owes_is_owed_by_an_unknown_one() -> None:
    twice = SWITCHED.replace("b DELIVER w", "b DELIVER w\nb DELIVER w")
    assert only(switched(twice, order="raft")).broken == {"P2"}


def test_members_that_disagree_about_the_order_of_a_view_break_view_agreement() -> None:
    """And the stricter of the two orders is asked: the weaker one excuses nobody."""
    story = SHORT + "b CAST y\na DELIVER y\nall END"
    events = tell(story, protocol="sequencer")
    weaker = [replace(event, protocol="fifo") if event.member == "b" else event for event in events]
    verdict = only(weaker)
    assert {"P5", "P11", "P14"} <= verdict.broken
    assert verdict.owed == promises("sequencer") | promises("fifo")


def test_a_row_that_names_another_protocol_than_its_life_is_not_well_formed() -> None:
    events = tell(SHORT + "all END")
    events[2] = replace(events[2], protocol="fifo")
    assert only(events).broken == {"P0"}


def test_a_service_that_the_order_does_not_carry_is_not_well_formed() -> None:
    assert only(tell("a,b VIEW 1@a a b\na CAST x fifo\na,b DELIVER x\nall END")).broken == {"P0"}


def test_a_delivery_without_a_digest_is_unknown() -> None:
    events = tell(SHORT + "all END")
    bare = [
        replace(event, digest=None) if event.kind == "DELIVER" and event.member == "b" else event for event in events
    ]
    verdict = only(bare)
    assert verdict.result is Result.UNKNOWN
    assert verdict.unknown == {"b": "its DELIVER (local 1) has no digest that could be compared with its CAST's"}


def test_a_clock_that_runs_backwards_is_a_note() -> None:
    events = tell(SHORT + "all END")
    events[3] = replace(events[3], time_ns=0)
    verdict = only(events)
    assert verdict.result is Result.PASS
    assert verdict.notes == ("a: its clock runs backwards (first at local 2).",)
    assert "note: a: its clock" in str(verdict)


def test_fifty_violations_that_are_not_owed_hide_none_that_is() -> None:
    many = "".join(f"a CAST m{n}\n" for n in range(VIOLATIONS_MAX + 5))
    gone = "".join(f"b DELIVER m{n}\n" for n in reversed(range(VIOLATIONS_MAX + 5)))
    there = "".join(f"a DELIVER m{n}\n" for n in range(VIOLATIONS_MAX + 5))
    second = (
        "a,b VIEW 2@a a b from a b\na CAST v\na CAST w\na DELIVER v\na DELIVER w\nb DELIVER w\nb DELIVER v\nall END"
    )
    story = "a,b VIEW 1@a a b\n" + many + there + gone + second
    events = [
        replace(event, reason="fifo") if event.view == "1@a" and event.kind == "VIEW" else event
        for event in tell(story)
    ]
    events = [replace(event, service="fifo") if event.view == "1@a" and event.service else event for event in events]
    verdict = only(events)
    assert {violation.view for violation in verdict.violations if violation.property == "P9a"} == {"2@a"}
    assert verdict.counts["P9a"] == 1
