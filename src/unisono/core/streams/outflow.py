"""The sending side of one stream: packets become bodies, bodies are kept until every addressee has acknowledged them."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from unisono.core.streams.pacing import Window
from unisono.core.types import Rank
from unisono.core.wire.envelope import make_pieces, make_plain


class Outflow:
    """One outgoing stream. Numbers (`base`, `sent`, `end`) count bodies.

    Bodies from `base` to `sent` are in flight, those from `sent` to `end` wait for the window, and `waiting` are packets of
    this turn that no body holds yet. They become bodies once a turn, so that small ones share.
    """

    def __init__(self, kind: int, origin: Rank, first: int, capacity: int, count_max: int) -> None:
        self._kind = kind
        self._origin = origin
        self._capacity = capacity  # of a body, after its head
        self._count_max = count_max
        self._marks: list[int] = []  # indexes into `waiting`
        self.waiting_bytes = 0
        self.waiting: list[bytes] = []
        self.bodies: list[bytes] = []  # from number `base` on
        self.tries: list[int] = []  # of each body: how often it was transmitted
        self.base = first
        self.sent = first
        self.end = first  # the number of the next body
        self.flight_bytes = 0  # of bodies that were sent and are not acknowledged by all
        self.kept_bytes = 0  # of all packets and bodies here

    def put(self, packet: bytes) -> None:
        self.waiting.append(packet)
        self.waiting_bytes += len(packet)
        self.kept_bytes += len(packet)

    def put_marked(self, packet: bytes) -> None:
        self._marks.append(len(self.waiting))
        self.put(packet)

    def pack(self) -> None:
        """Make bodies of what waits: as few as the datagram size allows, in order."""
        waiting, self.waiting = self.waiting, []
        marks, self._marks = self._marks, []
        size, self.waiting_bytes = self.waiting_bytes, 0
        self.kept_bytes -= size
        lengths = list(map(len, waiting))
        if not marks and size + 2 * len(waiting) <= self._capacity and len(waiting) <= self._count_max:
            body = make_plain(self._kind, self._origin, self.end, waiting, lengths, marks)
            self.bodies.append(body)  # `_append`, written out
            self.tries.append(0)
            self.end += 1
            self.kept_bytes += len(body)
        else:
            self._pack_many(waiting, lengths, marks)

    def _pack_many(self, waiting: list[bytes], lengths: list[int], marks: list[int]) -> None:
        costs = [length + 2 for length in lengths]  # with an entry in the table of lengths …
        for i in marks:
            costs[i] += 2  # … and in the table of marks
        ends = list(accumulate(costs, initial=0))
        start, count = 0, len(waiting)
        while start < count:
            stop = min(bisect_right(ends, ends[start] + self._capacity) - 1, start + self._count_max)
            seq = self.end
            if stop > start:
                inside = [i - start for i in marks if start <= i < stop] if marks else marks
                chunk = waiting[start:stop]
                self._append(make_plain(self._kind, self._origin, seq, chunk, lengths[start:stop], inside))
                start = stop
            else:  # larger than a datagram
                for body in make_pieces(self._kind, self._origin, seq, waiting[start], start in marks, self._capacity):
                    self._append(body)
                start += 1

    def _append(self, body: bytes) -> None:
        self.bodies.append(body)
        self.tries.append(0)
        self.end += 1
        self.kept_bytes += len(body)

    def admit(self, window: Window, now: int) -> bytes | None:
        """The next body, if window and rate let it pass; it counts as sent. An empty window takes any."""
        place = self.sent - self.base
        if place == len(self.bodies):
            return None
        body = self.bodies[place]
        size = len(body)
        if self.flight_bytes and self.flight_bytes + size > window.size:
            return None
        if window.rate is not None and not window.pay(size, now):
            return None
        self.flight_bytes += size
        self.tries[place] = 1
        self.sent += 1
        return body

    def has_no_room(self, window: Window) -> bool:
        """Whether a body waits that the window does not let pass."""
        return self.sent != self.end and self.flight_bytes + len(self.bodies[self.sent - self.base]) > window.size

    def repeat(self, number: int) -> tuple[bytes, int]:
        """A body that is sent again, and how often it was sent before."""
        place = number - self.base
        tries = self.tries[place]
        self.tries[place] = tries + 1
        return self.bodies[place], tries

    def release(self, number: int) -> int:
        """Every addressee has the bodies below `number`: let them go. Returns how many bytes they were."""
        count = number - self.base
        assert 0 <= count <= self.sent - self.base, "only what was sent can be acknowledged"
        size = sum(map(len, self.bodies[:count]))
        del self.bodies[:count]
        del self.tries[:count]
        self.base = number
        self.flight_bytes -= size
        self.kept_bytes -= size
        return size
