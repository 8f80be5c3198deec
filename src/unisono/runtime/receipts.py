"""Receipts: how far own messages have come. Free unless awaited.

    accepted (`cast` has returned)  <  delivered  <  applied  <  stable

A message can also get into **doubt**: its view ended before every member was known to have it. Then no later stage is ever
confirmed, and waiting for one raises `Uncertain`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from enum import StrEnum
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from unisono.core.errors import Misuse
from unisono.core.types import Key, MemberId
from unisono.core.views import Contiguous, Doubt
from unisono.runtime.errors import TimedOut, Uncertain, fresh
from unisono.runtime.observers import Observers

SWEEP_MIN = 64
"""With fewer waits, a sweep is not worth its cost."""
GRACE_S = 1.0
"""If the task that reads the group waits for `applied` and no other task reads for this long, none will."""


class Stage(StrEnum):
    """What a receipt can be asked for."""

    DELIVERED = "delivered"
    APPLIED = "applied"
    STABLE = "stable"


_UP_TO = {stage: tuple(Stage)[: place + 1] for place, stage in enumerate(Stage)}
_FROM = {stage: tuple(Stage)[place:] for place, stage in enumerate(Stage)}


class EventReader(Protocol):
    """The application's place in its stream of events."""

    def note_done(self) -> None:
        """Tell the receipts which own messages the application is done with, if they were not told yet."""

    def is_inside(self) -> bool:
        """Whether the caller handles an event of the stream now, so that no other event is taken before it goes on."""

    def who_reads(self) -> object:
        """The task or thread that has taken the last event."""

    def who_asks(self) -> object:
        """The task or thread that calls."""


