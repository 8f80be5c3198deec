"""The stages of a receipt as a program meets them: delivered, applied, stable, and what ends them."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.runtime.ports import free_addresses
from tests.runtime.test_group import gathered, real
from unisono.core.own_casts import Doubt
from unisono.runtime import receipts as receipts_module
from unisono.runtime.receipts import Receipts, Stage
from unisono.sim import Network, in_virtual_time, test
from unisono.trace.recorder import Recorder

A, B, C = PEERS = [f"10.0.0.{i}:7400" for i in (1, 2, 3)]
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
            assert not group._inbox._passed
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
        with pytest.raises(unisono.Misuse, match=f"nobody else has read for {receipts_module.GRACE_S:g} s"):
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


# Doubt.


@asynccontextmanager
async def trio(order: str = "sequencer", **wishes: Any) -> AsyncIterator[list[unisono.Group]]:
    """Three members in virtual time; whoever cannot flush in the end leaves all the same."""
    groups = await asyncio.gather(
        *(unisono.join("g", listen=one, peers=PEERS, min_members=3, order=order, **wishes) for one in PEERS)
    )
    try:
        yield groups
    finally:
        for group in groups:
            with suppress(unisono.UnisonoError):
                await group.leave(timeout=1)


async def a_view_of(group: unisono.Group, size: int) -> None:
    while len(group._installed_view().members) != size:
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
                unisono.join("g", listen=one, peers=PEERS, min_members=3, policy="primary", journal=tmp_path / one)
                for one in PEERS
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
        receipts = Receipts(asyncio.get_running_loop())
        receipts.member = a = unisono.MemberId("a")
        receipts.delivered(0, 4)
        wait = asyncio.ensure_future(receipts.wait(2, Stage.STABLE, None))
        await asyncio.sleep(0)
        receipts.doubt(Doubt(1, 2, (a,)))
        receipts.doubt(Doubt(2, 3, (a,)))
        receipts.settled(4)
        with pytest.raises(unisono.Uncertain, match=r"message 2 of a .* known only at a\."):
            await wait
        assert [receipts.has(index, Stage.STABLE) for index in range(5)] == [True, False, False, True, False]
        assert len(list(receipts._doubts)) == 1, "ranges that meet are one"
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
        for group in (a, b):
            await group.leave()
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


# What is recorded.


class Noting(Recorder):
    """Notes what the application was shown, and told by receipts."""

    def show_batch(self, batch: Any) -> None:
        _said.append((self.member.address, "batch", batch.count))

    def show_transition(self, now_ns: int, together: Iterable[unisono.MemberId], is_primary: bool) -> None:
        _said.append((self.member.address, "transition", len(tuple(together))))

    def show_view(
        self, now_ns: int, view_id: Any, members: Iterable[unisono.MemberId], *rest: Any, **more: Any
    ) -> None:
        _said.append((self.member.address, "view", len(tuple(members))))

    def show_receipt(
        self, now_ns: int, stage: str, first: int, count: int, outcome: str, known: Iterable[unisono.MemberId] = ()
    ) -> None:
        _said.append((self.member.address, "receipt", stage, first, outcome, len(tuple(known))))


_said: list[tuple[object, ...]] = []


@pytest.mark.parametrize("has_state", [False, True])
def test_what_is_shown_is_recorded_as_it_is_put_into_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_state: bool
) -> None:
    monkeypatch.setattr("unisono.runtime.join.Recorder", Noting)
    _said.clear()
    hooks: dict[str, Any] = {"snapshot": lambda: b"", "restore": lambda _: None} if has_state else {}

    async def main(network: Network) -> None:
        reading: list[asyncio.Future[None]] = []

        async def member(address: str) -> unisono.Group:
            group = await unisono.join(
                "g", listen=address, peers=PEERS[:2], order="fifo", min_members=2, trace=tmp_path, **hooks
            )
            reading.append(asyncio.ensure_future(read_events(group, [])))
            return group

        a, b = await asyncio.gather(member(A), member(B))
        receipt = await a.cast(b"x")
        for _ in range(2):
            await receipt.delivered()
            await receipt.applied()
            await receipt.stable()
        network.partition([[A], [B]])
        lonely = await a.cast(b"y")
        for _ in range(2):
            with pytest.raises(unisono.Uncertain):
                await lonely.stable()
        for group in (a, b):
            with suppress(unisono.UnisonoError):
                await group.leave(timeout=1)
        await asyncio.gather(*reading)

    in_virtual_time(main)
    said = [row[1:] for row in _said if row[0] == A]
    rows = [row for row in said if row[0] == "receipt"]
    assert rows == [
        ("receipt", "delivered", 0, "ok", 0),
        ("receipt", "applied", 0, "ok", 0),
        ("receipt", "stable", 0, "ok", 0),
        ("receipt", "stable", 1, "uncertain", 1),
    ]
    events = [row for row in said if row[0] != "receipt"]
    assert events[-5:] in (
        [("batch", 1), ("batch", 1), ("transition", 1), ("view", 1), ("transition", 1)],
        [("view", 2), ("batch", 1), ("batch", 1), ("transition", 1), ("view", 1)],
    )
