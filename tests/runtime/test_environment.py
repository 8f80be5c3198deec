"""A member takes clocks, randomness and ports from the environment that it is started in, and pays nothing for observers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import unisono
from tests.runtime.test_group import gathered, real
from unisono.core.config import SECOND
from unisono.environment import find_environment, within
from unisono.runtime.join import Joining
from unisono.runtime.machine import this_machine
from unisono.runtime.options import JoinOptions
from unisono.sim import Network, in_virtual_time, test

HOUR_NS = 3_600 * SECOND


async def one_life(options: JoinOptions) -> int:
    async with Joining(options) as group:
        return group.id.incarnation


def test_a_wall_clock_that_is_handed_in_gives_the_incarnation() -> None:
    options = JoinOptions("g", listen="127.0.0.1:0")
    before = this_machine().wall_clock()
    with within(replace(this_machine(), wall_clock=lambda: before + HOUR_NS)):
        ahead = asyncio.run(one_life(options))
    assert ahead >= before + HOUR_NS
    assert before <= asyncio.run(one_life(options)) < before + HOUR_NS
    assert find_environment() is None


@real
async def test_an_environment_can_be_handed_to_one_join() -> None:
    ahead = replace(this_machine(), wall_clock=lambda: this_machine().wall_clock() + HOUR_NS)
    async with Joining(JoinOptions("g", listen="127.0.0.1:0"), ahead) as group:
        assert group.id.incarnation > this_machine().wall_clock()


def test_what_a_callback_of_the_application_joins_is_in_virtual_time_too() -> None:
    """A process sends, and a member of none is called with it: neither lends the other its environment or its life."""

    async def main(network: Network) -> str:
        addresses = ["10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"]
        joined: list[asyncio.Task[str]] = []

        async def join_another() -> str:
            async with unisono.join("other", listen=addresses[2]) as group:
                return group.id.address

        async def cast_one() -> None:
            async with unisono.join("g", listen=addresses[0], peers=addresses[:2], min_members=2) as group:
                await (await group.cast(b"x")).stable()

        sender = network.process(cast_one)
        async with unisono.join("g", listen=addresses[1], peers=addresses[:2], min_members=2) as group:
            reading = asyncio.create_task(
                group.each(lambda member, payload: joined.append(asyncio.create_task(join_another())))
            )
            await sender.wait()
            reading.cancel()
        return await joined[0]

    assert in_virtual_time(main) == "10.0.0.3:7400"


@real
async def test_observers_are_called_at_their_places_and_an_unobserved_member_has_none() -> None:
    async with gathered(1) as (group,):
        observers = group.running.observers
        places = (observers.noted, observers.shown, observers.receipt)  # the log is at the others
        assert not any(places)
        turns: list[int] = []
        shown: list[object] = []
        ended: list[bool] = []
        observers.turn.append(lambda events, now: turns.append(now))
        observers.shown.append(shown.append)
        group.running.call_at_end(lambda: ended.append(True))
        await (await group.cast(b"x")).delivered()
        assert turns
        assert len(shown) == 1
    assert ended == [True]


@test()
async def test_members_in_virtual_time_do_not_write_the_log(network: Network) -> None:
    async with unisono.join("g", listen="10.0.0.1:7400") as group:
        assert not group.running.observers.turn