class Receipts:
    """How far the own messages of one member have come, and who waits for that."""

    def __init__(self, loop: asyncio.AbstractEventLoop, member: MemberId, observers: Observers | None = None) -> None:
        self._loop = loop
        self.member = member
        """Whose messages these are."""
        self._observers = observers or Observers()
        self._delivered = Contiguous()  # out of order if an order of several services does so
        self._applied = Contiguous()
        self.settled_to = 0
        """All own messages below this index are stable or in doubt."""
        self._doubts = {stage: _Doubts() for stage in Stage}  # by the first stage that is never confirmed
        self._waiting: dict[Stage, list[tuple[int, int, asyncio.Future[None]]]] = {stage: [] for stage in Stage}
        self._tie = count()
        self._given_up = dict.fromkeys(Stage, 0)  # waits that were given up since the last sweep
        self._failure: Exception | None = None
        self.is_applied_awaited = False
        """Whether a task waits for a message to be applied."""
        self.urge: Callable[[], None] = lambda: None
        """Called when a task begins to wait for a message to be stable."""
        self.reader: EventReader | None = None

    @property
    def delivered_to(self) -> int:
        """All own messages below this index were delivered here."""
        return self._delivered.end

    # What has happened.

    def delivered(self, first: int, messages: int) -> None:
        """Own messages from `first` on were delivered here."""
        self._delivered.add(first, first + messages)
        if self._waiting[Stage.DELIVERED]:
            self._answer(Stage.DELIVERED)

    def applied(self, first: int, messages: int) -> None:
        """The application is done with own messages from `first` on, or its state has them. Each is told once."""
        self._applied.add(first, first + messages)
        if self.is_applied_awaited:
            self._answer(Stage.APPLIED)

    def settled(self, index: int) -> None:
        """All own messages below this index are stable, except those that `doubt` was or is told of."""
        if index > self.settled_to:
            self.settled_to = index
            if self._waiting[Stage.STABLE]:
                self._answer(Stage.STABLE)

    def doubt(self, doubt: Doubt) -> None:
        """The view of own messages ended, and these members alone are known to have them."""
        self._cast_doubt(doubt, Stage.STABLE)

    def lose(self, first: int, messages: int, together: tuple[MemberId, ...]) -> None:
        """Own messages are delivered here on the way out of the primary view: nothing is promised of them any more."""
        known = self._doubts[Stage.STABLE].known(first)
        self._cast_doubt(Doubt(first, first + messages, together if known is None else known), Stage.DELIVERED)
        self._delivered.add(first, first + messages)

    def drop(self, first: int, messages: int) -> None:
        """Own messages were delivered here, and the application will never see them: their state is somewhere else."""
        self._cast_doubt(Doubt(first, first + messages, (self.member,)), Stage.APPLIED)
        self._applied.add(first, first + messages)

    def _cast_doubt(self, doubt: Doubt, first_stage: Stage) -> None:
        """Neither this stage of these messages nor a later one is ever confirmed."""
        self._doubts[first_stage].add(doubt)
        for stage in _FROM[first_stage]:
            self._refuse(stage, doubt)

    def fail(self, error: Exception) -> None:
        """Nothing more will come."""
        self._failure = self._failure or error
        for waiting in self._waiting.values():
            for _, _, future in waiting:
                if not future.done():
                    future.set_exception(fresh(error))
            waiting.clear()
        self.is_applied_awaited = False

    def disown(self, failure: Exception) -> None:
        """In a forked child: nothing more will come, and the parent's tasks wait for it."""
        self._failure = failure
        self._waiting = {stage: [] for stage in Stage}
        self.is_applied_awaited = False

    # Questions.

    @property
    def is_observed(self) -> bool:
        """Whether an observer is told each answer of a receipt."""
        return bool(self._observers.receipt)

    def tell(self, stage: Stage, index: int, outcome: str, known: Sequence[MemberId]) -> None:
        """Tell the observers an answer: "ok" or "uncertain", and the members known to have the message."""
        for look in self._observers.receipt:
            look(stage, index, outcome, known)

    def has(self, index: int, stage: Stage) -> bool:
        """Whether a message has reached a stage."""
        if self.known(index, stage) is not None:
            return False
        if stage is Stage.STABLE:
            return index < self.settled_to
        if stage is Stage.DELIVERED:
            return index in self._delivered
        if self.reader is not None and not index < self._applied.end:
            self.reader.note_done()
        return index in self._applied

    def known(self, index: int, stage: Stage) -> tuple[MemberId, ...] | None:
        """If this stage will never be confirmed: the members known to have the message. None: it is, or may be."""
        for one in _UP_TO[stage]:
            if (doubts := self._doubts[one]) and (known := doubts.known(index)) is not None:
                return known
        return None

    def is_plainly(self, index: int, stage: Stage) -> bool:
        """Whether a message is known at a glance to have reached a stage; for other threads than the group's."""
        if any(self._doubts.values()):
            return False
        ends = {Stage.STABLE: self.settled_to, Stage.DELIVERED: self._delivered.end, Stage.APPLIED: self._applied.end}
        return index < ends[stage]

    def check(self, index: int, stage: Stage) -> bool:
        """Whether a message has reached a stage; raises `Uncertain` if that will never be confirmed."""
        if (known := self.known(index, stage)) is not None:
            raise self._uncertain(index, known)
        return self.has(index, stage)

    # Waiting.

    async def wait(self, index: int, stage: Stage, timeout: float | None, reader: EventReader | None = None) -> None:
        """Until a message has reached a stage. `reader` stands for the caller's way of reading, if not the group's own."""
        if self.check(index, stage):
            return
        if self._failure is not None:
            raise fresh(self._failure)
        future = self._loop.create_future()
        grace = self._guard(index, future, reader or self.reader) if stage is Stage.APPLIED else None
        heappush(self._waiting[stage], (index, next(self._tie), future))
        if stage is Stage.APPLIED:
            self.is_applied_awaited = True
        elif stage is Stage.STABLE:
            self.urge()
        try:
            await asyncio.wait_for(future, timeout)
        except TimeoutError:
            raise TimedOut(
                f"message {index} is not {stage} after {timeout:g} s; it may still be: group.explain() says what it waits for."
            ) from None
        finally:
            if grace is not None:
                grace.cancel()
            if future.cancelled():  # by the timeout, or with the caller
                self._sweep(stage)

    def _sweep(self, stage: Stage) -> None:
        """Forget waits that were given up, when there may be as many of them as others."""
        self._given_up[stage] += 1
        if 2 * self._given_up[stage] > max(SWEEP_MIN, len(self._waiting[stage])):
            self._given_up[stage] = 0
            self._waiting[stage] = [entry for entry in self._waiting[stage] if not entry[2].done()]
            heapify(self._waiting[stage])

    def _guard(
        self, index: int, future: asyncio.Future[None], reader: EventReader | None
    ) -> asyncio.TimerHandle | None:
        """Refuse a wait that would never end, because the caller itself reads the stream."""
        if reader is None:
            return None
        if reader.is_inside():
            raise self._deadlock(index, "inside the loop that reads the group")
        asker = reader.who_asks()
        if reader.who_reads() != asker:
            return None

        def look() -> None:
            if not future.done() and reader.who_reads() == asker:
                future.set_exception(
                    self._deadlock(index, f"by the reader of the group, and no other task has read for {GRACE_S:g} s")
                )

        return self._loop.call_later(GRACE_S, look)

    def _deadlock(self, index: int, where: str) -> Misuse:
        return Misuse(
            f"applied() of message {index} is awaited {where}, so the message would never be read: "
            "await applied() in another task, or await delivered() here and read on."
        )

    def _uncertain(self, index: int, known: tuple[MemberId, ...]) -> Uncertain:
        return Uncertain(Key(self.member, index), known)

    def _refuse(self, stage: Stage, doubt: Doubt) -> None:
        waiting = self._waiting[stage]
        if not waiting:
            return
        for index, _, future in waiting:
            if doubt.first <= index < doubt.end and not future.done():
                future.set_exception(self._uncertain(index, doubt.known))
        self._waiting[stage] = waiting = [entry for entry in waiting if not entry[2].done()]
        heapify(waiting)
        if stage is Stage.APPLIED:
            self.is_applied_awaited = bool(waiting)

    def _answer(self, stage: Stage) -> None:
        waiting = self._waiting[stage]
        is_in_order = stage is Stage.STABLE or not self._numbers_of(stage).beyond
        later = []
        while waiting:
            entry = heappop(waiting)
            index, _, future = entry
            if future.done():
                continue
            if self._is_met(index, stage):
                future.set_result(None)
                continue
            later.append(entry)
            if is_in_order:  # whatever comes after it waits too
                break
        for entry in later:
            heappush(waiting, entry)
        if stage is Stage.APPLIED:
            self.is_applied_awaited = bool(waiting)

    def _is_met(self, index: int, stage: Stage) -> bool:
        """Whether a waiting message, of which nothing is in doubt, has reached a stage."""
        return index < self.settled_to if stage is Stage.STABLE else index in self._numbers_of(stage)

    def _numbers_of(self, stage: Stage) -> Contiguous:
        return self._delivered if stage is Stage.DELIVERED else self._applied


