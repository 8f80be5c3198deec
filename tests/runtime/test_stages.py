"""The stages of a receipt as a program meets them: delivered, applied, stable, and what ends them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import unisono
from tests.runtime.groups import A, join_all, leave_all
from tests.runtime.ports import free_addresses
from tests.runtime.test_group import gathered, real
from unisono.runtime import receipts as receipts_module
from unisono.sim import Network, in_virtual_time, test

CASTS = 200

Seen = list[unisono.Key]


async def read_events(group: unisono.Group, seen: Seen) -> None:
    async for event in group:
        if isinstance(event, unisono.Delivery):
            await asyncio.sleep(0)  # it takes a while to apply it
            seen.append(event.key)


async def read_by_call(group: unisono.Group, seen: Seen) -> None:
    index = 0

    def deliver(sender: unisono.MemberId, payload: bytes) -> None:
        nonlocal index
        seen.append(unisono.Key(sender, index))
        index += 1

    await group.each(deliver)


async def read_batches(group: unisono.Group, seen: Seen) -> None:
    async for batch in group.batches():
        if isinstance(batch, list):
            await asyncio.sleep(0)
            seen.extend(delivery.key for delivery in batch)


async def read_next(group: unisono.Group, seen: Seen) -> None:
    with suppress(unisono.Closed):
        while True:
            event = await group.next()
            await asyncio.sleep(0)
            if isinstance(event, unisono.Delivery):
                seen.append(event.key)


async def read_ready(group: unisono.Group, seen: Seen) -> None:
    with suppress(unisono.Closed):
        while True:
            events = [await group.next()]
            await asyncio.sleep(0)
            seen.extend(event.key for event in events if isinstance(event, unisono.Delivery))
            events = group.ready(3)
            await asyncio.sleep(0)
            seen.extend(event.key for event in events if isinstance(event, unisono.Delivery))


@asynccontextmanager
async def trio(order: str = "sequencer", **wishes: Any) -> AsyncIterator[list[unisono.Group]]:
    """Three members in virtual time; whoever cannot flush in the end leaves all the same."""
    groups = await join_all(order=order, **wishes)
    try:
        yield groups
    finally:
        for group in groups:
            with suppress(unisono.UnisonoError):
                await group.leave(timeout=1)


READERS = [read_events, read_by_call, read_batches, read_next, read_ready]


@pytest.mark.parametrize("is_burst", [False, True])
@pytest.mark.parametrize("read", READERS)
def test_what_is_applied_the_reader_has(read: Callable[[unisono.Group, Seen], Awaitable[None]], is_burst: bool) -> None:
    """`delivered` says less: the message waits for the reader."""

    async def main(network: Network) -> None:
        seen: Seen = []
        async with unisono.join("g", listen=A) as group:
            reading = asyncio.ensure_future(read(group, seen))
            stale = 0
            for _ in range(CASTS):
                receipts = [await group.cast(b"y") for _ in range(5 if is_burst else 1)]
                others = [asyncio.ensure_future(receipt.applied()) for receipt in receipts[1:]]
                for receipt in receipts:
                    await receipt.applied()
                    stale += receipt.key not in seen
                    assert receipt.is_applied
                await asyncio.gather(*others)
            assert stale == 0
            assert not group.running.inbox._passed
        await reading

    in_virtual_time(main)


@test()
async def test_delivered_comes_before_the_reader_has_it() -> None:
    """So the test above can fail."""
    seen: Seen = []
    async with unisono.join("g", listen=A) as group:
        reading = asyncio.ensure_future(read_events(group, seen))
        stale = 0
        for _ in range(CASTS):
            receipt = await group.cast(b"y")
            await receipt.delivered()
            stale += receipt.key not in seen
        assert stale > CASTS // 2
    await reading


@test()
async def test_the_place_inside_a_batch_counts() -> None:
    """The reader works on the third of five messages that came together: two are applied."""
    async with unisono.join("g", listen=A) as group:
        receipts = [await group.cast(b"%d" % number) for number in range(5)]
        gate = asyncio.Event()
        reached = asyncio.Event()

        async def read() -> None:
            async for event in group:
                if isinstance(event, unisono.Delivery) and event.index == 2:
                    reached.set()
                    await gate.wait()

        reading = asyncio.ensure_future(read())
        await reached.wait()
        await receipts[1].applied(timeout=1)
        assert [receipt.is_applied for receipt in receipts] == [True, True, False, False, False]
        waiting = [asyncio.ensure_future(receipt.applied()) for receipt in receipts[2:]]
        await asyncio.sleep(1)
        assert not any(task.done() for task in waiting)
        gate.set()
        await asyncio.gather(*waiting)
    await reading


@test()
async def test_ready_is_applied_when_more_is_asked_for() -> None:
    async with unisono.join("g", listen=A) as group:
        receipts = []
        for number in range(4):
            receipts.append(await group.cast(b"%d" % number))
            await receipts[-1].delivered()
        events = group.ready(4)
        assert [type(event) for event in events] == [unisono.View, *[unisono.Delivery] * 3]
        assert not any(receipt.is_applied for receipt in receipts)
        group.ready(0)
        assert [receipt.is_applied for receipt in receipts] == [True, True, True, False]


@test()
async def test_where_a_call_fails_all_before_it_is_applied() -> None:
    async with unisono.join("g", listen=A) as group:
        receipts = [await group.cast(b"%d" % number) for number in range(4)]
        await receipts[-1].delivered()

        def deliver(sender: unisono.MemberId, payload: bytes) -> None:
            if payload == b"2":
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await group.each(deliver)
        assert [receipt.is_applied for receipt in receipts] == [True, True, False, False]
        assert isinstance(await group.next(), unisono.Delivery)
        await group.cast(b"after")


# Waiting for oneself.


@pytest.mark.parametrize("how", ["async for", "batches"])
def test_applied_in_the_loop_that_reads_is_misuse(how: str) -> None:
    async def main(network: Network) -> None:
        async with unisono.join("g", listen=A) as group:
            stream: AsyncIterator[Any] = aiter(group) if how == "async for" else group.batches()
            async for _ in stream:
                receipt = await group.cast(b"x")
                with pytest.raises(unisono.Misuse, match="await applied\\(\\) in another task"):
                    await receipt.applied()
                break
            del stream
            reading = asyncio.ensure_future(read_events(group, []))
            await receipt.applied(timeout=5)  # the loop was left, and another task reads
        await reading

    in_virtual_time(main)


@test()
async def test_applied_where_next_is_the_only_reader_is_misuse() -> None:
    async with unisono.join("g", listen=A) as group:
        await group.next()
        receipt = await group.cast(b"x")
        with pytest.raises(unisono.Misuse, match=f"no other task has read for {receipts_module.GRACE_S:g} s"):
            await receipt.applied()


@test()
async def test_who_took_one_event_may_wait_for_another_reader() -> None:
    async with unisono.join("g", listen=A) as group:
        await group.next()
        reading = asyncio.ensure_future(read_events(group, []))
        receipt = await group.cast(b"x")
        await receipt.applied()
    await reading


@test()
async def test_applied_waits_no_longer_than_it_is_told() -> None:
    async with unisono.join("g", listen=A) as group:
        receipt = await group.cast(b"x")
        with pytest.raises(unisono.TimedOut, match="message 0 is not applied after 2 s"):
            await receipt.applied(timeout=2)


@test()
async def test_what_is_not_for_its_caster_is_applied_at_once() -> None:
    async with trio("sequencer") as (a, b, _):
        receipt = await a.cast(b"x", to=[b.id])
        await receipt.delivered()
        await receipt.applied()
        await receipt.stable()


@test()
async def test_a_datagram_is_never_stable() -> None:
    async with trio("rmp") as (a, _, _):
        receipt = await a.cast(b"x", service="datagram")
        reading = asyncio.ensure_future(read_events(a, []))
        await receipt.delivered()
        await receipt.applied()
        with pytest.raises(unisono.Misuse, match=r"message 0 is a datagram, .* so it is never stable"):
            await receipt.stable()
        assert receipt.is_delivered
        assert not receipt.is_stable
    await reading


# Reading back.


@real
async def test_g7_read_after_applied_here_and_after_stable_there() -> None:
    async with gathered(2) as (a, b):
        states: dict[unisono.MemberId, list[bytes]] = {a.id: [], b.id: []}

        async def apply(group: unisono.Group) -> None:
            async for event in group:
                if isinstance(event, unisono.Delivery):
                    states[group.id].append(event.payload)

        reading = [asyncio.ensure_future(apply(group)) for group in (a, b)]
        for number in range(200):
            payload = b"%d" % number
            receipt = await a.cast(payload)
            await receipt.applied(timeout=10)
            assert states[a.id][-1] == payload
            await receipt.stable(timeout=10)
            while payload not in states[b.id]:  # it will deliver it, unless it crashes
                await asyncio.sleep(0.001)
        await leave_all((a, b))
        await asyncio.gather(*reading)
        assert states[a.id] == states[b.id]


def test_sync_applied_is_for_other_threads_than_the_reader() -> None:
    seen: list[unisono.Key] = []
    with unisono.sync.join("sync", listen=free_addresses(1)[0], order="rmp") as group:
        first = group.cast(b"first")
        for event in group:
            if isinstance(event, unisono.Delivery):
                with pytest.raises(unisono.Misuse, match="await applied\\(\\) in another task"):
                    first.applied()
                assert not first.is_applied
                break

        def read() -> None:
            for event in group:
                if isinstance(event, unisono.Delivery):
                    seen.append(event.key)

        reader = threading.Thread(target=read)
        reader.start()
        first.applied(timeout=10)
        for _ in range(50):
            receipts = [group.cast(b"x") for _ in range(4)]
            for receipt in receipts:
                receipt.applied(timeout=10)
                assert receipt.key in seen
                assert receipt.is_applied
        with pytest.raises(unisono.Misuse, match=r"a datagram, .* so it is never stable"):
            group.cast(b"x", service="datagram").stable()
        group.leave()
        reader.join()
    assert receipts[-1].is_applied
    receipts[-1].stable()
