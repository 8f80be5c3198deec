"""A fault at every point: as the k-th control message of a view change is sent, a member crashes or the network splits.

Stories: a member has crashed; two halves merge; one joins while another leaves. In each, unstable messages are under way.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.group_tools import ClosingWorld, load, name_of, passes, watch_control, with_membership
from unisono.core.wire.control import Control, Hello, Notice
from unisono.sim.group_world import GroupWorld

POINTS = 28


def cut(world: GroupWorld, src: str, targets: str) -> None:
    for dst in targets:
        world.network.cut(src, dst)


Step = Callable[[GroupWorld], None]
FAULTS: dict[str, Step] = {
    "crash of a": lambda world: world.crash("a"),
    "crash of b": lambda world: world.crash("b"),
    "crash of c": lambda world: world.crash("c"),
    "split ab|cde": lambda world: world.partition("ab", "cde"),
    "split ac|bde": lambda world: world.partition("ac", "bde"),
    "one way from a": lambda world: cut(world, "a", "bc"),
}


def one_crashed(world: GroupWorld) -> None:
    world.network.cut("d", "b")
    load(world, 3, 0.001)
    world.crash("d")


def two_halves_merge(world: GroupWorld) -> None:
    load(world, 3, 0.001)
    world.partition("ab", "cd")
    assert world.run(10, lambda: world.is_one("ab") and world.is_one("cd"))
    load(world, 3, 0.001)
    world.network.heal()


def one_joins_and_one_leaves(world: GroupWorld) -> None:
    load(world, 3, 0.001)
    world.start("e", seeds="ab")
    world.leave("d")


STORIES = (one_crashed, two_halves_merge, one_joins_and_one_leaves)


def strike_at(point: int, fault: Step, story: Step, order: str, collect: str) -> None:
    world = ClosingWorld(order, f"{point}", settings=with_membership(collect=collect))
    world.gather("abcd")
    story(world)
    count = -1

    def watch(src: str, dst: str, message: Control) -> bool:
        nonlocal count
        if not isinstance(message, Hello | Notice) and (count >= 0 or name_of(message) in ("propose", "roll")):
            count += 1
            if count == point:
                world.after(0, lambda: fault(world))
        return False

    watch_control(world, watch)
    world.run(1.5)
    load(world, 3, 0.001)
    passes(world)


@pytest.mark.parametrize(("collect", "first"), [("star", 0), ("ring", 4)])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("story", STORIES)
def test_a_fault_at_some_points(story: Step, fault: str, collect: str, first: int) -> None:
    for point in range(first, POINTS, 8):
        strike_at(point, FAULTS[fault], story, "sequencer", collect)


@pytest.mark.slow
@pytest.mark.parametrize("collect", ["star", "ring"])
@pytest.mark.parametrize("order", ["fifo", "sequencer", "toto"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("story", STORIES)
def test_a_fault_at_every_point(story: Step, fault: str, order: str, collect: str) -> None:
    for point in range(POINTS):
        strike_at(point, FAULTS[fault], story, order, collect)
