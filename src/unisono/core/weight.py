"""What own messages weigh: about what the streams will keep of them, so that casts are refused before that is too much."""

from __future__ import annotations

from unisono.core.types import Batch

MESSAGE_HEAD_BYTES = 4
"""What a batch says of each message besides its payload."""
PACKET_HEAD_BYTES = 64
"""What is written around the messages of a batch, about; vectors of large groups are longer."""


def weigh(batch: Batch) -> int:
    """What the streams will keep of an own batch, about: its messages and what is around them, for each addressee."""
    size = PACKET_HEAD_BYTES + MESSAGE_HEAD_BYTES * batch.count + sum(map(len, batch.payloads or ()))
    return size * len(batch.to or (0,))
