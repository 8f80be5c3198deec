"""The asyncio interface on real sockets: receipts, cancellation, leaving, many groups on one socket, bad input."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.runtime.ports import free_addresses
from unisono.core.member.settings import Settings
from unisono.core.streams.settings import StreamSettings
from unisono.runtime.control_socket import answer
from unisono.runtime.seal import make_key

PACE = 0.5


def real(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test on a real event loop, with a limit of time."""

    @wraps(function)
    def wrapper(*arguments: Any, **fixtures: Any) -> None:
        async def main() -> None:
            async with asyncio.timeout(60):
                await function(*arguments, **fixtures)

        asyncio.run(main())

    return wrapper


@asynccontextmanager
async def gathered(count: int, name: str = "g", **wishes: Any) -> AsyncIterator[list[unisono.Group]]:
    """So many members of one group in this process."""
    addresses = free_addresses(count)
    async with AsyncExitStack() as stack:
        joining = [
            unisono.join(name, listen=address, peers=addresses, min_members=count, pace=PACE, timeout=30, **wishes)
            for address in addresses
        ]
        groups = await asyncio.gather(*joining)
        for group in groups:
            stack.push_async_callback(group.leave)
        yield list(groups)


async def payloads(group: unisono.Group, count: int) -> list[bytes]:
    found: list[bytes] = []
    async for event in group:
        if isinstance(event, unisono.Delivery):
            found.append(event.payload)
            if len(found) == count:
                break
    return found


@real
async def test_casts_of_all_are_delivered_in_one_order() -> None:
    async with gathered(3) as groups:
        for i in range(500):
            for group in groups:
                await group.cast(f"{group.id.address} {i}".encode())
        first, *others = await asyncio.gather(*(payloads(group, 1500) for group in groups))
        assert all(first == other for other in others)


@real
async def test_receipts_tell_delivered_and_stable() -> None:
    async with gathered(2) as (a, b):
        receipt = await a.cast(b"x")
        assert receipt.key.origin == a.id
        await receipt.delivered(timeout=10)
        await receipt.stable(timeout=10)
        assert receipt.is_delivered
        assert receipt.is_stable
        assert await payloads(b, 1) == [b"x"]


@real
async def test_indices_and_keys_are_those_of_the_deliveries() -> None:
    async with gathered(2) as (a, b):
        keys = [(await a.cast(b"x")).key for _ in range(10)]
        keys.append((await a.cast(b"safe", safe=True)).key)
        keys += [(await a.cast(b"x")).key for _ in range(10)]
        seen = []
        async for event in b:
            if isinstance(event, unisono.Delivery):
                seen.append(event.key)
                if len(seen) == 21:
                    break
        assert seen == keys


@real
async def test_recipients_get_a_message_and_others_do_not() -> None:
    async with gathered(3) as (a, b, c):
        await a.cast(b"for b", to=[b.id])
        await a.cast(b"for all")
        assert await payloads(b, 2) == [b"for b", b"for all"]
        assert await payloads(c, 1) == [b"for all"]
        with pytest.raises(unisono.Misuse, match="not a member"):
            await a.cast(b"x", to=[unisono.MemberId("127.0.0.1:1", 1)])


@real
async def test_batches_and_single_events_are_one_stream() -> None:
    async with gathered(2) as (a, b):
        for i in range(1000):
            await a.cast(b"%d" % i)
        found: list[bytes] = []
        async for some in b.batches():
            if isinstance(some, list):
                found += [delivery.payload for delivery in some]
                if len(found) >= 300:
                    break
        if len(found) < 1000:
            found += await payloads(b, 1000 - len(found))
        assert found == [b"%d" % i for i in range(1000)]


@real
async def test_a_large_message_travels_whole() -> None:
    payload = os.urandom(3_000_000)
    async with gathered(2) as (a, b):
        await a.cast(payload)
        assert await payloads(b, 1) == [payload]


