"""The settings of one member, among them what it does about slow receivers and long waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from unisono.core.config import HOUR, MILLISECOND, SECOND, Config, check_ranges, duration, ranged
from unisono.core.errors import ConfigError
from unisono.core.membership import DetectorSettings, MembershipSettings
from unisono.core.streams import StreamSettings


class Slow(StrEnum):
    """Slow receivers: block the sender, fail fast, or evict the receiver. A message with a key is never dropped."""

    BLOCK = "block"  # `cast` returns None: the caller waits
    SHED = "shed"  # `cast` raises `Shed` at once
    EVICT = "evict"  # `cast` returns None, and after a while the slow member leaves the view


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """How one member treats slow receivers, and when it reports that something waits for too long."""

    slow: Slow = Slow.BLOCK
    """What happens when a receiver stays slow."""
    evict_after_ns: int = duration(10 * SECOND)
    """Under `evict`: a member that holds the window shut for this long …"""
    evict_datagrams_min: int = ranged(100, 1, 2**31 - 1)
    """… and acknowledges fewer datagrams than this meanwhile is evicted. At this pace it is busy, not slow."""
    look_ns: int = ranged(1 * SECOND, MILLISECOND, HOUR)
    """How often the member looks at what waits. `explain` may report a wait as shorter than it is, by at most this."""
    stall_ns: int | None = ranged(None, 1, 24 * HOUR)
    """The watchdog reports what has waited for this long, again after twice as long, and so on; None: never."""

    def __post_init__(self) -> None:
        if not isinstance(self.slow, Slow):
            raise ConfigError(f"slow must be block, shed or evict, not {self.slow!r}.")
        check_ranges(self)
        if self.slow is Slow.EVICT and self.evict_after_ns < 2 * self.look_ns:
            raise ConfigError(
                f"evict_after_ns = {self.evict_after_ns} is less than two looks: "
                f"choose {2 * self.look_ns} at least, or a shorter look_ns."
            )
        if self.stall_ns is not None and self.stall_ns < self.look_ns:
            raise ConfigError(
                f"stall_ns = {self.stall_ns} is less than look_ns = {self.look_ns}: choose a shorter look_ns."
            )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one member."""

    config: Config = field(default_factory=Config)
    streams: StreamSettings = field(default_factory=StreamSettings)
    detector: DetectorSettings = field(default_factory=DetectorSettings)
    membership: MembershipSettings = field(default_factory=MembershipSettings)
    flow: FlowSettings = field(default_factory=FlowSettings)

    def __post_init__(self) -> None:
        config = self.config
        # Lengths, vectors, addressees, and small things.
        heads = 4 * config.batch_messages_max + 10 * config.members_max + 64
        largest = max(config.payload_bytes_max, config.batch_bytes_max) + heads
        if self.streams.packet_bytes_max < largest:
            raise ConfigError(
                f"packet_bytes_max = {self.streams.packet_bytes_max} cannot hold what payload_bytes_max, batch_bytes_max, "
                f"batch_messages_max and members_max allow: choose {largest} at least, or less of those."
            )
        needed = 2 * self.streams.window_bytes + self.streams.packet_bytes_max
        if self.streams.kept_bytes_max < needed:
            raise ConfigError(
                f"kept_bytes_max = {self.streams.kept_bytes_max} cannot hold what may be accepted before anything is "
                f"acknowledged: choose {needed} at least (two windows and one packet), or a smaller window_bytes."
            )
        if self.flow.slow is Slow.EVICT and self.flow.evict_after_ns < self.detector.suspicion_ns_min:
            raise ConfigError(
                f"evict_after_ns = {self.flow.evict_after_ns} is less than suspicion_ns_min = "
                f"{self.detector.suspicion_ns_min}: a silent member should be suspected before it is evicted as slow. "
                "Choose a longer evict_after_ns."
            )
