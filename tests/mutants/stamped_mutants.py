"""ABCAST and TOMP with one thing left out, or done in the obvious way.

**The counter stays when a final stamp arrives**, as paper 000 prints it.
  1. A casts x (stamp 1.a) and B casts y (1.b), at once. x reaches B, which stamps it 2.b.
  2. That proposal overtakes y on its way to A, since the two streams are apart: A makes 2.b final and delivers x.
  3. y reaches A, whose counter still stands at 1: it is stamped 2.a, and that becomes its final stamp, below 2.b.
  4. B delivers y before x; A has delivered x before y.

**Stamps compared by their counters alone.**
  1. A and B cast x and y at once. A stamps x 1.a and y 2.a; B stamps y 1.b and x 2.b.
  2. The final stamps are 2.b for x and 2.a for y: different as pairs, equal as counters.
  3. Each member lets what came first go first: A delivers x, y; B delivers y, x.

**A raised stamp sorts before an equal final one** (TOMP). This costs time and nothing else: the raised message must end above the
final one, which waits for it in vain. It is delivered later than under the right rule, yet never later than under ABCAST.

The view change. The merge must not put anything before what a survivor has delivered, nor turn an origin's messages round.

**The stamps of the holders alone.**
  1. x of A reaches C, which stamps it 1.c, and never reaches B. A crashes.
  2. Meanwhile B delivers its own y, whose final stamp is 2.c.
  3. The holders' maximum leaves x at 1.c, before y: C delivers x, y, but B delivered y first. (B's counter + 1 would be 3.b.)

**Original proposals instead of raised stamps** (TOMP).
  1. C holds x, which everyone alive stamped 1, and its own m with the final stamp 2.c. D had stamped m when it still expected
     x, so the vectors of m raise x to 2.d at C, and C delivers m.
  2. D crashes: the stamp that it would have given x is never given.
  3. The survivors' original proposals put x before m again.

**No floor.**
  1. B casts x, then y. A and B stamp both low. C stamps x 2.c, which becomes its final stamp, and crashes.
  2. The survivors' stamps of y, which has no final one, are 2.a and 2.b, below 2.c.
  3. y goes before x, both of B.
For TOMP this takes more, because the vectors that come with the final stamp of x raise y:
  1. A casts x, y. C stamps x 3.c, expecting y next, and crashes. The final stamp of x is 3.c, and A raises y to 4.c.
  2. A casts z, and stamps it 4.a. B, with a counter of 3, has neither y nor z, and contributes 4.b to both.
  3. y ends at 4.c and z at 4.b: z goes before y.

**Finals first, then the rest, each sorted by stamps.** For TOMP this is the story just told, and the floor would mend it. For
ABCAST, and with the floor for TOMP, it breaks nothing: what survivors know of an origin's finals belongs to a prefix of its
messages, because finals travel in order, and nobody delivers a message without a final stamp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from unisono.core.config import Config
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Rank, Slot, View
from unisono.orders.abcast import Abcast
from unisono.orders.holdback import longest_held
from unisono.orders.stamps import Entry, Stamp, StampCut, Stamped, StampQueue, StampReport
from unisono.orders.tomp import Tomp

# Normal running.


class _CounterStays(Stamped):
    """The counter does not follow the final stamps."""

    def _finish(self, slot: Slot, stamp: Stamp, out: Outbox) -> None:
        counter = self._counter
        super()._finish(slot, stamp, out)
        self._counter = counter


class AbcastCounterStays(_CounterStays, Abcast):
    pass


class TompCounterStays(_CounterStays, Tomp):
    pass


class _ScannedQueue(StampQueue):
    """A reception queue in the order of one function, what came first going first on ties."""

    __slots__ = ()

    def key(self, entry: Entry) -> tuple[object, ...]:
        raise NotImplementedError

    def pop_ready(self) -> Iterator[tuple[Slot, Entry]]:
        while self.entries:
            slot, entry = min(self.entries.items(), key=lambda item: self.key(item[1]))
            if not entry.final:
                return
            del self.entries[slot]
            yield slot, entry


class _QueueByCounter(_ScannedQueue):
    __slots__ = ()

    def key(self, entry: Entry) -> tuple[object, ...]:
        return (entry.stamp[0],)


class _QueueRaisedFirst(_ScannedQueue):
    __slots__ = ()

    def key(self, entry: Entry) -> tuple[object, ...]:
        return (entry.stamp, entry.final)


class AbcastByCounter(Abcast):
    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self._queue = _QueueByCounter()


class TompByCounter(Tomp):
    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self._queue = _QueueByCounter()


class TompRaisedFirst(Tomp):
    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self._queue = _QueueRaisedFirst()


# The view change.

Guess = Callable[[Mapping[Rank, StampReport], Slot, Stamp], Stamp]
"""The stamp of a message without a final one, from all reports, its slot, and the stamp of its origin's previous message."""


