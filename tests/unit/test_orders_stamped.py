"""ABCAST and TOMP: the queue of stamps, waits, and the merge, in small cases. The paper's examples are in `tests/papers`."""

from __future__ import annotations

import pytest

from tests.harness import UNICAST, A, B, Broken, C, D, Group, make_view, run
from unisono.core.config import Config
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Property, Service, Slot
from unisono.orders import abcast, tomp
from unisono.orders.abcast import Abcast
from unisono.orders.stamps import Stamp, StampCut, Stamped, StampQueue, StampReport, merge_stamps
from unisono.orders.tomp import Tomp

both = pytest.mark.parametrize("order", [Abcast, Tomp])


def batch(origin: int, first: int = 0) -> Batch:
    return Batch(origin, first, [b""], Service.TOTAL)


# The queue.


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


# Normal running.


@both
def test_with_two_members_one_proposal_decides(order: type[Stamped]) -> None:
    group = Group(order, 2)
    group.cast(A, "x")
    assert group.names(A) == []
    group.carry(A, B)
    assert group.names(B) == []
    group.carry(B, A, UNICAST)
    assert group.names(A) == ["x"]
    group.carry(A, B)
    assert group.names(B) == ["x"]


@both
def test_b1_the_counter_follows_the_final_stamps(order: type[Stamped]) -> None:
    group = Group(order, 3)
    group.orderings[C]._counter = 40
    group.cast(A, "x")
    group.settle()
    assert [ordering._counter for ordering in group.orderings] == [41, 41, 41]
    group.cast(B, "y")
    assert group.orderings[B]._queue.listing() == [((B, 1), (42, B), False)]


@both
def test_it_is_explained_what_waits_for_whom(order: type[Stamped]) -> None:
    group = Group(order, 2)
    group.cast(A, "x")
    (wait,) = group.orderings[A].waits()
    assert (wait.reason, wait.waits_for) == ("its final stamp is not known here", (A,))
    group.carry(A, B)
    group.cast(B, "y")
    group.carry(B, A)
    group.carry(A, B, UNICAST)  # y is decided at B, and waits there for x
    texts = {w.batch.origin: (w.reason, w.waits_for) for w in group.orderings[B].waits()}
    assert texts == {
        A: ("its final stamp is not known here", (A,)),
        B: ("1 undecided before it in the queue", (A,)),
    }


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


@both
def test_the_final_stamp_is_noted_with_its_counter_and_rank(order: type[Stamped]) -> None:
    group = Group(order, 2, noting=True)
    group.cast(A, "x")
    group.settle()
    assert [note.attributes for note in group.notes[B]] == [{"stamp": [1, B]}]


# What is not promised.


class CausalAbcast(Abcast):
    guarantees = Abcast.guarantees | {Property.CAUSAL}


class CausalTomp(Tomp):
    guarantees = Tomp.guarantees | {Property.CAUSAL}


@pytest.mark.parametrize("order", [CausalAbcast, CausalTomp])
def test_as_long_as_nobody_crashes_the_order_is_causal_too(order: type[Stamped]) -> None:
    for seed in range(300):
        assert run(order, seed).violations() == {}, f"seed {seed}"


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (CausalAbcast, ["answer", "x"]),
        (CausalTomp, ["x", "answer"]),  # here the vectors of x raised the answer; that is luck, not a promise
    ],
)
def test_crashes_can_make_it_less_than_causal(order: type[Stamped], expected: list[str]) -> None:
    """A raised the final stamp of x, and B knew it when it answered; C stamped the answer before it did, and is left alone."""
    group = Group(order, 3)
    group.orderings[A]._counter = 8
    group.cast(A, "x")
    for other in (B, C):
        group.carry(A, other)
        group.carry(other, A, UNICAST)
    group.carry(A, B)
    assert group.names(B) == ["x"]
    group.cast(B, "answer")
    group.carry(B, C)
    group.carry(A, C)  # the final stamp of x, 9.a; the answer has 2.c
    group.crash(A)
    group.crash(B)
    group.flush()
    assert group.names(C) == expected
    assert set(group.violations()) == ({Broken.CAUSAL} if expected[0] == "answer" else set())


# The merge.


def report(
    held: tuple[int, ...],
    counter: int,
    delivered: tuple[int, ...],
    finals: tuple[tuple[Slot, Stamp], ...] = (),
    waiting: tuple[tuple[Slot, Stamp], ...] = (),
) -> StampReport:
    flat = [tuple((*slot, *stamp) for slot, stamp in rows) for rows in (finals, waiting)]
    return StampReport(held, counter, delivered, flat[0], flat[1])


