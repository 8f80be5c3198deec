"""The guide is under test: each of its programs runs as it stands on the page, and prints what the page shows."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.runtime.ports import free_addresses

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "using.md").read_text("utf-8")
PROGRAMS = dict(re.findall(r"<!-- tested: (\w+) -->\n```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE))
SHOWN = dict(re.findall(r"<!-- printed: (\w+) -->\n```\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE))
Scene = Callable[[unisono.sim.Network], Awaitable[None]]


def programs(addresses: list[str] | None = None) -> dict[str, Any]:
    """All programs of the guide, one after the other, as one module; perhaps at other addresses."""
    names: dict[str, Any] = {"__name__": "guide"}
    for code in PROGRAMS.values():
        exec(code, names)
        if addresses is not None:
            names["PEERS"] = addresses
    return names


@pytest.fixture
def guide() -> dict[str, Any]:
    return programs()


def play(scene: Scene) -> None:
    unisono.sim.in_virtual_time(scene)


def test_every_program_of_the_guide_is_tested() -> None:
    assert len(re.findall(r"^```python", GUIDE, re.MULTILINE)) == len(PROGRAMS)
    source = Path(__file__).read_text("utf-8")
    played = {name for test in re.findall(r"^def test_(\w+)\(", source, re.MULTILINE) for name in test.split("_and_")}
    assert PROGRAMS.keys() <= played
    assert not [name for name in SHOWN if f'SHOWN["{name}"]' not in source]


def test_talk(guide: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    async def scene(network: unisono.sim.Network) -> None:
        for address, words in zip(guide["PEERS"], (b"hello", b"good morning"), strict=False):
            network.process(guide["talk"], address, words)
        await asyncio.sleep(3)

    play(scene)
    first = guide["PEERS"][0]
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{first} |")]
    assert lines == SHOWN["talk"].splitlines()


def test_watch_and_order(guide: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    async def scene(network: unisono.sim.Network) -> None:
        peers = guide["PEERS"]
        groups = [unisono.join("g", listen=one, peers=peers, min_members=3) for one in peers]
        a, b, c = await asyncio.gather(*groups)
        said: list[tuple[str, bytes]] = []
        present: list[str] = []
        watching = asyncio.ensure_future(guide["watch"](a, said, present))
        assert await guide["order"](c, b"tea") == "placed"
        network.crash(c)
        await asyncio.sleep(5)
        assert said == [(peers[2], b"tea")]
        assert present == peers[:2]
        network.partition([peers[:1], peers[1:]])
        assert await guide["order"](a, b"coffee") == f"perhaps; known to have it: {peers[0]}"
        network.pause(b, 60)
        await asyncio.sleep(1)
        await a.leave()
        await watching

    play(scene)
    assert capsys.readouterr().out.startswith(SHOWN["watch"])


def test_poll(guide: dict[str, Any]) -> None:
    """The third member joins late; the first is cut off for a while, and votes again in its part."""
    peers = guide["PEERS"]
    polls = [guide["Poll"]() for _ in peers]

    async def scene(network: unisono.sim.Network) -> None:
        for address, poll, choice in zip(peers, polls, (b"tea", b"coffee", b"tea"), strict=True):
            network.process(guide["take_part"], address, poll, choice)
            await asyncio.sleep(3)
        assert all(poll.votes == dict(zip(peers, ("tea", "coffee", "tea"), strict=True)) for poll in polls)
        network.partition([peers[:1], peers[1:]])
        await asyncio.sleep(5)
        network.heal()
        await asyncio.sleep(10)
        assert polls[0].votes == polls[1].votes == polls[2].votes
        assert len(polls[0].votes) == 3

    play(scene)


def test_primary(guide: dict[str, Any], tmp_path: Path) -> None:
    """The first member is cut off before it can write, and is let in later."""
    peers = guide["PEERS"]
    ledgers: list[list[bytes]] = [[] for _ in peers]

    async def scene(network: unisono.sim.Network) -> None:
        network.partition([peers[:1], peers[1:]])
        for address, ledger in zip(peers, ledgers, strict=True):
            network.process(guide["record"], address, tmp_path / address, address.encode(), ledger)
        await asyncio.sleep(8)
        assert ledgers[0] == []
        assert ledgers[1] == ledgers[2]
        assert len(ledgers[1]) == 2
        network.heal()
        await asyncio.sleep(8)
        assert ledgers[0] == [peers[0].encode()]
        assert ledgers[1] == ledgers[2]
        assert ledgers[1][2:] == ledgers[0]

    play(scene)


def test_machines(guide: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Names and `0.0.0.0` mean nothing in virtual time, so its addresses are put in their places."""
    hosts = ["10.0.0.1:7400", "10.0.0.2:7400"]
    code = PROGRAMS["machines"].replace('["h1:7400", "h2:7400", "h3:7400"]', str(hosts))
    assert code != PROGRAMS["machines"]

    async def scene(network: unisono.sim.Network) -> None:
        for host in hosts:
            names: dict[str, Any] = {"unisono": unisono}
            exec(code.replace("0.0.0.0:7400", host), names)
            network.process(names["on_each_machine"], bytes(range(32)))
        await asyncio.sleep(5)

    play(scene)
    assert capsys.readouterr().out == "2 members\n" * 2


def test_silent(guide: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    async def scene(network: unisono.sim.Network) -> None:
        await guide["why"](guide["PEERS"][0])

    play(scene)
    assert capsys.readouterr().out == SHOWN["silent"]


def test_clients() -> None:
    guide = programs(free_addresses(3))

    async def scene() -> None:
        keepers = [asyncio.ensure_future(guide["keep"](address)) for address in guide["PEERS"][:2]]
        async with asyncio.timeout(30):
            answer = None
            while answer is None:  # each keeper begins alone, and has one shelf
                answer = await guide["locate"](b"plotter")
        assert answer == guide["PEERS"][1].encode()
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)

    asyncio.run(scene())


def test_sync() -> None:
    before = threading.active_count()
    guide = programs()
    assert guide["without_asyncio"](free_addresses(1)[0]) == b"hello"
    assert threading.active_count() == before
