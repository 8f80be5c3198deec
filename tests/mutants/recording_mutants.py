"""An order that keeps every promise, and runs otherwise when it is recorded.

**Notes tick the clock.** 1. A member learns a final stamp and, where a trace is recorded, notes it as an event of its own: its
counter ticks. 2. What it stamps next is higher than it would be. 3. Concurrent messages are delivered in another total order than
where nothing is recorded. All members agree on either order, so no checker finds anything.
"""

from __future__ import annotations

from unisono.core.outbox import Outbox
from unisono.core.types import Slot
from unisono.orders.abcast import Abcast
from unisono.orders.stamps import Stamp


class NotesTickTheClock(Abcast):
    def _finish(self, slot: Slot, stamp: Stamp, out: Outbox) -> None:
        super()._finish(slot, stamp, out)
        if out.noting:
            self._counter += 1
