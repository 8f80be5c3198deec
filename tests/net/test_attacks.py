"""Attacks on running groups by strangers: replays to everyone, redirected boxes, reflection, lives from the future.

The attackers have no key. They see every datagram, send any bytes to anyone, and send what they saw again, to its receiver and to
others, in this life and in the next. Each test judges that the group goes on as before, and that what was sent is counted.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from time import time_ns

import pytest

import unisono
from tests.net.hostile import GROUP, PACE, Besieged, Sent, besieged, live, with_checksum
from tests.runtime.ports import free_addresses
from unisono.core.config import Config
from unisono.core.membership.contacts import Contacts
from unisono.core.membership.tickets import PAIR, QUESTION_PADDING, Tickets
from unisono.core.types import MemberId, ViewId
from unisono.core.wire.control import ControlCodec, Fetch, Hello, Notice, Propose, Pull, Refuse
from unisono.core.wire.frame import Frames
from unisono.runtime.addresses import sockaddr_of
from unisono.runtime.seal import make_key
from unisono.services.client_messages import Request, Wanted, make_client_codec

YEAR_NS = 365 * 24 * 3_600 * 10**9
CAST_SECONDS = 0.5


async def casts_in(siege: Besieged, number: int, seconds: float = CAST_SECONDS) -> int:
    """How many messages one member casts and delivers one after the other, in a time."""
    done, end = 0, asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        await (await siege.groups[number].cast(b"load")).delivered(timeout=60)
        done += 1
    return done


async def pass_by(siege: Besieged, address: str, leaves: bool, key: str | None) -> None:
    """A member comes, and leaves or crashes."""
    size, peers = len(siege.groups), [group.id.address for group in siege.groups]
    group = await unisono.join(GROUP, listen=address, peers=peers, key=key, pace=PACE, min_members=size + 1, timeout=60)
    await (await group.cast(b"hello")).delivered(timeout=60)
    if leaves:
        with suppress(unisono.NotFlushed):
            await group.leave()
    else:
        group.running.close()
    await siege.until(lambda: all(view is not None and len(view.members) == size for view in siege.views), "gone")


@asynccontextmanager
async def wiretap(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[tuple[str, bytes]]]:
    """Everything that any member of this process sends from now on, with its receiver, from the first greeting on."""
    from unisono.runtime.udp import UdpSocket

    seen: list[tuple[str, bytes]] = []
    send = UdpSocket.send

    def tapped(self: UdpSocket, datagrams: object) -> None:
        for to, data in datagrams:  # type: ignore[attr-defined]
            whole = data if isinstance(data, bytes) else b"".join(data)
            seen.extend((address, whole) for address in to)
        send(self, datagrams)  # type: ignore[arg-type]

    monkeypatch.setattr(UdpSocket, "send", tapped)
    yield seen
    monkeypatch.undo()


def sender_of(sealed: bytes) -> str:
    """The sender's address stands readable in the head of a sealed datagram."""
    return sealed[7 + 28 : 7 + sealed[6]].decode()


def counted(siege: Besieged, number: int) -> int:
    """What a member has dropped so far, and the questions that it has answered with as many bytes."""
    tickets: Tickets = siege.groups[number].running.member.tickets
    return sum(siege.refused(number).values()) + tickets.questions


@live
async def test_f20_boxes_of_the_dead_replayed_to_everyone_are_counted_and_stall_nobody() -> None:
    """Greetings of members that came and went made a running group block for each of them in turn."""
    monkeypatch, key = pytest.MonkeyPatch(), make_key()
    try:
        async with wiretap(monkeypatch) as seen, besieged(key=key) as siege:
            dead = free_addresses(4)
            for number, address in enumerate(dead):
                await pass_by(siege, address, number % 2 == 0, key)
            boxes = [data for to, data in seen if sender_of(data) in dead]
            assert len({sender_of(data) for data in boxes}) == len(dead)
            # One member begins a new life: to it, everything is new.
            await siege.groups[0].leave()
            survivors = [group.id.address for group in siege.groups]
            again = await unisono.join(
                GROUP, listen=survivors[0], peers=survivors, key=key, pace=PACE, min_members=3, timeout=60
            )
            siege.replace(0, again)
            await siege.one_view()
            views = list(siege.views)
            calm = attacked = 0
            for _ in range(2):
                calm += await casts_in(siege, 1)
                before = [counted(siege, number) for number in range(3)]
                load = asyncio.create_task(casts_in(siege, 1))
                for number in range(3):
                    await siege.storm(number, boxes)
                attacked += await load
                for number in range(3):
                    assert counted(siege, number) - before[number] == len(boxes), siege.refused(number)
            assert attacked > calm / 2, (calm, attacked)
            assert siege.views == views, "no view changed, and nobody blocked for one"
    finally:
        monkeypatch.undo()


