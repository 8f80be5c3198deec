"""`unisono check-net`: whether all addresses of a group hear each other, before the group depends on it."""

from __future__ import annotations

import asyncio
import socket
import sys
from time import monotonic_ns, time_ns
from typing import Annotated

import typer
from rich.table import Table

from unisono.cli import group_options as o
from unisono.cli.show import err, make_table, out, print_json
from unisono.core.errors import Misuse
from unisono.core.types import MemberId
from unisono.runtime.addresses import Endpoint, NotLocal, PortTaken, bind, resolve, resolve_all, sockaddr_of
from unisono.runtime.loop import run
from unisono.runtime.netcheck import Pair, Prober, judge
from unisono.runtime.seal import SEALED, Seal, find_key
from unisono.runtime.udp import enlarge_buffers
from unisono.sim.units import format_duration, parse_duration

ROUND_S = 0.02
LINGER_S = 0.5
STRANGERS_MAX = 1_000
"""How many addresses are remembered whose probes fail authentication."""
IP_MTU_DISCOVER, IPV6_MTU_DISCOVER, PMTUDISC_DO = 10, 23, 2


def check_net(
    peers: Annotated[
        list[str], typer.Option("--peers", "-p", help="HOST:PORT,HOST:PORT of all members; the same list everywhere.")
    ],
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", "-l", help="This process's address in the list. Default: the first that is local and free."
        ),
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Serve all local addresses of the list in one process.")
    ] = False,
    lasts: Annotated[str, typer.Option("--for", help="How long to measure, once all addresses have answered.")] = "3s",
    wait: Annotated[str, typer.Option(help="How long to wait for the others.")] = "30s",
    key: o.KeyFile = None,
    insecure: o.Insecure = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check ports, loss, datagram sizes and one-way links between all pairs of addresses.

    Start it on every machine with the same list; each process reports on all pairs, as long as it hears at least one other.
    Exit code 1: a pair has a problem. Stop the members first: the check listens on their addresses.
    """
    texts = o.split_list(peers)
    endpoints = resolve_all(texts, "the peer")
    if len(set(endpoints)) < 2:
        raise Misuse("a check needs at least two addresses: name them with --peers.")
    found = find_key(key)
    outside = [one for one in endpoints if not one.is_loopback]
    if outside and found is None and not insecure:
        raise Misuse(
            f"{outside[0]} is not on this machine, and there is no key: pass --key, or --insecure to probe without one."
        )
    sockets = _bind(endpoints, None if listen is None else resolve(listen, "listen", int(endpoints[0].family)), local)
    heard_at = ", ".join(map(str, sockets))
    err.print(f"listening at {heard_at}, waiting up to {wait} for the others", markup=False, soft_wrap=True)
    shut: set[str] = set()
    try:
        pairs = run(_check(sockets, endpoints, found, parse_duration(lasts) / 1e9, parse_duration(wait) / 1e9, shut))
    finally:
        for udp in sockets.values():
            udp.close()
    if json:
        print_json([{"from": one.source, "to": one.target, **_numbers(one)} for one in pairs])
    else:
        out.print(_table(pairs))
    for name in sorted(shut.intersection(map(str, endpoints))):
        text = f"unisono: {name} answers, but its probes fail authentication; does it use a different key, or none?"
        err.print(text, markup=False, soft_wrap=True)
    if not all(one.is_good for one in pairs):
        raise typer.Exit(1)


def _bind(endpoints: list[Endpoint], listen: Endpoint | None, local: bool) -> dict[Endpoint, socket.socket]:
    """Open the sockets of this process. A named address whose port is taken is an error."""
    if listen is not None:
        if listen not in endpoints:
            raise Misuse(f"{listen} is not among --peers: the list must be the same everywhere.")
        return {listen: bind(listen)}
    bound: dict[Endpoint, socket.socket] = {}
    tried = []
    for endpoint in endpoints:
        try:
            bound[endpoint] = bind(endpoint)
        except (PortTaken, NotLocal) as error:
            if local and isinstance(error, PortTaken):
                raise
            tried.append(str(error))
        if bound and not local:
            break
    if not bound:
        raise Misuse(f"no address in --peers can be used on this machine: {tried[0]}")
    return bound


async def _check(
    sockets: dict[Endpoint, socket.socket],
    endpoints: list[Endpoint],
    key: bytes | None,
    lasts_s: float,
    wait_s: float,
    shut: set[str],
) -> list[Pair]:
    """Probe until all are heard and measured. `shut` collects the addresses whose probes fail authentication."""
    loop = asyncio.get_running_loop()
    names = [str(endpoint) for endpoint in endpoints]
    probers = []
    for endpoint, udp in sockets.items():
        prober = Prober(str(endpoint), names, time_ns() // 1_000_000)
        seal = None if key is None else Seal("check-net", MemberId(str(endpoint), time_ns()), key)
        _never_cut(udp, endpoint)
        enlarge_buffers(udp)
        probers.append((prober, udp, seal))
        loop.add_reader(udp.fileno(), _read, prober, udp, seal, shut)
    began, end = loop.time(), None
    try:
        while end is None or loop.time() < end:
            for one in probers:
                _send(*one)
            await asyncio.sleep(ROUND_S)
            if end is None and all(prober.has_heard_all for prober, _, _ in probers):
                end = loop.time() + lasts_s
            elif end is None and loop.time() - began > wait_s:
                break
        pairs = judge([prober for prober, _, _ in probers])
        end = loop.time() + LINGER_S  # keep answering: the others may still measure
        while loop.time() < end:
            for one in probers:
                _send(*one)
            await asyncio.sleep(ROUND_S)
    finally:
        for _, udp, _ in probers:
            loop.remove_reader(udp.fileno())
    return pairs


def _never_cut(udp: socket.socket, endpoint: Endpoint) -> None:
    """Forbid fragmentation: a probe larger than the path's MTU must be lost."""
    if sys.platform == "linux":
        is_v6 = endpoint.family == socket.AF_INET6
        level, option = (socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER) if is_v6 else (socket.IPPROTO_IP, IP_MTU_DISCOVER)
        udp.setsockopt(level, option, PMTUDISC_DO)


