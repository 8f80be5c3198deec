"""RMP: the lock, votes and commits, the three services, and the rules of its recovery. The paper's text is in `tests/papers`."""

from __future__ import annotations

import pytest

from tests.harness import CALM, CRASHES, UNICAST, A, B, C, D, Group, make_view, run
from unisono.core.config import Config
from unisono.core.errors import PeerFault
from unisono.core.outbox import NoteKind
from unisono.core.types import Batch, Service
from unisono.core.weight import weigh
from unisono.core.wire.codec import Codec
from unisono.orders.rmp import Accept, Commit, Data, Datagram, Request, Rmp, Semi, Vote
from unisono.orders.rmp_lock import GroupLock
from unisono.orders.rmp_recovery import RmpCut, RmpReport


def merge(size: int, **reports: RmpReport) -> RmpCut:
    return Rmp.merge(make_view(size), Config(), {"abcd".index(name): report for name, report in reports.items()})


def locked(size: int, *, noting: bool = False, config: Config | None = None) -> Group:
    """A group in which A has cast "w" and still has the lock."""
    group = Group(Rmp, size, config, noting=noting)
    group.cast(A, "w")
    group.settle()
    assert group.orderings[A]._lock.held
    return group


# The lock.


def test_a_cast_asks_for_the_lock_and_waits() -> None:
    group = Group(Rmp, 3)
    group.cast(B, "x")
    assert group.under_way(B, A) == group.under_way(B, C) == [Request(1)]
    (wait,) = group.orderings[B].waits()
    assert (wait.reason, wait.waits_for) == ("it needs the lock on the group", (A, C))
    group.carry(B, C)
    assert group.carry(C, B, UNICAST) == Accept(1)
    (wait,) = group.orderings[B].waits()
    assert wait.waits_for == (A,)


def test_the_lower_stamp_is_served_first_and_on_a_tie_the_lower_rank() -> None:
    group = Group(Rmp, 3)
    group.cast(C, "z")
    group.cast(B, "y")  # both ask with stamp 1
    group.settle()
    assert group.names(A) == group.names(B) == group.names(C) == ["y", "z"]

    group = Group(Rmp, 3)
    group.cast(C, "z")
    group.carry(C, B)
    group.cast(B, "y")  # B has met stamp 1, and asks with stamp 2
    assert group.under_way(B, A) == [Request(2)]
    group.settle()
    assert group.names(A) == ["z", "y"]


def test_whoever_has_the_lock_keeps_it_until_another_asks() -> None:
    group = locked(3)
    packets = group.packets
    group.cast(A, "x")
    group.settle()
    assert group.packets - packets == 3 * 2, "data, votes and commit, and no request"
    group.cast(B, "y")
    group.carry(B, A)
    assert group.under_way(A, B, UNICAST) == [Accept(2)]
    assert not group.orderings[A]._lock.held


def test_a_hold_is_bounded_while_others_wait() -> None:
    group = locked(2, config=Config(hold_batches_max=2))
    group.cast(B, "b")
    group.carry(B, A)  # A is idle and gives the lock up
    group.cast(A, "x0")  # and asks again, behind B
    group.settle()
    for name in ("x1", "x2", "x3"):
        group.cast(A, name)
    group.cast(B, "c")
    group.carry(B, A)
    for name in ("x4", "x5"):
        group.cast(A, name)
    (*_, wait) = group.orderings[A].waits()
    assert (wait.reason, wait.waits_for) == ("others wait for the lock, so this hold ends", (B,))
    group.settle()
    assert group.names(A) == group.names(B) == ["w", "b", "x0", "x1", "x2", "x3", "c", "x4", "x5"]


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


# Two-phase commit.


def test_receivers_withhold_until_all_have_voted() -> None:
    group = locked(3)
    group.cast(A, "x")
    group.carry(A, B)
    assert group.under_way(B, A, UNICAST) == [Vote(2)]
    (wait,) = group.orderings[B].waits()
    assert (wait.reason, wait.waits_for) == ("its transmitter has not committed it here", (A,))
    group.carry(B, A, UNICAST)
    (wait,) = group.orderings[A].waits()
    assert (wait.reason, wait.waits_for) == ("not all have voted for it", (C,))
    group.carry(A, C)
    group.carry(C, A, UNICAST)
    assert group.names(A) == ["w", "x"]
    assert group.names(B) == group.names(C) == ["w"]
    assert group.carry(A, B) == Commit(2)
    assert group.names(B) == ["w", "x"]


