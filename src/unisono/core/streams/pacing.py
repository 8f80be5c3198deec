"""How much may leave: the window that shrinks on loss, the rate limit, and the limit of answers to requests."""

from __future__ import annotations

from enum import StrEnum

from unisono.core.config import SECOND
from unisono.core.streams.settings import StreamSettings
from unisono.core.wire.envelope import Refusal


class Slowness(StrEnum):
    """Why a member holds the others up."""

    ROOM = "room"  # its application or its holdback is full
    SILENT = "silent"  # it does not answer
    BEHIND = "behind"  # it answers, and lacks the most


class Counters:
    """What happened in the streams of one view."""

    __slots__ = (
        "acks_alone",
        "answers",
        "answers_denied",
        "bytes_received",
        "bytes_sent",
        "datagrams_received",
        "datagrams_sent",
        "duplicates",
        "naks_received",
        "naks_sent",
        "packets_received",
        "packets_sent",
        "polls_sent",
        "refused",
        "resent",
        "unkept",
    )

    def __init__(self) -> None:
        self.datagrams_sent = 0
        self.bytes_sent = 0
        self.packets_sent = 0
        self.datagrams_received = 0  # authentic and well-formed
        self.bytes_received = 0
        self.packets_received = 0
        self.resent = 0  # because a timer ran out
        self.answers = 0  # sent again because someone asked
        self.answers_denied = 0  # asked for too soon, or too much
        self.naks_sent = 0  # ranges asked for
        self.naks_received = 0
        self.duplicates = 0  # bodies that were here already
        self.acks_alone = 0  # datagrams that carried nothing but acknowledgements
        self.polls_sent = 0  # questions how far a member is
        self.unkept = 0  # others' casts that could not be kept for those who lack them
        self.refused = dict.fromkeys(Refusal, 0)


class Window:
    """Bytes in flight (additive increase, multiplicative decrease, doubling at the start) and bytes a second."""

    __slots__ = ("_datagram", "_max", "_min", "_recovered_at", "_refilled_at", "_threshold", "_tokens", "rate", "size")

    def __init__(self, settings: StreamSettings, now: int) -> None:
        self._datagram = settings.datagram_bytes
        self._max = settings.window_bytes
        self._min = min(settings.window_bytes_min, settings.window_bytes_start)
        self.size = settings.window_bytes_start
        self._threshold = self._max  # below it the window doubles each round trip
        self._recovered_at = now
        self.rate = settings.rate_bytes_per_s  # None: no limit, and nothing to ask
        self._tokens = settings.datagram_bytes * SECOND  # in bytes × ns, so that nothing is rounded
        self._refilled_at = now

    def grow(self, acknowledged: int) -> None:
        if self.size < self._threshold:
            self.size += acknowledged
        else:
            self.size += self._datagram * acknowledged // self.size
        if self.size > self._max:
            self.size = self._max

    def shrink(self, now: int, round_trip: int) -> None:
        """Something was lost. All losses of one round trip count as one."""
        if now < self._recovered_at:
            return
        self._recovered_at = now + round_trip
        self.size = self._threshold = max(self._min, self.size * 7 // 10)

    def affords(self, size: int, now: int) -> bool:
        """Whether the rate limit lets so many bytes pass now. The bucket holds 10 ms, and one datagram at least."""
        rate = self.rate
        if rate is None:
            return True
        full = max(self._datagram * SECOND, rate * (SECOND // 100))
        self._tokens = min(full, self._tokens + (now - self._refilled_at) * rate)
        self._refilled_at = now
        return self._tokens >= size * SECOND

    def spend(self, size: int) -> None:
        """So many bytes leave. Resends may overdraw, and new data waits until that is paid."""
        if self.rate is not None:
            self._tokens -= size * SECOND

    def affordable_at(self, size: int) -> int:
        """When the rate limit would let so many bytes pass."""
        assert self.rate is not None
        return self._refilled_at + -(-(size * SECOND - self._tokens) // self.rate)


class Answers:
    """What one peer got in answer to its requests lately, so that a flood of requests makes no flood of answers."""

    __slots__ = ("_bytes", "_since", "_times")

    def __init__(self) -> None:
        self._bytes = 0
        self._since = 0
        self._times: dict[tuple[int, int, int], int] = {}  # body to when it was sent

    def admits(self, key: tuple[int, int, int], size: int, now: int, round_trip: int, bytes_max: int) -> bool:
        """Whether to send this body again: not while an earlier answer may be on its way, nor beyond the budget."""
        if now - self._since >= round_trip:
            self._since = now
            self._bytes = 0
            self._times = {key: at for key, at in self._times.items() if now - at < round_trip}
        if self._bytes + size > bytes_max or now - self._times.get(key, now - round_trip) < round_trip:
            return False
        self._bytes += size
        self._times[key] = now
        return True
