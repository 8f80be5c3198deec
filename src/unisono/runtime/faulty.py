"""Faults between a member and its network, on sockets and in virtual time alike.

`FaultyMember` wraps a member that does not know of it: it reports what passes (for debugging), and delays, alters or drops
acknowledgements. It does no I/O either: a later `act` sends what waits here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count, zip_longest
from typing import Any, NamedTuple

from unisono.core.departure import Cause
from unisono.core.member import Effects, Member
from unisono.core.types import MemberId, View
from unisono.core.wire import Codec, view_tag
from unisono.core.wire.envelope import BODY, CAST, FRAGMENT, HEAD, NAK, ROW, SEND, extend, take_plain, unmark_header
from unisono.core.wire.frame import HEAD_BYTES, STREAM

Tell = Callable[[str], None]
Sending = tuple[tuple[str, ...], bytes]


class Question(NamedTuple):
    """An acknowledgement that awaits a decision: the origin of the acknowledged message, and its number."""

    peer: str
    seq: int


class AckVerdict(NamedTuple):
    """The decision on an acknowledgement."""

    seq: int | None = None
    """The number to send instead; None keeps the number as it is."""
    delay_ns: int = 0
    is_dropped: bool = False


AS_IT_IS = AckVerdict()


class Later:
    """A queue ordered by due time, first in first out at equal times."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        self._tie = count()

    def put(self, due: int, thing: Any) -> None:
        heappush(self._heap, (due, next(self._tie), thing))

    def take(self, now: int) -> list[Any]:
        taken = []
        while self._heap and self._heap[0][0] <= now:
            taken.append(heappop(self._heap)[2])
        return taken

    @property
    def deadline(self) -> int | None:
        return self._heap[0][0] if self._heap else None