def _send(prober: Prober, udp: socket.socket, seal: Seal | None) -> None:
    for peer, datagram in prober.probe(monotonic_ns()):
        try:
            udp.sendto(datagram if seal is None else seal.close(datagram), sockaddr_of(peer))
        except OSError:
            continue  # too large, or no route: the other side counts it as lost


def _read(prober: Prober, udp: socket.socket, seal: Seal | None, shut: set[str]) -> None:
    while True:
        try:
            data, source = udp.recvfrom(65_536)
        except BlockingIOError:
            return
        except OSError:
            continue
        is_foreign = data[:1] == bytes((SEALED,)) if seal is None else False
        datagram = data if seal is None else seal.open(data)
        if datagram is None or is_foreign:
            if len(shut) < STRANGERS_MAX:
                shut.add(str(Endpoint(source[0], source[1])))
        else:
            prober.receive(datagram, monotonic_ns())


def _numbers(one: Pair) -> dict[str, object]:
    return {"verdict": one.verdict, "loss": one.loss, "largest_bytes": one.largest, "rtt_ns": one.rtt_ns}


def _table(pairs: list[Pair]) -> Table:
    columns = ("from", "to", ">loss", ">largest", ">round trip", "verdict")
    rows = (
        (
            one.source,
            one.target,
            "–" if one.loss is None else f"{100 * one.loss:.1f} %",
            "–" if one.largest is None else f"{one.largest:,} B",
            "–" if one.rtt_ns is None else format_duration(one.rtt_ns),
            one.verdict,
        )
        for one in pairs
    )
    return make_table(columns, rows, no_wrap=("from", "to", "loss", "largest", "round trip"))
