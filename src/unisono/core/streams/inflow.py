"""The receiving side of one stream: order, gaps, what is kept for others, and reassembly."""

from __future__ import annotations

from dataclasses import dataclass, field

from unisono.core.streams.settings import NEVER, StreamSettings
from unisono.core.types import Rank
from unisono.core.wire import Octets, Refusal
from unisono.core.wire.envelope import Piece, Plain

_PATIENCE_NS = 100_000


@dataclass(slots=True)
class Memory:
    """What all incoming streams of a member hold together, in bytes."""

    ahead: int = 0  # behind a gap
    kept: int = 0  # others' casts that not everyone has
    reassembly: int = 0  # announced by packets that come in pieces
    assembling: dict[Rank, int] = field(default_factory=dict)  # by origin: how many of those there are


class Inflow:
    """One incoming stream. `next` is the number of the first body that is not here; bodies beyond it wait in `ahead`.

    `known` says how many bodies exist: what lies between and is not in `ahead` is a gap. A `rumour` is what another member
    says it has of this origin; it may be on its way to us too, so it becomes known only at `rumour_at`.
    """

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

    def learn(self, end: int, now: int) -> bool:
        """A member says that the stream has bodies up to `end`. No more is believed than could be held.

        Returns whether any is missing here.
        """
        end = min(end, self.next + self._settings.ahead_datagrams_max)
        if end > self.known:
            self.known = end
        if self.next >= self.known:
            return False
        if self.fresh_at == NEVER:
            self.fresh_at = now + self._settings.nak_delay_ns + self.patience
            self.fresh_to = self.known
        return True

    def hear_rumour(self, end: int, at: int) -> None:
        """Another member has bodies up to `end`. They may be on their way here; from `at` on, they count as missing."""
        self.rumour = end
        if self.rumour_at == NEVER:
            self.rumour_at = at

    def believe_rumour(self, now: int) -> None:
        self.rumour_at = NEVER
        self.learn(self.rumour, now)

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

    # Asking for what is missing.

    @property
    def due(self) -> int:
        """When something must be asked for, or believed."""
        return min(self.ask_at, self.fresh_at, self.rumour_at)

    @property
    def has_given_up(self) -> bool:
        """Whether it was asked in vain, and is not asked any more."""
        return self.ask_at == NEVER and self.asks >= self._settings.nak_tries_max

    @property
    def awaits_answer(self) -> bool:
        """Whether what was asked for should come, and nothing is set to ask again."""
        return self.ask_at == NEVER and self.asked > self.next and self.asks < self._settings.nak_tries_max

    def ask_once_more(self, at: int) -> None:
        """Asking had ended: try once more."""
        self.asks -= 1
        self.ask_at = at

    def ask_again(self) -> tuple[int, int]:
        """From where to where the answer is overdue, and is now asked for again."""
        self.asks += 1
        self.turn += 1
        self.ask_at = NEVER
        return self.next, self.asked

    def ask_fresh(self, now: int) -> tuple[int, int]:
        """From where to where there may be gaps that are now asked for, for the first time. Younger ones get their own time."""
        delay = self._settings.nak_delay_ns + self.patience
        start, stop = self.asked, self.fresh_to if delay else self.known
        self.asked = max(start, stop)
        self.fresh_to = self.known
        self.fresh_at = now + delay if self.asked < self.known else NEVER
        return start, stop

    def await_answer(self, until: int) -> None:
        """What was asked for should be here by then, or is asked for again."""
        self.ask_at = until

    def is_complete(self) -> bool:
        """Nothing known is missing, so stop asking. Returns whether no rumour says that there is more."""
        self.asks, self.fresh_at, self.ask_at = 0, NEVER, NEVER
        if self.rumour <= self.next:
            self.rumour_at = NEVER
        return self.rumour_at == NEVER

    def came_late(self, longest: int) -> None:
        """A body came in its first transmission after it was asked for: it was late, not lost. Ask later from now on."""
        self.patience = min(2 * self.patience + _PATIENCE_NS, longest)

    def came_again(self) -> None:
        """A body came because it was asked for: forget a little patience."""
        self.patience -= self.patience >> 5

    # What is here, and what of it is kept for others.

    def take(self, body: Octets, is_for_others: bool) -> bool:
        """The next body is here, so asking for it has helped. Others may lack it: then keep it until all have it.

        Returns False where it is not kept: at the limit nothing more is, so that a prefix stays contiguous.
        """
        seq = self.next
        self.next = seq + 1
        if self.known <= seq:
            self.known = seq + 1
        self.asks = 0
        if not is_for_others:
            return True
        if self.kept_base + len(self.kept) != seq:
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
        """Whether there is room to reassemble the packet of this piece. A reassembly that has begun goes on.

        Beyond the limit one origin is admitted, the same at all members: the lowest that has something to reassemble. Otherwise
        each member could be in the middle of a packet that another one does not admit, for ever.
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
