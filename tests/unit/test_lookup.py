"""Peers by name: not known yet, known later, changed, with many records, and returned by a function."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import unisono
from tests.runtime.ports import free_addresses
from tests.runtime.test_first_contact import until
from tests.runtime.test_group import real
from unisono.core.errors import Misuse
from unisono.core.membership.settings import Policy
from unisono.runtime import peer_search
from unisono.runtime.addresses import Endpoint, outer_host
from unisono.runtime.errors import Unavailable
from unisono.runtime.lookup import FAILURES_MAX, NOT_YET, Lookup, Resolved

getaddrinfo = socket.getaddrinfo


class Names:
    """A name service that the test writes."""

    def __init__(self, **records: list[str]) -> None:
        self.records = records
        self.threads: set[str] = set()
        self.asked: list[str] = []
        self.gate: threading.Event | None = None

    def __call__(self, host: str, port: int, family: int = 0, kind: int = 0, *rest: Any) -> Any:
        if host[:1].isdigit() or ":" in host:
            return getaddrinfo(host, port, family, kind, *rest)
        host.encode("idna")  # as the real one does
        self.threads.add(threading.current_thread().name)
        self.asked.append(host)
        if self.gate is not None:
            self.gate.wait(20)
        found = [
            answer
            for number in self.records.get(host, ())
            for answer in getaddrinfo(number, port, 0, socket.SOCK_DGRAM)
        ]
        found = [answer for answer in found if family in (0, answer[0])]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    service = Names()
    monkeypatch.setattr(socket, "getaddrinfo", service)
    monkeypatch.setattr(peer_search, "SOON_S", 0.05)
    monkeypatch.setattr(peer_search, "RARELY_S", 0.1)
    return service


def look_up(peers: Any) -> Lookup:
    return Lookup(asyncio.get_running_loop(), peers)


@real
async def test_all_records_of_the_socket_s_family_are_found_in_threads(names: Names) -> None:
    names.records = {"many": ["10.0.0.2", "10.0.0.3", "fd00::2", "fd00::3"], "six": ["fd00::4"]}
    for family, hosts in ((socket.AF_INET, ["10.0.0.2", "10.0.0.3"]), (socket.AF_INET6, ["fd00::2", "fd00::3"])):
        lookup = look_up(["many:7400", "six:7400", "none:7400"])
        many, six, none = await lookup.find(family)
        assert [one.host for one in many.endpoints] == hosts
        assert none == Resolved("none:7400", (), "the name is not known")
        if family == socket.AF_INET:
            assert six == Resolved("six:7400", (), "it is not IPv4, as this member's address is")
        lookup.close()
    assert threading.main_thread().name not in names.threads


@real
async def test_without_listen_the_first_number_or_known_name_says_the_family(names: Names) -> None:
    names.records = {"both": ["fd00::2", "10.0.0.2"]}
    for texts, hosts in (
        (["none:1", "both:1"], ["fd00::2"]),
        (["both:1", "10.0.0.9:2"], ["10.0.0.2", "10.0.0.9"]),
    ):
        lookup = look_up(texts)
        assert [one.host for peer in await lookup.find() for one in peer.endpoints] == hosts
        lookup.close()
    lookup = look_up(["10.0.0.9:2", "[fd00::1]:1"])
    with pytest.raises(Misuse, match=r"\[fd00::1\]:1' is of another family .* write all of them as IPv4"):
        await lookup.find()
    lookup = look_up(["a" * 70 + ".x:1"])
    with pytest.raises(Misuse, match="is not known here"):
        await lookup.find()
    lookup.close()


@real
async def test_a_name_server_that_does_not_answer_holds_up_nothing(names: Names) -> None:
    names.gate = threading.Event()
    names.records = {"slow": ["10.0.0.2"]}
    assert names.gate is not None
    lookup = look_up(["slow:1", "10.0.0.3:1"])
    slow, number = await lookup.find(socket.AF_INET, wait_s=0.01)
    assert slow == Resolved("slow:1", (), NOT_YET)
    assert number.endpoints
    await lookup.round(0.01)
    assert names.asked == ["slow"], "it is asked once at a time"
    names.gate.set()
    slow, _ = await lookup.round()
    assert slow.endpoints == (Endpoint("10.0.0.2", 1),)
    lookup.close()


@real
async def test_a_known_name_survives_a_bad_moment_of_the_name_server(names: Names) -> None:
    names.records = {"pod": ["10.0.0.2"]}
    lookup = look_up(["pod:1"])
    (first,) = await lookup.find(socket.AF_INET)
    names.records = {}
    for _ in range(FAILURES_MAX - 1):
        assert await lookup.round() == [first]
    assert await lookup.round() == [Resolved("pod:1", (), "the name is not known")]
    names.records = {"pod": ["10.0.0.7"]}
    (again,) = await lookup.round()
    assert again.endpoints == (Endpoint("10.0.0.7", 1),)
    lookup.close()


@real
async def test_a_function_is_called_again_and_its_failures_are_said(names: Names) -> None:
    returned: list[Any] = [["10.0.0.2:1"], ["10.0.0.3:1"], OSError("no route"), "10.0.0.2:1", [7], ["10.0.0.4:1"]]

    def peers() -> Any:
        assert threading.current_thread() is not threading.main_thread()
        one = returned.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    lookup = look_up(peers)
    assert [one.text for one in await lookup.find(socket.AF_INET)] == ["10.0.0.2:1"]
    assert [one.text for one in await lookup.round()] == ["10.0.0.3:1"]
    for words in ("raised OSError: no route; it is called again", "must be a list of addresses", "is not text"):
        assert [one.text for one in await lookup.round()] == ["10.0.0.3:1"]
        assert words in lookup.problem
    assert [one.text for one in await lookup.round()] == ["10.0.0.4:1"]
    assert lookup.problem == ""
    with pytest.raises(Misuse, match="must be a list of addresses"):
        await look_up(lambda: "10.0.0.2:1").find(socket.AF_INET)


@real
async def test_a_function_may_return_an_awaitable_or_a_generator_that_fails(names: Names) -> None:
    async def fetched() -> list[str]:
        return ["10.0.0.2:1"]

    def generated() -> Any:
        assert threading.current_thread() is not threading.main_thread()
        yield "10.0.0.3:1"
        raise OSError("no route")

    returned: list[Callable[[], Any]] = [fetched, generated, lambda: iter(["10.0.0.4:1"])]
    lookup = look_up(lambda: returned.pop(0)())
    assert [one.text for one in await lookup.find(socket.AF_INET)] == ["10.0.0.2:1"]
    assert [one.text for one in await lookup.round()] == ["10.0.0.2:1"]
    assert "raised OSError: no route; it is called again" in lookup.problem
    assert [one.text for one in await lookup.round()] == ["10.0.0.4:1"]


@real
async def test_a_function_that_does_not_return_holds_up_nothing(names: Names) -> None:
    gate = threading.Event()

    def peers() -> list[str]:
        gate.wait(20)
        return ["10.0.0.2:1"]

    lookup = look_up(peers)
    assert await lookup.find(socket.AF_INET, wait_s=0.01) == []
    assert "has not returned yet" in lookup.problem
    assert await lookup.round(0.01) == []
    gate.set()
    assert [one.text for one in await lookup.round()] == ["10.0.0.2:1"]
    assert lookup.problem == ""
    lookup.close()


HANGING = """
import asyncio, sys, time
import unisono

