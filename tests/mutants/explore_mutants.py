"""One order for each way in which an ordering can go wrong, for the explorer; for stamps see `stamped_mutants`."""

from __future__ import annotations

from collections.abc import Mapping

from unisono.core.config import Config
from unisono.core.outbox import Outbox
from unisono.core.types import Packet, Rank, View
from unisono.orders.all_ack import AllAck
from unisono.orders.fifo import Fifo, FifoCut, FifoReport
from unisono.orders.holdback import longest_held


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
