"""How a member of any system takes part: one frame for programs that loop, one for asyncio. A system adds its own verbs."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from threading import Event
from time import monotonic_ns
from typing import Any

from benchmarks.peers.common import Line, Pace, Plan, Taken, make_payload, padding_of


class Looping(ABC):
    """A member that casts and takes in one loop: it never waits for the one without doing the other."""

    burst = 64
    """Maximum number of casts between two looks at what has come."""
    poll_ns = 2_000_000
    """How long to wait for a message when there is nothing to cast."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._padding = padding_of(plan)

    @abstractmethod
    def open(self) -> None:
        """Connect; when all have, nothing that is cast is missed."""

    @abstractmethod
    def cast(self, payload: bytes) -> bool:
        """Cast, and never wait. False: there is no room, and it must be cast again."""

    @abstractmethod
    def take(self, taken: Taken, wait_ns: int) -> None:
        """Take some of what has come; if nothing has, wait at most so long."""

    def wait(self, event: Event) -> None:
        """Wait for a word of the benchmark."""
        event.wait()

    def make(self, index: int) -> bytes:
        return make_payload(self.plan.number, index, monotonic_ns(), self._padding)

    @classmethod
    def main(cls) -> None:
        self = cls(Plan.from_line(sys.argv[1]))
        line, rank = Line(), self.plan.number
        self.open()
        line.say(ready=True, rank=rank)
        self.wait(line.started)
        start_ns = line.wait_for_start()
        taken = Taken(self.plan, rank, start_ns)
        self._exchange(taken, line, start_ns)
        line.say(**taken.report(), rank=rank)
        self.wait(line.over)

    def _exchange(self, taken: Taken, line: Line, start_ns: int) -> None:
        plan = self.plan
        pace, casts, is_paced = Pace(plan, plan.number, start_ns), plan.casts(plan.number), plan.rate_per_s is not None
        index, has_said = 0, False
        payload: bytes | None = None  # made, and refused for want of room
        while True:
            now, wait_ns = monotonic_ns(), self.poll_ns
            if now >= pace.stop_ns:
                if not has_said:
                    has_said = True
                    line.say(sent=index, rank=plan.number)
                if line.is_done(taken):
                    return
            elif casts and now >= start_ns:
                for _ in range(self.burst):
                    now = monotonic_ns()
                    if now >= pace.stop_ns or (is_paced and pace.wait_ns(index, now)):
                        break
                    payload = payload or self.make(index)
                    if not self.cast(payload):
                        break  # take, and try again
                    payload = None
                    index += plan.batch
                if payload is None:
                    wait_ns = min(wait_ns, pace.wait_ns(index, now)) if is_paced else 0
            self.take(taken, wait_ns)


async def take_part(
    plan: Plan,
    rank: int,
    line: Line,
    cast: Callable[[int], Awaitable[int]],
    take: Callable[[Taken], Coroutine[Any, Any, None]],
) -> None:
    """A member on asyncio: `cast(start_ns)` casts until the time is over, while a task takes."""
    line.say(ready=True, rank=rank)
    start_ns = await asyncio.to_thread(line.wait_for_start)
    taken = Taken(plan, rank, start_ns)
    taking = asyncio.create_task(take(taken))
    sent = await cast(start_ns) if plan.casts(rank) else 0
    await asyncio.sleep(max(0, Pace(plan, rank, start_ns).stop_ns - monotonic_ns()) / 1e9)
    line.say(sent=sent, rank=rank)
    while not line.is_done(taken) and not taking.done():
        await asyncio.sleep(0.01)
    line.say(**taken.report(), rank=rank)
    await asyncio.to_thread(line.over.wait)
    taking.cancel()


async def cast_each(plan: Plan, rank: int, start_ns: int, cast: Callable[[bytes], Awaitable[Any]]) -> int:
    """Cast one by one until the time is over; how many."""
    pace, padding = Pace(plan, rank, start_ns), padding_of(plan)
    await asyncio.sleep(max(0, start_ns - monotonic_ns()) / 1e9)
    index, stop_ns, is_paced = 0, pace.stop_ns, plan.rate_per_s is not None
    while (now := monotonic_ns()) < stop_ns:
        if is_paced and (wait_ns := pace.wait_ns(index, now)):
            await asyncio.sleep(wait_ns / 1e9)
            continue
        await cast(make_payload(rank, index, now, padding))
        index += 1
    return index
