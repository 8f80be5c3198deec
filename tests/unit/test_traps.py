"""Every trap of the papers as a pair: on one and the same schedule the naive variant fails and ours passes.

The variants and their stories are in `tests/mutants`. Here each story is played by hand where it is short, and each variant
also fails on a random schedule, which a seed stands for; ours passes on that one and on hundreds of others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.harness import (
    CALM,
    CRASH,
    CRASHES,
    LISTS,
    UNICAST,
    UNORDERED,
    A,
    B,
    Broken,
    C,
    D,
    E,
    Group,
    Stream,
    Weather,
    run,
)
from tests.mutants import agreed_mutants as agreed
from tests.mutants import causal_mutants as causal
from tests.mutants import sequencer_mutants as sequencer
from tests.mutants import stamped_mutants as stamped
from tests.mutants import tomp_mutants as tomp
from unisono.core.ordering import AnyOrdering
from unisono.core.types import Service
from unisono.orders import causal as causal_order
from unisono.orders import holdback, stamps
from unisono.orders.abcast import Abcast
from unisono.orders.all_ack import AllAck
from unisono.orders.causal import Causal
from unisono.orders.holdback import VectorHoldback
from unisono.orders.sequencer import CausalTotal
from unisono.orders.stamps import Stamped
from unisono.orders.tomp import Tomp
from unisono.orders.toto import Toto


@pytest.fixture(autouse=True)
def _unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variant is judged by what it shows the application, so nothing that it sends is refused before."""

    def accept(*_: object) -> None:
        pass

    for where, names in (
        (VectorHoldback, ("demand",)),
        (Stamped, ("_demand_number", "_demand_proposals", "_demand_finals", "_demand_cut")),
        (Tomp, ("_demand_rows", "_demand_acknowledgements")),
        (stamps, ("_demand_sound", "_demand_prefix")),
        (holdback, ("_demand_sound",)),
        (causal_order, ("demand_closed",)),
    ):
        for name in names:
            monkeypatch.setattr(where, name, accept)


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


# The stories, by hand. Each is one schedule, played with any order that sends the same packets.


def a_proposal_overtakes_a_message(order: Order) -> Group:
    group = Group(order, 2)
    group.cast(A, "x")
    group.cast(B, "y")
    group.carry(A, B)  # x; B proposes a stamp
    group.carry(B, A, UNICAST)  # the proposal, before y: x is final
    group.carry(B, A)
    group.carry(A, B, UNICAST)  # y is final at B, which does not know yet that x is
    group.settle()
    return group


def two_messages_cross(order: Order) -> Group:
    group = Group(order, 2)
    group.cast(A, "x")
    group.cast(B, "y")
    group.carry(A, B)
    group.carry(B, A)
    group.settle()
    return group


def only_some_hold_the_message(order: Order) -> Group:
    group = Group(order, 3)
    group.cast(A, "x")
    group.carry(A, C)  # x reaches C, and never B
    group.cast(B, "y")
    for other in (A, C):
        group.carry(B, other)
        group.carry(other, B, UNICAST)  # the proposals for y
    assert group.names(B) == ["y"]
    group.carry(B, C)  # the final stamp of y
    group.crash(A)
    group.flush()
    return group


def the_highest_stamp_came_from_one_who_left(order: Order) -> Group:
    group = Group(order, 3)
    group.cast(C, "z")  # so that C stamps high; it reaches nobody
    group.cast(B, "x")
    group.cast(B, "y")
    group.carry(B, A)
    group.carry(B, A)
    group.carry(B, C)
    group.carry_all(A, [B], UNICAST)
    group.carry(C, B, UNICAST)  # 2.c is the final stamp of x
    group.carry(B, A)
    group.crash(C)
    group.flush()
    return group


def a_raised_stamp_came_from_one_who_left(order: Order) -> Group:
    group = Group(order, 4)
    group.cast(B, "x")
    group.carry(B, A)
    group.carry(B, C)  # everyone but D has x first
    group.cast(C, "m")
    for other in (A, B, D):
        group.carry(C, other)
        group.carry(other, C, UNICAST)  # the last proposal decides m
    group.crash(D)
    group.flush()
    return group