def test_votes_and_commits_are_cumulative() -> None:
    group = locked(3)
    for name in ("x", "y", "z"):
        group.cast(A, name)
    for _ in range(3):
        group.carry(A, B)
    assert group.under_way(B, A, UNICAST) == [Vote(2), Vote(3), Vote(4)]
    group.carry_all(B, [A], UNICAST)
    group.carry_all(A, [C])
    for _ in range(2):
        group.carry(C, A, UNICAST)
    group.cast(A, "+")
    *_, commit, data = group.under_way(A, B)
    assert commit == Commit(3)
    assert isinstance(data, Data)
    assert (data.number, data.position, data.committed) == (5, 4, 3)


def test_a_data_packet_carries_the_commit_of_the_hold_before_it() -> None:
    """The commit of A reaches C after the first batch of B, the next transmitter; C delivers by what B says."""
    group = locked(3)
    group.cast(A, "x")
    group.cast(B, "y")
    group.carry(A, B)
    group.carry(A, C)
    group.carry_all(B, [A, C])
    group.carry_all(C, [A, B], UNICAST)
    group.carry(B, A, UNICAST)  # the vote: A commits, and gives the lock up
    group.carry(A, B, UNICAST)  # B has it, knows that x is committed, and transmits
    assert group.names(B) == ["w", "x"]
    assert group.names(C) == ["w"]
    group.carry(B, C)
    assert group.names(C) == ["w", "x"]
    assert group.carry(A, C) == Commit(2), "the late commit changes nothing"
    group.settle()
    assert group.names(A) == group.names(B) == group.names(C) == ["w", "x", "y"]


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


def test_votes_and_decisions_are_noted() -> None:
    group = Group(Rmp, 2, noting=True)
    group.cast(A, "x")
    group.settle()
    kinds = [[note.kind for note in notes] for notes in group.notes]
    assert kinds == [
        [NoteKind.DECIDE, NoteKind.ORDERED],
        [NoteKind.VOTE, NoteKind.DECIDE, NoteKind.ORDERED],
    ]
    vote, decision, _ = group.notes[B]
    assert vote.attributes == {"decision": "yes"}
    assert decision.attributes == {"decision": "commit"}


# The other services.


def test_a_semi_reliable_message_needs_no_lock() -> None:
    group = Group(Rmp, 3)
    group.cast(A, "r")
    group.cast(A, "s", service=Service.FIFO)
    assert group.names(A) == ["s"]
    request, semi = group.under_way(A, B)
    assert isinstance(request, Request)
    assert isinstance(semi, Semi)
    assert semi.number == 1, "slots are counted as they leave"
    group.carry_all(A, [B])
    assert group.names(B) == ["s"]
    group.settle()
    assert group.names(A) == group.names(B) == group.names(C) == ["s", "r"]


def test_survivors_share_what_they_hold_of_semi_reliable_messages() -> None:
    group = Group(Rmp, 3)
    group.cast(A, "s", service=Service.FIFO)
    group.carry(A, B)
    group.crash(A)
    assert group.flush() == RmpCut((1, 0, 0), 0, (), ())
    assert group.names(B) == group.names(C) == ["s"]


def test_a_datagram_is_fired_and_forgotten() -> None:
    group = Group(Rmp, 3)
    group.cast(A, "d", service=Service.DATAGRAM)
    group.cast(A, "e", service=Service.DATAGRAM)
    assert group.names(A) == ["d", "e"]
    assert all(isinstance(packet, Datagram) for packet in group.under_way(A, B))
    group.carry(A, B)
    group.crash(A)
    assert group.flush() == RmpCut((0, 0, 0), 0, (), ()), "nobody keeps it, nobody hands it on"
    assert group.names(B) == ["d"]
    assert group.names(C) == []


def test_datagrams_that_come_late_or_twice_are_dropped() -> None:
    group = Group(Rmp, 2, in_order=False)
    group.cast(A, "d", service=Service.DATAGRAM)
    group.cast(A, "e", service=Service.DATAGRAM)
    group.carry(A, B, at=1)
    group.carry(A, B)
    assert group.names(B) == ["e"]


