"""FIFO and causal order, and the holdback queue by vectors: small cases. The papers' examples are in `tests/papers`."""

from __future__ import annotations

import pytest

from tests.harness import A, B, C, D, Group, make_view
from unisono.core.config import Config
from unisono.orders.causal import Causal, CausalCut
from unisono.orders.fifo import Fifo, FifoCut, FifoReport
from unisono.orders.holdback import Held, VectorHoldback, VectorReport, causally_closed, longest_held


def held(number: int, *vector: int, weight: int = 1) -> Held:
    return Held(number, vector, weight, ())


def test_fifo_holds_nothing_back() -> None:
    group = Group(Fifo, 2)
    group.cast(A, "x")
    group.carry(A, B)
    assert group.orderings[B].waits() == ()
    assert group.orderings[B].report() == FifoReport((1, 0))


def test_fifo_takes_the_longest_prefix_that_anyone_holds() -> None:
    reports = {A: FifoReport((2, 0, 1)), C: FifoReport((1, 0, 3))}
    assert Fifo.merge(make_view(3), Config(), reports) == FifoCut((2, 0, 3))


def test_fifo_closes_with_what_was_missing() -> None:
    group = Group(Fifo, 3)
    for name in ("x", "y", "z"):
        group.cast(C, name)
    group.carry(C, A)
    group.carry(C, A)
    group.crash(C)
    assert group.flush() == FifoCut((0, 0, 2))  # z died with its caster
    assert group.names(A) == group.names(B) == ["x", "y"]


def test_longest_held() -> None:
    assert longest_held({A: FifoReport((2, 0)), B: FifoReport((1, 5))}) == (2, 5)


# The holdback queue.


def test_a_packet_without_a_past_is_ready() -> None:
    holdback = VectorHoldback(3)
    assert holdback.add(B, held(1, 0, 0, 0)) == [(B, held(1, 0, 0, 0))]
    assert holdback.taken == [0, 1, 0]


def test_a_packet_waits_for_every_origin_of_its_past() -> None:
    holdback = VectorHoldback(4)
    assert holdback.add(D, held(1, 1, 1, 0, 0)) == []
    assert holdback.blockers(held(1, 1, 1, 0, 0)) == (A, B)
    assert holdback.add(B, held(1, 0, 0, 0, 0)) == [(B, held(1, 0, 0, 0, 0))]
    assert holdback.depth(D) == 1
    ready = holdback.add(A, held(1, 0, 0, 0, 0))
    assert [origin for origin, _ in ready] == [A, D]
    assert holdback.taken == [1, 1, 0, 1]
    assert list(holdback.waiting()) == []


def test_a_queue_waits_behind_its_head() -> None:
    holdback = VectorHoldback(2)
    assert holdback.add(B, held(1, 1, 0)) == []
    assert holdback.add(B, held(2, 0, 1)) == []  # would be ready, but its predecessor is not
    assert [h.number for _, h in holdback.waiting()] == [1, 2]
    assert [(origin, h.number) for origin, h in holdback.add(A, held(1, 0, 0))] == [(A, 1), (B, 1), (B, 2)]


def test_one_arrival_releases_a_chain() -> None:
    holdback = VectorHoldback(4)
    assert holdback.add(D, held(1, 1, 1, 1, 0)) == []
    assert holdback.add(C, held(1, 1, 1, 0, 0)) == []
    assert holdback.add(B, held(1, 1, 0, 0, 0)) == []
    assert [origin for origin, _ in holdback.add(A, held(1, 0, 0, 0, 0))] == [A, B, C, D]


def test_weights_advance_by_more_than_one() -> None:
    holdback = VectorHoldback(2)
    assert holdback.add(B, held(1, 3, 0)) == []
    assert holdback.add(A, held(1, 0, 0, weight=2))[0][0] == A
    assert holdback.depth(B) == 1
    assert [origin for origin, _ in holdback.add(A, held(2, 2, 0))] == [A, B]


