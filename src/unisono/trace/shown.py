"""What an application was shown in one view, as three numbers: how many messages, which ones, and in which order.

Two members that were shown the same have the same totals. Only messages that go to everyone count: those with destinations,
datagrams and placeholders are left out. Batches are the same at all members, so a batch is hashed as a whole.

- `shown` is the number of messages.
- `digest` is the sum of the hashes of the batches, modulo 2**64: it does not depend on their order.
- `chain` is the sum of the hashes of the batches of the service `total`, each times its place 1, 2, 3, … among them, modulo 2**64:
  two batches that change places change it.

A hash is the first 64 bits of SHA-256 over ``origin:first+count=digest``; the digest is written as the trace holds it, a signed
number, and as nothing where there is none. Spark computes the same from the rows.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

_MODULUS = 2**64


def batch_text(origin: str, first: int, count: int, digest: int | None) -> str:
    """What is hashed of a batch; `origin` is the member's name."""
    return f"{origin}:{first}+{count}={'' if digest is None else digest}"


def hash_of(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big")


class Shown(NamedTuple):
    """The totals as the attributes of a row hold them."""

    shown: int
    digest: str
    chain: str


class ShownTotals:
    """Adds up what is shown in one view."""

    __slots__ = ("_chain", "_digest", "_places", "shown")

    def __init__(self) -> None:
        self.shown = 0
        self._digest = 0
        self._chain = 0
        self._places = 0  # batches of the service `total`

    def add(self, origin: str, first: int, count: int, digest: int | None, is_total: bool) -> None:
        value = hash_of(batch_text(origin, first, count, digest))
        self.shown += count
        self._digest = (self._digest + value) % _MODULUS
        if is_total:
            self._places += 1
            self._chain = (self._chain + value * self._places) % _MODULUS

    def told(self) -> Shown:
        return Shown(self.shown, f"{self._digest:016x}", f"{self._chain:016x}")


NOTHING = ShownTotals().told()
