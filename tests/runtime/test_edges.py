"""The edges of a group's own interface: hooks that fail, loops that end, sockets that are shared. All found by reading."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import Any

import pytest

import unisono
import unisono.sync
from tests.runtime.ports import free_addresses
from tests.runtime.test_group import gathered, payloads, real
from unisono.runtime import casting
from unisono.runtime.addresses import Endpoint, bind, datagram_bytes
from unisono.runtime.hub import _HUBS, find_hub
from unisono.runtime.udp import UdpSocket


def failing(client: unisono.MemberId, payload: bytes) -> bytes:
    raise ValueError("planted")


async def ask(address: str) -> None:
    """Nobody answers before the application gets there."""
    async with unisono.client("g", contacts=[address], timeout=0.5) as client:
        with pytest.raises(unisono.UnisonoError):
            await client.request(b"?")


@real
async def test_what_lies_before_a_hook_that_fails_is_not_lost() -> None:
    (address,) = free_addresses(1)
    async with unisono.join("g", listen=address, answer=failing) as group:
        for text in (b"a", b"b"):
            await (await group.cast(text)).delivered()
        await ask(address)
        await (await group.cast(b"c")).delivered()
        assert isinstance(group.ready(1)[0], unisono.View)
        first = group.ready()
        assert [event.payload for event in first if isinstance(event, unisono.Delivery)] == [b"a", b"b"]
        with pytest.raises(ValueError, match="planted"):
            group.ready()
        assert await payloads(group, 1) == [b"c"]


def test_what_lies_before_a_hook_that_fails_is_not_lost_without_asyncio() -> None:
    (address,) = free_addresses(1)
    with unisono.sync.join("g", listen=address, answer=failing) as group:
        for text in (b"a", b"b"):
            group.cast(text).delivered(timeout=20)
        asyncio.run(ask(address))
        group.cast(b"c").delivered(timeout=20)
        seen: list[object] = []
        for _ in range(5):
            try:
                event = group.next(timeout=20)
                seen.append(event.payload if isinstance(event, unisono.Delivery) else type(event))
            except ValueError as error:
                seen.append(str(error))
    assert seen == [unisono.View, b"a", b"b", "planted", b"c"]


@real
async def test_casting_without_waiting_goes_on_after_a_turn() -> None:
    """It was refused until somebody awaited room, which a plain function cannot do."""
    async with gathered(1) as (group,):
        payload = bytes(300_000)
        assert group.try_cast(payload) is not None
        assert group.try_cast(payload) is None, "the loop has not run meanwhile"
        for _ in range(3):
            while group.try_cast(payload) is None:
                await asyncio.sleep(0)


@real
async def test_whoever_casts_and_never_reads_is_told_so_by_every_way_of_casting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small messages took a way on which nobody asked."""
    monkeypatch.setattr(casting, "UNREAD_BYTES_MAX", 100_000)
    async with gathered(1) as (group,):

        async def cast_on() -> None:
            for _ in range(1_000):
                await (await group.cast(bytes(1_000))).delivered()

        with pytest.raises(unisono.Misuse, match="bytes of unread events"):
            await cast_on()
        group.ready(10_000)


@real
async def test_what_is_there_comes_without_any_patience() -> None:
    async with gathered(1) as (group,):
        await (await group.cast(b"x")).delivered()
        assert isinstance(await group.next(timeout=0), unisono.View)
        event = await group.next(timeout=0)
        assert isinstance(event, unisono.Delivery)
        with pytest.raises(unisono.TimedOut):
            await group.next(timeout=0)


@real
async def test_of_two_who_switch_at_once_the_other_is_told_what_came_of_it() -> None:
    """It waited for ever."""
    async with gathered(2) as (a, b):
        said = await asyncio.gather(a.switch("rmp"), b.switch("causal"), return_exceptions=True)
        failures = [one for one in said if one is not None]
        assert a.order == b.order
        if len(failures) == 1:
            assert isinstance(failures[0], unisono.Misuse)
            assert f"has the order {a.order} now" in str(failures[0])
        else:
            assert not failures, "one after the other"


def test_a_loop_that_ended_with_a_group_open_gives_its_port_back() -> None:
    """It was kept, with its socket, until the process ended."""
    (address,) = free_addresses(1)

    async def forget() -> None:
        group = await unisono.join("g", listen=address)
        assert len(group.members) == 1

    for _ in range(3):
        asyncio.run(forget())
    assert sum(loop.is_closed() for loop in _HUBS) <= 1
    (other,) = free_addresses(1)

    async def tidy() -> None:
        async with unisono.join("g", listen=other):
            pass

    asyncio.run(tidy())
    assert not any(hubs for loop, hubs in _HUBS.items() if loop.is_closed())