def earlier(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


SPREAD = 64
"""Maximum number of transmissions made from one: counters are multiplied by this, and echoes divided by it."""


class Faults(NamedTuple):
    """What a `FaultyMember` does to what passes."""

    resends: int = 5
    """The plain rule: a peer that leaves a body unacknowledged after this many resends counts as failed."""
    ack_delay_ns: int = 0
    last_delay_ns: int = 0
    """Delay of everything with a body to the last other member of the view."""


class _Parts(NamedTuple):
    """A datagram of the streams, taken apart."""

    head: tuple[int, ...]
    rows: list[tuple[int, ...]]
    naks: bytes
    body: bytes

    def encode(self, prefix: bytes, counter: int) -> bytes:
        head = (*self.head[:5], counter, self.head[6], len(self.naks) // NAK.size, len(self.rows), len(self.body))
        rows = b"".join(ROW.pack(*row) for row in self.rows)
        return prefix + HEAD.pack(*head, *self.head[10:]) + rows + self.naks + self.body


class FaultyMember:
    """Wraps a member: acknowledgements are delayed, altered or dropped; all else goes straight to the member."""

    def __init__(
        self,
        member: Member,
        faults: Faults,
        name_of: Callable[[MemberId], str],
        tell: Tell,
        ask: Callable[[Question], None] | None = None,
        tell_packet: Callable[[MemberId, Any], None] | None = None,
        place_of: Callable[[MemberId], Any] | None = None,
    ) -> None:
        self._member = member
        self._faults = faults
        self._name_of = name_of
        self._tell = tell
        self._ask = ask
        self._tell_packet = tell_packet
        self._place_of = place_of or (lambda one: member.engine.view.members.index(one))
        self._splits = bool(faults.ack_delay_ns) or ask is not None
        self._later = Later()
        self._view: View | None = None
        self._tag = 0  # of that view
        self._codec = Codec((), member.settings.config)  # of its ordering's packets
        self._has_suspected = False  # in this turn, after membership had its part in it
        self._resent: dict[tuple[str, int], tuple[int, int]] = {}  # by address and stream: number, how often
        self._acked: dict[int, int] = {}  # by rank: how much of mine it has acknowledged
        self._claimed: tuple[int, int] | None = None  # by the datagram that is looked at: whose it is, and its count
        self._told: dict[int, int] = {}  # by origin: how much of its casts was acknowledged by me
        self._asked: list[tuple[Question, Sending, int]] = []  # with the origin's rank
        self._counter = 0  # of the latest transmission, before it was multiplied
        self._extra = 0  # transmissions of ours with that counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._member, name)

    # In.

    def receive(
        self, datagrams: Iterable[bytes | memoryview], now: int, senders: Iterable[MemberId | None] = ()
    ) -> None:
        for one, sender in zip_longest(datagrams, senders):
            self._member.receive([self._look_in(bytes(one))], now, (sender,))
            self._tell_acked()

    def _look_in(self, frame: bytes) -> bytes:
        self._follow_view()
        parts = take_apart(frame)
        if parts is None or parts.head[4] != self._tag or parts.head[2] >= len(self._member.engine.view.members):
            return frame
        sender = parts.head[2]
        if parts.body:
            kind, origin, seq = BODY.unpack_from(parts.body)[:3]
            if origin < len(self._member.engine.view.members) and not kind & SEND:
                of = self._name_of(self._member.engine.view.members[origin])
                again = f", transmission {parts.head[6] + 1}" if parts.head[6] else ""
                self._tell(f"received {seq} of {of}{again}")
                self._tell_packets(origin, parts.body)
        rows = []
        for row in parts.rows:
            if row[0] == self._member.engine.rank:
                self._claimed = (sender, row[1])
                if self._splits and row[5]:
                    echo = extend(row[5], self._counter * SPREAD) // SPREAD
                    row = (*row[:5], echo & 0xFFFFFFFF, row[6])
            rows.append(row)
        return parts._replace(rows=rows).encode(frame[:HEAD_BYTES], parts.head[5])

    def _tell_acked(self) -> None:
        """What a datagram acknowledged, as the streams understood it."""
        claimed, self._claimed = self._claimed, None
        streams = self._member.streams
        if claimed is None or streams is None or claimed[0] >= len(self._member.engine.view.members):
            return
        sender, number = claimed
        name = self._name_of(self._member.engine.view.members[sender])
        acked = streams.acknowledged_by(sender)
        if acked > self._acked.get(sender, 0):
            self._acked[sender] = acked
            self._tell(f"ACK {acked - 1} received of {name}")
        elif number > acked:
            self._tell(f"ACK {number - 1} received of {name}, which acknowledges nothing")

    def _tell_packets(self, origin: int, body: bytes) -> None:
        kind, _, _, packets, marks = BODY.unpack_from(body)
        members = self._member.engine.view.members
        if self._tell_packet is None or kind & FRAGMENT:
            return
        plain = take_plain(body, packets, marks, packets)
        for place, data in enumerate(() if plain is None else plain.packets):
            if plain is not None and place in plain.marks:  # to some only: its addressees come first
                unmarked = unmark_header(data, len(members))
                data = b"" if unmarked is None else unmarked[0]
            packet = self._codec.decode(data, origin, len(members))
            if packet is not None:
                self._tell_packet(members[origin], packet)

    # Out.

    def act(self, now: int) -> Effects:
        self._has_suspected = False
        effects = self._member.act(now)
        self._follow_view()
        out: list[Sending] = []
        for sending in effects.datagrams:
            out += self._look_out(sending, now)
        for sending, text in self._later.take(now):
            if text:
                self._tell(text)
            out.append(sending)
        effects.datagrams = out
        return effects

    def finish_turn(self) -> int | None:
        deadline = earlier(self._member.finish_turn(), self._later.deadline)
        return self._member.now if self._has_suspected else deadline

    def _follow_view(self) -> None:
        view = self._member.view
        if view is not None and view != self._view:
            self._view, self._tag = view, view_tag(view)
            self._codec = Codec(self._member.engine.ordering.wire, self._member.settings.config)
            self._resent, self._acked, self._told = {}, {}, {}

    def _look_out(self, sending: Sending, now: int) -> list[Sending]:
        addresses, frame = sending
        parts = take_apart(frame)
        if parts is None:
            return [sending]
        prefix, counter = frame[:HEAD_BYTES], parts.head[5]
        if self._splits:
            self._counter, self._extra = counter, 1
            counter *= SPREAD
        if parts.body and not self._is_patient(addresses, parts):
            return []
        out = []
        if self._splits and parts.rows:
            out += self._split(addresses, prefix, parts, now)
            if not parts.body and not parts.naks:
                return out
            parts = parts._replace(rows=[])
        elif parts.rows:
            self._tell_acks(parts)
        whole = parts.encode(prefix, counter) if self._splits else frame
        last = self._last_address()
        if self._faults.last_delay_ns and parts.body and last in addresses:
            addresses = tuple(address for address in addresses if address != last)
            self._later.put(now + self._faults.last_delay_ns, (((last,), whole), ""))
        return [*out, (addresses, whole)] if addresses else out

    def _is_patient(self, addresses: tuple[str, ...], parts: _Parts) -> bool:
        """The plain rule. False: this would be one resend too many, and the peer counts as failed."""
        kind, _, seq = BODY.unpack_from(parts.body)[:3]
        if not parts.head[6] or len(addresses) != 1:
            return True
        (address,) = addresses
        stream = (address, kind & SEND)
        number, times = self._resent.get(stream, (seq, 0))
        times = times + 1 if number == seq else 1
        self._resent[stream] = (seq, times)
        peer = next((one for one in self._member.engine.view.members if one.address == address), None)
        if peer is None or times <= self._faults.resends:
            self._tell(f"resend {times} of {seq} to {address if peer is None else self._name_of(peer)}")
            return True
        self._tell(f"{self._name_of(peer)} did not acknowledge {seq} after {times} sends: it counts as failed")
        self._member.suspect(peer, Cause.SPENT)
        self._has_suspected = True
        return False

    def _last_address(self) -> str:
        others = [one for one in self._member.engine.view.members if one != self._member.id]
        return max(others, key=self._place_of).address if others else ""

    # Acknowledgements.

    def _tell_acks(self, parts: _Parts) -> None:
        for row in parts.rows:
            if self._is_news(row):
                self._told[row[0]] = row[1]
                self._tell(f"ACK {row[1] - 1} sent to {self._name_of(self._member.engine.view.members[row[0]])}")

    def _is_news(self, row: tuple[int, ...]) -> bool:
        return row[0] != self._member.engine.rank and row[1] > self._told.get(row[0], 0)

    def _split(self, addresses: tuple[str, ...], prefix: bytes, parts: _Parts, now: int) -> list[Sending]:
        """Acknowledgements apart from what they ride on: asked about, delayed, or sent."""
        bare = parts._replace(naks=b"", body=b"")
        rest, delay = [], self._faults.ack_delay_ns
        for row in parts.rows:
            if self._ask is None or not self._is_news(row) or self._extra + 1 >= SPREAD:  # one is left for the rest
                rest.append(row)
                continue
            name = self._name_of(self._member.engine.view.members[row[0]])
            if not any(rank == row[0] for _, _, rank in self._asked):  # else its turn comes when that is decided
                question = Question(name, row[1] - 1)
                alone = bare._replace(rows=[row]).encode(prefix, self._next_counter())
                self._asked.append((question, (addresses, alone), row[0]))
                self._ask(question)
        if not rest:
            return []
        texts = []
        for row in rest:
            if self._is_news(row):
                self._told[row[0]] = row[1]
                name = self._name_of(self._member.engine.view.members[row[0]])
                texts.append(f"ACK {row[1] - 1} sent to {name}")
                if delay:
                    self._tell(f"ACK {row[1] - 1} to {name} delayed by {delay // 1000} µs")
        sending = (addresses, bare._replace(rows=rest).encode(prefix, self._next_counter()))
        self._later.put(now + delay, (sending, "; ".join(texts)))
        return []

    def _next_counter(self) -> int:
        self._extra += 1
        assert self._extra <= SPREAD
        return self._counter * SPREAD + self._extra - 1

    def decide(self, verdict: AckVerdict, now: int) -> None:
        """The verdict on the acknowledgement that was asked about first."""
        question, (addresses, frame), rank = self._asked.pop(0)
        parts = take_apart(frame)
        assert parts is not None
        if verdict.is_dropped:
            self._tell(f"ACK {question.seq} to {question.peer} dropped")
            return
        (row,) = parts.rows
        delay = verdict.delay_ns or self._faults.ack_delay_ns
        text = f"ACK {question.seq} sent to {question.peer}"
        if verdict.seq is None or verdict.seq == question.seq:
            self._told[rank] = max(row[1], self._told.get(rank, 0))
        else:
            self._tell(f"ACK {question.seq} to {question.peer} altered to {verdict.seq}")
            row = (row[0], (verdict.seq + 1) & 0xFFFFFFFF, *row[2:])
            text = f"ACK {verdict.seq} sent to {question.peer}"
        if delay:
            self._tell(f"ACK {question.seq} to {question.peer} delayed by {delay // 1000} µs")
        frame = parts._replace(rows=[row]).encode(frame[:HEAD_BYTES], parts.head[5])
        self._later.put(now + delay, ((addresses, frame), text))


def take_apart(frame: bytes) -> _Parts | None:
    """A datagram of the streams; None if it is none."""
    if len(frame) < HEAD_BYTES + HEAD.size or frame[1] != STREAM:
        return None
    head = HEAD.unpack_from(frame, HEAD_BYTES)
    at = HEAD_BYTES + HEAD.size
    naks_at = at + head[8] * ROW.size
    body_at = naks_at + head[7] * NAK.size
    if len(frame) != body_at + head[9] or 0 < head[9] < BODY.size:
        return None
    rows = list(ROW.iter_unpack(frame[at:naks_at]))
    return _Parts(head, rows, frame[naks_at:body_at], frame[body_at:])


assert CAST == 0, "a body of the cast stream is one without SEND"
