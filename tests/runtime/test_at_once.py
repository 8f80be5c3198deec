"""A message alone does not wait for company: after a quiet moment it leaves before `cast` returns. Nobody is called meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import unisono
from tests.runtime.groups import ADDRESSES, join_all, leave_all
from unisono.runtime import driver
from unisono.runtime.casting import CastAdmission
from unisono.runtime.driver import CALM_NS, NEVER, Driver
from unisono.runtime.inbox import Inbox
from unisono.sim import Network, in_virtual_time

QUIET_S = 2 * CALM_NS / 1e9
Story = Callable[[Network, list[unisono.Group]], Awaitable[None]]


def tell(story: Story) -> None:
    """Three members that have nothing to do; the first one is the sequencer."""

    async def main(network: Network) -> None:
        groups = await join_all()
        groups.sort(key=lambda group: group.members.index(group.id))
        while any(group.running.now - group.running.driver._turned_at < CALM_NS for group in groups):
            await asyncio.sleep(QUIET_S)
        await story(network, groups)
        await leave_all(groups)

    in_virtual_time(main, 1)


def compute(group: unisono.Group) -> None:
    """For a while: no time passes otherwise."""
    group.running.driver._turned_at -= CALM_NS
    group.running.driver.calm_at -= CALM_NS


async def first_alone(network: Network, groups: list[unisono.Group]) -> None:
    group = groups[1]
    sent, turns = network.sent, group.running.driver.turns
    group.try_cast(b"alone")
    assert network.sent == sent + 2, "to both others"
    assert group.running.driver.turns == turns + 1
    for _ in range(10):
        group.try_cast(b"together")
    assert network.sent == sent + 2
    await asyncio.sleep(0)
    assert group.running.driver.turns == turns + 2, "one turn for all that was cast in this pass of the loop"


async def once_a_pass(network: Network, groups: list[unisono.Group]) -> None:
    """A program that computes and casts and never waits does not take turn after turn: deaf to the others it would suspect them."""
    group = groups[1]
    turns = group.running.driver.turns
    for _ in range(10):
        compute(group)
        group.try_cast(b"x")
    assert group.running.driver.turns == turns + 1
    await asyncio.sleep(QUIET_S)
    turns = group.running.driver.turns
    compute(group)
    group.try_cast(b"y")
    assert group.running.driver.turns == turns + 1, "the loop has run"


async def nobody_called(network: Network, groups: list[unisono.Group]) -> None:
    """The sequencer delivers its own message in the turn that sends it."""
    group, log = groups[0], []
    handling = asyncio.create_task(group.each(lambda sender, payload: log.append(payload)))
    await asyncio.sleep(QUIET_S)
    group.try_cast(b"x")
    assert group.status()["unfinished"] == 0, "it is ordered"
    assert not log, "it must not be shown before its receipt is there"
    await asyncio.sleep(0)
    assert log == [b"x"]
    handling.cancel()


async def no_turn_in_a_turn(network: Network, groups: list[unisono.Group]) -> None:
    group, depth, log = groups[0], [0], []

    def answer(sender: unisono.MemberId, payload: bytes) -> None:
        depth[0] += 1
        assert depth[0] == 1
        turns = group.running.driver.turns
        if payload == b"question":
            compute(group)
            group.try_cast(b"answer")
        assert group.running.driver.turns == turns, "it is in the middle of one"
        log.append(payload)
        depth[0] -= 1

    handling = asyncio.create_task(group.each(answer))
    await asyncio.sleep(QUIET_S)
    groups[1].try_cast(b"question")
    while len(log) < 2 and not handling.done():
        await asyncio.sleep(QUIET_S)
    assert log == [b"question", b"answer"], "what the function raised is in the task"
    handling.cancel()


async def others_first(network: Network, groups: list[unisono.Group]) -> None:
    """Whoever a message alone has woken runs before its caster's housekeeping. Under load nobody gives its core away."""
    group, gave_way = groups[1], []
    driver.give_way = lambda: gave_way.append(group.running.driver._is_turn_open)
    group.try_cast(b"alone")
    assert not gave_way, "the caster's program is at work"
    await asyncio.sleep(0)
    assert gave_way == [True]
    assert not group.running.driver._is_turn_open, "nothing else need happen for its housekeeping"
    group.try_cast(b"soon after")
    await asyncio.sleep(0)
    assert len(gave_way) == 1


STORIES = [first_alone, once_a_pass, nobody_called, no_turn_in_a_turn, others_first]


@pytest.fixture(autouse=True)
def kept_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "give_way", driver.give_way)  # put back when a test is over


@pytest.mark.parametrize("story", STORIES)
def test_after_a_quiet_moment_a_message_leaves_at_once(story: Story) -> None:
    tell(story)


def never(one: Driver) -> int:
    return NEVER


def even_in_a_turn(one: Driver) -> int:
    return one._turned_at + CALM_NS


def set_nothing(one: object, value: object) -> None:
    """Whatever is set, the planted answer stays."""


def at_once(one: Driver) -> None:
    one._finish_turn()


@pytest.mark.parametrize(
    ("story", "owner", "name", "fault"),
    [
        (first_alone, Driver, "calm_at", property(never, set_nothing)),
        (once_a_pass, CastAdmission, "_is_ahead", property(lambda casting: False, lambda casting, is_ahead: None)),
        (nobody_called, Inbox, "is_held", property(lambda inbox: False, lambda inbox, is_held: None)),
        (no_turn_in_a_turn, Driver, "calm_at", property(even_in_a_turn, set_nothing)),
        (others_first, Driver, "_finish_turn_last", at_once),
        (others_first, driver, "CALM_NS", 0),
    ],
)
def test_these_can_fail(story: Story, owner: object, name: str, fault: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, fault, raising=False)
    with pytest.raises(AssertionError):
        tell(story)


def test_with_state_to_hand_over_a_message_waits_for_the_end_of_the_pass() -> None:
    """The application's hooks may be at work, and cast."""

    async def main(network: Network) -> None:
        hooks: dict[str, Any] = {"snapshot": lambda: b"", "restore": lambda state: None}
        async with unisono.join("g", listen=ADDRESSES[0], peers=ADDRESSES[:1], **hooks) as group:
            await asyncio.sleep(QUIET_S)
            turns = group.running.driver.turns
            group.try_cast(b"x")
            assert group.running.driver.turns == turns
            await asyncio.sleep(0)
            assert group.running.driver.turns == turns + 1

    in_virtual_time(main, 1)
