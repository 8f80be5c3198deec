"""The round trip to one peer, and how long to wait for an acknowledgement (Jacobson's estimator, in integers)."""

from __future__ import annotations


class Rtt:
    """Smoothed round trip and its mean deviation, in ns. Before the first sample the timeout is the given start.

    Karn's rule (no sample where it is unclear which transmission was acknowledged) is kept by the caller: acknowledgements
    name the very datagram that caused them, so each sample belongs to one transmission, resends included.
    """

    __slots__ = ("deviation", "least", "samples", "smoothed", "start")

    def __init__(self, start: int, least: int) -> None:
        self.start = start
        self.least = least
        self.smoothed = 0
        self.deviation = 0
        self.samples = 0

    def sample(self, measured: int) -> None:
        """Take in one measured round trip."""
        if not self.samples:
            self.smoothed = measured
            self.deviation = measured // 2
        else:
            error = measured - self.smoothed
            self.smoothed += error >> 3
            self.deviation += (abs(error) - self.deviation) >> 2
        self.samples += 1

    def timeout(self) -> int:
        """How long an answer may take that is given at once."""
        if not self.samples:
            return self.start
        return max(self.least, self.smoothed + 4 * self.deviation)
