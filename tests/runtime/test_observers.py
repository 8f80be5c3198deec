"""Hooks are the same at all members, and observers join any group, through the public interface, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import pytest

import unisono
from unisono.core.config import SECOND
from unisono.core.member import Aside
from unisono.core.types import MemberId, ViewId
from unisono.services.transfer import messages as wire
from unisono.services.transfer.fetch import StateFetch
from unisono.services.transfer.observer import Decliner
from unisono.services.transfer.settings import TransferSettings
from unisono.sim import Network, in_virtual_time, test

ADDRESSES = [f"10.0.0.{i}:7400" for i in (1, 2, 3, 4)]
NAMES = ("snapshot", "restore", "merge", "answer")
PATIENCE_S = TransferSettings().patience_ns / SECOND


class Keeper:
    """An application with a state: every payload that it was delivered."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.calls: list[str] = []
        self.group: unisono.Group

    def snapshot(self) -> bytes:
        self.calls.append("snapshot")
        return b" ".join(self.payloads)

    def restore(self, state: bytes) -> None:
        self.calls.append("restore")
        self.payloads = state.split()

    def merge(self, states: Any) -> None:
        self.calls.append("merge")
        self.payloads = sorted({payload for state in states for payload in state.split()})

    def answer(self, client: object, payload: bytes) -> bytes:
        return payload

    async def join(self, i: int, *names: str, **wishes: Any) -> Keeper:
        """With the hooks of these names."""
        hooks = {name: getattr(self, name) for name in names}
        self.group = await unisono.join("kept", listen=ADDRESSES[i], peers=ADDRESSES, **hooks, **wishes)
        self.reading = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        async for event in self.group:
            if isinstance(event, unisono.Delivery):
                self.payloads.append(event.payload)


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def leave(*keepers: Keeper) -> None:
    for keeper in keepers:
        await keeper.group.leave()
        await keeper.reading


# Hooks at some members only.


@pytest.mark.parametrize(
    ("group", "joiner", "why"),
    [
        (NAMES[:3], NAMES[:2], "this member has no `merge` hook: give it, or join as an observer."),
        (NAMES[:2], (), "this member has no `snapshot` and `restore` hooks: give them, or join as an observer."),
        (("answer",), (), "this member has no `answer` hook: give it, or join as an observer."),
        (NAMES[:2], NAMES[:3], "this member gives `merge`, the group does not: leave it out"),
        ((), ("answer",), "this member gives `answer`, the group does not: leave it out"),
    ],
)
def test_g5_a_member_with_other_hooks_is_refused_and_told_what_to_do(
    group: tuple[str, ...], joiner: tuple[str, ...], why: str
) -> None:
    async def main(network: Network) -> None:
        first = await Keeper().join(0, *group)
        second = Keeper()
        with pytest.raises(unisono.TimedOut) as refused:
            await second.join(1, *joiner, timeout=5)
        assert why.rstrip(".") in str(refused.value)
        assert first.group.members == (first.group.id,)
        await leave(first)

    in_virtual_time(main, 0)


@test(seeds=5)
async def test_g5_parts_whose_hooks_differ_stay_apart(network: Network) -> None:
    """They began during a partition, so none of them refused the other: what they keep is never mixed."""
    network.partition([ADDRESSES[:1], ADDRESSES[1:]])
    first, second = await asyncio.gather(Keeper().join(0, *NAMES[:3]), Keeper().join(1, *NAMES[:2]))
    await first.group.cast(b"A")
    await second.group.cast(b"B")
    network.heal()
    await asyncio.sleep(5)
    assert (first.payloads, second.payloads) == ([b"A"], [b"B"])
    assert len(first.group.members) == len(second.group.members) == 1
    await leave(first, second)


@test(seeds=2)
async def test_a_setting_that_differs_is_told_by_name() -> None:
    first = await Keeper().join(0, safe=True)
    with pytest.raises(unisono.TimedOut, match="the group uses safe=True, this member safe=False; join with the same"):
        await Keeper().join(1, timeout=5)
    await leave(first)


@test(seeds=2)
async def test_a_joiner_that_hears_only_another_version_is_told_so(network: Network) -> None:
    """What such a member sends cannot be read, so it cannot be refused by name."""
    joining = unisono.join("kept", listen=ADDRESSES[0], peers=ADDRESSES, min_members=2, timeout=3)
    task = asyncio.ensure_future(joining)
    await asyncio.sleep(1)
    running = joining.running
    assert running is not None
    assert not any("version" in sentence for sentence in joining.explain())
    member = running.member
    frames = member._frames
    foreign = b"\1" + frames.control(b"\2\x40" + bytes(50))[1:]
    member.receive([foreign], running.now)
    with pytest.raises(unisono.TimedOut, match="1 messages came in another version of the wire format: run the same"):
        await task


