"""`unisono.run`: real processes that a signal ends leave their group in order, and joins that are cancelled do, too."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import unisono
from tests.runtime.groups import ADDRESSES
from tests.runtime.ports import free_addresses
from tests.runtime.test_group import real
from unisono.sim import Network, test

LIMIT_S = 60.0
BEGIN = """
import asyncio, signal, sys, unisono

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever a shell script that runs tests has set

def join(**wishes):
    return unisono.join("g", listen=sys.argv[1], peers=sys.argv[1:], pace=0.5, **wishes)
"""
READING = """
async def main():
    async with join(min_members=2) as group:
        print("ready", flush=True)
        async for event in group:
            pass
"""
JOINING = """
async def main():
    print("ready", flush=True)
    async with join(min_members=3) as group:
        print("joined", flush=True)
"""
CASTING = """
async def main():
    async with join(min_members=2, leave_timeout=1) as group:
        while True:
            try:
                await asyncio.wait_for(group.cast(bytes(100_000)), 1)
            except TimeoutError:  # the window is full
                print("ready", flush=True)
                await group.cast(b"more")
"""
LEAVING = f"""
async def main():
    print("ready", flush=True)
    try:
        await asyncio.sleep({LIMIT_S})
    finally:
        print("ready", flush=True)
        await asyncio.sleep({LIMIT_S})
"""
RUN = "unisono.run(main())\n"
RUN_UVLOOP = "import uvloop\nunisono.run(main(), loop_factory=uvloop.new_event_loop)\n"


@contextmanager
def running(program: str, addresses: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *addresses], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == "ready\n"


async def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code, and what it has complained of."""
    _, errors = await asyncio.to_thread(process.communicate, timeout=LIMIT_S)
    return process.returncode, errors


async def departure(group: unisono.Group) -> unisono.Departure:
    """Why the other member is gone."""
    async for event in group:
        if isinstance(event, unisono.View) and event.left:
            (why,) = event.left.values()
            return why
    raise AssertionError("the group ended")


@pytest.mark.parametrize(
    "run", [pytest.param(RUN, id="asyncio"), pytest.param(RUN_UVLOOP, id="uvloop", marks=pytest.mark.seconds)]
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_program_that_reads_leaves_at_a_signal(run: str, number: signal.Signals, code: int) -> None:
    if run is RUN_UVLOOP:
        pytest.importorskip("uvloop")

    @real
    async def story() -> None:
        here, there = free_addresses(2)
        with running(BEGIN + READING + run, [there, here]) as process:
            async with unisono.join("g", listen=here, peers=[there], min_members=2, pace=0.5, timeout=30) as group:
                await until_ready(process)
                process.send_signal(number)
                assert (await departure(group)).cause is unisono.Cause.LEFT
                assert await end(process) == (code, "")

    story()


@real
async def test_a_program_that_waits_with_a_full_window_leaves_at_a_signal() -> None:
    here, there = free_addresses(2)
    with running(BEGIN + CASTING + RUN, [there, here]) as process:
        async with unisono.join("g", listen=here, peers=[there], min_members=2, pace=0.5, timeout=30) as group:
            await until_ready(process)
            process.send_signal(signal.SIGTERM)
            assert await end(process) == (143, ""), "it waits in vain for what nobody reads, and leaves all the same"
            assert (await departure(group)).cause is unisono.Cause.LEFT


@real
async def test_a_program_that_joins_ends_at_a_signal() -> None:
    here, there = free_addresses(2)
    with running(BEGIN + JOINING + RUN, [there, here]) as process:
        async with unisono.join("g", listen=here, peers=[there], pace=0.5, timeout=30) as group:
            await until_ready(process)
            process.send_signal(signal.SIGTERM)
            assert await end(process) == (143, "")
            assert group.members == (group.id,)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("is_seen", [False, True])
@real
async def test_a_second_signal_ends_the_process_at_once(first: signal.Signals, is_seen: bool) -> None:
    with running(BEGIN + LEAVING + RUN, []) as process:
        await until_ready(process)
        process.send_signal(first)
        if is_seen:
            await until_ready(process)
        process.send_signal(signal.SIGTERM if first is signal.SIGINT else signal.SIGINT)
        code, errors = await end(process)
        assert code in (-signal.SIGTERM, -signal.SIGINT)
        assert errors == ""


def test_what_main_returns_is_returned_and_signals_are_as_before() -> None:
    async def main() -> int:
        assert signal.getsignal(signal.SIGTERM) is not before
        return 7

    before = signal.getsignal(signal.SIGTERM)
    assert unisono.run(main()) == 7
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_main_that_catches_the_cancellation_has_the_last_word() -> None:
    async def main() -> str:
        signal.raise_signal(signal.SIGTERM)
        try:
            await asyncio.sleep(LIMIT_S)
        except asyncio.CancelledError:
            return "done"
        return "not cancelled"

    assert unisono.run(main()) == "done"


def test_a_signal_is_the_exit_code() -> None:
    async def main() -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(LIMIT_S)

    with pytest.raises(SystemExit) as caught:
        unisono.run(main())
    assert caught.value.code == 143


def test_a_cancellation_that_no_signal_caused_is_raised() -> None:
    async def main() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        unisono.run(main())


def test_an_ignored_signal_stays_ignored() -> None:
    async def main() -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        unisono.run(main())
    finally:
        signal.signal(signal.SIGTERM, before)


def test_another_thread_runs_a_program_and_leaves_signals_alone() -> None:
    seen: list[object] = []

    async def main() -> None:
        seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=lambda: unisono.run(main()))
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_what_cannot_be_run_is_refused() -> None:
    async def main() -> None:
        inner = asyncio.sleep(0)
        with pytest.raises(unisono.Misuse, match="await `main"):
            unisono.run(inner)

    with pytest.raises(unisono.Misuse, match="with the parentheses"):
        unisono.run(main)  # type: ignore[arg-type]
    unisono.run(main())


