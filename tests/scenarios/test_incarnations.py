"""C20 with whole members: incarnations. The rule itself is tried in `tests/unit/test_incarnation.py`."""

from __future__ import annotations

import pytest

from tests.group_tools import load, passes, settles
from unisono.core.config import SECOND
from unisono.core.incarnation import begin_life
from unisono.core.types import MemberId
from unisono.sim.group_world import GroupWorld

NOON = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("record", "wall_ns"),
    [("kept", NOON + SECOND), ("kept", NOON - 3_600 * SECOND), ("truncated", NOON + SECOND), (None, NOON + SECOND)],
    ids=["both good", "clock set back", "file truncated", "file gone"],
)
def test_c20_a_new_life_is_known_as_new_if_file_or_clock_is_good(record: str | None, wall_ns: int) -> None:
    world = GroupWorld("sequencer", seed=20)
    first = begin_life(None, NOON)
    world.start("a", "b", seeds="ab")
    world.start("c", seeds="ab", incarnation=first.incarnation)
    settles(world, "abc")
    load(world, 10)
    kept = {"kept": first.record, "truncated": first.record[:-3], None: None}[record]
    second = begin_life(kept, wall_ns)
    world.crash("c")
    world.start("c", seeds="ab", incarnation=second.incarnation)
    settles(world, "abc", 3)
    load(world, 10)
    world.crash("a")
    settles(world, "bc")
    assert world.processes["b"].views[-1].members[-1] == MemberId("c", second.incarnation)
    passes(world)


def test_c20_if_both_fail_the_new_life_is_refused_as_an_old_one_and_the_group_is_safe() -> None:
    world = GroupWorld("sequencer", seed=20)
    first = begin_life(None, NOON)
    world.start("a", "b", seeds="ab")
    world.start("c", seeds="ab", incarnation=first.incarnation)
    settles(world, "abc")
    world.crash("c")
    world.start("c", seeds="ab", incarnation=begin_life(first.record[:5], NOON - SECOND).incarnation)
    load(world, 200)
    settles(world, "ab")
    world.crash("c")
    passes(world)
