"""What has happened and the application has not taken yet: one ordered stream, bounded by asking the others to wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from inspect import Parameter, signature
from itertools import chain, count, islice, repeat
from operator import length_hint
from typing import Any, TypeAlias, TypeVar
from weakref import ref

from unisono.core.errors import Misuse
from unisono.core.member import Aside, Diverged, Entered, Happening, Replaced, Resumed, Stalled
from unisono.core.membership import Evicted, Left, Outlived, Refused
from unisono.core.transition import Transition
from unisono.core.types import Batch, Key, MemberId
from unisono.core.views import Span
from unisono.runtime.errors import fresh
from unisono.runtime.events import Delivery, Event, View, deliveries, view_of
from unisono.runtime.observers import Observers
from unisono.runtime.receipts import Receipts

T = TypeVar("T")
Deliver: TypeAlias = Callable[[MemberId, bytes], object] | Callable[[MemberId, bytes, Key], object]
Handle: TypeAlias = Callable[[Event], object]
Shown: TypeAlias = Batch | View | Transition | Replaced | Refused | Evicted | Stalled | Resumed | Diverged
"""What the stream holds: events, and messages in batches."""

QUEUE_BYTES_MAX = 16 << 20
"""With more than this unread by the application, the other members are asked to wait …"""
QUEUE_BATCHES_MAX = 8_192
"""… or with more batches than this."""
BREATH_MESSAGES = 1_024
"""After this many events without a pause, iterating lets the event loop run once."""
BATCH_BYTES = 100  # what a queued batch costs besides its payloads, about


class Inbox:
    """The stream of events of one member. One task takes from it at a time.

    It tells the receipts which own messages the application is done with (`Receipts.applied`): those before the event that it
    asked for last. Batches that were taken whole are told when the next one is asked for; the place inside a batch is told
    only if a task waits for it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, receipts: Receipts, observers: Observers | None = None) -> None:
        self._loop = loop
        self._receipts = receipts
        self._observers = observers or Observers()
        self._queue: deque[Shown] = deque()
        self._sizes: deque[int] = deque()  # of the batches in it
        self._current: Iterator[Event] = iter(())  # the rest of the batch that the application is at
        self._waiter: asyncio.Future[None] | None = None  # of the task that takes
        self._takers: tuple[Callable[..., object], Handle] | None = None  # `each` takes, with these
        self._takes_key = False  # the first of them gets a message's key, too
        self._members: tuple[MemberId, ...] = ()  # at the application's place in the stream
        self._rank = -1  # of this member, there
        self._own: Span | None = (
            None  # of the current batch, what the receipts do not know as applied; None: not this member's
        )
        self._passed: list[Span] = []  # of earlier batches likewise: taken by a call that took several
        self._last: Event | None = None  # that `ready` or `next` has handed out
        self.done: Event | None = None
        """The last event that the application is done with, as far as it may matter."""
        self._task: asyncio.Task[Any] | None = None  # that has taken the last event
        self._stream: ref[AsyncIterator[object]] | None = None  # by which it has; None: by `ready` or `next`
        self.bytes = 0
        self.is_full = False
        """The other members were asked to wait."""
        self.view: View | None = None
        """The latest view that the application has taken."""
        self.failure: Exception | None = None
        self.is_told = False
        """The failure was raised to the application."""
        self.is_over = False
        """Nothing more will come."""
        self.is_held = False
        """What comes now is not handed out before the next iteration of the loop."""
        self.shows_stalls = True
        """Whether the application is shown what the watchdog says; else only the log is."""
        self.tell_room: Callable[[bool], None] = lambda is_free: None
        self.expand: Callable[[Batch, tuple[MemberId, ...]], Iterator[Event]] = deliveries
        self.go_on: Callable[[], None] | None = None
        """The application is done with everything that it has taken: this wants to know."""
        self.taken: Callable[[], None] | None = None
        """A task waits for something that reading may change: this is called when the application goes on."""

    def __len__(self) -> int:
        return len(self._queue)

    # In.

    def put(self, events: Iterable[Happening]) -> None:
        is_taken_now = self._takers is not None and self.go_on is None and not self.is_held
        observers = self._observers.shown
        for happened in events:
            if isinstance(happened, Batch):
                size = 0 if is_taken_now else BATCH_BYTES + sum(map(len, happened.payloads or ()))
                self._sizes.append(size)
                self.bytes += size
            elif isinstance(happened, Aside | Left | Outlived) or (
                not self.shows_stalls and isinstance(happened, Stalled | Resumed)
            ):
                continue
            event = view_of(happened) if isinstance(happened, Entered) else happened
            for look in observers:
                look(event)
            self._queue.append(event)
        if not self.is_full and (self.bytes > QUEUE_BYTES_MAX or len(self._queue) > QUEUE_BATCHES_MAX):
            self.is_full = True
            self.tell_room(False)
        if is_taken_now:
            self._hand_out_in_turn()
        elif self._takers is not None:  # the caller is at work, and does not expect to be called back
            self._loop.call_soon(self._hand_out_in_turn)
        elif (waiter := self._waiter) is not None and not waiter.done():
            waiter.set_result(None)

    def disown(self, failure: Exception) -> None:
        """In a forked child: what waits here is the parent's, and its task takes it."""
        self._queue.clear()
        self._sizes.clear()
        self._current = iter(())
        self._waiter = self._takers = None
        self.go_on = None
        self.failure, self.is_over = failure, True

    def wake(self) -> None:
        """Let the task that waits look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Out.

    async def each(self, deliver: Deliver, handle: Handle) -> None:
        """Call `deliver` with every message and `handle` with all else, in the turn that brings it, until nothing will come."""
        waiter = self._claim()
        self._finish_taken()
        self._task = None  # no task handles an event while it waits for anything
        self._takers, self._takes_key = (deliver, handle), takes_key(deliver)
        try:
            self._hand_out()
            if not self.is_over:
                await waiter
                self._hand_out()
        finally:
            self._takers = self._waiter = None
        self.raise_failure()

    def raise_failure(self) -> None:
        if self.failure is not None:
            self.is_told = True
            raise fresh(self.failure)

    def _hand_out(self) -> None:
        """If a call fails, what lies behind that event stays here."""
        if self._takers is None:
            return
        deliver, handle = self._takers
        is_plain = self.expand is deliveries
        while True:
            for event in self._current:
                if isinstance(event, Delivery):
                    deliver(event.sender, event.payload, *((event.key,) if self._takes_key else ()))
                else:
                    handle(event)
            happened = self._advance()
            if happened is None:
                break
            if is_plain and isinstance(happened, Batch):
                self._hand_out_batch(happened, deliver)

    def _hand_out_batch(self, batch: Batch, deliver: Callable[..., object]) -> None:
        """A loop without a line of Python: it runs once a message."""
        payloads = batch.payloads or ()
        rest = iter(payloads)
        sender = self._members[batch.origin]
        keys = (map(Key, repeat(sender), count(batch.first)),) if self._takes_key else ()
        try:
            deque(map(deliver, repeat(sender), rest, *keys), maxlen=0)
            if length_hint(rest):  # to such a loop it says that there is nothing more
                raise RuntimeError(
                    "the `deliver` given to `each` raised StopIteration: raise another exception to stop."
                )
            self._current = iter(())
        except BaseException:
            taken = len(payloads) - length_hint(rest)
            self._current = islice(self._current, taken, None)
            self._apply_below(batch.first + taken - 1)
            raise

    def _hand_out_in_turn(self) -> None:
        """An error of the application's is raised where it waits, and not in the turn."""
        try:
            self._hand_out()
        except Exception as error:
            self._takers = None
            if isinstance(error, StopIteration):  # which no future can hold
                error = RuntimeError(
                    "the `handle` given to `each` raised StopIteration: raise another exception to stop."
                )
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(error)

    def events(self) -> AsyncIterator[Event]:
        return _knowing_itself(self._events)

    async def _events(self, own: list[ref[AsyncIterator[object]]]) -> AsyncIterator[Event]:
        taken, receipts = 0, self._receipts
        self._finish_taken()
        self._enter(own[0])
        while True:
            for event in self._current:  # it keeps its place if the loop is left
                yield event
                taken += 1
                self.done = event
                if receipts.is_applied_awaited:
                    self.note_done()
            if taken >= BREATH_MESSAGES:
                taken = 0
                await asyncio.sleep(0)
            is_awaited = self._own is not None or self.taken is not None or self.go_on is not None
            if (self._queue or is_awaited) and self._advance() is not None:
                continue
            taken = 0
            while not self._queue:  # as in `_more`: a message alone waits here, and every call counts
                if self.failure is not None:
                    self.raise_failure()
                if self.is_over:
                    return
                waiter = self._claim()
                try:
                    await waiter
                finally:
                    self._waiter = None
            self._task, self._stream = asyncio.current_task(self._loop), own[0]

    def batches(self) -> AsyncIterator[Sequence[Delivery] | Event]:
        return _knowing_itself(self._batches)

    async def _batches(self, own: list[ref[AsyncIterator[object]]]) -> AsyncIterator[Sequence[Delivery] | Event]:
        taken = 0
        self._finish_taken()
        self._enter(own[0])
        while True:
            rest: list[Event] = []
            is_whole = self._gather(rest, None)
            taken += len(rest)
            if rest:
                yield rest if isinstance(rest[0], Delivery) else rest[0]  # type: ignore[misc]
                self.done = rest[-1]
            if not is_whole:
                continue
            if taken >= BREATH_MESSAGES:
                taken = 0
                await asyncio.sleep(0)
            if self._advance() is None:
                taken = 0
                if not await self._more():
                    return
                self._enter(own[0])

    def ready(self, most: int, is_done: bool = True) -> list[Event]:
        """Hand out at most `most` events that are there. Where it counts what the application is done with (`go_on`), that is at
        most one batch: a caller that asks for more is done with what it has.

        `is_done=False`: it is not, because this continues the last call.
        """
        if is_done:
            self._finish_taken()
        events: list[Event] = []
        while self._gather(events, most - len(events)) and len(events) < most:
            if (events and self.go_on is not None) or self._advance(is_done and not events) is None:
                break
        if events:
            self.took(events[-1])
        return events

    def took(self, event: Event) -> None:
        """A call has handed out everything up to this event, and returns."""
        self._last = event
        self._enter(None)

    def _finish_taken(self) -> None:
        """A caller that asks for events again is done with those that the last call has handed out."""
        if self._passed:
            passed, self._passed = self._passed, []
            for first, end in passed:
                self._receipts.applied(first, end - first)
        if self._last is not None:
            self.done, self._last = self._last, None
            if self._receipts.is_applied_awaited:
                self.note_done()

    def _gather(self, events: list[Event], most: int | None) -> bool:
        """Take at most `most` of the current batch. If a call fails, what lies before that event comes first (False)."""
        try:
            events.extend(islice(self._current, most))
        except Exception as error:
            if not events:
                raise
            self.fail_next(error)
            return False
        return True

    def fail_next(self, error: Exception) -> None:
        """Raise this where the next event is taken, and then go on behind it."""

        def fail() -> Iterator[Event]:
            raise error
            yield

        self._current = chain(fail(), self._current)

    def _advance(self, is_done: bool = True) -> Shown | None:
        """Go to the next batch or other event. None: there is none yet. `is_done`: the application has handled what it took."""
        if self._own is not None:
            (first, end), self._own = self._own, None
            if is_done:
                self._receipts.applied(first, end - first)
            else:
                self._passed.append((first, end))
        if self.taken is not None:
            self.taken()
        if not self._queue and self.go_on is not None:
            self.go_on()
        if not self._queue:
            return None
        happened = self._queue.popleft()
        if isinstance(happened, Batch):
            self.bytes -= self._sizes.popleft()
            self._current = self.expand(happened, self._members)
            if happened.origin == self._rank:
                self._own = (happened.first, happened.first + happened.count)
        else:
            if isinstance(happened, View):
                self._members, self.view = happened.members, happened
                self._rank = happened.members.index(self._receipts.member)
            elif isinstance(happened, Transition) and self.view is not None and not happened.is_primary:
                self.view = self.view._replace(is_primary=False)
            self._current = iter((happened,))
        if self.is_full and self._is_low():
            self.is_full = False
            self.tell_room(True)
        return happened

    async def _more(self) -> bool:
        """Wait until something happens. False: nothing will."""
        while not self._queue:
            self.raise_failure()
            if self.is_over:
                return False
            waiter = self._claim()
            try:
                await waiter
            finally:
                self._waiter = None
        return True

    def _claim(self) -> asyncio.Future[None]:
        """From now on this task waits for what comes."""
        if self._waiter is not None:
            raise Misuse("another task waits for this group's next event already: one stream has one reader.")
        self._waiter = waiter = self._loop.create_future()
        return waiter

    # Which task reads, and how far it is.

    def _enter(self, stream: ref[AsyncIterator[object]] | None) -> None:
        """The running task takes events, by this stream if by any. Told once a wait: a stream seldom changes hands."""
        self._task, self._stream = asyncio.current_task(self._loop), stream

    def note_done(self) -> None:
        """Tell the receipts how far the application is inside the batches that it has taken."""
        done = self.done
        if isinstance(done, Delivery) and done.sender == self._receipts.member:
            self._apply_below(done.index + 1)

    def _apply_below(self, index: int) -> None:
        """The application is done with what was taken before an own message of this index, which is not handled yet."""
        spans = [*self._passed, *(() if self._own is None else (self._own,))]
        place = next((i for i, (first, end) in enumerate(spans) if first < index <= end), None)
        if place is None:
            return
        for first, end in spans[:place]:
            self._receipts.applied(first, end - first)
        first, end = spans[place]
        self._receipts.applied(first, index - first)
        rest = [(index, end)] if index < end else []
        if place < len(self._passed):
            self._passed = rest + self._passed[place + 1 :]
        else:
            self._passed, self._own = [], rest[0] if rest else None

    def is_inside(self) -> bool:
        """Whether the running task handles an event now, inside `async for`: a loop that was left does not count."""
        stream = None if self._stream is None else self._stream()
        return getattr(stream, "ag_frame", None) is not None and self._task is asyncio.current_task(self._loop)

    def who_reads(self) -> object:
        return self._task

    def who_asks(self) -> object:
        return asyncio.current_task(self._loop)

    def _is_low(self) -> bool:
        return self.bytes <= QUEUE_BYTES_MAX // 2 and len(self._queue) <= QUEUE_BATCHES_MAX // 2


def _knowing_itself(make: Callable[[list[ref[AsyncIterator[object]]]], AsyncIterator[T]]) -> AsyncIterator[T]:
    """A stream that can tell that it is the one by which a task reads."""
    own: list[ref[AsyncIterator[object]]] = []
    stream = make(own)
    own.append(ref(stream))
    return stream


def takes_key(deliver: Deliver) -> bool:
    """Whether a function wants three arguments. A third parameter with a default is the function's own business."""
    try:
        parameters = signature(deliver).parameters.values()
    except (TypeError, ValueError):  # some that are written in C do not say
        return False
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in positional and one.default is Parameter.empty for one in parameters) == 3
