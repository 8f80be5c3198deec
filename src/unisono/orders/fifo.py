"""FIFO order: each origin's messages in the order in which it cast them. Lectures (003), "Implementing FIFO order".

Idea: the streams below already hand over each origin's casts once and in order, so the lecture's per-sender number is the slot
number, and everything is deliverable at once. An own batch is delivered in the call that casts it.

| packet | stream | meaning                                  |
|--------|--------|------------------------------------------|
| Data   | cast   | batch `number` of this origin in the view |

I1  batches of one origin arrive numbered 1, 2, 3, ...
I2  what is received is delivered: there is no holdback.

View change. A survivor holds a prefix of each origin's batches (I1). `merge` takes the longest prefix that any survivor holds;
`close` delivers what is missing of it. Then all survivors have delivered the same set, each origin's part in order.

Deviations: the hold-back queue of the lecture lives in the streams, where gaps are filled anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import lt
from typing import NamedTuple

from unisono.core.config import Config
from unisono.core.errors import PeerFault
from unisono.core.ordering import Ordering, Wait
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Property, Rank, Service, Slot, View
from unisono.core.wire import BATCH, SLOT, VECTOR, Layout
from unisono.orders.holdback import longest_held


class Data(NamedTuple):
    number: int
    batch: Batch


class FifoReport(NamedTuple):
    held: tuple[int, ...]


class FifoCut(NamedTuple):
    wanted: tuple[int, ...]


class Fifo(Ordering[FifoReport, FifoCut]):
    guarantees = frozenset({Property.FIFO})
    service = Service.FIFO
    services = frozenset({Service.FIFO})
    numbered = (Data,)
    wire = (Layout(0x10, Data, (SLOT, BATCH)),)
    report_wire = Layout(0x20, FifoReport, (VECTOR,))
    cut_wire = Layout(0x30, FifoCut, (VECTOR,))

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        self._rank = rank
        self._held = [0] * len(view)  # by origin: batches received, which is also: delivered (I2)

    def submit(self, batch: Batch, out: Outbox) -> None:
        self._held[self._rank] += 1
        out.to_all.append(Data(self._held[self._rank], batch))
        out.deliver.append(batch)

    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Data)
        if packet.number != self._held[sender] + 1:
            raise PeerFault("a batch is out of turn")
        self._held[sender] = packet.number
        out.deliver.append(packet.batch)

    def waits(self) -> Sequence[Wait]:
        return ()

    def report(self) -> FifoReport:
        return FifoReport(tuple(self._held))

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, FifoReport]) -> FifoCut:
        return FifoCut(longest_held(reports))

    def close(self, cut: FifoCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        if any(map(lt, cut.wanted, self._held)):
            raise PeerFault("the cut ends before what was delivered here")
        for origin, last in enumerate(cut.wanted):
            for number in range(self._held[origin] + 1, last + 1):
                self.receive(origin, missing[origin, number], out)
