"""Which packets of others a member takes in, under every order: only those that a correct member can send."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unisono.core.errors import Contradiction, PeerFault
from unisono.core.outbox import RefusedPacket
from unisono.core.types import Batch, Packet, Rank, Service, Slot

INDEX_MAX = 2**63 - 1
"""More messages than a member casts in its life."""


class Admission:
    """Checks the packets of one view before the ordering gets them."""

    def __init__(self, rank: Rank = -1, numbered: Iterable[type] = (), reach: Sequence[int] = ()) -> None:
        self._rank = rank
        self._numbered = frozenset(numbered)
        # By origin and service: beyond the last index that came.
        self._ends: list[dict[Service, int]] = [dict.fromkeys(Service, index) for index in reach]
        self.faulty: set[Rank] = set()
        """Of whom nothing more is taken in: what came in its name cannot be."""

    def admit(self, sender: Rank, batch: Batch) -> None:
        """Raise `PeerFault` if no correct member casts this batch next."""
        if batch.payloads is None and (batch.to is None or self._rank in batch.to):
            raise PeerFault("a batch is kept from a member that it is for")
        ends = self._ends[sender]
        if not ends[batch.service] <= batch.first <= INDEX_MAX - batch.count:
            raise PeerFault("messages have indexes that were used, or that cannot be")
        ends[batch.service] = batch.first + batch.count

    def demand_slot(self, slot: Slot, packet: Packet) -> None:
        """The same for a packet that comes with a cut. Its payload may be lost to all, and what came before it may be unknown."""
        batch: Batch | None = getattr(packet, "batch", None)
        if type(packet) not in self._numbered or packet.number != slot[1]:  # type: ignore[attr-defined]
            raise PeerFault("a cut comes with a packet that is not of its slot")
        if batch is not None and batch.first > INDEX_MAX - batch.count:
            raise PeerFault("a cut comes with a batch that no member casts")

    def refuse(self, sender: Rank, fault: PeerFault) -> RefusedPacket:
        """A packet cannot be: take in nothing more in its sender's name."""
        self.faulty.add(sender)
        return RefusedPacket(sender, str(fault), not isinstance(fault, Contradiction))
