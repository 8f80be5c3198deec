"""Paper 001 (Bosneag, Raicu, Ford, Zhang), section 2.2: causal order by vector timestamps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import LISTS, A, B, C, D, Group, Weather, run
from unisono.core.outbox import Outbox
from unisono.orders.causal import Causal, Data


def vector_of(group: Group, sender: int, receiver: int) -> tuple[int, ...]:
    """The vector of the packet that is next on this stream."""
    packet = group.under_way(sender, receiver)[0]
    assert isinstance(packet, Data)
    return packet.vector


def vector_at(group: Group, rank: int) -> tuple[int, ...]:
    """What one member has delivered of each."""
    taken: tuple[int, ...] = group.orderings[rank].report().taken
    return taken


def test_the_first_condition() -> None:
    """ "It has delivered any earlier messages sent by p_j": a later message of p_j waits behind one that waits itself."""
    group = Group(Causal, 3)
    group.cast(A, "cause")
    group.carry(A, B)
    group.cast(B, "first")
    group.cast(B, "second")
    group.carry(B, C)
    group.carry(B, C)
    assert group.names(C) == []
    assert [wait.waits_for for wait in group.orderings[C].waits()] == [(A,), (A, B)]
    group.carry(A, C)
    assert group.names(C) == ["cause", "first", "second"]


def test_the_second_condition() -> None:
    """ "It has delivered any message that process p_j had delivered at the time it multicast the message"."""
    group = Group(Causal, 3)
    group.cast(A, "question")
    group.carry(A, B)
    group.cast(B, "answer")
    group.carry(B, C)  # the answer comes first, and is held back
    assert group.names(C) == []
    (wait,) = group.orderings[C].waits()
    assert (wait.reason, wait.waits_for) == ("its causal past is not all here", (A,))
    group.carry(A, C)
    assert group.names(C) == ["question", "answer"]


def test_what_the_sender_had_only_received_is_no_condition() -> None:
    """Delivered, not received: what waits in p_j's own holdback queue did not cause anything yet."""
    group = Group(Causal, 4)
    group.cast(A, "cause")
    group.carry(A, B)
    group.cast(B, "effect")
    group.carry(B, C)  # held back at C
    group.cast(C, "other")
    group.carry(C, D)
    assert group.names(D) == ["other"]


def test_unrelated_messages_come_in_any_order() -> None:
    """Section 1.0: "will permit unrelated messages to be delivered in any order"."""
    group = Group(Causal, 4)
    group.cast(A, "x")
    group.cast(B, "y")
    group.carry(A, C)
    group.carry(B, C)
    group.carry(B, D)
    group.carry(A, D)
    assert group.names(C) == ["x", "y"]
    assert group.names(D) == ["y", "x"]


def test_a_long_chain_is_unrolled_in_order() -> None:
    """A cascade: each message is caused by the one before, and they arrive backwards."""
    group = Group(Causal, 5)
    for rank in range(4):
        group.cast(rank, f"{rank}")
        group.carry_all(rank, range(rank + 1, 4))
    for rank in (3, 2, 1, 0):
        assert group.names(4) == []
        group.carry(rank, 4)
    assert group.names(4) == ["0", "1", "2", "3"]


def test_own_messages_are_delivered_at_once() -> None:
    """Section 2.2: "we can immediately deliver it to ourselves without violating our algorithm"."""
    group = Group(Causal, 3)
    group.cast(A, "x")
    group.cast(A, "y")
    assert group.names(A) == ["x", "y"]


