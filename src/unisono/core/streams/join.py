"""Joining the two halves of a cast to some members only: the header on the cast stream, the payload by unicast."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from unisono.core.types import Rank
from unisono.core.wire import Octets
from unisono.core.wire.envelope import unmark_full, unmark_header


class Join:
    """The packets of one origin's cast stream on their way to be shown, and the halves that replace some of them.

    Stream order makes this free of deadlock: an origin numbers its full halves in ascending order. If the cast stream waits for
    one, no later one can have come, so `_fulls` is empty and has room; if `_fulls` is at its limit, the cast stream does not wait.
    """

    def __init__(self, me: Rank, members: int, limit: int, first: int) -> None:
        self._me = me
        self._members = members
        self._limit = limit
        self.shown = first  # packets of the cast stream that left here, in order
        self._waiting: deque[tuple[Octets, bool]] = deque()  # from number `shown` on; whether it needs its full half
        self._waiting_bytes = 0
        self._fulls: dict[int, Octets] = {}
        self._full_bytes = 0
        self.idle = True
        """Nothing waits, so that packets without marks pass by without being looked at."""

    @property
    def held_bytes(self) -> int:
        """Of both kinds of halves."""
        return self._waiting_bytes + self._full_bytes

    def admits_cast(self) -> bool:
        return self._waiting_bytes <= self._limit

    def admits_full(self) -> bool:
        return self._full_bytes <= self._limit

    def cast(self, packets: Sequence[Octets], marks: Sequence[int]) -> tuple[Sequence[Octets], int]:
        """Take packets of the cast stream. Returns what can be shown now, and how many made no sense."""
        if self.idle and not marks:
            self.shown += len(packets)
            return packets, 0
        faults = 0
        marked = frozenset(marks)
        for i, packet in enumerate(packets):
            needs = False
            if i in marked:
                parts = unmark_header(packet, self._members)
                if parts is None:
                    faults += 1
                    continue
                packet, needs = parts[0], self._me in parts[1]
            self._waiting.append((packet, needs))
            self._waiting_bytes += len(packet)
        return self._show(), faults

    def full(self, packet: Octets) -> tuple[list[Octets], int]:
        """Take a full half from the unicast stream. Returns what can be shown now, and how many made no sense."""
        parts = unmark_full(packet, self.shown)
        if parts is None or parts[1] < self.shown or parts[1] in self._fulls:
            return [], 1
        self._fulls[parts[1]] = parts[0]
        self._full_bytes += len(parts[0])
        return self._show(), 0

    def _show(self) -> list[Octets]:
        result = []
        while self._waiting:
            packet, needs = self._waiting[0]
            full = self._fulls.pop(self.shown, None)
            if full is not None:
                self._full_bytes -= len(full)
            if needs and full is None:
                break
            self._waiting.popleft()
            self._waiting_bytes -= len(packet)
            result.append(full if needs and full is not None else packet)
            self.shown += 1
        self.idle = not self._waiting and not self._fulls
        return result