@live
async def test_f20_a_refusal_of_yesterday_keeps_nobody_from_starting_today() -> None:
    """One captured refusal of a dead member, copied to each joiner: no view in 60 s."""
    monkeypatch, key, addresses = pytest.MonkeyPatch(), make_key(), free_addresses(4)
    try:
        async with wiretap(monkeypatch) as seen:
            async with besieged(addresses=addresses, key=key):
                (odd,) = free_addresses(1)
                with pytest.raises(unisono.TimedOut):
                    await unisono.join(
                        GROUP, listen=odd, peers=addresses, key=key, order="causal", min_members=2, timeout=2, pace=PACE
                    )
            boxes = [data for to, data in seen if to == odd]
            assert boxes
    finally:
        monkeypatch.undo()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker:

        async def attack() -> None:
            while True:
                for address in addresses[:3]:
                    for box in boxes[:50]:
                        attacker.sendto(box, sockaddr_of(address))
                await asyncio.sleep(0.02)

        task = asyncio.create_task(attack())
        try:
            async with besieged(addresses=addresses[:3], key=key) as siege:
                await siege.cast_and_agree()
                assert sum(siege.refused(0).values()) > 0
        finally:
            task.cancel()


@live
async def test_f20_a_box_that_is_handed_to_everyone_else_excludes_nobody_but_the_crashed() -> None:
    """A cut that was meant for another member made its second receiver refuse the ballot for good."""
    key = make_key()
    async with besieged(4, key=key) as siege:
        everyone = [group.id.address for group in siege.groups]

        def to_all(sent: Sent) -> list[tuple[tuple[str, ...], bytes]]:
            others = tuple(one for one in everyone if one not in sent.to and one != sent.sender.address)
            return [(others, sent.data), (sent.to, sent.data)]  # the copy comes first

        siege.change = to_all
        await siege.cast(5)
        siege.groups[3].running.close()
        survivors = {group.id for group in siege.groups[:3]}
        views: list[unisono.View] = []

        def settled() -> bool:
            views[:] = [view for view in siege.views[:3] if view is not None]
            return all(set(view.members) == survivors for view in views) and len({view.id for view in views}) == 1

        await siege.until(settled, "the survivors have one view")
        siege.change = None
        for number in range(3):
            refused = siege.refused(number)
            assert refused.get("unproven", 0) + refused.get("unasked", 0) > 0, "each was handed boxes of others"
            failures = [view for view in siege.history[number] if not survivors <= set(view.members)]
            assert not failures, "no survivor was ever left out"
        assert sum(view is not None and len(view.members) == 3 for view in siege.views[:3]) == 3


def forged(me: MemberId, message: tuple[object, ...] | None, shown: int) -> bytes:
    data = QUESTION_PADDING if message is None else ControlCodec(Config()).encode(message)
    return with_checksum(Frames(GROUP, me).control(PAIR.pack(7, shown) + data))


