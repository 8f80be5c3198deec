"""Paper 000 (Dasser): the worked examples of ABCAST (Figure 1) and of TOMP (Figures 3 and 4), step by step, and its claims.

Hosts 1, 2, 3 are the ranks 0, 1, 2, and the stamp 17.3 is counter 17 of host 3. In the paper a host's own message comes back to
it through the network, and may find others there first; our sender takes its message in when it casts it. So the examples
hand m1 and m3 to the other hosts before their senders cast them, which changes no stamp.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import UNICAST, A, B, Group, make_view, run
from unisono.core.config import Config
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Rank, Service
from unisono.orders import abcast, tomp
from unisono.orders.abcast import Abcast
from unisono.orders.stamps import Stamp
from unisono.orders.tomp import Tomp

HOST1, HOST2, HOST3 = HOSTS = range(3)
M1, M2, M3 = 1, 1, 1  # message numbers: each host's message is its first in the view

Row = tuple[str, str, str]


def dotted(stamp: Stamp) -> str:
    counter, rank = stamp
    return f"{counter}.{rank + 1}"


class Example:
    """Section 2.2: "the greatest timestamps used before this operation occurred are 14.1, 15.2 and 16.3"."""

    def __init__(self, order: type[Abcast] | type[Tomp], data: type[Any]) -> None:
        view = make_view(3)
        self.hosts: list[Any] = [order(view, rank, Config()) for rank in HOSTS]
        for rank, counter in enumerate((14, 15, 16)):
            self.hosts[rank]._counter = counter
        self.batches = [Batch(rank, 0, [b"m"], Service.TOTAL) for rank in HOSTS]
        self.data = data
        self.acks: dict[tuple[Rank, Rank], Packet] = {}  # (origin of the message, who acknowledges)
        self.finals: list[Packet] = []
        self.delivered: list[list[Rank]] = [[], [], []]

    def receive_all(self) -> None:
        """Step 1: the messages come in a different order at each host."""
        for rank, arrivals in ((HOST1, (2, 0, 1)), (HOST2, (1, 0, 2)), (HOST3, (0, 2, 1))):
            for origin in arrivals:
                self.turn(rank, origin)

    def turn(self, rank: Rank, origin: Rank) -> None:
        """One message comes to one host: its own when it casts it."""
        out = Outbox()
        if origin == rank:
            self.hosts[rank].submit(self.batches[rank], out)
            assert out.to_all == [self.data(1, self.batches[rank])]
            out.to_all = []
        else:
            self.hosts[rank].receive(origin, self.data(1, self.batches[origin]), out)
        self.end_turn(rank, out)

    def decide(self, origin: Rank) -> None:
        """The sender hears all acknowledgements, decides, and everyone hears the final stamp."""
        for rank in HOSTS:
            if rank != origin:
                self.hand(origin, rank, self.acks[origin, rank])
        final = self.finals[-1]
        for rank in HOSTS:
            if rank != origin:
                self.hand(rank, origin, final)

    def hand(self, receiver: Rank, sender: Rank, packet: Packet) -> None:
        out = Outbox()
        self.hosts[receiver].receive(sender, packet, out)
        self.end_turn(receiver, out)

    def end_turn(self, rank: Rank, out: Outbox) -> None:
        self.hosts[rank].end_turn(out)
        for origin, packet in out.to_one:
            self.acks[origin, rank] = packet
        self.finals += out.to_all
        self.delivered[rank] += [batch.origin for batch in out.deliver]

    def picture(self, rank: Rank) -> list[Row]:
        """A queue as the figures draw it: they leave delivered messages in, so these come first."""
        host = self.hosts[rank]
        gone = [(f"m{origin + 1}", dotted(host._finals[origin, 1]), "dl") for origin in self.delivered[rank]]
        rows = host._queue.listing()
        return gone + [(f"m{origin + 1}", dotted(stamp), "dl" if final else "ud") for (origin, _), stamp, final in rows]

    def pictures(self) -> list[list[Row]]:
        return [self.picture(rank) for rank in HOSTS]


def rows(text: str) -> list[Row]:
    """`m3 15.1 ud, m1 16.1 ud` as rows."""
    result = []
    for item in text.split(", "):
        name, stamp, state = item.split()
        result.append((name, stamp, state))
    return result


STEP_1 = [
    rows("m3 15.1 ud, m1 16.1 ud, m2 17.1 ud"),
    rows("m2 16.2 ud, m1 17.2 ud, m3 18.2 ud"),
    rows("m1 17.3 ud, m3 18.3 ud, m2 19.3 ud"),
]
LAST_STEP = [rows("m1 17.3 dl, m3 18.3 dl, m2 19.3 dl")] * 3


def test_figure_1_abcast() -> None:
    """Section 2.2, steps 1 to 4: decisions on m1, m2 and m3, in this order."""
    example = Example(Abcast, abcast.Data)
    example.receive_all()
    assert example.pictures() == STEP_1
    proposals = {key: packet.counters for key, packet in example.acks.items() if isinstance(packet, abcast.Propose)}
    assert (proposals[HOST1, HOST2], proposals[HOST1, HOST3]) == ((17,), (17,))  # "(16.1, 17.2, 17.3)"

    example.decide(HOST1)
    assert example.finals[-1] == abcast.Final(((M1, 17, HOST3),))
    assert example.pictures() == [
        rows("m3 15.1 ud, m2 17.1 ud, m1 17.3 dl"),  # the figure prints m2 as 16.1, a misprint: step 1 gave it 17.1
        rows("m2 16.2 ud, m1 17.3 dl, m3 18.2 ud"),
        rows("m1 17.3 dl, m3 18.3 ud, m2 19.3 ud"),
    ]
    assert example.delivered == [[], [], [HOST1]]  # "m1 will not be delivered until all messages preceding it ..."

    example.decide(HOST2)
    assert example.finals[-1] == abcast.Final(((M2, 19, HOST3),))
    assert example.pictures() == [
        rows("m3 15.1 ud, m1 17.3 dl, m2 19.3 dl"),
        rows("m1 17.3 dl, m3 18.2 ud, m2 19.3 dl"),
        rows("m1 17.3 dl, m3 18.3 ud, m2 19.3 dl"),
    ]
    assert example.delivered == [[], [HOST1], [HOST1]]

    example.decide(HOST3)
    assert example.finals[-1] == abcast.Final(((M3, 18, HOST3),))
    assert example.pictures() == LAST_STEP
    assert example.delivered == [[HOST1, HOST3, HOST2]] * 3


def test_figures_3_and_4_tomp() -> None:
    """Section 3.3, steps 1 to 7. Figure 4 prints the headings of step 6 swapped, and the increment at m2 that belongs to m3."""
    example = Example(Tomp, tomp.Data)
    example.receive_all()
    assert example.pictures() == STEP_1

    # Step 2: "(m1_id+1, m2_id, m3_id+1), (m1_id+1, m2_id+1, m3_id) and (m1_id+1, m2_id, m3_id)".
    assert example.acks[HOST1, HOST2] == tomp.Acknowledge((tomp.AckRow(M1, 17, (M1 + 1, M2 + 1, M3)),))
    assert example.acks[HOST1, HOST3] == tomp.Acknowledge((tomp.AckRow(M1, 17, (M1 + 1, M2, M3)),))
    example.decide(HOST1)
    assert example.finals[-1] == tomp.Final(
        (tomp.FinalRow(M1, (17, HOST3), (M1 + 1, M2, M3), ((18, HOST3), (18, HOST3), (18, HOST3))),)
    )
    assert example.pictures() == [  # step 3
        rows("m1 17.3 dl, m2 18.3 ud, m3 18.3 ud"),
        rows("m1 17.3 dl, m2 18.3 ud, m3 18.3 ud"),
        rows("m1 17.3 dl, m3 18.3 ud, m2 19.3 ud"),
    ]
    assert example.delivered == [[HOST1]] * 3  # "at the end of this step, m1 may be delivered ... at the 3 hosts"

    # Step 4.
    assert example.acks[HOST2, HOST1] == tomp.Acknowledge((tomp.AckRow(M2, 17, (M1 + 1, M2 + 1, M3 + 1)),))
    assert example.acks[HOST2, HOST3] == tomp.Acknowledge((tomp.AckRow(M2, 19, (M1 + 1, M2 + 1, M3 + 1)),))
    example.decide(HOST2)
    assert example.finals[-1] == tomp.Final(
        (tomp.FinalRow(M2, (19, HOST3), (M1, M2 + 1, M3), ((17, HOST2), (20, HOST3), (17, HOST2))),)
    )
    assert example.pictures() == [rows("m1 17.3 dl, m3 18.3 ud, m2 19.3 dl")] * 3  # step 5
    assert example.delivered == [[HOST1]] * 3

    # Step 6.
    assert example.acks[HOST3, HOST1] == tomp.Acknowledge((tomp.AckRow(M3, 15, (M1, M2, M3 + 1)),))
    assert example.acks[HOST3, HOST2] == tomp.Acknowledge((tomp.AckRow(M3, 18, (M1 + 1, M2 + 1, M3 + 1)),))
    example.decide(HOST3)
    assert example.finals[-1] == tomp.Final(
        (tomp.FinalRow(M3, (18, HOST3), (M1, M2, M3 + 1), ((16, HOST1), (19, HOST3), (19, HOST3))),)
    )
    assert example.pictures() == LAST_STEP  # step 7
    assert example.delivered == [[HOST1, HOST3, HOST2]] * 3


def test_a_sender_acknowledges_to_itself() -> None:
    """Section 3.3, step 2: host1's own vector, after its own update, is among those that it folds."""
    example = Example(Tomp, tomp.Data)
    example.turn(HOST1, HOST3)
    example.turn(HOST1, HOST1)
    folding = example.hosts[HOST1]._foldings[M1]
    assert (folding.count, folding.greatest) == (1, (16, HOST1))
    assert folding.min_next_mid == [M1 + 1, M2, M3 + 1]
    assert folding.max_next_ts == [(17, HOST1)] * 3