def test_final_stamps_stay() -> None:
    cut = merge_stamps(
        make_view(3),
        Config(),
        {
            A: report((1, 1, 0), 9, (0, 0, 0), finals=(((A, 1), (5, C)),), waiting=(((B, 1), (2, A)),)),
            B: report((1, 1, 0), 3, (0, 0, 0), waiting=(((A, 1), (1, B)), ((B, 1), (3, B)))),
        },
    )
    assert cut == StampCut((1, 1, 0), ((B, 1), (A, 1)))


def test_b3_one_who_never_stamped_it_contributes_its_counter_plus_one() -> None:
    """B has delivered y, whose final stamp is 2.c, and never saw x: it must come behind y."""
    cut = merge_stamps(
        make_view(3),
        Config(),
        {
            B: report((0, 1, 0), 2, (0, 1, 0), finals=(((B, 1), (2, C)),)),
            C: report((1, 1, 0), 2, (0, 0, 0), finals=(((B, 1), (2, C)),), waiting=(((A, 1), (1, C)),)),
        },
    )
    assert cut == StampCut((1, 1, 0), ((B, 1), (A, 1)))


def test_a_message_never_comes_before_its_origins_previous_one() -> None:
    """The final stamp 9.d of B's first came from D, which is gone; the floor holds B's second behind it, the final one first."""
    cut = merge_stamps(
        make_view(4),
        Config(),
        {
            A: report((0, 2, 0, 0), 2, (0, 0, 0, 0), waiting=(((B, 1), (1, A)), ((B, 2), (2, A)))),
            B: report((0, 2, 0, 0), 9, (0, 0, 0, 0), finals=(((B, 1), (9, D)),), waiting=(((B, 2), (2, B)),)),
        },
    )
    assert cut == StampCut((0, 2, 0, 0), ((B, 1), (B, 2)))


def test_the_floor_counts_from_what_everyone_delivered() -> None:
    """Everyone delivered B's first with 9.d; x of C was stamped lower than B's second may end."""
    finals = (((B, 1), (9, D)),)
    cut = merge_stamps(
        make_view(4),
        Config(),
        {
            A: report((0, 2, 1, 0), 9, (0, 1, 0, 0), finals, waiting=(((B, 2), (8, A)), ((C, 1), (9, A)))),
            C: report((0, 2, 1, 0), 9, (0, 1, 0, 0), finals, waiting=(((B, 2), (7, C)), ((C, 1), (9, C)))),
        },
    )
    assert cut.order == ((C, 1), (B, 2))  # 9.c, then the floor 9.d


def test_what_everyone_delivered_is_not_in_the_cut() -> None:
    finals = (((A, 1), (1, B)),)
    cut = merge_stamps(
        make_view(2), Config(), {A: report((1, 0), 1, (1, 0), finals), B: report((1, 0), 1, (1, 0), finals)}
    )
    assert cut == StampCut((1, 0), ())


@both
def test_a_member_skips_what_it_has_delivered(order: type[Stamped]) -> None:
    group = Group(order, 3)
    group.cast(A, "x")
    group.carry_all(A)
    group.carry_all(B, [A], UNICAST)
    group.carry_all(C, [A], UNICAST)
    assert [group.names(rank) for rank in (A, B, C)] == [["x"], [], []]
    group.cast(B, "y")
    group.crash(C)
    cut = group.flush()
    assert cut.order == ((A, 1), (B, 1))
    assert group.names(A) == group.names(B) == ["x", "y"]


@both
def test_everything_that_a_survivor_holds_is_delivered(order: type[Stamped]) -> None:
    group = Group(order, 4)
    group.cast(D, "x")
    group.cast(D, "y")
    group.carry(D, C)  # C alone has x; y reaches nobody
    group.cast(A, "z")
    group.crash(D)
    cut = group.flush()
    assert cut.wanted == (1, 0, 0, 1)
    assert group.names(A) == group.names(B) == group.names(C)
    assert sorted(group.names(A)) == ["x", "z"]


@both
def test_closing_notes_what_had_no_final_stamp(order: type[Stamped]) -> None:
    group = Group(order, 3, noting=True)
    group.cast(A, "x")
    group.crash(C)
    group.flush()
    assert [(note.position, note.attributes) for note in group.notes[A]] == [(None, None)]
