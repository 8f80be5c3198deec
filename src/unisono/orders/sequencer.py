"""Total order by a sequencer.

Source: the lecture notes *Multicast* (003 in docs/protocols.md), "Total ordering using a sequencer" and "Hybrid variants".
Idea: the member of rank 0 numbers every batch as it meets it, its own included, and casts the numbers. Everyone delivers in the
order of the numbers, when number and batch are both there; either may come first.

| packet | stream | meaning                                                                                      |
|--------|--------|----------------------------------------------------------------------------------------------|
| Data   | cast   | batch `number` of this origin; its caster had delivered the first `seen` batches of the order |
| Order  | cast   | from rank 0: positions first, first+1, ... are the next batches of `origins`, one entry each  |

I1  every known order is a prefix of the sequencer's, because Order packets are one FIFO stream.
I2  the i-th occurrence of an origin in the order is its batch number i: an origin's batches are numbered as they were cast.
I3  a batch is delivered at the position that the sequencer gave it, by everyone.

Three promises, one class. Streams are FIFO, so by I2 the order is FIFO. If a member delivers x and then casts y, the sequencer had
numbered x before that and meets y after it, so the order is causal. `sequencer`, `fifo-total` and `causal-total` differ only in
how much of this they promise.

Why a batch carries `seen`: 1. A casts x; only the sequencer S gets it, numbers it, delivers it, and casts y, which follows x.
2. S and A crash. 3. B holds y and the order "x", but x is gone: delivering y would break causal order.

View change. L is the longest order that a survivor knows (I1); E is the first position of L whose batch no survivor holds, or
the end of L. No survivor has delivered past E, since it would hold the batch at E. All deliver L up to E. Then they drop each
batch whose caster had seen more than E, because it follows something that is lost (`seen` grows with an origin's batches, so
whole suffixes go), and deliver all others, numbered or not. Their casters had delivered only what lies before E, so these are
concurrent or of one origin: any order that keeps each origin's is legal, and all take (origin, number).

What every member has delivered is forgotten (`mark`, `forget`, `known_order`), so an order is reported from a base on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unisono.core.config import Config
from unisono.core.errors import PeerFault
from unisono.core.ordering import Ordering, Wait
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Property, Rank, Service, Slot, View
from unisono.core.wire import ALL, BATCH, RANK, RANKS, ROW, SLOT, SLOTS, U64, VECTOR, Layout
from unisono.orders.holdback import AHEAD_MAX, FORGET_MIN, demand_rest, longest_held
from unisono.orders.known_order import KnownOrder, longest_known

SEQUENCER: Rank = 0


class Data(NamedTuple):
    number: int
    seen: int
    batch: Batch


class Order(NamedTuple):
    first: int
    origins: tuple[Rank, ...]


class SequencerReport(NamedTuple):
    held: tuple[int, ...]
    order: tuple[Rank, ...]  # all that is known of the order, from `base` on
    delivered: int  # how much of it was delivered here
    seen: tuple[tuple[Rank, int, int], ...]  # held back: origin, number, what its caster had seen
    base: int  # where `order` begins: what is before it, everyone has delivered
    before: tuple[int, ...]  # by origin: batches before it


class SequencerCut(NamedTuple):
    wanted: tuple[int, ...]
    order: tuple[Slot, ...]
    base: int = 0  # where it begins


class Sequencer(Ordering[SequencerReport, SequencerCut]):
    guarantees = frozenset({Property.TOTAL})
    service = Service.TOTAL
    services = frozenset({Service.TOTAL})
    numbered = (Data,)
    wire = (Layout(0x12, Data, (SLOT, U64, BATCH)), Layout(0x13, Order, (U64, RANKS)))
    report_wire = Layout(0x22, SequencerReport, (VECTOR, ALL(RANK), U64, ALL(ROW(RANK, SLOT, U64)), U64, VECTOR))
    cut_wire = Layout(0x32, SequencerCut, (VECTOR, SLOTS, U64))

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        self._rank = rank
        self._held = [0] * len(view)  # by origin: batches received
        self._waiting: list[deque[Data]] = [deque() for _ in range(len(view))]  # by origin: received, not delivered
        self._known = KnownOrder([0] * len(view))
        self._next = 0  # positions below it are delivered
        self._announced = 0  # at the sequencer: positions below it were cast
        self._numbered = [0] * len(view)  # by origin: batches that have a position here
        self._seen = [0] * len(view)  # by origin: what its last batch says that it had delivered

    def submit(self, batch: Batch, out: Outbox) -> None:
        number = self._held[self._rank] + 1
        self._held[self._rank] = number
        packet = Data(number, self._next, batch)
        out.to_all.append(packet)
        if self._rank == SEQUENCER:
            self._sequence(packet, out)
        else:
            self._waiting[self._rank].append(packet)

    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, Data):
            self._demand_data(sender, packet)
            self._held[sender] = packet.number
            self._seen[sender] = packet.seen
            if self._rank == SEQUENCER:
                self._sequence(packet, out)
                return
            self._waiting[sender].append(packet)
            if out.noting and packet.number <= self._numbered[sender]:
                out.ordered(packet.batch, self._position_of_last(sender))
        else:
            assert isinstance(packet, Order)
            self._demand_order(sender, packet)
            for position, origin in enumerate(packet.origins, packet.first):
                self._numbered[origin] += 1
                if out.noting and self._numbered[origin] <= self._held[origin]:
                    queue = self._waiting[origin]
                    out.ordered(queue[self._numbered[origin] - queue[0].number].batch, position)
            self._known.origins.extend(packet.origins)
        self._advance(out)

    def _demand_data(self, sender: Rank, packet: Data) -> None:
        if packet.number != self._held[sender] + 1:
            raise PeerFault("a batch is out of turn")
        known = self._known
        end = self._announced if self._rank == SEQUENCER else known.base + len(known.origins) + AHEAD_MAX
        if not self._seen[sender] <= packet.seen <= end:
            raise PeerFault("a batch says that its caster delivered what has no position, or less than before")

    def _demand_order(self, sender: Rank, packet: Order) -> None:
        if sender != SEQUENCER:
            raise PeerFault("a member that is not the sequencer gives positions")
        if packet.first != self._known.base + len(self._known.origins) or not packet.origins:
            raise PeerFault("positions are out of turn")
        if self._numbered[self._rank] + packet.origins.count(self._rank) > self._held[self._rank]:
            raise PeerFault("a position is for a batch that this member never cast")

    def end_turn(self, out: Outbox) -> None:
        if self._rank == SEQUENCER and self._announced < self._next:  # all that it has numbered, it has delivered
            out.to_all.append(Order(self._announced, tuple(self._known.origins[self._announced - self._known.base :])))
            self._announced = self._next

    def mark(self) -> int | None:
        return self._next if self._next - self._known.base >= FORGET_MIN else None

    def forget(self, mark: int) -> None:
        self._known.forget(mark)

    def waits(self) -> Sequence[Wait]:
        result = []
        for origin, queue in enumerate(self._waiting):
            for packet in queue:
                reason, whom = "the sequencer has not numbered it here", SEQUENCER
                if packet.number <= self._numbered[origin]:
                    reason = f"position {self._next} comes first and its batch is not here"
                    whom = self._known.origins[self._next - self._known.base]
                result.append(Wait(packet.batch, reason, (whom,)))
        return result

    def report(self) -> SequencerReport:
        seen = tuple((origin, p.number, p.seen) for origin, queue in enumerate(self._waiting) for p in queue)
        known = self._known
        return SequencerReport(
            tuple(self._held), tuple(known.origins), self._next, seen, known.base, tuple(known.before)
        )

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, SequencerReport]) -> SequencerCut:
        known, held = longest_known(reports), longest_held(reports)
        wanted = list(known.before)
        order: list[Slot] = []
        for origin in known.origins:
            if wanted[origin] >= held[origin]:  # this position's batch died with its holders: the end E
                break
            wanted[origin] += 1
            order.append((origin, wanted[origin]))
        end = known.base + len(order)
        if any(report.delivered > end for report in reports.values()):
            raise PeerFault("a report has delivered what no report holds")
        seen = {(origin, number): value for report in reports.values() for origin, number, value in report.seen}
        for origin in range(len(view)):
            while wanted[origin] < held[origin] and seen[origin, wanted[origin] + 1] <= end:
                wanted[origin] += 1
                order.append((origin, wanted[origin]))
        return SequencerCut(tuple(wanted), tuple(order), known.base)

    def close(self, cut: SequencerCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        start = self._next - cut.base
        if not 0 <= start <= len(cut.order):
            raise PeerFault("the cut ends before what was delivered here, or begins behind it")
        delivered = [held - len(queue) for held, queue in zip(self._held, self._waiting, strict=True)]
        demand_rest(cut.order[start:], delivered, self._held, missing, cut.wanted)
        for position, (origin, number) in enumerate(cut.order[start:], self._next):
            queue = self._waiting[origin]
            packet: Packet = queue.popleft() if queue else missing[origin, number]
            assert isinstance(packet, Data)
            assert packet.number == number, "I2"
            if out.noting and number > min(self._numbered[origin], self._held[origin]):
                out.ordered(packet.batch, position)
            self._next += 1
            out.deliver.append(packet.batch)

    def _sequence(self, packet: Data, out: Outbox) -> None:
        """At the sequencer: a batch is numbered the moment it is met, and so deliverable at once."""
        assert self._next == self._known.base + len(self._known.origins), "I3"
        if out.noting:
            out.ordered(packet.batch, self._next)
        self._known.origins.append(packet.batch.origin)
        self._numbered[packet.batch.origin] += 1
        self._next += 1
        out.deliver.append(packet.batch)

    def _advance(self, out: Outbox) -> None:
        origins, base, waiting = self._known.origins, self._known.base, self._waiting
        while self._next < base + len(origins):
            queue = waiting[origins[self._next - base]]
            if not queue:
                return
            self._next += 1
            out.deliver.append(queue.popleft().batch)

    def _position_of_last(self, origin: Rank) -> int:
        """The position of the last batch received of an origin: what waits of it has the next positions that are its."""
        at = self._next - self._known.base - 1
        for _ in self._waiting[origin]:
            at = self._known.origins.index(origin, at + 1)
        return self._known.base + at


class FifoTotal(Sequencer):
    """The sequencer with the promise that each origin's messages keep their order as well."""

    guarantees = frozenset({Property.TOTAL, Property.FIFO})


class CausalTotal(Sequencer):
    """The sequencer with the promise that the order extends causality as well."""

    guarantees = frozenset({Property.TOTAL, Property.FIFO, Property.CAUSAL})
