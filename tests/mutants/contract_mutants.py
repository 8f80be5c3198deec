"""What a view change means to an application, with one rule broken each; see `shown_mutants` for what a member shows wrongly.

**Stable when all have received it.** 1. B casts m0, which reaches C and not A. 2. C casts m behind it, and all receive m: C calls
it stable. 3. B and C crash. A lacks m0, so the cut drops m.

**Amnesia.** 1. A, B and C are primary; C is cut off. 2. A and B crash and restart empty, with their records. 3. They are
a majority, and become primary without the state that C alone has. 4. C comes back and takes over that they have nothing.

**The lowest view carries the state.** 1. C is cut off and read-only in a view of its own. 2. A and B go on as primary, through
further views; a message that they deliver is safe and stable. 3. C comes back from the lower view, and A and B take
its state over: the message is gone.

**A batch lost, or a set widened, between the member and the application.** The member has delivered it and named the right set; its
rows say so. What the recorder notes as shown does not agree (P25).

**A set widened behind the recorder.** The trace is right and the application is not: only its own events tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unisono.core.member import Entered, Happening
from unisono.core.member.stability import Stability
from unisono.core.membership.ballot import Ballot
from unisono.core.membership.membership import Membership
from unisono.core.membership.primary import Judgement
from unisono.core.streams.streams import Streams
from unisono.core.types import Batch, MemberId, Rank
from unisono.core.views.engine import ViewEngine
from unisono.core.views.own_casts import OwnCasts, Span
from unisono.core.wire.control import Part
from unisono.runtime.events import View
from unisono.runtime.inbox import Inbox, Shown

EVERY = 10
"""One batch in so many is lost."""


class _OnlyOwnCount(OwnCasts):
    """Own messages are stable when all have taken in what this member had cast by then."""

    rank: Rank = 0

    def delivered(self, spans: list[Span], taken: Sequence[int]) -> None:
        super().delivered(spans, [count if rank == self.rank else 0 for rank, count in enumerate(taken)])


class StableWhenReceived(Stability):
    def __init__(self, engine: ViewEngine) -> None:
        super().__init__(engine)
        self._own_casts = _OnlyOwnCount()

    def deliver_own(self, streams: Streams) -> None:
        self._own_casts.rank = self._engine.rank  # type: ignore[attr-defined]
        super().deliver_own(streams)


class _ForgetfulBallot(Ballot):
    def _judge(self, members: Sequence[MemberId], parts: Sequence[Part]) -> Judgement:
        judged = super()._judge(members, parts)
        if judged.is_primary or judged.lost is None:
            return judged
        return Judgement(True, judged.supersedes, has_state=True)


class AllowsAmnesia(Membership):
    ballot_type = _ForgetfulBallot


class _LowestBallot(Ballot):
    def _judge(self, members: Sequence[MemberId], parts: Sequence[Part]) -> Judgement:
        judged = super()._judge(members, parts)
        if not judged.holders:
            return judged
        return judged._replace(holders=min(parts, key=lambda part: (part.view, part.cut)).members)


class LowestViewCarriesTheState(Membership):
    ballot_type = _LowestBallot


class DropsABatch(Inbox):
    _seen = 0

    def put(self, events: Iterable[Happening]) -> None:
        kept: list[Happening] = []
        for event in events:
            self._seen += isinstance(event, Batch)
            if not isinstance(event, Batch) or self._seen % EVERY:
                kept.append(event)
        super().put(kept)


class WidensTogether(Inbox):
    def put(self, events: Iterable[Happening]) -> None:
        super().put([_widened(event) if isinstance(event, Entered) else event for event in events])


class WidensTogetherUnseen(Inbox):
    def _advance(self, is_done: bool = True) -> Shown | None:
        if self._queue and isinstance(self._queue[0], View) and self.view is not None:
            view = self._queue[0]
            both = tuple(member for member in view.members if member in self.view.members)
            self._queue[0] = view._replace(together=both)
        return super()._advance(is_done)


def _widened(entered: Entered) -> Entered:
    if entered.previous is None:
        return entered
    both = tuple(member for member in entered.view.members if member in entered.previous.members)
    return Entered.of(entered.view, entered.charter, entered.previous, both, entered.is_primary)
