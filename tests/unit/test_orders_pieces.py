"""The pieces of orders by themselves: holdback by vectors, the queue of stamps, RMP's lock, and what they count and forget."""

from __future__ import annotations

import pytest

from tests.harness import CALM, CRASHES, A, B, C, D, Group, make_view, run
from unisono.core.config import Config
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Property, Service, Slot
from unisono.core.weight import weigh
from unisono.core.wire.codec import Codec
from unisono.orders import abcast, tomp
from unisono.orders.abcast import Abcast
from unisono.orders.agreed import Agreed
from unisono.orders.all_ack import AllAck
from unisono.orders.holdback import Held, VectorHoldback
from unisono.orders.rmp import Data, Rmp
from unisono.orders.rmp_lock import GroupLock
from unisono.orders.sequencer import Sequencer
from unisono.orders.stamps import Stamp, Stamped, StampQueue
from unisono.orders.tomp import Tomp
from unisono.orders.toto import Toto

# Holdback by vectors.


def held(number: int, *vector: int, weight: int = 1) -> Held:
    return Held(number, vector, weight, ())


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


# The queue of stamps.


def batch(origin: int, first: int = 0) -> Batch:
    return Batch(origin, first, [b""], Service.TOTAL)


def queue_of(*stamps: tuple[Slot, Stamp]) -> StampQueue:
    queue = StampQueue()
    for slot, stamp in stamps:
        queue.add(slot, batch(slot[0], slot[1] - 1), stamp)
    return queue


def popped(queue: StampQueue) -> list[Slot]:
    return [slot for slot, _ in queue.pop_ready()]


def test_nothing_leaves_before_it_is_final() -> None:
    queue = queue_of(((A, 1), (1, 0)), ((B, 1), (2, 0)))
    assert popped(queue) == []
    queue.finish((B, 1), (3, 1))
    assert popped(queue) == []
    assert queue.undecided() == ([(1, 0)], [(), (A,)])
    queue.finish((A, 1), (2, 2))
    assert popped(queue) == [(A, 1), (B, 1)]
    assert queue.entries == {}


def test_final_stamps_decide_the_order() -> None:
    queue = queue_of(((A, 1), (1, 0)), ((B, 1), (2, 0)))
    queue.finish((A, 1), (5, 1))
    assert popped(queue) == []
    queue.finish((B, 1), (4, 2))
    assert popped(queue) == [(B, 1), (A, 1)]


def test_b2_equal_counters_are_told_apart_by_rank() -> None:
    queue = queue_of(((A, 1), (1, 0)), ((B, 1), (2, 0)))
    queue.finish((A, 1), (5, 2))
    queue.finish((B, 1), (5, 1))
    assert popped(queue) == [(B, 1), (A, 1)]


def test_lifting_lets_a_final_message_go() -> None:
    queue = queue_of(((A, 1), (1, 0)), ((B, 1), (2, 0)))
    queue.finish((B, 1), (4, 1))
    queue.lift((A, 1), (3, 2))
    assert popped(queue) == []
    queue.lift((A, 1), (4, 1))  # a tie: the final one goes first
    assert popped(queue) == [(B, 1)]


def test_lifting_never_lowers() -> None:
    queue = queue_of(((A, 1), (5, 0)))
    queue.lift((A, 1), (4, 2))
    assert queue.listing() == [((A, 1), (5, 0), False)]


def test_a_final_stamp_equal_to_the_provisional_one_counts_once() -> None:
    queue = queue_of(((A, 1), (5, 0)))
    queue.finish((A, 1), (5, 0))
    assert queue.listing() == [((A, 1), (5, 0), True)]
    assert popped(queue) == [(A, 1)]
    assert popped(queue) == []


# What ABCAST and TOMP send.


def test_abcast_proposes_the_counters_of_a_turn_in_one_packet() -> None:
    member = Abcast(make_view(3), A, Config())
    out = Outbox()
    for sender, number in ((B, 1), (C, 1), (B, 2)):
        member.receive(sender, abcast.Data(number, batch(sender, number - 1)), out)
    member.end_turn(out)
    assert out.to_one == [(B, abcast.Propose(1, (1, 3))), (C, abcast.Propose(1, (2,)))]
    out = Outbox()
    member.receive(B, abcast.Data(3, batch(B, 2)), out)
    member.end_turn(out)
    assert out.to_one == [(B, abcast.Propose(3, (4,)))]


def test_tomp_tells_what_it_expects_after_its_own_update() -> None:
    member = Tomp(make_view(3), A, Config())
    out = Outbox()
    member.receive(B, tomp.Data(1, batch(B)), out)
    member.receive(C, tomp.Data(1, batch(C)), out)
    member.end_turn(out)
    assert out.to_one == [
        (B, tomp.Acknowledge((tomp.AckRow(1, 1, (1, 2, 1)),))),
        (C, tomp.Acknowledge((tomp.AckRow(1, 2, (1, 2, 2)),))),
    ]


