"""A unisono member of the network benchmark as most asyncio programs are written: `await cast`, and `async for` over the events."""

from __future__ import annotations

import asyncio
from time import monotonic_ns

import unisono
from benchmarks.network_member import main
from benchmarks.peers.common import Pace, Plan, Taken, make_payload, padding_of


async def cast(group: unisono.Group, plan: Plan, rank: int, start_ns: int) -> int:
    """Cast one by one until the time is over; how many."""
    pace, padding = Pace(plan, rank, start_ns), padding_of(plan)
    await asyncio.sleep(max(0, start_ns - monotonic_ns()) / 1e9)
    index, stop_ns, is_paced = 0, pace.stop_ns, plan.rate_per_s is not None
    while (now := monotonic_ns()) < stop_ns:
        if is_paced and (wait_ns := pace.wait_ns(index, now)):
            await asyncio.sleep(wait_ns / 1e9)
            continue
        await group.cast(make_payload(rank, index, now, padding))
        index += 1
    return index


async def take(group: unisono.Group, taken: Taken) -> None:
    take_one, delivery = taken.take, unisono.Delivery
    async for event in group:
        if type(event) is delivery:
            take_one(event.payload)


if __name__ == "__main__":
    main(cast, take)
