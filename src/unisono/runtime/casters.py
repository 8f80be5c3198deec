"""The line of tasks that wait to cast: first come, first served."""

from __future__ import annotations

import asyncio
from bisect import insort


class Casters:
    """Tasks that found no room, by their place in the line.

    When there is room again, all of them are called in their order, and each may cast the message that it waits with. If there
    is room left, all are called again, and each gets an equal share of it: one message at a time would cost a pass of the
    loop each. So a task that casts in a loop does not use up the room that others wait for, and a task that is called and
    finds too little room keeps its place.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._called = 0  # tasks that were woken and have not run yet
        self._round = 0  # how many were woken together
        self._is_owed = False  # a task waits since there was no room
        self._is_single = False  # each that was called may cast one message
        self._next = 0  # the place of the next task that comes
        self._turn: int | None = None  # the place of the task that runs now because it was called

    def __bool__(self) -> bool:
        """Whether a task waits, or was called and has not run yet."""
        return bool(self._waiting) or self._called > 0

    @property
    def admits(self) -> bool:
        """Whether the task that runs now may cast: no other task is before it."""
        if self._turn is None:
            return not self
        return not self._waiting or self._waiting[0][0] > self._turn

    def has_cast(self) -> None:
        """The task that runs now has had its turn."""
        self._turn = None

    def share(self, most: int, there: int) -> int:
        """What the task that was called may take of `there` beside its message; all of a round together about `most`."""
        if self._is_single:
            return 0
        return min(most // max(1, self._round), there // (self._called + 1))

    async def wait(self) -> None:
        """Wait to be called, at the end of the line, or at the old place after a turn that came to nothing."""
        place = self._turn
        if place is None:
            place, self._next = self._next, self._next + 1
        self._turn = None
        waiter = self._loop.create_future()
        insort(self._waiting, (place, waiter), key=lambda one: one[0])
        try:
            await waiter
            self._turn = place
        finally:
            if waiter.done() and not waiter.cancelled():
                self._called -= 1
            else:
                self._waiting = [one for one in self._waiting if one[1] is not waiter]

    def hold(self) -> None:
        """There is no room."""
        self._is_owed = self._is_owed or bool(self._waiting)

    def call(self) -> None:
        """Wake all that wait: there is room, or nothing will be cast any more."""
        self._turn = None
        self._is_single, self._is_owed = self._is_owed, False
        waiting, self._waiting = self._waiting, []
        for _, waiter in waiting:
            if not waiter.done():
                self._called += 1
                waiter.set_result(None)
        self._round = self._called
