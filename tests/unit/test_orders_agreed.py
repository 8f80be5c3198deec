"""all-ack and ToTo: the graph, explicit acknowledgements, waits, and the view change, in small cases."""

from __future__ import annotations

import pytest

from tests.harness import A, B, C, D, Group
from unisono.core.types import Service
from unisono.orders.agreed import Ack, Agreed, AgreedCut, Data
from unisono.orders.all_ack import AllAck
from unisono.orders.holdback import VectorReport
from unisono.orders.toto import Toto

both = pytest.mark.parametrize("order", [AllAck, Toto])
CAUSAL = Service.CAUSAL


@both
def test_a_packet_says_what_its_sender_had_taken_in(order: type[Agreed]) -> None:
    group = Group(order, 3)
    group.cast(A, "x")
    group.cast(A, "y")
    first, second = group.under_way(A, B)
    assert isinstance(first, Data)
    assert isinstance(second, Data)
    assert (first.number, first.acks) == (1, (0, 0, 0))
    assert (second.number, second.acks) == (2, (1, 0, 0))
    group.carry(A, B)
    group.quiet(B)
    assert group.under_way(B, A) == [Ack(1, (1, 0, 0))]


@both
def test_an_idle_member_acknowledges_once(order: type[Agreed]) -> None:
    group = Group(order, 3)
    group.cast(A, "x")
    group.quiet(A)  # nobody else's message: nothing is owed
    assert len(group.under_way(A, B)) == 1
    group.carry(A, B)
    group.quiet(B)
    group.quiet(B)
    assert len(group.under_way(B, A)) == 1


@both
def test_an_own_message_acknowledges(order: type[Agreed]) -> None:
    group = Group(order, 3)
    group.cast(A, "x")
    group.carry(A, B)
    group.cast(B, "y")
    group.quiet(B)
    (packet,) = group.under_way(B, A)
    assert isinstance(packet, Data)
    assert packet.acks == (1, 0, 0)


@both
def test_nobody_acknowledges_an_acknowledgement_or_a_causal_message(order: type[Agreed]) -> None:
    group = Group(order, 3)
    group.cast(A, "x", CAUSAL)
    group.carry(A, B)
    group.quiet(B)
    assert group.under_way(B, A) == []
    group.cast(A, "y")
    group.carry(A, B)
    group.quiet(B)
    group.carry(B, C)  # held back: C has neither x nor y
    group.quiet(C)
    assert group.under_way(C, A) == []


@both
def test_an_acknowledgement_waits_for_its_past_like_any_packet(order: type[Agreed]) -> None:
    group = Group(order, 3)
    group.cast(A, "x")
    group.carry(A, B)
    group.quiet(B)
    group.carry(B, C)
    assert list(group.orderings[C].waits()) == []  # no batch of an application waits
    assert group.orderings[C].report() == VectorReport((0, 1, 0), (0, 0, 0), ((B, 1, 1, (1, 0, 0)),))
    group.carry(A, C)
    assert group.orderings[C].report().taken == (1, 1, 0)


def test_all_ack_waits_for_everyone() -> None:
    group = Group(AllAck, 3)
    group.cast(A, "x")
    group.carry_all(A)
    group.quiet(B)
    group.carry_all(B)
    (wait,) = group.orderings[A].waits()
    assert (wait.reason, wait.waits_for) == ("too few members have acknowledged the candidates", (C,))
    group.quiet(C)
    assert group.names(C) == ["x"]
    group.carry_all(C)
    assert group.names(A) == group.names(B) == ["x"]


def test_toto_waits_for_a_majority() -> None:
    group = Group(Toto, 3)
    group.cast(A, "x")
    (wait,) = group.orderings[A].waits()
    assert wait.waits_for == (B, C)
    group.carry(A, B)
    group.quiet(B)
    assert group.names(B) == ["x"]
    group.carry(B, A)
    assert group.names(A) == ["x"]


@both
def test_a_batch_whose_past_is_missing_waits_for_it(order: type[Agreed]) -> None:
    group = Group(order, 4)
    group.cast(A, "x", CAUSAL)
    group.carry(A, B)
    group.cast(B, "y", CAUSAL)
    group.carry(B, C)
    (wait,) = group.orderings[C].waits()
    assert (wait.reason, wait.waits_for) == ("its causal past is not all here", (A,))


@both
def test_concurrent_candidates_go_by_their_names_and_followers_behind_them(order: type[Agreed]) -> None:
    group = Group(order, 3)
    group.cast(C, "c")
    group.cast(A, "a")
    group.carry(A, B)
    group.carry(C, B)
    group.cast(B, "b")  # follows both
    group.settle()
    assert [group.names(rank) for rank in range(3)] == [["a", "c", "b"]] * 3


@both
def test_packets_that_follow_nothing_pending_are_forgotten(order: type[Agreed]) -> None:
    group = Group(order, 3)
    for name in ("x", "y", "z"):
        for rank in range(3):
            group.cast(rank, name)
        group.settle()
    for ordering in group.orderings:
        assert [len(queue) for queue in ordering._pending] == [0, 0, 0]
        assert [len(nodes) for nodes in ordering._nodes] == [0, 0, 0]
        assert ordering._candidates == []


@both
def test_explicit_acknowledgements_occupy_slots(order: type[Agreed]) -> None:
    """They are reported and handed over at a view change like batches."""
    group = Group(order, 4)
    group.cast(A, "x")
    group.carry(A, B)
    group.quiet(B)
    group.crash(D)
    cut = group.flush()
    assert cut == AgreedCut((1, 1, 0, 0), (A, B, C))
    assert group.orderings[C].report().held == (1, 1, 0, 0)
    assert [group.names(rank) for rank in (A, B, C)] == [["x"]] * 3


@both
def test_closing_decides_everything_that_survivors_hold(order: type[Agreed]) -> None:
    group = Group(order, 4)
    for rank in (D, C, B, A):
        group.cast(rank, "abcd"[rank])
    group.carry(D, B)
    group.crash(D)
    cut = group.flush()
    assert cut.wanted == (1, 1, 1, 1)
    assert [group.names(rank) for rank in (A, B, C)] == [["a", "b", "c", "d"]] * 3


@both
def test_an_earlier_decision_stands_in_the_cut(order: type[Agreed]) -> None:
    """A decided on x with the acknowledgements of all that were needed; y, which sorts before it, came too late."""
    group = Group(order, 3)
    group.cast(C, "x")
    group.carry_all(C)
    group.quiet(A)
    group.carry_all(A)
    group.quiet(B)
    group.carry_all(B)
    assert group.names(A) == ["x"]
    group.cast(A, "y")
    group.crash(C)
    group.flush()
    assert group.names(A) == group.names(B) == ["x", "y"]


@both
def test_index_of_latency_and_concurrency_are_noted(order: type[Agreed]) -> None:
    group = Group(order, 3, noting=True)
    group.cast(A, "x")
    group.cast(B, "y")
    group.settle()
    for rank in range(3):
        assert [sorted(note.attributes) for note in group.notes[rank] if note.attributes] == [
            ["concurrency", "index_of_latency"]
        ] * 2
    (own, _) = [note.attributes for note in group.notes[A]]
    assert own is not None
    assert own["concurrency"] == 1  # at its caster nothing was concurrent to it yet
