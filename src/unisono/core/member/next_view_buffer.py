"""Keeps datagrams of a view that other members have installed a little earlier, until it is installed here too."""

from __future__ import annotations

from collections import deque

from unisono.core.types import MemberId

DATAGRAMS_MAX = 512
BYTES_MAX = 4 << 20
"""Beyond these limits the oldest datagrams are dropped; their senders send them again."""


class NextViewBuffer:
    def __init__(self) -> None:
        # The tag of the view, the datagram, and the member that sealed it.
        self._datagrams: deque[tuple[int, bytes, MemberId | None]] = deque()
        self.bytes = 0

    def keep(self, tag: int, datagram: bytes, sealed_by: MemberId | None) -> int:
        """Keep a datagram. Returns how many of the oldest were dropped for it."""
        self._datagrams.append((tag, datagram, sealed_by))
        self.bytes += len(datagram)
        dropped = 0
        while len(self._datagrams) > DATAGRAMS_MAX or self.bytes > BYTES_MAX:
            self.bytes -= len(self._datagrams.popleft()[1])
            dropped += 1
        return dropped

    def take(self, tag: int) -> list[tuple[bytes, MemberId | None]]:
        """The datagrams of the view that is installed now. All others are dropped."""
        wanted = [(datagram, sealed_by) for of, datagram, sealed_by in self._datagrams if of == tag]
        self._datagrams.clear()
        self.bytes = 0
        return wanted
