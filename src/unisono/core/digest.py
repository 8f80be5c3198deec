"""The digest by which a batch is the same at all members, also where it is a placeholder."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b


def digest_of(payloads: Sequence[bytes]) -> int:
    """Hash payloads together with their lengths, so that moving a boundary changes the digest."""
    state = blake2b(digest_size=8)
    for payload in payloads:
        state.update(len(payload).to_bytes(8, "little"))
        state.update(payload)
    return int.from_bytes(state.digest(), "little")