def test_nobody_can_wait_for_what_was_not_cast() -> None:
    holdback = VectorHoldback(2)
    assert holdback.add(B, held(1, 1, 0)) == []
    with pytest.raises(AssertionError, match="not cast yet"):
        holdback.advance(A, 1)


# The causal merge.


def test_the_cut_is_the_union_of_what_was_delivered() -> None:
    reports = {A: VectorReport((2, 0, 0), (2, 0, 0), ()), B: VectorReport((1, 1, 0), (1, 1, 0), ())}
    assert causally_closed(reports) == (2, 1, 0)


def test_a_held_back_packet_joins_when_another_survivor_has_its_past() -> None:
    reports = {
        A: VectorReport((0, 0, 1), (0, 0, 0), ((C, 1, 1, (0, 1, 0)),)),  # waits for B's first
        B: VectorReport((0, 1, 0), (0, 1, 0), ()),
    }
    assert causally_closed(reports) == (0, 1, 1)


def test_a_packet_whose_past_nobody_holds_is_dropped_with_its_successors() -> None:
    waiting = ((C, 1, 1, (0, 1, 0)), (C, 2, 1, (0, 1, 1)))
    reports = {A: VectorReport((0, 0, 2), (0, 0, 0), waiting), B: VectorReport((0, 0, 0), (0, 0, 0), ())}
    assert causally_closed(reports) == (0, 0, 0)


def test_one_origin_that_is_stuck_does_not_keep_the_others_out() -> None:
    """The cut is the *largest* closed set: A's waits for a lost packet of D, C's only for one of B, which a survivor has."""
    waiting = ((A, 1, 1, (0, 0, 0, 1)), (C, 1, 1, (0, 1, 0, 0)), (C, 2, 1, (0, 1, 1, 0)))
    reports = {
        A: VectorReport((1, 0, 2, 0), (0, 0, 0, 0), waiting),
        B: VectorReport((0, 1, 0, 0), (0, 1, 0, 0), ()),
    }
    assert causally_closed(reports) == (0, 1, 2, 0)


def test_slots_and_messages_are_counted_apart() -> None:
    """`taken` counts messages, the cut counts batches."""
    reports = {
        A: VectorReport((1, 1, 0), (5, 0, 0), ((B, 1, 2, (5, 0, 0)),)),
        B: VectorReport((0, 0, 0), (0, 0, 0), ()),
    }
    assert causally_closed(reports) == (1, 1, 0)


def test_causal_drops_what_follows_a_lost_message() -> None:
    group = Group(Causal, 4)
    group.cast(A, "lost")
    group.carry(A, B)
    group.cast(B, "follows")
    group.carry(B, C)
    group.cast(C, "independent")
    group.crash(A)
    group.crash(B)
    assert group.flush() == CausalCut((0, 0, 1, 0))
    assert group.names(C) == group.names(D) == ["independent"]


def test_causal_hands_over_what_some_hold() -> None:
    group = Group(Causal, 4)
    group.cast(A, "x")
    group.carry(A, B)
    group.cast(B, "y")
    group.carry(B, C)  # C holds y, and D nothing
    group.crash(A)
    assert group.flush() == CausalCut((1, 1, 0, 0))
    assert group.names(B) == group.names(C) == group.names(D) == ["x", "y"]


def test_causal_explains_what_waits_for_whom() -> None:
    group = Group(Causal, 4)
    group.cast(A, "x")
    group.carry(A, C)
    group.cast(B, "y")
    group.carry(B, C)
    group.cast(C, "z")
    group.carry(C, D)
    (wait,) = group.orderings[D].waits()
    assert wait.batch.origin == C
    assert (wait.reason, wait.waits_for) == ("its causal past is not all here", (A, B))
    group.carry(A, D)
    (wait,) = group.orderings[D].waits()
    assert wait.waits_for == (B,)
