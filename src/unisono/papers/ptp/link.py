"""Reliable messages between two parties over datagrams. Paper 001, sections 1.2 and 2.3: the point-to-point layer alone.

Every datagram of data is acknowledged by its number and sent again until it is, after a timeout from the measured round trip and
the datagram's size, which doubles each time. After `resends` resends without an answer the peer counts as failed: the paper's plain
rule. A message that does not fit a datagram is cut, and rebuilt on the other side.

    head   version u8 (3) · kind u8 · life u64 · to u64 · epoch u32 · seq u32 · tries u8
    ack    epoch u32 · seq u32 · tries u8 · check u32          (if kind has ACK)
    data   the rest                                            (if kind has DATA; LAST: it ends a message)

| field | meaning                                                                                                   |
|-------|-----------------------------------------------------------------------------------------------------------|
| life  | which life of the sender's process this is; `to`: which one of the receiver's it speaks to, 0 if not known |
| epoch | which stream of this sender: numbers begin again with each                                                 |
| tries | transmission number, from 1                                                                                |
| check | CRC-32 of what is acknowledged, so that an altered acknowledgement is one of nothing                        |

L1  messages come out whole, once, and in the order in which they went in, as long as both parties live.
L2  a duplicate is acknowledged again; data of an earlier life or epoch, or that does not name this life as the one it speaks to,
    is neither taken nor acknowledged.
L3  until the other's life is known, one datagram is under way at the most, and it is a knock: the other answers with its life, and
    then the datagram goes to that one, at once and counted anew. So a replay of what was said to an earlier life is nothing to the
    next, sealed or not, whether the peer is up or down.
L4  1 + resends transmissions, then failure. What was not acknowledged is given up, and a new epoch begins, because it is
    unknown how much of it has arrived.
L5  a new life of the peer gets what its last life did not acknowledge, but no message of which that one acknowledged a part.
L6  nothing leaves that is two windows beyond the first datagram that is not acknowledged. All before that one has arrived, so the
    receiver expects it or a later one, and refuses only what is two windows beyond: nothing of a sender that keeps this.

Deviations: there is no acknowledgement of acknowledgements (the paper's three-way handshake); a full queue makes the sender wait,
where the paper discards; no round trip is measured with a datagram that was sent twice, the transmission number tells.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, TypeAlias
from zlib import crc32

from unisono.core.config import MILLISECOND, SECOND
from unisono.core.errors import ConfigError, Misuse

VERSION = 3
DATA, ACK, LAST = 1, 2, 4
_KIND = 0x10  # set in every kind, so that no frame of a group looks like one of these
HEAD = Struct("<BBQQIIB")
TAIL = Struct("<IIBI")
OVERHEAD_BYTES = HEAD.size + TAIL.size


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The settings of a link."""

    resends: int = 5
    """Number of unanswered resends after which the peer counts as failed."""
    datagram_bytes: int = 1_472
    """The largest datagram: with the headers of UDP and IP it has 1,500 bytes."""
    window: int = 32
    """Maximum number of datagrams under way; the same at both ends."""
    queue: int = 1_024
    """Maximum number of further datagrams that wait; beyond it `send` returns False."""
    message_bytes_max: int = 1 << 20
    timeout_ns_start: int = 200 * MILLISECOND
    """Before the first round trip was measured."""
    timeout_ns_min: int = 20 * MILLISECOND
    timeout_ns_max: int = 5 * SECOND
    """Doubling ends here."""
    timeout_ns_per_kib: int = MILLISECOND
    """What a datagram's size adds."""

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name} = {getattr(self, name)} is out of range: choose {low} to {high}.")


_RANGES = (
    ("resends", 0, 100),
    ("datagram_bytes", 2 * OVERHEAD_BYTES, 65_507),
    ("window", 1, 1_024),
    ("queue", 1, 2**20),
    ("message_bytes_max", 1, 2**31),
    ("timeout_ns_start", 1, 3_600 * SECOND),
    ("timeout_ns_min", 1, 3_600 * SECOND),
    ("timeout_ns_max", 1, 3_600 * SECOND),
    ("timeout_ns_per_kib", 0, SECOND),
)


