"""What an application is promised at a view change, seen through the public interface alone, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import unisono
from unisono.core.membership.membership import Membership
from unisono.core.membership.participant import Participant
from unisono.sim import Network, in_virtual_time

ADDRESSES = [f"10.0.0.{i}:7400" for i in (1, 2, 3)]
JITTER = "uniform:20ms:80ms"
"""Slow enough that much is under way when a member is cut off."""
DIVERGES = ("fifo", 1, 1.421)
"""With this order, member and time, `cut_off_once` lets two members go from one view to a later one with the same members, while
the third has come through a view of its own."""


class Reader:
    """One member and everything that its application was shown."""

    def __init__(self, group: unisono.Group) -> None:
        self.group = group
        self.events: list[unisono.Event] = []
        self.task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            async for event in self.group:
                self.events.append(event)
        except unisono.sim.Crashed:
            return

    def payloads(self) -> list[bytes]:
        return [event.payload for event in self.events if isinstance(event, unisono.Delivery)]

    def stays(self) -> list[tuple[unisono.View, list[unisono.Event]]]:
        """Each view with what was shown before the next one."""
        found: list[tuple[unisono.View, list[unisono.Event]]] = []
        for event in self.events:
            if isinstance(event, unisono.View):
                found.append((event, []))
            elif found:
                found[-1][1].append(event)
        return found


async def join_all(**options: Any) -> list[unisono.Group]:
    joining = (unisono.join("g", listen=one, peers=ADDRESSES, min_members=3, **options) for one in ADDRESSES)
    return list(await asyncio.gather(*joining))


def others(who: int) -> list[str]:
    return [address for i, address in enumerate(ADDRESSES) if i != who]


# Together.


def cut_off_once(order: str, who: int, seconds: float, **options: Any) -> list[Reader]:
    """Everyone casts all the time; one member is cut off once, for about as long as it takes to be suspected."""

    async def main(net: Network) -> list[Reader]:
        groups = await join_all(order=order, **options)
        readers = [Reader(group) for group in groups]
        going = True

        async def cast(i: int) -> None:
            count = 0
            while going:
                await groups[i].cast(b"%d.%d" % (i, count))
                count += 1
                await asyncio.sleep(0.05)

        casters = [asyncio.create_task(cast(i)) for i in range(3)]
        await asyncio.sleep(1)
        net.partition([[ADDRESSES[who]], others(who)])
        await asyncio.sleep(seconds)
        net.heal()
        await asyncio.sleep(8)
        going = False
        await asyncio.gather(*casters)
        await asyncio.sleep(3)
        return readers

    return in_virtual_time(main, seed=f"{seconds:.3f}{who}", limit=600, delay=JITTER)


def assert_the_contract_of_views(readers: Sequence[Reader]) -> None:
    """What P25 says, from the events alone."""
    shown: dict[tuple[Any, Any, unisono.MemberId], tuple[unisono.View, list[bytes]]] = {}
    for reader in readers:
        me = reader.group.id
        first, _ = reader.stays()[0]
        assert first.together == (me,)
        for (view, events), (following, _) in pairwise(reader.stays()):
            transitions = [event for event in events if isinstance(event, unisono.Transition)]
            assert len(transitions) == 1, "exactly one Transition precedes every view but the first"
            assert transitions[0].together == following.together, "a Transition and its view name the same members"
            assert me in following.together
            assert set(following.joined) == set(following.members) - set(following.together)
            assert set(following.left) == set(view.members) - set(following.together)
            delivered = [event.payload for event in events if isinstance(event, unisono.Delivery)]
            shown[view.id, following.id, me] = (following, delivered)
    for (view_id, next_id, me), (view, mine) in shown.items():
        for other in view.together:
            theirs = shown.get((view_id, next_id, other))
            if theirs is not None and me in theirs[0].together:
                assert sorted(mine) == sorted(theirs[1]), f"{me} and {other} differ in view {view_id}"


def test_g1_a_member_that_diverged_has_joined_and_left_with_the_reason() -> None:
    readers = cut_off_once(*DIVERGES)
    assert_the_contract_of_views(readers)
    last = [reader.stays()[-1][0] for reader in readers]
    assert {view.id for view in last} == {last[0].id}
    assert len(last[0].members) == 3
    diverged = [view for view in last if set(view.joined) & set(view.left)]
    assert diverged, "nobody is told that a member of both views delivered other messages"
    for view in diverged:
        for member in set(view.joined) & set(view.left):
            assert str(view.joined[member]) == str(view.left[member])
            assert str(view.joined[member]).startswith(("delivered other messages in view", "came through view"))


# Primary.


class Keeper:
    """A member of a primary group whose application keeps a list of what was delivered."""

    def __init__(self, i: int, folder: Path, **options: Any) -> None:
        self.i, self.folder, self.options = i, folder, options
        self.state: list[str] = []
        self.log: list[Any] = []
        self.group: unisono.Group

    def _restore(self, state: bytes) -> None:
        self.state = json.loads(state)
        self.log.append("restore")

    def _merge(self, states: Sequence[bytes]) -> None:
        self.log.append("merge")
        self.state = sorted({one for state in states for one in json.loads(state)})

    async def start(self) -> Keeper:
        self.group = await unisono.join(
            "g", listen=ADDRESSES[self.i], peers=ADDRESSES, policy="primary", journal=self.folder / str(self.i),
            snapshot=lambda: json.dumps(self.state).encode(), restore=self._restore, **self.options,
        )  # fmt: skip
        self.task = asyncio.get_running_loop().create_task(self._read())
        return self

    async def _read(self) -> None:
        try:
            async for event in self.group:
                if isinstance(event, unisono.Delivery):
                    self.state.append(event.payload.decode())
                self.log.append(event)
        except unisono.sim.Crashed:
            return


def play(folder: Path, story: Callable[[Network, list[Keeper]], Awaitable[None]], **options: Any) -> None:
    """A primary group of three with a state that is in all of them, then the story."""

    async def main(net: Network) -> None:
        keepers = [Keeper(i, folder, **options) for i in range(3)]
        await asyncio.gather(*(keeper.start() for keeper in keepers))
        await asyncio.sleep(3)
        receipt = await keepers[2].group.cast(b"before", safe=True)
        await receipt.stable(timeout=5)
        await asyncio.sleep(0.5)
        assert [keeper.state for keeper in keepers] == [["before"]] * 3
        await story(net, keepers)

    in_virtual_time(main, seed=1, limit=600)


@pytest.mark.parametrize("who", [0, 1, 2])
def test_a_read_only_minority_never_overwrites_the_primary(tmp_path: Path, who: int) -> None:
    async def story(net: Network, keepers: list[Keeper]) -> None:
        net.partition([[ADDRESSES[who]], others(who)])
        await asyncio.sleep(5)
        writer = keepers[(who + 1) % 3]
        for order in ("causal-total", "fifo-total"):  # so that the minority's view has the lower number
            await writer.group.switch(order, timeout=5)
        receipt = await writer.group.cast(b"written in the primary", safe=True)
        await receipt.stable(timeout=5)
        net.heal()
        await asyncio.sleep(8)
        assert [keeper.state for keeper in keepers] == [["before", "written in the primary"]] * 3
        replaced = [event for event in keepers[who].log if isinstance(event, unisono.Replaced)]
        assert len(replaced) == 1, "a member whose state is thrown away is told so"
        assert set(replaced[0].kept_members) == {keepers[i].group.id for i in range(3) if i != who}
        assert not any(isinstance(event, unisono.Replaced) for event in writer.log)

    play(tmp_path, story)


@pytest.mark.parametrize("has_merge", [False, True])
def test_g4_members_that_restarted_empty_do_not_become_primary(tmp_path: Path, has_merge: bool) -> None:
    """The only member that has the state is cut off; the others are a majority, and wait for it."""

    async def story(net: Network, keepers: list[Keeper]) -> None:
        net.partition([ADDRESSES[:2], ADDRESSES[2:]])
        net.crash(keepers[0].group)
        net.crash(keepers[1].group)
        await asyncio.sleep(3)
        options = {"merge": lambda states: pytest.fail("nothing is merged")} if has_merge else {}
        again = await asyncio.gather(*(Keeper(i, tmp_path, **options).start() for i in range(2)))
        await asyncio.sleep(5)
        for keeper in again:
            assert not keeper.group.view.is_primary
            assert keeper.state == []
            said = " ".join(keeper.group.explain())
            assert "no member has the state of view" in said
            assert ADDRESSES[2] in said
        net.heal()
        await asyncio.sleep(8)
        for keeper in (*again, keepers[2]):
            assert keeper.group.view.is_primary
            assert keeper.state == ["before"]
        await again[0].group.cast(b"after")
        await asyncio.sleep(1)
        assert [keeper.state for keeper in (*again, keepers[2])] == [["before", "after"]] * 3

    play(tmp_path, story, **({"merge": lambda states: pytest.fail("nothing is merged")} if has_merge else {}))


def test_a_state_that_is_lost_for_good_is_given_up_by_its_name(tmp_path: Path) -> None:
    async def story(net: Network, keepers: list[Keeper]) -> None:
        for keeper in keepers:
            net.crash(keeper.group)
        await asyncio.sleep(3)
        again = await asyncio.gather(*(Keeper(i, tmp_path, bootstrap=True).start() for i in range(3)))
        await asyncio.sleep(5)
        assert not any(keeper.group.view.is_primary for keeper in again), "bootstrap founds no second history"
        with pytest.raises(unisono.Misuse, match="name that view"):
            await again[1].group.give_up("17@nowhere", timeout=5)
        lost = again[1].group.status()["lost_state"]
        await again[1].group.give_up(lost, timeout=10)
        assert again[1].group.view.is_primary
        await again[2].group.cast(b"anew")
        await asyncio.sleep(2)
        assert [keeper.state for keeper in again] == [["anew"]] * 3
        with pytest.raises(unisono.Misuse, match="lacks no state"):
            await again[1].group.give_up(lost, timeout=5)

    play(tmp_path, story)


def test_a_message_to_some_is_stable_when_all_of_them_are_known_to_have_it() -> None:
    """A member that it is not for is cut off: that leaves no doubt about it, but it does about what is for all."""

    async def main(net: Network) -> None:
        groups = await join_all()
        readers = [Reader(group) for group in groups]
        await asyncio.sleep(0.5)
        net.partition([[ADDRESSES[2]], others(2)])
        some = await groups[0].cast(b"for two", to=[groups[0].id, groups[1].id])
        everyone = await groups[0].cast(b"for all")
        await some.stable(20)
        with pytest.raises(unisono.Uncertain) as caught:
            await everyone.stable(20)
        assert set(caught.value.known) == {groups[0].id, groups[1].id}
        assert b"for two" in readers[1].payloads()

    in_virtual_time(main)


# What a ballot knows of the state.


def test_the_first_primary_begins_though_all_are_busy_with_a_view_before_it(tmp_path: Path) -> None:
    """Each was read-only alone, and has not read on when the others come: one of them begins all the same."""

    async def main(net: Network) -> None:
        net.partition([[address] for address in ADDRESSES])
        joining = (
            unisono.join(
                "g", listen=ADDRESSES[i], peers=ADDRESSES, policy="primary", journal=tmp_path / str(i),
                snapshot=lambda: b"", restore=lambda data: None,
            )
            for i in range(3)
        )  # fmt: skip
        groups = list(await asyncio.gather(*joining))
        assert not any(group.view.is_primary for group in groups)
        net.heal()
        await asyncio.sleep(5)
        readers = [Reader(group) for group in groups]
        await asyncio.sleep(5)
        assert all(group.view.is_primary for group in groups)
        await groups[0].cast(b"m")
        await asyncio.sleep(1)
        assert [reader.payloads() for reader in readers] == [[b"m"]] * 3

    in_virtual_time(main, limit=600)


def test_a_holder_counts_in_a_ballot_that_comes_in_the_turn_of_its_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State transfer tells the member a turn later what is held; that turn may be too late."""

    async def story(net: Network, keepers: list[Keeper]) -> None:
        monkeypatch.setattr(Membership, "hold", lambda self, state: None)  # too late for every ballot
        net.crash(keepers[2].group)
        await asyncio.sleep(5)
        again = await Keeper(2, tmp_path).start()
        await asyncio.sleep(5)
        for keeper in (*keepers[:2], again):
            assert keeper.group.view.is_primary
            assert keeper.state == ["before"]

    play(tmp_path, story)


def test_a_view_that_lacks_a_state_becomes_primary_when_a_member_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(net: Network, keepers: list[Keeper]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Participant, "_held_states", lambda self: ())
            net.crash(keepers[2].group)
            while len(keepers[0].group.members) == 3 or len(keepers[1].group.members) == 3:
                await asyncio.sleep(0.01)
            assert not keepers[0].group.view.is_primary
        await asyncio.sleep(10)
        assert all(keeper.group.view.is_primary and keeper.state == ["before"] for keeper in keepers[:2])

    play(tmp_path, story)