# Observers.


@test(seeds=10, loss=0.05)
async def test_an_observer_is_delivered_everything_and_never_has_a_state() -> None:
    first, second = await asyncio.gather(
        Keeper().join(1, *NAMES[:3], min_members=2), Keeper().join(2, *NAMES[:3], min_members=2)
    )
    observer = await Keeper().join(0, role="observer")
    for i in range(20):
        await (first, second, observer)[i % 3].group.cast(b"%d" % i)
    await until(lambda: len(first.payloads) == len(second.payloads) == len(observer.payloads) == 20)
    assert first.payloads == second.payloads == observer.payloads
    assert observer.calls == []
    await leave(first)
    late = await Keeper().join(3, *NAMES[:3])
    await late.group.cast(b"late")
    await until(lambda: all(len(one.payloads) == 21 for one in (second, observer, late)))
    assert late.payloads == observer.payloads
    assert late.calls == ["restore"]
    assert "snapshot" in second.calls
    await leave(second, observer, late)


async def time_to_join(*others: Callable[[], Awaitable[Keeper]]) -> float:
    """How long a joiner takes to get its state from a group with more observers than members."""
    keepers = [await join() for join in others]
    start = asyncio.get_running_loop().time()
    joiner = await Keeper().join(3, *NAMES[:3])
    lasted = asyncio.get_running_loop().time() - start
    assert joiner.calls == ["restore"]
    await leave(joiner, *keepers)
    return lasted


def crowd() -> Iterator[Callable[[], Awaitable[Keeper]]]:
    yield lambda: Keeper().join(0, role="observer")
    yield lambda: Keeper().join(1, role="observer")
    yield lambda: Keeper().join(2, *NAMES[:3])


@test(seeds=5)
async def test_a_joiner_does_not_wait_for_observers() -> None:
    """They are asked first, as their addresses are the lowest, and decline at once."""
    assert await time_to_join(*crowd()) < PATIENCE_S