class Acknowledgement(NamedTuple):
    epoch: int
    seq: int
    tries: int
    check: int


class LinkDatagram(NamedTuple):
    """What travels, taken apart."""

    life: int
    to: int
    epoch: int
    seq: int
    tries: int
    ack: Acknowledgement | None
    data: bytes | None
    is_last: bool = False

    def encode(self) -> bytes:
        kind = _KIND | (DATA if self.data is not None else 0) | (ACK if self.ack else 0) | (LAST if self.is_last else 0)
        head = HEAD.pack(VERSION, kind, self.life, self.to, self.epoch, self.seq, self.tries)
        return head + (TAIL.pack(*self.ack) if self.ack else b"") + (self.data or b"")


def decode(datagram: bytes) -> LinkDatagram | None:
    """A datagram taken apart; None if it is none of these."""
    if len(datagram) < HEAD.size or datagram[0] != VERSION or datagram[1] & ~(DATA | ACK | LAST) != _KIND:
        return None
    _, kind, life, to, epoch, seq, tries = HEAD.unpack_from(datagram)
    at, ack = HEAD.size, None
    if kind & ACK:
        if len(datagram) < at + TAIL.size:
            return None
        ack = Acknowledgement(*TAIL.unpack_from(datagram, at))
        at += TAIL.size
    data = datagram[at:]
    if (not kind & DATA and data) or (kind & LAST and not kind & DATA):
        return None
    return LinkDatagram(life, to, epoch, seq, tries, ack, data if kind & DATA else None, bool(kind & LAST))


# Notes: what happened in a turn, for debugging output.


class Received(NamedTuple):
    seq: int
    tries: int
    is_duplicate: bool


class AckReceived(NamedTuple):
    seq: int
    is_meaningless: bool
    """It acknowledges nothing that is under way."""


class Resent(NamedTuple):
    seq: int
    tries: int


class PeerFailed(NamedTuple):
    """The peer did not acknowledge a datagram: how often it was sent, and how many datagrams are given up with it."""

    seq: int
    tries: int
    given_up: int


class Restarted(NamedTuple):
    """The peer's process is a new one."""

    life: int


Note: TypeAlias = Received | AckReceived | Resent | PeerFailed | Restarted


class LinkTurn(NamedTuple):
    """What a turn brings: datagrams to send, whole messages, what happened, and when to call again."""

    datagrams: list[bytes]
    messages: list[bytes]
    notes: list[Note]
    deadline: int | None


class _Piece(NamedTuple):
    """A message, or a part of a message too large for one datagram."""

    message: int
    data: bytes
    is_last: bool


class _Flight:
    """A datagram of data under way."""

    __slots__ = ("check", "due", "piece", "sent_at", "timeout", "tries")

    def __init__(self, seq: int, piece: _Piece, now: int, timeout: int) -> None:
        self.piece = piece
        self.check = check_of(seq, piece.data)
        self.tries = 1
        self.sent_at = now
        self.timeout = timeout
        self.due = now + timeout


