"""Members and streams with one rule broken each, for the swarm of whole groups and for the explorer of views.

**Count a departed member as stable.** 1. A's cast reaches B and not C, which has fallen silent. 2. A and B forget it, because all
who still speak have it. 3. C comes back, or B's report needs it in a view change: nobody holds it any more, or a safe message
was shown that C never had.

**Go on after the report.** 1. B reports, and takes a packet of the old view in. 2. The cut does not know of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from unisono.core.ordering import Cut, Report
from unisono.core.streams.progress import Progress
from unisono.core.types import Packet, Rank, Slot
from unisono.core.views.engine import Phase, ViewEngine


class CountsDepartedAsStable(Progress):
    def _forget(self, table: list[list[int]], floors: list[int], origin: Rank) -> None:
        row = sorted(table[origin])
        floors[origin] = max(floors[origin], row[1] if len(row) > 2 else row[0])

    def advance(self, origin: Rank, bodies: int, packets: int) -> bool:
        risen = super().advance(origin, bodies, packets)
        self._forget(self.shown, self.received_by_all, origin)
        return risen

    def take_all(self, untrusted: Collection[Rank] = ()) -> None:
        super().take_all(untrusted)
        for origin in range(len(self.taken)):
            self._forget(self.taken, self.taken_by_all, origin)

    def hear(self, origin: Rank, peer: Rank, bodies: int, shown: int, taken: int) -> bool:
        risen = super().hear(origin, peer, bodies, shown, taken)
        self._forget(self.shown, self.received_by_all, origin)
        self._forget(self.taken, self.taken_by_all, origin)
        return risen


class LeakyEngine(ViewEngine):
    def block(self) -> Report:
        report = super().block()
        self.phase = Phase.RUNNING
        return report

    def close(self, cut: Cut, missing: Mapping[Slot, Packet]) -> None:
        super().close(cut, missing)
        self.phase = Phase.RUNNING


class LeakyEngineOfSwarm(LeakyEngine):
    """The same, for the swarm of groups."""
