"""What this member casts and sends: queues, window, acknowledgements of it, and the timers that send it again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

from unisono.core.errors import Misuse
from unisono.core.streams.acknowledging import Acknowledging
from unisono.core.streams.outflow import Outflow
from unisono.core.streams.pacing import Window
from unisono.core.streams.settings import NEVER
from unisono.core.streams.shared import StreamParts
from unisono.core.streams.timing import DOUBLINGS_MAX
from unisono.core.streams.transmitter import Datagrams
from unisono.core.types import Rank
from unisono.core.wire.envelope import AWAIT, POLL, PUSH, SEND, mark_full, mark_header


class Slowness(StrEnum):
    """Why a member holds the others up."""

    ROOM = "room"  # its application or its holdback is full
    SILENT = "silent"  # it does not answer
    BEHIND = "behind"  # it answers, and lacks the most


class Outbound:
    """The own cast stream, to all others, and the unicast stream to each peer. One window and one rate limit hold for all.

    `cast`, `cast_parts` and `send` never refuse: ask `writable` before data is cast. What a protocol must say is not data.
    """

    def __init__(self, shared: StreamParts, acks: Acknowledging, now: int) -> None:
        settings = self._settings = shared.settings
        self._rank = shared.rank
        self._members = members = len(shared.sends)
        self._packet_max = settings.packet_bytes_max
        self._kept_max = settings.kept_bytes_max
        self._peers = shared.peers
        self._space = shared.space
        self.to_all = shared.cast
        """The cast stream."""
        self.to_one = shared.sends
        """By peer: the unicast stream to it."""
        self._progress = shared.progress
        self._timing = shared.timing
        self._transmitter = shared.transmitter
        self._acks = acks
        self._counters = shared.counters
        self.packets_cast = settings.numbering_first
        """So far."""
        self._sends_bytes = 0  # kept in all unicast streams
        self._busy: dict[Rank, None] = {}  # peers whose unicast stream has something to send
        self.window = Window(settings, now)
        self._are_sends_next = (
            False  # … and whether unicast bodies are to be the first when the rate limit lets them pass
        )
        self.has_cast = False
        """Whether bodies of the cast stream left in this turn."""
        self.is_urged = False
        """Whether a caller waits for own casts to be stable."""
        self.due = [NEVER] * members
        """By peer: when to send it the first unacknowledged body again."""
        self._doublings = [0] * members  # of that timer, since the last progress

    # Queues.

    def cast(self, packet: bytes) -> None:
        """One encoded packet for every other member."""
        stream, size = self.to_all, len(packet)
        if not 0 < size <= self._packet_max or stream.kept_bytes + self._sends_bytes + size > self._kept_max:
            self._demand(packet)
        self.packets_cast += 1
        if self._peers:  # the one call that is made for every packet: `put`, written out
            stream.waiting.append(packet)
            stream.waiting_bytes += size
            stream.kept_bytes += size
        else:
            self._progress.cast_alone(self.packets_cast)

    def cast_parts(self, header: bytes, full: bytes, to: Collection[Rank]) -> None:
        """One packet whose addressees get `full`, and everyone else gets `header`, at the same place of the cast stream."""
        addressees = tuple(sorted(set(to)))
        if addressees and not 0 <= addressees[0] <= addressees[-1] < self._members:
            raise Misuse(f"not all addressees are members of the view of {self._members}: choose among `view.members`.")
        self._demand(header)
        self._demand(full, max(len(addressees), 1))  # before anything is queued: half a cast would block its stream
        half = mark_full(full, self.packets_cast)
        self.packets_cast += 1
        if self._peers:
            self.to_all.put_marked(mark_header(header, addressees))
        else:
            self._progress.cast_alone(self.packets_cast)
        for rank in addressees:
            if rank != self._rank:
                self.to_one[rank].put_marked(half)
                self._sends_bytes += len(half)
                self._busy[rank] = None

    def send(self, to: Rank, packet: bytes) -> None:
        """One encoded packet for one member."""
        if to == self._rank or not 0 <= to < self._members:
            raise Misuse(
                f"the receiver is not another member of the view of {self._members}: choose among `view.members`."
            )
        self._demand(packet)
        self.to_one[to].put(packet)
        self._sends_bytes += len(packet)
        self._busy[to] = None

    def _demand(self, packet: bytes, times: int = 1) -> None:
        if not 0 < len(packet) <= self._packet_max:
            raise Misuse(f"a packet of {len(packet)} bytes cannot be sent: it must have 1 to {self._packet_max} bytes.")
        if self.kept_bytes + times * len(packet) > self._kept_max:
            raise Misuse("more is kept than kept_bytes_max allows: ask `writable` before casting.")

    def urge(self) -> None:
        """With the next turn, peers are asked to acknowledge own casts without delay."""
        self.is_urged = True

    # Questions.

    @property
    def kept_bytes(self) -> int:
        """Of own packets, waiting or in flight."""
        return self.to_all.kept_bytes + self._sends_bytes

    def stream(self, kind: int, peer: Rank) -> Outflow:
        """The cast stream, or the unicast stream to a peer."""
        return self.to_one[peer] if kind & SEND else self.to_all

    def writable(self) -> bool:
        """Whether data may be cast. An empty window takes a packet of any size."""
        settings, kept, progress = self._settings, self.to_all.kept_bytes + self._sends_bytes, self._progress
        return (
            kept < min(settings.window_bytes, 2 * self.window.size)
            and self.packets_cast - progress.received_by_all[self._rank] < settings.window_packets
            and self.packets_cast < min(progress.room_until)
        ) or not self._peers

    def slowest(self) -> tuple[Rank, Slowness] | None:
        """Which peer holds the cast stream up most, and why; None if none does. What the own rate holds back is no peer's fault."""
        if not self._peers:
            return None
        progress, tries = self._progress, self._timing.tries
        room = min(self._peers, key=progress.room_until.__getitem__)
        if progress.room_until[room] <= self.packets_cast:
            return room, Slowness.ROOM
        acked, shown = progress.acked[self._rank], progress.shown[self._rank]
        last = min(self._peers, key=lambda peer: (acked[peer], shown[peer], -tries[peer]))
        if acked[last] >= self.to_all.sent and not self.to_all.waiting:
            last = max(self._peers, key=lambda peer: self.to_one[peer].flight_bytes)
            if not self.to_one[last].flight_bytes:
                return None
        return last, Slowness.SILENT if tries[last] else Slowness.BEHIND

    # Transmitting.

    def transmit(self, now: int, out: Datagrams) -> None:
        """What waits leaves, as far as window and rate let it pass."""
        if self.window.rate is not None:
            self.window.paced_until = NEVER
            self._transmit_in_turns(now, out)
            return
        if self.to_all.waiting or self.to_all.sent != self.to_all.end:
            self._transmit_casts(now, out)
        if self._busy:
            self._transmit_sends(now, out)

    def _transmit_in_turns(self, now: int, out: Datagrams) -> None:
        """Under a rate limit: what was held up comes first the next time, or casts would leave nothing for large unicasts."""
        window = self.window
        if self._busy and self._are_sends_next:
            before = len(out)
            self._transmit_sends(now, out)
            if window.paced_until != NEVER and len(out) == before:
                return  # it waits for its share, and casts wait for it
        self._transmit_casts(now, out)
        self._are_sends_next = window.paced_until != NEVER
        if self._busy and not self._are_sends_next:
            self._transmit_sends(now, out)
            self._are_sends_next = window.paced_until != NEVER

    def _transmit_casts(self, now: int, out: Datagrams) -> None:
        stream, window, acks = self.to_all, self.window, self._acks
        if stream.waiting:
            stream.pack()
        body = stream.admit(window, now)
        if body is None:
            return
        transmit = self._transmitter.transmit
        transmit(out, None, now, body, rows=acks.take_rows(now, self._space - len(body)), flags=self._flags(stream))
        while stream.sent != stream.end and (body := stream.admit(window, now)) is not None:
            transmit(out, None, now, body, flags=self._flags(stream))
        self.has_cast = True

    def _transmit_sends(self, now: int, out: Datagrams) -> None:
        for peer in list(self._busy):
            stream = self.to_one[peer]
            if stream.waiting:
                self._counters.packets_sent += len(stream.waiting)
                self._sends_bytes -= stream.kept_bytes
                stream.pack()
                self._sends_bytes += stream.kept_bytes
            rows: Sequence[bytes] = ()
            while (body := stream.admit(self.window, now)) is not None:
                rows = rows or self._acks.rows((peer,), now, peer)
                self._transmitter.transmit(out, peer, now, body, rows=rows, flags=self._flags(stream))
            self._expect((peer,), now)
            if stream.sent == stream.end:
                del self._busy[peer]

    def _flags(self, stream: Outflow) -> int:
        """A body that fills the window while others wait, or that a caller waits for, is acknowledged without delay."""
        if self.is_urged:
            return PUSH | AWAIT
        return PUSH if stream.sent != stream.end and stream.has_no_room(self.window) else 0

    def ask_for_acknowledgements(self, now: int, out: Datagrams) -> None:
        """Ask peers to acknowledge immediately: a caller is waiting for stability. A body of this turn has asked already."""
        self.is_urged = False
        if not any(to is None for to, _ in out):
            for peer in self._progress.behind(self._rank, self.packets_cast):
                self._transmitter.transmit(out, peer, now, rows=self._acks.rows((peer,), now, peer), flags=POLL | AWAIT)

    # Acknowledgements of it, and timers.

    def arm_timers(self, now: int) -> None:
        """End a turn that has cast: arm the timers that send unacknowledged bodies again."""
        self.has_cast = False
        self._expect(self._peers, now)

    def _expect(self, peers: Collection[Rank], now: int) -> None:
        due = self.due
        for peer in peers:
            if due[peer] == NEVER:
                self._arm(peer, now)

    def _arm(self, peer: Rank, now: int) -> None:
        self.due[peer] = now + self._timing.timeout(peer, self._doublings[peer])

    def acknowledged(self, peer: Rank, cast: int, send: int, shown: int, taken: int, now: int) -> None:
        """`peer` has so far `cast` and `send` bodies of my streams; of my casts it could show, and has taken in, these packets."""
        progress, own, stream = self._progress, self._rank, self.to_one[peer]
        cast_moves, send_moves = cast > progress.acked[own][peer], send > stream.base
        if progress.hear(own, peer, cast, shown, taken):
            self.window.grow(self.to_all.release(progress.acked_by_all[own]))
        if not cast_moves and not send_moves:
            return
        if send_moves:
            size = stream.release(send)
            self._sends_bytes -= size
            self.window.grow(size)
        self._doublings[peer] = 0
        cast_waits, send_waits = progress.acked[own][peer] < self.to_all.sent, stream.base < stream.sent
        if not cast_waits and not send_waits:
            self.due[peer] = NEVER
        elif cast_moves >= cast_waits and send_moves >= send_waits:  # a stream that stands still must not be put off
            self._arm(peer, now)

    def resend(self, now: int, out: Datagrams) -> None:
        """Timers ran out: send those peers the first body that they lack, of each stream. They ask for the rest."""
        for peer in self._peers:
            if self.due[peer] <= now:
                self._resend(peer, now, out)

    def _resend(self, peer: Rank, now: int, out: Datagrams) -> None:
        acked, stream = self._progress.acked[self._rank][peer], self.to_one[peer]
        if acked >= self.to_all.sent and stream.base >= stream.sent:
            self.due[peer] = NEVER
            return
        self._timing.tried(peer)
        self._doublings[peer] = min(self._doublings[peer] + 1, DOUBLINGS_MAX)
        self.window.shrink(now, self._timing.round_trip(peer))
        for flow, number in ((self.to_all, acked), (stream, stream.base)):
            if number < flow.sent:
                self._repeat(flow, number, peer, now, out)
                self._counters.resent += 1
        self._arm(peer, now)

    def answer(self, stream: Outflow, number: int, peer: Rank, now: int, out: Datagrams) -> None:
        """`peer` asked for a body: it was lost."""
        self.window.shrink(now, self._timing.round_trip(peer))
        self._repeat(stream, number, peer, now, out)

    def _repeat(self, stream: Outflow, number: int, peer: Rank, now: int, out: Datagrams) -> None:
        body, tries = stream.repeat(number)
        self.window.spend(len(body))
        self._transmitter.transmit(out, peer, now, body, tries, self._acks.rows((peer,), now, peer))