@pytest.mark.parametrize(
    ("acks", "expected"),
    [
        ([((5, 0), 3), ((9, 1), 2)], (2, (10, 1))),  # a smaller next_mid replaces the pair
        ([((9, 1), 2), ((5, 0), 3)], (2, (10, 1))),  # a larger one changes nothing
        ([((9, 1), 2), ((5, 0), 2)], (2, (10, 1))),  # with an equal one the larger stamp stays,
        ([((5, 0), 2), ((9, 1), 2)], (2, (10, 1))),  # whichever came first
        ([((5, 0), 2), ((5, 1), 2)], (2, (6, 1))),  # stamps are compared as pairs
        ([((9, 1), 3), ((5, 0), 2)], (2, (6, 0))),  # the smaller next_mid wins, even with a smaller stamp
    ],
)
def test_the_folding_of_two_acknowledgements(acks: list[tuple[Stamp, int]], expected: tuple[int, Stamp]) -> None:
    """Section 3.2.2.3 lacks the rule; the figures fix it."""
    folding = tomp.Folding(1)
    for stamp, next_mid in acks:
        folding.add(stamp, (next_mid,))
    assert (folding.min_next_mid[0], folding.max_next_ts[0]) == expected
    assert folding.greatest == max(stamp for stamp, _ in acks)


