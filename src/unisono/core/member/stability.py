"""What every member has taken in: by it own messages become stable, and what no member can lack is forgotten.

Two things are kept for members that may lack them at the end of a view. The engine keeps the packets of each origin; they are
forgotten when every member's ordering has taken them in. The ordering keeps what it has decided; at a look it marks how far it is,
and is told to forget up to there once every member has taken in all that had arrived here by then.
"""

from __future__ import annotations

from collections import deque

from unisono.core.streams import Streams
from unisono.core.types import MemberId, View
from unisono.core.views import Doubt, OwnCasts, ViewEngine
from unisono.core.wire import Charter


class Stability:
    """Tells the engine of one member what may be forgotten, and keeps account of own messages."""

    def __init__(self, engine: ViewEngine) -> None:
        self._engine = engine
        self._own_casts = OwnCasts()
        self.doubts: list[Doubt] = []
        """Own messages whose view ended before every member was known to have them, for the member to take."""
        # By origin: packets on its cast stream, and how many slots they held.
        self._marks: list[deque[tuple[int, int]]] = []
        # How far the ordering was at a look, and the packets of each origin that had arrived by then.
        self._looked: tuple[object, tuple[int, ...]] | None = None

    @property
    def settled_index(self) -> int:
        """All own messages below this index are stable, except those that a `Doubt` was told of."""
        return self._own_casts.settled_index

    def take_doubts(self) -> list[Doubt]:
        """Own messages whose view ended before every member was known to have them; each is told once."""
        doubts, self.doubts = self.doubts, []
        return doubts

    def enter(self, view: View) -> None:
        """A view was installed, with streams and an ordering of its own."""
        self._marks = [deque() for _ in view.members]
        self._looked = None

    def end(self, charter: Charter | None, previous: View | None) -> None:
        """The last view is over. The charter of the next one tells which members have everything that was cast here in it."""
        engine, me = self._engine, self._engine.id
        parts = () if charter is None else charter.parts
        alike = (part.members + part.leavers for part in parts)
        known: tuple[MemberId, ...] = next((members for members in alike if me in members), (me,))
        is_everyone = previous is None or set(previous.members) <= set(known)
        self.doubts += self._own_casts.renew(
            engine.casting.submitted, known, is_everyone, engine.showing.ended_addressed
        )

    def deliver_own(self, streams: Streams) -> None:
        """Own messages were delivered in this turn; safe ones are stable now, others when all have what is held here."""
        shown, safe = self._engine.showing.own_shown, self._engine.showing.own_safe
        if safe:
            self._own_casts.safe(safe)
            shown = [span for span in shown if span not in safe]
        self._own_casts.delivered(shown, streams.held())

    def forget(self, streams: Streams) -> None:
        """Forget the packets that every member's ordering has taken in."""
        engine = self._engine
        held, taken_by_all = streams.held(), streams.taken_by_all
        if self._own_casts.is_waiting:
            self._own_casts.taken(taken_by_all)
            engine.showing.forget_stable(self._own_casts.settled_index)
        for origin, marks in enumerate(self._marks):
            slots = engine.kept.slots(origin)
            if not marks or marks[-1][1] < slots:
                marks.append((held[origin], slots))
            enough = 0
            while marks and marks[0][0] <= taken_by_all[origin]:
                enough = marks.popleft()[1]
            if enough:
                engine.kept.trim(origin, enough)

    def look_back(self, streams: Streams) -> None:
        """Let the ordering forget what no member can lack."""
        if self._looked is not None:
            mark, arrived = self._looked
            if any(count > taken for count, taken in zip(arrived, streams.taken_by_all, strict=True)):
                return
            self._engine.ordering.forget(mark)
        mark = self._engine.ordering.mark()
        self._looked = None if mark is None else (mark, streams.held())
