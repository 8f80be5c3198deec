"""What this member owes to tell the others: how far it is, and when the latest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unisono.core.streams.settings import NEVER
from unisono.core.streams.shared import StreamParts
from unisono.core.streams.transmitter import Datagrams
from unisono.core.types import Rank
from unisono.core.wire.envelope import AWAIT, DELAY_MAX, DELAY_UNIT_NS, LOW, POLL, PUSH, ROW, SEND


class Acknowledging:
    """Rows ride on whatever goes out. What nothing carries leaves alone after a short delay, and goes to all."""

    def __init__(self, shared: StreamParts) -> None:
        self._settings = shared.settings
        self._peers = shared.peers
        self._rows_max = shared.space // ROW.size  # in one datagram
        self._progress = shared.progress
        self._timing = shared.timing
        self._transmitter = shared.transmitter
        self._casts = shared.casts
        self._receives = shared.receives
        self._counters = shared.counters
        self.at = NEVER
        """By when acknowledgements must go to all members."""
        self.alone: dict[Rank, int] = {}
        """Peers that must be told, while the others need not, and by when."""
        self._room_told = shared.transmitter.room
        self._unacked = 0  # bodies since all were told
        self._unacked_bytes = 0
        self.polled: dict[Rank, None] = {}
        """Peers that asked for all rows."""
        self._announce = False
        self._prompted: dict[Rank, int] = {}  # peers that wait to hear what is taken in here, and until when they may

    # What makes it owe something.

    def owe(self, kind: int, origin: Rank, due: int) -> None:
        """A body of `origin` came. By `due` all must hear how far I am with its casts, only the origin with what it sent to me."""
        if not kind & SEND:
            self._progress.owe((origin,))
            if due < self.at:
                self.at = due
        elif due < self.alone.get(origin, NEVER):
            self.alone[origin] = due

    def owe_next(self, kind: int, origin: Rank, size: int, tries: int, now: int) -> None:
        """A body came that was next in its stream. Its acknowledgement may wait for company, unless many have waited."""
        settings = self._settings
        self._unacked += 1
        self._unacked_bytes += size
        late = tries or self._unacked >= settings.ack_datagrams_max or self._unacked_bytes >= settings.ack_bytes_max
        due = now if late else now + settings.ack_delay_ns
        if not kind & SEND:  # `owe`, written out; that it has changed is known
            if due < self.at:
                self.at = due
        elif due < self.alone.get(origin, NEVER):
            self.alone[origin] = due

    def hear_flags(self, peer: Rank, flags: int, now: int) -> None:
        """`peer` wants to hear of this member sooner than usual."""
        if flags & POLL:
            self.polled[peer] = None
        if flags & PUSH:
            self.alone[peer] = now
        if flags & AWAIT:
            self._prompted[peer] = now + self._settings.ack_delay_ns

    def announce(self) -> None:
        """Tell all members everything with the next turn: a heartbeat."""
        self._announce = True

    def hurry(self) -> None:
        """Peers wait for what this member has taken in: the next acknowledgement does not wait for company."""
        if self._progress.changed:
            self.at = 0

    # What others carry.

    def rows(self, origins: Iterable[Rank], now: int, to: Rank | None = None) -> list[bytes]:
        """How far I am with each of these origins. They are about to leave for a peer that is among them; None: for all."""
        pack = ROW.pack
        progress, timing = self._progress, self._timing
        if to is not None:
            self.alone.pop(to, None)
        rows = []
        for origin in origins:
            echo = timing.echo[origin]
            rows.append(
                pack(
                    origin,
                    self._casts[origin].next & LOW,
                    self._receives[origin].next & LOW,
                    progress.own_shown[origin] & LOW,
                    progress.own_taken[origin] & LOW,
                    echo & LOW,
                    min((now - timing.echo_at[origin]) // DELAY_UNIT_NS, DELAY_MAX) if echo else DELAY_MAX,
                )
            )
        if to is None:
            progress.changed.clear()
            progress.has_taken = False
            self.alone.clear()
            self._unacked = self._unacked_bytes = 0
            self.at = NEVER
            self._room_told = self._transmitter.room
            self._announce = False
        return rows

    def all_rows(self, peer: Rank, now: int) -> list[bytes]:
        """As many rows as one datagram to `peer` holds, its own among them."""
        return self.rows(dict.fromkeys((peer, *self._peers)), now, peer)[: self._rows_max]

    def take_rows(self, now: int, space: int = NEVER) -> list[bytes]:
        """What all must be told, if it fits into this space: the acknowledgements of a large view go alone."""
        progress = self._progress
        if self.alone:
            progress.owe(self.alone)
        return self.rows(progress.changed, now) if len(progress.changed) * ROW.size <= space else []

    # What leaves alone.

    def answer_polls(self, now: int, out: Datagrams) -> None:
        for peer in self.polled:
            rows = self.rows(self._peers, now, peer)
            self._transmit(rows, peer, now, out)
        self.polled.clear()

    def acknowledge(self, now: int, out: Datagrams) -> None:
        """Tell all how far I am, unless a cast of this turn has, or there is time to wait for one."""
        changed, alone = self._progress.changed, self.alone
        room, told = self._transmitter.room, self._room_told
        if not (changed or alone or self._announce or room != told or self.at <= now):
            return
        settings = self._settings
        if room > told and told < settings.window_packets:  # a caster may wait for it
            self.at = min(self.at, now + (settings.ack_delay_ns if told else 0))
        if changed and self.at == NEVER:
            self.at = now + settings.ack_delay_ns
        if self._peers and (self.at <= now or self._announce):
            self._tell_all(now, out)
            return
        if self._prompted and self._progress.has_taken:
            self._tell_prompted(now, out)
        for peer in [peer for peer, due in alone.items() if due <= now] if alone else ():
            self._transmitter.transmit(out, peer, now, rows=self.rows((peer,), now, peer))
            self._counters.acks_alone += 1

    def _tell_all(self, now: int, out: Datagrams) -> None:
        """The changed rows to all; for a heartbeat, every row. They leave before data."""
        first: Datagrams = []
        self._transmit(self.rows(self._peers, now) if self._announce else self.take_rows(now), None, now, first)
        self._counters.acks_alone += len(first)
        out[:0] = first

    def _tell_prompted(self, now: int, out: Datagrams) -> None:
        """Tell peers that asked a moment ago what was taken in since: it may be what they wait for to be stable."""
        progress = self._progress
        progress.has_taken = False
        self._prompted = {peer: until for peer, until in self._prompted.items() if until > now}
        for peer in self._prompted:
            rows = self.rows(dict.fromkeys((peer, *progress.changed)), now, peer)[: self._rows_max]
            self._transmitter.transmit(out, peer, now, rows=rows)
            self._counters.acks_alone += 1

    def _transmit(self, rows: Sequence[bytes], to: Rank | None, now: int, out: Datagrams) -> None:
        """Rows in datagrams of their own."""
        for i in range(0, max(len(rows), 1), self._rows_max):
            self._transmitter.transmit(out, to, now, rows=rows[i : i + self._rows_max])
