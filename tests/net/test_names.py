"""Peers by name, with a real name server in a namespace: names that appear later, change, and have many records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.net.name_server import DOMAIN, add_ipv6, missing_dns, serving_names
from tests.net.namespaces import SETTINGS, missing, run, wired
from tests.net.stage import Process
from unisono.runtime.seal import make_key

pytestmark = pytest.mark.skipif(bool(missing() or missing_dns()), reason=missing() or missing_dns() or "")
KEY = make_key()


def named(*hosts: str, port: int = 7400) -> list[str]:
    return [f"{host}.{DOMAIN}:{port}" for host in hosts]


def are_together(processes: list[Process], addresses: list[str]) -> bool:
    return all(sorted(process.members) == sorted(addresses) for process in processes)


def test_a_peer_is_found_when_its_name_appears_and_again_when_it_has_moved(folder: Path) -> None:
    """A cluster that starts: the first pod knows no name of the others, and one comes back at another address."""
    with wired(folder, 4, key=KEY, trace=None) as (stage, net), serving_names(folder, net, "d") as dns:
        peers = named("alpha", "beta", "gamma")
        # No name is known, not even the own one: only `listen` must be.
        (a,) = stage.start("a", listen="0.0.0.0:7400", advertise=net.address("a"), peers=peers)
        stage.until(lambda: bool(a.id), "a member alone")
        said = stage.ask("a")["peers"]
        assert [one.partition(" ")[0] for one in said] == peers
        assert all("has no address: the name is not known" in one for one in said)

        # The others name nobody: the first one has to find them.
        here = {"alpha": [net.host("a")], "beta": [net.host("b")]}
        (b,) = stage.start("b", listen=net.address("b"), peers=[])
        dns.set(**here)
        stage.until(lambda: are_together([a, b], [net.address("a"), net.address("b")]), "beta is found by its name")
        assert [one.partition(" ")[0] for one in stage.ask("a")["peers"]] == named("gamma"), "its own name is no peer"

        (c,) = stage.start("c", listen=net.address("c"), peers=[])
        dns.set(gamma=[net.host("c")], **here)
        stage.until(lambda: len(a.members) == 3, "gamma is found by its name")
        stage.kill("c")
        run("ip", "-n", net.space("c"), "address", "delete", f"{net.host('c')}/24", "dev", "wire")
        run("ip", "-n", net.space("c"), "address", "add", "10.99.0.77/24", "dev", "wire")
        dns.set(gamma=["10.99.0.77"], **here)
        (c,) = stage.start("c", listen="10.99.0.77:7400", peers=[])
        moved = [net.address("a"), net.address("b"), "10.99.0.77:7400"]
        stage.until(lambda: are_together([a, b, c], moved), "gamma is found at its new address")
        stage.until(lambda: stage.ask("a")["explain"] == [], "nothing is missing any more")
        stage.leave("abc")
    assert not any(SETTINGS.glob(f"{net.space('a')[:-1]}*")), "the test removes what it has put under /etc"


def test_one_name_with_many_records_is_enough_over_both_families(folder: Path) -> None:
    """A headless service: one name, with an A and an AAAA record for every member, the own one among them."""
    with wired(folder, 4, key=KEY, trace=None) as (stage, net), serving_names(folder, net, "d") as dns:
        add_ipv6(net)
        groups: list[tuple[list[Process], list[str]]] = []
        hosts = {"abc"[number]: (net.host("abc"[number]), f"fd99::{number + 1}") for number in range(3)}
        for kind in (0, 1):
            port = 7400 + kind
            addresses = [f"{four}:{port}" if kind == 0 else f"[{six}]:{port}" for four, six in hosts.values()]
            options: dict[str, Any] = {"peers": named("everyone", port=port), "group": f"family {kind}"}
            started = [
                process
                for name, address in zip(hosts, addresses, strict=True)
                for process in stage.start(name, listen=address, **options)
            ]
            groups.append((started, addresses))
        stage.until(lambda: all(process.id for process in stage.all), "six members, each alone")
        dns.set(everyone=[number for numbers in hosts.values() for number in numbers])
        stage.until(
            lambda: all(are_together(started, addresses) for started, addresses in groups),
            "each group of three is one view",
        )
        stage.until(lambda: stage.ask("a")["peers"] == [], "each of them has looked the name up")
