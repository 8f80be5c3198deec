"""Incoming bodies: taken in order, kept behind a gap, or dropped, so that packets come out once and in order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from unisono.core.streams.acknowledging import Acknowledging
from unisono.core.streams.gaps import Gaps
from unisono.core.streams.inflow import Inflow
from unisono.core.streams.join import Join
from unisono.core.streams.shared import StreamParts
from unisono.core.types import Rank
from unisono.core.wire import Octets, Refusal
from unisono.core.wire.envelope import BODY, FRAGMENT, KIND_MAX, LOW, SEND, Piece, Plain, extend, take_piece, take_plain


class Inbound:
    """The cast stream of each origin, its unicast stream to this member, and the joint of both."""

    def __init__(self, shared: StreamParts, acks: Acknowledging, gaps: Gaps) -> None:
        settings = self._settings = shared.settings
        rank = self._rank = shared.rank
        members = self._members = len(shared.casts)
        self._piece_max = settings.packet_bytes_max + 2 + 2 * members  # with the addressees of a marked packet
        self.casts = shared.casts
        """By origin: its cast stream."""
        self.receives = shared.receives
        """By origin: its unicast stream to this member."""
        self._joins = [Join(rank, members, settings.ahead_bytes_max, settings.numbering_first) for _ in range(members)]
        self._progress = shared.progress
        self._timing = shared.timing
        self._acks = acks
        self._gaps = gaps
        self._counters = shared.counters
        self.arrivals: list[tuple[Rank, Octets]] = []
        """What `arrived` returns next."""
        self.relayed: set[Rank] = set()
        """Origins of whose cast stream another member has handed on a part. What came in it need not be theirs."""
        self.broken: set[Rank] = set()
        """Origins whose bodies were taken in and hold something that is no packet, so that what follows is incomplete."""

    def arrived(self) -> list[tuple[Rank, Octets]]:
        """The packets since the last call: in order per stream, each exactly once."""
        arrived = self.arrivals.copy()
        self.arrivals.clear()  # the list stays the same: `Streams` shows it
        return arrived

    def waiting_for_halves(self, origin: Rank) -> int:
        """How many bytes of an origin's packets wait for their other half."""
        return self._joins[origin].held_bytes

    def take_apart(self, sender: Rank, body: Octets) -> Plain | Piece | Refusal:
        """Check a body completely. Changes nothing."""
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

    def offer(self, sender: Rank, body: Octets, parsed: Plain | Piece, tries: int, now: int) -> Refusal | None:
        """Put a well-formed body where it belongs: next in its stream, behind a gap, or nowhere."""
        kind, origin, low, _, _ = BODY.unpack_from(body)
        inflow = self.receives[origin] if kind & SEND else self.casts[origin]
        number = inflow.next
        seq = number if low == number & LOW else extend(low, number)
        if seq < number or (seq in inflow.ahead and seq > number):
            self._counters.duplicates += 1
            self._acks.owe(kind, origin, now)  # its acknowledgement was lost, or late
            return None
        if seq < inflow.asked:
            if tries:
                inflow.came_again()
            else:
                inflow.came_late(self._timing.round_trip(origin))
        elif origin != sender:
            return Refusal.UNASKED
        if origin != sender:
            self.relayed.add(origin)
        if seq > number:
            if not inflow.hold(seq, body):
                return Refusal.AHEAD
            self._gaps.learn(inflow, seq + 1, now)
            self._acks.owe(kind, origin, now + self._settings.ack_delay_ns)
            return None
        refusal = self._take(inflow, body, parsed)
        if refusal is not None:
            return refusal
        if inflow.ahead:
            self._take_ahead(inflow)
        self._acks.owe_next(kind, origin, len(body), tries, now)
        return None

    def _take_ahead(self, inflow: Inflow) -> None:
        """A gap has closed: what waited behind it follows. What finds no room stays, and its resend tries again."""
        inflow.drop_held(inflow.next - 1)
        while (body := inflow.ahead.get(inflow.next)) is not None:
            parsed = self.take_apart(inflow.origin, body)
            assert not isinstance(parsed, Refusal), "it was checked when it came"
            if self._take(inflow, body, parsed) is not None:
                break
            inflow.drop_held(inflow.next - 1)

    def _take(self, inflow: Inflow, body: Octets, parsed: Plain | Piece) -> Refusal | None:
        """The next body of a stream: keep it for others, show its packets."""
        origin, sending = inflow.origin, inflow.kind == SEND
        join = self._joins[origin]
        if isinstance(parsed, Piece) and not inflow.admits(parsed):
            return Refusal.MEMORY
        if not join.idle and not (_admits_sent(join, parsed) if sending else join.admits_cast()):
            return Refusal.MEMORY

        if not inflow.take(body, is_for_others=not sending and self._members > 2):
            self._counters.unkept += 1
        whole = self._reassemble(inflow, parsed) if inflow.got or isinstance(parsed, Piece) else parsed
        if whole is not None:
            packets, faults = self._join_sent(join, whole) if sending else join.cast(whole.packets, whole.marks)
            if faults:
                self._counters.refused[Refusal.PART] += faults
                self.broken.add(origin)
            self.arrivals.extend(zip(repeat(origin), packets))
            self._counters.packets_received += len(packets)
        casts = self.casts[origin]
        if self._progress.advance(origin, casts.next, join.shown):
            casts.release(self._progress.acked_by_all[origin])
        return None

    def _reassemble(self, inflow: Inflow, parsed: Plain | Piece) -> Plain | None:
        """A packet in pieces is whole with the last one. What interrupts it, or does not continue it, is no correct member's."""
        if isinstance(parsed, Piece):
            whole = inflow.assemble(parsed)
        else:
            if inflow.abandon():
                self._break(inflow.origin, Refusal.FRAGMENT)
            whole = parsed
        if isinstance(whole, Refusal):
            self._break(inflow.origin, whole)
            return None
        return whole

    def _break(self, origin: Rank, why: Refusal) -> None:
        self._counters.refused[why] += 1
        self.broken.add(origin)

    @staticmethod
    def _join_sent(join: Join, plain: Plain) -> tuple[Sequence[Octets], int]:
        """Packets of a unicast stream: as they are, or what a full half lets the cast stream show. And how many made no sense."""
        packets = plain.packets
        if not plain.marks:
            return packets, 0
        marked = frozenset(plain.marks)
        shown: list[Octets] = []
        faults = 0
        for i, packet in enumerate(packets):
            if i in marked:
                joined, wrong = join.full(packet)
                shown += joined
                faults += wrong
            else:
                shown.append(packet)
        return shown, faults


def _admits_sent(join: Join, parsed: Plain | Piece) -> bool:
    """Whether there is room for the full halves that a body of a unicast stream begins with."""
    marked = parsed.marked and not parsed.offset if isinstance(parsed, Piece) else bool(parsed.marks)
    return not marked or join.admits_full()
