"""The systems that unisono is compared with: their servers, and why one of them may be missing on this machine."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict
from json import dumps
from pathlib import Path

from benchmarks.network_corosync import find_obstacle, start_corosync
from benchmarks.network_run import Failure, Servers, System, start_server
from benchmarks.peers.common import Plan

LISTENING_S = 10.0
BATCH = 100
BATCHED = f"pyzmq, batches of {BATCH}"


def find_peers(interpreter: str) -> tuple[list[System], dict[str, str]]:
    """The peers that can be run here, and the others with the reason why not."""

    async def sequencer(plan: Plan, folder: Path, stack: AsyncExitStack) -> Servers:
        return await start_sequencer(interpreter, plan, folder, stack)

    def member(name: str) -> str:
        return f"benchmarks.peers.{name}_member"

    systems = [
        System("pyzmq", member("zmq"), interpreter, two_ports, sequencer),
        System("pyzmq, asyncio", member("zmq_asyncio"), interpreter, two_ports, sequencer),
        System(BATCHED, member("zmq"), interpreter, two_ports, sequencer, batch=BATCH, has_latency=False),
        System("NATS JetStream", member("nats"), interpreter, one_port, start_nats),
        System("Redis stream", member("redis"), interpreter, one_port, start_redis),
        System("PySyncObj", member("pysyncobj"), interpreter, lambda members: members),
        System("corosync CPG", member("corosync"), interpreter, one_port, start_corosync),
    ]
    missing = {
        name: f"not installed: {program} was not found (Debian's package {package})"
        for name, (program, package) in SERVERS.items()
        if find_program(program) is None
    }
    if "corosync CPG" not in missing and (obstacle := find_obstacle()) is not None:
        missing["corosync CPG"] = obstacle
    return [system for system in systems if system.name not in missing], missing


SERVERS: Mapping[str, tuple[str, str]] = {
    "NATS JetStream": ("nats-server", "nats-server"),
    "Redis stream": ("redis-server", "redis-server"),
    "corosync CPG": ("corosync", "corosync"),
}


def find_program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def one_port(members: int) -> int:
    return 1


def two_ports(members: int) -> int:
    return 2


async def start_sequencer(interpreter: str, plan: Plan, folder: Path, stack: AsyncExitStack) -> Servers:
    command = [interpreter, "-m", "benchmarks.peers.zmq_sequencer", dumps(asdict(plan))]
    sequencer = await start_server("sequencer", command, folder, stack)
    await sequencer.hear("ready", LISTENING_S)

    async def when_ready() -> None:
        await sequencer.hear("subscribed", LISTENING_S)

    return Servers([sequencer], when_ready)


async def start_nats(plan: Plan, folder: Path, stack: AsyncExitStack) -> Servers:
    options = ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", str(plan.ports[0])]
    return await start_listening("nats-server", options, plan.ports[0], folder, stack)


async def start_redis(plan: Plan, folder: Path, stack: AsyncExitStack) -> Servers:
    port = str(plan.ports[0])
    options = ["--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", str(folder)]
    return await start_listening("redis-server", options, plan.ports[0], folder, stack)


async def start_listening(name: str, options: list[str], port: int, folder: Path, stack: AsyncExitStack) -> Servers:
    """A server that is there when its port answers."""
    program = find_program(name)
    assert program is not None, "a system without its server is not run"
    server = await start_server(name, [program, *options], folder, stack, quiet=True)
    try:
        async with asyncio.timeout(LISTENING_S):
            while not await is_listening(port):
                if server.process.returncode is not None:
                    raise Failure(f"{name} ended early{server.last_words()}")
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise Failure(f"{name} did not listen within {LISTENING_S:g} s{server.last_words()}") from None
    return Servers([server])


async def is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
