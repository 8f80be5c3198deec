"""Metrics, scraped for real."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from unisono import Group, join
from unisono.core.errors import Misuse
from unisono.core.types import MemberId
from unisono.runtime import metrics
from unisono.runtime.metrics import CONNECTIONS_MAX, Metrics, MetricsServer
from unisono.runtime.observers import Observers

pytest.importorskip("prometheus_client")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def fetch(url: str) -> str:
    def get() -> str:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())

    return await asyncio.get_running_loop().run_in_executor(None, get)


def values(page: str) -> dict[str, float]:
    """Sample by name and labels other than group and member."""
    from prometheus_client.parser import text_string_to_metric_families

    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name not in ("group", "member", "le")}
            assert sample.labels["group"] == "lab"
            assert sample.labels["member"].startswith("127.0.0.1:")
            if "le" not in sample.labels:
                found[sample.name + "".join(f" {value}" for value in labels.values())] = sample.value
    return found


def test_a_member_is_scraped() -> None:
    async def main() -> None:
        port = free_port()
        async with join("lab", listen="127.0.0.1:0", metrics=f"127.0.0.1:{port}") as group:
            for _ in range(7):
                receipt = await group.cast(b"x")
            await receipt.delivered(10)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:  # a datagram that nobody can read
                host, _, own = group.id.address.rpartition(":")
                stranger.sendto(b"nonsense", (host, int(own)))
            page = await until(
                f"http://127.0.0.1:{port}/metrics", lambda seen: "unisono_drops_total frame: version" in seen
            )
            assert page["unisono_casts_total"] == 7
            assert page["unisono_deliveries_total"] == 7
            assert page["unisono_views_total"] == 1
            assert page["unisono_members"] == 1
            assert page["unisono_drops_total frame: version"] == 1
            assert page["unisono_delivery_seconds_count"] >= 1
            for name in ("held_back_batches", "stream_resent_total", "queued_bytes", "kept_bytes", "primary"):
                assert f"unisono_{name}" in page

        with pytest.raises(OSError, match="refused"):
            await fetch(f"http://127.0.0.1:{port}/metrics")

    asyncio.run(main())


async def until(url: str, condition: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """Scrape until something is there."""
    async with asyncio.timeout(10):
        while not condition(page := values(await fetch(url))):
            await asyncio.sleep(0)
        return page


def test_peers_are_shown_and_what_is_addressed_to_others_is_no_delivery() -> None:
    """Found by reading: places that a member keeps for messages of others were counted as messages that it got."""

    async def main() -> None:
        page_at = f"127.0.0.1:{free_port()}"
        async with (
            join("lab", listen="127.0.0.1:0", metrics=page_at) as a,
            join("lab", listen="127.0.0.1:0", peers=[a.id.address], min_members=2, pace=0.2) as b,
        ):
            await a.running.until(lambda: len(a.status()["members"]) == 2, 10, "two members")
            await (await b.cast(b"for b alone", to=[b.id])).stable(10)
            await (await b.cast(b"for all")).stable(10)
            await (await a.cast(b"and back")).stable(10)
            page = values(await fetch(f"http://{page_at}/"))
            assert page["unisono_deliveries_total"] == 2
            assert page[f"unisono_window_use_packets {b.id.address}"] == 0
            assert page["unisono_members"] == 2

    asyncio.run(main())


def test_a_restart_makes_no_new_series_but_of_the_info() -> None:
    """Found by reading: the incarnation was part of every label, so each restart began all series anew."""

    def series(page: str, incarnation: int) -> set[str]:
        whole = {line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")}
        assert [one for one in whole if str(incarnation) in one] == [
            f'unisono_member_info{{group="lab",incarnation="{incarnation}",member="{page_of["listen"]}"}}'
        ]
        return {one for one in whole if str(incarnation) not in one and not one.startswith("unisono_drops")}

    async def live() -> set[str]:
        async with join("lab", listen=page_of["listen"], metrics=page_of["metrics"]) as group:
            await (await group.cast(b"x")).delivered(10)
            return series(await fetch(f"http://{page_of['metrics']}/metrics"), group.id.incarnation)

    page_of = {name: f"127.0.0.1:{free_port()}" for name in ("listen", "metrics")}
    assert asyncio.run(live()) == asyncio.run(live())


class Followed:
    """A member of which the metrics see only what is cast and delivered."""

    def __init__(self) -> None:
        self.name, self.id = "lab", MemberId("127.0.0.1:1")
        self.member: Any = self
        self.state: Any = self
        self.receipts: Any = self
        self.accepted = self.delivered_to = 0
        self.observers = Observers()

    def turn(self, now_ms: int) -> None:
        for look in self.observers.turn:
            look([], now_ms * 1_000_000)


def observed(measured: Metrics) -> tuple[int, int]:
    """How many samples, and their sum in microseconds."""
    samples = {sample.name: sample.value for family in measured._latency.collect() for sample in family.samples}
    return int(samples["unisono_delivery_seconds_count"]), round(1e6 * samples["unisono_delivery_seconds_sum"])


def test_latency_is_sampled_one_message_at_a_time() -> None:
    group = Followed()
    measured = Metrics(group)  # type: ignore[arg-type]
    group.accepted = 3
    group.turn(10)  # message 2 is followed
    group.accepted = 9
    group.turn(20)
    group.delivered_to = 2
    group.turn(30)
    assert observed(measured) == (0, 0)
    group.delivered_to = 3
    group.turn(40)
    assert observed(measured) == (1, 30_000)
    group.turn(50)  # now message 8, cast in the meantime
    group.delivered_to = 9
    group.turn(55)
    assert observed(measured) == (2, 35_000)
    group.accepted = group.delivered_to = 10
    group.turn(60)
    assert observed(measured) == (3, 35_000)
    group.turn(70)
    assert observed(measured)[0] == 3


def test_only_get_of_the_page_is_answered() -> None:
    async def say(port: int, data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        if not data.endswith(b"\r\n\r\n"):
            writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    async def main() -> None:
        group: Group
        async with join("lab", listen="127.0.0.1:0") as group:
            server = MetricsServer(Metrics(group.running))
            await server.open("127.0.0.1:0")
            assert (await say(server.port, b"GET /metrics?x HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert (await say(server.port, b"HEAD / HTTP/1.0\r\n\r\n")).endswith(b"\r\n\r\n")
            assert (await say(server.port, b"GET /secrets HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")
            assert (await say(server.port, b"POST /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405")
            assert (await say(server.port, b"nonsense\r\n\r\n")).startswith((b"HTTP/1.1 405", b""))
            assert await say(server.port, b"half a request") == b""
            assert (await say(server.port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
            server.close()

    asyncio.run(main())


def test_an_address_that_is_taken_is_said_and_nothing_stays_open() -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(Misuse, match=f"metrics address {address} cannot be listened on"):
                await join("lab", listen="127.0.0.1:0", metrics=address)

    asyncio.run(main())


class Page:
    """Metrics with a page of a given size, which count how often it is made."""

    def __init__(self, size: int = 3) -> None:
        self.size, self.made = size, 0

    def page(self) -> bytes:
        self.made += 1
        return bytes(self.size)


@contextlib.asynccontextmanager
async def serving(page: Page) -> AsyncIterator[MetricsServer]:
    server = MetricsServer(page)  # type: ignore[arg-type]
    await server.open("127.0.0.1:0")
    try:
        yield server
    finally:
        server.close()
        await asyncio.sleep(0.01)  # its connections end


async def come_true(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has hung up."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_connections_that_send_nothing_neither_pile_up_nor_keep_a_scraper_out() -> None:
    async def main() -> None:
        with contextlib.ExitStack() as stack:
            async with serving(Page()) as server:
                before = descriptors()
                held = []
                for _ in range(5 * CONNECTIONS_MAX):
                    held.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port))))
                    held[-1].sendall(b"GET /metrics HTTP/1.1\r\n")
                    assert len(await fetch(f"http://127.0.0.1:{server.port}/metrics")) == 3
                await come_true(lambda: descriptors() - before <= len(held) + CONNECTIONS_MAX)
                assert all(map(is_closed, held[: -CONNECTIONS_MAX - 1]))  # the oldest made room
                stack.close()
                await come_true(lambda: descriptors() <= before)

    asyncio.run(main())


def test_a_member_goes_on_while_its_page_is_besieged() -> None:
    async def main() -> None:
        port = free_port()
        with contextlib.ExitStack() as stack:
            async with join("lab", listen="127.0.0.1:0", metrics=f"127.0.0.1:{port}") as group:
                before = descriptors()
                for _ in range(10 * CONNECTIONS_MAX):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                    await (await group.cast(b"x")).delivered(10)
                await come_true(lambda: descriptors() - before <= 11 * CONNECTIONS_MAX)

    asyncio.run(main())


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX: ", b"G" * (64 << 10)])
def test_a_request_without_an_end_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REQUEST_WAIT_S", 0.05)

    async def main() -> None:
        async with serving(Page()) as server:
            with socket.create_connection(("127.0.0.1", server.port)) as slow:
                slow.sendall(sent)
                await come_true(lambda: is_closed(slow))

    asyncio.run(main())


def test_a_scraper_that_does_not_read_the_answer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing alone waits until everything is sent, which may be never."""
    monkeypatch.setattr(metrics, "REQUEST_WAIT_S", 0.2)

    async def main() -> None:
        async with serving(Page(64 << 20)) as server:
            before = descriptors()
            with socket.create_connection(("127.0.0.1", server.port)) as deaf:
                deaf.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                await come_true(lambda: descriptors() == before + 2)
                await come_true(lambda: descriptors() == before + 1)

    asyncio.run(main())


