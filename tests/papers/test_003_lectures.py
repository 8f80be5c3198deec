"""Lectures 003: the examples of FIFO, causal and total order, the hybrids, and the bulletin board.

The pictures are lost; the examples are rebuilt from the text that is left. Processes P1 to P4 are the ranks 0 to 3.
"""

from __future__ import annotations

import pytest

from tests.harness import UNORDERED, Broken, Group, run
from tests.mutants.sequencer_mutants import BareTotal, NamedOrder
from unisono.core.errors import PeerFault
from unisono.core.ordering import AnyOrdering
from unisono.orders import causal, fifo, sequencer
from unisono.orders.causal import Causal
from unisono.orders.fifo import Fifo
from unisono.orders.sequencer import CausalTotal, FifoTotal, Sequencer

P1, P2, P3, P4 = range(4)


# FIFO order.


def test_fifo_order_keeps_each_sender_and_nothing_else() -> None:
    """ "FIFO ordering: example". M1:1 and M1:2 in that order at each receiver; M3:1 and M1:2 may differ."""
    group = Group(Fifo, 4)
    group.cast(P1, "M1:1")
    group.carry_all(P1)
    group.cast(P1, "M1:2")
    group.cast(P3, "M3:1")
    group.carry(P1, P2)
    group.carry(P3, P2)
    group.carry(P3, P4)
    group.carry(P1, P4)
    group.settle()
    assert group.names(P2) == ["M1:1", "M1:2", "M3:1"]
    assert group.names(P4) == ["M1:1", "M3:1", "M1:2"]
    assert all(group.names(p).index("M1:1") < group.names(p).index("M1:2") for p in range(4))


def test_fifo_counts_what_it_received_of_each_sender() -> None:
    """ "Implementing FIFO order": P_i[j] is the latest number received from P_j; the sender counts its own."""
    group = Group(Fifo, 4)

    def counts(rank: int) -> tuple[int, ...]:
        return tuple(group.orderings[rank].report().held)

    assert counts(P1) == (0, 0, 0, 0)
    group.cast(P1, "M1:1")
    (packet,) = group.under_way(P1, P2)
    assert isinstance(packet, fifo.Data)
    assert packet.number == 1
    assert counts(P1) == (1, 0, 0, 0)
    group.carry(P1, P2)
    assert counts(P2) == (1, 0, 0, 0)
    group.cast(P1, "M1:2")
    group.cast(P3, "M3:1")
    assert counts(P1) == (2, 0, 0, 0)
    assert counts(P3) == (0, 0, 1, 0)
    group.settle()
    assert [counts(p) for p in range(4)] == [(2, 0, 1, 0)] * 4


def test_a_number_that_is_not_the_next_one_never_reaches_the_order() -> None:
    """ "else buffer this multicast": the streams below hold it back, and the order refuses it."""
    group = Group(Fifo, 4, in_order=False)
    group.cast(P1, "M1:1")
    group.cast(P1, "M1:2")
    with pytest.raises(PeerFault, match="out of turn"):
        group.carry(P1, P3, at=1)


def test_a_member_delivers_its_own_fifo_and_causal_messages_at_once() -> None:
    orders: tuple[type[AnyOrdering], ...] = (Fifo, Causal)
    for order in orders:
        group = Group(order, 4)
        group.cast(P2, "own")
        assert group.names(P2) == ["own"]


# Causal order.


def lecture_vector(group: Group, sender: int, receiver: int) -> tuple[int, ...]:
    """The vector of the next packet as the lecture has it: it counts the message itself, where ours counts those before it."""
    packet = group.under_way(sender, receiver)[0]
    assert isinstance(packet, causal.Data)
    return tuple(count + (rank == sender) for rank, count in enumerate(packet.vector))


