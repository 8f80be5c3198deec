"""Receipts of messages that are delivered out of the order in which they were cast, as an order of several services may do."""

from __future__ import annotations

import asyncio

import pytest

from unisono.runtime.receipts import Receipts


def test_a_message_that_overtakes_others_is_answered_and_they_are_not() -> None:
    async def main() -> None:
        receipts = Receipts(asyncio.get_running_loop())
        waits = [asyncio.create_task(receipts.wait(index, False, None)) for index in range(4)]
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
        receipts = Receipts(asyncio.get_running_loop())
        waits = [asyncio.create_task(receipts.wait(index, True, None)) for index in (3, 1, 2)]
        await asyncio.sleep(0)
        receipts.stable(3)
        await asyncio.gather(*waits[1:])
        assert not waits[0].done()
        receipts.stable(4)
        await waits[0]

    asyncio.run(main())
