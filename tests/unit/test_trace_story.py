"""Traces written by hand."""

from __future__ import annotations

import pytest

from unisono.trace.schema import TraceError
from unisono.trace.story import renumber, tell


def test_a_story_is_counted_as_a_recorder_counts() -> None:
    events = tell("""
        - two members, then one
        a,b#1 VIEW 1@a a b#1
        a CAST x count 2
        b#1 DELIVER x[0:1]
        b#1 DELIVER x[1:2]
        b#1 CAST y to a causal
        b#1 PLACE y void
        b#1 LEAVE was asked to
        a VIEW 2@a a from a
        all END cut
    """)
    assert [(event.member, event.incarnation, event.local_index) for event in events[:3]] == [
        ("a", 0, 0),
        ("b", 1, 0),
        ("a", 0, 1),
    ]
    half, rest, y, placed, left, view, end = events[3:]
    assert (half.first, half.count, half.ordinal, half.digest) == (0, 1, 0, None)
    assert (rest.first, rest.count, rest.ordinal) == (1, 1, 1)
    assert (y.frontier, y.destinations, y.service) == ((2, 0), ("a",), "causal")
    assert (placed.kind, placed.ordinal, placed.attributes) == ("PLACE", 0, {"void": "true"})
    assert left.reason == "was asked to"
    assert (view.previous_view, view.transitional) == ("1@a", ("a",))
    assert (end.member, end.reason) == ("a", "cut")


def test_renumbering_a_story_changes_nothing() -> None:
    events = tell("a VIEW 1@a a\na CAST x\na DELIVER x\na VIEW 2@a a\na CAST y\na DELIVER y\na END")
    assert renumber(events) == events
    shorter = renumber([event for event in events if event.kind != "CAST"])
    assert [event.local_index for event in shorter] == list(range(5))


@pytest.mark.parametrize("line", ["a", "a DANCES", "a DELIVER x", "a DELIVER x[1]"])
def test_a_line_that_says_nothing(line: str) -> None:
    with pytest.raises(TraceError, match="line 2 of the story"):
        tell("a VIEW 1@a a\n" + line)