def test_vectors_tick_on_casts_alone() -> None:
    """As printed, section 2.2.1.2 adds 1 to every entry on receipt; delivery needs the count of casts and nothing else."""
    group = Group(Causal, 3)
    group.cast(A, "x")
    assert vector_at(group, A) == (1, 0, 0)
    assert vector_of(group, A, B) == (0, 0, 0)  # what was cast and delivered before it
    group.carry(A, B)
    assert vector_at(group, B) == (1, 0, 0)  # the maximum, and no tick of B
    group.cast(B, "y")
    assert vector_of(group, B, C) == (1, 0, 0)
    assert vector_at(group, B) == (1, 1, 0)
    group.carry(B, C)
    assert vector_at(group, C) == (0, 0, 0)  # held back: nothing is counted yet
    group.carry(A, C)
    assert vector_at(group, C) == (1, 1, 0)
    for rank in range(3):
        group.quiet(rank)  # neither does anything that is not a cast
    assert vector_at(group, C) == (1, 1, 0)


def test_vectors_count_messages_of_a_batch() -> None:
    """A batch of three is three casts, so that the vector says the same whatever was batched."""
    group = Group(Causal, 3)
    group.cast(A, "x", count=3)
    group.carry(A, B)
    group.cast(B, "y")
    assert vector_of(group, B, C) == (3, 0, 0)
    group.carry(B, C)
    assert group.delivered[C] == []
    group.carry(A, C)
    assert [batch.count for batch in group.delivered[C]] == [3, 1]


def test_the_vector_of_a_cast_is_what_was_delivered_before_it() -> None:
    for seed in range(200):

        def check(group: Group, rank: int) -> None:
            assert vector_at(group, rank) == tuple(group.engines[rank].showing.reach)

        assert run(Causal, seed, Weather(partial=0.3), watch=check).violations() == {}, f"seed {seed}"


def test_a_list_of_recipients() -> None:
    """Section 1.2 (8): "permits the user to specify a list of recipients". Those left out hold a placeholder and see nothing."""
    group = Group(Causal, 3)
    group.cast(A, "secret", to=(A, B))
    (to_b,), (to_c,) = group.under_way(A, B), group.under_way(A, C)
    assert isinstance(to_b, Data)
    assert isinstance(to_c, Data)
    assert to_b.batch.payloads == (b"secret",)
    assert to_c.batch.payloads is None
    assert (to_c.number, to_c.vector, to_c.batch.digest) == (to_b.number, to_b.vector, to_b.batch.digest)
    group.settle()
    assert group.names(A) == group.names(B) == ["secret"]
    assert group.names(C) == []
    assert vector_at(group, C) == (1, 0, 0)  # but it is counted, so the vector stays whole


def test_a_member_outside_the_list_does_not_wait_for_ever() -> None:
    group = Group(Causal, 3)
    group.cast(A, "secret", to=(A, B))
    group.carry(A, B)
    group.cast(B, "public")
    group.carry(B, C)
    assert group.names(C) == []  # until the placeholder comes
    group.carry(A, C)
    assert group.names(C) == ["public"]


def test_causality_holds_through_a_message_that_one_never_sees() -> None:
    """x → secret → y: C is not told the secret, and still delivers x before y."""
    group = Group(Causal, 3)
    group.cast(A, "x")
    group.cast(A, "secret", to=(A, B))
    group.carry(A, B)
    group.carry(A, B)
    group.cast(B, "y")
    group.carry(B, C)
    group.settle()
    assert group.names(C) == ["x", "y"]


def test_b12_lists_of_recipients_on_random_schedules() -> None:
    for seed in range(300):
        assert run(Causal, seed, LISTS).violations() == {}, f"seed {seed}"


def test_the_keep_alive_is_no_event() -> None:
    """Section 3.0 sends KEEP-ALIVE messages through the layer; `quiet` of causal order emits nothing and counts nothing."""
    group = Group(Causal, 2)
    group.cast(A, "x")
    group.carry(A, B)
    out = Outbox()
    ordering: Any = group.orderings[B]
    ordering.quiet(out)
    ordering.end_turn(out)
    assert (out.to_all, out.to_one, out.deliver) == ([], [], [])
    assert not Causal.acknowledges


@pytest.mark.parametrize("size", [1, 2, 7])
def test_any_number_of_members(size: int) -> None:
    group = Group(Causal, size)
    for rank in range(size):
        group.cast(rank, f"{rank}")
    group.settle()
    assert group.violations() == {}
