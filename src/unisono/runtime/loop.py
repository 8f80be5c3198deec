"""The event loop of a program: uvloop where it is installed, else the standard one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the fastest loop that is installed; None: the standard one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop  # type: ignore[no-any-return, unused-ignore]


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a program to its end."""
    with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
        return runner.run(main)
