"""The numbered packets of a view, kept for members that may miss them at the end of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unisono.core.types import Batch, Packet, Rank, Slot


class Retained:
    """Packets by origin and slot, until `trim` says that every member has taken them in."""

    def __init__(self, size: int = 0, numbered: Iterable[type] = ()) -> None:
        self.numbered = frozenset(numbered)
        """The types of packets that occupy a slot."""
        self.packets: list[list[Packet]] = [[] for _ in range(size)]
        """By origin: each numbered packet that the engine has taken in or cast."""
        self._trimmed = [0] * size  # by origin: how many before those are not kept any more

    def add(self, origin: Rank, packets: Sequence[Packet]) -> None:
        """Keep those of the packets that occupy a slot."""
        kept, numbered = self.packets[origin], self.numbered
        for packet in packets:
            if type(packet) in numbered:
                kept.append(packet)

    def get(self, slot: Slot) -> Packet | None:
        """The packet of a slot, if it was taken in and is still kept."""
        origin, number = slot
        packets, at = self.packets[origin], number - 1 - self._trimmed[origin]
        return packets[at] if 0 <= at < len(packets) else None

    def slots(self, origin: Rank) -> int:
        """How many slots of an origin were taken in."""
        return self._trimmed[origin] + len(self.packets[origin])

    def trim(self, origin: Rank, slots: int) -> None:
        """Forget the first slots of an origin, up to this number of them: every member has taken them in."""
        surplus = slots - self._trimmed[origin]
        if surplus > 0:
            del self.packets[origin][:surplus]
            self._trimmed[origin] = slots


def packet_for(packet: Packet, rank: Rank) -> Packet:
    """What one member gets of a cast: the packet, or with a placeholder for its batch if that member is not addressed."""
    batch: Batch | None = getattr(packet, "batch", None)
    if batch is None or batch.to is None or rank in batch.to or batch.payloads is None:
        return packet
    return packet._replace(batch=batch.placeholder())  # type: ignore[attr-defined,no-any-return]
