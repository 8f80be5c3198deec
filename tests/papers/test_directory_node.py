"""A manager of the directory on a socket: what strangers send does no harm, and commands get answers."""

from __future__ import annotations

import asyncio
import socket
from random import Random
from typing import Any

import pytest

from tests.runtime.test_group import real
from unisono.core.errors import Misuse
from unisono.core.types import MemberId
from unisono.papers.directory.directory import DirectorySettings
from unisono.papers.directory.node import DirectoryNode, group_address
from unisono.runtime.addresses import Endpoint, bind, bound_endpoint

QUICK = DirectorySettings(probe_ns=10_000_000)
KEY, OTHER_KEY = bytes(32), bytes(31) + b"\1"


class Pair:
    """Two managers on loopback."""

    def __init__(self, keys: tuple[bytes | None, bytes | None] = (None, None)) -> None:
        self.sockets = [bind(Endpoint("127.0.0.1", 0)) for _ in range(2)]
        places = [bound_endpoint(udp) for udp in self.sockets]
        self.nodes = [
            DirectoryNode(udp, MemberId(str(place), 1), places, key, {"board": 17}, QUICK)
            for udp, place, key in zip(self.sockets, places, keys, strict=True)
        ]

    async def __aenter__(self) -> list[DirectoryNode]:
        for node in self.nodes:
            node.open()
        return self.nodes

    async def __aexit__(self, *_: object) -> None:
        for node, udp in zip(self.nodes, self.sockets, strict=True):
            node.close()
            udp.close()


async def claim(node: DirectoryNode, name: str) -> Any:
    outcome = node.answer({"ask": "claim", "name": name})
    async with asyncio.timeout(10):
        while outcome is None:
            await asyncio.sleep(0.001)
            outcome = node.answer({"ask": "outcome", "name": name})
    return outcome


@real
async def test_two_managers_never_both_have_a_name() -> None:
    async with Pair() as (a, b):
        outcomes = await asyncio.gather(*(claim(node, "news") for node in (a, b)))
        assert sum("refused" in outcome for outcome in outcomes) == 1


@real
async def test_what_strangers_send_is_counted_and_does_no_harm() -> None:
    random = Random(1)
    async with Pair() as (a, b):
        probe = b.encode(_probe())
        for _ in range(2_000):
            bad = bytearray(probe)
            bad[random.randrange(len(bad))] ^= 1 << random.randrange(8)
            a.receive(bytes(bad[: random.randrange(len(bad))]))
            a.receive(random.randbytes(random.randrange(64)))
        assert a.refused > 2_000
        assert "refused" not in await claim(a, "news")


def _probe() -> Any:
    from unisono.papers.directory.messages import Probe

    return Probe("nothing of ours", 1)


@real
async def test_a_manager_with_another_key_is_not_heard() -> None:
    async with Pair((KEY, OTHER_KEY)) as (a, b):
        assert "refused" not in await claim(a, "news")
        assert "refused" not in await claim(b, "news")  # a world of its own
        assert b.refused > 0
    async with Pair((KEY, KEY)) as (a, b):
        assert "refused" not in await claim(a, "news")
        assert "refused" in await claim(b, "news")


@real
async def test_commands_are_answered() -> None:
    async with Pair() as (a, _):
        assert (await claim(a, "board"))["address"] == "239.255.0.17"
        assert a.answer({"ask": "permanent"})[0]["name"] == "board"
        claimed = await claim(a, "news")
        assert a.answer({"ask": "lookup", "name": "news"})["number"] == claimed["number"]
        assert a.answer({"ask": "lookup", "name": "news"})["owner"] == str(a.directory.id)
        assert a.answer({"ask": "lookup", "name": "board"})["owner"] is None  # nobody claims a permanent one
        with pytest.raises(Misuse, match="'board' is a permanent group"):
            a.answer({"ask": "release", "name": "board"})
        with pytest.raises(Misuse, match="has claimed 'news' already"):
            a.answer({"ask": "claim", "name": "news"})
        with pytest.raises(Misuse, match="1 to 255 bytes"):
            a.answer({"ask": "claim"})
        with pytest.raises(Misuse, match="does not know the question"):
            a.answer({"ask": "everything"})
        a.answer({"ask": "release", "name": "news"})
        assert a.answer({"ask": "list"}) == []


def test_numbers_of_the_pool_are_addresses() -> None:
    assert [group_address(number) for number in (0, 255, 256, 65_535)] == [
        "239.255.0.0",
        "239.255.0.255",
        "239.255.1.0",
        "239.255.255.255",
    ]
    for number in (0, 300, 65_535):
        assert socket.inet_aton(group_address(number))


class Credulous(DirectoryNode):
    """Believes whoever says that it is a manager."""

    @property
    def _others(self) -> Any:
        return self._everyone

    @_others.setter
    def _others(self, others: list[str]) -> None:
        self._everyone = _Everyone(others)


class _Everyone(list[str]):
    def __contains__(self, address: object) -> bool:
        return True


def test_a_manager_that_believes_strangers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "DirectoryNode", Credulous)
    with pytest.raises(AssertionError):
        test_a_stranger_cannot_object()


@real
async def test_a_stranger_cannot_object() -> None:
    async with Pair() as (a, _):
        from unisono.papers.directory.messages import Announce

        with socket.socket(type=socket.SOCK_DGRAM) as udp:
            stranger = DirectoryNode(udp, MemberId("127.0.0.1:1", 1), [], None, {})
            a.receive(stranger.encode(Announce("news", 5)))
        assert "refused" not in await claim(a, "news")
