"""Receipts: how far own messages have come. Nobody pays for them who does not wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from unisono.core.prefix import Prefix
from unisono.core.types import Key, MemberId
from unisono.runtime.errors import TimedOut


class Receipts:
    """How far the own messages of one member have come, and who waits for that."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.member: MemberId  # whose messages
        self._delivered = Prefix()  # out of order if an order of several services does so
        self.stable_to = 0
        """All own messages below this index have been taken in by every member of their view that came along."""
        self._waiting: dict[bool, list[tuple[int, int, asyncio.Future[None]]]] = {True: [], False: []}  # stable or not
        self._tie = count()
        self._failure: Exception | None = None
        self.urge: Callable[[], None] = lambda: None
        """Somebody waits for a message to be stable."""

    @property
    def delivered_to(self) -> int:
        """All own messages below this index were delivered here."""
        return self._delivered.end

    def delivered(self, first: int, messages: int) -> None:
        """Own messages from `first` on were delivered here."""
        self._delivered.add(first, first + messages)
        if self._waiting[False]:
            self._answer(False)

    def stable(self, index: int) -> None:
        """All own messages below an index are stable."""
        if index > self.stable_to:
            self.stable_to = index
            if self._waiting[True]:
                self._answer(True)

    def has(self, index: int, stable: bool) -> bool:
        return index < self.stable_to if stable else index in self._delivered

    async def wait(self, index: int, stable: bool, timeout: float | None) -> None:
        if self.has(index, stable):
            return
        if self._failure is not None:
            raise self._failure
        future = self._loop.create_future()
        heappush(self._waiting[stable], (index, next(self._tie), future))
        if stable:
            self.urge()
        try:
            await asyncio.wait_for(future, timeout)
        except TimeoutError:
            what = "stable" if stable else "delivered"
            raise TimedOut(
                f"message {index} is not {what} after {timeout:g} s; it may still be: group.explain() says what it waits for."
            ) from None

    def fail(self, error: Exception) -> None:
        """Nothing more will come."""
        self._failure = self._failure or error
        for waiting in self._waiting.values():
            for _, _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            waiting.clear()

    def _answer(self, stable: bool) -> None:
        waiting = self._waiting[stable]
        later = []
        while waiting:
            entry = heappop(waiting)
            index, _, future = entry
            if future.done():
                continue
            if self.has(index, stable):
                future.set_result(None)
                continue
            later.append(entry)
            if stable or not self._delivered.beyond:  # whoever comes after it waits too
                break
        for entry in later:
            heappush(waiting, entry)


class Receipt:
    """Says how far one message has come."""

    __slots__ = ("_index", "_receipts")

    def __init__(self, receipts: Receipts, index: int) -> None:
        self._receipts = receipts
        self._index = index

    @property
    def key(self) -> Key:
        """The message's name, for ever unique."""
        return Key(self._receipts.member, self._index)

    async def delivered(self, timeout: float | None = None) -> None:
        """Wait until the message was delivered here, in its place. Raises `TimedOut` after so many seconds."""
        await self._receipts.wait(self._index, False, timeout)

    async def stable(self, timeout: float | None = None) -> None:
        """Wait until every member has taken the message in. Raises `TimedOut` after so many seconds."""
        await self._receipts.wait(self._index, True, timeout)

    @property
    def is_delivered(self) -> bool:
        return self._receipts.has(self._index, False)

    @property
    def is_stable(self) -> bool:
        return self._receipts.has(self._index, True)
