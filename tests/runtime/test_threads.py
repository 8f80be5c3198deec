"""Only the event loop's thread may use a group; others are told how to reach it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from timeit import repeat
from typing import Any

import pytest

import unisono
import unisono.sync
from tests.runtime.groups import LOOPS, Loop, run_on
from tests.runtime.ports import free_addresses
from tests.runtime.test_group import gathered, payloads


@pytest.mark.parametrize("loop", LOOPS)
def test_f17_another_thread_is_refused_and_told_the_cure(loop: Loop) -> None:
    """Found by trying: such casts were taken and left late, and once they stopped another, correct member."""

    async def main() -> None:
        async with gathered(2) as (group, other):

            async def iterate() -> None:
                async for _ in group:
                    pass

            def in_a_loop_of_its_own(coroutine: Awaitable[Any]) -> None:
                run_on(loop, coroutine)

            calls: dict[str, Callable[[], Any]] = {
                "try_cast": lambda: group.try_cast(b"x"),
                "try_cast to some": lambda: group.try_cast(b"x", to=[group.id]),
                "cast": lambda: in_a_loop_of_its_own(group.cast(b"x")),
                "room": lambda: in_a_loop_of_its_own(group.room()),
                "switch": lambda: in_a_loop_of_its_own(group.switch("causal")),
                "give_up": lambda: in_a_loop_of_its_own(group.give_up("1")),
                "until": lambda: in_a_loop_of_its_own(group.until(lambda view: True)),
                "iterate": lambda: in_a_loop_of_its_own(iterate()),
                "each": lambda: in_a_loop_of_its_own(group.each(lambda sender, payload: None)),
                "next": lambda: in_a_loop_of_its_own(group.next()),
                "ready": group.ready,
                "leave": lambda: in_a_loop_of_its_own(group.leave()),
            }

            def refusal(call: Callable[[], Any]) -> str:
                try:
                    call()
                except unisono.Misuse as error:
                    return str(error)
                return "it was not refused"

            for name, call in calls.items():
                said = await asyncio.to_thread(refusal, call)
                for cure in ("loop.call_soon_threadsafe", "asyncio.run_coroutine_threadsafe", "unisono.sync"):
                    assert cure in said, (name, said)
            await group.cast(b"from here")
            assert await payloads(other, 1) == [b"from here"]

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_the_cures_work(loop: Loop) -> None:
    async def main() -> None:
        async with gathered(2) as (group, other):
            running = asyncio.get_running_loop()

            def work() -> None:
                running.call_soon_threadsafe(group.try_cast, b"1")
                asyncio.run_coroutine_threadsafe(group.cast(b"2"), running).result(30)

            await asyncio.to_thread(work)
            assert await payloads(other, 2) == [b"1", b"2"]

    run_on(loop, main())


def test_a_loop_that_goes_on_in_another_thread_takes_its_group_along() -> None:
    loop = asyncio.new_event_loop()
    (address,) = free_addresses(1)
    joined: Any = unisono.join("g", listen=address)

    async def enter() -> unisono.Group:
        group: unisono.Group = await joined
        return group

    group = loop.run_until_complete(enter())
    failed: list[BaseException] = []

    def go_on() -> None:
        try:
            loop.run_until_complete(group.cast(b"x"))
            loop.run_until_complete(group.leave())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=go_on)
    thread.start()
    thread.join()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    assert not failed


def test_many_threads_use_one_group_without_asyncio() -> None:
    (address,) = free_addresses(1)
    with unisono.sync.join("sync", listen=address) as group:

        def work(name: int) -> None:
            for number in range(20):
                group.cast(f"{name} {number}".encode())

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = 0
        while found < 80:
            found += isinstance(group.next(timeout=20), unisono.Delivery)


def test_the_check_is_cheap_beside_a_cast() -> None:
    """As a share of what casting costs, so that the machine does not matter."""

    async def main() -> None:
        async with gathered(1) as (group,):

            def cast() -> None:
                assert group.try_cast(b"x") is not None

            costs = []
            for _ in range(20):
                costs.append(min(repeat(cast, number=100, repeat=5)))
                await group.room()
                group.ready(10_000)
            check = min(repeat(group.running.home.check_thread, number=100, repeat=50))
            assert check < min(costs) / 2

    run_on(asyncio.new_event_loop, main())