def the_own_next_message_is_stamped_below_a_raised_one(order: Order) -> Group:
    group = Group(order, 3)
    group.cast(C, "u")
    group.cast(C, "v")  # reach B alone
    group.cast(A, "x")
    group.carry(A, C)
    group.carry(C, A, UNICAST)  # C stamps x 3.c and expects y
    group.carry(C, B)
    group.carry(C, B)
    group.crash(C)
    group.carry(A, B)
    group.cast(A, "y")
    group.carry(B, A, UNICAST)  # x is decided: y is raised to 4.c
    group.cast(A, "w")
    group.flush()
    return group


def a_reply_to_the_caster(order: Order) -> Group:
    group = Group(order, 3)
    group.cast(A, "x")
    group.carry(A, B)
    group.cast(B, "y")
    group.settle()
    return group


def a_message_to_one_member(order: Order) -> Group:
    group = Group(order, 3)
    group.cast(A, "x", to=(A, B))
    group.carry(A, B)
    group.cast(B, "y")
    group.settle()
    return group


def the_cause_is_lost(order: Order) -> Group:
    """A message reaches one other member, which answers it; both crash, and only the answer is left."""
    group = Group(order, 4)
    cause, answer = B, A  # A is the sequencer, where there is one
    group.cast(cause, "x")
    group.carry(cause, answer)
    assert group.names(answer) == ["x"]
    group.cast(answer, "y")
    group.carry_all(answer, [C])
    group.crash(cause)
    group.crash(answer)
    group.flush()
    return group


def the_sequencer_dies_before_it_numbers(order: Order) -> Group:
    group = Group(order, 3)
    group.cast(B, "x")
    group.carry(B, C)
    group.crash(A)
    group.flush()
    return group


def the_silent_member_decides(order: Order) -> Group:
    group = Group(order, 5)
    group.cast(C, "y")
    group.cast(E, "x")
    group.carry(E, D)
    group.quiet(D)  # D votes for x alone
    group.carry(E, B)
    group.carry(D, B)
    group.quiet(B)  # so does B, but A does not know
    group.carry(C, A)
    group.carry(E, A)
    group.quiet(A)  # A votes for both
    group.carry(D, A)
    group.carry(C, D)
    group.quiet(D)  # a later packet of D follows y too
    group.carry(D, A)
    group.settle()
    return group


def a_stranger_decides(order: Order) -> Group:
    group = Group(order, 5)
    group.cast(C, "hello", Service.CAUSAL)  # before C has seen any candidate
    group.cast(D, "y")
    group.cast(E, "x")
    group.carry(E, C)
    group.quiet(C)  # C votes for x alone, but B has only the greeting
    group.carry(E, A)
    group.quiet(A)  # A votes for x alone
    group.carry(D, A)
    group.quiet(A)  # a later packet of A follows y too
    group.carry(D, B)
    group.carry(E, B)
    group.carry(A, B)
    group.quiet(B)  # B votes for both
    group.carry(A, B)
    group.carry(C, B)  # the greeting
    group.settle()
    return group


def the_tail_of_the_one_before(order: Order) -> Group:
    group = Group(order, 2)
    group.cast(A, "x1")
    group.carry(A, B)
    group.cast(A, "x2")
    group.cast(B, "y")
    group.settle()
    return group


def an_explicit_acknowledgement_decides(order: Order) -> Group:
    group = Group(order, 3)
    group.cast(C, "x")
    group.cast(B, "y")
    group.carry(C, A)
    group.quiet(A)
    assert group.names(A) == ["x"]
    group.carry(B, A)
    group.carry(B, C)
    group.crash(B)
    group.flush()
    return group


def a_message_follows_an_explicit_acknowledgement(order: Order) -> Group:
    group = Group(order, 4)
    group.cast(D, "x")
    group.carry(D, A)
    group.quiet(A)
    group.carry(A, D)
    group.cast(D, "y")
    group.crash(B)
    group.flush()
    return group


