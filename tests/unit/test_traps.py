"""Every trap of the papers as a pair: on one and the same schedule the naive variant fails and ours passes.

The stories `tests/stories/trap_*.txt` tell of them by hand. Here each variant fails on a random schedule, which a seed stands
for; ours passes on that one and on hundreds of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.harness import CALM, CRASH, CRASHES, LISTS, UNORDERED, Broken, Weather, run
from tests.mutants import agreed_mutants as agreed
from tests.mutants import causal_mutants as causal
from tests.mutants import sequencer_mutants as sequencer
from tests.mutants import stamped_mutants as stamped
from tests.mutants import tomp_mutants as tomp
from tests.stories.by_hand import unguarded
from unisono.core.ordering import AnyOrdering
from unisono.orders.abcast import Abcast
from unisono.orders.all_ack import AllAck
from unisono.orders.causal import Causal
from unisono.orders.sequencer import CausalTotal
from unisono.orders.tomp import Tomp
from unisono.orders.toto import Toto


@pytest.fixture(autouse=True)
def _unguarded() -> Iterator[None]:
    with unguarded():
        yield


Order = type[AnyOrdering]
FIVE = Weather(sizes=(5, 5), casts=(3, 8), causal=0.6)


class Trap(NamedTuple):
    """A variant, the order that it spoils, a schedule on which it fails, and what the application sees of it."""

    naive: Order
    ours: Order
    weather: Weather
    seed: int
    breaks: Broken


TRAPS = [
    Trap(stamped.AbcastCounterStays, Abcast, CALM, 417, Broken.TOTAL),
    Trap(stamped.TompCounterStays, Tomp, CALM, 417, Broken.TOTAL),
    Trap(stamped.AbcastByCounter, Abcast, CALM, 993, Broken.TOTAL),
    Trap(stamped.TompByCounter, Tomp, CALM, 993, Broken.TOTAL),
    Trap(tomp.TompMaximum, Tomp, CALM, 417, Broken.TOTAL),
    Trap(stamped.AbcastHoldersAlone, Abcast, CRASH, 10288, Broken.TOTAL),
    Trap(stamped.TompHoldersAlone, Tomp, CRASH, 10288, Broken.TOTAL),
    Trap(stamped.TompOriginalProposals, Tomp, CRASH, 14906, Broken.TOTAL),
    Trap(stamped.TompOriginalsOfHolders, Tomp, CRASH, 10288, Broken.TOTAL),
    Trap(stamped.AbcastNoFloor, Abcast, CRASH, 860, Broken.FIFO),
    Trap(stamped.TompNoFloor, Tomp, CRASH, 29960, Broken.FIFO),
    Trap(stamped.TompFinalsFirst, Tomp, CRASH, 29960, Broken.FIFO),
    Trap(causal.OwnEntryTicks, Causal, CALM, 2, Broken.VALIDITY),
    Trap(causal.EveryEntryTicks, Causal, CALM, 2, Broken.VALIDITY),
    Trap(causal.NoPlaceholders, Causal, LISTS, 67, Broken.VALIDITY),
    Trap(causal.NotClosed, Causal, CRASHES, 1946, Broken.CAUSAL),
    Trap(sequencer.WithoutSeen, CausalTotal, CRASHES, 28404, Broken.CAUSAL),
    Trap(sequencer.ForgetsLeftovers, CausalTotal, CRASH, 4607, Broken.VALIDITY),
    Trap(agreed.StarCompared, Toto, CALM, 21183, Broken.TOTAL),
    Trap(agreed.InfinityForStrangers, Toto, FIVE, 24299, Broken.TOTAL),
    Trap(agreed.NothingAnew, Toto, CALM, 522, Broken.TOTAL),
    Trap(agreed.TotoAcksNotHandedOver, Toto, CRASH, 3923, Broken.TOTAL),
    Trap(agreed.AcksLost, AllAck, CRASH, 88, Broken.AGREEMENT),
]

OTHER_CHANNEL = [  # these variants need a channel, or send packets, that ours does not know
    Trap(tomp.TompAnyOrder, Tomp, UNORDERED, 209, Broken.TOTAL),
    Trap(agreed.AcksBeside, AllAck, CALM, 18941, Broken.TOTAL),
]

HARMLESS: list[tuple[Order, Weather]] = [
    (stamped.TompRaisedFirst, CALM),
    (tomp.TompMinimum, CALM),
    (stamped.AbcastFinalsFirst, CRASHES),
    (stamped.AbcastFinalsFirstWithFloor, CRASHES),
    (stamped.TompFinalsFirstWithFloor, CRASHES),
]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.naive.__name__)
def test_on_one_schedule_the_naive_variant_fails_and_ours_passes(trap: Trap) -> None:
    naive, ours = (run(order, trap.seed, trap.weather) for order in (trap.naive, trap.ours))
    assert set(naive.violations()) == {trap.breaks}
    assert ours.violations() == {}
    assert naive.steps == ours.steps


@pytest.mark.parametrize("trap", OTHER_CHANNEL, ids=lambda trap: trap.naive.__name__)
def test_on_a_channel_of_its_own_the_naive_variant_fails(trap: Trap) -> None:
    assert set(run(trap.naive, trap.seed, trap.weather).violations()) == {trap.breaks}


def _tried() -> list[tuple[Order, Weather, frozenset[int]]]:
    """Every pair of an order of ours and a weather in which a variant of it fails, with the seeds on which it does."""
    seeds: dict[tuple[Order, Weather], set[int]] = {}
    for trap in TRAPS + OTHER_CHANNEL:
        weather = CALM if trap.weather is UNORDERED else trap.weather  # the streams of ours keep order
        seeds.setdefault((trap.ours, weather), set()).add(trap.seed)
    return [(order, weather, frozenset(found)) for (order, weather), found in seeds.items()]


@pytest.mark.parametrize(("order", "weather", "seeds"), _tried())
def test_ours_passes_on_these_and_hundreds_of_other_schedules(
    order: Order, weather: Weather, seeds: frozenset[int]
) -> None:
    for seed in sorted(seeds | set(range(300))):
        assert run(order, seed, weather).violations() == {}, f"seed {seed}"


# Variants that lose time, not order.


@pytest.mark.parametrize(("order", "seed"), [(stamped.TompRaisedFirst, 5604), (tomp.TompMinimum, 294)])
def test_a_weaker_bound_delivers_later_than_ours_on_the_same_schedule(order: Order, seed: int) -> None:
    weaker, ours = run(order, seed), run(Tomp, seed)
    assert weaker.steps == ours.steps
    assert any(weaker.when[what] > ours.when[what] for what in ours.when)
    assert not any(weaker.when[what] < ours.when[what] for what in ours.when)


@pytest.mark.parametrize(("order", "weather"), HARMLESS)
def test_these_variants_break_no_promise(order: Order, weather: Weather) -> None:
    for seed in range(300):
        assert run(order, seed, weather).violations() == {}, f"seed {seed}"


def test_without_fifo_abcast_still_has_one_order() -> None:
    for seed in range(300):
        assert Broken.TOTAL not in run(tomp.AbcastAnyOrder, seed, UNORDERED).violations(), f"seed {seed}"
