"""What ABCAST and TOMP share: a queue ordered by stamps, and the merge of such queues at a view change.

A stamp is a pair (counter, rank), compared as a pair. A message waits with a provisional stamp until its final one is known,
and is delivered when it is final and nothing in the queue lies before it.

The merge, for both. A final stamp stays. A message without one takes the maximum, over the survivors, of its *current* stamp in
that survivor's queue, or counter + 1 where a survivor never stamped it, and no less than the stamp of its origin's previous
message. Then one sort, a final before a non-final on ties. Why this is the order that every survivor can still follow:

- What a survivor p has delivered must be a prefix. p delivered m with final f, so every message that p holds without a final lies
  above f in p's queue, and p's counter is at least f; so whichever value p contributes for a message that p has not
  delivered is above f, and the maximum is too. Taking the holders' proposals alone leaves out exactly those p that never saw it.
- The *current* stamp, because TOMP raises stamps, and p may have delivered m because it raised the others above f.
- FIFO: the proposals of one origin's messages rise at every member, but a final may come from a member that is gone and lie
  above everything the survivors gave to the next message of that origin; and in TOMP a raised stamp may lie above what a
  survivor says of the next message, which it never saw. Hence the floor; on the tie, the final is first.
- All messages that any survivor holds are delivered, so nothing is dropped here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from unisono.core.config import Config
from unisono.core.errors import PeerFault
from unisono.core.ordering import Ordering, Wait
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Property, Rank, Service, Slot, View
from unisono.core.wire import ALL, RANK, ROW, SLOT, SLOTS, U64, VECTOR, Layout
from unisono.orders.holdback import AHEAD_MAX, FORGET_MIN, demand_rest, longest_held, reach_max

Stamp: TypeAlias = tuple[int, Rank]


class Entry:
    """A message in the queue: its stamp, and whether that is final."""

    __slots__ = ("batch", "final", "stamp")

    def __init__(self, batch: Batch, stamp: Stamp) -> None:
        self.batch = batch
        self.stamp = stamp
        self.final = False


class StampQueue:
    """The reception queue: messages in the order of their stamps, a final one before a provisional one on ties.

    A heap with lazy removal: changing a stamp pushes a new heap item, and an item that is no longer true is skipped.
    """

    def __init__(self) -> None:
        self.entries: dict[Slot, Entry] = {}
        self._heap: list[tuple[Stamp, bool, Slot]] = []  # (stamp, is provisional, slot)

    def add(self, slot: Slot, batch: Batch, stamp: Stamp) -> None:
        self.entries[slot] = Entry(batch, stamp)
        heappush(self._heap, (stamp, True, slot))

    def finish(self, slot: Slot, stamp: Stamp) -> Entry:
        """The final stamp of a message is known."""
        entry = self.entries[slot]
        entry.stamp = stamp
        entry.final = True
        heappush(self._heap, (stamp, False, slot))
        return entry

    def lift(self, slot: Slot, stamp: Stamp) -> None:
        """A waiting message is known to end at this stamp or above."""
        entry = self.entries[slot]
        if stamp > entry.stamp:
            entry.stamp = stamp
            heappush(self._heap, (stamp, True, slot))

    def pop_ready(self) -> Iterator[tuple[Slot, Entry]]:
        """Remove and yield from the head while it is final."""
        heap, entries = self._heap, self.entries
        while heap:
            stamp, provisional, slot = heap[0]
            entry = entries.get(slot)
            if entry is None or entry.stamp != stamp or entry.final is provisional:
                heappop(heap)
                continue
            if provisional:
                return
            heappop(heap)
            del entries[slot]
            yield slot, entry

    def undecided(self) -> tuple[list[Stamp], list[tuple[Rank, ...]]]:
        """The stamps that are not final, in order; and whose the first none, one, two … of them are."""
        rows = sorted((entry.stamp, slot[0]) for slot, entry in self.entries.items() if not entry.final)
        origins: list[tuple[Rank, ...]] = [()]
        for _, origin in rows:
            known = origins[-1]
            origins.append(known if origin in known else tuple(sorted((*known, origin))))
        return [stamp for stamp, _ in rows], origins

    def listing(self) -> list[tuple[Slot, Stamp, bool]]:
        """The queue as the paper draws it: slot, stamp, deliverable."""
        rows = sorted((entry.stamp, not entry.final, slot) for slot, entry in self.entries.items())
        return [(slot, stamp, not provisional) for stamp, provisional, slot in rows]


class StampReport(NamedTuple):
    held: tuple[int, ...]
    counter: int
    delivered: tuple[int, ...]  # by origin: how many batches, a prefix
    finals: tuple[tuple[Rank, int, int, Rank], ...]  # known final stamps: origin, number, stamp
    waiting: tuple[tuple[Rank, int, int, Rank], ...]  # current provisional stamps, the same way


class StampCut(NamedTuple):
    wanted: tuple[int, ...]
    order: tuple[Slot, ...]  # what not every survivor has delivered, in the agreed order


_STAMPED = ALL(ROW(RANK, SLOT, U64, RANK))


def merge_stamps(view: View, config: Config, reports: Mapping[Rank, StampReport]) -> StampCut:
    finals: dict[Slot, Stamp] = {}
    for report in reports.values():
        _demand_sound(report, reach_max(config))
        for o, n, counter, rank in report.finals:
            if finals.setdefault((o, n), (counter, rank)) != (counter, rank):
                raise PeerFault("two reports differ in a final stamp")
    wanted = longest_held(reports)
    current = {me: {(o, n): (counter, rank) for o, n, counter, rank in r.waiting} for me, r in reports.items()}
    keys: list[tuple[Stamp, bool, Slot]] = []
    for origin in range(len(view)):
        delivered = min(report.delivered[origin] for report in reports.values())
        if wanted[origin] - delivered > reach_max(config):
            raise PeerFault("a report is further ahead than windows allow")
        floor: Stamp = finals.get((origin, delivered), (0, 0))
        for number in range(delivered + 1, wanted[origin] + 1):
            slot = (origin, number)
            stamp = finals.get(slot)
            provisional = stamp is None
            if stamp is None:
                stamp = max(current[me].get(slot, (report.counter + 1, me)) for me, report in reports.items())
                stamp = max(stamp, floor)
            floor = stamp
            keys.append((stamp, provisional, slot))
    order = tuple(slot for _, _, slot in sorted(keys))
    for report in reports.values():
        _demand_prefix(report, order)
    return StampCut(wanted, order)


def _demand_sound(report: StampReport, reach: int) -> None:
    """Raise `PeerFault` if no correct member can have sent this report, whatever the others say."""
    ahead = [held - delivered for held, delivered in zip(report.held, report.delivered, strict=True)]
    if min(ahead) < 0 or max(ahead) > reach:
        raise PeerFault("a report delivers what it does not hold, or is further ahead than windows allow")
    stamps: dict[Slot, Stamp] = {}
    for origin, number, counter, rank in report.finals:
        if number > report.held[origin] or counter > report.counter:
            raise PeerFault("a report has a final stamp that cannot be")
        if stamps.setdefault((origin, number), (counter, rank)) <= stamps.get((origin, number - 1), (0, 0)):
            raise PeerFault("a report has final stamps that do not rise")
    for origin, number, counter, _ in report.waiting:
        is_here = report.delivered[origin] < number <= report.held[origin]
        if not is_here or (origin, number) in stamps or counter > report.counter + AHEAD_MAX:
            raise PeerFault("a report has a stamp for what does not wait")
        stamps[origin, number] = (counter, 0)
    for origin, delivered in enumerate(report.delivered):
        if any((origin, number) not in stamps for number in range(max(delivered, 1), report.held[origin] + 1)):
            raise PeerFault("a report has no stamp for what it holds")


def _demand_prefix(report: StampReport, order: tuple[Slot, ...]) -> None:
    """Raise `PeerFault` unless what a member has delivered comes first in the merged order, and each origin's in its turn."""
    nexts: dict[Rank, int] = {}
    is_past = False
    for origin, number in order:
        if nexts.setdefault(origin, number) != number:
            raise PeerFault("the merged order is not FIFO")
        nexts[origin] = number + 1
        is_delivered = number <= report.delivered[origin]
        if is_delivered and is_past:
            raise PeerFault("a report has delivered what others put behind what it has not")
        is_past = is_past or not is_delivered


