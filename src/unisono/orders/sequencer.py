"""Total order by a sequencer. Lectures (003), "Total ordering using a sequencer" and "Hybrid variants".

Idea: the member of rank 0 numbers every batch as it meets it, its own included, and casts the numbers. Everyone delivers in the
order of the numbers, when number and batch are both there; either may come first.

| packet | stream | meaning                                                                                      |
|--------|--------|----------------------------------------------------------------------------------------------|
| Data   | cast   | batch `number` of this origin; its caster had delivered the first `seen` batches of the order |
| Order  | cast   | from rank 0: positions first, first+1, ... are the next batches of `origins`, one entry each  |

I1  every known order is a prefix of the sequencer's, because Order packets are one FIFO stream.
I2  the i-th occurrence of an origin in the order is its batch number i: an origin's batches are numbered as they were cast.
I3  a batch is delivered at the position that the sequencer gave it, by everyone.

The three promises. `total` alone would allow any common order. Here the streams are FIFO, so by I2 the order is FIFO; and a caster
that delivered x casts y afterwards, so the sequencer, which numbered x before anyone delivered it, meets y later: the order is
causal. So one class serves `sequencer`, `fifo-total` and `causal-total`; they differ in what they promise and in nothing else.

View change. Let L be the longest order that a survivor knows (I1), E its end, or the first position whose batch no survivor
holds. Survivors deliver L up to E. Nobody among them is past E: one would have to hold the batch at E. A batch whose caster had
seen more than E follows something that is lost, and is dropped by all (`seen` grows with an origin's batches, so whole suffixes
go). The other batches beyond E, numbered or not, were cast by members that had delivered only what lies before E, so
they are concurrent or of one origin: any order that keeps each origin's is legal, and all take (origin, number).
What every member has delivered is forgotten (`mark`, `forget`): positions below a base, of which only each origin's count is kept.
Bases differ from member to member, and none is above what any member has delivered: the highest among the reports will do for all.
A story with two crashes shows why `seen` is needed. 1. A casts x; only the sequencer S gets it, numbers it, delivers it, and
casts y, which follows x. 2. S and A crash. 3. B holds y and the order "x", but x is gone: delivering y would break causal order.
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
from unisono.orders.holdback import AHEAD_MAX, FORGET_MIN, longest_held

SEQUENCER: Rank = 0


class Data(NamedTuple):
    number: int
    seen: int
    batch: Batch


class Order(NamedTuple):
    first: int
    origins: tuple[Rank, ...]


WIRE = (Layout(0x12, Data, (SLOT, U64, BATCH)), Layout(0x13, Order, (U64, RANKS)))


class SequencerReport(NamedTuple):
    held: tuple[int, ...]
    order: tuple[Rank, ...]  # all that is known of the order, from `base` on
    delivered: int  # how much of it was delivered here
    seen: tuple[tuple[Rank, int, int], ...]  # held back: origin, number, what its caster had seen
    base: int = 0  # where `order` begins: what is before it, everyone has delivered
    before: tuple[int, ...] = ()  # by origin: batches before it


class SequencerCut(NamedTuple):
    wanted: tuple[int, ...]
    order: tuple[Slot, ...]
    base: int = 0  # where it begins


REPORT_WIRE = Layout(0x22, SequencerReport, (VECTOR, ALL(RANK), U64, ALL(ROW(RANK, SLOT, U64)), U64, VECTOR))
CUT_WIRE = Layout(0x32, SequencerCut, (VECTOR, SLOTS, U64))


class Sequencer(Ordering[SequencerReport, SequencerCut]):
    guarantees = frozenset({Property.TOTAL})
    service = Service.TOTAL
    services = frozenset({Service.TOTAL})
    numbered = (Data,)
    wire, report_wire, cut_wire = WIRE, REPORT_WIRE, CUT_WIRE

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        self._rank = rank
        self._held = [0] * len(view)  # by origin: batches received
        self._waiting: list[deque[Data]] = [deque() for _ in range(len(view))]  # by origin: received, not delivered
        self._base = 0  # positions below it are forgotten
        self._before = [0] * len(view)  # by origin: batches among those
        self._order: list[Rank] = []  # by position, from the base on: whose next batch it is
        self._next = 0  # positions below it are delivered
        self._announced = 0  # at the sequencer: positions below it were cast
        self._numbered = [0] * len(view)  # by origin: batches that have a position here
        self._seen = [0] * len(view)  # by origin: what its last batch says that it had delivered
        self._early: dict[Slot, int] = {}  # positions known before their batch came; kept only while someone records

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
            if out.noting:
                self._note_batch(sender, packet, out)
        else:
            assert isinstance(packet, Order)
            self._demand_order(sender, packet)
            for position, origin in enumerate(packet.origins, packet.first):
                self._numbered[origin] += 1
                if out.noting:
                    self._note_position(origin, position, out)
            self._order.extend(packet.origins)
        self._advance(out)

    def _demand_data(self, sender: Rank, packet: Data) -> None:
        if packet.number != self._held[sender] + 1:
            raise PeerFault("a batch is out of turn")
        end = self._announced if self._rank == SEQUENCER else self._base + len(self._order) + AHEAD_MAX
        if not self._seen[sender] <= packet.seen <= end:
            raise PeerFault("a batch says that its caster delivered what has no position, or less than before")

    def _demand_order(self, sender: Rank, packet: Order) -> None:
        if sender != SEQUENCER:
            raise PeerFault("a member that is not the sequencer gives positions")
        if packet.first != self._base + len(self._order) or not packet.origins:
            raise PeerFault("positions are out of turn (I1)")
        if self._numbered[self._rank] + packet.origins.count(self._rank) > self._held[self._rank]:
            raise PeerFault("a position is for a batch that this member never cast")

    def end_turn(self, out: Outbox) -> None:
        end = self._base + len(self._order)
        if self._rank == SEQUENCER and self._announced < end:
            out.to_all.append(Order(self._announced, tuple(self._order[self._announced - self._base :])))
            self._announced = end

    def mark(self) -> int | None:
        return self._next if self._next - self._base >= FORGET_MIN else None

    def forget(self, mark: int) -> None:
        for origin in self._order[: mark - self._base]:
            self._before[origin] += 1
        del self._order[: mark - self._base]
        self._base = mark

    def waits(self) -> Sequence[Wait]:
        result = []
        for origin, queue in enumerate(self._waiting):
            for packet in queue:
                if packet.number > self._numbered[origin]:
                    result.append(Wait(packet.batch, "the sequencer has not numbered it here", (SEQUENCER,)))
                else:
                    missing = self._order[self._next - self._base]
                    reason = f"position {self._next} comes first and its batch is not here"
                    result.append(Wait(packet.batch, reason, (missing,)))
        return result

    def report(self) -> SequencerReport:
        seen = tuple((origin, p.number, p.seen) for origin, queue in enumerate(self._waiting) for p in queue)
        return SequencerReport(tuple(self._held), tuple(self._order), self._next, seen, self._base, tuple(self._before))

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, SequencerReport]) -> SequencerCut:
        for report in reports.values():
            _demand_sound(report)
        held = longest_held(reports)
        base = max(report.base for report in reports.values())
        if any(report.delivered < base for report in reports.values()):
            raise PeerFault("a report has forgotten what another one lacks")
        longest = max(reports.values(), key=lambda report: report.base + len(report.order))
        for report in reports.values():
            _demand_prefix(report, longest)
        order: list[Slot] = []
        wanted = list(longest.before or [0] * len(view))
        for origin in longest.order[: base - longest.base]:
            wanted[origin] += 1
        for origin in longest.order[base - longest.base :]:
            if wanted[origin] >= held[origin]:  # this position's batch died with its holders: the end E
                break
            wanted[origin] += 1
            order.append((origin, wanted[origin]))
        end = base + len(order)
        if any(report.delivered > end for report in reports.values()):
            raise PeerFault("a report has delivered what no report holds")
        seen = {(origin, number): value for report in reports.values() for origin, number, value in report.seen}
        for origin in range(len(view)):
            while wanted[origin] < held[origin] and seen[origin, wanted[origin] + 1] <= end:
                wanted[origin] += 1
                order.append((origin, wanted[origin]))
        return SequencerCut(tuple(wanted), tuple(order), base)

    def close(self, cut: SequencerCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        self._demand_cut(cut, missing)
        for position, (origin, number) in enumerate(cut.order[self._next - cut.base :], self._next):
            queue = self._waiting[origin]
            packet: Packet = queue.popleft() if queue else missing[origin, number]
            assert isinstance(packet, Data)
            assert packet.number == number, "I2"
            if out.noting and (number > self._numbered[origin] or (origin, number) in self._early):
                out.ordered(packet.batch, position)
            self._next += 1
            out.deliver.append(packet.batch)

    def _demand_cut(self, cut: SequencerCut, missing: Mapping[Slot, Packet]) -> None:
        if not 0 <= self._next - cut.base <= len(cut.order):
            raise PeerFault("the cut ends before what was delivered here, or begins behind it")
        ends = [held - len(queue) for held, queue in zip(self._held, self._waiting, strict=True)]
        for origin, number in cut.order[self._next - cut.base :]:
            ends[origin] += 1
            if number != ends[origin] or (number > self._held[origin] and (origin, number) not in missing):
                raise PeerFault("the cut has a position for a batch that cannot be there (I2)")
        if tuple(ends) != cut.wanted:
            raise PeerFault("the cut does not deliver what it wants")

    def _sequence(self, packet: Data, out: Outbox) -> None:
        """At the sequencer: a batch is numbered the moment it is met, and so deliverable at once."""
        assert self._next == self._base + len(self._order), "I3"
        if out.noting:
            out.ordered(packet.batch, self._next)
        self._order.append(packet.batch.origin)
        self._numbered[packet.batch.origin] += 1
        self._next += 1
        out.deliver.append(packet.batch)

    def _advance(self, out: Outbox) -> None:
        order, base, waiting = self._order, self._base, self._waiting
        while self._next < base + len(order):
            queue = waiting[order[self._next - base]]
            if not queue:
                return
            self._next += 1
            out.deliver.append(queue.popleft().batch)

    # ORDERED marks the instant at which both a batch and its position are known here.

    def _note_position(self, origin: Rank, position: int, out: Outbox) -> None:
        queue = self._waiting[origin]
        ahead = self._numbered[origin] - 1 - (self._held[origin] - len(queue))
        if ahead < len(queue):
            out.ordered(queue[ahead].batch, position)
        else:
            self._early[origin, self._numbered[origin]] = position

    def _note_batch(self, sender: Rank, packet: Data, out: Outbox) -> None:
        position = self._early.pop((sender, packet.number), None)
        if position is not None:
            out.ordered(packet.batch, position)


def _demand_sound(report: SequencerReport) -> None:
    """Raise `PeerFault` if no correct member can have sent this report, whatever the others say."""
    before = list(report.before or [0] * len(report.held))
    if sum(before) != report.base or not 0 <= report.delivered - report.base <= len(report.order):
        raise PeerFault("a report delivers what it does not know")
    for origin in report.order[: report.delivered - report.base]:
        before[origin] += 1
    last = [0] * len(before)
    for origin, number, seen in report.seen:
        before[origin] += 1
        if number != before[origin] or seen < last[origin]:
            raise PeerFault("a report lists batches that cannot follow each other")
        last[origin] = seen
    if tuple(before) != report.held:
        raise PeerFault("a report does not list what it holds")


def _demand_prefix(report: SequencerReport, longest: SequencerReport) -> None:
    """Raise `PeerFault` if two reports know different orders (I1)."""
    early, late = (report, longest) if report.base <= longest.base else (longest, report)
    skip = late.base - early.base
    if any(a != b for a, b in zip(early.order[skip:], late.order, strict=False)):
        raise PeerFault("two reports know different orders")
    if skip <= len(early.order):
        before = list(early.before or [0] * len(early.held))
        for origin in early.order[:skip]:
            before[origin] += 1
        if tuple(before) != (late.before or (0,) * len(late.held)):
            raise PeerFault("two reports know different orders")


class FifoTotal(Sequencer):
    """The sequencer with the promise that each origin's messages keep their order as well."""

    guarantees = frozenset({Property.TOTAL, Property.FIFO})


class CausalTotal(Sequencer):
    """The sequencer with the promise that the order extends causality as well."""

    guarantees = frozenset({Property.TOTAL, Property.FIFO, Property.CAUSAL})