@real
async def test_what_is_too_large_or_no_bytes_is_refused() -> None:
    async with gathered(1) as (a,):
        with pytest.raises(unisono.Misuse, match="over the limit"):
            await a.cast(bytes(17 * 1024 * 1024))
        with pytest.raises(unisono.Misuse, match="encode it first"):
            await a.cast("text")  # type: ignore[arg-type]
        with pytest.raises(unisono.Misuse, match="no service 'fast'"):
            await a.cast(b"x", service="fast")


@real
async def test_an_application_that_does_not_read_slows_the_caster_and_nothing_is_lost() -> None:
    small = Settings(streams=StreamSettings(datagram_bytes=8_000, window_bytes=64 * 1024, window_bytes_start=64 * 1024))
    async with gathered(2, settings=small) as (a, b):
        unisono_queue = "unisono.runtime.inbox.QUEUE_BYTES_MAX"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(unisono_queue, 200_000)
            count = 0

            async def cast_for_ever() -> None:
                nonlocal count
                while True:
                    await a.cast(bytes(1000))
                    count += 1

            async def empty_a() -> None:
                async for _ in a:
                    pass

            casting, emptying = asyncio.create_task(cast_for_ever()), asyncio.create_task(empty_a())
            before = -1
            while count != before or count < 200:  # until it stands still
                before = count
                await asyncio.sleep(0.5)
            assert b.status()["queued_bytes"] < 200_000 + 4 * 64 * 1024 + 100_000
            assert any("has not taken" in sentence for sentence in b.explain())
            casting.cancel()
            await asyncio.gather(casting, return_exceptions=True)
            assert len(await payloads(b, count)) == count
            emptying.cancel()
            await asyncio.gather(emptying, return_exceptions=True)


