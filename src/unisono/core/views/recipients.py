"""What each member gets of a cast that is not for everyone."""

from __future__ import annotations

from unisono.core.types import Batch, Packet, Rank


def packet_for(packet: Packet, rank: Rank) -> Packet:
    """What one member gets of a cast: the packet, or with a placeholder for its batch if that member is not addressed."""
    batch: Batch | None = getattr(packet, "batch", None)
    if batch is None or batch.to is None or rank in batch.to or batch.payloads is None:
        return packet
    return packet._replace(batch=batch.placeholder())  # type: ignore[attr-defined,no-any-return]
