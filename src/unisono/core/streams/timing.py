"""The round trip to each peer, how long to wait for its answer, and how often it was tried in vain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unisono.core.streams.outflow import Outflow
from unisono.core.streams.settings import StreamSettings
from unisono.core.streams.transmitter import Transmitter
from unisono.core.types import Rank
from unisono.core.wire.envelope import DELAY_MAX, DELAY_UNIT_NS

if TYPE_CHECKING:
    from random import Random

DOUBLINGS_MAX = 20


class Rtt:
    """Smoothed round trip and its mean deviation, in ns (Jacobson's estimator, in integers).

    Karn's rule (no sample where it is unclear which transmission was acknowledged) is kept by the caller: acknowledgements
    name the very datagram that caused them, so each sample belongs to one transmission, resends included.
    """

    __slots__ = ("deviation", "least", "samples", "smoothed", "timeout")

    def __init__(self, start: int, least: int) -> None:
        self.least = least
        self.smoothed = start  # until the first sample
        self.deviation = 0
        self.samples = 0
        self.timeout = start
        """How long an answer may take that is given at once."""

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
        timeout = self.smoothed + 4 * self.deviation
        self.timeout = timeout if timeout > self.least else self.least


class Timing:
    """What time tells of each peer: its round trip, and whether it answers at all."""

    def __init__(
        self,
        settings: StreamSettings,
        random: Random,
        transmitter: Transmitter,
        cast: Outflow,
        sends: Sequence[Outflow],
    ) -> None:
        members = len(sends)
        self._settings = settings
        self._random = random
        self._transmitter = transmitter
        self._cast = cast
        self._sends = sends
        self._rtt = [Rtt(settings.retransmit_ns_start, settings.retransmit_ns_min) for _ in range(members)]
        self.tries = [0] * members
        """By peer: how often something was sent to it again, or it was polled, since anything authentic came from it."""
        self.echo = [0] * members
        """By peer: which counter of its transmissions to echo, so that it can measure; 0: none."""
        self.echo_at = [0] * members  # when that one came
        self._newest = [0] * members  # highest counter heard
        self._echoed = [0] * members  # of my own counters, the last that the peer echoed

    def heard(self, peer: Rank, counter: int, now: int, causes_answer: bool) -> bool:
        """Something authentic came. Returns whether it is the newest: datagrams may overtake each other."""
        self.tries[peer] = 0
        if causes_answer and counter > self.echo[peer]:
            self.echo[peer] = counter
            self.echo_at[peer] = now
        if counter > self._newest[peer]:
            self._newest[peer] = counter
            return True
        return False

    def tried(self, peer: Rank) -> None:
        """Something was sent to `peer` that it should answer, and not for the first time."""
        self.tries[peer] += 1

    def sample(self, peer: Rank, echo: int, delay: int, now: int) -> None:
        """`peer` got the datagram with the counter `echo` and answered after `delay`. Karn: which transmission is certain."""
        if echo == self._echoed[peer]:
            return
        sent_at = self._transmitter.sent_at(echo)
        if sent_at is None:
            return
        self._echoed[peer] = echo
        if delay < DELAY_MAX:
            trip = now - sent_at - delay * DELAY_UNIT_NS
            self._rtt[peer].sample(trip if trip > 1 else 1)

    def timeout(self, peer: Rank, doublings: int) -> int:
        """How long to wait for `peer`: the round trip, its delay of acknowledgements, and what is in flight."""
        settings = self._settings
        flight = self._cast.flight_bytes + self._sends[peer].flight_bytes
        base = self._rtt[peer].timeout + settings.ack_delay_ns + (settings.retransmit_ns_per_kib * flight >> 10)
        if not doublings:
            return base
        timeout = max(base, min(base << doublings, settings.retransmit_ns_max))
        return timeout + self._random.randrange(timeout * settings.retransmit_jitter_percent // 100 + 1)

    def round_trip(self, peer: Rank) -> int:
        return self._rtt[peer].smoothed
