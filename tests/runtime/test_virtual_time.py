"""Application code in virtual time: the same code as on real sockets, with faults, and the same run for the same seed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import unisono
from tests.runtime.groups import ADDRESSES, join_all, leave_all
from unisono.core.config import SECOND
from unisono.runtime.options import ACK_DELAY_NS
from unisono.sim import Crashed, Network, Stuck, in_virtual_time, loop, test


async def collect(group: unisono.Group, count: int) -> list[bytes]:
    payloads = []
    async for event in group:
        match event:
            case unisono.Delivery(_, payload):
                payloads.append(payload)
                if len(payloads) == count:
                    break
    return payloads


async def converse(address: str, count: int, order: str = "sequencer") -> list[bytes]:
    """What an application does: join with the others, cast, deliver everything, leave.

    Where datagrams get lost, a view may end by leaving before a member knows that the others have everything.
    """
    said: list[bytes] = []
    with suppress(unisono.NotFlushed):
        async with unisono.join("chat", listen=address, peers=ADDRESSES, order=order, min_members=3) as group:
            for i in range(count):
                await group.cast(f"{address} says {i}".encode())
            said = await collect(group, 3 * count)
    return said


@test(seeds=10, loss=0.2)
async def test_members_agree_under_loss() -> None:
    first, second, third = await asyncio.gather(*(converse(address, 20) for address in ADDRESSES))
    assert len(first) == 60
    assert first == second == third


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    def story(seed: int) -> tuple[list[bytes], int]:
        async def main(network: Network) -> list[bytes]:
            return (await asyncio.gather(*(converse(address, 5) for address in ADDRESSES)))[0]

        seen: list[int] = []

        async def timed(network: Network) -> list[bytes]:
            said = await main(network)
            seen.append(network.sent)
            return said

        return in_virtual_time(timed, seed, loss=0.3), seen[0]

    assert story(1) == story(1)
    assert story(1) != story(2)


@test(seeds=5)
async def test_a_crash_is_seen_as_a_view_with_the_reason(network: Network) -> None:
    groups = await join_all()
    network.crash(groups[0])
    with pytest.raises(Crashed):
        await groups[0].cast(b"too late")
    async for event in groups[1]:
        if isinstance(event, unisono.View) and len(event.members) == 2:
            assert list(event.left) == [groups[0].id]
            assert "silence" in str(event.left[groups[0].id])
            break
    await leave_all(groups[1:])


@test()
async def test_a_partition_heals_without_an_operator(network: Network) -> None:
    groups = await join_all()
    network.partition([ADDRESSES[:2], ADDRESSES[2:]])
    async for event in groups[2]:
        if isinstance(event, unisono.View) and len(event.members) == 1:
            break
    network.heal()
    async for event in groups[2]:
        if isinstance(event, unisono.View) and len(event.members) == 3:
            break
    await leave_all(groups)


@test()
async def test_a_paused_member_is_excluded_and_comes_back(network: Network) -> None:
    groups = await join_all()
    network.pause(groups[0], 30.0)
    sizes = []
    async for event in groups[1]:
        if isinstance(event, unisono.View):
            sizes.append(len(event.members))
        if len(sizes) > 1 and sizes[-1] == 3:
            break
    assert 2 in sizes
    await leave_all(groups)


def test_waiting_for_what_never_comes_is_an_error_and_not_a_hang() -> None:
    async def main(network: Network) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck, match="nothing can ever happen"):
        in_virtual_time(main)


@pytest.mark.parametrize("is_polling", [False, True])
def test_waiting_for_a_message_that_never_comes_ends_with_the_limit_of_virtual_time(is_polling: bool) -> None:
    """Found by trying: an open group always has a timer, so a test that forgot to cast hung for ever."""

    @test(seeds=[3], limit=60)
    async def forgets_to_cast() -> None:
        async with unisono.join("chat", listen=ADDRESSES[0], peers=ADDRESSES) as group:
            await group.next()
            while is_polling:
                await asyncio.sleep(0)
            await group.next()

    with pytest.raises(
        Stuck, match=r"with seed 3 .* 60 s of virtual time.*limit.* 10\.0\.0\.1:7400#\d+: no answer from 10\.0\.0\.2"
    ):
        forgets_to_cast()


def test_the_limit_of_virtual_time_tells_what_each_open_group_waits_for() -> None:
    async def main(network: Network) -> None:
        gone = await unisono.join("chat", listen=ADDRESSES[2], peers=ADDRESSES)
        await gone.leave()
        network.partition([[ADDRESSES[0]], [ADDRESSES[1]]])
        await asyncio.gather(
            *(unisono.join("chat", listen=address, peers=ADDRESSES, min_members=2) for address in ADDRESSES[:2])
        )

    with pytest.raises(Stuck, match=r"10\.0\.0\.1:7400#\d+: .*10\.0\.0\.2:7400#\d+: .*") as caught:
        in_virtual_time(main, limit=60)
    assert "nothing waits" not in str(caught.value)
    assert f"{ADDRESSES[2]}#" not in str(caught.value), "it is no open group"


def test_the_limit_of_virtual_time_can_be_raised_and_left_out() -> None:
    async def main(network: Network) -> None:
        await asyncio.sleep(2 * loop.LIMIT_S)

    with pytest.raises(Stuck, match="3600 s"):
        in_virtual_time(main)
    in_virtual_time(main, limit=2 * loop.LIMIT_S)
    in_virtual_time(main, limit=None)
    with pytest.raises(unisono.Misuse, match="choose seconds of virtual time above 0, or None"):
        in_virtual_time(main, limit=0)


# Code that polls.


def test_time_goes_on_for_a_task_that_polls() -> None:
    """Found by reading: with `sleep(0)` no pass of the loop ever waited, so what was polled for never came."""

    async def poll() -> None:
        while True:
            await asyncio.sleep(0)

    async def main(network: Network) -> float:
        before = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(poll(), 60)
        return asyncio.get_running_loop().time() - before

    assert in_virtual_time(main) == pytest.approx(60)


def test_casting_without_waiting_goes_on_when_there_is_room_and_is_the_same_for_the_same_seed() -> None:
    async def member(listen: str) -> float:
        async with unisono.join("g", listen=listen, peers=ADDRESSES[:2], min_members=2) as group:
            if listen == ADDRESSES[0]:
                for _ in range(1_500):
                    while group.try_cast(bytes(1_000)) is None:
                        await asyncio.sleep(0)
            assert len(await collect(group, 1_500)) == 1_500
            return asyncio.get_running_loop().time()

    async def main(network: Network) -> tuple[list[float], int]:
        return await asyncio.gather(*(member(address) for address in ADDRESSES[:2])), network.sent

    assert in_virtual_time(main, 1) == in_virtual_time(main, 1)


def test_polling_for_what_never_comes_is_an_error_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(network: Network) -> None:
        while True:
            await asyncio.sleep(0)

    monkeypatch.setattr(loop, "PASSES_STUCK", 2 * loop.PASSES_MAX)
    with pytest.raises(Stuck, match=r"which task awaits `sleep\(0\)` without an end"):
        in_virtual_time(main)


def test_time_stands_still_for_a_task_that_only_has_much_to_do() -> None:
    async def main(network: Network) -> None:
        running = asyncio.get_running_loop()
        before = running.time()
        for _ in range(5 * loop.PASSES_MAX):  # no timer is set: nobody waits for one
            await asyncio.sleep(0)
        assert running.time() == before
        await asyncio.sleep(1)
        before = running.time()
        timer = running.call_later(1, lambda: None)
        for _ in range(5 * loop.PASSES_MAX):  # in one and the same pass
            running.call_soon(lambda: None)
        for _ in range(loop.PASSES_MAX // 2):
            await asyncio.sleep(0)
        assert running.time() == before
        timer.cancel()

    in_virtual_time(main)


@test()
async def test_of_two_pauses_the_last_to_end_counts(network: Network) -> None:
    """Found by reading: the first one's end woke a member that was to stand still much longer."""
    groups = await join_all(2)
    paused = groups[0]
    for seconds in (1.0, 3.0, 2.0):
        network.pause(paused, seconds)
    turns = paused.running.driver.turns
    await asyncio.sleep(2.5)
    assert paused.running.driver.turns == turns
    await asyncio.sleep(1)
    assert paused.running.driver.turns > turns
    await leave_all(groups)


