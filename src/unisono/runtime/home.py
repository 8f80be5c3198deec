"""Where a member may be used: in the process that joined, by the thread of its event loop."""

from __future__ import annotations

import asyncio
import os
from threading import get_ident

from unisono.core.errors import Misuse
from unisono.core.types import MemberId
from unisono.runtime.forks import sentence


class Home:
    """The thread and the process of one member. Nothing there is locked: only the loop's thread may change anything."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, member: MemberId) -> None:
        self._loop = loop
        self._name = name
        self._id = member
        self._process = os.getpid()
        self.loop_thread = get_ident()
        """For callers that compare it with their own thread before they call `check_thread`; 0: in a forked child."""

    def check_process(self) -> None:
        if not self.loop_thread:
            raise self.disowned()

    def check_thread(self) -> None:
        """Raise `Misuse` in a thread that is not the event loop's. A loop that was stopped may go on in another thread."""
        if get_ident() == self.loop_thread:
            return
        self.check_process()
        try:
            is_at_home = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_at_home = False
        if not is_at_home:
            raise Misuse(
                f"{self._id} of {self._name!r} was used in another thread than its event loop's: pass plain calls to "
                "`loop.call_soon_threadsafe` and coroutines to `asyncio.run_coroutine_threadsafe`, or join with `unisono.sync`, "
                "whose groups every thread may use."
            )
        self.loop_thread = get_ident()

    def disown(self) -> Misuse:
        """In a forked child: refuse everything from now on, with this error."""
        self.loop_thread = 0
        return self.disowned()

    def disowned(self) -> Misuse:
        return Misuse(sentence(f"the group {self._name!r} was joined", self._process))