def test_causal_order_by_vectors() -> None:
    """ "Causal Ordering: Example": four processes, the vectors (1,0,0,0), (1,1,0,0), (1,0,0,1)."""
    group = Group(Causal, 4)
    group.cast(P1, "m")
    assert lecture_vector(group, P1, P2) == (1, 0, 0, 0)
    group.carry(P1, P2)
    group.carry(P1, P4)
    group.cast(P2, "m2")
    group.cast(P4, "m4")
    assert lecture_vector(group, P2, P3) == (1, 1, 0, 0)
    assert lecture_vector(group, P4, P3) == (1, 0, 0, 1)

    group.carry(P2, P3)  # (1,1,0,0) at P3, which has nothing: missing 1 from P1, so it is buffered
    group.carry(P4, P3)
    assert group.names(P3) == []
    assert [wait.waits_for for wait in group.orderings[P3].waits()] == [(P1,), (P1,)]
    group.carry(P1, P3)  # now all three
    assert group.names(P3) == ["m", "m2", "m4"]

    group.carry(P4, P2)  # concurrent messages may come in any order
    group.carry(P2, P4)
    group.carry(P4, P1)
    group.carry(P2, P1)
    assert group.names(P2) == ["m", "m2", "m4"]
    assert group.names(P4) == group.names(P1) == ["m", "m4", "m2"]
    group.cast(P3, "m3")
    assert lecture_vector(group, P3, P1) == (1, 1, 1, 1)


def test_receiving_does_not_count_delivering_does() -> None:
    """ "received" in the lecture's vectors means delivered: a message that is held back is not part of what a cast follows."""
    group = Group(Causal, 4)
    group.cast(P1, "m")
    group.carry(P1, P2)
    group.cast(P2, "m2")
    group.carry(P2, P3)  # held back
    group.cast(P3, "m3")
    assert lecture_vector(group, P3, P4) == (0, 0, 1, 0)


# Total order.


def test_total_order_by_a_sequencer() -> None:
    """ "The order of receipt of multicasts is the same at all processes. M1:1, then M2:1, then M3:1, then M3:2"."""
    group = Group(Sequencer, 4)
    group.cast(P1, "M1:1")
    group.cast(P2, "M2:1")
    group.carry(P2, P1)
    group.cast(P3, "M3:1")
    group.cast(P3, "M3:2")
    group.carry(P3, P1)
    group.carry(P3, P1)
    group.carry_all(P3)  # P2 and P4 have P3's messages before any number
    assert group.names(P2) == group.names(P4) == []  # "may need to delay delivery of some messages"
    group.settle()
    assert [group.names(p) for p in range(4)] == [["M1:1", "M2:1", "M3:1", "M3:2"]] * 4


def test_a_number_may_come_before_its_message() -> None:
    """ "P_i buffers it until it both receives <M, S(M)> from the sequencer, and S_i + 1 = S(M)"."""
    group = Group(Sequencer, 4)
    group.cast(P2, "x")
    group.carry(P2, P1)
    assert isinstance(group.carry(P1, P3), sequencer.Order)
    assert group.names(P3) == []
    group.carry(P2, P3)
    assert group.names(P3) == ["x"]


def test_a_message_waits_for_an_earlier_number() -> None:
    group = Group(Sequencer, 4)
    group.cast(P2, "x")
    group.cast(P3, "y")
    group.carry(P2, P1)
    group.carry(P3, P1)
    group.carry_all(P1, [P4])
    group.carry(P3, P4)
    assert group.names(P4) == []
    (wait,) = group.orderings[P4].waits()
    assert (wait.reason, wait.waits_for) == ("position 0 comes first and its batch is not here", (P2,))
    group.carry(P2, P4)
    assert group.names(P4) == ["x", "y"]


def test_the_sequencer_numbers_each_message_once() -> None:
    """The sequencer is a member: its own messages and those of others get one number each, and none comes back to it."""
    group = Group(Sequencer, 3)
    group.cast(P1, "own")
    group.cast(P2, "other")
    group.carry(P2, P1)
    orders = [packet for packet in group.under_way(P1, P2) if isinstance(packet, sequencer.Order)]
    assert orders == [sequencer.Order(0, (P1,)), sequencer.Order(1, (P2,))]
    group.settle()
    assert [len(group.names(p)) for p in range(3)] == [2, 2, 2]


# Hybrid variants.


def test_a_bare_total_order_need_not_be_fifo() -> None:
    """ "FIFO and causal orderings are orthogonal to total ordering". P1 is the sequencer, the channel keeps no order."""
    group = Group(BareTotal, 3, in_order=False)
    group.cast(P2, "x1")
    group.cast(P2, "x2")
    group.carry(P2, P1, at=1)
    group.settle()
    assert [group.names(p) for p in range(3)] == [["x2", "x1"]] * 3
    assert set(group.violations()) == {Broken.FIFO}


