"""Every limit and every timeout of the streams, with its unit in its name, validated where it is set."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unisono.core.config import MILLISECOND, SECOND, check_ranges, duration, ranged
from unisono.core.errors import ConfigError

KIB = 1024
MIB = 1024 * KIB
_RATE_MIN = 1_024
NEVER = 1 << 62
"""Later than every time, and beyond every number."""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings of the reliable streams. All members of a group use the same."""

    datagram_bytes: int = ranged(1_400, 256, 65_507)
    """Maximum datagram size: the smallest over the paths of the view."""
    seal_bytes: int = ranged(0, 0, 64)
    """What an authenticating seal adds to each datagram; left free in it."""
    packet_bytes_max: int = ranged(16 * MIB + 64 * KIB, 1, 2**31 - 1)
    """The largest packet: a message of 16 MiB and what the ordering writes around it."""
    packets_per_datagram_max: int = ranged(4_096, 1, 32_767)
    """Maximum number of packets per datagram."""
    numbering_first: int = ranged(0, 0, 2**40)
    """Where all numbers begin, counts of packets too. The wire has their low 32 bits; tests begin near the top of these."""

    window_bytes: int = ranged(4 * MIB, 1_024, 2**31 - 1)
    """Bytes on the cast stream that some member has not acknowledged; beyond it nothing is `writable`. Also the cap of
    what may be in flight."""
    window_packets: int = ranged(65_536, 1, 2**31 - 1)
    """Packets on the cast stream that some member has not acknowledged: the same limit as `window_bytes`, for small packets."""
    window_bytes_start: int = ranged(256 * KIB, 1_024, 2**31 - 1)
    """Bytes that may be in flight before anything is acknowledged. Grows with acknowledgements, shrinks on loss."""
    window_bytes_min: int = ranged(64 * KIB, 512, 2**31 - 1)
    """Lower bound of that (or `window_bytes`, if that is less): on a path that loses datagrams at random, shrinking for ever
    would starve the group."""
    kept_bytes_max: int = ranged(256 * MIB, 1_024, 2**40)
    """Hard limit of what is kept for resending. Own packets: beyond it `cast` and `send` raise `Misuse`, because the caller
    ignored `writable`. Other members' casts: beyond it they are not kept, and only their origin answers requests."""
    ahead_datagrams_max: int = ranged(16_384, 1, 2**20)
    """How far beyond the next number of a stream a datagram may lie; farther ones are dropped and come again."""
    ahead_bytes_max: int = ranged(16 * MIB, 65_507, 2**40)
    """Maximum number of bytes that wait behind gaps, in all streams together; and, per origin, for the other half of a cast."""
    reassembly_bytes_max: int = ranged(64 * MIB, 1, 2**40)
    """Maximum number of bytes under reassembly, in all streams together; the lowest origin's packets are exempt."""
    rate_bytes_per_s: int | None = ranged(None, _RATE_MIN, 2**40)
    """Maximum data rate; None: no limit. Acknowledgements and requests are exempt."""
    group_rate_bytes_per_s: int | None = ranged(None, _RATE_MIN, 2**40)
    """Maximum data rate of all members of a view together, in equal shares; None: no limit."""

    ack_delay_ns: int = ranged(2 * MILLISECOND, 0, SECOND)
    """How long an acknowledgement waits for a datagram to the group that carries it."""
    ack_datagrams_max: int = ranged(16, 1, 65_535)
    """Number of unacknowledged datagrams that ends this wait …"""
    ack_bytes_max: int = ranged(128 * KIB, 1, 2**31 - 1)
    """… and number of bytes."""
    nak_delay_ns: int = ranged(0, 0, SECOND)
    """How long a gap may be open before it is asked for; 0: at once. Raise it where the network reorders a lot."""
    nak_tries_max: int = ranged(8, 1, 1_000)
    """Maximum number of requests for one gap without progress; then the origin's timer must bring it."""
    answer_bytes_max: int = ranged(1 * MIB, 65_507, 2**40)
    """Maximum number of bytes per round trip that one peer gets in answer to its requests."""
    retransmit_ns_start: int = duration(200 * MILLISECOND)
    """The timeout before the first round trip was measured."""
    retransmit_ns_min: int = duration(10 * MILLISECOND)
    """The shortest timeout."""
    retransmit_ns_max: int = duration(5 * SECOND)
    """Upper bound of doubling. A longer *measured* round trip still makes a longer timeout."""
    retransmit_ns_per_kib: int = ranged(20_000, 0, SECOND)
    """What each KiB in flight adds to the timeout."""
    retransmit_jitter_percent: int = ranged(25, 0, 100)
    """Maximum random addition to a doubled timeout, so that members do not resend in step."""

    def __post_init__(self) -> None:
        check_ranges(self)
        for low_name, high_name in _PAIRS:
            low, high = getattr(self, low_name), getattr(self, high_name)
            if low > high:
                raise ConfigError(f"{low_name} = {low} is above {high_name} = {high}: raise the latter.")

    def shared_by(self, members: int) -> StreamSettings:
        """The settings for a view of this size: each member's share of the group's rate, and timers that fit it.

        If all send at once on a line that carries the group's rate, a KiB of mine is through after the time of one KiB at
        my share. A timer that ran out earlier would send again what is only queued.
        """
        if self.group_rate_bytes_per_s is None:
            return self
        share = max(self.group_rate_bytes_per_s // members, _RATE_MIN)
        rate = share if self.rate_bytes_per_s is None else min(share, self.rate_bytes_per_s)
        per_kib = min(max(self.retransmit_ns_per_kib, KIB * SECOND // rate), SECOND)
        return replace(self, rate_bytes_per_s=rate, retransmit_ns_per_kib=per_kib)


_PAIRS: tuple[tuple[str, str], ...] = (
    ("window_bytes_start", "window_bytes"),
    ("window_bytes", "kept_bytes_max"),
    ("packet_bytes_max", "kept_bytes_max"),
    ("retransmit_ns_min", "retransmit_ns_max"),
    ("retransmit_ns_min", "retransmit_ns_start"),
)
