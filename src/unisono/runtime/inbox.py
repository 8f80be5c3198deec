"""What has happened and the application has not taken yet: one ordered stream, bounded by asking the others to wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from operator import length_hint
from typing import TypeAlias

from unisono.core.errors import Misuse
from unisono.core.happenings import Entered, Happening, Moving, Replaced, Stalled
from unisono.core.membership_host import Evicted, Refused
from unisono.core.types import Batch, MemberId, Transition
from unisono.runtime.events import Delivery, Event, View, deliveries, view_of

Deliver: TypeAlias = Callable[[MemberId, bytes], object]
Handle: TypeAlias = Callable[[Event], object]

QUEUE_BYTES_MAX = 16 << 20
"""Beyond so much that the application has not taken, the others are asked to wait …"""
QUEUE_BATCHES_MAX = 8_192
"""… or beyond so many batches."""
BREATH_MESSAGES = 1_024
"""After so many events without a pause, iterating lets the event loop run once."""
BATCH_BYTES = 100  # what a queued batch costs besides its payloads, about


class Inbox:
    """The stream of events of one member. One task takes from it at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[Happening] = deque()
        self._sizes: deque[int] = deque()  # of the batches in it
        self._current: Iterator[Event] = iter(())  # the rest of the batch that the application is at
        self._waiter: asyncio.Future[None] | None = None  # of the task that takes
        self._takers: tuple[Deliver, Handle] | None = None  # `each` takes, with these
        self._members: tuple[MemberId, ...] = ()  # at the application's place in the stream
        self.bytes = 0
        self.is_full = False
        """The others were asked to wait."""
        self.view: View | None = None
        """The latest that the application has taken."""
        self.failure: Exception | None = None
        self.is_told = False
        """Somebody has heard of the failure."""
        self.is_over = False
        """Nothing more will come."""
        self.is_held = False
        """What comes now is not handed out before the next pass of the loop."""
        self.tell_room: Callable[[bool], None] = lambda is_free: None
        self.expand: Callable[[Batch, tuple[MemberId, ...]], Iterator[Event]] = deliveries
        self.go_on: Callable[[], None] | None = None
        """The application is done with everything that it has taken: this wants to know."""

    def __len__(self) -> int:
        return len(self._queue)

    # In.

    def put(self, events: Iterable[Happening]) -> None:
        is_taken_now = self._takers is not None and self.go_on is None and not self.is_held
        for event in events:
            if isinstance(event, Batch):
                size = 0 if is_taken_now else size_of(event)
                self._sizes.append(size)
                self.bytes += size
            self._queue.append(event)
        if not self.is_full and (self.bytes > QUEUE_BYTES_MAX or len(self._queue) > QUEUE_BATCHES_MAX):
            self.is_full = True
            self.tell_room(False)
        if is_taken_now:
            self._hand_out_in_turn()
        elif self._takers is not None:  # whoever puts it here is at work, and does not expect to be called
            self._loop.call_soon(self._hand_out_in_turn)
        else:
            self.wake()

    def wake(self) -> None:
        """Let the task that waits look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Out.

    async def each(self, deliver: Deliver, handle: Handle) -> None:
        """Call `deliver` with every message and `handle` with all else, in the turn that brings it, until nothing will come."""
        waiter = self._claim()
        self._takers = (deliver, handle)
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
            raise self.failure

    def _hand_out(self) -> None:
        """If a call fails, what lies behind that event stays here."""
        if self._takers is None:
            return
        deliver, handle = self._takers
        is_plain = self.expand is deliveries
        while True:
            for event in self._current:
                if isinstance(event, Delivery):
                    deliver(event.sender, event.payload)
                else:
                    handle(event)
            happened = self._advance()
            if happened is None:
                break
            if is_plain and isinstance(happened, Batch):
                self._hand_out_batch(happened, deliver)

    def _hand_out_batch(self, batch: Batch, deliver: Deliver) -> None:
        """A loop without a line of Python: it runs once a message."""
        payloads = batch.payloads or ()
        rest = iter(payloads)
        try:
            deque(map(deliver, repeat(self._members[batch.origin]), rest), maxlen=0)
            if length_hint(rest):  # to such a loop it says that there is nothing more
                raise RuntimeError("what is called with every message raised StopIteration.")
            self._current = iter(())
        except BaseException:
            self._current = islice(self._current, len(payloads) - length_hint(rest), None)
            raise

    def _hand_out_in_turn(self) -> None:
        """An error of the application's is raised where it waits, and not in the turn."""
        try:
            self._hand_out()
        except Exception as error:
            self._takers = None
            if isinstance(error, StopIteration):  # which no future can hold
                error = RuntimeError("what is called with every event raised StopIteration.")
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(error)

    async def events(self) -> AsyncIterator[Event]:
        taken = 0
        while True:
            for event in self._current:  # it keeps its place if the loop is left
                yield event
                taken += 1
            if taken >= BREATH_MESSAGES:
                taken = 0
                await asyncio.sleep(0)
            if self._advance() is None:
                taken = 0
                if not await self._more():
                    return

    async def batches(self) -> AsyncIterator[Sequence[Delivery] | Event]:
        taken = 0
        while True:
            rest: list[Event] = []
            is_whole = self._gather(rest, None)
            taken += len(rest)
            if rest:
                yield rest if isinstance(rest[0], Delivery) else rest[0]  # type: ignore[misc]
            if not is_whole:
                continue
            if taken >= BREATH_MESSAGES:
                taken = 0
                await asyncio.sleep(0)
            if self._advance() is None:
                taken = 0
                if not await self._more():
                    return

    def ready(self, most: int) -> list[Event]:
        """Whoever asks for more is done with what it has, so where that counts (`go_on`) one batch is all there is at once."""
        events: list[Event] = []
        while self._gather(events, most - len(events)) and len(events) < most:
            if (events and self.go_on is not None) or self._advance() is None:
                break
        return events

    def _gather(self, events: list[Event], most: int | None) -> bool:
        """What is left of the current batch, up to so many. If a call fails, what lies before that event comes first (False)."""
        try:
            events.extend(islice(self._current, most))
        except Exception as error:
            if not events:
                raise
            self.fail_next(error)
            return False
        return True

    def fail_next(self, error: Exception) -> None:
        """Raise this to whoever takes the next event, and then go on behind it."""

        def fail() -> Iterator[Event]:
            raise error
            yield

        self._current = chain(fail(), self._current)

    def _advance(self) -> Happening | None:
        """Go to the next batch or other event. None: there is none yet."""
        if not self._queue and self.go_on is not None:
            self.go_on()
        while self._queue:
            happened = self._queue.popleft()
            if isinstance(happened, Batch):
                self.bytes -= self._sizes.popleft()
                self._current = self.expand(happened, self._members)
            elif isinstance(happened, Entered):
                self._members = happened.view.members
                self.view = view_of(happened)
                self._current = iter((self.view,))
            elif isinstance(happened, Transition):
                if self.view is not None and not happened.is_primary:
                    self.view = self.view._replace(is_primary=False)
                self._current = iter((happened,))
            elif isinstance(happened, Refused | Evicted | Stalled | Moving | Replaced):
                self._current = iter((happened,))
            else:
                continue
            if self.is_full and self._is_low():
                self.is_full = False
                self.tell_room(True)
            return happened
        return None

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

    def _is_low(self) -> bool:
        return self.bytes <= QUEUE_BYTES_MAX // 2 and len(self._queue) <= QUEUE_BATCHES_MAX // 2


def size_of(batch: Batch) -> int:
    """What a queued batch costs, about."""
    return BATCH_BYTES + sum(map(len, batch.payloads or ()))
