"""A member on NATS JetStream: casts are published to a stream in memory, everyone reads it by an ordered consumer.

Publishing does not wait for each acknowledgement, but for room among those that are outstanding, so nothing is lost silently.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from time import monotonic_ns
from typing import Any

from benchmarks.peers.common import Line, Pace, Plan, Taken, make_payload, padding_of

SUBJECT = "casts"
OUTSTANDING_MAX = 1_000
PENDING_MESSAGES_MAX = 1 << 20
PENDING_BYTES_MAX = 1 << 30


async def run(plan: Plan) -> None:
    nats: Any = import_module("nats")
    line = Line()
    client = await nats.connect(f"nats://127.0.0.1:{plan.ports[0]}")
    stream = client.jetstream(publish_async_max_pending=OUTSTANDING_MAX)
    storage = import_module("nats.js.api").StorageType.MEMORY
    await stream.add_stream(name="group", subjects=[SUBJECT], storage=storage)
    taken: Taken | None = None

    async def on_message(message: Any) -> None:
        assert taken is not None
        taken.take(message.data)

    limits = {"pending_msgs_limit": PENDING_MESSAGES_MAX, "pending_bytes_limit": PENDING_BYTES_MAX}
    await stream.subscribe(SUBJECT, cb=on_message, ordered_consumer=True, **limits)
    await client.flush()
    line.say(ready=True, rank=plan.number)
    start_ns = await asyncio.to_thread(line.wait_for_start)
    taken = Taken(plan, plan.number, start_ns)
    sent = await cast(stream, plan, start_ns) if plan.casts(plan.number) else 0
    await asyncio.sleep(max(0, Pace(plan, 0, start_ns).stop_ns - monotonic_ns()) / 1e9)
    line.say(sent=sent, rank=plan.number)
    while not line.is_done(taken):
        await asyncio.sleep(0.01)
    line.say(**taken.report(), rank=plan.number)
    await asyncio.to_thread(line.wait_for_end)
    await client.close()


async def cast(stream: Any, plan: Plan, start_ns: int) -> int:
    pace, padding = Pace(plan, plan.number, start_ns), padding_of(plan)
    await asyncio.sleep(max(0, start_ns - monotonic_ns()) / 1e9)
    index, is_paced = 0, plan.rate_per_s is not None
    while (now := monotonic_ns()) < pace.stop_ns:
        if is_paced and (wait_ns := pace.wait_ns(index, now)):
            await asyncio.sleep(wait_ns / 1e9)
            continue
        await stream.publish_async(SUBJECT, make_payload(plan.number, index, now, padding))
        index += 1
    await stream.publish_async_completed()
    return index


if __name__ == "__main__":
    asyncio.run(run(Plan.from_line(sys.argv[1])))