class _Doubts:
    """Ranges of own messages by their first index. There are few: only view changes that divide a group leave any."""

    def __init__(self) -> None:
        self._doubts: list[Doubt] = []

    def __len__(self) -> int:
        return len(self._doubts)

    def add(self, doubt: Doubt) -> None:
        doubts = self._doubts
        if doubts and doubts[-1].end == doubt.first and doubts[-1].known == doubt.known:
            doubts[-1] = doubts[-1]._replace(end=doubt.end)
        else:
            insort(doubts, doubt)

    def known(self, index: int) -> tuple[MemberId, ...] | None:
        """The members known to have a message that is in doubt; None: it is not."""
        place = bisect_right(self._doubts, index, key=lambda doubt: doubt.first)
        if place and index < self._doubts[place - 1].end:
            return self._doubts[place - 1].known
        return None


class Receipt:
    """Says how far one message has come."""

    __slots__ = ("_index", "_receipts", "_told")
    _told: frozenset[Stage]  # unset until a trace has recorded one

    def __init__(self, receipts: Receipts, index: int) -> None:
        self._receipts = receipts
        self._index = index

    @property
    def key(self) -> Key:
        """The message's name, for ever unique."""
        return Key(self._receipts.member, self._index)

    def pass_by(self) -> None:
        """The message is not for this member: here it counts as delivered and applied at once, which a trace need not tell."""
        self._receipts.delivered(self._index, 1)
        self._receipts.applied(self._index, 1)
        self._told = frozenset({Stage.DELIVERED, Stage.APPLIED})

    async def delivered(self, timeout: float | None = None) -> None:
        """Wait until the message was delivered here, in its place: into the stream that the program reads.

        Raises `TimedOut` after `timeout` seconds, and `Uncertain` if it was delivered on the way out of the primary view. A
        message that is not for this member (`to=`) counts as delivered and applied at once.
        """
        await self.wait(Stage.DELIVERED, timeout)

    async def applied(self, timeout: float | None = None) -> None:
        """Wait until this program is done with the message: it took the event and asked for the next one, or the function
        given to `each` returned, or a state that has the message was restored.

        Raises as `delivered` does, and `Misuse` if the task that reads the group awaits it.
        """
        await self.wait(Stage.APPLIED, timeout)

    async def stable(self, timeout: float | None = None) -> None:
        """Wait until every member of the message's view (with `to=`: every addressee) is certain to deliver it, unless that
        member itself crashes.

        Raises `TimedOut` after `timeout` seconds, and `Uncertain` if the view ended before that was known.
        """
        await self.wait(Stage.STABLE, timeout)

    @property
    def is_delivered(self) -> bool:
        return self.has(Stage.DELIVERED)

    @property
    def is_applied(self) -> bool:
        return self.has(Stage.APPLIED)

    @property
    def is_stable(self) -> bool:
        return self.has(Stage.STABLE)

    # The same by stage, for code that stands between the application and its receipts (`unisono.sync`).

    @property
    def is_observed(self) -> bool:
        """Whether each answer is told to an observer, so that none may be given without asking."""
        return self._receipts.is_observed

    def has(self, stage: Stage) -> bool:
        """Whether the message has reached a stage."""
        return self._receipts.has(self._index, stage)

    def is_plainly(self, stage: Stage) -> bool:
        """Whether the message is known at a glance to have reached a stage. Any thread may ask."""
        return self._receipts.is_plainly(self._index, stage)

    def check(self, stage: Stage) -> bool:
        """Whether the message has reached a stage; raises `Uncertain` if that will never be confirmed."""
        return self._receipts.check(self._index, stage)

    async def wait(self, stage: Stage, timeout: float | None, reader: EventReader | None = None) -> None:
        """Wait for a stage. `reader` stands for the caller's way of reading, if not the group's own."""
        try:
            await self._receipts.wait(self._index, stage, timeout, reader)
        except Uncertain as error:
            self._record(stage, "uncertain", error.known)
            raise
        self._record(stage, "ok")

    def _record(self, stage: Stage, outcome: str, known: Sequence[MemberId] = ()) -> None:
        """Record each stage once, however often it is asked for; a positive answer to `applied` stands for `delivered`, too."""
        if not self._receipts.is_observed:
            return
        told: frozenset[Stage] = getattr(self, "_told", frozenset())
        if stage not in told:
            implied = {Stage.DELIVERED} if stage is Stage.APPLIED and outcome == "ok" else set()
            self._told = told | implied | {stage}
            self._receipts.tell(stage, self._index, outcome, known)


class DatagramReceipt(Receipt):
    """The receipt of a message that is not repeated if it gets lost (`service="datagram"`)."""

    __slots__ = ()

    def has(self, stage: Stage) -> bool:
        return stage is not Stage.STABLE and super().has(stage)

    def is_plainly(self, stage: Stage) -> bool:
        return stage is not Stage.STABLE and super().is_plainly(stage)

    def check(self, stage: Stage) -> bool:
        if stage is Stage.STABLE:
            raise Misuse(
                f"message {self._index} is a datagram, which is not repeated if it gets lost, so it is never stable: "
                "cast it with another service."
            )
        return super().check(stage)

    async def wait(self, stage: Stage, timeout: float | None, reader: EventReader | None = None) -> None:
        self.check(stage)
        await super().wait(stage, timeout, reader)