@real
async def test_a_socket_that_somebody_is_about_to_use_is_not_closed() -> None:
    """The other group at its address left while a name was looked up, and the new one was on a closed socket."""
    loop = asyncio.get_running_loop()
    hub = find_hub(loop, Endpoint("127.0.0.1", 0), ())
    hub.open("one", lambda datagrams: None)
    again = find_hub(loop, hub.endpoint, ())
    assert again is hub
    hub.close("one")
    assert hub._udp.fileno() >= 0
    hub.open("two", lambda datagrams: None)
    hub.close("two")
    assert hub._udp.fileno() < 0


@pytest.mark.parametrize("alone", [True, False], ids=["even alone it is too large", "alone it gets through"])
def test_a_path_that_has_become_narrow_takes_datagrams_one_by_one(alone: bool) -> None:
    """A run of segments was lost as a whole, again and again, though each of them could have been cut on its way."""
    receiver, sender = bind(Endpoint("127.0.0.1", 0)), UdpSocket(bind(Endpoint("127.0.0.1", 0)))
    address = f"127.0.0.1:{receiver.getsockname()[1]}"
    udp = sender._udp

    class Narrow:
        close = udp.close

        def sendmsg(self, *arguments: Any) -> None:
            raise OSError(errno.EMSGSIZE, "planted")

        def sendto(self, data: bytes, to: Any) -> None:
            if alone:
                raise OSError(errno.EMSGSIZE, "planted")
            udp.sendto(data, to)

    sender.segments_out = True
    sender._udp = Narrow()  # type: ignore[assignment]
    sender.send([((address,), b"x" * 100)] * 3)
    assert sender.segments_out, "other paths are as wide as before"
    assert sender.lost == ({"EMSGSIZE": 3} if alone else {})
    receiver.setblocking(False)
    assert len([receiver.recv(200) for _ in range(0 if alone else 3)]) == sender.datagrams_out
    sender.close()
    receiver.close()


def test_peers_on_this_machine_say_nothing_of_the_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one peer at the own address in the network, datagrams were as large as the loopback interface takes."""
    from unisono.runtime import addresses

    own, local, remote = (Endpoint("10.0.0.1", port) for port in (1, 2, 3))
    ways = {local.sockaddr: 65_536, remote.sockaddr: 9_000}
    monkeypatch.setattr(addresses, "path_mtu", lambda family, sockaddr: ways[sockaddr])
    assert datagram_bytes(own, [own, local]) == 1_500 - 28
    assert datagram_bytes(own, [local, remote]) == 9_000 - 28
    loopback = Endpoint("127.0.0.1", 1)
    ways[Endpoint("127.0.0.1", 2).sockaddr] = 65_536
    assert datagram_bytes(loopback, [Endpoint("127.0.0.1", 2)]) == 60_000
    assert own.family == socket.AF_INET


def test_a_hook_that_leaves_is_refused_and_somebody_else_can() -> None:
    """The group counted as left, went on, and nobody could end it."""
    (address,) = free_addresses(1)
    said: list[str] = []

    def answer(client: unisono.MemberId, payload: bytes) -> bytes:
        try:
            group.leave()
        except unisono.Misuse as error:
            said.append(str(error))
        return b"bye"

    group = unisono.sync.join("g", listen=address, answer=answer)

    async def request() -> None:
        async with unisono.client("g", contacts=[address], timeout=20) as client:
            await client.request(b"shutdown")

    with group:
        asker = asyncio.new_event_loop()
        waiting = asker.run_in_executor(None, lambda: asyncio.run(request()))
        while not said:
            try:
                group.next(timeout=0.1)
            except unisono.TimedOut:
                continue
        asker.run_until_complete(waiting)
        asker.close()
    assert "cannot wait for the group" in said[0]
    assert group._group.running.driver.is_stopped


def test_a_forked_child_is_told_instead_of_hanging() -> None:
    (address,) = free_addresses(1)
    with unisono.sync.join("g", listen=address) as group:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                group.cast(b"x")
            except unisono.Misuse as error:
                os.write(writer, str(error).encode())
            finally:
                os._exit(0)
        os.close(writer)
        assert b"join anew in the child" in os.read(reader, 1_000)
        os.waitpid(child, 0)
        os.close(reader)
