"""What may be asked of the streams: how far everyone is, who holds them up, whether more may be cast."""

from __future__ import annotations

from unisono.core.streams.inbound import NEVER
from unisono.core.streams.pacing import Slowness
from unisono.core.streams.state import StreamState
from unisono.core.types import Rank


class StreamQuestions(StreamState):
    __slots__ = ()

    def held(self) -> tuple[int, ...]:
        """By origin: how many packets of its cast stream have arrived without a gap; of one's own, how many were cast."""
        return tuple(self.packets_cast if o == self._rank else shown for o, shown in enumerate(self._own_shown))

    def writable(self) -> bool:
        """Whether data may be cast. An empty window takes a packet of any size."""
        settings, kept = self._settings, self._cast.kept_bytes + self._sends_bytes
        return (
            kept < min(settings.window_bytes, 2 * self._window.size)
            and self.packets_cast - self.stable[self._rank] < settings.window_packets
            and self.packets_cast < min(self._room_until)
        ) or not self._peers

    def slowest(self) -> tuple[Rank, Slowness] | None:
        """Who holds the cast stream up most, and why; None if nobody does. What my own rate holds back is nobody's fault."""
        if not self._peers:
            return None
        room = min(self._peers, key=self._room_until.__getitem__)
        if self._room_until[room] <= self.packets_cast:
            return room, Slowness.ROOM
        acked = self._acked[self._rank]
        last = min(self._peers, key=lambda peer: (acked[peer], self._shown[self._rank][peer], -self._tries[peer]))
        if acked[last] >= self._cast.sent and not self._cast.waiting:
            last = max(self._peers, key=lambda peer: self._sends[peer].flight_bytes)
            if not self._sends[last].flight_bytes:
                return None
        return last, Slowness.SILENT if self._tries[last] else Slowness.BEHIND

    def acknowledged_by(self, peer: Rank) -> int:
        """How many bodies of my cast stream a peer has acknowledged."""
        return self._acked[self._rank][peer]

    @property
    def is_paced(self) -> bool:
        """Whether the rate limit held something back in the last turn."""
        return self._paced_until != NEVER

    def behind(self, origin: Rank, count: int) -> list[Rank]:
        """Who is not known to have taken in so many packets of an origin's cast stream."""
        row = self._taken[origin]
        return [peer for peer in self._peers if row[peer] < count]

    def gaps(self) -> list[tuple[Rank, int, int]]:
        """Where something is missing that was sent: origin, kind of stream, and the number that comes next there."""
        return [(inflow.origin, inflow.kind, inflow.next) for inflow in self._gapped if inflow.next < inflow.known]

    @property
    def kept_bytes(self) -> int:
        """Of own packets, waiting or in flight."""
        return self._cast.kept_bytes + self._sends_bytes

    def window_use(self) -> dict[Rank, int]:
        """By peer: how many packets of my cast stream it has not yet acknowledged."""
        row = self._shown[self._rank]
        return {peer: self.packets_cast - row[peer] for peer in self._peers}

    def silent_tries(self, rank: Rank) -> int:
        """How often something was sent again to a member, or it was polled, since anything authentic came from it."""
        return self._tries[rank]
