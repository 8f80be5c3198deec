"""The receiving side of streams: order, gaps, reassembly, and joining the two halves of a cast to some members only."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from unisono.core.streams.settings import StreamSettings
from unisono.core.types import Rank
from unisono.core.wire.envelope import Octets, Piece, Plain, Refusal, unmark_full, unmark_header

_PATIENCE_NS = 100_000
NEVER = 1 << 62
"""Later than every time, and beyond every number."""


class Memory:
    """What all incoming streams of a member hold together, in bytes."""

    __slots__ = ("ahead", "assembling", "kept", "reassembly")

    def __init__(self) -> None:
        self.ahead = 0  # behind a gap
        self.kept = 0  # others' casts that not everyone has
        self.reassembly = 0  # announced by packets that come in pieces
        self.assembling: dict[Rank, int] = {}  # by origin: how many of those there are


class Inflow:
    """One incoming stream. `next` is the number of the first body that is not here; bodies beyond it wait in `ahead`.

    `known` says how many bodies exist: what lies between and is not in `ahead` is a gap. A `rumour` is what another member
    says it has of this origin; it may be on its way to us too, so it becomes known only at `rumour_at`.
    """

    __slots__ = (
        "_marked",
        "_memory",
        "_pieces",
        "_settings",
        "_total",
        "ahead",
        "ask_at",
        "asked",
        "asks",
        "fresh_at",
        "fresh_to",
        "got",
        "kept",
        "kept_base",
        "kind",
        "known",
        "next",
        "origin",
        "patience",
        "rumour",
        "rumour_at",
        "turn",
    )

    def __init__(self, origin: Rank, kind: int, settings: StreamSettings, memory: Memory) -> None:
        self.origin = origin
        self.kind = kind
        self._settings = settings
        self._memory = memory
        self.next = self.known = self.rumour = settings.numbering_first
        self.rumour_at = NEVER
        self.ahead: dict[int, Octets] = {}
        self.kept: list[Octets] = []  # bodies from `kept_base` on, for members that lack them
        self.kept_base = self.next
        self.asked = self.next  # gaps below this number were asked for
        self.fresh_at = NEVER  # when to ask for the gaps beyond
        self.fresh_to = self.next  # up to here
        self.patience = 0  # how long a gap may be open before it is asked for, learnt from what came late, in ns
        self.ask_at = NEVER  # when to ask again
        self.asks = 0  # how often it was asked since the last progress
        self.turn = 0  # whose turn it is to be asked
        self._pieces: list[memoryview] = []  # of a packet under reassembly
        self._total = 0
        self._marked = False
        self.got = 0

    # Order and gaps.

    def hold(self, seq: int, body: Octets) -> bool:
        """Keep a body that came before its turn; False if there is no room for it."""
        if seq - self.next >= self._settings.ahead_datagrams_max:
            return False
        if self._memory.ahead + len(body) > self._settings.ahead_bytes_max:
            return False
        self.ahead[seq] = body
        self._memory.ahead += len(body)
        return True

    def drop_held(self, seq: int) -> None:
        """The body of this number has been taken in."""
        body = self.ahead.pop(seq, None)
        if body is not None:
            self._memory.ahead -= len(body)

    def learn(self, end: int) -> None:
        """The stream has at least so many bodies, or so someone says; no more is believed than could be held."""
        end = min(end, self.next + self._settings.ahead_datagrams_max)
        if end > self.known:
            self.known = end

    def gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """What is missing between two numbers, as (first, count)."""
        at = max(self.next, start)
        result = []
        for seq in sorted(seq for seq in self.ahead if at <= seq < stop):
            if seq > at:
                result.append((at, seq - at))
            at = seq + 1
        if at < stop:
            result.append((at, stop - at))
        return result

    def came_late(self, longest: int) -> None:
        """A body came in its first transmission after it was asked for: it was late, not lost. Ask later from now on."""
        self.patience = min(2 * self.patience + _PATIENCE_NS, longest)

    def came_again(self) -> None:
        """A body came because it was asked for: forget a little patience."""
        self.patience -= self.patience >> 5

    # What is kept for others.

    def keep(self, body: Octets) -> bool:
        """Keep the next body until all have it. At the limit nothing more is kept, so that a prefix stays contiguous."""
        if self.kept_base + len(self.kept) != self.next:
            return False
        if self._memory.kept + len(body) > self._settings.kept_bytes_max:
            return False
        self.kept.append(body)
        self._memory.kept += len(body)
        return True

    def release(self, number: int) -> None:
        """All members have the bodies below `number`."""
        count = number - self.kept_base
        self._memory.kept -= sum(map(len, self.kept[:count]))
        del self.kept[:count]
        self.kept_base = number

    # Reassembly.

    def admits(self, piece: Piece) -> bool:
        """Whether there is room for reassembling the packet of this piece. Whoever has begun goes on.

        Beyond the limit one origin must be let in that is the same at all members, or each could be in the middle of a packet
        that another one does not let in, for ever: the lowest one that has something to reassemble.
        """
        if self._pieces or piece.offset:
            return True
        memory = self._memory
        fits = memory.reassembly + piece.total <= self._settings.reassembly_bytes_max
        return not memory.assembling or fits or self.origin <= min(memory.assembling)

    def assemble(self, piece: Piece) -> Plain | Refusal | None:
        """Take the stream's next piece in; the whole packet with the last one, None before."""
        data, total, offset, marked = piece
        if offset != self.got or (self._pieces and (total != self._total or marked != self._marked)):
            self.abandon()
            return Refusal.FRAGMENT
        if not self._pieces:
            self._total, self._marked = total, marked
            self._memory.reassembly += total
            self._memory.assembling[self.origin] = self._memory.assembling.get(self.origin, 0) + 1
        self._pieces.append(data)
        self.got += len(data)
        if self.got < total:
            return None
        packet = b"".join(self._pieces)
        self.abandon()
        return Plain([packet], (0,) if marked else ())

    def abandon(self) -> bool:
        """Forget the packet under reassembly, if there is one: no correct member interrupts itself."""
        if not self._pieces:
            return False
        self._memory.reassembly -= self._total
        assembling = self._memory.assembling
        assembling[self.origin] -= 1
        if not assembling[self.origin]:
            del assembling[self.origin]
        self._pieces = []
        self.got = 0
        return True


