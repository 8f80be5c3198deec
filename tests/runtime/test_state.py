"""Snapshot, restore and merge, in the order of the stream, through the public interface, in virtual time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import unisono
from tests.runtime.groups import ADDRESSES
from unisono.services.transfer.transfer import Transfer
from unisono.sim import Network, in_virtual_time, test


class Counter:
    """A replicated state: how often each word was said, and in which order."""

    def __init__(self, handles: bool = False) -> None:
        self._handles = handles  # by a plain function, instead of iterating
        self.words: list[str] = []
        self.calls: list[str] = []
        self.group: unisono.Group | None = None
        self.task: asyncio.Task[None] | None = None

    def snapshot(self) -> bytes:
        return json.dumps(self.words).encode()

    def restore(self, state: bytes) -> None:
        self.calls.append("restore")
        self.words = json.loads(state)

    def merge(self, parts: object) -> None:
        self.calls.append("merge")
        assert isinstance(parts, list | tuple)
        self.words = sorted({word for part in parts for word in json.loads(part)})

    async def run(self, address: str, min_members: int, **wishes: Any) -> None:
        self.group = await unisono.join(
            "words",
            listen=address,
            peers=ADDRESSES,
            min_members=min_members,
            snapshot=self.snapshot,
            restore=self.restore,
            merge=self.merge,
            **wishes,
        )
        self.task = asyncio.create_task(self._follow())

    async def follow(self, group: unisono.Group) -> None:
        """Read from a group that was joined without `run`."""
        self.group = group
        await self._follow()

    async def _follow(self) -> None:
        assert self.group is not None
        if self._handles:
            await self.group.each(lambda sender, payload: self._take(unisono.Delivery(sender, payload, 0)), self._take)
            return
        async for event in self.group:
            self._take(event)
            if isinstance(event, unisono.Delivery) and len(self.words) % 7 == 0:
                await asyncio.sleep(0.01)  # an application that is busy with it

    def _take(self, event: unisono.Event) -> None:
        self.calls.append(type(event).__name__)
        if isinstance(event, unisono.Delivery):
            self.words.append(event.payload.decode())

    async def stop(self) -> None:
        assert self.group is not None
        assert self.task is not None
        await self.group.leave()
        await self.task


async def until(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@test(seeds=8, loss=0.05)
async def test_a_joiner_gets_the_state_before_its_first_event() -> None:
    first, second, late = Counter(), Counter(handles=True), Counter(handles=True)
    await asyncio.gather(first.run(ADDRESSES[0], 2), second.run(ADDRESSES[1], 2))
    assert first.group is not None
    for i in range(40):
        await first.group.cast(f"a{i}".encode())
    joining = asyncio.create_task(late.run(ADDRESSES[2], 1))
    for i in range(40, 120):
        await first.group.cast(f"a{i}".encode())
        await asyncio.sleep(0.005)
    await joining
    await until(lambda: all(len(one.words) == 120 for one in (first, second, late)))
    assert late.words == first.words == second.words
    assert late.calls[0] == "restore"
    assert late.calls[1] == "View"
    for one in (late, second, first):
        await one.stop()


@test(seeds=4)
async def test_parts_merge_their_states(network: Network) -> None:
    members = [Counter(handles) for handles in (False, True, True)]
    await asyncio.gather(*(one.run(address, 3) for one, address in zip(members, ADDRESSES, strict=True)))
    network.partition([ADDRESSES[:2], ADDRESSES[2:]])
    groups = [one.group for one in members]
    assert all(group is not None for group in groups)
    await until(lambda: len(groups[2].view.members) == 1 and len(groups[0].view.members) == 2)  # type: ignore[union-attr]
    await groups[0].cast(b"left")  # type: ignore[union-attr]
    await groups[2].cast(b"right")  # type: ignore[union-attr]
    await until(lambda: "right" in members[2].words and "left" in members[1].words)
    network.heal()
    await until(lambda: all("merge" in one.calls for one in members))
    await until(lambda: all(one.words == ["left", "right"] for one in members))
    for one in members:
        await one.stop()


@pytest.mark.seconds
@test(seeds=30)
async def test_joining_ends_when_the_state_is_there_so_no_own_message_is_missed() -> None:
    """A message that is cast before the state has come may be in that state, and is not shown then."""
    members = [Counter(handles) for handles in (True, False, True)]

    async def start(i: int) -> None:
        await asyncio.sleep(0.05 * i)
        await members[i].run(ADDRESSES[i], 1)
        group = members[i].group
        assert group is not None
        await group.cast(f"from {i}".encode())

    await asyncio.gather(*(start(i) for i in range(3)))
    await until(lambda: all(len(one.words) == 3 for one in members))
    for i, one in enumerate(members):
        assert one.calls.count("Delivery") >= 1, f"{i} has not seen its own message: {one.calls}"
    for one in members:
        await one.stop()


def test_half_a_pair_of_hooks_is_refused() -> None:
    with pytest.raises(unisono.Misuse, match="give snapshot and restore"):
        unisono.join("words", snapshot=lambda: b"")


def test_a_hook_that_would_have_to_be_awaited_is_refused() -> None:
    """Found by trying: what an `async def` returned was thrown away, or taken for a state, much later."""

    async def later(*_: object) -> None: ...

    plain: dict[str, Any] = {"snapshot": lambda: b"", "restore": lambda state: None}
    for name in ("snapshot", "restore", "merge", "answer"):
        with pytest.raises(unisono.Misuse, match=f"{name} is an `async def`: give a plain function"):
            unisono.join("g", **(plain | {name: later}))
        with pytest.raises(unisono.Misuse, match=f"{name} is bytes: give a plain function"):
            unisono.join("g", **(plain | {name: b"state"}))


@test(seeds=3)
async def test_a_watchdog_that_barks_before_the_first_view_does_not_keep_the_state_away() -> None:
    """Found by reading: any event that was shown stopped state transfer, and nobody reads while a join is under way."""
    first, second = Counter(), Counter()
    starting = asyncio.create_task(first.run(ADDRESSES[0], 2, watchdog=0.5))
    await asyncio.sleep(2)
    await asyncio.wait_for(second.run(ADDRESSES[1], 2, watchdog=0.5), 20)
    await asyncio.wait_for(starting, 20)
    assert first.group is not None
    await first.group.cast(b"x")
    await until(lambda: first.words == second.words == ["x"])
    assert "Stalled" in first.calls
    await first.stop()
    await second.stop()


@test(seeds=3)
async def test_who_leaves_while_its_application_is_busy_is_still_shown_everything() -> None:
    """Found by reading: what state transfer held back for a slow reader was not shown any more."""
    counter = Counter()
    group = await unisono.join("words", listen=ADDRESSES[0], snapshot=counter.snapshot, restore=counter.restore)
    seen = []

    async def read() -> None:
        async for event in group:
            if isinstance(event, unisono.Delivery):
                seen.append(event.payload)
                await asyncio.sleep(0.3)

    reading = asyncio.create_task(read())
    for i in range(10):
        await group.cast(b"%d" % i)
        await asyncio.sleep(0.01)
    await group.leave()
    await reading
    assert seen == [b"%d" % i for i in range(10)]


@test()
async def test_with_a_state_only_what_came_together_is_ready_together() -> None:
    """To take more would say that the application is done with the rest; and then a snapshot would lack it."""
    counter = Counter()
    hooks = {"snapshot": counter.snapshot, "restore": counter.restore}
    async with unisono.join("words", listen=ADDRESSES[0], **hooks) as group:  # type: ignore[arg-type]
        assert isinstance(await group.next(), unisono.View)
        for i in range(3):
            await (await group.cast(b"%d" % i)).delivered()
        assert [[event.payload for event in group.ready()] for _ in range(4)] == [[b"0"], [b"1"], [b"2"], []]  # type: ignore[union-attr]
    async with unisono.join("plain", listen=ADDRESSES[0]) as group:
        assert isinstance(await group.next(), unisono.View)
        for i in range(3):
            await (await group.cast(b"%d" % i)).delivered()
        assert len(group.ready()) == 3


@test(seeds=2)
async def test_a_state_that_does_not_come_is_told_as_that() -> None:
    """Found by trying: whoever joined two members and read from neither was told that no view was formed."""
    hooks: dict[str, Any] = {"peers": ADDRESSES[:2], "snapshot": lambda: b"", "restore": print}
    async with unisono.join("words", listen=ADDRESSES[0], **hooks) as busy:
        await busy.next()  # and it is at work on it from now on
        with pytest.raises(unisono.TimedOut, match="the state did not come within 5 s"):
            await unisono.join("words", listen=ADDRESSES[1], min_members=2, timeout=5, **hooks)


# Nobody reads yet.


def joining(counter: Counter, address: str, min_members: int = 1) -> unisono.Joining:
    return unisono.join(
        "words",
        listen=address,
        peers=ADDRESSES,
        min_members=min_members,
        snapshot=counter.snapshot,
        restore=counter.restore,
        merge=counter.merge,
    )


@test(seeds=10, loss=0.05)
async def test_members_that_join_together_get_the_state_before_anybody_reads() -> None:
    """They waited for each other for ever, and `explain` was empty: the one with the state waited to be read."""
    counters = [Counter() for _ in ADDRESSES]
    for number, counter in enumerate(counters):
        counter.words = [f"begins with {number}"]
    async with asyncio.timeout(10):
        groups = await asyncio.gather(*(joining(c, a, 3) for c, a in zip(counters, ADDRESSES, strict=True)))
    assert sum(counter.calls == ["restore"] for counter in counters) == 2
    for counter, group in zip(counters, groups, strict=True):
        counter.group, counter.task = group, asyncio.create_task(counter.follow(group))
        await group.cast(b"said")
    await until(lambda: all(len(counter.words) == 4 for counter in counters))
    assert len({tuple(counter.words) for counter in counters}) == 1


@test(seeds=10, loss=0.05)
async def test_members_that_join_one_after_the_other_get_the_state_before_anybody_reads() -> None:
    counters = [Counter() for _ in ADDRESSES]
    counters[0].words = ["begins"]
    async with asyncio.timeout(20):
        groups = [await joining(counter, address) for counter, address in zip(counters, ADDRESSES, strict=True)]
    assert [counter.words for counter in counters] == [["begins"]] * 3
    for counter, group in zip(counters, groups, strict=True):
        counter.group, counter.task = group, asyncio.create_task(counter.follow(group))
    await groups[2].cast(b"said")
    await until(lambda: all(counter.words == ["begins", "said"] for counter in counters))


async def join_behind_an_unread_message() -> tuple[list[str], list[str], list[str]]:
    """What the first member and the late one have in the end; and what was said while the late one had to wait."""
    first, late = Counter(), Counter()
    group = await joining(first, ADDRESSES[0])
    await (await group.cast(b"unread")).delivered()
    wish = joining(late, ADDRESSES[1], 2)
    entering = asyncio.ensure_future(wish)
    await asyncio.sleep(5)
    said = [one for one in (*group.explain(), *wish.explain()) if "no answer from" not in one]
    first.task = asyncio.create_task(first.follow(group))
    async with asyncio.timeout(10):
        other = await entering
    late.task = asyncio.create_task(late.follow(other))
    await other.cast(b"later")
    await until(lambda: "later" in late.words and "later" in first.words)
    return first.words, late.words, said


@test(seeds=5)
async def test_a_message_that_nobody_has_taken_is_not_in_the_state() -> None:
    """And so there is no state to give before it is taken; both sides say whom that waits for."""
    first, late, said = await join_behind_an_unread_message()
    assert first == late == ["unread", "later"]
    assert len(said) == 2, said
    assert "the application of 10.0.0.1:7400#1000000000 has not asked for its next event" in said[0]
    assert "10.0.0.2:7400" in said[0]
    assert "lacks the state of the group" in said[1]
    assert "10.0.0.1:7400#1000000000 has it, and its application must ask for its next event first" in said[1]


def test_a_donor_that_gives_what_was_not_taken_loses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transfer, "_untouched_frontier", lambda self: self._position.frontier)

    async def main(network: Network) -> tuple[list[str], list[str], list[str]]:
        return await join_behind_an_unread_message()

    first, late, _ = in_virtual_time(main)
    assert first == ["unread", "later"]
    assert late == ["later"]


class Holders(Counter):
    """A state that remembers members: who is gone is struck off."""

    def _take(self, event: unisono.Event) -> None:
        super()._take(event)
        if isinstance(event, unisono.View):
            self.words = [word for word in self.words if word not in {one.address for one in event.left}]


@test(seeds=5)
async def test_a_restored_state_is_not_given_on_when_somebody_has_left_whom_it_may_remember(network: Network) -> None:
    """The joiner was never in a view with the one that left, so nothing would tell it to strike that one off."""
    gone, silent, late = Holders(), Holders(), Holders()
    first = await joining(gone, ADDRESSES[0])
    reading = asyncio.create_task(gone.follow(first))
    await first.cast(ADDRESSES[0].encode())
    await until(lambda: gone.words)
    second = await joining(silent, ADDRESSES[1])
    assert silent.words == [ADDRESSES[0]]
    network.crash(first)
    await asyncio.wait([reading])
    await until(lambda: len(second.status()["members"]) == 1)
    wish = joining(late, ADDRESSES[2])
    entering = asyncio.ensure_future(wish)
    await asyncio.sleep(5)
    assert not entering.done()
    assert any("must ask for its next event first" in one for one in wish.explain()), wish.explain()
    silent.task = asyncio.create_task(silent.follow(second))
    async with asyncio.timeout(10):
        await entering
    assert late.words == silent.words == []
