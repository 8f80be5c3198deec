"""A member on ZeroMQ as an asyncio program has it (`zmq.asyncio`): one task casts one by one, another takes one by one."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from time import monotonic_ns
from typing import Any

from benchmarks.peers.common import Line, Pace, Plan, Taken, make_payload, padding_of

NUMBER_BYTES = 8


async def run(plan: Plan) -> None:
    zmq: Any = import_module("zmq")
    context = import_module("zmq.asyncio").Context()
    line = Line()
    push, sub = context.socket(zmq.PUSH), context.socket(zmq.SUB)
    push.connect(f"tcp://127.0.0.1:{plan.ports[0]}")
    sub.subscribe(b"")
    sub.connect(f"tcp://127.0.0.1:{plan.ports[1]}")
    line.say(ready=True, rank=plan.number)
    start_ns = await asyncio.to_thread(line.wait_for_start)
    taken = Taken(plan, plan.number, start_ns)
    taking = asyncio.create_task(take(sub, taken))
    sent = await cast(push, plan, start_ns) if plan.casts(plan.number) else 0
    await asyncio.sleep(max(0, Pace(plan, 0, start_ns).stop_ns - monotonic_ns()) / 1e9)
    line.say(sent=sent, rank=plan.number)
    while not line.is_done(taken) and not taking.done():
        await asyncio.sleep(0.01)
    line.say(**taken.report(), rank=plan.number)
    await asyncio.to_thread(line.wait_for_end)
    taking.cancel()
    context.destroy(linger=0)


async def take(sub: Any, taken: Taken) -> None:
    expected = 0
    while True:
        message = await sub.recv()
        number = int.from_bytes(message[:NUMBER_BYTES], "little")
        if number != expected:
            raise SystemExit(f"message {expected} was lost: {number} came instead.")
        expected += 1
        taken.take(message[NUMBER_BYTES:])


async def cast(push: Any, plan: Plan, start_ns: int) -> int:
    pace, padding = Pace(plan, plan.number, start_ns), padding_of(plan)
    await asyncio.sleep(max(0, start_ns - monotonic_ns()) / 1e9)
    index, is_paced = 0, plan.rate_per_s is not None
    while (now := monotonic_ns()) < pace.stop_ns:
        if is_paced and (wait_ns := pace.wait_ns(index, now)):
            await asyncio.sleep(wait_ns / 1e9)
            continue
        await push.send(make_payload(plan.number, index, now, padding))
        index += 1
        await asyncio.sleep(0)  # sending returns at once while there is room: let the other task run
    return index


if __name__ == "__main__":
    asyncio.run(run(Plan.from_line(sys.argv[1])))
