"""How much may leave: the window that shrinks on loss and grows again, and the rate limit."""

from __future__ import annotations

from unisono.core.config import SECOND
from unisono.core.streams.settings import NEVER, StreamSettings


class Window:
    """Bytes in flight (additive increase, multiplicative decrease, doubling at the start) and bytes a second."""

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
        self.paced_until = NEVER
        """When the rate limit lets the next body pass that it held back in this turn."""

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

    def pay(self, size: int, now: int) -> bool:
        """Whether the rate limit lets `size` bytes pass now; then they are spent, else `paced_until` is set.

        The bucket holds 10 ms, and at least one datagram.
        """
        rate = self.rate
        if rate is None:
            return True
        full = max(self._datagram * SECOND, rate * (SECOND // 100))
        self._tokens = min(full, self._tokens + (now - self._refilled_at) * rate)
        self._refilled_at = now
        missing = size * SECOND - self._tokens
        if missing > 0:
            self.paced_until = min(self.paced_until, now - (-missing // rate))
            return False
        self._tokens -= size * SECOND
        return True

    def spend(self, size: int) -> None:
        """`size` bytes leave whatever the limit says. Resends may overdraw, and new data waits until that is paid."""
        if self.rate is not None:
            self._tokens -= size * SECOND
