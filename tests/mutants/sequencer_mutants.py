"""A sequencer whose channel keeps no order, and sequencers whose view change forgets something.

**No FIFO channel.** The sequencer numbers what it meets, under each message's own name, so all members deliver one order. But:
  1. A casts x1, then x2; x2 reaches the sequencer first and is number 1. Everyone delivers x2 before x1: total, and not FIFO.
  2. B delivers x2 and casts y before x1 reaches the sequencer: x2, y, x1. As x1 came before x2, it
     came before y too: not causal.

**A merge without `seen`.**
  1. A casts x; only the sequencer S gets it, numbers it, delivers it, and casts y, which follows x.
  2. S and A crash. The survivors hold y, perhaps the order "x", but not x.
  3. They deliver y, whose cause nobody will ever deliver.

**A merge that forgets what has no number.**
  1. A casts x. The sequencer crashes before x reaches it, or before its number reaches anyone.
  2. The survivors deliver what has a number. A never delivers its own x.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from unisono.core.config import Config
from unisono.core.ordering import Ordering, Wait
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, Packet, Property, Rank, Service, Slot, View
from unisono.orders.holdback import longest_held
from unisono.orders.sequencer import SEQUENCER, CausalTotal, Data, SequencerCut, SequencerReport


class NamedOrder(NamedTuple):
    """Positions first, first+1, ... are these messages, by name."""

    first: int
    slots: tuple[Slot, ...]


class BareTotal(Ordering[SequencerReport, SequencerCut]):
    """The lecture's sequencer on a channel that promises no order: numbers go with names, and only the total order is kept.

    It claims all three promises, so that a run shows which of them it breaks. It has no view change.
    """

    guarantees = frozenset({Property.TOTAL, Property.FIFO, Property.CAUSAL})
    service = Service.TOTAL
    services = frozenset({Service.TOTAL})
    numbered = (Data,)

    def __init__(self, view: View, rank: Rank, config: Config) -> None:
        self._rank = rank
        self._cast = 0
        self._here: dict[Slot, Batch] = {}
        self._order: dict[int, Slot] = {}
        self._next = 0
        self._announced = 0

    def submit(self, batch: Batch, out: Outbox) -> None:
        self._cast += 1
        out.to_all.append(Data(self._cast, 0, batch))
        self._meet((self._rank, self._cast), batch, out)

    def receive(self, sender: Rank, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, Data):
            self._meet((sender, packet.number), packet.batch, out)
        else:
            assert isinstance(packet, NamedOrder)
            self._order.update(enumerate(packet.slots, packet.first))
            self._deliver(out)

    def end_turn(self, out: Outbox) -> None:
        if self._rank == SEQUENCER and self._announced < len(self._order):
            slots = tuple(self._order[position] for position in range(self._announced, len(self._order)))
            out.to_all.append(NamedOrder(self._announced, slots))
            self._announced = len(self._order)

    def _meet(self, slot: Slot, batch: Batch, out: Outbox) -> None:
        self._here[slot] = batch
        if self._rank == SEQUENCER:
            self._order[len(self._order)] = slot
        self._deliver(out)

    def _deliver(self, out: Outbox) -> None:
        while (slot := self._order.get(self._next)) in self._here and slot is not None:
            out.deliver.append(self._here.pop(slot))
            self._next += 1

    def waits(self) -> tuple[Wait, ...]:
        return ()

    def report(self) -> SequencerReport:
        raise NotImplementedError

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, SequencerReport]) -> SequencerCut:
        raise NotImplementedError

    def close(self, cut: SequencerCut, missing: Mapping[Slot, Packet], out: Outbox) -> None:
        raise NotImplementedError


def numbered_part(view: View, reports: Mapping[Rank, SequencerReport]) -> tuple[list[int], list[Slot]]:
    """The longest known order as far as its batches are held: how many of each origin, and the slots."""
    held = longest_held(reports)
    wanted, order = [0] * len(view), []
    for origin in max((report.order for report in reports.values()), key=len):
        if wanted[origin] == held[origin]:
            break
        wanted[origin] += 1
        order.append((origin, wanted[origin]))
    return wanted, order


class WithoutSeen(CausalTotal):
    """Leftovers are taken whatever their casters had seen."""

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, SequencerReport]) -> SequencerCut:
        wanted, order = numbered_part(view, reports)
        held = longest_held(reports)
        order += [(origin, n) for origin in range(len(view)) for n in range(wanted[origin] + 1, held[origin] + 1)]
        return SequencerCut(held, tuple(order))


class ForgetsLeftovers(CausalTotal):
    """What has no number is forgotten."""

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, SequencerReport]) -> SequencerCut:
        wanted, order = numbered_part(view, reports)
        return SequencerCut(tuple(wanted), tuple(order))