class Stamped(Ordering[StampReport, StampCut]):
    """The part of ABCAST and TOMP that is the same: stamping what comes, delivering from the head, and the view change."""

    guarantees = frozenset({Property.TOTAL, Property.FIFO})
    service = Service.TOTAL
    services = frozenset({Service.TOTAL})
    report_wire = Layout(0x23, StampReport, (VECTOR, U64, VECTOR, _STAMPED, _STAMPED))
    cut_wire = Layout(0x33, StampCut, (VECTOR, SLOTS))

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        self._rank = rank
        self._size = len(view)
        self._counter = 0  # the last stamp given, and no less than any final known
        self._held = [0] * len(view)  # by origin: batches received
        self._delivered = [0] * len(view)  # by origin: batches delivered
        self._queue = StampQueue()
        self._finals: dict[Slot, Stamp] = {}  # the finals known in this view …
        self._forgotten = [0] * len(view)  # … but not of those of each origin's first batches
        self._stamped_by = [(0, 0)] * len(view)  # by member: the last own batch that it stamped, and its counter for it

    def mark(self) -> tuple[int, ...] | None:
        return tuple(self._delivered) if sum(self._delivered) - sum(self._forgotten) >= FORGET_MIN else None

    def forget(self, mark: tuple[int, ...]) -> None:
        """Forget finals up to the mark. A member that has delivered less has them too, and keeps them: its own mark is lower."""
        for origin, delivered in enumerate(mark):
            last = max(self._forgotten[origin], delivered - 1)  # the last one is a floor for what comes next
            for number in range(self._forgotten[origin] + 1, last + 1):
                del self._finals[origin, number]
            self._forgotten[origin] = last

    def waits(self) -> Sequence[Wait]:
        result = []
        stamps, origins = self._queue.undecided()
        for slot, entry in self._queue.entries.items():
            if entry.final:
                ahead = bisect_left(stamps, entry.stamp)
                result.append(Wait(entry.batch, f"{ahead} undecided before it in the queue", origins[ahead]))
            else:
                result.append(Wait(entry.batch, "its final stamp is not known here", (slot[0],)))
        return result

    def report(self) -> StampReport:
        waiting = ((*slot, *entry.stamp) for slot, entry in self._queue.entries.items() if not entry.final)
        finals = ((*slot, *stamp) for slot, stamp in self._finals.items())
        return StampReport(
            tuple(self._held), self._counter, tuple(self._delivered), tuple(sorted(finals)), tuple(sorted(waiting))
        )

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, StampReport]) -> StampCut:
        return merge_stamps(view, config, reports)

    def close(self, cut: StampCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        self._demand_cut(cut, missing)
        for slot in cut.order:
            origin, number = slot
            if number <= self._delivered[origin]:
                continue
            self._delivered[origin] = number
            entry = self._queue.entries.get(slot)
            batch: Batch = entry.batch if entry is not None else missing[slot].batch  # type: ignore[attr-defined]
            if out.noting and slot not in self._finals:
                out.ordered(batch)
            out.deliver.append(batch)

    # What no correct member sends.

    def _demand_number(self, sender: Rank, number: int) -> None:
        if number != self._held[sender] + 1:
            raise PeerFault("a batch is out of turn")

    def _demand_proposals(self, sender: Rank, rows: Iterable[tuple[int, int]]) -> None:
        """A member stamps own batches in their order, each once, with a counter that rises."""
        last, floor = self._stamped_by[sender]
        for number, counter in rows:
            if number != last + 1 or number > self._held[self._rank]:
                raise PeerFault("a stamp is for a batch that this member never cast, or that has one of its sender")
            if not floor < counter <= self._counter + AHEAD_MAX:
                raise PeerFault("a stamp does not rise, or rises too far")
            last, floor = number, counter
        if (last, floor) == self._stamped_by[sender]:
            raise PeerFault("a list of stamps is empty")

    def _demand_finals(self, sender: Rank, rows: Iterable[tuple[int, Stamp]]) -> None:
        """An origin decides its batches in their order, each once, above the last one and no lower than they wait here."""
        last: int | None = None
        floor: Stamp = (0, 0)
        for number, stamp in rows:
            if last is None:
                last, floor = number - 1, self._finals.get((sender, number - 1), (0, 0))
                if last and not floor[0]:
                    raise PeerFault("a final stamp is out of turn")
            entry = self._queue.entries.get((sender, number))
            if number != last + 1 or entry is None or entry.final:
                raise PeerFault("a final stamp is out of turn, or for a batch that is not here")
            if not floor < stamp or stamp[0] > self._counter + AHEAD_MAX:
                raise PeerFault("a final stamp does not rise, or rises too far")
            if stamp < entry.stamp:
                raise self._too_low("a final stamp is below the batch's own stamp here")
            last, floor = number, stamp
        if last is None:
            raise PeerFault("a list of final stamps is empty")

    _too_low: type[PeerFault] = PeerFault
    """Who is to blame for a final stamp below the one here: its origin, which has this member's proposal."""

    def _demand_cut(self, cut: StampCut, missing: Mapping[Slot, Packet]) -> None:
        rest = (slot for slot in cut.order if slot[1] > self._delivered[slot[0]])
        demand_rest(rest, self._delivered, self._held, missing, cut.wanted)

    def _take(self, origin: Rank, batch: Batch) -> int:
        """Stamp a new batch, queue it as undeliverable, and return its number."""
        self._counter += 1
        self._held[origin] += 1
        number = self._held[origin]
        self._queue.add((origin, number), batch, (self._counter, self._rank))
        return number

    def _finish(self, slot: Slot, stamp: Stamp, out: Outbox) -> None:
        """Learn a final stamp. The counter follows it: what is stamped from now on must end above what may be delivered."""
        self._counter = max(self._counter, stamp[0])
        self._finals[slot] = stamp
        entry = self._queue.finish(slot, stamp)
        if out.noting:
            out.ordered(entry.batch, None, stamp=list(stamp))

    def _deliver_ready(self, out: Outbox) -> None:
        for (origin, number), entry in self._queue.pop_ready():
            assert number == self._delivered[origin] + 1, "finals of one origin rise"
            self._delivered[origin] = number
            out.deliver.append(entry.batch)