STORIES: list[tuple[Callable[[Order], Group], Order, Order, Broken]] = [
    (a_proposal_overtakes_a_message, stamped.AbcastCounterStays, Abcast, Broken.TOTAL),
    (a_proposal_overtakes_a_message, stamped.TompCounterStays, Tomp, Broken.TOTAL),
    (a_proposal_overtakes_a_message, tomp.TompMaximum, Tomp, Broken.TOTAL),
    (two_messages_cross, stamped.AbcastByCounter, Abcast, Broken.TOTAL),
    (two_messages_cross, stamped.TompByCounter, Tomp, Broken.TOTAL),
    (only_some_hold_the_message, stamped.AbcastHoldersAlone, Abcast, Broken.TOTAL),
    (only_some_hold_the_message, stamped.TompHoldersAlone, Tomp, Broken.TOTAL),
    (the_highest_stamp_came_from_one_who_left, stamped.AbcastNoFloor, Abcast, Broken.FIFO),
    (the_own_next_message_is_stamped_below_a_raised_one, stamped.TompNoFloor, Tomp, Broken.FIFO),
    (the_own_next_message_is_stamped_below_a_raised_one, stamped.TompFinalsFirst, Tomp, Broken.FIFO),
    (a_raised_stamp_came_from_one_who_left, stamped.TompOriginalProposals, Tomp, Broken.TOTAL),
    (a_reply_to_the_caster, causal.OwnEntryTicks, Causal, Broken.VALIDITY),
    (a_reply_to_the_caster, causal.EveryEntryTicks, Causal, Broken.VALIDITY),
    (a_message_to_one_member, causal.NoPlaceholders, Causal, Broken.VALIDITY),
    (the_cause_is_lost, causal.NotClosed, Causal, Broken.CAUSAL),
    (the_cause_is_lost, sequencer.WithoutSeen, CausalTotal, Broken.CAUSAL),
    (the_sequencer_dies_before_it_numbers, sequencer.ForgetsLeftovers, CausalTotal, Broken.VALIDITY),
    (the_silent_member_decides, agreed.StarCompared, Toto, Broken.TOTAL),
    (a_stranger_decides, agreed.InfinityForStrangers, Toto, Broken.TOTAL),
    (the_tail_of_the_one_before, agreed.NothingAnew, Toto, Broken.TOTAL),
    (an_explicit_acknowledgement_decides, agreed.TotoAcksNotHandedOver, Toto, Broken.TOTAL),
    (a_message_follows_an_explicit_acknowledgement, agreed.AcksLost, AllAck, Broken.AGREEMENT),
]


@pytest.mark.parametrize(("story", "naive", "ours", "breaks"), STORIES)
def test_the_story(story: Callable[[Order], Group], naive: Order, ours: Order, breaks: Broken) -> None:
    assert set(story(naive).violations()) == {breaks}
    assert story(ours).violations() == {}


def test_b6_the_story_of_a_source_that_is_not_fifo() -> None:
    """Only the channel differs: batch 2 of B overtakes batch 1, or does not. ABCAST does not mind."""

    def play(order: Order, at: int) -> Group:
        group = Group(order, 2, in_order=at == 0)
        group.cast(B, "1")
        group.cast(B, "2")
        group.carry(B, A, at=at)
        group.carry(B, A)
        group.carry(A, B, UNICAST)
        group.cast(A, "m")
        group.carry(A, B, UNICAST)  # both batches of B are decided there
        group.carry(A, B)
        group.carry(B, A, UNICAST)  # m is decided before A knows that
        group.carry(B, A, at=at)  # the final stamp of batch 1; that of batch 2 is still under way
        group.settle()
        return group

    assert Broken.TOTAL in play(tomp.TompAnyOrder, 1).violations()
    assert Broken.TOTAL not in play(tomp.AbcastAnyOrder, 1).violations()
    assert play(tomp.TompAnyOrder, 0).violations() == {}
    assert play(Tomp, 0).violations() == {}


def test_without_fifo_abcast_still_has_one_order() -> None:
    for seed in range(300):
        assert Broken.TOTAL not in run(tomp.AbcastAnyOrder, seed, UNORDERED).violations(), f"seed {seed}"


def test_b4_the_story_of_an_acknowledgement_that_overtakes_data() -> None:
    """Where the acknowledgement travels in the stream of the data, the same member hears it only after x."""

    def play(order: Order, acks_beside: bool) -> Group:
        group = Group(order, 2)
        group.cast(A, "x")
        group.cast(B, "y")
        group.carry(B, A)
        group.quiet(A)
        assert (Stream(A, B, UNICAST) in group.streams) == acks_beside
        if acks_beside:
            group.carry(A, B, UNICAST)
        group.settle()
        return group

    assert set(play(agreed.AcksBeside, True).violations()) == {Broken.TOTAL}
    assert play(AllAck, False).violations() == {}
