"""Receipts of messages that are delivered out of the order in which they were cast, as an order of several services may do."""

from __future__ import annotations

import asyncio

import pytest

import unisono
from tests.runtime.ports import free_addresses
from tests.runtime.test_group import gathered, payloads, real
from unisono.runtime import casting
from unisono.runtime.receipts import Receipts, Stage


def test_a_message_that_overtakes_others_is_answered_and_they_are_not() -> None:
    async def main() -> None:
        receipts = Receipts(asyncio.get_running_loop(), unisono.MemberId("a"))
        waits = [asyncio.create_task(receipts.wait(index, Stage.DELIVERED, None)) for index in range(4)]
        await asyncio.sleep(0)
        receipts.delivered(2, 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [task.done() for task in waits] == [False, False, True, False]
        receipts.delivered(0, 2)
        await asyncio.gather(*waits[:3])
        assert receipts.delivered_to == 3
        assert not waits[3].done()
        receipts.fail(ValueError("over"))
        with pytest.raises(ValueError, match="over"):
            await waits[3]

    asyncio.run(main())


def test_stability_is_answered_in_order() -> None:
    async def main() -> None:
        receipts = Receipts(asyncio.get_running_loop(), unisono.MemberId("a"))
        waits = [asyncio.create_task(receipts.wait(index, Stage.STABLE, None)) for index in (3, 1, 2)]
        await asyncio.sleep(0)
        receipts.settled(3)
        await asyncio.gather(*waits[1:])
        assert not waits[0].done()
        receipts.settled(4)
        await waits[0]

    asyncio.run(main())


@real
async def test_a_message_that_is_not_for_its_caster_is_delivered_here_as_far_as_it_ever_will_be() -> None:
    """Found by reading: its receipt waited for ever, and those of all later messages were kept."""
    async with gathered(2) as (a, b):
        receipts = [await a.cast(b"x", to=[b.id]), await a.cast(b"y"), await a.cast(b"z", to=[a.id, b.id])]
        for receipt in receipts:
            await receipt.delivered(timeout=10)
        assert a.running.receipts.delivered_to == 3
        assert not a.running.receipts._delivered.beyond
        assert await payloads(a, 2) == [b"y", b"z"]
        assert await payloads(b, 3) == [b"x", b"y", b"z"]


@real
async def test_who_casts_and_does_not_read_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by reading: what it had cast was kept for its reader without a limit."""
    monkeypatch.setattr(casting, "UNREAD_BYTES_MAX", 1_000_000)

    async def cast_on(group: unisono.Group) -> None:
        while True:
            await group.cast(bytes(10_000))

    async with unisono.join("g", listen=free_addresses(1)[0]) as group:
        with pytest.raises(unisono.Misuse, match="bytes of unread events"):
            await cast_on(group)
        assert group.running.inbox.bytes < 2_000_000
        assert len(await payloads(group, 50)) == 50
        while group.ready():
            pass
        await group.cast(b"again")
