"""Datagrams of a view that is not installed here yet: they wait, bounded, for the install that is under way."""

from __future__ import annotations

from collections import deque

from unisono.core.types import MemberId

EARLY_DATAGRAMS_MAX = 512
EARLY_BYTES_MAX = 4 << 20
"""So much waits; more comes again."""


class Early:
    __slots__ = ("_bytes", "_datagrams")

    def __init__(self) -> None:
        # The tag of the view, the datagram, and who has sealed it.
        self._datagrams: deque[tuple[int, bytes, MemberId | None]] = deque()
        self._bytes = 0

    def keep(self, tag: int, datagram: bytes, sealed_by: MemberId | None) -> int:
        """Returns how many of the oldest had to go."""
        self._datagrams.append((tag, datagram, sealed_by))
        self._bytes += len(datagram)
        dropped = 0
        while len(self._datagrams) > EARLY_DATAGRAMS_MAX or self._bytes > EARLY_BYTES_MAX:
            self._bytes -= len(self._datagrams.popleft()[1])
            dropped += 1
        return dropped

    def take(self, tag: int) -> list[tuple[bytes, MemberId | None]]:
        """Those of the view that was installed now; the rest is of no use any more."""
        wanted = [(datagram, sealed_by) for of, datagram, sealed_by in self._datagrams if of == tag]
        self._datagrams.clear()
        self._bytes = 0
        return wanted