def test_a_bare_total_order_need_not_be_causal() -> None:
    group = Group(BareTotal, 3, in_order=False)
    group.cast(P2, "x1")
    group.cast(P2, "x2")
    group.carry(P2, P1, at=1)
    group.carry(P2, P3, at=1)
    assert isinstance(group.carry(P1, P3), NamedOrder)
    assert group.names(P3) == ["x2"]
    group.cast(P3, "y")  # follows x2, and so x1
    group.carry(P3, P1)
    group.settle()
    assert [group.names(p) for p in range(3)] == [["x2", "y", "x1"]] * 3
    assert set(group.violations()) == {Broken.FIFO, Broken.CAUSAL}


def test_on_an_unordered_channel_total_order_is_all_that_is_left() -> None:
    found = set()
    for seed in range(300):
        found |= set(run(BareTotal, seed, UNORDERED).violations())
    assert found == {Broken.FIFO, Broken.CAUSAL}


@pytest.mark.parametrize("order", [FifoTotal, CausalTotal])
def test_on_streams_the_hybrids_keep_what_they_promise(order: type[Sequencer]) -> None:
    for seed in range(300):
        assert run(order, seed).violations() == {}, f"seed {seed}"


def test_on_streams_the_bare_order_is_fifo_and_causal_too() -> None:
    for seed in range(300):
        assert run(BareTotal, seed).violations() == {}, f"seed {seed}"


# The bulletin board, "os.interesting".

HANLON, JOSEPH, LHEUREUX, WALKER = range(4)
MACH, MICRO, RE_MICRO, RPC, RE_MACH = "Mach", "Microkernels", "Re: Microkernels", "RPC performance", "Re: Mach"


def bulletin_board(order: type[AnyOrdering]) -> Group:
    """Everyone posts at once, and the replies reach T. L'Heureux before what they answer."""
    group = Group(order, 4)
    group.cast(HANLON, MACH)
    group.carry_all(HANLON, [WALKER])
    group.cast(JOSEPH, MICRO)
    group.carry_all(JOSEPH, [HANLON])
    group.carry_all(HANLON)  # the sequencer's numbers, where there is one
    group.carry_all(JOSEPH, [WALKER])
    for author, answered, reply in ((HANLON, MICRO, RE_MICRO), (WALKER, MACH, RE_MACH)):
        assert answered in group.names(author)
        group.cast(author, reply)
    group.cast(LHEUREUX, RPC)
    group.carry_all(WALKER, [LHEUREUX])
    group.carry_all(HANLON, [LHEUREUX])
    group.settle()
    return group


def test_the_bulletin_board_in_fifo_order() -> None:
    """Each author's items in order. A reply can stand before what it answers."""
    board = bulletin_board(Fifo)
    items = board.names(LHEUREUX)
    assert items.index(MACH) < items.index(RE_MICRO)  # both A. Hanlon's
    assert items.index(RE_MICRO) < items.index(MICRO)  # the answer before the question
    assert board.violations() == {}


def test_the_bulletin_board_in_causal_order() -> None:
    """Replies stand behind what they answer, everywhere. The items' numbers still differ from reader to reader."""
    board = bulletin_board(Causal)
    for reader in range(4):
        items = board.names(reader)
        assert items.index(MICRO) < items.index(RE_MICRO)
        assert items.index(MACH) < items.index(RE_MACH)
    assert len({tuple(board.names(reader)) for reader in range(4)}) > 1
    assert board.violations() == {}


def test_the_bulletin_board_in_causal_total_order() -> None:
    """One numbering everywhere, so that "item 24" means the same to all, and replies behind what they answer."""
    board = bulletin_board(CausalTotal)
    numbering = board.names(HANLON)
    assert [board.names(reader) for reader in range(4)] == [numbering] * 4
    assert numbering.index(MICRO) < numbering.index(RE_MICRO)
    assert numbering.index(MACH) < numbering.index(RE_MACH)
    assert set(numbering) == {MACH, MICRO, RE_MICRO, RPC, RE_MACH}


def test_the_printed_bulletin_board_is_what_causal_total_order_can_show() -> None:
    """Items 23 to 27 as the lecture prints them."""
    group = Group(CausalTotal, 4)
    for author, item in ((HANLON, MACH), (JOSEPH, MICRO), (HANLON, RE_MICRO), (LHEUREUX, RPC), (WALKER, RE_MACH)):
        group.cast(author, item)
        group.settle()
    assert [group.names(reader) for reader in range(4)] == [[MACH, MICRO, RE_MICRO, RPC, RE_MACH]] * 4
