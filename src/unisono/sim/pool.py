"""Work for all cores: calls fanned out to processes, answers told as they come.

Processes are imported when they are started, so that one worker is enough where there are none.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

AnswerT = TypeVar("AnswerT")


def fan_out(
    call: Callable[..., AnswerT],
    work: Iterable[tuple[Any, ...]],
    seen: Callable[[AnswerT], bool],
    workers: int | None = None,
) -> None:
    """Call a function of a module with each of these arguments; `seen` gets every answer, and stops the rest with False.

    Answers come in no particular order. With one worker nothing is started, and they come in the order of the work.
    """
    workers = workers or os.cpu_count() or 1
    if workers > 1:
        _fan_out_to_processes(call, work, seen, workers)
        return
    for arguments in work:
        if not seen(call(*arguments)):
            return


def _fan_out_to_processes(
    call: Callable[..., AnswerT], work: Iterable[tuple[Any, ...]], seen: Callable[[AnswerT], bool], workers: int
) -> None:
    import multiprocessing
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_leave_interrupts_to_the_parent) as pool:
        running: set[Future[AnswerT]] = set()
        try:
            for arguments in work:
                running.add(pool.submit(call, *arguments))
                while len(running) >= workers * 4:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    answers = [seen(future.result()) for future in done]  # tell all of them, whatever the first answers
                    if not all(answers):
                        return
            for future in running:
                seen(future.result())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    """Ctrl-C reaches the whole process group; the parent stops the work, and workers need not say anything."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
