"""Taking events by plain functions (`each`), and casting from one (`try_cast`)."""

from __future__ import annotations

import asyncio

import pytest

import unisono
from tests.runtime.test_group import gathered, payloads, payloads_until_view, real
from unisono.core.config import Config
from unisono.core.member.settings import Settings
from unisono.core.streams.settings import StreamSettings


class Log:
    """What a member has handled; `done` when it is so many messages."""

    def __init__(self, count: int) -> None:
        self.events: list[object] = []  # messages too
        self.payloads: list[bytes] = []
        self._count = count
        self.done = asyncio.Event()

    def deliver(self, sender: unisono.MemberId, payload: bytes) -> None:
        self.events.append((sender, payload))
        self.payloads.append(payload)
        if len(self.payloads) == self._count:
            self.done.set()

    def take_from(self, group: unisono.Group) -> asyncio.Task[None]:
        return asyncio.create_task(group.each(self.deliver, self.events.append))


def ignore(sender: unisono.MemberId, payload: bytes) -> None:
    pass


@real
async def test_every_event_is_handled_in_the_one_order_until_the_group_is_left() -> None:
    async with gathered(3) as groups:
        logs = [Log(600) for _ in groups]
        handling = [log.take_from(group) for group, log in zip(groups, logs, strict=True)]
        for i in range(200):
            for group in groups:
                await group.cast(b"%d" % i)
        for log in logs:
            await log.done.wait()
        assert logs[0].payloads == logs[1].payloads == logs[2].payloads
        assert all(isinstance(log.events[0], unisono.View) for log in logs)
        await groups[2].leave()
        await handling[2]  # nothing more will come
        while not isinstance(logs[0].events[-1], unisono.View):
            await asyncio.sleep(0.01)
        assert not handling[0].done()


@real
async def test_what_was_there_before_is_handled_first() -> None:
    async with gathered(1) as (a,):
        for i in range(20):
            await (await a.cast(b"%d" % i)).delivered()
        first = await a.next()
        log = Log(20)
        handling = log.take_from(a)
        await log.done.wait()
        assert isinstance(first, unisono.View)
        assert log.payloads == [b"%d" % i for i in range(20)]
        handling.cancel()


@pytest.mark.parametrize(
    ("raised", "met"), [(LookupError("no such thing"), "no such thing"), (StopIteration(), "StopIteration")]
)
@real
async def test_what_a_handler_raises_is_raised_where_it_was_given_and_the_rest_stays(
    raised: Exception, met: str
) -> None:
    """To the loop that calls it, StopIteration says that there is nothing more to call it with."""
    async with gathered(2) as (a, b):
        handled: list[bytes] = []

        def deliver(sender: unisono.MemberId, payload: bytes) -> None:
            handled.append(payload)
            if payload == b"17":
                raise raised

        handling = asyncio.create_task(b.each(deliver))
        for i in range(50):
            await a.cast(b"%d" % i)
        with pytest.raises((LookupError, RuntimeError), match=met):
            await handling
        rest = await payloads(b, 50 - len(handled))
        assert handled + rest == [b"%d" % i for i in range(50)]
        assert b.status()["view"] is not None  # the member goes on
        await a.cast(b"again")
        assert await payloads(b, 1) == [b"again"]


@real
async def test_a_cancelled_handler_loses_no_event() -> None:
    async with gathered(2) as (a, b):
        log = Log(50)
        for i in range(50):
            handling = log.take_from(b)
            await a.cast(b"%d" % i)
            await asyncio.sleep(0.001)
            handling.cancel()
            await asyncio.gather(handling, return_exceptions=True)
        rest = await payloads(b, 50 - len(log.payloads)) if len(log.payloads) < 50 else []
        assert log.payloads + rest == [b"%d" % i for i in range(50)]


@real
async def test_one_stream_has_one_reader() -> None:
    async with gathered(1) as (a,):
        await payloads_until_view(a)
        handling = asyncio.create_task(a.each(ignore))
        await asyncio.sleep(0)
        with pytest.raises(unisono.Misuse, match="one reader"):
            await a.next()
        with pytest.raises(unisono.Misuse, match="one reader"):
            await a.each(ignore)
        handling.cancel()
        await asyncio.gather(handling, return_exceptions=True)
        await a.cast(b"x")
        assert await payloads(a, 1) == [b"x"]


@real
async def test_a_coroutine_function_handles_nothing() -> None:
    async def deliver(sender: unisono.MemberId, payload: bytes) -> None:
        raise AssertionError("nobody would await it")

    async with gathered(1) as (a,):
        with pytest.raises(unisono.Misuse, match="async for"):
            await a.each(deliver)


@real
async def test_a_member_that_fails_ends_the_handling_with_the_reason() -> None:
    async with gathered(1) as (a,):
        handling = asyncio.create_task(a.each(ignore))
        await asyncio.sleep(0)
        a.running.fail(unisono.PeerFault("nonsense came"))
        with pytest.raises(unisono.PeerFault, match="nonsense came"):
            await handling


@real
async def test_a_handler_casts_without_waiting() -> None:
    async with gathered(2) as (a, b):
        log = Log(200)

        def answer(sender: unisono.MemberId, payload: bytes) -> None:
            if sender == a.id:
                assert b.try_cast(b"re: " + payload) is not None

        handling = [asyncio.create_task(b.each(answer)), log.take_from(a)]
        for i in range(100):
            await a.cast(b"%d" % i)
        await log.done.wait()
        assert [one for one in log.payloads if one.startswith(b"re: ")] == [b"re: %d" % i for i in range(100)]
        for task in handling:
            task.cancel()


@real
async def test_a_cast_that_finds_no_room_says_so_and_room_comes() -> None:
    narrow = Settings(
        config=Config(window_messages=16),
        streams=StreamSettings(datagram_bytes=8_000, window_bytes=64 * 1024, window_bytes_start=64 * 1024),
    )
    async with gathered(2, settings=narrow) as (a, b):
        log = Log(1_000)
        handling = log.take_from(b)
        index = refused = 0
        while index < 1_000:
            receipt = a.try_cast(b"%d" % index)
            if receipt is None:
                refused += 1
                await a.room()
            else:
                assert receipt.key == (a.id, index)
                index += 1
        await log.done.wait()
        assert log.payloads == [b"%d" % i for i in range(1_000)]
        assert 0 < refused < 1_000
        handling.cancel()


@real
async def test_bad_casts_are_refused_alike() -> None:
    async with gathered(1) as (a,):
        with pytest.raises(unisono.Misuse, match="payload is bytes"):
            a.try_cast("text")  # type: ignore[arg-type]
        with pytest.raises(unisono.Misuse, match="no service 'fast'"):
            a.try_cast(b"x", service="fast")
    with pytest.raises(unisono.Closed, match="join again"):
        a.try_cast(b"late")
