"""A member on ZeroMQ as an asyncio program has it (`zmq.asyncio`): one task casts one by one, another takes one by one."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module

from benchmarks.peers.common import Line, Plan, Taken
from benchmarks.peers.frames import cast_each, take_part
from benchmarks.peers.zmq_member import NUMBER_BYTES, connect, take_number


async def run(plan: Plan) -> None:
    context = import_module("zmq.asyncio").Context()
    push, sub = connect(context, import_module("zmq"), plan.ports)

    async def cast(payload: bytes) -> None:
        await push.send(payload)
        await asyncio.sleep(0)  # sending returns at once while there is room: let the other task run

    async def take(taken: Taken) -> None:
        expected = 0
        while True:
            message = await sub.recv()
            expected = take_number(message, expected)
            taken.take(message[NUMBER_BYTES:])

    await take_part(plan, plan.number, Line(), lambda start_ns: cast_each(plan, plan.number, start_ns, cast), take)
    context.destroy(linger=0)


if __name__ == "__main__":
    asyncio.run(run(Plan.from_line(sys.argv[1])))