class Join:
    """The packets of one origin's cast stream on their way to be shown, and the halves that replace some of them.

    Stream order makes this free of deadlock: an origin numbers its full halves in ascending order. If the cast stream waits for
    one, no later one can have come, so `fulls` is empty and has room; if `fulls` is at its limit, the cast stream does not wait.
    """

    __slots__ = ("_full_bytes", "_limit", "_me", "_members", "_waiting", "_waiting_bytes", "fulls", "shown")

    def __init__(self, me: Rank, members: int, limit: int, first: int) -> None:
        self._me = me
        self._members = members
        self._limit = limit
        self.shown = first  # packets of the cast stream that left here, in order
        self._waiting: deque[tuple[Octets, bool]] = deque()  # from number `shown` on; whether it needs its full half
        self._waiting_bytes = 0
        self.fulls: dict[int, Octets] = {}
        self._full_bytes = 0

    @property
    def idle(self) -> bool:
        """Nothing waits, so that packets may pass by without being looked at."""
        return not self._waiting and not self.fulls

    def admits_cast(self) -> bool:
        return self._waiting_bytes <= self._limit

    def admits_full(self) -> bool:
        return self._full_bytes <= self._limit

    def cast(self, packets: Sequence[Octets], marks: Sequence[int]) -> tuple[list[Octets], int]:
        """Take packets of the cast stream. Returns what can be shown now, and how many made no sense."""
        faults = 0
        marked = frozenset(marks)
        for i, packet in enumerate(packets):
            needs = False
            if i in marked:
                parts = unmark_header(packet, self._members)
                if parts is None:
                    faults += 1
                    continue
                packet, needs = parts[0], self._me in parts[1]
            self._waiting.append((packet, needs))
            self._waiting_bytes += len(packet)
        return self._show(), faults

    def full(self, packet: Octets) -> tuple[list[Octets], int]:
        """Take a full half from the unicast stream. Returns what can be shown now, and how many made no sense."""
        parts = unmark_full(packet, self.shown)
        if parts is None or parts[1] < self.shown or parts[1] in self.fulls:
            return [], 1
        self.fulls[parts[1]] = parts[0]
        self._full_bytes += len(parts[0])
        return self._show(), 0

    def _show(self) -> list[Octets]:
        result = []
        while self._waiting:
            packet, needs = self._waiting[0]
            full = self.fulls.pop(self.shown, None)
            if full is not None:
                self._full_bytes -= len(full)
            if needs and full is None:
                break
            self._waiting.popleft()
            self._waiting_bytes -= len(packet)
            result.append(full if needs and full is not None else packet)
            self.shown += 1
        return result