def test_pages_are_made_at_most_so_often_however_many_ask() -> None:
    async def main() -> None:
        page = Page()
        async with serving(page) as server:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            for _ in range(50):
                await fetch(f"http://127.0.0.1:{server.port}/metrics")
            assert 1 <= page.made <= 2 + (loop.time() - begun) / metrics.PAGE_EVERY_S

    asyncio.run(main())


def test_without_the_package_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(Misuse, match=r"install `unisono\[metrics\]`"):
        Metrics(Followed())  # type: ignore[arg-type]


# Planted faults.


class FollowsTheFirst(Metrics):
    """Takes a message for delivered as soon as any is."""

    def _turned(self, events: list[Any], now: int) -> None:
        self._followed = min(self._followed, 0)
        super()._turned(events, now)


class RestartsTheClock(Metrics):
    def _turned(self, events: list[Any], now: int) -> None:
        self._followed_at = now
        super()._turned(events, now)


@pytest.mark.parametrize("mutant", [FollowsTheFirst, RestartsTheClock])
def test_a_planted_fault_is_found(mutant: type[Metrics], monkeypatch: pytest.MonkeyPatch) -> None:
    assert metrics.Metrics is Metrics
    monkeypatch.setitem(globals(), "Metrics", mutant)
    with pytest.raises(AssertionError):
        test_latency_is_sampled_one_message_at_a_time()


async def at_once(condition: Callable[[], bool]) -> None:
    assert condition()


def test_a_server_that_lets_everyone_in_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "CONNECTIONS_MAX", 1_000)
    monkeypatch.setitem(globals(), "come_true", at_once)
    with pytest.raises(AssertionError):
        test_connections_that_send_nothing_neither_pile_up_nor_keep_a_scraper_out()
