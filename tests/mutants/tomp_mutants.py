"""TOMP with the vectors of the final stamp folded in another way, and TOMP without its assumption.

The pair (min_next_mid[k], max_next_ts[k]) means: *one* member still expected batch min_next_mid[k] of k when it stamped ours
with max_next_ts[k] - 1. So that member will stamp that batch max_next_ts[k] or more.

**The maximum over all acknowledgements** takes the number from one member and the stamp from another.
  1. B casts y (1.b), then receives x of A, which it stamps 2.b and acknowledges. A makes 2.b final and delivers x.
  2. A receives y and stamps it 3.a, the final stamp. B stamped y 1.b when it expected x; A stamped it 3.a when it had x.
  3. The folded pair says that x, expected by B, will be stamped 4.a or more. But B stamped it 2.b. B raises x, and delivers y.
  4. A delivered x before y.

**The minimum** is a bound too, only a weaker one: nothing breaks, but it gives other vectors than Figures 3 and 4, and a message
waits longer for others that must end behind it. It is still never delivered later than under ABCAST.

**No FIFO per source.** The paper sets next_mid[k] to the number of the last batch received of k, plus one.
  1. Batches 1 and 2 of B reach A as 2, 1. A stamps them 1.a and 2.a, and now seems to expect batch 2.
  2. A casts m, stamps it 3.a, and acknowledges that to itself: "batch 2 of B will be stamped 4.a or more". It was stamped 1.a.
  3. A raises batch 2 above the final stamp 3.b of m, and delivers m first.
  4. The final stamp of batch 2 is 2.b. B delivered it before m.
"""

from __future__ import annotations

from typing import ClassVar

from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Rank
from unisono.orders import abcast, tomp
from unisono.orders.abcast import Abcast
from unisono.orders.stamps import Stamp, Stamped
from unisono.orders.tomp import AckRow, Folding, Tomp


class _FoldsMaximum(Folding):
    __slots__ = ()

    def add(self, stamp: Stamp, next_mid: tuple[int, ...]) -> None:
        before = list(self.max_next_ts)
        super().add(stamp, next_mid)
        following = (stamp[0] + 1, stamp[1])
        self.max_next_ts = [max(known, following) for known in before]


class _FoldsMinimum(Folding):
    __slots__ = ()

    def add(self, stamp: Stamp, next_mid: tuple[int, ...]) -> None:
        before = list(self.max_next_ts)
        super().add(stamp, next_mid)
        following = (stamp[0] + 1, stamp[1])
        self.max_next_ts = [following if self.count == 1 else min(known, following) for known in before]


class _TompFolding(Tomp):
    """TOMP with the folding exchanged."""

    folding: ClassVar[type[Folding]]

    def submit(self, batch: Batch, out: Outbox) -> None:
        number = self._take(self._rank, batch)
        out.to_all.append(tomp.Data(number, batch))
        self._foldings[number] = self.folding(self._size)
        self._fold(self._rank, AckRow(number, self._counter, self._next_mid()), out)


class TompMaximum(_TompFolding):
    folding = _FoldsMaximum


class TompMinimum(_TompFolding):
    folding = _FoldsMinimum


class _AnyOrder(Stamped):
    """Takes an origin's batches as they come, and delivers them by their stamps."""

    def _take_as(self, origin: Rank, number: int, batch: Batch) -> None:
        self._counter += 1
        self._held[origin] = number  # next_mid <- mi_id + 1, as printed
        self._queue.add((origin, number), batch, (self._counter, self._rank))

    def _deliver_ready(self, out: Outbox) -> None:
        out.deliver += [entry.batch for _, entry in self._queue.pop_ready()]


class TompAnyOrder(_AnyOrder, Tomp):
    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, tomp.Data):
            self._take_as(sender, packet.number, packet.batch)
            self._acks[sender] = [AckRow(packet.number, self._counter, self._next_mid())]
        else:
            super().receive(sender, packet, out)


class AbcastAnyOrder(_AnyOrder, Abcast):
    """ABCAST on the same channel: no longer FIFO, but still one order for all."""

    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, abcast.Data):
            self._take_as(sender, packet.number, packet.batch)
            self._proposals[sender] = [self._counter]
        else:
            super().receive(sender, packet, out)
