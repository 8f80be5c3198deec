"""Reliable streams below the orderings: all streams of ONE member in ONE view.

Each member has one cast stream, to all others, and one unicast stream for each peer. What goes in as packets comes out at the
others exactly once and in order per stream. `seq` counts the *bodies* of a stream from 0: datagrams' worth of packets.

How loss heals, fastest first:

1. A receiver sees a gap, because of a later body or because the head of any datagram says how far its sender is. It asks for
   all gaps at once (NAK), first the origin, later whoever says that it holds them. Where bodies come late rather than not at
   all, it learns to wait a little before it asks (`Inflow.patience`).
2. The tail of a stream is lost, and nothing follows: the sender's timer for that peer sends the first unacknowledged body
   again. Its head says how far the stream goes, so one resend makes the receiver ask for the rest.
3. An acknowledgement to a *third* member is lost. Nobody resends to it. But it sees that a packet does not get stable, and
   polls the members whose acknowledgements it lacks. Without loss no poll is sent.

Invariants:

I1  Nothing is sent for ever: every timer stops when what it waits for has come (`deadline` is None then).
I2  A datagram that is refused changes nothing. If only its body finds no room, its envelope still counts.
I3  Acknowledgements, requests and polls are never held up by window or rate.
I4  A number acknowledged never exceeds a number sent.

Deviations from paper 001: acknowledgements are cumulative and go to all; they name the datagram that caused them, so that a resent
body may be measured too, and Karn's rule is kept because no sample is ambiguous; the number of tries is only reported
(`silent_tries`), and membership decides.
"""

from __future__ import annotations

from collections.abc import Collection

from unisono.core.errors import Misuse
from unisono.core.streams.inbound import NEVER, Inflow
from unisono.core.streams.intake import StreamIntake
from unisono.core.streams.outbound import Outflow
from unisono.core.streams.state import DOUBLINGS_MAX, LOW, Datagrams
from unisono.core.types import Rank
from unisono.core.wire.envelope import (
    AWAIT,
    NAK,
    NAKS_MAX,
    NO_LIMIT,
    POLL,
    PUSH,
    ROW,
    SEND,
    Octets,
    mark_full,
    mark_header,
)

_ASKS_OF_ORIGIN = 2  # so often the origin is asked before other holders are
_LOOKED_AT_MAX = 2_048  # so many bodies are looked at for one peer's requests a turn