def peers():
    time.sleep(3_600)

async def main():
    async with unisono.join("g", listen=sys.argv[1], peers=peers, min_members=2, timeout=0.1):
        pass

try:
    asyncio.run(main())
except unisono.TimedOut as error:
    print(error)
"""


@pytest.mark.seconds
def test_a_program_ends_while_its_function_for_peers_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING, *free_addresses(1)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "the function peers has not returned yet" in done.stdout


# In a member.


@real
async def test_a_peer_that_is_not_known_yet_is_found_when_its_name_appears(names: Names) -> None:
    """Found by trying: `Misuse`, so that no member of a StatefulSet or compose file could start before the others."""
    a_at, b_at = free_addresses(2)
    port = b_at.rpartition(":")[2]
    async with unisono.join("g", listen=a_at, peers=[f"beta:{port}"], pace=0.3) as a:
        assert a.explain() == [f"beta:{port} has no address: the name is not known; it is looked up again and again."]
        async with unisono.join("g", listen=b_at, pace=0.3) as b:
            names.records = {"beta": ["127.0.0.1"]}
            await until(lambda: len(a.status()["members"]) == len(b.status()["members"]) == 2, "two members")
            assert a.explain() == []


@real
async def test_one_whose_peers_are_not_known_yet_waits_for_them_as_long_as_for_others(names: Names) -> None:
    joined = await unisono.join("g", listen="127.0.0.1:0", peers=["beta:1"], timeout=20, pace=0.3)
    view = joined.running.member._membership._timing
    assert view._has_seeds, "or it would have founded its group at once"
    await joined.leave()


@real
async def test_peers_may_come_from_a_generator_and_are_not_lost() -> None:
    addresses = free_addresses(2)
    async with (
        unisono.join("g", listen=addresses[0], pace=0.3) as a,
        unisono.join("g", listen=addresses[1], peers=(one for one in addresses), pace=0.3),  # type: ignore[arg-type]
    ):
        await until(lambda: len(a.status()["members"]) == 2, "two members")


@real
async def test_an_own_name_is_not_greeted_and_not_missed(names: Names) -> None:
    names.records = {"self": ["127.0.0.1"], "everyone": ["127.0.0.1"]}
    address = free_addresses(1)[0]
    port = address.rpartition(":")[2]
    async with unisono.join("g", listen=f"self:{port}", peers=[f"self:{port}", f"everyone:{port}"], pace=0.1) as a:
        assert a.running.driver.peers is not None
        assert not a.running.driver.peers.is_watching
        assert a.running.member._membership._contacts.addresses == ()
    everywhere, seen = f"0.0.0.0:{port}", "127.0.0.2:0"
    async with unisono.join("g", listen=everywhere, advertise=seen, peers=[f"self:{port}"], insecure=True) as a:
        assert a.id.address == f"127.0.0.2:{port}"
        assert not a.running.driver.peers.is_watching  # type: ignore[union-attr]


@real
async def test_listen_must_be_known_and_without_it_so_must_a_peer(names: Names) -> None:
    with pytest.raises(Unavailable, match=r"listen 'nowhere:1': the host 'nowhere' is not known here"):
        await unisono.join("g", listen="nowhere:1", peers=["127.0.0.1:1"])
    with pytest.raises(Misuse, match=r"of its peers, x:1, y:2 are not known here, or not yet. Give listen"):
        await unisono.join("g", peers=["x:1", "y:2"])


@real
async def test_without_a_key_a_name_that_leads_outside_is_not_used(names: Names) -> None:
    async with unisono.join("g", listen="127.0.0.1:0", peers=["beta:7400"], pace=0.1) as a:
        names.records = {"beta": ["192.0.2.7"]}
        await until(lambda: "it is at 192.0.2.7, outside of this machine" in str(a.explain()), "it says so")
        assert "192.0.2.7:7400" not in a.running.member._membership._contacts.addresses


@real
async def test_a_function_names_the_peers_of_a_member(names: Names) -> None:
    addresses = free_addresses(3)
    known = addresses[:2]

    async def later() -> list[str]:
        return known

    async with (
        unisono.join("g", listen=addresses[0], peers=lambda: known, pace=0.3) as a,
        unisono.join("g", listen=addresses[1], peers=later, pace=0.3),
    ):
        await until(lambda: len(a.status()["members"]) == 2, "two members")
        async with unisono.join("g", listen=addresses[2], pace=0.3):
            known = addresses
            await until(lambda: len(a.status()["members"]) == 3, "the third is found")
        known = addresses[:1]
        await until(
            lambda: a.running.driver.peers is not None and list(a.running.driver.peers._entries) == known,
            "it is forgotten",
        )


@unisono.sim.test(seeds=3)
async def test_in_virtual_time_names_are_addresses_and_a_function_works_too() -> None:
    known = ["alpha:7400"]
    async with (
        unisono.join("g", listen="alpha:7400", peers=lambda: known) as a,
        unisono.join("g", listen="beta:7400", peers=["alpha:7400"]) as b,
        unisono.join("g", listen="gamma:7400") as c,
    ):
        await a.running.until(lambda: len(a.status()["members"]) == 2, 60, "two")
        known.append("gamma:7400")
        await c.running.until(lambda: len(c.status()["members"]) == 3, 60, "three")
        assert b.status()["peers"] == []


# Under the primary policy.


@real
async def test_the_first_quorum_counts_names_as_soon_as_they_are_known(names: Names, tmp_path: Any) -> None:
    hosts = {"alpha": "127.0.0.1", "beta": "127.0.0.2", "gamma": "127.0.0.3"}
    port = free_addresses(1)[0].rpartition(":")[2]
    peers = [f"{name}:{port}" for name in hosts]
    names.records = {"alpha": ["127.0.0.1"]}
    options: dict[str, Any] = {"peers": peers, "policy": Policy.PRIMARY.value, "pace": 0.3}
    async with unisono.join("g", listen=f"127.0.0.1:{port}", journal=tmp_path / "a", **options) as a:
        assert not a.running.member.state.is_primary
        # The other one finds this one, whose names are not known yet: two of three, of which one counts.
        async with unisono.join("g", listen=f"127.0.0.2:{port}", journal=tmp_path / "b", **options) as b:
            await until(lambda: len(a.status()["members"]) == 2, "two members")
            assert not a.running.member.state.is_primary
            names.records = {"alpha": ["127.0.0.1"], "beta": ["127.0.0.2"]}
            await until(
                lambda: a.running.member.state.is_primary and b.running.member.state.is_primary,
                "two of three are enough",
            )


@real
async def test_a_read_only_member_names_the_missing_peers_by_the_addresses_that_they_have_now(
    names: Names, tmp_path: Any
) -> None:
    port = free_addresses(1)[0].rpartition(":")[2]
    options: dict[str, Any] = {"policy": "primary", "journal": tmp_path, "pace": 0.3}
    peers = [f"{name}:{port}" for name in ("alpha", "beta", "gamma")]
    names.records = {"alpha": ["127.0.0.1"]}
    async with unisono.join("g", listen=f"127.0.0.1:{port}", peers=peers, **options) as a:
        await until(lambda: f"missing: beta:{port}" in str(a.explain()), "what is not known is named as it was written")
        names.records = {"alpha": ["127.0.0.1"], "beta": ["127.0.0.2"]}
        await until(lambda: f"missing: 127.0.0.2:{port}, gamma:{port}" in str(a.explain()), "beta has an address now")


@real
async def test_what_cannot_be_counted_needs_bootstrap_and_says_so(names: Names, tmp_path: Any) -> None:
    names.records = {"many": ["127.0.0.7", "127.0.0.8"]}
    port = free_addresses(1)[0].rpartition(":")[2]
    options: dict[str, Any] = {"listen": f"127.0.0.1:{port}", "policy": "primary", "pace": 0.2}
    cases: list[tuple[Any, str]] = [
        (
            lambda: [f"127.0.0.1:{port}"],
            r"peers is a function, .* needs a member that has joined with bootstrap=True\.",
        ),
        ([f"many:{port}"], r"many:\d+ has 2 addresses and is not counted .* bootstrap=True\."),
    ]
    for number, (peers, words) in enumerate(cases):
        async with unisono.join("g", peers=peers, journal=tmp_path / f"{number}", **options) as a:
            assert not a.running.member.state.is_primary
            assert any(re.match(words, one) for one in a.explain()), a.explain()
        async with unisono.join("g", peers=peers, journal=tmp_path / f"b{number}", bootstrap=True, **options) as a:
            assert a.running.member.state.is_primary
            assert "bootstrap" not in str(a.explain())


def test_the_outer_address_does_not_need_peers_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Misuse, match="say with advertise"):
        outer_host(Endpoint("0.0.0.0", 1), [])
    assert outer_host(Endpoint("0.0.0.0", 1), [Endpoint("127.0.1.1", 1)]) == "127.0.0.1"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 1))
            outer = probe.getsockname()[0]
    except OSError:
        pytest.skip("this machine has no route to the outside")
    assert outer_host(Endpoint("0.0.0.0", 1), [], expects_more=True) == outer
    assert outer_host(Endpoint("0.0.0.0", 1), [Endpoint("127.0.1.1", 1)], expects_more=True) == outer