def test_a_failure_names_its_seed() -> None:
    @test(seeds=[7])
    async def fails() -> None:
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted") as caught:
        fails()
    assert any("seed 7" in note for note in caught.value.__notes__)


def test_fixtures_pass_through(tmp_path_factory: pytest.TempPathFactory) -> None:
    seen = []

    @test(seeds=2)
    async def inner(network: Network, value: int) -> None:
        seen.append((value, isinstance(network, Network)))

    inner(value=3)
    assert seen == [(3, True), (3, True)]


@test(seeds=5)
async def test_who_waits_for_a_stable_message_does_not_wait_for_delayed_acknowledgements() -> None:
    """An acknowledgement may wait for company for 40 ms, unless somebody waits for it."""
    running = asyncio.get_running_loop()
    groups = await join_all()
    await asyncio.sleep(1)
    for is_late in (False, True):
        receipt = await groups[1].cast(b"x")
        if is_late:
            await receipt.delivered()
        start = running.time()
        await receipt.stable(timeout=1)
        assert running.time() - start < ACK_DELAY_NS / SECOND / 2
    await asyncio.gather(*(group.leave() for group in groups))


def test_virtual_time_does_not_ask_the_machine_how_large_a_datagram_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run depended on the routing table of the machine that it ran on."""
    from unisono.runtime import addresses

    def ask(family: int, to: object) -> int:
        raise AssertionError(f"the real machine was asked for the way to {to}")

    monkeypatch.setattr(addresses, "path_mtu", ask)

    async def main(network: Network) -> list[int]:
        sizes = []
        for first, second in (
            (ADDRESSES[0], ADDRESSES[1]),
            ("127.0.0.1:7400", "127.0.0.1:7401"),
            ("alpha:1", "beta:1"),
        ):
            async with unisono.join("sizes", listen=first, peers=[second]) as group:
                sizes.append(group.running.member.settings.streams.datagram_bytes)
        network.datagram_bytes = 9_000
        async with unisono.join("sizes", listen=ADDRESSES[0], peers=[ADDRESSES[1]]) as group:
            sizes.append(group.running.member.settings.streams.datagram_bytes)
        return sizes

    *usual, jumbo = in_virtual_time(main)
    assert len(set(usual)) == 1
    assert jumbo - usual[0] == 9_000 - loop.DATAGRAM_BYTES


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"listen": "10.0.0.1:7400", "peers": ["[fd00::2]:7400"]},
            r"the peer '\[fd00::2\]:7400' is IPv6, but 10.0.0.1",
        ),
        (
            {"peers": ["[fd00::2]:7400", "10.0.0.1:7400"]},
            r"the peer '10.0.0.1:7400' is IPv4, but \[fd00::2\]:7400 is IPv6",
        ),
        ({"listen": "10.0.0.1:7400", "advertise": "[fd00::1]:7400"}, r"advertise '\[fd00::1\]:7400' is IPv6"),
    ],
)
def test_two_families_of_addresses_are_refused_in_virtual_time(options: dict[str, Any], said: str) -> None:
    """They were a bare TypeError of a socket."""

    async def main(network: Network) -> None:
        with pytest.raises(unisono.Misuse, match=said):
            await unisono.join("families", **options)
        async with unisono.join("families", listen="10.0.0.1:7400"):  # the address was given back
            pass

    in_virtual_time(main)


def test_a_client_in_virtual_time_does_not_take_an_address_of_the_machine() -> None:
    async def main(network: Network) -> None:
        with pytest.raises(unisono.Misuse, match="give the client listen"):
            async with unisono.client("families", contacts=ADDRESSES):
                pass

    in_virtual_time(main)


@test()
async def test_a_status_makes_no_more_sentences_than_it_shows(network: Network) -> None:
    groups = await join_all(order="fifo", safe=True)
    network.pause(groups[1], 60)
    for number in range(100):
        await groups[0].cast(f"{number}".encode())
        await asyncio.sleep(0.001)
    made: list[int | None] = []
    member = groups[0].running.member
    explain, member.explain = member.explain, lambda key, most: made.append(most) or explain(key, most)  # type: ignore
    assert len(groups[0].status()["waits"]) == 8
    assert made == [8]