def test_the_raised_stamp_counts_from_the_message_that_was_expected() -> None:
    """Section 3.2.3.2: a waiting message gets max(own, max_next_ts(k) + its number - min_next_mid(k)), if that is not negative."""
    member = Tomp(make_view(2), A, Config())
    out = Outbox()
    for number in (1, 2, 3):
        member.receive(B, tomp.Data(number, Batch(B, number - 1, [b""], Service.TOTAL)), out)
    member._lift(tomp.FinalRow(1, (9, B), (1, 2), ((0, 0), (7, B))))
    assert [(slot, stamp) for slot, stamp, _ in member._queue.listing()] == [
        ((B, 1), (1, A)),  # before the expected one: no anticipation
        ((B, 2), (7, B)),
        ((B, 3), (8, B)),
    ]


def test_a_final_stamp_goes_before_an_equal_raised_one() -> None:
    """The final stamp is unique, so a waiting message that was raised to it ends above it: it need not be waited for."""
    member = Tomp(make_view(3), A, Config())
    out = Outbox()
    member.receive(B, tomp.Data(1, Batch(B, 0, [b"waits"], Service.TOTAL)), out)
    member._queue.lift((B, 1), (5, 2))
    member.receive(2, tomp.Data(1, Batch(2, 0, [b"final"], Service.TOTAL)), out)
    row = tomp.FinalRow(1, (5, 2), (1, 9, 2), ((6, 2),) * 3)
    member.receive(2, tomp.Final((row,)), out)
    assert [batch.origin for batch in out.deliver] == [2]