@real
async def test_cancelling_a_cast_loses_no_message_and_leaves_no_task() -> None:
    async with gathered(2) as (a, b):
        done: list[int] = []

        async def cast(i: int) -> None:
            await a.cast(b"%d" % i)
            done.append(i)

        tasks = [asyncio.create_task(cast(i)) for i in range(300)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        seen = {int(payload) for payload in await payloads(b, len(done))}
        assert set(done) <= seen
    gc.collect()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@real
async def test_a_cancelled_reader_loses_no_event() -> None:
    async with gathered(2) as (a, b):
        found: list[bytes] = []

        async def read() -> None:
            async for event in b:
                if isinstance(event, unisono.Delivery):
                    found.append(event.payload)

        for i in range(50):
            reader = asyncio.create_task(read())
            await a.cast(b"%d" % i)
            await asyncio.sleep(0.001)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        found += await payloads(b, 50 - len(found)) if len(found) < 50 else []
        assert found == [b"%d" % i for i in range(50)]


@real
async def test_two_readers_at_once_are_a_misuse() -> None:
    async with gathered(1) as (a,):
        await payloads_until_view(a)
        waiting = asyncio.create_task(a.next())
        await asyncio.sleep(0)
        with pytest.raises(unisono.Misuse, match="one reader"):
            await a.next()
        waiting.cancel()


async def payloads_until_view(group: unisono.Group) -> None:
    while not isinstance(await group.next(timeout=10), unisono.View):
        pass


@real
async def test_leaving_flushes_what_was_cast() -> None:
    async with gathered(2) as (a, b):
        for i in range(2000):
            await a.cast(b"%d" % i)
        await a.leave()
        assert await payloads(b, 2000) == [b"%d" % i for i in range(2000)]
        async for event in b:
            if isinstance(event, unisono.View) and len(event.members) == 1:
                assert str(event.left[a.id]) == "left"
                break


@real
async def test_casting_after_leaving_is_refused() -> None:
    (address,) = free_addresses(1)
    async with unisono.join("g", listen=address) as group:
        pass
    with pytest.raises(unisono.Closed, match="join again"):
        await group.cast(b"late")
    assert [event async for event in group if isinstance(event, unisono.Delivery)] == []


@real
async def test_leaving_without_the_others_consent_says_what_may_be_lost() -> None:
    async with gathered(2) as (a, b):
        b.running.close()  # it hears nothing any more, and does not say so
        await a.cast(b"x")
        with pytest.raises(unisono.NotFlushed, match="its message 0 may be missing at") as caught:
            await a.leave(timeout=0.3)
        assert caught.value.messages == (unisono.Key(a.id, 0),)
        assert caught.value.members == (b.id,)
        assert str(b.id) in str(caught.value)


@real
async def test_an_error_in_the_block_is_not_hidden_by_leaving() -> None:
    (address,) = free_addresses(1)
    with pytest.raises(ZeroDivisionError):
        async with unisono.join("g", listen=address):
            raise ZeroDivisionError


@real
async def test_many_groups_share_one_socket() -> None:
    one, other = free_addresses(2)

    async def member(name: str, address: str) -> unisono.Group:
        return await unisono.join(name, listen=address, peers=[one, other], min_members=2, pace=PACE, timeout=30)

    pairs = await asyncio.gather(*(member(name, address) for name in ("x", "y", "z") for address in (one, other)))
    assert len({group.running.driver._port for group in pairs}) == 2
    with pytest.raises(unisono.Misuse, match="one address has one member of a group"):
        await unisono.join("x", listen=one, peers=[other])
    for i, group in enumerate(pairs):
        await group.cast(b"%d" % i)
    for i in (0, 2, 4):
        first, second = await asyncio.gather(payloads(pairs[i], 2), payloads(pairs[i + 1], 2))
        assert first == second
        assert sorted(first) == [b"%d" % i, b"%d" % (i + 1)]
    for group in pairs:
        await group.leave()
    again = await unisono.join("x", listen=one)  # the socket was given back
    await again.leave()


@real
async def test_without_listen_the_first_free_local_peer_is_taken() -> None:
    addresses = ["192.0.2.7:7400", *free_addresses(2)]
    first = await unisono.join("g", peers=addresses, insecure=True, pace=PACE)
    second = await unisono.join("g", peers=addresses, insecure=True, pace=PACE)
    assert [first.id.address, second.id.address] == addresses[1:]
    await second.leave()
    await first.leave()


@real
async def test_ipv6_and_host_names() -> None:
    one, other = free_addresses(2, "::1")
    port = one.rpartition(":")[2]
    a, b = await asyncio.gather(
        unisono.join("g", listen=one, peers=[other], min_members=2, timeout=30, pace=PACE),
        unisono.join("g", listen=other, peers=[f"[::1]:{port}"], min_members=2, timeout=30, pace=PACE),
    )
    await a.cast(b"six")
    assert await payloads(b, 1) == [b"six"]
    await b.leave()
    await a.leave()
    (address,) = free_addresses(1)
    named = await unisono.join("g", listen=address.replace("127.0.0.1", "localhost"))
    assert named.id.address in (address, address.replace("127.0.0.1", "[::1]"))
    await named.leave()


@real
async def test_a_key_is_needed_beyond_loopback() -> None:
    with pytest.raises(unisono.Misuse, match=r"can be reached from outside.*unisono keygen"):
        await unisono.join("g", listen="0.0.0.0:0", advertise="192.0.2.1:0")


@real
@pytest.mark.parametrize("options", [{"advertise": "127.0.0.1:0"}, {"peers": ["127.0.0.1:9"]}])
async def test_a_port_open_to_the_network_needs_a_key_though_all_named_addresses_are_loopback(
    options: dict[str, Any],
) -> None:
    with pytest.raises(unisono.Misuse, match=r"^0\.0\.0\.0:\d+ can be reached from outside.*unisono keygen"):
        await unisono.join("g", listen="0.0.0.0:0", **options)


@pytest.mark.seconds
@real
async def test_members_with_a_key_agree_and_a_stranger_stays_outside() -> None:
    key = make_key()
    async with gathered(2, key=key) as (a, b):
        stranger_at = free_addresses(1)[0]
        with pytest.raises(unisono.TimedOut, match="same key"):
            await unisono.join(
                "g", listen=stranger_at, peers=[a.id.address], key=make_key(), min_members=2, timeout=1, pace=PACE
            )
        with pytest.raises(unisono.TimedOut):
            await unisono.join("g", listen=stranger_at, peers=[a.id.address], min_members=2, timeout=1, pace=PACE)
        await a.cast(b"secret")
        assert await payloads(b, 1) == [b"secret"]
        refused = a.running.driver.seal.refused
        assert refused["seal"] > 0
        assert refused["unsealed"] > 0
        said = " ".join(answer(a.running, {"ask": "explain"}))
        assert f"{stranger_at} uses no key, and this member does: give it the group's key." in said
        assert len(a.members) == 2


@real
async def test_bad_wishes_are_refused_before_anything_is_opened() -> None:
    """Found by trying: what had the wrong type escaped as AttributeError or TypeError, and a trace's folder as TraceError."""
    for wishes, words in (
        ({"order": "chaos"}, "no order 'chaos'"),
        ({"policy": "anarchy"}, "partitionable or primary"),
        ({"policy": "primary"}, "needs a journal"),
        ({"slow": "shout"}, "block, shed, evict"),
        ({"min_members": 0}, "choose 1 or more"),
        ({"peers": "127.0.0.1:1"}, "list of addresses"),
        ({"listen": "7400"}, "write host:port"),
        ({"listen": ("127.0.0.1", 7400)}, "write host:port"),
        ({"group": "?"}, "give it another name"),
        ({"peers": [7400]}, "the peer 7400 is not text: write host:port"),
        ({"peers": 7400}, "list of addresses"),
        ({"group": b"g"}, "of type bytes: give a text"),
        ({"min_members": "2"}, "choose 1 or more, a whole number"),
        ({"trace": 5}, "trace = 5 is not a folder"),
        ({"journal": b"j"}, "journal = b'j' is not a folder"),
    ):
        with pytest.raises(unisono.Misuse, match=words):
            unisono.join(**({"group": "g"} | wishes))
    for wishes, words in (({"key": 5}, "not int: `unisono keygen`"), ({"trace": __file__}, "is a file, not a folder")):
        with pytest.raises(unisono.Misuse, match=words):
            await unisono.join("g", listen="127.0.0.1:0", **wishes)
    with pytest.raises(unisono.Misuse, match="pace = 0 is out of range"):
        await unisono.join("g", listen="127.0.0.1:0", pace=0)


@real
async def test_only_the_key_of_a_message_can_be_explained() -> None:
    """Found by trying: a text, as the command takes it, was an AttributeError."""
    async with unisono.join("g", listen="127.0.0.1:0", pace=PACE) as group:
        receipt = await group.cast(b"x")
        await receipt.delivered(10)
        assert "is delivered" in group.explain(receipt.key)[0]
        with pytest.raises(unisono.Misuse, match=r"'text' is not the key of a message: .*`explain\(receipt\.key\)`"):
            group.explain("text")  # type: ignore[arg-type]


@real
async def test_the_order_is_switched_on_a_running_group() -> None:
    async with gathered(2) as (a, b):
        for i in range(20):
            await a.cast(b"%d" % i)
        await a.switch("toto", timeout=20)
        for i in range(20, 40):
            await a.cast(b"%d" % i)
        assert await payloads(b, 40) == [b"%d" % i for i in range(40)]
        assert b.order == "toto"


@real
async def test_what_goes_to_all_leaves_once_by_multicast() -> None:
    async with gathered(3, multicast="239.77.1.9:17599", key=make_key()) as groups:
        before = [group.running.driver.counters()["datagrams sent"] for group in groups]
        for i in range(200):
            await groups[i % 3].cast(b"%d" % i)
            await asyncio.sleep(0)
        first, *others = await asyncio.gather(*(payloads(group, 200) for group in groups))
        assert all(first == other for other in others)
        assert all(group.running.driver.counters()["datagrams received by multicast"] > 0 for group in groups)
        assert all(
            group.running.driver.seal.refused["own"] == 0 for group in groups if group.running.driver.seal is not None
        )
        sent = [group.running.driver.counters()["datagrams sent"] for group in groups]
        assert sum(sent) - sum(before) < 2 * 200 + 100, "a message and its number once each, not once a member"


@pytest.mark.parametrize("address", ["10.0.0.1:7500", "239.1.2.3", "239.1.2.3:0", "[ff02::1]:7500", "nowhere:1"])
def test_what_is_no_multicast_address_is_refused(address: str) -> None:
    with pytest.raises(unisono.Misuse, match=r"239\.1\.2\.3:7500|write host:port"):
        unisono.join("g", multicast=address)


@real
async def test_what_has_ended_a_member_is_told_when_it_leaves_if_nobody_has_heard_of_it() -> None:
    """Found by reading: a program that only casts left its block as if all were well."""

    async def pay() -> None:
        async with unisono.join("g", listen=free_addresses(1)[0]) as group:
            await group.cast(b"paid")
            group.running.fail(unisono.JournalError("disk full"))

    with pytest.raises(unisono.JournalError, match="disk full"):
        await pay()
    async with unisono.join("g", listen=free_addresses(1)[0]) as group:
        group.running.fail(unisono.JournalError("disk full"))
        with pytest.raises(unisono.JournalError):
            await group.cast(b"x")


@real
async def test_of_two_that_leave_the_second_waits_for_the_first() -> None:
    """Found by reading: a program that ended with the second one cut the first one short."""
    group = await unisono.join("g", listen=free_addresses(1)[0])
    await group.cast(b"x")
    first = asyncio.create_task(group.leave())
    await asyncio.sleep(0)
    await group.leave()
    assert group.running.driver.is_stopped
    await first
    await group.leave()


@real
async def test_nobody_waits_for_a_member_that_has_left() -> None:
    """Found by reading: a switch that was under way, or asked for afterwards, never returned."""
    group = await unisono.join("g", listen=free_addresses(1)[0])
    waiting = asyncio.create_task(group.running.until(lambda: False, None, "never"))
    await asyncio.sleep(0)
    await group.leave()
    with pytest.raises(unisono.Closed):
        await waiting
    with pytest.raises(unisono.Closed):
        await group.switch("fifo")
    with pytest.raises(unisono.Closed):
        await group.room()


@real
async def test_a_join_that_fails_gives_its_port_and_its_journal_back(tmp_path: Path) -> None:
    """Found by reading: the corrected call was told that the port, or the journal, was taken, and by this very process."""
    port = free_addresses(1)[0].rpartition(":")[2]
    journal = unisono.Journal(tmp_path)
    with pytest.raises(unisono.Misuse, match="say with advertise"):
        await unisono.join("g", listen=f"0.0.0.0:{port}", insecure=True, journal=journal)
    with pytest.raises(unisono.Unavailable, match="is not known here"):
        await unisono.join("g", listen=f"127.0.0.1:{port}", advertise="nowhere.invalid:0", insecure=True)
    async with unisono.join("g", listen=f"127.0.0.1:{port}", journal=unisono.Journal(tmp_path)):
        pass
    with pytest.raises(unisono.Misuse, match="create another `Journal`"):
        await unisono.join("g", listen=f"127.0.0.1:{port}", journal=journal)
    async with unisono.join("g", listen=f"127.0.0.1:{port}"):
        pass


@pytest.mark.parametrize("name", ["watchdog", "timeout", "leave_timeout"])
@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "soon"])
def test_times_must_be_times(name: str, seconds: Any) -> None:
    with pytest.raises(unisono.Misuse, match=f"{name} = .* is impossible: choose"):
        unisono.join("g", listen="127.0.0.1:0", **{name: seconds})


def test_safe_and_settings_must_not_contradict_each_other() -> None:
    with pytest.raises(unisono.Misuse, match="contradict"):
        unisono.join("g", listen="127.0.0.1:0", safe=True, settings=Settings())