@live
async def test_f11_without_a_key_a_group_sends_an_address_no_more_than_came_in_its_name() -> None:
    """One greeting brought 12 times its bytes to the address named inside, then for ever; Fetch and Pull 2,000 times."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim:
        victim.bind(("127.0.0.1", 0))
        victim.setblocking(False)
        address = f"127.0.0.1:{victim.getsockname()[1]}"
        async with besieged() as siege:
            await siege.cast(30, payload_bytes=10_000)
            await siege.cast_and_agree()
            view = siege.views[0]
            assert view is not None
            me = MemberId(address, 5)
            settings = siege.groups[0].running.member._membership.greeting().settings
            ballot = ViewId(view.number + 50, me)
            named = tuple(f"127.9.{number // 250}.{number % 250}:9" for number in range(3_900))
            messages: list[tuple[object, ...] | None] = [
                None,
                Hello(settings, None, "sequencer", (), me, (), (), False),
                Hello(settings, None, "sequencer", (), me, (), named, False),
                Hello(settings._replace(order="causal"), None, "sequencer", (), me, (), (), False),
                Refuse("no", ballot),
                Notice(ballot, (), (address,), False, ""),
                Propose(ballot, view.id, (me, *view.members)),
                Fetch(ballot, 7, view.id, ((0, 1, 1_000), (1, 1, 1_000))),
                Pull(ballot, 0, 0),
            ]
            sent = received = 0
            for number in range(3):
                for shown in (0, 1):
                    datagrams = [forged(me, message, shown) for message in messages]
                    sent += sum(map(len, datagrams))
                    await siege.storm(number, datagrams)
            for _ in range(3):
                await siege.cast_and_agree()
                await asyncio.sleep(2 * PACE)  # several probes long: nothing may come later either
            with suppress(BlockingIOError):
                while True:
                    received += len(victim.recv(70_000))
            assert 0 < received <= sent, (received, sent)
            assert siege.views[0] == view
            for group in siege.groups:
                known: Contacts = group.running.member._membership._contacts
                assert not known.knows(address), "nothing of a stranger is remembered"


@live
async def test_f11_a_stranger_that_proves_itself_makes_the_group_greet_few_addresses_and_not_for_ever() -> None:
    async with besieged() as siege:
        settings = siege.groups[0].running.member._membership.greeting().settings
        me = MemberId(free_addresses(1)[0], 5)
        named = tuple(f"127.9.{number // 250}.{number % 250}:9" for number in range(3_900))
        for number in range(3):
            hello = Hello(settings, None, "sequencer", (), me, (), named, False)
            await siege.storm(number, [siege.control(me, hello, number)])
        contacts = [group.running.member._membership._contacts for group in siege.groups]
        strangers = set(named)
        assert max(len(strangers.intersection(one.addresses)) for one in contacts) <= 16
        assert any(strangers.intersection(one.addresses) for one in contacts)
        await siege.until(
            lambda: not any(strangers.intersection(one.addresses) for one in contacts), "hearsay expires everywhere"
        )
        await siege.cast_and_agree()


@pytest.mark.parametrize("key", [None, make_key()], ids=["no key", "with a key"])
@live
async def test_f19_a_life_from_the_future_that_receives_nowhere_shuts_nobody_out(key: str | None) -> None:
    """One greeting with a high incarnation at a member's address shut that member out for good, restarts included."""
    from unisono.runtime.checksum import Checksum
    from unisono.runtime.seal import Seal, read_key

    async with besieged(key=key) as siege:
        settings = siege.groups[0].running.member._membership.greeting().settings
        views = list(siege.views)
        for incarnation in (2**64 - 1, time_ns() + YEAR_NS):
            liar = MemberId(siege.groups[2].id.address, incarnation)
            closer = Checksum(GROUP) if key is None else Seal(GROUP, liar, read_key(key, ""))
            hello = ControlCodec(Config()).encode(Hello(settings, None, "sequencer", (), liar, (), (), False))
            for number in (0, 1):
                lie = closer.close(Frames(GROUP, liar).control(PAIR.pack(7, 7) + hello))
                before = siege.refused(number)
                await siege.storm(number, [lie])
                assert set(siege.more(number, before)) <= {"unproven", "frame: incarnation"}
        await siege.cast_and_agree()
        assert siege.views == views