def test_messages_that_a_cancelled_program_could_not_flush_are_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The cancellation is raised, so `NotFlushed` cannot be."""

    @test()
    async def story(network: Network) -> None:
        async def main() -> None:
            async with unisono.join(
                "g", listen=ADDRESSES[1], peers=ADDRESSES, min_members=2, leave_timeout=0.1
            ) as group:
                network.partition([ADDRESSES[:1], ADDRESSES[1:]])
                await group.cast(b"not heard")
                await asyncio.sleep(LIMIT_S)

        other = asyncio.ensure_future(_join({}, ADDRESSES[0], 2))
        program = asyncio.create_task(main())
        await other
        await asyncio.sleep(0.1)
        program.cancel()
        with pytest.raises(asyncio.CancelledError):
            await program

    story()
    assert any(
        "and its message 0 may be missing" in record.getMessage() and record.levelname == "WARNING"
        for record in caplog.records
    )


# Joins that are cancelled.


@pytest.mark.parametrize("has_state", [False, pytest.param(True, marks=pytest.mark.seconds)])
def test_a_join_that_is_cancelled_at_any_moment_leaves_the_others_in_order(has_state: bool) -> None:
    """They may count it in already: then it is in their view, and may wait for the state still."""
    hooks: dict[str, Any] = {"snapshot": lambda: bytes(1 << 18), "restore": lambda state: None} if has_state else {}
    counted_in: list[bool] = []

    def play(wait_ms: int) -> None:
        @test(seeds=2)
        async def story(network: Network) -> None:
            groups = await asyncio.gather(
                *(unisono.join("g", listen=one, peers=ADDRESSES, min_members=2, **hooks) for one in ADDRESSES[:2])
            )
            causes: list[unisono.Cause] = []

            async def read(group: unisono.Group) -> None:
                async for event in group:
                    if isinstance(event, unisono.View):
                        causes.extend(why.cause for why in event.left.values())

            readers = [asyncio.ensure_future(read(group)) for group in groups]
            await asyncio.sleep(1)
            joining = asyncio.create_task(_join(hooks))
            await asyncio.sleep(wait_ms / 1e3)
            assert joining.cancel() or wait_ms > 60
            await asyncio.gather(joining, return_exceptions=True)
            if not joining.cancelled():
                await joining.result().leave()
            await asyncio.sleep(10)
            assert set(causes) <= {unisono.Cause.LEFT}
            counted_in.append(bool(causes))
            for reader in readers:
                reader.cancel()

        story()

    for wait_ms in range(52, 72, 2):
        play(wait_ms)
    assert not all(counted_in), "too late to see anything"
    assert any(counted_in), "too early to see anything"


async def _join(hooks: dict[str, Any], address: str = ADDRESSES[2], min_members: int = 1) -> unisono.Group:
    return await unisono.join("g", listen=address, peers=ADDRESSES, min_members=min_members, **hooks)
