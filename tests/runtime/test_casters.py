"""Tasks that wait to cast: nobody's later message passes one that waits, and no task takes all the room."""

from __future__ import annotations

import asyncio

import pytest

import unisono
from tests.runtime.groups import ADDRESSES, join_all
from unisono.runtime.casters import Casters
from unisono.sim import Network, in_virtual_time


async def read(group: unisono.Group) -> None:
    async for _ in group:
        pass


async def narrow_group(network: Network) -> unisono.Group:
    """A member whose window is full most of the time, because its link is narrow."""
    groups = await join_all()
    for group in groups:
        asyncio.get_running_loop().create_task(read(group))
    for address in ADDRESSES:
        network.bytes_per_s[address] = 2_000_000
    return groups[0]


def overtakings(tasks: int, size: int) -> tuple[int, list[int]]:
    """The most messages that began later and passed one that waited; and how many each task cast.

    The first task casts without a pause, the others now and then.
    """

    async def main(network: Network) -> tuple[int, list[int]]:
        group = await narrow_group(network)
        running = asyncio.get_running_loop()
        begun = most = 0
        done: list[int] = []
        counts = [0] * tasks

        async def cast(number: int) -> None:
            nonlocal begun, most
            while True:
                mine, begun = begun, begun + 1
                since, before = running.time(), len(done)
                await group.cast(bytes(size))
                if running.time() > since:  # it had to wait
                    most = max(most, sum(other > mine for other in done[before:]))
                done.append(mine)
                counts[number] += 1
                if number:
                    await asyncio.sleep(0.01)

        casting = [running.create_task(cast(number)) for number in range(tasks)]
        await asyncio.wait(casting, timeout=2)
        return most, counts

    return in_virtual_time(main)


@pytest.mark.parametrize(("tasks", "size"), [(2, 1_000), (3, 5_000), (3, 20_000)])
def test_no_later_cast_passes_one_that_waits(tasks: int, size: int) -> None:
    """Of two tasks one waited for seconds at a full window while a hundred later casts of the other passed."""
    most, counts = overtakings(tasks, size)
    assert most == 0
    assert min(counts) > 2


def test_shares_before_everybody_has_cast_once_are_unfair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Casters, "hold", lambda self: None)
    most, _ = overtakings(2, 1_000)
    assert most > 20


@pytest.mark.seconds
def test_tasks_that_cast_without_a_pause_get_equal_shares() -> None:
    async def main(network: Network) -> list[int]:
        group = await narrow_group(network)
        counts = [0] * 3

        async def cast(number: int) -> None:
            while True:
                await group.cast(bytes(2_000))
                counts[number] += 1

        for number in range(3):
            asyncio.get_running_loop().create_task(cast(number))
        await asyncio.sleep(2)
        counts[:] = [0] * 3  # the first one began with an empty window
        await asyncio.sleep(2)
        return counts

    counts = in_virtual_time(main)
    assert max(counts) <= 1.2 * min(counts)


def test_a_cancelled_cast_is_not_cast_and_holds_nobody_up() -> None:
    async def main(network: Network) -> None:
        group = await narrow_group(network)
        while group.try_cast(bytes(20_000)) is not None or group.running.casting.is_breathless:
            await asyncio.sleep(0)
        index = group.running.casting.index
        waiting = [asyncio.ensure_future(group.cast(bytes(20_000))) for _ in range(4)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        waiting[0].cancel()
        waiting[2].cancel()
        receipts = await asyncio.gather(waiting[1], waiting[3])
        assert [receipt.key.index for receipt in receipts] == [index, index + 1]
        assert (await group.cast(b"x")).key.index == index + 2
        assert not group.running.casting._line

    in_virtual_time(main)


def test_a_task_that_is_cancelled_when_it_was_called_leaves_its_turn_to_others() -> None:
    async def main() -> None:
        line = Casters(asyncio.get_running_loop())
        waiting = [asyncio.ensure_future(line.wait()) for _ in range(2)]
        await asyncio.sleep(0)
        line.call()
        waiting[0].cancel()
        await asyncio.wait(waiting)
        assert waiting[0].cancelled()
        assert not waiting[1].cancelled()
        assert not line
        assert line.admits

    asyncio.run(main())


def test_whoever_waits_for_room_and_then_tries_gets_its_turn() -> None:
    async def main(network: Network) -> int:
        group = await narrow_group(network)

        async def cast() -> None:
            while True:
                await group.cast(bytes(2_000))

        for _ in range(3):
            asyncio.get_running_loop().create_task(cast())
        tries = 0
        for _ in range(20):
            while group.try_cast(bytes(2_000)) is None:
                tries += 1
                await group.room()
        return tries

    assert in_virtual_time(main) <= 60


def test_everybody_in_the_line_hears_that_the_group_is_left() -> None:
    async def main(network: Network) -> None:
        group = await narrow_group(network)
        while group.try_cast(bytes(20_000)) is not None or group.running.casting.is_breathless:
            await asyncio.sleep(0)
        waiting = [asyncio.ensure_future(group.cast(bytes(20_000))) for _ in range(3)]
        await asyncio.sleep(0)
        group.running.close()
        for one in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(one, unisono.Closed)

    in_virtual_time(main)
