"""A member on NATS JetStream: casts are published to a stream in memory, everyone reads it by an ordered consumer.

Publishing does not wait for each acknowledgement, but for room among those that are outstanding, so nothing is lost silently.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import Any

from benchmarks.peers.common import Line, Plan, Taken
from benchmarks.peers.frames import cast_each, take_part

SUBJECT = "casts"
OUTSTANDING_MAX = 1_000
PENDING_MESSAGES_MAX = 1 << 20
PENDING_BYTES_MAX = 1 << 30


async def run(plan: Plan) -> None:
    nats: Any = import_module("nats")
    client = await nats.connect(f"nats://127.0.0.1:{plan.ports[0]}")
    stream = client.jetstream(publish_async_max_pending=OUTSTANDING_MAX)
    storage = import_module("nats.js.api").StorageType.MEMORY
    await stream.add_stream(name="group", subjects=[SUBJECT], storage=storage)
    taking: Taken | None = None

    async def on_message(message: Any) -> None:
        assert taking is not None
        taking.take(message.data)

    limits = {"pending_msgs_limit": PENDING_MESSAGES_MAX, "pending_bytes_limit": PENDING_BYTES_MAX}
    await stream.subscribe(SUBJECT, cb=on_message, ordered_consumer=True, **limits)
    await client.flush()

    async def cast(start_ns: int) -> int:
        sent = await cast_each(plan, plan.number, start_ns, lambda payload: stream.publish_async(SUBJECT, payload))
        await stream.publish_async_completed()
        return sent

    async def take(taken: Taken) -> None:
        nonlocal taking
        taking = taken
        await asyncio.Event().wait()

    await take_part(plan, plan.number, Line(), cast, take)
    await client.close()


if __name__ == "__main__":
    asyncio.run(run(Plan.from_line(sys.argv[1])))