class Link:
    """One party's end. Sans-IO: `send`, `receive`, then `drain` once a turn."""

    def __init__(self, life: int, settings: LinkSettings | None = None) -> None:
        self.settings = settings or LinkSettings()
        self.life = life
        self.is_failed = False
        self.refused = 0
        """Datagrams that made no sense, or came too late."""
        self._piece = self.settings.datagram_bytes - OVERHEAD_BYTES
        # Sending.
        self._queue: deque[_Piece] = deque()
        self._sent_messages = 0
        self._begun: set[int] = set()  # messages of which the peer has acknowledged a part
        self._flights: dict[int, _Flight] = {}  # by number, in the order of the numbers
        self._epoch = 0
        self._seq = 0  # of the next datagram
        self._rtt = 0.0  # smoothed; 0: not measured
        self._deviation = 0.0
        self._to_resend: list[int] = []
        # Receiving.
        self._peer_life = 0
        self._peer_epoch = 0
        self._expected = 0
        self._ahead: dict[int, tuple[bytes, bool]] = {}
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._acks: list[Acknowledgement] = []
        self._owes_hello = False
        self._messages: list[bytes] = []
        self._notes: list[Note] = []

    # Inputs.

    def send(self, message: bytes) -> bool:
        """Take a message. False: the queue is full, come again when `drain` has sent some of it."""
        if len(message) > self.settings.message_bytes_max:
            raise Misuse(
                f"a message of {len(message)} bytes is too large: {self.settings.message_bytes_max} can be sent at once."
            )
        pieces = [message[at : at + self._piece] for at in range(0, len(message), self._piece)] or [b""]
        if self._queue and len(self._queue) + len(pieces) > self.settings.queue:
            return False
        number = self._sent_messages = self._sent_messages + 1
        self._queue += [_Piece(number, piece, False) for piece in pieces[:-1]]
        self._queue.append(_Piece(number, pieces[-1], True))
        return True

    @property
    def is_idle(self) -> bool:
        """Whether everything that was sent is acknowledged, or given up."""
        return not self._queue and not self._flights

    @property
    def unacknowledged(self) -> int:
        """How many messages are not acknowledged as a whole."""
        pieces = [*self._queue, *(flight.piece for flight in self._flights.values())]
        return len({piece.message for piece in pieces})

    @property
    def rtt_ns(self) -> float:
        """The smoothed round trip; 0 before the first measurement."""
        return self._rtt

    def receive(self, datagram: bytes, now: int) -> None:
        """Take a datagram from the peer."""
        seen = decode(datagram)
        if seen is None or seen.life < self._peer_life or not seen.life:
            self.refused += 1
            return
        if seen.life > self._peer_life:
            self._meet(seen.life, now)
        self.is_failed = False
        if seen.to != self.life:
            self.refused += seen.to != 0
            self._owes_hello |= seen.data is not None  # L2: not acknowledged, but told who is here now
            return
        if seen.ack is not None:
            self._acknowledged(seen.ack, now)
        if seen.data is not None:
            self._take(seen, seen.data)

    # The end of a turn.

    def drain(self, now: int) -> LinkTurn:
        """Everything that must leave now, and everything that came."""
        for seq, flight in list(self._flights.items()):
            if flight.due <= now and not self._repeat(seq, flight, now):
                break
        window = self.settings.window if self._peer_life else 1  # L3
        end = next(iter(self._flights), self._seq) + 2 * window  # L6
        out: list[LinkDatagram] = []
        while self._queue and len(self._flights) < window and self._seq < end:
            piece = self._queue.popleft()
            self._flights[self._seq] = _Flight(self._seq, piece, now, self._timeout(len(piece.data)))
            self._to_resend.append(self._seq)
            self._seq += 1
        for seq in self._to_resend:
            if seq in self._flights:
                flight = self._flights[seq]
                out.append(self._datagram(seq, flight.tries, flight.piece.data, flight.piece.is_last))
        self._to_resend = []
        out = self._carry_acks(out)
        messages, self._messages = self._messages, []
        notes, self._notes = self._notes, []
        deadline = min((flight.due for flight in self._flights.values()), default=None)
        return LinkTurn([datagram.encode() for datagram in out], messages, notes, deadline)

    def _carry_acks(self, out: list[LinkDatagram]) -> list[LinkDatagram]:
        """Acknowledgements ride on data where there is any."""
        carried = [one._replace(ack=ack) for one, ack in zip(out, self._acks, strict=False)]
        alone = [self._datagram(0, 0, None, False)._replace(ack=ack) for ack in self._acks[len(out) :]]
        if self._owes_hello and not out and not alone:
            alone.append(self._datagram(0, 0, None, False))
        self._owes_hello = False
        rest = out[len(self._acks) :]
        self._acks = []
        return carried + rest + alone

    def _datagram(self, seq: int, tries: int, data: bytes | None, is_last: bool) -> LinkDatagram:
        return LinkDatagram(self.life, self._peer_life, self._epoch, seq, tries, None, data, is_last)

    # Sending.

    def _repeat(self, seq: int, flight: _Flight, now: int) -> bool:
        if flight.tries > self.settings.resends:
            self._fail(seq, flight)
            return False
        flight.tries += 1
        flight.timeout = min(2 * flight.timeout, max(self.settings.timeout_ns_max, flight.timeout))
        flight.due = now + flight.timeout
        self._to_resend.append(seq)
        self._notes.append(Resent(seq, flight.tries))
        return True

    def _fail(self, seq: int, flight: _Flight) -> None:
        self._notes.append(PeerFailed(seq, flight.tries, len(self._flights) + len(self._queue)))
        self.is_failed = True
        self._flights.clear()  # L4
        self._queue.clear()
        self._renumber()

    def _renumber(self) -> None:
        """Begin a new stream; what is under way goes first."""
        self._queue.extendleft(flight.piece for flight in reversed(self._flights.values()))
        self._queue = deque(piece for piece in self._queue if piece.message not in self._begun)  # L5
        self._begun.clear()
        self._flights.clear()
        self._to_resend = []
        self._epoch += 1
        self._seq = 0

    def _acknowledged(self, ack: Acknowledgement, now: int) -> None:
        flight = self._flights.get(ack.seq) if ack.epoch == self._epoch else None
        is_meaningless = flight is None or flight.check != ack.check
        self._notes.append(AckReceived(ack.seq, is_meaningless))
        if flight is None or is_meaningless:
            return
        if flight.tries == 1:
            self._measure(now - flight.sent_at)
        del self._flights[ack.seq]
        self._begun.add(flight.piece.message)
        first = next((one.piece.message for one in self._flights.values()), self._sent_messages)
        self._begun = {message for message in self._begun if message >= min(first, flight.piece.message)}

    def _measure(self, sample: int) -> None:
        """Jacobson's estimator."""
        if not self._rtt:
            self._rtt, self._deviation = float(sample), sample / 2
            return
        self._deviation += (abs(sample - self._rtt) - self._deviation) / 4
        self._rtt += (sample - self._rtt) / 8

    def _timeout(self, size: int) -> int:
        settings = self.settings
        base = int(self._rtt + 4 * self._deviation) if self._rtt else settings.timeout_ns_start
        return max(base, settings.timeout_ns_min) + settings.timeout_ns_per_kib * size // 1024

    # Receiving.

    def _meet(self, life: int, now: int) -> None:
        """The peer's life is known now, or it is a new one: that expects numbers from 0."""
        if self._peer_life:
            self._notes.append(Restarted(life))
            self._renumber()
        for seq, flight in self._flights.items():  # L3: it was a knock
            self._flights[seq] = _Flight(seq, flight.piece, now, self._timeout(len(flight.piece.data)))
            self._to_resend.append(seq)
        self._peer_life = life
        self._expect_epoch(0)

    def _expect_epoch(self, epoch: int) -> None:
        self._peer_epoch, self._expected = epoch, 0
        self._ahead.clear()
        self._parts, self._parts_bytes = [], 0

    def _take(self, seen: LinkDatagram, data: bytes) -> None:
        if seen.epoch < self._peer_epoch:
            self.refused += 1
            return
        if seen.epoch > self._peer_epoch:
            self._expect_epoch(seen.epoch)
        if seen.seq >= self._expected + 2 * self.settings.window:
            self.refused += 1  # L6: no sender is that far ahead
            return
        is_duplicate = seen.seq < self._expected or seen.seq in self._ahead
        self._notes.append(Received(seen.seq, seen.tries, is_duplicate))
        self._acks.append(Acknowledgement(seen.epoch, seen.seq, seen.tries, check_of(seen.seq, data)))
        if is_duplicate:
            return
        self._ahead[seen.seq] = (data, seen.is_last)
        while self._expected in self._ahead:
            self._rebuild(*self._ahead.pop(self._expected))
            self._expected += 1

    def _rebuild(self, data: bytes, is_last: bool) -> None:
        self._parts_bytes += len(data)
        if self._parts_bytes <= self.settings.message_bytes_max:
            self._parts.append(data)
        if is_last:
            if self._parts_bytes <= self.settings.message_bytes_max:
                self._messages.append(b"".join(self._parts))
            else:
                self.refused += 1
            self._parts, self._parts_bytes = [], 0


def check_of(seq: int, data: bytes) -> int:
    return crc32(data, seq & 0xFFFFFFFF)