@pytest.mark.parametrize("order", [Abcast, Tomp])
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_a_multicast_costs_3n_packets(order: type[Abcast] | type[Tomp], size: int) -> None:
    """Section 1: "the multicast of one message causes the transmission of 3N messages", 3(N-1) of them on the wire."""
    group = Group(order, size)
    for casts in (1, 2, 3):
        group.cast(casts % size)
        group.settle()
        assert group.packets == casts * 3 * (size - 1)


@pytest.mark.parametrize("order", [Abcast, Tomp])
def test_the_cost_is_the_same_when_casts_overlap(order: type[Abcast] | type[Tomp]) -> None:
    for seed in range(100):
        group = run(order, seed)
        assert group.packets == len(group.sent) * 3 * (group.size - 1)


@pytest.mark.parametrize("order", [Abcast, Tomp])
def test_a_turn_answers_many_messages_with_one_packet(order: type[Abcast] | type[Tomp]) -> None:
    """Ours batches what the paper sends message by message: proposals and finals of one turn travel together."""
    data = abcast.Data if order is Abcast else tomp.Data
    sender, receiver = (order(make_view(2), rank, Config()) for rank in (A, B))
    to_receiver, to_sender = Outbox(), Outbox()
    for first in range(5):
        sender.submit(Batch(A, first, [b""], Service.TOTAL), to_receiver)
    for packet in to_receiver.to_all:
        assert isinstance(packet, data)
        receiver.receive(A, packet, to_sender)
    receiver.end_turn(to_sender)
    assert [rank for rank, _ in to_sender.to_one] == [A]
    finals = Outbox()
    sender.receive(B, to_sender.to_one[0][1], finals)
    sender.end_turn(finals)
    assert len(finals.to_all) == 1
    assert [batch.first for batch in finals.deliver] == [0, 1, 2, 3, 4]


@pytest.mark.seconds
def test_tomp_gives_the_order_of_abcast_and_never_delivers_later() -> None:
    """Section 3.1: only t2 changes. Both see the same packets arrive in the same order, on 400 random schedules."""
    earlier = deliveries = 0
    for seed in range(400):
        theirs, ours = run(Abcast, seed), run(Tomp, seed)
        assert theirs.steps == ours.steps
        for rank in range(ours.size):
            assert ours.orderings[rank]._finals == theirs.orderings[rank]._finals
            assert ours.delivered[rank] == theirs.delivered[rank]
        assert ours.when.keys() == theirs.when.keys()
        for what, step in theirs.when.items():
            assert ours.when[what] <= step
            earlier += ours.when[what] < step
            deliveries += 1
    assert earlier > deliveries / 20


def test_m1_waits_unnecessarily_in_abcast_and_not_in_tomp() -> None:
    """Section 2.3 (5): m1 in host1 waited for m3, although m3 ended behind it."""

    def steps_until_delivered(order: type[Abcast] | type[Tomp]) -> int:
        group = Group(order, 3)
        group.cast(1, "m2")
        group.cast(2, "m3")
        group.carry(2, 0)
        group.cast(0, "m1")
        group.carry(0, 1)
        group.carry(0, 2)
        group.carry(1, 0, UNICAST)
        group.carry(2, 0, UNICAST)  # m1 is decided; m3, first in host1's queue, is not
        group.settle()
        assert group.names(0) == group.names(1) == group.names(2)
        return group.when[0, 0, 0]

    assert steps_until_delivered(Tomp) < steps_until_delivered(Abcast)