def merge_by(view: View, reports: Mapping[Rank, StampReport], guess: Guess, finals_first: bool = False) -> StampCut:
    """The shape of `merge_stamps`, with one part exchanged."""
    wanted = longest_held(reports)
    finals = {(o, n): (counter, rank) for r in reports.values() for o, n, counter, rank in r.finals}
    keys: list[tuple[bool, Stamp, bool, Slot]] = []
    for origin in range(len(view)):
        delivered = min(report.delivered[origin] for report in reports.values())
        floor: Stamp = finals.get((origin, delivered), (0, 0))
        for number in range(delivered + 1, wanted[origin] + 1):
            slot = (origin, number)
            stamp = finals.get(slot)
            floor = guess(reports, slot, floor) if stamp is None else stamp
            keys.append((finals_first and stamp is None, floor, stamp is None, slot))
    return StampCut(wanted, tuple(slot for _, _, _, slot in sorted(keys)))


def stamps_of(reports: Mapping[Rank, StampReport], slot: Slot) -> dict[Rank, Stamp]:
    """By survivor: the stamp that it reports for a message without a final one, where it has one."""
    rows = ((me, row) for me, report in reports.items() for row in report.waiting)
    return {me: (counter, rank) for me, (origin, number, counter, rank) in rows if (origin, number) == slot}


def greatest(reports: Mapping[Rank, StampReport], slot: Slot) -> Stamp:
    stamps = stamps_of(reports, slot)
    return max(stamps.get(me, (report.counter + 1, me)) for me, report in reports.items())


class _UncheckedClose(Stamped):
    """Delivers the merged order as it is. Ours asserts that it is FIFO; here the application finds out."""

    def close(self, cut: StampCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        before = tuple(self._delivered)
        for slot in cut.order:
            if slot[1] > before[slot[0]]:
                entry = self._queue.entries.get(slot)
                batch: Batch = entry.batch if entry is not None else missing[slot].batch  # type: ignore[attr-defined]
                out.deliver.append(batch)


class _HoldersAlone(_UncheckedClose):
    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, StampReport]) -> StampCut:
        return merge_by(view, reports, lambda r, slot, floor: max(*stamps_of(r, slot).values(), floor))


class _NoFloor(_UncheckedClose):
    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, StampReport]) -> StampCut:
        return merge_by(view, reports, lambda r, slot, floor: greatest(r, slot))


class _FinalsFirst(_UncheckedClose):
    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, StampReport]) -> StampCut:
        return merge_by(view, reports, lambda r, slot, floor: greatest(r, slot), finals_first=True)


class _FinalsFirstWithFloor(_UncheckedClose):
    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, StampReport]) -> StampCut:
        return merge_by(view, reports, lambda r, slot, floor: max(greatest(r, slot), floor), finals_first=True)


class AbcastHoldersAlone(_HoldersAlone, Abcast):
    pass


class TompHoldersAlone(_HoldersAlone, Tomp):
    pass


class AbcastNoFloor(_NoFloor, Abcast):
    pass


class TompNoFloor(_NoFloor, Tomp):
    pass


class AbcastFinalsFirst(_FinalsFirst, Abcast):
    pass


class TompFinalsFirst(_FinalsFirst, Tomp):
    pass


class AbcastFinalsFirstWithFloor(_FinalsFirstWithFloor, Abcast):
    pass


class TompFinalsFirstWithFloor(_FinalsFirstWithFloor, Tomp):
    pass


class _ForgetsRaises(Stamped):
    """Reports the stamps that it gave, not those that the waiting messages have by now."""

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self._given: dict[Slot, Stamp] = {}

    def _take(self, origin: Rank, batch: Batch) -> int:
        number = super()._take(origin, batch)
        self._given[origin, number] = (self._counter, self._rank)
        return number

    def report(self) -> StampReport:
        report = super().report()
        waiting = tuple((origin, number, *self._given[origin, number]) for origin, number, _, _ in report.waiting)
        return report._replace(waiting=waiting)


class TompOriginalProposals(_UncheckedClose, _ForgetsRaises, Tomp):
    pass


class TompOriginalsOfHolders(_HoldersAlone, TompOriginalProposals):
    """Both at once: the maximum of the original proposals of those who hold the message."""


# For the explorer, with the close that checks. Merges that look right: they ask only those who hold a message, and let it fall
# before its origin's previous one.


def of_holders(reports: Mapping[Rank, StampReport], slot: Slot, floor: Stamp) -> Stamp:
    return max(stamps_of(reports, slot).values())


class _HoldersLast(Stamped):
    """Finals keep their order; whatever has none comes after them, by its stamps."""

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, StampReport]) -> StampCut:
        return merge_by(view, reports, of_holders, finals_first=True)


class FinalsFirstAbcast(_HoldersLast, Abcast):
    pass


class FinalsFirstTomp(_HoldersLast, Tomp):
    pass


class _OriginalsOfHolders(_ForgetsRaises):
    """A message without a final stamp takes the greatest proposal that its holders made."""

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, StampReport]) -> StampCut:
        return merge_by(view, reports, of_holders)


class OriginalProposalsAbcast(_OriginalsOfHolders, Abcast):
    pass


class OriginalProposalsTomp(_OriginalsOfHolders, Tomp):
    pass


class ForgetsRaisesTomp(_ForgetsRaises, Tomp):
    """The right merge, of the wrong stamps."""