# Recovery.


def test_a_commit_that_one_survivor_knows_is_everyones() -> None:
    cut = merge(
        3,
        b=RmpReport((2, 0, 0), 2, (), 0),
        c=RmpReport((2, 0, 0), 0, ((A, 1), (A, 2)), 0),
    )
    assert cut == RmpCut((2, 0, 0), 0, ((A, 1), (A, 2)), ())


def test_what_all_survivors_hold_is_committed() -> None:
    cut = merge(
        3,
        b=RmpReport((2, 0, 0), 1, ((A, 2),), 0),
        c=RmpReport((2, 0, 0), 1, ((A, 2),), 0),
    )
    assert cut == RmpCut((2, 0, 0), 1, ((A, 2),), ())


def test_what_only_some_hold_is_completed_by_its_transmitter() -> None:
    cut = merge(
        3,
        a=RmpReport((2, 0, 0), 0, ((A, 1), (A, 2)), 0),
        c=RmpReport((1, 0, 0), 0, ((A, 1),), 0),
    )
    assert cut == RmpCut((2, 0, 0), 0, ((A, 1), (A, 2)), ())


def test_what_only_some_hold_is_aborted_if_its_transmitter_is_gone() -> None:
    cut = merge(
        3,
        b=RmpReport((3, 0, 0), 0, ((A, 1), (A, 2), (A, 3)), 0),
        c=RmpReport((1, 0, 0), 0, ((A, 1),), 0),
    )
    assert cut == RmpCut((1, 0, 0), 0, ((A, 1),), ((A, 2), (A, 3)))


def test_a_semi_reliable_message_behind_an_aborted_one_is_kept() -> None:
    """Slot 2 of A is a reliable message that only B has, slot 3 a semi-reliable one."""
    cut = merge(3, b=RmpReport((3, 0, 0), 1, ((A, 2),), 0), c=RmpReport((1, 0, 0), 1, (), 0))
    assert cut == RmpCut((3, 0, 0), 1, (), ((A, 2),))


def test_what_waited_for_the_lock_follows_by_its_name() -> None:
    cut = merge(
        4,
        a=RmpReport((1, 0, 2, 0), 1, ((C, 1),), 1),
        c=RmpReport((0, 0, 2, 0), 1, ((C, 1),), 1),
    )
    assert cut == RmpCut((1, 0, 2, 0), 1, ((C, 1), (A, 1), (C, 2)), ())


def test_two_batches_at_one_position_are_an_error() -> None:
    with pytest.raises(PeerFault, match="one transmits at a time"):
        merge(3, a=RmpReport((1, 0, 0), 0, ((A, 1),), 0), b=RmpReport((0, 1, 0), 0, ((B, 1),), 0))


def test_a_survivor_hands_over_what_it_never_transmitted() -> None:
    group = Group(Rmp, 4, noting=True)
    group.cast(D, "lost")
    group.cast(A, "x")
    group.cast(A, "y")
    group.crash(D)
    assert group.flush().order == ((A, 1), (A, 2))
    assert group.names(A) == group.names(B) == group.names(C) == ["x", "y"]
    decisions = [note.attributes for note in group.notes[C] if note.kind is NoteKind.DECIDE]
    assert decisions == [{"decision": "commit", "recovery": True}] * 2


def test_an_abort_is_noted_where_the_message_is_held() -> None:
    group = locked(3, noting=True)
    group.cast(A, "x")
    group.carry(A, B)
    group.crash(A)
    assert group.flush().aborted == ((A, 2),)
    assert group.notes[B][-1].kind is NoteKind.DECIDE
    assert group.notes[B][-1].attributes == {"decision": "abort", "recovery": True}
    assert group.names(B) == group.names(C) == ["w"]


def test_reports_and_cuts_survive_the_wire() -> None:
    codec = Codec((Rmp.report_wire, Rmp.cut_wire))
    for packet in (
        RmpReport((2, 0, 5), 7, ((A, 2), (C, 5)), 3),
        RmpCut((2, 0, 5), 7, ((A, 2), (C, 5)), ((B, 1),)),
    ):
        assert codec.decode(codec.encode(packet), A, 3) == packet
