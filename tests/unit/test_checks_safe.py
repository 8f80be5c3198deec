"""P5 of safe messages is uniform: what one delivered safely before it blocked, all who get through the view deliver."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unisono.trace.checks.judge import judge
from unisono.trace.schema import CAST, Event
from unisono.trace.story import tell

CRASHED = """
    a,b,c VIEW 1@a a b c
    a CAST x
    a DELIVER x
    a CRASH
    b,c BLOCK
    b,c VIEW 2@b b c from b c
    all END"""
PARTED = """
    a,b,c VIEW 1@a a b c
    a CAST x
    a DELIVER x
    a,b,c BLOCK
    a VIEW 2@a a from a
    b,c VIEW 2@b b c from b c
    all END"""
STORIES: dict[str, tuple[str, bool]] = {
    "the one that crashed delivered it alone": (CRASHED, True),
    "another part does without it": (PARTED, True),
    "all deliver it": (CRASHED.replace("b,c BLOCK", "b,c BLOCK\n b,c DELIVER x"), False),
    "one of the others delivers it": (CRASHED.replace("b,c BLOCK", "b,c BLOCK\n b DELIVER x"), True),
    "it is not for them": (CRASHED.replace("CAST x", "CAST x to a"), False),
    "it is for one of them": (CRASHED.replace("CAST x", "CAST x to a,c"), True),
    "it delivered it in its own cut": (
        PARTED.replace("a DELIVER x\n    a,b,c BLOCK", "a,b,c BLOCK\n a DELIVER x"),
        False,
    ),
    "they end there": (CRASHED.replace("b,c BLOCK\n    b,c VIEW 2@b b c from b c\n", ""), True),
    "the end was cut": (CRASHED.replace("b,c BLOCK\n    b,c VIEW 2@b b c from b c\n    all END", "all END cut"), False),
}
"""By name: a story with one safe message, and whether that breaks agreement."""


def told(story: str, run: str = "story", safe: bool = True) -> list[Event]:
    return [
        replace(event, attributes={"safe": "true"}) if safe and event.kind == CAST else event
        for event in tell(story, protocol="sequencer", run=run)
    ]


@pytest.mark.parametrize("name", STORIES)
def test_what_was_delivered_safely_binds_all_who_get_through(name: str) -> None:
    """Found by reading: what a crashed member had delivered bound nobody, safe or not."""
    story, is_broken = STORIES[name]
    verdict = judge(told(story), ["P5"])
    assert bool(verdict.counts) is is_broken, str(verdict)


def test_what_was_not_safe_binds_nobody_else() -> None:
    for story in (CRASHED, PARTED):
        assert not judge(told(story, safe=False), ["P5"]).counts


def test_the_sentence_names_who_delivered_it_and_who_did_not() -> None:
    (one, other) = judge(told(CRASHED), ["P5"]).violations
    assert str(one) == (
        "P5: a delivered the safe a:0 (local 2) in view 1@a; b, to whom it is addressed and who went on to 2@b, did not."
    )
    assert other.members == ("a", "c")
