"""Waiting for a view (`until`), casting where nothing may be cast (`NotPrimary`), and naming members."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

import unisono
from tests.runtime.groups import ADDRESSES, join_all, leave_all
from tests.runtime.ports import free_addresses
from tests.runtime.test_group import gathered, payloads, real
from unisono.core.options import addressees
from unisono.sim import Network, test

# until


@test()
async def test_a_task_waits_for_a_view_beside_the_one_that_reads(network: Network) -> None:
    groups = await join_all()
    reading = asyncio.ensure_future(payloads(groups[0], 1))
    network.crash(groups[2])
    view = await groups[0].until(lambda view: len(view.members) == 2, timeout=60)
    assert view.members == (groups[0].id, groups[1].id)
    await groups[1].cast(b"x")
    assert await reading == [b"x"]
    await leave_all(groups[:2])


@test()
async def test_the_task_that_reads_may_wait_for_a_view_that_it_has_not_read(network: Network) -> None:
    groups = await join_all()
    async for event in groups[0]:
        assert isinstance(event, unisono.View)
        network.crash(groups[2])
        await groups[0].until(lambda view: len(view.members) == 2, timeout=60)
        assert len(groups[0].view.members) == 3
        break
    await leave_all(groups[:2])


@test()
async def test_what_holds_already_is_not_waited_for() -> None:
    async with unisono.join("g", listen=ADDRESSES[0]) as group:
        view = await group.until(lambda view: view.members == (group.id,), timeout=0)
        assert view == group.view


@test()
async def test_a_wait_that_ends_in_vain_says_what_waits(network: Network) -> None:
    groups = await join_all()
    network.partition([ADDRESSES[1:2], ADDRESSES[::2]])
    await groups[1].cast(b"held back")
    with pytest.raises(unisono.TimedOut, match=r"did not happen within 1 s at 10\.0\.0\.2:7400.* waits for "):
        await groups[1].until(lambda view: len(view.members) == 4, timeout=1)
    network.heal()
    await leave_all(groups)


@test()
async def test_waiting_ends_with_the_group() -> None:
    group = await unisono.join("g", listen=ADDRESSES[0])
    waiting = asyncio.ensure_future(group.until(lambda view: False))
    await asyncio.sleep(1)
    await group.leave()
    with pytest.raises(unisono.Closed):
        await waiting
    with pytest.raises(unisono.Closed):
        await group.until(lambda view: True)


@pytest.mark.parametrize("error", [ZeroDivisionError, StopIteration])
def test_what_the_predicate_raises_is_raised_where_the_task_waits_and_the_member_lives_on(
    error: type[Exception],
) -> None:
    asked: list[int] = []

    def predicate(view: unisono.View) -> bool:
        asked.append(1)
        if len(asked) > 1:
            raise error
        return False

    @test()
    async def story() -> None:
        async with unisono.join("g", listen=ADDRESSES[0]) as group:
            waiting = asyncio.ensure_future(group.until(predicate, timeout=60))
            await asyncio.sleep(0)
            await group.cast(b"x")
            with pytest.raises(RuntimeError if error is StopIteration else error):
                await waiting
            assert await payloads(group, 1) == [b"x"]

    story()


@test()
async def test_what_the_reader_does_is_noticed_before_the_next_message(network: Network) -> None:
    """A predicate may look at what the reader keeps: that changes when it reads, and not in the turn that brings it."""
    async with unisono.join("g", listen=ADDRESSES[0]) as group:
        seen: list[bytes] = []

        async def read() -> None:
            async for event in group:
                await asyncio.sleep(0.001)
                if isinstance(event, unisono.Delivery):
                    seen.append(event.payload)

        reading = asyncio.ensure_future(read())
        await group.cast(b"x")
        begin = asyncio.get_running_loop().time()
        await group.until(lambda view: bool(seen), timeout=60)
        assert asyncio.get_running_loop().time() - begin < 0.1
        reading.cancel()


@test()
async def test_only_a_plain_function_can_be_asked() -> None:
    async def later(view: unisono.View) -> bool:
        return True

    async with unisono.join("g", listen=ADDRESSES[0]) as group:
        for wrong in (later, True):
            with pytest.raises(unisono.Misuse, match="plain function of the view"):
                await group.until(wrong)  # type: ignore[arg-type]
        with pytest.raises(unisono.Misuse, match="timeout"):
            await group.until(lambda view: True, timeout=-1)


# NotPrimary


def test_a_minority_is_told_whose_majority_is_missing_and_how_to_wait(tmp_path: Path) -> None:
    @test()
    async def story(network: Network) -> None:
        groups = await join_all(primary_in=tmp_path)
        network.partition([ADDRESSES[:1], ADDRESSES[1:]])
        last = (await groups[0].until(lambda view: view.is_primary)).id
        await groups[0].until(lambda view: not view.is_primary, timeout=60)
        with pytest.raises(unisono.NotPrimary) as caught:
            await groups[0].cast(b"x")
        assert not isinstance(caught.value, unisono.Misuse), "the caller did not cause it"
        said = str(caught.value)
        assert f"it has 1 of the 3 members of the last primary, view {last}, and needs 2; missing: " in said
        assert all(address in said for address in ADDRESSES[1:])
        assert "await group.until(lambda view: view.is_primary)" in said
        with pytest.raises(unisono.NotPrimary):
            groups[0].try_cast(b"x")
        assert any("missing: " in one for one in groups[0].explain())
        network.heal()
        await groups[0].until(lambda view: view.is_primary, timeout=60)
        await (await groups[0].cast(b"again")).delivered(timeout=10)
        await leave_all(groups)

    story()


def test_before_the_first_primary_the_peers_are_counted(tmp_path: Path) -> None:
    @test()
    async def story() -> None:
        wishes: dict[str, Any] = {"policy": "primary", "journal": tmp_path / "a", "peers": ADDRESSES}
        async with unisono.join("g", listen=ADDRESSES[0], **wishes) as group:
            with pytest.raises(unisono.NotPrimary, match="it has 1 of the 3 peers, and the first primary needs 2"):
                await group.cast(b"x")

    story()


# Members by name.


@given(some.text(min_size=1).filter(lambda text: "#" not in text), some.integers(0, 2**63 - 1))
def test_a_member_is_read_back_from_its_text(address: str, incarnation: int) -> None:
    member = unisono.MemberId(address, incarnation)
    assert unisono.MemberId.parse(f"{address}#{incarnation}") == member
    assert unisono.MemberId.parse(f"{address}#{incarnation:#x}") == member


def test_an_address_alone_is_a_member_without_a_life() -> None:
    assert unisono.MemberId.parse("[::1]:7400") == unisono.MemberId("[::1]:7400", 0)


@pytest.mark.parametrize("text", ["", "#1", "a#", "a#-1", "a#a3f", "a#1_0", f"a#{2**64}", "a#1 ", "a#0x", "a#٣"])
def test_what_names_no_member_is_refused(text: str) -> None:
    with pytest.raises(unisono.Misuse, match="whole incarnation"):
        unisono.MemberId.parse(text)


@real
async def test_a_single_member_is_addressed_by_its_id() -> None:
    async with gathered(3) as (a, b, c):
        await a.cast(b"1", to=b.id)
        assert a.try_cast(b"2", to=b.id) is not None
        await a.cast(b"all")
        assert await payloads(b, 3) == [b"1", b"2", b"all"]
        assert await payloads(c, 1) == [b"all"]


@pytest.mark.parametrize("to", ["127.0.0.1:7400", ["127.0.0.1:7400"], [("127.0.0.1:7400", 0)], b"x"])
def test_what_is_no_member_is_no_addressee(to: Any) -> None:
    with pytest.raises(unisono.Misuse, match="names no members: give a MemberId"):
        addressees(to)


# The key of a message, for `each`.


@real
async def test_a_function_of_three_arguments_gets_the_key_of_every_message() -> None:
    async with gathered(2) as (a, b):
        seen: list[tuple[unisono.MemberId, bytes, unisono.Key]] = []

        def deliver(sender: unisono.MemberId, payload: bytes, key: unisono.Key) -> None:
            seen.append((sender, payload, key))

        handling = asyncio.create_task(b.each(deliver))
        keys = [(await a.cast(b"%d" % i)).key for i in range(20)]
        keys.append((await a.cast(b"last", safe=True)).key)
        while len(seen) < 21:
            await asyncio.sleep(0.01)
        assert [key for _, _, key in seen] == keys
        assert all(isinstance(key, unisono.Key) and key.origin == sender for sender, _, key in seen)
        handling.cancel()


@real
async def test_a_third_argument_with_a_default_is_left_alone() -> None:
    async with gathered(1) as (a,):
        seen: list[object] = []
        handling = asyncio.create_task(a.each(lambda sender, payload, log=seen: log.append(payload)))
        rest: list[object] = []
        await a.cast(b"x")
        while not seen:
            await asyncio.sleep(0.01)
        handling.cancel()
        await asyncio.gather(handling, return_exceptions=True)
        handling = asyncio.create_task(a.each(lambda *message: rest.append(message)))
        await a.cast(b"y")
        while not rest:
            await asyncio.sleep(0.01)
        assert (seen, rest) == ([b"x"], [(a.id, b"y")])
        handling.cancel()


@test()
async def test_requests_of_clients_do_not_change_whether_a_function_gets_keys() -> None:
    async with unisono.join("g", listen=ADDRESSES[0], answer=lambda client, payload: b"") as group:
        seen: list[object] = []
        handling = asyncio.create_task(group.each(lambda sender, payload, key: seen.append((payload, key))))
        key = (await group.cast(b"x")).key
        await group.until(lambda view: bool(seen), timeout=10)
        assert seen == [(b"x", key)]
        handling.cancel()


# Without asyncio.


def test_the_facade_waits_for_views_and_addresses_one_member() -> None:
    addresses = free_addresses(2)
    wishes: dict[str, Any] = {"peers": addresses, "pace": 0.5, "timeout": 20}
    with unisono.sync.join("sync", listen=addresses[0], **wishes) as first:
        with pytest.raises(unisono.TimedOut, match=r"did not happen within 0\.01 s"):
            first.until(lambda view: len(view.members) == 3, timeout=0.01)
        second: list[unisono.sync.Group] = []
        joining = threading.Thread(
            target=lambda: second.append(unisono.sync.join("sync", listen=addresses[1], min_members=2, **wishes))
        )
        joining.start()
        assert len(first.until(lambda view: len(view.members) == 2, timeout=20).members) == 2
        joining.join()
        with second[0] as other:
            first.cast(b"for you", to=other.id)
            while not isinstance(event := other.next(timeout=20), unisono.Delivery):
                pass
            assert event.payload == b"for you"
        with pytest.raises(unisono.Misuse, match="lacks no state"):
            first.give_up("1@nowhere")


def test_the_facade_gives_up_a_state_that_no_member_has(tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    wishes: dict[str, Any] = {
        "listen": address,
        "peers": [address],
        "policy": "primary",
        "journal": tmp_path,
        "snapshot": lambda: b"",
        "restore": lambda state: None,
        "pace": 0.5,
    }
    with unisono.sync.join("sync", **wishes) as group:
        group.cast(b"x").delivered(timeout=10)
    with unisono.sync.join("sync", **wishes) as group:
        lost = group.status()["lost_state"]
        assert lost is not None
        with pytest.raises(unisono.NotPrimary, match="given up by its name"):
            group.cast(b"y")
        assert isinstance(group.next(timeout=10), unisono.View)  # the only reader, which then waits below
        group.give_up(lost, timeout=20)
        group.cast(b"y").delivered(timeout=10)
