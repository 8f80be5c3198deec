"""Processes in virtual time: killed, started again and paused, with every task that they started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.runtime.groups import ADDRESSES
from unisono.runtime.journal import read
from unisono.runtime.journal.disk import Disk
from unisono.runtime.journal.format import Delivered
from unisono.sim import Crashed, Network, in_virtual_time, test


def now() -> float:
    return asyncio.get_running_loop().time()


class Seen:
    """What a process lets the test see: another process would write it to its log."""

    def __init__(self) -> None:
        self.groups: list[unisono.Group] = []
        self.views: list[unisono.View] = []
        self.payloads: list[bytes] = []
        self.ticks: list[float] = []
        self.ends: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []


async def follow(address: str, seen: Seen, **wishes: Any) -> None:
    """A member that notes everything, has a task besides, and would say how it ends."""
    try:
        async with unisono.join("g", listen=address, peers=ADDRESSES, **wishes) as group, asyncio.TaskGroup() as tasks:
            seen.groups.append(group)
            tasks.create_task(tick(seen))
            async for event in group:
                if isinstance(event, unisono.View):
                    seen.views.append(event)
                elif isinstance(event, unisono.Delivery):
                    seen.payloads.append(event.payload)
    finally:
        seen.ends.append("orderly")


async def tick(seen: Seen) -> None:
    while True:
        await asyncio.sleep(0.1)
        seen.ticks.append(now())


async def cast_on(address: str, seen: Seen) -> None:
    try:
        async with unisono.join("g", listen=address, peers=ADDRESSES, min_members=2) as group:
            seen.groups.append(group)
            seen.tasks.append(asyncio.create_task(group.each(lambda sender, payload: None)))
            while True:
                await group.cast(bytes(10_000))
                seen.ticks.append(now())
    finally:
        seen.ends.append("orderly")


async def departure_of(member: unisono.MemberId, group: unisono.Group) -> unisono.Departure:
    async for event in group:
        if isinstance(event, unisono.View) and member in event.left:
            return event.left[member]
    raise AssertionError("the group ended")


@test(seeds=5, loss=0.05)
async def test_a_kill_in_the_middle_of_a_cast_ends_everything_at_once(network: Network) -> None:
    seen = Seen()
    sent: list[str] = []
    process = network.process(cast_on, ADDRESSES[1], seen)
    async with unisono.join("g", listen=ADDRESSES[0], peers=ADDRESSES, min_members=2) as group:
        while not seen.groups or "holds the window shut" not in " ".join(seen.groups[0].explain()):  # nobody reads here
            await asyncio.sleep(0.01)
        casts = len(seen.ticks)

        def note(source: str, target: str, datagram: bytes) -> bool:
            sent.append(source)
            return False

        network.drops = note
        process.kill()
        assert not process.is_running
        why = await departure_of(seen.groups[0].id, group)
        await asyncio.sleep(10)
    assert why.cause is not unisono.Cause.LEFT
    assert ADDRESSES[0] in sent
    assert ADDRESSES[1] not in sent, "nothing leaves a killed process"
    assert len(seen.ticks) == casts, "its tasks are gone"
    assert seen.ends == [], "not even a finally runs"


@test()
async def test_a_process_that_is_cancelled_from_within_is_over(network: Network) -> None:
    async def give_up() -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task

    process = network.process(give_up)
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await process.wait()
    assert not process.is_running


@test()
async def test_a_killed_process_can_be_waited_for_and_what_it_had_open_is_crashed(network: Network) -> None:
    seen = Seen()
    process = network.process(follow, ADDRESSES[0], seen)
    await asyncio.sleep(3)
    waiting = asyncio.ensure_future(process.wait())
    process.kill()
    for _ in range(2):
        with pytest.raises(Crashed, match="was killed"):
            await process.wait()
    with pytest.raises(Crashed):
        await waiting
    with pytest.raises(Crashed, match="was crashed"):
        await seen.groups[0].cast(b"too late")


@pytest.mark.parametrize("kills", [1, 2, 4])
def test_a_process_that_is_started_again_is_a_new_member_with_its_journal(tmp_path: Path, kills: int) -> None:
    def bytes_of(folder: Path) -> dict[str, bytes]:
        return {one.name: one.read_bytes() for one in sorted(folder.glob("*")) if one.name != "lock"}

    async def keep(address: str, seen: Seen) -> None:
        journal = unisono.Journal(tmp_path / address, deliveries=True)
        await follow(address, seen, policy="primary", journal=journal)

    @test()
    async def story(network: Network) -> None:
        all_seen = [Seen() for _ in ADDRESSES]
        processes = [network.process(keep, *pair) for pair in zip(ADDRESSES, all_seen, strict=True)]
        first, *others = all_seen
        await asyncio.sleep(3)
        for number in range(kills):
            victim = first.groups[-1]
            assert victim.view.is_primary
            await (await victim.cast(b"%d" % number)).stable(timeout=5)
            processes[0].kill()
            before = bytes_of(tmp_path / ADDRESSES[0])
            await others[0].groups[0].until(lambda view: len(view.members) == 2, timeout=30)
            assert bytes_of(tmp_path / ADDRESSES[0]) == before, "a killed process writes nothing"
            processes[0].restart()
            view = await others[0].groups[0].until(lambda view: len(view.members) == 3, timeout=30)
            while len(first.groups) < number + 2:
                await asyncio.sleep(0.1)
            assert first.groups[-1].id in view.members
            assert first.groups[-1].id.incarnation > victim.id.incarnation
        await asyncio.sleep(1)
        assert others[0].payloads == [b"%d" % number for number in range(kills)]
        written = [row.payload for row in read(tmp_path / ADDRESSES[0], gaps="show") if isinstance(row, Delivered)]
        assert written == [b"%d" % number for number in range(kills)]

    story()


def test_a_killed_process_does_not_even_write_down_what_it_could_not_write(tmp_path: Path) -> None:
    class MoodyDisk(Disk):
        is_full = False

        def write(self, file: int, data: bytes | memoryview, at: int) -> int:
            if self.is_full:
                raise OSError(ENOSPC, "no space")
            return super().write(file, data, at)

    def sizes() -> dict[str, int]:
        return {one.name: one.stat().st_size for one in tmp_path.glob("*.journal")}

    def play(kills: bool) -> bool:
        """Whether something was written at the end."""

        @test()
        async def story(network: Network) -> None:
            seen, disk = Seen(), MoodyDisk()
            journal = unisono.Journal(tmp_path, deliveries=True, disk=disk)
            process = network.process(follow, ADDRESSES[0], seen, journal=journal)
            await asyncio.sleep(3)
            disk.is_full = True
            await (await seen.groups[0].cast(b"lost")).delivered(timeout=5)
            assert journal.missing_messages == 1
            disk.is_full = False
            before = sizes()
            if kills:
                process.kill()
            else:
                await seen.groups[0].leave()
            outcome.append(sizes() != before)
            process.kill()

        outcome: list[bool] = []
        story()
        return outcome[0]

    assert play(kills=False), "one that leaves tells at the end that a message is missing"
    assert not play(kills=True)


def test_without_a_journal_two_lives_that_begin_at_one_time_are_two_members() -> None:
    @test()
    async def story(network: Network) -> None:
        seen = Seen()
        process = network.process(follow, ADDRESSES[0], seen)
        while not seen.groups:
            await asyncio.sleep(0)
        process.restart()
        await asyncio.sleep(3)
        first, second = seen.groups
        assert first.id.incarnation < second.id.incarnation

    story()


@test(seeds=3)
async def test_a_long_pause_is_noticed_and_the_members_merge_again(network: Network) -> None:
    here, there = Seen(), Seen()
    network.process(follow, ADDRESSES[0], here)
    paused = network.process(follow, ADDRESSES[1], there)
    while not there.views or len(there.views[-1].members) < 2:
        await asyncio.sleep(0.1)
    begin = now()
    paused.pause(20)
    assert paused.is_running
    await here.groups[0].cast(b"meanwhile")
    await asyncio.sleep(15)
    assert len(here.views[-1].members) == 1
    assert not [one for one in there.ticks if one > begin]
    await asyncio.sleep(15)
    assert not [one for one in there.ticks if begin < one < begin + 20], "nothing of it runs meanwhile"
    assert [one for one in there.ticks if one >= begin + 20]
    for seen in (here, there):
        assert len(seen.views[-1].members) == 2
        assert len(seen.groups) == 1, "it is the same life"
    assert here.ends == there.ends == []


@test()
async def test_a_short_pause_is_not_noticed_and_what_was_sent_meanwhile_arrives(network: Network) -> None:
    here, there = Seen(), Seen()
    network.process(follow, ADDRESSES[0], here, min_members=2)
    paused = network.process(follow, ADDRESSES[1], there, min_members=2)
    await asyncio.sleep(3)
    paused.pause()
    await here.groups[0].cast(b"meanwhile")
    await asyncio.sleep(0.5)
    assert there.payloads == []
    paused.resume()
    paused.resume()
    await asyncio.sleep(1)
    assert there.payloads == [b"meanwhile"]
    assert len(here.views) == len(there.views) == 1


@test()
async def test_of_several_pauses_the_last_to_end_counts(network: Network) -> None:
    seen = Seen()
    process = network.process(tick, seen)
    await asyncio.sleep(0.05)
    begin = now()
    process.pause(5)
    process.pause(2)
    await asyncio.sleep(4.5)
    assert not seen.ticks
    process.pause(2)
    await asyncio.sleep(1.9)
    assert not seen.ticks
    await asyncio.sleep(1)
    assert seen.ticks[0] == pytest.approx(begin + 6.5)
    process.pause()
    process.pause(1)
    count = len(seen.ticks)
    await asyncio.sleep(5)
    assert len(seen.ticks) == count, "the longest pause is one without an end"
    process.kill()
    with pytest.raises(unisono.Misuse, match="restart it"):
        process.pause(1)


@test()
async def test_a_timer_that_was_cancelled_right_after_a_pause_does_not_ring(network: Network) -> None:
    """Message and timeout are due at once when the process goes on, and the message comes first."""
    told: list[str] = []

    async def wait(event: asyncio.Event) -> None:
        timer = asyncio.get_running_loop().call_later(5, told.append, "too late")
        await event.wait()
        timer.cancel()
        told.append("in time")
        await asyncio.sleep(1)

    event = asyncio.Event()
    process = network.process(wait, event)
    await asyncio.sleep(1)
    process.pause(10)
    event.set()
    await asyncio.sleep(20)
    assert told == ["in time"]


@test()
async def test_killing_twice_and_killing_what_is_over_is_nothing(network: Network) -> None:
    seen = Seen()
    process = network.process(tick, seen)
    await asyncio.sleep(1)
    process.pause()
    process.kill()
    process.kill()
    process.resume()
    count = len(seen.ticks)
    await asyncio.sleep(1)
    assert len(seen.ticks) == count

    async def short() -> int:
        return 7

    done = network.process(short)
    assert await done.wait() == 7
    done.kill()
    assert await done.wait() == 7
    done.restart()
    assert done.is_running
    assert await done.wait() == 7


@test()
async def test_timers_and_tasks_that_events_started_die_too(network: Network) -> None:
    told: list[str] = []

    async def late() -> None:
        await asyncio.sleep(1)
        told.append("task")

    async def main() -> None:
        async with unisono.join("g", listen=ADDRESSES[0], peers=ADDRESSES) as group:
            asyncio.get_running_loop().call_later(2, told.append, "timer")
            await group.each(lambda sender, payload: tasks.append(asyncio.create_task(late())))

    tasks: list[asyncio.Task[None]] = []
    process = network.process(main)
    async with unisono.join("g", listen=ADDRESSES[1], peers=ADDRESSES, min_members=2) as group:
        await group.cast(b"x")
        while not tasks:
            await asyncio.sleep(0.01)
        process.kill()
        await asyncio.sleep(5)
        assert told == []


@test()
async def test_a_process_may_kill_itself(network: Network) -> None:
    told: list[str] = []

    async def main() -> None:
        async with unisono.join("g", listen=ADDRESSES[0], peers=ADDRESSES) as group:
            process.kill()
            with suppress(Crashed):
                await group.cast(b"no")
                told.append("it was cast")
            await asyncio.sleep(0)
            told.append("it lives")

    process = network.process(main)
    with pytest.raises(Crashed):
        await process.wait()
    await asyncio.sleep(1)
    assert told == []


@test()
async def test_a_process_that_ends_takes_its_tasks_and_its_open_groups_along(network: Network) -> None:
    seen = Seen()

    async def main() -> None:
        seen.groups.append(await unisono.join("g", listen=ADDRESSES[0], peers=ADDRESSES, min_members=2))
        seen.tasks.append(asyncio.create_task(tick(seen)))
        await asyncio.sleep(1)

    process = network.process(main)
    async with unisono.join("g", listen=ADDRESSES[1], peers=ADDRESSES, min_members=2) as group:
        await process.wait()
        count = len(seen.ticks)
        assert (await departure_of(seen.groups[0].id, group)).cause is not unisono.Cause.LEFT
        assert len(seen.ticks) == count


def test_an_error_that_no_task_waits_for_fails_the_test() -> None:
    async def wrong() -> None:
        raise ZeroDivisionError("by zero")

    async def main(network: Network) -> str:
        network.process(wrong, name="the wrong one")
        await asyncio.sleep(1)
        return "not seen"

    with pytest.raises(ZeroDivisionError) as caught:
        in_virtual_time(main)
    assert caught.value.__notes__ == ["raised by the wrong one"]

    async def fails_too(network: Network) -> None:
        await main(network)
        raise AssertionError("another one")

    with pytest.raises(AssertionError) as caught_too:
        in_virtual_time(fails_too)
    assert caught_too.value.__notes__ == ["the wrong one had failed: ZeroDivisionError: by zero"]

    async def hears(network: Network) -> None:
        with pytest.raises(ZeroDivisionError):
            await network.process(wrong).wait()

    in_virtual_time(hears)


@test()
async def test_each_process_has_addresses_of_its_own(network: Network) -> None:
    network.process(follow, ADDRESSES[0], Seen())
    await asyncio.sleep(1)
    with pytest.raises(unisono.Misuse, match="belongs to another process"):
        await unisono.join("other", listen=ADDRESSES[0], peers=ADDRESSES)


@test()
async def test_only_an_async_function_is_a_process(network: Network) -> None:
    for wrong in (print, tick(Seen())):
        with pytest.raises(unisono.Misuse, match="async def"):
            network.process(wrong)  # type: ignore[arg-type]
        if asyncio.iscoroutine(wrong):
            wrong.close()


@test()
async def test_a_client_is_killed_with_its_process(network: Network) -> None:
    asked: list[bytes] = []
    answers: list[object] = []

    async def ask() -> None:
        async with unisono.client("g", contacts=[ADDRESSES[0]], listen=ADDRESSES[1]) as client:
            while True:
                answers.append(await client.request(b"?"))
                await asyncio.sleep(0.1)

    def answer(client: unisono.MemberId, payload: bytes) -> bytes:
        asked.append(payload)
        return b"!"

    async with unisono.join("g", listen=ADDRESSES[0], answer=answer) as group:
        reading = asyncio.ensure_future(group.each(lambda sender, payload: None))
        process = network.process(ask)
        await asyncio.sleep(1)
        assert len(answers) > 3
        process.kill()
        count = len(answers)
        await asyncio.sleep(1)
        assert len(answers) == count
        process.restart()
        await asyncio.sleep(1)
        assert len(answers) > count + 3
        reading.cancel()


def test_the_same_seed_gives_the_same_kills() -> None:
    def story(seed: int) -> list[float]:
        async def main(network: Network) -> list[float]:
            seen = [Seen() for _ in ADDRESSES]
            processes = [network.process(follow, *pair) for pair in zip(ADDRESSES, seen, strict=True)]
            await asyncio.sleep(3)
            processes[0].kill()
            processes[1].pause(5)
            await asyncio.sleep(3)
            processes[0].restart()
            await asyncio.sleep(10)
            return [network.sent, *(len(one.views) for one in seen), *seen[1].ticks]

        return in_virtual_time(main, seed, loss=0.1)

    assert story(1) == story(1)
    assert story(1) != story(2)


# A crash is raised anew each time.


@test()
async def test_a_crash_is_raised_fresh_each_time(network: Network) -> None:
    groups = await asyncio.gather(
        *(unisono.join("g", listen=address, peers=ADDRESSES, min_members=2) for address in ADDRESSES[:2])
    )
    group = groups[1]
    network.partition([ADDRESSES[:1], ADDRESSES[1:]])
    receipt = await group.cast(b"not delivered")
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(group.until(lambda view: False)) for _ in range(2)]
    waits += [asyncio.ensure_future(receipt.stable()) for _ in range(2)]
    await asyncio.sleep(0.1)
    network.crash(group)
    group.ready()
    errors = await asyncio.gather(*waits, return_exceptions=True)
    calls: list[Callable[[], Any]] = [
        lambda: group.cast(b"x"),
        receipt.stable,
        receipt.delivered,
        group.next,
        lambda: anext(aiter(group)),
    ]
    for call in calls:
        for _ in range(2):
            with pytest.raises(Crashed) as caught:
                await call()
            errors.append(caught.value)
    assert len({id(error) for error in errors}) == len(errors)
    assert {str(error) for error in errors} == {f"{group.id} was crashed."}
    depths = [depth(error) for error in errors]
    assert depths[0::2] == depths[1::2], "no traceback grows"
    await groups[0].leave()


def depth(error: BaseException) -> int:
    frames, at = 0, error.__traceback__
    while at is not None:
        frames, at = frames + 1, at.tb_next
    return frames
