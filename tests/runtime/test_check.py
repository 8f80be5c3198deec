"""`group.check()` and the event `Diverged`, through the public interface: on real sockets and in virtual time."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.mutants.delivery_mutants import MUTANTS, AltersADelivery, DropsADelivery, plant
from tests.runtime.groups import ADDRESSES, join_all, leave_all
from tests.runtime.test_group import gathered, real
from unisono.runtime.metrics import Metrics
from unisono.sim import Network, test


async def diverged(group: unisono.Group) -> unisono.Diverged:
    """The next event of that kind."""
    async with asyncio.timeout(30):
        async for event in group:
            if isinstance(event, unisono.Diverged):
                return event
    raise AssertionError("the stream has ended")


# On real sockets.


@real
async def test_real_members_that_delivered_the_same_say_so() -> None:
    async with gathered(3) as groups:
        for group in groups:
            for i in range(300):
                await group.cast(b"%d" % i)
        for group in groups:
            check = await group.check(30)
            assert check.same
            assert check.differences == ()
            assert check.members == group.running.installed_view.members


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
@real
async def test_a_faulty_real_member_is_an_event_a_metric_and_a_line_of_the_log(
    mutant: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "unisono")
    async with gathered(3) as groups:
        metrics = [Metrics(group.running) for group in groups]
        plant(groups[2].running.member, mutant, 5)
        for i in range(10):
            for group in groups:
                await (await group.cast(b"%d" % i)).stable(30)
        check = await groups[0].check(30)
        assert not check.same
        events = [await diverged(group) for group in groups]
        assert [*check.differences, *events] == [check.differences[0]] * 4
        assert events[0].view == check.view
        odd = groups[2].id
        assert events[0].parts == (tuple(member for member in check.members if member != odd), (odd,))
        assert events[0].alike < 5 <= events[0].differs_by <= 31
        for one in metrics:
            assert b"unisono_divergences_total{" in one.page()
            line = next(line for line in one.page().splitlines() if line.startswith(b"unisono_divergences_total{"))
            assert line.endswith(b" 1.0")
    lines = [record for record in caplog.records if record.name == "unisono" and record.levelno == logging.ERROR]
    assert len(lines) == 3
    for record in lines:
        assert f"in view {check.view.short}, " in record.getMessage()
        assert odd.short in record.getMessage()


@real
async def test_a_view_change_of_real_members_finds_it() -> None:
    async with gathered(3, order="fifo") as groups:
        plant(groups[2].running.member, DropsADelivery, 5)
        for i in range(10):
            for group in groups:
                await (await group.cast(b"%d" % i)).stable(30)
        await groups[1].leave()
        event = await diverged(groups[0])
        assert {member for part in event.parts for member in part} == {groups[0].id, groups[2].id}
        assert event == await diverged(groups[2])


def test_without_asyncio() -> None:
    with unisono.sync.join("g", listen="127.0.0.1:0") as group:
        group.cast(b"x")
        assert group.check(10).same
        assert group.check().members == group.members


# In virtual time.


@pytest.mark.seconds
@test(seeds=3, loss=0.1)
async def test_members_check_under_load_and_all_at_once(network: Network) -> None:
    for order in ("fifo", "causal", "sequencer", "toto", "rmp"):
        groups = await join_all(order=order)

        async def cast(group: unisono.Group) -> None:
            for i in range(40):
                await group.cast(b"%d" % i)
                await asyncio.sleep(0.002)

        loads = [asyncio.create_task(cast(group)) for group in groups]
        for _ in range(3):
            checks = await asyncio.gather(*(group.check(20) for group in groups))
            assert all(check.same for check in checks)
        await asyncio.gather(*loads)
        await leave_all(groups)


@test(seeds=3)
async def test_own_messages_keep_their_indexes_and_receipts(network: Network) -> None:
    """A check casts markers, which take indexes like any message and are shown to no application."""
    groups = await join_all(order="fifo")
    seen: list[tuple[unisono.MemberId, int, bytes]] = []
    receipts = []
    for i in range(5):
        receipts.append(await groups[0].cast(b"%d" % i))
        receipts.append(await groups[1].cast(b"%d" % i))
        await groups[i % 3].check(10)
    for receipt in receipts:
        await receipt.stable(10)
    async with asyncio.timeout(10):
        async for event in groups[2]:
            if isinstance(event, unisono.Delivery):
                seen.append((event.sender, event.index, event.payload))
                if len(seen) == 10:
                    break
    expected = {(receipt.key.origin, receipt.key.index) for receipt in receipts}
    assert {(sender, index) for sender, index, _ in seen} == expected
    assert {payload for _, _, payload in seen} == {b"%d" % i for i in range(5)}
    await leave_all(groups)  # which raises NotFlushed if a marker were not stable


@test(seeds=3)
async def test_an_application_that_has_not_read_is_compared_all_the_same(network: Network) -> None:
    """What is compared is what lies in the application's stream, read or not."""
    groups = await join_all()
    plant(groups[2].running.member, AltersADelivery, 5)
    for i in range(10):
        await (await groups[0].cast(b"%d" % i)).stable(10)
    assert not (await groups[0].check(10)).same
    assert [group.status()["queued_batches"] > 10 for group in groups] == [True] * 3
    assert (await diverged(groups[1])).parts[1] == (groups[2].id,)
    await leave_all(groups)


