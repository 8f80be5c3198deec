"""Who waits until something holds after a turn of the member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from unisono.runtime.errors import fresh


class Watchers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def wait(self, condition: Callable[[], bool], timeout: float | None) -> None:
        """Wait until the condition holds. Raises `TimeoutError`, or what `look` was told."""
        future = self._loop.create_future()
        self._waiting.append((condition, future))
        await asyncio.wait_for(future, timeout)

    def look(self, failure: Exception | None, end: Exception | None) -> None:
        """End the waits whose condition holds now; end all with `failure` if the member has failed, with `end` if it has ended."""
        waiting = []
        for condition, future in self._waiting:
            if future.done():
                continue
            if failure is not None:
                future.set_exception(fresh(failure))
                continue
            try:
                holds = condition()
            except Exception as error:  # the application's: it is raised where the task waits
                if isinstance(error, StopIteration):  # which no future can hold
                    error = RuntimeError("the predicate given to `until` raised StopIteration: return True or False.")
                future.set_exception(error)
                continue
            if holds:
                future.set_result(None)
            elif end is not None:
                future.set_exception(end)
            else:
                waiting.append((condition, future))
        self._waiting = waiting
