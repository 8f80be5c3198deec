"""`unisono.run`: a program to its end, whether that is its own or a signal's."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

from unisono.core.errors import Misuse

T = TypeVar("T")

ENDING = (signal.SIGTERM, signal.SIGINT)
EXIT_BASE = 128
"""A program that a signal has ended exits with this plus the signal's number, as shells say it: 143 and 130."""


def run(
    main: Coroutine[Any, Any, T],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    debug: bool | None = None,
) -> T:
    """Run a program like `asyncio.run`; SIGTERM and SIGINT (Ctrl-C) let its groups be left in order.

    The first signal cancels `main`, so every `async with unisono.join(…)` leaves, and then the program exits with 143 (SIGTERM)
    or 130 (SIGINT), without a traceback. If `main` catches the cancellation, its result or error counts. A second signal ends
    the process at once. `loop_factory` makes another event loop, such as `uvloop.new_event_loop`. Outside of the main thread
    signals are left alone.
    """
    if not asyncio.iscoroutine(main):
        raise Misuse(
            f"run takes a coroutine, not {type(main).__name__}: write `unisono.run(main())`, with the parentheses."
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        main.close()
        raise Misuse("run starts an event loop, and one runs here already: await `main()` instead.")
    with _Signals() as signals:
        try:
            with asyncio.Runner(loop_factory=loop_factory, debug=debug) as runner:
                return runner.run(signals.end(main))
        except asyncio.CancelledError:
            if signals.received is None:
                raise
        raise SystemExit(EXIT_BASE + signals.received)


class _Signals:
    """SIGTERM and SIGINT: the first cancels the task that runs, and the next does what it does by default: end the process."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            heeded = [
                one for one in ENDING if signal.getsignal(one) is not signal.SIG_IGN
            ]  # nohup, and jobs of scripts
            self._before = {one: signal.signal(one, self._receive) for one in heeded}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    async def end(self, main: Coroutine[Any, Any, T]) -> T:
        """Await `main`, which a signal cancels."""
        self._task = asyncio.current_task()
        if self.received is not None:
            self._cancel()
        return await main

    def _receive(self, number: int, frame: FrameType | None) -> None:
        task = self._task
        if self.received is not None or (task is not None and task.done()):
            self._stand_aside()
            signal.raise_signal(number)
        self.received = number
        if task is not None:
            task.get_loop().call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        assert self._task is not None
        self._task.cancel()
        self._stand_aside()

    def _stand_aside(self) -> None:
        """From now on the system acts on signals itself, however busy the program is."""
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)