def test_a_joiner_would_wait_for_observers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: a member that gets no answer from an observer gets its state late, and never begins with its own."""

    async def main(network: Network) -> None:
        member, observer = await Keeper().join(2, *NAMES[:3]), await Keeper().join(0, role="observer")
        assert await time_to_join() > PATIENCE_S
        await leave(member)
        with pytest.raises(unisono.TimedOut, match="the state did not come"):
            await Keeper().join(3, *NAMES[:3], timeout=20)
        await leave(observer)

    monkeypatch.setattr(Decliner, "take", lambda self, events: False)
    in_virtual_time(main, 0)


@test(seeds=5)
async def test_a_member_begins_with_its_own_state_in_a_group_of_observers() -> None:
    observers = [await Keeper().join(i, role="observer") for i in (0, 1)]
    member = await Keeper().join(2, *NAMES[:3])
    assert member.calls == []
    await member.group.cast(b"x")
    await until(lambda: all(one.payloads == [b"x"] for one in (member, *observers)))
    await leave(member, *observers)


@test(seeds=5)
async def test_a_part_of_observers_alone_has_nothing_to_merge(network: Network) -> None:
    member, other = await asyncio.gather(
        Keeper().join(2, *NAMES[:3], min_members=2), Keeper().join(3, *NAMES[:3], min_members=2)
    )
    observers = [await Keeper().join(i, role="observer") for i in (0, 1)]
    await member.group.cast(b"x")
    await until(lambda: all(one.payloads == [b"x"] for one in (member, other, *observers)))
    network.partition([ADDRESSES[:2], ADDRESSES[2:]])
    await until(lambda: len(member.group.members) == len(observers[0].group.members) == 2)
    await observers[0].group.cast(b"seen-by-observers-only")
    await member.group.cast(b"y")
    await until(lambda: other.payloads == [b"x", b"y"] and len(observers[1].payloads) == 2)
    start = asyncio.get_running_loop().time()
    network.heal()
    await until(lambda: all(len(one.group.members) == 4 for one in (member, other, *observers)))
    await member.group.cast(b"z")
    await until(lambda: all(one.payloads[-1] == b"z" for one in (member, other, *observers)))
    assert asyncio.get_running_loop().time() - start < PATIENCE_S + 3
    assert member.payloads == other.payloads == [b"x", b"y", b"z"]
    assert "merge" not in (*member.calls, *other.calls)
    await leave(member, other, *observers)


@test(seeds=3)
async def test_states_merge_although_observers_are_in_both_parts(network: Network) -> None:
    keepers = await asyncio.gather(
        Keeper().join(0, *NAMES[:3], min_members=2), Keeper().join(2, *NAMES[:3], min_members=2)
    )
    observers = [await Keeper().join(i, role="observer") for i in (1, 3)]
    network.partition([ADDRESSES[:2], ADDRESSES[2:]])
    await until(lambda: all(len(one.group.members) == 2 for one in (*keepers, *observers)))
    for keeper, payload in zip(keepers, (b"left", b"right"), strict=True):
        await keeper.group.cast(payload)
    await until(lambda: [one.payloads for one in keepers] == [[b"left"], [b"right"]])
    network.heal()
    await until(lambda: all(one.payloads == [b"left", b"right"] for one in keepers))
    assert all("merge" in one.calls for one in keepers)
    await leave(*keepers, *observers)


@contextmanager
def settings_seen() -> Iterator[list[Any]]:
    from unisono.runtime.options import JoinOptions

    seen: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        settings_for = JoinOptions.settings_for

        def look(*arguments: Any) -> Any:
            settings = settings_for(*arguments)
            seen.append(settings.membership)
            return settings

        patch.setattr(JoinOptions, "settings_for", look)
        yield seen


def test_the_core_is_told_of_hooks_and_role() -> None:
    async def main(network: Network) -> None:
        for names, role in (((), "member"), (NAMES[:2], "member"), (NAMES, "member"), ((), "observer")):
            await leave(await Keeper().join(0, *names, role=role))

    with settings_seen() as seen:
        in_virtual_time(main, 0)
    assert [(one.has_state, one.has_merge, one.has_answer, one.is_observer) for one in seen] == [
        (False, False, False, False),
        (True, False, False, False),
        (True, True, True, False),
        (False, False, False, True),
    ]


@pytest.mark.parametrize("names", [NAMES[:2], NAMES[:3], ("answer",)])
def test_an_observer_with_hooks_is_refused(names: tuple[str, ...]) -> None:
    hooks: dict[str, Any] = {name: getattr(Keeper(), name) for name in names}
    with pytest.raises(unisono.Misuse) as refused:
        unisono.join("kept", role="observer", **hooks)
    assert str(refused.value) == (
        f"an observer has no state and answers no client, so it cannot have {', '.join(f'`{name}`' for name in names)}: "
        "leave the hooks out, or join with role='member'."
    )


def test_a_role_that_is_none_is_refused() -> None:
    with pytest.raises(unisono.Misuse, match="there is no role 'king': choose member or observer"):
        unisono.join("kept", role="king")


def test_the_facade_has_roles_too() -> None:
    assert signature(unisono.sync.join).parameters["role"].default == "member"


# The answering side.


class Line:
    """Takes what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[MemberId, object]] = []

    def send(self, to: MemberId, data: bytes) -> bool:
        self.sent.append((to, wire.make_transfer_codec().decode(data[1:], 0, 1)))
        return True


A = MemberId("a")
V1 = ViewId(1, A)


def aside(message: wire.Message) -> Aside:
    return Aside(A, wire.TAG + wire.make_transfer_codec().encode(message))


def test_an_observer_declines_every_question_and_nothing_else() -> None:
    line = Line()
    decliner = Decliner(line)
    want = wire.Want(V1, wire.PartKey(V1, V1))
    assert decliner.take([aside(wire.Ask(V1, 3, None)), aside(wire.Ask(V1, 4, want))])
    assert line.sent == [(A, wire.Decline(V1, serial, wire.Why.OBSERVER, False)) for serial in (3, 4)]
    assert not decliner.take(
        [aside(wire.Done(1)), aside(wire.StatePull(V1, 1, 0)), Aside(A, b""), Aside(A, b"T\0"), Aside(A, b"x")]
    )
    assert decliner.declined == 2


def test_an_asker_asks_an_observer_once_a_view_and_says_what_it_heard() -> None:
    fetch = StateFetch(TransferSettings(), None, 0, 0)
    fetch.enter(V1, [A], False, 0)
    for now in range(0, SECOND, SECOND // 10):
        fetch.step(now)
        for _, ask in fetch.out:
            assert isinstance(ask, wire.Ask)
            fetch.take(A, wire.Decline(V1, ask.serial, wire.Why.OBSERVER, False), now)
    assert len(fetch.out) == 1
    assert fetch.explain() == "a is an observer, which has no state"
    assert fetch.is_first(MemberId("z"))
    assert fetch.is_lost
