"""B2 and B12, where the network draws lots: the naive variant of an order fails, and ours passes. Stories tell the rest of B.

The same traps on single schedules and in every schedule are in `tests/unit/test_traps.py` and `tests/sim/test_explore.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.group_tools import load, passes
from tests.mutants import causal_mutants, stamped_mutants
from unisono.core.options import CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.orders.registry import ORDERS
from unisono.sim.group_world import GroupWorld

Script = Callable[[GroupWorld], None]
ASSERTION = "an assertion"


def broken(order: str, kind: type[AnyOrdering], script: Script) -> set[str]:
    """What a group with this variant of an order breaks in a script: properties, or an assertion inside of it."""
    world = GroupWorld(order, orders={**ORDERS, order: kind})
    world.has_liars = True  # what such a member sends may be refused, and that is no mistake here
    try:
        script(world)
        return set(world.finish().broken)
    except AssertionError:
        return {ASSERTION}


def keeps(order: str, script: Script) -> None:
    world = GroupWorld(order)
    script(world)
    passes(world)


# B2: equal counters of several proposers are told apart by their ranks.


def many_cross(world: GroupWorld) -> None:
    world.network.loss = 0.3
    world.gather("abc")
    load(world, 40, 0.002)


@pytest.mark.parametrize(
    ("order", "naive"), [("abcast", stamped_mutants.AbcastByCounter), ("tomp", stamped_mutants.TompByCounter)]
)
def test_b2_equal_final_counters_of_several_proposers(order: str, naive: type[AnyOrdering]) -> None:
    assert "P9a" in broken(order, naive, many_cross)
    keeps(order, many_cross)


# B12: messages to some members only.


def subsets(world: GroupWorld) -> None:
    """Each message goes to its caster and half of the others, so that causes reach some members through others alone."""
    world.network.loss = 0.1
    world.gather("abcd")
    for number in range(40):
        for process in world.up:
            to = [other.id for other in world.up if other is process or (number + ord(other.id.address)) % 2]
            process.cast(b"%d" % number, CastOptions(to=tuple(to)))
        world.run(0.003)
        if number == 25:
            world.crash("b")


def test_b12_destination_subsets_in_causal_order() -> None:
    assert broken("causal", causal_mutants.NoPlaceholders, subsets)
    keeps("causal", subsets)


@pytest.mark.parametrize("order", ["fifo", "causal-total", "tomp", "toto", "rmp"])
def test_b12_destination_subsets_in_other_orders(order: str) -> None:
    keeps(order, subsets)


def test_which_orders_mix_classes() -> None:
    assert {name for name, kind in ORDERS.items() if len(kind.services) > 1} == {"toto", "all-ack", "rmp"}
