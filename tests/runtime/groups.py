"""Groups in virtual time, and event loops for real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import uvloop

import unisono

A, B, C = ADDRESSES = [f"10.0.0.{i}:7400" for i in (1, 2, 3)]
Loop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uvloop", marks=pytest.mark.seconds),
]


async def join_all(count: int = 3, primary_in: Path | None = None, **wishes: Any) -> list[unisono.Group]:
    """The members of one group in virtual time, once they have met. `primary_in`: with that policy, and journals in this folder."""
    addresses = ADDRESSES[:count]

    def join(address: str) -> unisono.Joining:
        more: dict[str, Any] = {} if primary_in is None else {"policy": "primary", "journal": primary_in / address}
        return unisono.join("g", listen=address, peers=addresses, min_members=count, **wishes, **more)

    return await asyncio.gather(*map(join, addresses))


async def leave_all(groups: Iterable[unisono.Group]) -> None:
    """One after the other."""
    for group in groups:
        await group.leave()


def run_on(loop: Loop, main: Awaitable[None]) -> None:
    """Run to the end on an event loop of this kind, or for a minute."""

    async def limited() -> None:
        async with asyncio.timeout(60):
            await main

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(limited())
