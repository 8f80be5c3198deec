"""A unisono member of the network benchmark as most asyncio programs are written: `await cast`, and `async for` over the events."""

from __future__ import annotations

import unisono
from benchmarks.network_member import main
from benchmarks.peers.common import Plan, Taken
from benchmarks.peers.frames import cast_each


async def cast(group: unisono.Group, plan: Plan, rank: int, start_ns: int) -> int:
    return await cast_each(plan, rank, start_ns, group.cast)


async def take(group: unisono.Group, taken: Taken) -> None:
    take_one, delivery = taken.take, unisono.Delivery
    async for event in group:
        if type(event) is delivery:
            take_one(event.payload)


if __name__ == "__main__":
    main(cast, take)
