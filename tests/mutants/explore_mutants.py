"""Orders that are broken on purpose, for the explorer to catch. Each leaves out what a docstring of `orders` calls needed."""

from __future__ import annotations

from collections.abc import Mapping

from unisono.core.config import Config
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Rank, Slot, View
from unisono.orders.abcast import Abcast
from unisono.orders.all_ack import AllAck
from unisono.orders.fifo import Fifo, FifoCut, FifoReport
from unisono.orders.holdback import longest_held
from unisono.orders.stamps import Stamp, StampCut, Stamped, StampReport
from unisono.orders.tomp import Tomp

# Paper 000 as printed: the counter does not follow a final stamp.


class _CounterStays(Stamped):
    def _finish(self, slot: Slot, stamp: Stamp, out: Outbox) -> None:
        self._finals[slot] = stamp
        self._queue.finish(slot, stamp)


class PrintedAbcast(_CounterStays, Abcast):
    pass


class PrintedTomp(_CounterStays, Tomp):
    pass


# Merges that look right. They ask only those who hold a message, and let it fall before its origin's previous one.


def merge_holders(view: View, reports: Mapping[Rank, StampReport], finals_first: bool) -> StampCut:
    """Sort by final stamps, and where there is none by the greatest stamp that a holder reports."""
    wanted = longest_held(reports)
    finals = {(o, n): (counter, rank) for r in reports.values() for o, n, counter, rank in r.finals}
    reported: dict[Slot, Stamp] = {}
    for report in reports.values():
        for o, n, counter, rank in report.waiting:
            reported[o, n] = max(reported.get((o, n), (0, 0)), (counter, rank))
    keys: list[tuple[bool, Stamp, bool, Slot]] = []
    for origin in range(len(view)):
        for number in range(min(r.delivered[origin] for r in reports.values()) + 1, wanted[origin] + 1):
            slot = (origin, number)
            final = slot in finals
            keys.append((finals_first and not final, finals[slot] if final else reported[slot], not final, slot))
    return StampCut(wanted, tuple(slot for *_, slot in sorted(keys)))


class _FinalsFirst(Stamped):
    """Finals keep their order; whatever has none comes after them, by its stamps."""

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, StampReport]) -> StampCut:
        return merge_holders(view, reports, finals_first=True)


class FinalsFirstAbcast(_FinalsFirst, Abcast):
    pass


class FinalsFirstTomp(_FinalsFirst, Tomp):
    pass


class _ForgetsRaises(Stamped):
    """Reports the stamps that it proposed, whatever they were raised to since."""

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        super().__init__(view, rank, config)
        self._proposed: dict[Slot, Stamp] = {}

    def _take(self, origin: Rank, batch: Batch) -> int:
        number = super()._take(origin, batch)
        self._proposed[origin, number] = (self._counter, self._rank)
        return number

    def report(self) -> StampReport:
        report = super().report()
        waiting = tuple((origin, number, *self._proposed[origin, number]) for origin, number, _, _ in report.waiting)
        return report._replace(waiting=waiting)


class _OriginalProposals(_ForgetsRaises):
    """A message without a final stamp takes the greatest proposal that its holders made."""

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, StampReport]) -> StampCut:
        return merge_holders(view, reports, finals_first=False)


class OriginalProposalsAbcast(_OriginalProposals, Abcast):
    pass


class OriginalProposalsTomp(_OriginalProposals, Tomp):
    pass


class ForgetsRaisesTomp(_ForgetsRaises, Tomp):
    """The right merge, of the wrong stamps."""


# One for each other way in which an ordering can go wrong.


class NeverAcknowledges(AllAck):
    """An idle member stays silent: everyone else waits for it for ever."""

    def quiet(self, out: Outbox) -> None:
        pass


class FirstReportWins(Fifo):
    """The merge takes whichever report came first for the whole truth."""

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, FifoReport]) -> FifoCut:
        return FifoCut(next(iter(reports.values())).held)


class WantsTooMuch(Fifo):
    """The cut names a packet of rank 0 that was never cast."""

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, FifoReport]) -> FifoCut:
        first, *others = longest_held(reports)
        return FifoCut((first + 1, *others))


class Stumbles(Fifo):
    """Fails on the second batch that it receives."""

    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        super().receive(sender, packet, out)
        if sum(self._held) == 2:
            raise ZeroDivisionError("nobody expected this")