def test_tomp_never_makes_a_packet_that_grows_with_what_was_decided_in_a_turn() -> None:
    """While one member sleeps, thousands of batches wait for its acknowledgements; then all are decided in one turn."""
    origin, other, count = Tomp(make_view(2), A, Config()), Tomp(make_view(2), B, Config()), 2 * tomp.ROWS_MAX + 3
    to, back, out = Outbox(), Outbox(), Outbox()
    for index in range(count):
        origin.submit(batch(A, index), to)
    for packet in to.to_all:
        other.receive(A, packet, back)
    other.end_turn(back)
    for _, packet in back.to_one:
        origin.receive(B, packet, out)
    origin.end_turn(out)
    for packets in ([packet for _, packet in back.to_one], out.to_all):
        assert [len(packet.rows) for packet in packets] == [tomp.ROWS_MAX, tomp.ROWS_MAX, 3]  # type: ignore[attr-defined]
    assert len(out.deliver) == count


class CausalAbcast(Abcast):
    guarantees = Abcast.guarantees | {Property.CAUSAL}


class CausalTomp(Tomp):
    guarantees = Tomp.guarantees | {Property.CAUSAL}


@pytest.mark.parametrize("order", [CausalAbcast, CausalTomp])
def test_as_long_as_nobody_crashes_the_order_is_causal_too(order: type[Stamped]) -> None:
    for seed in range(300):
        assert run(order, seed).violations() == {}, f"seed {seed}"


# RMP.


def test_what_waits_for_the_lock_is_counted_until_it_is_transmitted() -> None:
    group = Group(Rmp, 3, Config(hold_batches_max=1))
    a = group.orderings[A]
    group.cast(A, "now", Service.FIFO)
    group.cast(A, "now", Service.DATAGRAM)
    assert a.unsent_bytes == 0, "only what is reliable waits"
    x, y = group.cast(A, "x", count=3), group.cast(A, "y", to=(B, C))
    assert a.unsent_bytes == weigh(x) + weigh(y)
    group.settle()
    assert a.unsent_bytes == 0
    group.cast(A, "z")
    group.cast(B, "b")
    group.carry(B, A)
    w = group.cast(A, "w")
    assert a.unsent_bytes == weigh(w), "this hold is spent"
    group.settle()
    assert a.unsent_bytes == 0
    assert group.names(A)[-3:] == ["z", "b", "w"]


@pytest.mark.parametrize(("to", "copies"), [(None, 1), ((B,), 1), ((A, B, C), 3)], ids=["all", "one", "three"])
@pytest.mark.parametrize("payloads", [[b""], [b"x"] * 300, [bytes(10_000)] * 2], ids=["empty", "many", "large"])
def test_a_batch_weighs_no_less_than_its_packets(
    payloads: list[bytes], to: tuple[int, ...] | None, copies: int
) -> None:
    batch = Batch(A, 0, payloads, Service.TOTAL, to)
    encoded = len(Codec(Rmp.wire).encode(Data(1, 0, 0, batch)))
    assert copies * encoded <= weigh(batch) <= copies * (encoded + 64)


def test_the_lock_by_itself() -> None:
    one, other = GroupLock(0, 2), GroupLock(1, 2)
    stamp, worse = one.request(), other.request()
    assert (stamp, worse) == (1, 1)
    assert not one.meet(1, worse), "mine is better: wait"
    assert other.meet(0, stamp)
    assert one.accept(1, stamp)
    assert one.held
    assert one.lacking() == ()
    assert one.release() == [(1, worse)]
    assert other.lacking() == (0,)
    assert other.accept(0, worse)
    assert not one.held
    assert one.request() == 2


def test_alone_one_need_not_ask() -> None:
    assert GroupLock(0, 1).held


def test_nobody_delivers_what_another_lacks() -> None:
    """Invariant I2, looked at after every turn of random runs."""

    def watch(group: Group, rank: int) -> None:
        if group.flushed:
            return
        delivered = max(ordering._committed for ordering in group.orderings)
        assert all(ordering._placed >= delivered for ordering in group.orderings)
        assert sum(ordering._lock.held for ordering in group.orderings) <= 1

    for weather in (CALM, CRASHES):
        for seed in range(200):
            assert run(Rmp, seed, weather, watch=watch).violations() == {}, f"seed {seed}"


def test_datagrams_that_come_late_or_twice_are_dropped() -> None:
    group = Group(Rmp, 2, in_order=False)
    group.cast(A, "d", service=Service.DATAGRAM)
    group.cast(A, "e", service=Service.DATAGRAM)
    group.carry(A, B, at=1)
    group.carry(A, B)
    assert group.names(B) == ["e"]


# What is forgotten.


def test_who_has_forgotten_closes_and_reports_from_its_base() -> None:
    group = Group(Sequencer, 2)
    for name in "uvw":
        group.cast(A, name)
    group.settle()
    for ordering in group.orderings:
        assert isinstance(ordering, Sequencer)
        ordering.forget(2)
        report = ordering.report()
        assert (report.order, report.base, report.before, report.delivered) == ((A,), 2, (2, 0), 3)
    group.cast(B, "x")
    group.settle()
    assert group.names(B) == ["u", "v", "w", "x"]


@pytest.mark.parametrize("order", [AllAck, Toto])
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