class Streams(StreamIntake):
    """See the module's text. A turn is any number of inputs, `arrived`, and one `drain`."""

    __slots__ = ()

    # Sending. These never refuse: ask `writable` before data is cast. What a protocol must say is not data.

    def cast(self, packet: bytes) -> None:
        """One encoded packet for every other member."""
        stream, size = self._cast, len(packet)
        if not 0 < size <= self._packet_max or stream.kept_bytes + self._sends_bytes + size > self._kept_max:
            self._demand(packet)
        self.packets_cast += 1
        if self._peers:  # the one call that is made for every packet: `put`, written out
            stream.waiting.append(packet)
            stream.waiting_bytes += size
            stream.kept_bytes += size

    def cast_parts(self, header: bytes, full: bytes, to: Collection[Rank]) -> None:
        """One packet whose addressees get `full`, and everyone else gets `header`, at the same place of the cast stream."""
        addressees = tuple(sorted(set(to)))
        if addressees and not 0 <= addressees[0] <= addressees[-1] < self._members:
            raise Misuse(f"addressees {addressees} are not all in a view of {self._members} members.")
        self._demand(header)
        self._demand(full, max(len(addressees), 1))  # before anything is queued: half a cast would block its stream
        half = mark_full(full, self.packets_cast)
        self.packets_cast += 1
        if self._peers:
            self._cast.put_marked(mark_header(header, addressees))
        for rank in addressees:
            if rank != self._rank:
                self._sends[rank].put_marked(half)
                self._sends_bytes += len(half)
                self._busy[rank] = None

    def send(self, to: Rank, packet: bytes) -> None:
        """One encoded packet for one member."""
        if to == self._rank or not 0 <= to < self._members:
            raise Misuse(f"rank {to} is not another member's rank in a view of {self._members}.")
        self._demand(packet)
        self._sends[to].put(packet)
        self._sends_bytes += len(packet)
        self._busy[to] = None

    def _demand(self, packet: bytes, times: int = 1) -> None:
        if not 0 < len(packet) <= self._packet_max:
            raise Misuse(f"a packet of {len(packet)} bytes cannot travel: 1 to {self._packet_max} can.")
        if self._cast.kept_bytes + self._sends_bytes + times * len(packet) > self._kept_max:
            raise Misuse("more is kept than kept_bytes_max allows: ask `writable` before casting.")

    # Receiving: `receive` is in StreamIntake. What may be asked: StreamQuestions.

    def arrived(self) -> list[tuple[Rank, Octets]]:
        """The packets since the last call: in order per stream, each exactly once."""
        arrived, self.arrivals = self.arrivals, []
        return arrived

    def take_all(self, untrusted: Collection[Rank] = ()) -> None:
        """The ordering here has taken in all that has arrived, but for untrusted origins: others must keep their packets for it.

        Own packets it takes in when they are cast."""
        self._has_taken = self._has_taken or bool(self._untaken)
        for origin in self._untaken:
            if untrusted and origin in untrusted:
                continue
            self._own_taken[origin] = count = self._own_shown[origin]
            self._raise(self._taken, self.taken_by_all, origin, self._rank, count)
            self._dirty[origin] = None
        self._untaken.clear()
        if not self._peers:
            self.taken_by_all[self._rank] = self.packets_cast

    def set_free_room(self, packets: int | None) -> None:
        """How many packets of *each* origin the holdback and the application can still take; None: any number.

        The others keep to it when they cast data. It is not enforced here: a packet that would free the holdback must get in.
        """
        self._room = NO_LIMIT if packets is None else max(0, min(packets, NO_LIMIT - 1))

    def announce(self) -> None:
        """Tell all members everything with the next drain: a heartbeat."""
        self._announce = True

    def hurry(self) -> None:
        """Somebody waits for what this member has taken in: the next acknowledgement does not wait for company."""
        if self._dirty:
            self._ack_at = 0

    def urge(self) -> None:
        """Somebody waits until own casts are stable: with the next drain all are asked to acknowledge them without delay."""
        self._is_urged = True

    # The end of a turn.

    def drain(self, now: int) -> Datagrams:
        """Everything that must leave now, control first. None as an addressee means all others."""
        out = self.act(now)
        self.settle(now)
        return out

    def act(self, now: int) -> Datagrams:
        """The half of `drain` that somebody waits for. `settle` must follow before anything else comes in."""
        out: Datagrams = []
        own = self._rank
        if self._own_shown[own] != self.packets_cast:
            self.counters.packets_sent += self.packets_cast - self._own_shown[own]
            self._own_shown[own] = self._own_taken[own] = self.packets_cast
            if not self._peers:
                self.stable[own] = self.taken_by_all[own] = self.packets_cast
        if self._gapped:
            self._ask(now, out)
        for peer in self._polled:
            self._tell(out, peer, now)
        self._polled.clear()
        if min(self._due) <= now:
            for peer in self._peers:
                if self._due[peer] <= now:
                    self._resend(peer, now, out)
        if self._requests:
            self._answer(now, out)
        if self._poll_at <= now:
            self._poll(now, out)
        self._paced_until = NEVER
        if self._window.rate is None:
            self._transmit_casts(now, out)
            if self._busy:
                self._transmit_sends(now, out)
        else:
            self._transmit_in_turns(now, out)
        if self._is_urged:
            self._ask_for_acknowledgements(now, out)
        if self._dirty or self._ack_ones or self._announce or self._room != self._room_told or self._ack_at <= now:
            self._acknowledge(now, out)
        return out

    def settle(self, now: int) -> None:
        """The other half: look after what is not stable, and see when something is due."""
        if self._has_cast:
            self._has_cast = False
            self._expect(self._peers, now)
        self._watch_stability(now)
        self._set_deadline()

    # Data.

    def _transmit_in_turns(self, now: int, out: Datagrams) -> None:
        """Under a rate limit: what was held up comes first the next time, or casts would leave nothing for large unicasts."""
        if self._busy and self._are_sends_next:
            before = len(out)
            self._transmit_sends(now, out)
            if self._paced_until != NEVER and len(out) == before:
                return  # it waits for its share, and casts wait for it
        self._transmit_casts(now, out)
        self._are_sends_next = self._paced_until != NEVER
        if self._busy and not self._are_sends_next:
            self._transmit_sends(now, out)
            self._are_sends_next = self._paced_until != NEVER

    def _transmit_casts(self, now: int, out: Datagrams) -> None:
        stream = self._cast
        if stream.waiting:
            stream.pack()
        if stream.sent == stream.end:
            return
        body = self._admit(stream, now)
        if body is None:
            return
        rows = self._changed_rows(now)
        if len(rows) * ROW.size + len(body) <= self._space:
            self._emit(out, None, now, body, rows=rows, flags=self._push(stream))
            self._settle()
        else:  # the acknowledgements of a large view go alone
            self._emit(out, None, now, body, flags=self._push(stream))
        while stream.sent != stream.end and (body := self._admit(stream, now)) is not None:
            self._emit(out, None, now, body, flags=self._push(stream))
        self._has_cast = True

    def _transmit_sends(self, now: int, out: Datagrams) -> None:
        for peer in list(self._busy):
            stream = self._sends[peer]
            if stream.waiting:
                self.counters.packets_sent += len(stream.waiting)
                self._sends_bytes -= stream.kept_bytes
                stream.pack()
                self._sends_bytes += stream.kept_bytes
            rows = self._rows((peer,), now)
            while (body := self._admit(stream, now)) is not None:
                self._emit(out, peer, now, body, rows=rows, flags=self._push(stream))
            self._expect((peer,), now)
            if stream.sent == stream.end:
                del self._busy[peer]

    def _admit(self, stream: Outflow, now: int) -> bytes | None:
        """The next body, if window and rate let it pass; it counts as sent. An empty window takes any."""
        place = stream.sent - stream.base
        if place == len(stream.bodies):
            return None
        body, window = stream.bodies[place], self._window
        size = len(body)
        if stream.flight_bytes and stream.flight_bytes + size > window.size:
            return None
        if window.rate is not None:
            if not window.affords(size, now):
                self._paced_until = min(self._paced_until, window.affordable_at(size))
                return None
            window.spend(size)
        stream.flight_bytes += size
        stream.tries[place] = 1
        stream.sent += 1
        return body

    def _push(self, stream: Outflow) -> int:
        """The flag of a body that fills the window while others wait: no delay of its acknowledgement."""
        if self._is_urged:
            return PUSH | AWAIT
        place = stream.sent - stream.base
        if place == len(stream.bodies) or stream.flight_bytes + len(stream.bodies[place]) <= self._window.size:
            return 0
        return PUSH

    def _expect(self, peers: Collection[Rank], now: int) -> None:
        """Something was sent: these peers will acknowledge it, or a timer runs out."""
        for peer in peers:
            if self._due[peer] == NEVER:
                self._arm(peer, now)

    # Resending.

    def _resend(self, peer: Rank, now: int, out: Datagrams) -> None:
        """The timer of a peer ran out: send it the first body that it lacks, of each stream. It asks for the rest."""
        if not self._owes_me(peer):
            self._due[peer] = NEVER
            return
        self._tries[peer] += 1
        self._doublings[peer] = min(self._doublings[peer] + 1, DOUBLINGS_MAX)
        self._window.shrink(now, self._round_trip(peer))
        for stream, number in (
            (self._cast, self._acked[self._rank][peer]),
            (self._sends[peer], self._sends[peer].base),
        ):
            if number < stream.sent:
                self._repeat(stream, number, peer, now, out)
                self.counters.resent += 1
        self._arm(peer, now)

    def _repeat(self, stream: Outflow, number: int, peer: Rank, now: int, out: Datagrams) -> None:
        place = number - stream.base
        body = stream.bodies[place]
        self._window.spend(len(body))
        self._emit(out, peer, now, body, stream.tries[place], self._rows((peer,), now))
        stream.tries[place] += 1

    def _answer(self, now: int, out: Datagrams) -> None:
        """Send what was asked for, as far as it is here and was not sent to that peer a moment ago."""
        requests, self._requests = self._requests, []
        bytes_max = self._settings.answer_bytes_max
        looked_at: dict[Rank, int] = {}
        for peer, kind, origin, first, count in requests:
            own = origin == self._rank
            stream = self._sends[peer] if kind == SEND else self._cast
            inflow = self._casts[origin]
            base, bodies = (stream.base, stream.bodies) if own else (inflow.kept_base, inflow.kept)
            stop = stream.sent if own else base + len(bodies)
            answers, round_trip = self._answers[peer], self._round_trip(peer)
            looked = looked_at.get(peer, 0)
            start = max(first, base)
            stop = min(first + count, stop, start + _LOOKED_AT_MAX - looked)
            looked_at[peer] = looked + max(0, stop - start)
            for number in range(start, stop):
                body = bodies[number - base]
                if not answers.admits((origin, kind, number), len(body), now, round_trip, bytes_max):
                    self.counters.answers_denied += 1
                    continue
                self.counters.answers += 1
                if own:
                    self._window.shrink(now, round_trip)
                    self._repeat(stream, number, peer, now, out)
                else:
                    self._emit(out, peer, now, body, 1, self._rows((peer,), now))

    # Asking.

    def _ask(self, now: int, out: Datagrams) -> None:
        """Ask for new gaps at once (or after `patience`), again when the answer is overdue; so often and no more."""
        for inflow in list(self._gapped):
            if inflow.rumour_at <= now:
                inflow.rumour_at = NEVER
                self._learn(inflow, inflow.rumour, now)
            if inflow.next >= inflow.known:
                inflow.asks, inflow.fresh_at, inflow.ask_at = 0, NEVER, NEVER
                if inflow.rumour <= inflow.next:
                    inflow.rumour_at = NEVER
                if inflow.rumour_at == NEVER:
                    del self._gapped[inflow]
                continue
            target = self._holder(inflow)
            if inflow.ask_at <= now:
                self._request(inflow, inflow.next, inflow.asked, target, now, out)
                inflow.asks += 1
                inflow.turn += 1
                inflow.ask_at = NEVER
            if inflow.fresh_at <= now:
                delay = self._settings.nak_delay_ns + inflow.patience
                stop = inflow.fresh_to if delay else inflow.known
                self._request(inflow, inflow.asked, stop, target, now, out)
                inflow.asked = max(inflow.asked, stop)
                inflow.fresh_to = inflow.known  # younger gaps get their own time
                inflow.fresh_at = now + delay if inflow.asked < inflow.known else NEVER
            if inflow.ask_at == NEVER and inflow.asked > inflow.next and inflow.asks < self._settings.nak_tries_max:
                inflow.ask_at = now + self._timeout(target, inflow.asks)

    def _holder(self, inflow: Inflow) -> Rank:
        """Whom to ask: the origin, and after that in turn whoever says that it has what comes next, unless it is silent."""
        origin, tries = inflow.origin, self._tries
        if inflow.kind == SEND or (inflow.asks < _ASKS_OF_ORIGIN and tries[origin] < _ASKS_OF_ORIGIN):
            return origin
        row = self._acked[origin]
        holders = [peer for peer in self._peers if row[peer] > inflow.next and tries[peer] < _ASKS_OF_ORIGIN]
        return holders[inflow.turn % len(holders)] if holders else origin

    def _request(self, inflow: Inflow, start: int, stop: int, target: Rank, now: int, out: Datagrams) -> None:
        gaps = inflow.gaps(start, stop)
        self.counters.naks_sent += len(gaps)
        most = min(NAKS_MAX, (self._space - ROW.size) // NAK.size)
        for i in range(0, len(gaps), most):
            naks = [NAK.pack(inflow.origin, inflow.kind, first & LOW, count) for first, count in gaps[i : i + most]]
            self._emit(out, target, now, rows=self._rows((target,), now), naks=naks)

    def _poll(self, now: int, out: Datagrams) -> None:
        """Something does not get stable: ask those whose acknowledgements are missing here."""
        self._poll_at = NEVER
        laggards = [peer for peer in self._peers if self._lags(peer)]
        self._poll_doublings = min(self._poll_doublings + 1, DOUBLINGS_MAX) if laggards else 0
        for peer in laggards:
            self._tries[peer] += 1
            self.counters.polls_sent += 1
            rows = self._rows(dict.fromkeys((peer, *self._peers)), now)[: self._rows_max]
            self._emit(out, peer, now, rows=rows, flags=POLL)  # who lacks something learns here that I have it

    def _ask_for_acknowledgements(self, now: int, out: Datagrams) -> None:
        """Somebody waits. A body that leaves in this turn has asked already."""
        self._is_urged = False
        if not any(to is None for to, _ in out):
            for peer in self.behind(self._rank, self.packets_cast):
                self._emit(out, peer, now, rows=self._rows((peer,), now), flags=POLL | AWAIT)

    def _lags(self, peer: Rank) -> bool:
        """Whether `peer` has not told that it has, and has taken in, what was here when the watch began."""
        shown, taken = self._watched
        return self._room_until[peer] <= self.packets_cast or any(
            self._shown[origin][peer] < shown[origin] or self._taken[origin][peer] < taken[origin]
            for origin in range(self._members)
        )

    def _watch_stability(self, now: int) -> None:
        if (
            self.stable == self._own_shown
            and self.taken_by_all == self._own_taken
            and min(self._room_until) > self.packets_cast
        ):
            self._poll_at = NEVER
            self._poll_doublings = 0
        elif self._poll_at == NEVER:  # what is here now should be stable by then, whatever else comes meanwhile
            self._watched = (self._own_shown.copy(), self._own_taken.copy())
            self._poll_at = now + 2 * max(self._timeout(peer, self._poll_doublings) for peer in self._peers)

    # Acknowledging.

    def _acknowledge(self, now: int, out: Datagrams) -> None:
        """Tell all how far I am, unless a cast of this turn has, or there is time to wait for one."""
        room, told = self._room, self._room_told
        if room > told and told < self._settings.window_packets:  # someone may wait for it
            self._ack_at = min(self._ack_at, now + (self._settings.ack_delay_ns if told else 0))
        if self._dirty and self._ack_at == NEVER:
            self._ack_at = now + self._settings.ack_delay_ns
        if not self._peers or (self._ack_at > now and not self._announce):
            if self._prompted and self._has_taken:
                self._tell_prompted(now, out)
            if self._ack_ones:
                for peer in [peer for peer, due in self._ack_ones.items() if due <= now]:
                    self._emit(out, peer, now, rows=self._rows((peer,), now))
                    self.counters.acks_alone += 1
            return
        alone: Datagrams = []
        self._tell(alone, None, now)
        self.counters.acks_alone += len(alone)
        out[:0] = alone
        self._settle()

    def _tell_prompted(self, now: int, out: Datagrams) -> None:
        """Tell peers that asked a moment ago what was taken in since: it may be what they wait for to be stable."""
        self._has_taken = False
        self._prompted = {peer: until for peer, until in self._prompted.items() if until > now}
        for peer in self._prompted:
            self._ack_ones.pop(peer, None)
            self._emit(out, peer, now, rows=self._rows(dict.fromkeys((peer, *self._dirty)), now)[: self._rows_max])
            self.counters.acks_alone += 1

    def _tell(self, out: Datagrams, to: Rank | None, now: int) -> None:
        """Rows in datagrams of their own: the changed ones to all, or every row."""
        rows = self._rows(self._peers, now) if self._announce or to is not None else self._changed_rows(now)
        for i in range(0, max(len(rows), 1), self._rows_max):
            self._emit(out, to, now, rows=rows[i : i + self._rows_max])

    def _changed_rows(self, now: int) -> list[bytes]:
        self._dirty.update(dict.fromkeys(self._ack_ones))
        return self._rows(self._dirty, now) if self._dirty else []

    def _settle(self) -> None:
        """All have been told."""
        self._dirty.clear()
        self._ack_ones.clear()
        self._has_taken = False
        self._unacked = self._unacked_bytes = 0
        self._ack_at = NEVER
        self._room_told = self._room
        self._announce = False

    def _set_deadline(self) -> None:
        due = min(self._ack_at, self._poll_at, self._paced_until, *self._due, *self._ack_ones.values())
        for inflow in self._gapped:
            due = min(due, inflow.ask_at, inflow.fresh_at, inflow.rumour_at)
        self.deadline = None if due == NEVER else due
