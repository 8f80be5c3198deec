"""A fault at every point: as the k-th control message of a view change arrives, somebody crashes or the network splits.

Stories: a member has crashed; two halves merge; one joins while another leaves. In each, unstable messages are under way.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.membership_harness import World, is_proposal
from unisono.core.types import MemberId
from unisono.core.wire.control import Control, Hello, Notice
from unisono.trace.checks import Result

pytestmark = pytest.mark.usefixtures("collect")

POINTS = 28
FAULTS: dict[str, Callable[[World], None]] = {
    "crash of a": lambda world: world.crash("a"),
    "crash of b": lambda world: world.crash("b"),
    "crash of c": lambda world: world.crash("c"),
    "split ab|cde": lambda world: world.partition("ab", "cde"),
    "split ac|bde": lambda world: world.partition("ac", "bde"),
    "one way from a": lambda world: world.cuts.update({("a", "b"), ("a", "c")}),
}


def speak(world: World) -> None:
    for number in range(3):
        for node in world.living:
            node.cast(f"{node.id}/{number}".encode())
        world.run(0.001)


def one_crashed(world: World) -> None:
    world.group("abcd")
    world.cut("d", "b")
    speak(world)
    world.crash("d")


def two_halves_merge(world: World) -> None:
    world.group("abcd")
    speak(world)
    world.partition("ab", "cd")
    assert world.run(10, lambda: world.is_one("ab") and world.is_one("cd"))
    speak(world)
    world.heal()


def one_joins_and_one_leaves(world: World) -> None:
    nodes = world.group("abcd")
    speak(world)
    world.start("e", seeds=("a", "b"))
    nodes[3].turn(nodes[3].membership.leave)


STORIES = (one_crashed, two_halves_merge, one_joins_and_one_leaves)


def strike_at(point: int, fault: Callable[[World], None], story: Callable[[World], None], order: str) -> None:
    world = World(order, f"{point}")
    story(world)
    count = -1

    def watch(_: MemberId, __: MemberId, message: Control) -> bool:
        nonlocal count
        if not isinstance(message, Hello | Notice) and (count >= 0 or is_proposal(message)):
            count += 1
            if count == point:
                fault(world)
        return True

    world.filter = watch
    world.run(1.5)
    speak(world)
    verdict = world.finish()
    assert verdict.result is Result.PASS, f"point {point}: {verdict}\n{world.story()}"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("story", STORIES)
def test_a_fault_at_some_points(story: Callable[[World], None], fault: str) -> None:
    for point in range(0, POINTS, 4):
        strike_at(point, FAULTS[fault], story, "sequencer")


@pytest.mark.slow
@pytest.mark.parametrize("order", ["fifo", "causal", "sequencer", "abcast", "toto"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("story", STORIES)
def test_a_fault_at_every_point(story: Callable[[World], None], fault: str, order: str) -> None:
    for point in range(POINTS):
        strike_at(point, FAULTS[fault], story, order)