@test(seeds=3)
async def test_observers_and_what_clients_ask_for_are_compared_too(network: Network) -> None:
    counts = [0, 0]

    def answer(which: int) -> Any:
        def count(client: unisono.MemberId, payload: bytes) -> bytes:
            counts[which] += 1
            return payload

        return count

    a, b = await asyncio.gather(
        *(unisono.join("g", listen=ADDRESSES[i], peers=ADDRESSES, min_members=2, answer=answer(i)) for i in range(2))
    )
    reading = [asyncio.create_task(one.each(lambda sender, payload: None)) for one in (a, b)]
    observer = await unisono.join("g", listen=ADDRESSES[2], peers=ADDRESSES, min_members=3, role="observer")
    async with unisono.client("g", contacts=ADDRESSES[:2], listen="10.0.0.9:7400") as outside:
        for i in range(5):
            assert await outside.request(b"%d" % i) == b"%d" % i
    assert (await observer.check(10)).same
    assert len((await a.check(10)).members) == 3
    await leave_all((observer, a, b))
    await asyncio.gather(*reading)


@test(seeds=3)
async def test_members_with_a_state_are_compared_behind_the_hooks(network: Network) -> None:
    """What a joiner takes over inside a state is no difference."""
    kept: list[list[bytes]] = [[], [], []]

    def hooks(i: int) -> dict[str, Any]:
        def restore(state: bytes) -> None:
            kept[i][:] = state.split()

        return {"snapshot": lambda: b" ".join(kept[i]), "restore": restore}

    async def read(i: int, group: unisono.Group) -> None:
        await group.each(lambda sender, payload: kept[i].append(payload))

    groups: list[unisono.Group] = []
    reading = []
    for i, address in enumerate(ADDRESSES):
        groups.append(await unisono.join("g", listen=address, peers=ADDRESSES[:i], min_members=i + 1, **hooks(i)))
        reading.append(asyncio.create_task(read(i, groups[i])))
        for number in range(10):
            await groups[0].cast(b"%d/%d" % (i, number))
        assert (await groups[i].check(10)).same
    await groups[0].check(10)
    await leave_all(groups)
    await asyncio.gather(*reading)
    assert len(kept[0]) == 30


@test(seeds=3)
async def test_a_member_that_does_not_answer_is_named(network: Network) -> None:
    groups = await join_all(pace=10)
    groups[2].running.driver.freeze()
    with pytest.raises(unisono.TimedOut, match="could not compare deliveries") as late:
        await groups[0].check(0.5)
    assert str(groups[2].id) in str(late.value)
    assert str(groups[1].id) not in str(late.value)
    groups[2].running.driver.thaw()
    assert (await groups[0].check(60)).same
    await leave_all(groups)


@test(seeds=3)
async def test_a_check_goes_on_in_the_next_view(network: Network) -> None:
    groups = await join_all()
    await groups[0].cast(b"x")
    groups[2].running.driver.freeze()
    check = await groups[0].check(60)
    assert check.same
    assert groups[2].id not in check.members
    groups[2].running.driver.thaw()
    await groups[0].until(lambda view: len(view.members) == 3, 60)
    await leave_all(groups)


@test()
async def test_where_nothing_can_be_compared_it_says_why(network: Network) -> None:
    (group,) = await join_all(1)
    with pytest.raises(unisono.Misuse, match="timeout"):
        await group.check(-1)
    assert (await group.check(5)).same  # alone
    await group.leave()
    with pytest.raises(unisono.Closed):
        await group.check(5)


@test()
async def test_a_read_only_view_is_not_compared(network: Network, tmp_path: Path) -> None:
    groups = await join_all(primary_in=tmp_path)
    network.partition([ADDRESSES[:1], ADDRESSES[1:]])
    await groups[0].until(lambda view: not view.is_primary, 60)
    with pytest.raises(unisono.NotPrimary, match="Nothing was cast"):
        await groups[0].check(5)
    assert (await groups[1].check(60)).same
    network.partition([])
    await groups[0].until(lambda view: view.is_primary, 60)
    await leave_all(groups)
