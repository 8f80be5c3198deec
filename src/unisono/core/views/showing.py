"""What the ordering has delivered, on its way to the application: the gate for safe messages, the remainder of a view, events."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import attrgetter

from unisono.core.markers import MARKERS, Marker
from unisono.core.outbox import EngineEffects, Outbox
from unisono.core.transition import Transition
from unisono.core.types import Batch, MemberId, Rank, View
from unisono.core.views.casting import Casting
from unisono.core.views.gate import Gate
from unisono.core.views.notes import note_shown
from unisono.core.views.own_casts import Span

_is_safe = attrgetter("safe")


class Showing:
    """Shows the application what is delivered, view after view. Placeholders are counted, and not shown."""

    def __init__(self, casting: Casting, out: Outbox, view: View) -> None:
        self._casting = casting
        self._out = out
        self._view = view
        self.rank: Rank = -1
        self.events: list[Batch | Marker | Transition | View] = []
        """For the application, with the effects of this turn or the next one."""
        self.gate = Gate()
        """Where messages wait to be safe."""
        self.delivered = 0
        """Messages that the ordering has delivered here, in all views; placeholders too."""
        self.given = 0
        """Those of them that the application gets."""
        self.reach: list[int] = []
        """By origin: beyond the last index that was delivered here; 0: none that is known of."""
        self._remainder: list[Batch] = []  # agreed on, shown at the end of the view
        self.own_shown: list[Span] = []
        """Own messages delivered in this turn: first index and end of each batch."""
        self.own_safe: list[Span] = []
        """Those of them that the gate has let pass."""
        self._own_addressed: deque[tuple[Span, tuple[MemberId, ...]]] = deque()  # delivered in this view, not settled
        self.ended_addressed: dict[Span, tuple[MemberId, ...]] = {}
        """The addressees of own messages of the last view that named some and were not settled before it ended."""

    # A view begins and ends.

    def enter(self, view: View, rank: Rank) -> None:
        """A view begins: it is shown, and indexes go on for members of the last one."""
        known = self.reaches()
        self.reach = [known.get(member, 0) for member in view.members]
        self._view, self.rank = view, rank
        self.gate = Gate()
        self.events.append(view)

    def close(self) -> None:
        """The view is closed: what waits at the gate and what the cut has added is its remainder."""
        closing, self._out.deliver = self._out.deliver, []
        self._remainder = [*self.gate.empty(), *closing]

    def end(self, transition: Transition) -> None:
        """Show the remainder behind its transition. All members that are together in it deliver the same."""
        self.events.append(transition)
        remainder, self._remainder = self._remainder, []
        self._show(remainder)
        self.ended_addressed = dict(self._own_addressed)
        self._own_addressed.clear()

    # Deliveries.

    def deliver(self) -> None:
        """Show what the ordering has delivered, except safe messages and all that is behind them: these wait at the gate."""
        batches, self._out.deliver = self._out.deliver, []
        is_shut = bool(self.gate.waiting)
        if is_shut or any(map(_is_safe, batches)):
            passing = 0 if is_shut else next(at for at, batch in enumerate(batches) if batch.safe)
            self.gate.hold(batches[passing:])
            del batches[passing:]
        self._show(batches)

    def release(self, taken: Sequence[int], taken_by_all: Sequence[int]) -> EngineEffects:
        """Show what has become safe, as more effects of the turn that was drained last.

        `taken`: how many packets of each origin are taken in here.
        """
        passing = self.gate.release(taken, taken_by_all)
        self.own_safe += [(b.first, b.first + b.count) for b in passing if b.safe and b.origin == self.rank]
        self._show(passing)
        effects = EngineEffects()
        effects.events, self.events = self.events, []
        effects.notes, self._out.notes = self._out.notes, []
        return effects

    def forget_stable(self, index: int) -> None:
        """All own messages below this index are stable: whom they were for does not matter any more."""
        addressed = self._own_addressed
        while addressed and addressed[0][0][1] <= index:
            addressed.popleft()

    def reaches(self) -> dict[MemberId, int]:
        """By member of the view: up to which index its messages were delivered here; 0: none that is known of."""
        return dict(zip(self._view.members, self.reach, strict=True))

    def _show(self, batches: Sequence[Batch]) -> None:
        """Placeholders are not shown; own messages leave the window."""
        reach, out = self.reach, self._out
        for batch in batches:
            if out.noting:
                note_shown(out, batch, self.rank)
            end = batch.first + batch.count
            if end > reach[batch.origin]:
                reach[batch.origin] = end
            self.delivered += batch.count
            if batch.origin == self.rank:
                self._casting.unfinished -= batch.count
                self.own_shown.append((batch.first, end))
                if batch.to is not None:
                    members = tuple(self._view.members[rank] for rank in batch.to)
                    self._own_addressed.append(((batch.first, end), members))
            if batch.payloads is not None and (batch.to is None or self.rank in batch.to):
                self.events.append(batch)
                self.given += batch.count
            elif batch.to == () and (asks := MARKERS.get(batch.digest)) is not None:
                self.events.append(Marker(batch.origin, batch.first, batch.service, asks))