@live
async def test_f19_a_member_whose_clock_was_ahead_once_begins_above_that_and_is_in() -> None:
    """Its address was locked out until the clocks had caught up."""
    monkeypatch, key = pytest.MonkeyPatch(), make_key()
    try:
        async with besieged(2, key=key) as siege:
            peers = [group.id.address for group in siege.groups]
            (address,) = free_addresses(1)
            monkeypatch.setattr("unisono.runtime.machine.time_ns", lambda: time_ns() + YEAR_NS)
            ahead = await unisono.join(
                GROUP, listen=address, peers=peers, key=key, pace=PACE, min_members=3, timeout=60
            )
            await ahead.leave()
            monkeypatch.undo()
            async with unisono.join(
                GROUP, listen=address, peers=peers, key=key, pace=PACE, min_members=3, timeout=60
            ) as group:
                assert group.id.incarnation == ahead.id.incarnation + 1
                await (await group.cast(b"back")).stable(timeout=60)
    finally:
        monkeypatch.undo()


@live
async def test_f19_a_life_that_is_years_ahead_is_not_believed() -> None:
    monkeypatch = pytest.MonkeyPatch()
    try:
        async with besieged(2) as siege:
            peers = [group.id.address for group in siege.groups]
            (address,) = free_addresses(1)
            monkeypatch.setattr("unisono.runtime.machine.time_ns", lambda: time_ns() + 30 * YEAR_NS)
            with pytest.raises(unisono.TimedOut):
                await unisono.join(GROUP, listen=address, peers=peers, pace=PACE, min_members=3, timeout=2)
            monkeypatch.undo()
            assert siege.refused(0)["frame: incarnation"] > 0
            async with unisono.join(GROUP, listen=address, peers=peers, pace=PACE, min_members=3, timeout=60):
                await siege.cast_and_agree()
    finally:
        monkeypatch.undo()


def believes(self: Tickets, sender: MemberId, data: memoryview, now: int) -> memoryview | str:
    """A fault: whatever ticket is shown, the message is read."""
    self._keep(sender.address, PAIR.unpack_from(data)[0])
    return data[PAIR.size :] if bytes(data[PAIR.size :]) != QUESTION_PADDING else ""


@pytest.mark.parametrize(
    "attack",
    [
        test_f20_boxes_of_the_dead_replayed_to_everyone_are_counted_and_stall_nobody,
        test_f11_without_a_key_a_group_sends_an_address_no_more_than_came_in_its_name,
    ],
)
def test_without_tickets_the_attacks_succeed(attack: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tickets, "read", believes)
    monkeypatch.setattr(Tickets, "write", lambda self, address, message, *_: PAIR.pack(1, 1) + message)
    with pytest.raises(AssertionError):
        attack()


@live
async def test_a_group_that_answers_clients_sends_a_forged_client_no_more_than_came_in_its_name() -> None:
    """The token of a contact was no secret: under a forged address, every member's answer went there, 187 times the bytes."""
    codec, (own,) = make_client_codec(), free_addresses(1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim:
        victim.bind(("127.0.0.1", 0))
        victim.setblocking(False)
        address = f"127.0.0.1:{victim.getsockname()[1]}"
        async with besieged(answer=lambda client, payload: bytes(4_000)) as siege:
            async with unisono.client(GROUP, contacts=[siege.groups[0].id.address], listen=own) as client:
                assert await client.request(b"a client that receives is answered") == bytes(4_000)
                known = set(client._client._tokens.values())  # of the stranger itself
            contact = siege.groups[0].id
            digest = blake2b(str(tuple(contact)).encode(), digest_size=8).digest()
            sent = received = 0
            for life, token in enumerate([0, 1, int.from_bytes(digest, "little"), *known]):
                for wanted in Wanted:
                    frame = Frames(GROUP, MemberId(address, 10 * life + wanted)).client(
                        codec.encode(Request(1, 1, wanted, b"", token))
                    )
                    sent += len(with_checksum(frame))
                    await siege.storm(0, [with_checksum(frame)])
            await siege.cast_and_agree()
            with suppress(BlockingIOError):
                while True:
                    received += len(victim.recv(70_000))
            assert 0 < received <= sent, (received, sent)
