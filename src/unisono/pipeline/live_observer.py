"""A member that only listens and journals, in a thread with an event loop of its own, for as long as a query runs."""

from __future__ import annotations

import asyncio
import threading
import time

import unisono
from unisono.pipeline.live_options import Options
from unisono.pipeline.session import PipelineError
from unisono.runtime.journal import Locked

TAKE_OVER_S = 10.0
"""How long the journal may still be held by the observer of a query that was just killed."""


class ObservingMember:
    """Joins when it is made; `check` raises what went wrong."""

    def __init__(self, options: Options, journal: str) -> None:
        self._group = options.require("group", "the name of the group to observe")
        self._wishes = options.joining()
        self._journal = journal
        self._fsync = options.choose("fsync", ("turn", "always", "never"))
        self._is_ready = threading.Event()  # the journal is open, or it failed
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="unisono observer", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Return when the group is being observed."""
        timeout_s = TAKE_OVER_S + (self._wishes["timeout"] or 0)
        if not self._is_ready.wait(timeout_s):
            raise PipelineError(
                f"the group {self._group!r} could not be joined within {timeout_s:g} s: are its members up?"
            )
        if self._failure is not None:
            raise PipelineError(str(self._failure)) from self._failure
        if not self._thread.is_alive():
            raise PipelineError(f"the observer of {self._group!r} has ended: start the query again.")

    def stop(self) -> None:
        """Leave the group."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10.0)

    def _run(self) -> None:
        try:
            asyncio.run(self._observe())
        except BaseException as error:  # told by `check`, in the query's thread
            self._failure = error
        finally:
            self._is_ready.set()

    async def _observe(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        journal = await self._open_journal()
        async with unisono.join(self._group, journal=journal, min_members=2, role="observer", **self._wishes) as group:
            self._is_ready.set()
            listening = asyncio.ensure_future(listen(group))
            stopping = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait((listening, stopping), return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                stopping.cancel()
                listening.result()
            else:
                listening.cancel()

    async def _open_journal(self) -> unisono.Journal:
        until = time.monotonic() + TAKE_OVER_S
        while True:
            try:
                return unisono.Journal(self._journal, deliveries=True, fsync=self._fsync)
            except Locked:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.1)


async def listen(group: unisono.Group) -> None:
    """Take what the group delivers, so that no member has to wait for this one."""
    async for _ in group.batches():
        pass
