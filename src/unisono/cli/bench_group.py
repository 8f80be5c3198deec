"""`unisono bench`: how fast a group of processes on this machine is."""

from __future__ import annotations

import asyncio
import multiprocessing as mp
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from time import monotonic_ns
from typing import Annotated, Any

import typer

from unisono.cli.show import bar, out, print_json
from unisono.core.errors import Misuse
from unisono.demo.stage import free_addresses
from unisono.orders.registry import DEFAULT_ORDER, find_order
from unisono.runtime.errors import Closed, NotFlushed, TimedOut, Unavailable
from unisono.runtime.events import View
from unisono.runtime.group import Group
from unisono.runtime.join import join
from unisono.runtime.loop import run
from unisono.sim.units import format_duration, parse_duration, parse_size

STAMP_BYTES = 8
JOIN_WAIT_S = 30.0


def bench(
    members: Annotated[int, typer.Option("--members", "-n", help="How many processes.", min=1, max=64)] = 3,
    size: Annotated[str, typer.Option(help="Bytes of a payload, as in 100 or 64kB.")] = "100",
    order: Annotated[
        str, typer.Option("--order", "-o", help="The order; `unisono sim orders` lists them.")
    ] = DEFAULT_ORDER,
    lasts: Annotated[str, typer.Option("--for", help="How long to measure.")] = "3s",
    rate: Annotated[
        float | None, typer.Option(help="Messages per second and member. Default: as many as the group accepts.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure throughput and latency of a group of processes on this machine, all of which cast.

    Latency is measured from a cast to its delivery at the same member. Without --rate the group is saturated, and latency is
    mostly waiting time.
    """
    find_order(order)
    payload_bytes, seconds = parse_size(size), parse_duration(lasts) / 1e9
    if payload_bytes < STAMP_BYTES:
        raise Misuse(f"--size {size} is too small: a message carries its time in {STAMP_BYTES} bytes.")
    if rate is not None and rate <= 0:
        raise Misuse(f"--rate {rate:g} is impossible: choose more than 0.")
    context = mp.get_context("spawn")
    peers = free_addresses(members)
    workers, pipes = [], []
    try:
        for own in peers:
            here, there = context.Pipe()
            arguments = (there, own, peers, order, payload_bytes, seconds, rate)
            worker = context.Process(target=_work, args=arguments, daemon=True)
            with _deaf_to_interrupts():
                worker.start()
            there.close()
            workers.append(worker)
            pipes.append(here)
        with bar(f"{members} members cast", None):
            results = [_result(pipe, seconds) for pipe in pipes]
    except BaseException:
        end_all(workers)
        raise
    for worker in workers:
        worker.join(5)
    end_all(workers)
    _report(results, members, payload_bytes, order, json)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let processes that start inside this block ignore Ctrl-C, even while they import; their parent ends them."""
    resource_tracker.ensure_running()  # which, where it is started with the first process, lets signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_all(workers: Sequence[BaseProcess]) -> None:
    """Terminate all processes, then wait for each."""
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(5)


def _result(pipe: Connection, seconds: float) -> dict[str, Any]:
    if not pipe.poll(JOIN_WAIT_S + 3 * seconds + 10):
        raise TimedOut("a member did not finish. The machine may be too busy; try fewer members.")
    try:
        result: dict[str, Any] = pipe.recv()
    except EOFError:
        raise Unavailable("a member ended early; its error message is above.") from None
    if "error" in result:
        raise Misuse(result["error"])
    return result


def _report(results: list[dict[str, Any]], members: int, size: int, order: str, json: bool) -> None:
    per_s = min(one["deliveries"] / one["seconds"] for one in results)
    latencies = sorted(sample for one in results for sample in one["latencies"])
    p50, p99 = (latencies[int(len(latencies) * share)] if latencies else None for share in (0.5, 0.99))
    if json:
        row = {"order": order, "members": members, "size_bytes": size, "messages_per_s": per_s}
        print_json(row | {"p50_ns": p50, "p99_ns": p99, "samples": len(latencies)})
        return
    times = (
        "no latency measured"
        if p50 is None or p99 is None
        else (f"latency p50 {format_duration(p50)}, p99 {format_duration(p99)}")
    )
    out.print(
        f"{order}, {members} members, {size} bytes: [bold]{per_s:,.0f} messages/s[/] at each member, {times}",
        soft_wrap=True,
    )


# In a process of its own.


def _work(
    pipe: Connection, own: str, peers: list[str], order: str, size: int, seconds: float, rate: float | None
) -> None:
    try:
        pipe.send(run(_measure(own, peers, order, size, seconds, rate)))
    except Exception as error:
        pipe.send({"error": str(error)})


async def _measure(
    own: str, peers: list[str], order: str, size: int, seconds: float, rate: float | None
) -> dict[str, Any]:
    count, is_over = 0, False
    latencies: list[int] = []
    async with join(
        "bench", listen=own, peers=peers, order=order, min_members=len(peers), timeout=JOIN_WAIT_S, leave_timeout=10
    ) as group:

        async def take() -> None:
            nonlocal count
            async for batch in group.batches():
                if isinstance(batch, list):
                    if is_over:
                        continue
                    count += len(batch)
                    first = batch[0]
                    if first.sender == group.id:
                        latencies.append(monotonic_ns() - int.from_bytes(first.payload[:STAMP_BYTES], "little"))
                elif isinstance(batch, View) and batch.left:
                    return

        taking = asyncio.create_task(take())
        began = monotonic_ns()
        await _cast(group, size, began + int(seconds * 1e9), rate)
        lasted, is_over = monotonic_ns() - began, True
        with suppress(NotFlushed, Closed):
            await group.leave(10)
        await taking
    return {"deliveries": count, "seconds": lasted / 1e9, "latencies": latencies}


async def _cast(group: Group, size: int, until: int, rate: float | None) -> None:
    filling = bytes(size - STAMP_BYTES)
    began, sent = monotonic_ns(), 0
    while (now := monotonic_ns()) < until:
        if rate is not None and sent >= (now - began) / 1e9 * rate:
            await asyncio.sleep(min(1 / rate, 0.05))
            continue
        await group.cast(now.to_bytes(STAMP_BYTES, "little") + filling)
        sent += 1
