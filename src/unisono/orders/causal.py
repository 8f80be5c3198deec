"""Causal order by vector timestamps. Papers 001 (section 2.2) and 003 ("Causal ordering using vector timestamps").

Idea: a batch carries how many messages of each origin its caster had delivered. A receiver holds it back until it has delivered
as many, so everything that could have caused the batch is delivered first. Own batches are delivered in the call that casts them.

| packet | stream | meaning                                                                                   |
|--------|--------|-------------------------------------------------------------------------------------------|
| Data   | cast   | batch `number`; `vector[k]` messages of k were delivered at its caster before it (own: cast) |

I1  vector[origin] = messages that this origin cast before the batch; only casts are counted, nothing ticks on receipt.
I2  a batch is delivered when vector[k] <= delivered[k] for every k (for its origin that is equality, by FIFO).
I3  delivered sets are causally closed at every instant.

Recipients. Those who are not addressed get a placeholder that carries the vector. It is held back and takes its turn like any
batch, so every member's counts stay whole, and causality holds transitively *through* messages that a member never sees.

View change. The union of what survivors delivered is causally closed (I3); `merge` adds every held-back batch whose past is in
the union and drops the rest, which follow a batch that no survivor holds: nobody could ever deliver them. `close` feeds what is
missing through the ordinary rule, so the order is causal; all of it becomes deliverable because the set is closed.

Deviations: 001 adds 1 to every entry on receipt, which makes members wait for messages that were never cast; vectors
count casts alone. 001 leaves members outside a list of recipients without the message; they hold a placeholder instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unisono.core.config import Config
from unisono.core.errors import PeerFault
from unisono.core.ordering import Ordering, Wait
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Property, Rank, Service, Slot, View
from unisono.core.wire import BATCH, SLOT, VECTOR, Layout
from unisono.orders.holdback import (
    VECTOR_REPORT_WIRE,
    Held,
    VectorHoldback,
    VectorReport,
    causally_closed,
    demand_closed,
    vector_report,
)


class Data(NamedTuple):
    number: int
    vector: tuple[int, ...]
    batch: Batch


class CausalCut(NamedTuple):
    wanted: tuple[int, ...]


class Causal(Ordering[VectorReport, CausalCut]):
    guarantees = frozenset({Property.FIFO, Property.CAUSAL})
    service = Service.CAUSAL
    services = frozenset({Service.CAUSAL})
    numbered = (Data,)
    wire = (Layout(0x11, Data, (SLOT, VECTOR, BATCH)),)
    report_wire = VECTOR_REPORT_WIRE
    cut_wire = Layout(0x31, CausalCut, (VECTOR,))

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        self._rank = rank
        self._held = [0] * len(view)  # by origin: batches received
        self._holdback = VectorHoldback(len(view))  # in messages

    def submit(self, batch: Batch, out: Outbox) -> None:
        number = self._held[self._rank] + 1
        self._held[self._rank] = number
        out.to_all.append(Data(number, tuple(self._holdback.taken), batch))
        self._holdback.advance(self._rank, batch.count)
        out.deliver.append(batch)

    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Data)
        if packet.number != self._held[sender] + 1:
            raise PeerFault("a batch is out of turn")
        self._holdback.demand(sender, packet.vector, self._rank)
        self._take(sender, packet, out)

    def _take(self, sender: Rank, packet: Data, out: Outbox) -> None:
        self._held[sender] = packet.number
        held = Held(packet.number, packet.vector, packet.batch.count, packet)
        for _, ready in self._holdback.add(sender, held):
            assert isinstance(ready.packet, Data)
            out.deliver.append(ready.packet.batch)

    def waits(self) -> Sequence[Wait]:
        return [
            Wait(held.packet.batch, "its causal past is not all here", self._holdback.blockers(held))
            for _, held in self._holdback.waiting()
            if isinstance(held.packet, Data)
        ]

    def report(self) -> VectorReport:
        return vector_report(self._held, self._holdback)

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, VectorReport]) -> CausalCut:
        return CausalCut(causally_closed(reports))

    def close(self, cut: CausalCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        packets = {slot: packet for slot, packet in sorted(missing.items()) if isinstance(packet, Data)}
        rows = ((*slot, packet.batch.count, packet.vector) for slot, packet in packets.items())
        demand_closed(self._held, self._holdback, rows, cut.wanted)
        for (origin, _), packet in packets.items():
            self._take(origin, packet, out)
        for origin, held in self._holdback.waiting():
            assert held.number > cut.wanted[origin], "the cut is causally closed"
