"""What a datagram from a peer does. It is checked completely before anything of it counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from unisono.core.streams.inbound import NEVER, Inflow
from unisono.core.streams.questions import StreamQuestions
from unisono.core.streams.state import LOW
from unisono.core.types import Rank
from unisono.core.wire.envelope import (
    AWAIT,
    BODY,
    CAST,
    FLAGS_MAX,
    FRAGMENT,
    HEAD,
    KIND_MAX,
    NAK,
    NO_LIMIT,
    POLL,
    PUSH,
    ROW,
    SEND,
    SHARED_BYTES,
    TO_ALL,
    VERSION,
    Octets,
    Piece,
    Plain,
    Refusal,
    extend,
    take_piece,
    take_plain,
)

Row = tuple[Rank, int, int, int, int, int, int]
Nak = tuple[int, Rank, int, int]

REQUESTS_MAX = 1_024
"""So many requests are looked at a turn, of all peers together; the rest is asked again."""


class StreamIntake(StreamQuestions):
    """The receiving half of `Streams`."""

    __slots__ = ()

    def receive(self, sender: Rank, datagram: bytes | memoryview, now: int) -> None:
        """Take a datagram that the driver has from `sender`. What is wrong with it is counted in `counters.refused`."""
        refusal = self._receive(sender, datagram, now)
        if refusal is not None:
            self.counters.refused[refusal] += 1

    def _receive(self, sender: Rank, datagram: bytes | memoryview, now: int) -> Refusal | None:
        size = len(datagram)
        if size < HEAD.size:
            return Refusal.SHORT
        (version, flags, origin, to, view, counter, tries, naks, rows, body_bytes, room, cast_end, send_end) = (
            HEAD.unpack_from(datagram)
        )
        if version != VERSION or flags > FLAGS_MAX:
            return Refusal.VERSION
        if origin != sender or sender == self._rank or sender >= self._members:
            return Refusal.SENDER
        if view != self._view:
            return Refusal.VIEW
        if to != TO_ALL and to != self._rank:
            return Refusal.ADDRESSEE
        rows_end = HEAD.size + rows * ROW.size
        naks_end = rows_end + naks * NAK.size
        if size != naks_end + body_bytes:
            return Refusal.LENGTH
        replay = self._replay[sender]
        is_next = 0 < counter - replay.highest <= replay.LEAP_MAX  # as it mostly is
        if not is_next and not replay.fresh(counter):
            return Refusal.REPLAYED

        # Check every part before using any.
        acknowledged: list[Row] = []
        requested: list[Nak] = []
        parsed: Plain | Piece | None = None
        body: Octets = b""
        if rows:
            checked = self._check_rows(sender, datagram[HEAD.size : rows_end])
            if isinstance(checked, Refusal):
                return checked
            acknowledged = checked
        if naks:
            asked = self._check_naks(sender, datagram[rows_end:naks_end])
            if isinstance(asked, Refusal):
                return asked
            requested = asked
        if body_bytes:
            body = datagram[naks_end:]
            if body_bytes < SHARED_BYTES or not isinstance(body, memoryview) or not body.readonly:
                body = bytes(body)
            taken_apart = self._check_body(sender, body)
            if isinstance(taken_apart, Refusal):
                return taken_apart
            parsed = taken_apart

        # It is authentic and well-formed.
        replay.add(counter)
        self.counters.datagrams_received += 1
        self.counters.bytes_received += size
        self._tries[sender] = 0
        if parsed is not None or requested or flags & POLL:  # what causes an answer is measured
            if counter > self._echo[sender]:
                self._echo[sender] = counter
                self._echo_at[sender] = now
            if flags & POLL:
                self._polled[sender] = None
            if flags & PUSH:
                self._ack_ones[sender] = now
            if flags & AWAIT:
                self._prompted[sender] = now + self._settings.ack_delay_ns
        if acknowledged:
            self._apply_rows(sender, acknowledged, now)
        if counter > self._newest[sender]:
            self._newest[sender] = counter
            self._room_until[sender] = NEVER if room == NO_LIMIT else self._shown[self._rank][sender] + room
        if requested:
            self.counters.naks_received += len(requested)
            for kind, wanted, first, count in requested[: REQUESTS_MAX - len(self._requests)]:
                self._requests.append((sender, kind, wanted, first, count))
        refusal = self._offer(sender, body, parsed, tries, now) if parsed is not None else None
        inflow = self._casts[sender]
        if cast_end != inflow.known & LOW:
            self._hear_end(inflow, cast_end, now)
        if to != TO_ALL:
            self._hear_end(self._receives[sender], send_end, now)
        return refusal

    # Checks.

    def _check_rows(self, sender: Rank, table: bytes | memoryview) -> list[Row] | Refusal:
        if len(table) > ROW.size * (self._members - 1):
            return Refusal.COUNT
        own = self._rank
        result: list[Row] = []
        for origin, cast, send, arrived, taken, echo, delay in ROW.iter_unpack(table):
            if origin >= self._members or origin == sender:
                return Refusal.RANK
            cast = extend(cast, self._acked[origin][sender])
            arrived = extend(arrived, self._shown[origin][sender])
            taken = extend(taken, self._taken[origin][sender])
            if origin == own:  # the numbers of the stream to the sender mean something to me alone
                stream = self._sends[sender]
                send = extend(send, stream.base)
                if send > stream.sent or cast > self._cast.sent or arrived > self.packets_cast:
                    return Refusal.FORGED
            if taken > arrived:
                return Refusal.FORGED
            result.append((origin, cast, send, arrived, taken, echo, delay))
        return result

    def _check_naks(self, sender: Rank, table: bytes | memoryview) -> list[Nak] | Refusal:
        result: list[Nak] = []
        for origin, kind, first, count in NAK.iter_unpack(table):
            if origin >= self._members or origin == sender or kind > SEND or (kind == SEND and origin != self._rank):
                return Refusal.RANK
            if origin == self._rank:
                stream = self._cast if kind == CAST else self._sends[sender]
                first = extend(first, stream.base)
                if first + count > stream.sent:
                    return Refusal.FORGED
            else:
                first = extend(first, self._casts[origin].next)
            if not count:
                return Refusal.COUNT
            result.append((kind, origin, first, count))
        return result

    def _check_body(self, sender: Rank, body: Octets) -> Plain | Piece | Refusal:
        """Take a body apart."""
        if len(body) <= BODY.size:
            return Refusal.BODY
        kind, origin, _, count, marks = BODY.unpack_from(body)
        if kind > KIND_MAX:
            return Refusal.BODY
        if origin >= self._members or origin == self._rank or (kind & SEND and origin != sender):
            return Refusal.RANK
        if kind & FRAGMENT:
            return take_piece(body, count, marks, self._piece_max) or Refusal.BODY
        return take_plain(body, count, marks, self._settings.packets_per_datagram_max) or Refusal.BODY

    # Acknowledgements.

    def _apply_rows(self, sender: Rank, rows: list[Row], now: int) -> None:
        own = self._rank
        for origin, cast, send, arrived, taken, echo, delay in rows:
            self._raise(self._shown, self.stable, origin, sender, arrived)
            self._raise(self._taken, self.taken_by_all, origin, sender, taken)
            if origin == own:
                self._sample(sender, echo, delay, now)
                self._acknowledged(sender, cast, send, now)
            else:
                self._advance(origin, sender, cast)
                if cast > self._casts[origin].next:
                    self._hear_rumour(self._casts[origin], cast, now)

    def _hear_rumour(self, inflow: Inflow, end: int, now: int) -> None:
        """Someone says that it has more of a stream than is here."""
        if end > inflow.known and end > inflow.rumour:
            inflow.rumour = end
            if inflow.rumour_at == NEVER:
                inflow.rumour_at = now + self._timeout(inflow.origin, 0)
                self._gapped[inflow] = None
        elif inflow.ask_at == NEVER and inflow.asks >= self._settings.nak_tries_max:
            inflow.asks -= 1  # asking had ended: try once more
            inflow.ask_at = now + self._timeout(inflow.origin, 0)

    def _advance(self, origin: Rank, peer: Rank, number: int) -> None:
        """`peer` has so many bodies of another's cast stream; what all have need not be kept any more."""
        row = self._acked[origin]
        old = row[peer]
        if number > old:
            row[peer] = number
            inflow = self._casts[origin]
            if old == inflow.kept_base and (least := min(row)) > old:
                inflow.release(least)

    def _acknowledged(self, peer: Rank, cast: int, send: int, now: int) -> None:
        """`peer` has so many bodies of my streams."""
        row = self._acked[self._rank]
        old = row[peer]
        stream = self._sends[peer]
        cast_moves, send_moves = cast > old, send > stream.base
        if not cast_moves and not send_moves:
            return
        if cast_moves:
            row[peer] = cast
            if old == self._cast.base:
                self._window.grow(self._cast.release(min(row)))
        if send_moves:
            size = stream.release(send)
            self._sends_bytes -= size
            self._window.grow(size)
        self._doublings[peer] = 0
        cast_waits, send_waits = row[peer] < self._cast.sent, stream.base < stream.sent
        if not cast_waits and not send_waits:
            self._due[peer] = NEVER
        elif cast_moves >= cast_waits and send_moves >= send_waits:  # a stream that stands still must not be put off
            self._arm(peer, now)

    # Bodies.

    def _hear_end(self, inflow: Inflow, end: int, now: int) -> None:
        """The head of a datagram says how many bodies its sender has sent on one stream."""
        end = extend(end, inflow.next)
        if end > inflow.known:
            self._learn(inflow, end, now)

    def _learn(self, inflow: Inflow, end: int, now: int) -> None:
        """The stream has so many bodies. What of them is not here is a gap, and is asked for."""
        inflow.learn(end)
        if inflow.next < inflow.known:
            self._gapped[inflow] = None
            if inflow.fresh_at == NEVER:
                inflow.fresh_at = now + self._settings.nak_delay_ns + inflow.patience
                inflow.fresh_to = inflow.known

    def _offer(self, sender: Rank, body: Octets, parsed: Plain | Piece, tries: int, now: int) -> Refusal | None:
        """Put a well-formed body where it belongs: next in its stream, behind a gap, or nowhere."""
        kind, origin, low, _, _ = BODY.unpack_from(body)
        inflow = self._receives[origin] if kind & SEND else self._casts[origin]
        seq = extend(low, inflow.next)
        if seq < inflow.next or (seq in inflow.ahead and seq > inflow.next):
            self.counters.duplicates += 1
            self._owe(kind, origin, now)  # its acknowledgement was lost, or late
            return None
        if seq < inflow.asked:
            if tries:
                inflow.came_again()
            else:
                inflow.came_late(self._round_trip(origin))
        elif origin != sender:
            return Refusal.UNASKED
        if origin != sender:
            self.relayed.add(origin)
        if seq > inflow.next:
            if not inflow.hold(seq, body):
                return Refusal.AHEAD
            self._learn(inflow, seq + 1, now)
            self._owe(kind, origin, now + self._settings.ack_delay_ns)
            return None
        refusal = self._take(inflow, body, parsed)
        if refusal is not None:
            return refusal
        self._unacked += 1
        self._unacked_bytes += len(body)
        if inflow.ahead:
            self._take_ahead(inflow)
        if inflow.known < inflow.next:
            inflow.known = inflow.next
        inflow.asks = 0
        settings = self._settings
        late = tries or self._unacked >= settings.ack_datagrams_max or self._unacked_bytes >= settings.ack_bytes_max
        self._owe(kind, origin, now if late else now + settings.ack_delay_ns)
        return None

    def _take_ahead(self, inflow: Inflow) -> None:
        """A gap has closed: what waited behind it follows. What finds no room stays, and its resend tries again."""
        inflow.drop_held(inflow.next - 1)
        while (body := inflow.ahead.get(inflow.next)) is not None:
            parsed = self._check_body(inflow.origin, body)
            assert not isinstance(parsed, Refusal), "it was checked when it came"
            if self._take(inflow, body, parsed) is not None:
                break
            inflow.drop_held(inflow.next - 1)

    def _take(self, inflow: Inflow, body: Octets, parsed: Plain | Piece) -> Refusal | None:
        """The next body of a stream: keep it for others, show its packets."""
        origin, sending = inflow.origin, inflow.kind == SEND
        join = self._joins[origin]
        if isinstance(parsed, Piece):
            marked = parsed.marked and not parsed.offset
            if not inflow.admits(parsed):
                return Refusal.MEMORY
        else:
            marked = bool(parsed.marks)
        is_idle = join.idle
        if not is_idle and ((marked and not join.admits_full()) if sending else not join.admits_cast()):
            return Refusal.MEMORY

        if not sending and self._members > 2 and not inflow.keep(body):
            self.counters.unkept += 1
        inflow.next += 1
        if not sending:
            self._advance(origin, self._rank, inflow.next)
        if isinstance(parsed, Piece):
            whole = inflow.assemble(parsed)
            if whole is None:
                return None
            if isinstance(whole, Refusal):
                self.counters.refused[whole] += 1
                self.broken.add(origin)
                return None
            parsed = whole
        elif inflow.got and inflow.abandon():
            self.counters.refused[Refusal.FRAGMENT] += 1
            self.broken.add(origin)
        if sending:
            self._show_sent(origin, parsed)
        elif parsed.marks or not is_idle:
            self._show_joined(origin, join.cast(parsed.packets, parsed.marks))
        else:
            join.shown += len(parsed.packets)
            self._show(origin, parsed.packets)
        return None

    def _show_sent(self, origin: Rank, plain: Plain) -> None:
        packets, marks = plain
        if not marks:
            self._show(origin, packets)
            return
        marked = frozenset(marks)
        for i, packet in enumerate(packets):
            if i in marked:
                self._show_joined(origin, self._joins[origin].full(packet))
            else:
                self._show(origin, (packet,))

    def _show_joined(self, origin: Rank, shown: tuple[list[Octets], int]) -> None:
        packets, faults = shown
        if faults:
            self.counters.refused[Refusal.PART] += faults
            self.broken.add(origin)
        if packets:
            self._show(origin, packets)

    def _show(self, origin: Rank, packets: Sequence[Octets]) -> None:
        self.arrivals.extend(zip(repeat(origin), packets))
        self.counters.packets_received += len(packets)
        shown = self._joins[origin].shown
        if shown > self._own_shown[origin]:
            self._own_shown[origin] = shown
            self._raise(self._shown, self.stable, origin, self._rank, shown)
            self._dirty[origin] = self._untaken[origin] = None
