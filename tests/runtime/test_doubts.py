"""What ends in doubt: receipts of a caster that was cut off, and leaving."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress
from pathlib import Path

import pytest

import unisono
from tests.journal_tools import batch, entered
from tests.runtime.groups import ADDRESSES, A, B, C
from tests.runtime.test_stages import trio
from unisono.core.views.own_casts import Doubt
from unisono.runtime.own_messages import OwnMessages
from unisono.runtime.receipts import Receipts, Stage
from unisono.sim import Network, in_virtual_time, test


async def a_view_of(group: unisono.Group, size: int) -> None:
    while len(group.running.installed_view.members) != size:
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("order", ["fifo", "causal", "sequencer", "abcast", "toto"])
def test_g6_a_caster_that_was_cut_off_is_told_that_it_is_uncertain(order: str) -> None:
    async def main(network: Network) -> None:
        async with trio(order) as (a, _, _):
            early = await a.cast(b"everywhere")
            await early.stable()
            network.partition([[A], [B, C]])
            late = [await a.cast(b"alone %d" % number) for number in range(3)]
            waits = [asyncio.ensure_future(receipt.stable()) for receipt in late]
            await a_view_of(a, 1)
            for result in await asyncio.gather(*waits, return_exceptions=True):
                assert isinstance(result, unisono.Uncertain)
                assert result.known == (a.id,)
            with pytest.raises(unisono.Uncertain, match=r"message 1 of 10.0.0.1:7400#.* known only at 10.0.0.1:7400#"):
                await late[0].stable()  # asked for long after
            network.heal()
            await a_view_of(a, 3)
            for receipt in late:
                with pytest.raises(unisono.Uncertain):
                    await receipt.stable(timeout=1)
                assert not receipt.is_stable
                await receipt.delivered(timeout=1)  # under this policy it was, here
            assert early.is_stable
            again = await a.cast(b"again")
            await again.stable(timeout=5)
            assert again.is_stable

    in_virtual_time(main)


@test()
async def test_who_stays_with_a_majority_knows_who_has_the_message(network: Network) -> None:
    async with trio("fifo") as (a, b, _):
        network.partition([[A, B], [C]])
        receipt = await a.cast(b"x")
        with pytest.raises(unisono.Uncertain) as caught:
            await receipt.stable()
        assert set(caught.value.known) == {a.id, b.id}
        assert caught.value.message == receipt.key


def test_no_stage_of_a_message_on_the_way_out_of_the_primary_is_confirmed(tmp_path: Path) -> None:
    """A safe message waits for all; its view ends first, and the next one is not primary."""

    async def main(network: Network) -> None:
        groups = await asyncio.gather(
            *(
                unisono.join("g", listen=one, peers=ADDRESSES, min_members=3, policy="primary", journal=tmp_path / one)
                for one in ADDRESSES
            )
        )
        a = groups[0]
        shown: list[unisono.Event] = []
        flags: list[bool] = []

        async def read() -> None:
            async for event in a:
                shown.append(event)
                flags.append(a.view.is_primary)

        reading = asyncio.ensure_future(read())
        before = await a.cast(b"before", safe=True)
        await before.stable()
        network.partition([[A], [B, C]])
        receipt = await a.cast(b"lonely", safe=True)
        stages = (receipt.delivered, receipt.applied, receipt.stable)
        results = await asyncio.gather(*(stage() for stage in stages), return_exceptions=True)
        assert [type(result) for result in results] == [unisono.Uncertain] * 3
        assert {result.known for result in results if isinstance(result, unisono.Uncertain)} == {(a.id,)}
        await asyncio.sleep(1)
        place = next(i for i, event in enumerate(shown) if isinstance(event, unisono.Transition))
        assert isinstance(shown[place + 1], unisono.Delivery), "it is shown: its member may be the last holder"
        assert isinstance(shown[place + 2], unisono.View)
        assert flags == [True] * place + [False] * 3
        for stage in stages:
            with pytest.raises(unisono.Uncertain):
                await stage(timeout=1)
        assert not any([receipt.is_delivered, receipt.is_applied, receipt.is_stable])
        assert all([before.is_delivered, before.is_applied, before.is_stable])
        for group in groups:
            with suppress(unisono.UnisonoError):
                await group.leave(timeout=1)
        await reading

    in_virtual_time(main)


def test_after_a_doubt_nothing_is_confirmed() -> None:
    async def main() -> None:
        receipts = Receipts(asyncio.get_running_loop(), a := unisono.MemberId("a"))
        receipts.delivered(0, 4)
        wait = asyncio.ensure_future(receipts.wait(2, Stage.STABLE, None))
        await asyncio.sleep(0)
        receipts.doubt(Doubt(1, 2, (a,)))
        receipts.doubt(Doubt(2, 3, (a,)))
        receipts.settled(4)
        with pytest.raises(unisono.Uncertain, match=r"message 2 of a .* known only at a\."):
            await wait
        assert [receipts.has(index, Stage.STABLE) for index in range(5)] == [True, False, False, True, False]
        assert len(receipts._doubts[Stage.STABLE]) == 1, "ranges that meet are one"
        receipts.lose(4, 2, (a,))
        receipts.settled(6)
        receipts.applied(0, 6)
        for stage in Stage:
            assert not receipts.has(4, stage)
            assert not receipts.has(5, stage)
            with pytest.raises(unisono.Uncertain):
                await receipts.wait(5, stage, None)
        receipts.fail(unisono.Closed("over"))
        with pytest.raises(unisono.Uncertain):  # it stays the better answer
            await receipts.wait(5, Stage.STABLE, None)

    asyncio.run(main())


def test_the_new_errors_can_be_pickled() -> None:
    a, b = unisono.MemberId("a"), unisono.MemberId("b")
    uncertain = unisono.Uncertain(unisono.Key(a, 3), (a, b))
    copied = pickle.loads(pickle.dumps(uncertain))
    assert (str(copied), copied.known, copied.message) == (str(uncertain), (a, b), (a, 3))
    flushed = unisono.NotFlushed(a, "g", [unisono.Key(a, 3), unisono.Key(a, 7)], [b])
    assert "2 of its messages (the first is 3, the last 7) may be missing at b" in str(flushed)
    assert pickle.loads(pickle.dumps(flushed)).members == (b,)


# Leaving.


@test()
async def test_leaving_names_the_messages_and_the_members_that_may_lack_them(network: Network) -> None:
    async with trio("fifo") as (a, _, c):
        first = await a.cast(b"everywhere")
        await first.stable()
        network.partition([[A, B], [C]])
        for number in range(3):
            await a.cast(b"%d" % number)
        with pytest.raises(unisono.NotFlushed) as caught:
            await a.leave(timeout=20)
        assert [key.index for key in caught.value.messages] == [1, 2, 3]
        assert caught.value.members == (c.id,), "b came along"
        assert "3 of its messages (the first is 1, the last 3) may be missing at 10.0.0.3:7400" in str(caught.value)


@test()
async def test_leaving_does_not_repeat_the_doubts_of_an_earlier_view(network: Network) -> None:
    async with trio("fifo") as (a, _, _):
        network.partition([[A], [B, C]])
        receipt = await a.cast(b"alone")
        with pytest.raises(unisono.Uncertain):
            await receipt.stable()
        await a.leave()


def test_what_the_application_will_never_see_is_not_applied() -> None:
    """It was delivered to the member, and its state is somewhere else."""

    async def main() -> None:
        receipts = Receipts(asyncio.get_running_loop(), unisono.MemberId("a"))
        receipts.delivered(0, 2)
        receipts.drop(1, 1)
        receipts.applied(0, 1)
        assert [receipts.has(1, stage) for stage in Stage] == [True, False, False]
        assert receipts.has(0, Stage.APPLIED)
        with pytest.raises(unisono.Uncertain):
            await receipts.wait(1, Stage.APPLIED, None)

    asyncio.run(main())


def test_what_state_transfer_skips_is_known_by_the_batch_and_not_by_its_rank() -> None:
    """A batch that was held back may be of an earlier view, where this member had another rank."""
    a, b = unisono.MemberId("a"), unisono.MemberId("b")

    async def main() -> None:
        receipts = Receipts(asyncio.get_running_loop(), b)
        own = OwnMessages(receipts, lambda: (), lambda entered: None, follows_transfer=True)
        early, late = batch(1, 0, b"x"), batch(0, 1, b"y")
        foreign = batch(1, 0, b"z")
        own.note([entered(1, a, b), early, entered(2, b, a), foreign, late])
        own.skipped(foreign, True)
        assert not receipts.has(0, Stage.APPLIED)
        own.skipped(early, True)
        own.skipped(late, False)
        assert receipts.has(0, Stage.APPLIED)
        assert not receipts.has(1, Stage.APPLIED)
        assert not own._held

    asyncio.run(main())


def test_waits_that_were_given_up_are_forgotten() -> None:
    """A program that asks again and again with a short timeout must not grow while nothing moves."""

    async def main(network: Network) -> None:
        async with unisono.join("g", listen=A, peers=ADDRESSES[:2], min_members=1) as group:
            receipts = group.running.receipts
            for _ in range(1_000):
                with pytest.raises(unisono.TimedOut):
                    await receipts.wait(10**9, Stage.STABLE, 0.001)
            assert len(receipts._waiting[Stage.STABLE]) < 200

    in_virtual_time(main, limit=600)
