"""One unisono member of the network benchmark, through the public interface alone: single casts, single deliveries.

It casts without waiting where there is room (`try_cast`), and takes by a function that is called with every message (`each`).
`network_iterating` is the same with `await cast` and `async for`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from time import monotonic_ns
from typing import Any, TypeAlias

import unisono
from benchmarks.peers.common import Line, Pace, Plan, Taken, make_payload, padding_of
from benchmarks.peers.frames import take_part
from unisono.core.member import Settings
from unisono.runtime.loop import run as run_loop

Cast: TypeAlias = Callable[[unisono.Group, Plan, int, int], Awaitable[int]]
Take: TypeAlias = Callable[[unisono.Group, Taken], Coroutine[Any, Any, None]]

JOIN_S = 20.0
FRAME_BYTES = 10  # a frame's own head, and its checksum


async def run(plan: Plan, cast: Cast, take: Take) -> None:
    line = Line()
    addresses = [f"127.0.0.1:{port}" for port in plan.ports]
    async with unisono.join(
        plan.extra["group"],
        listen=addresses[plan.number],
        peers=addresses,
        min_members=plan.members,
        timeout=JOIN_S,
        **wishes_of(plan),
    ) as group:
        rank = group.members.index(group.id)
        await take_part(
            plan, rank, line, lambda start_ns: cast(group, plan, rank, start_ns), lambda taken: take(group, taken)
        )


def wishes_of(plan: Plan) -> dict[str, Any]:
    """What a case asks for besides the defaults."""
    wishes: dict[str, Any] = {name: plan.extra[name] for name in ("order", "key", "trace") if name in plan.extra}
    if "datagram_bytes" in plan.extra:
        settings = Settings()
        room = plan.extra["datagram_bytes"] - FRAME_BYTES
        wishes["settings"] = replace(settings, streams=replace(settings.streams, datagram_bytes=room))
    return wishes


async def cast(group: unisono.Group, plan: Plan, rank: int, start_ns: int) -> int:
    """Cast one by one until the time is over; how many."""
    pace, padding = Pace(plan, rank, start_ns), padding_of(plan)
    await asyncio.sleep(max(0, start_ns - monotonic_ns()) / 1e9)
    index, stop_ns, is_paced = 0, pace.stop_ns, plan.rate_per_s is not None
    while (now := monotonic_ns()) < stop_ns:
        if is_paced and (wait_ns := pace.wait_ns(index, now)):
            await asyncio.sleep(wait_ns / 1e9)
        elif group.try_cast(make_payload(rank, index, now, padding)) is None:
            await group.room()
        else:
            index += 1
    return index


async def take(group: unisono.Group, taken: Taken) -> None:
    take_one = taken.take

    def deliver(sender: unisono.MemberId, payload: bytes) -> None:
        take_one(payload)

    await group.each(deliver)


def main(cast: Cast = cast, take: Take = take) -> None:
    plan = Plan.from_line(sys.argv[1])
    try:
        run_loop(run(plan, cast, take))
    except unisono.UnisonoError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
