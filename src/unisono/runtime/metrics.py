"""A page of metrics for Prometheus: `join(..., metrics="127.0.0.1:9100")`.

The numbers are read when the page is asked for, in the member's own event loop, so they cost nothing between two scrapes. The only
exception is the latency of own casts, from the turn that sends a message to the turn that delivers it here: one
message at a time is followed, which costs two comparisons a turn.

Members are labelled by their addresses, so that a restart makes no new series; `unisono_member_info` has the incarnation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from unisono.core.errors import Misuse
from unisono.core.member import Happening
from unisono.core.types import MemberId
from unisono.runtime.addresses import split

if TYPE_CHECKING:
    from unisono.runtime.running import RunningMember

BUCKETS_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
REQUEST_BYTES_MAX = 16 << 10
REQUEST_WAIT_S = 5.0
"""How long a connection may take, from its first byte to the last one of the answer."""
CONNECTIONS_MAX = 16
PAGE_EVERY_S = 0.1
"""A page is made at most this often; requests in between get the last one."""


class Metrics:
    """The metrics of one member."""

    def __init__(self, member: RunningMember) -> None:
        try:
            from prometheus_client import CollectorRegistry, Histogram
        except ImportError:
            raise Misuse(
                "metrics need the package prometheus-client: install `unisono[metrics]`, or leave metrics out."
            ) from None
        self._member = member
        self._labels = {"group": member.name, "member": member.id.address}
        self.registry = CollectorRegistry(auto_describe=False)
        self._latency = Histogram(
            "unisono_delivery_seconds",
            "From an own cast to its delivery here; sampled, one message at a time.",
            list(self._labels),
            buckets=BUCKETS_S,
            registry=self.registry,
        ).labels(**self._labels)
        self._followed = -1  # the index of the message whose latency is being measured
        self._followed_at = 0
        self._followed_to = 0  # all below this index were cast when it was chosen
        self.registry.register(self)
        member.observers.turn.append(self._turned)

    def _turned(self, events: list[Happening], now: int) -> None:
        if self._followed >= 0:
            if self._member.receipts.delivered_to > self._followed:
                self._latency.observe((now - self._followed_at) / 1e9)
                self._followed = -1
            return
        cast = self._member.member.state.accepted
        if cast > self._followed_to:
            self._followed_to = cast
            if self._member.receipts.delivered_to >= cast:
                self._latency.observe(0.0)  # delivered in the very turn that sent it
            else:
                self._followed, self._followed_at = cast - 1, now

    def collect(self) -> Iterator[Any]:
        """Everything else, read now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        names, values = list(self._labels), list(self._labels.values())
        member = self._member.member
        counters, status = member.counters, self._member.status()

        def counter(name: str, text: str, value: float) -> Any:
            family = CounterMetricFamily(f"unisono_{name}", text, labels=names)
            family.add_metric(values, value)
            return family

        def gauge(name: str, text: str, value: float) -> Any:
            family = GaugeMetricFamily(f"unisono_{name}", text, labels=names)
            family.add_metric(values, value)
            return family

        info = InfoMetricFamily("unisono_member", "Which life of the process this is.", labels=names)
        info.add_metric(values, {"incarnation": str(self._member.id.incarnation)})
        yield info
        yield counter("casts", "Messages cast here.", counters.casts)
        yield counter(
            "casts_refused", "Casts that had to wait or were shed, because there was no room.", counters.casts_refused
        )
        yield counter("deliveries", "Messages delivered here.", counters.deliveries)
        yield counter("views", "Views installed here.", counters.views)
        yield counter("suspicions", "How often a member was suspected here.", counters.suspicions)
        yield counter(
            "divergences",
            "How often members delivered different messages in a view, as this one was told.",
            counters.divergences,
        )
        yield counter("pauses", "How often this process stood still.", counters.pauses)
        yield counter("turns", "Turns taken.", status["turns"])
        for name, value in counters.streams.items():
            yield counter(f"stream_{name}", f"Streams: {name.replace('_', ' ')}.", value)
        yield gauge("members", "Members of the view.", len(status["members"]))
        yield gauge("primary", "Whether the view is the primary one.", float(status["primary"]))
        yield gauge("changing", "Whether a view change is under way.", float(status["changing"]))
        yield gauge("suspects", "Members that are suspected now.", len(status["suspects"]))
        yield gauge("held_back_batches", "Batches received and not yet deliverable.", counters.held_back)
        yield gauge("unfinished_messages", "Messages cast here and not yet delivered here.", counters.unfinished)
        yield gauge("kept_bytes", "Bytes of own packets kept for resending.", counters.kept_bytes)
        yield gauge(
            "queued_batches", "Batches delivered and not yet taken by the application.", status["queued_batches"]
        )
        yield gauge("queued_bytes", "Bytes delivered and not yet taken by the application.", status["queued_bytes"])
        yield self._by_peer("window_use_packets", "Own packets that a peer has not acknowledged.", counters.window_use)
        slowest = member.slowest
        lasted = {} if slowest is None else {slowest.member: slowest.lasted_ns / 1e9}
        yield self._by_peer(
            "slowest_receiver_seconds", "Which receiver keeps the window closed, and for how long.", lasted
        )
        missing = GaugeMetricFamily(
            "unisono_peer_silent_seconds",
            "How long a named peer outside of the view has not answered, and what keeps it away.",
            labels=[*names, "peer", "reason"],
        )
        for report in self._member.peers.missed():
            missing.add_metric([*values, report.peer, report.trouble.value], report.silent_ns / 1e9)
        yield missing
        drops = CounterMetricFamily("unisono_drops", "What was refused or lost, by reason.", labels=[*names, "reason"])
        for reason, count in self._member.count_drops().items():
            drops.add_metric([*values, reason], count)
        yield drops

    def _by_peer(self, name: str, text: str, numbers: Mapping[MemberId, float]) -> Any:
        """A number for each peer, by address: a restart is no new series."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(f"unisono_{name}", text, labels=[*self._labels, "peer"])
        largest: dict[str, float] = {}
        for peer, value in numbers.items():
            largest[peer.address] = max(value, largest.get(peer.address, value))
        for address, value in largest.items():
            family.add_metric([*self._labels.values(), address], value)
        return family

    def page(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self.registry)


class MetricsServer:
    """Answers GET /metrics. It runs in the member's loop, so that what it reads never changes under it.

    The page must not cost the member more than a page is worth. At most `CONNECTIONS_MAX` are open; one more closes the oldest,
    so connections that send nothing do not keep out a scraper, which sends its request at once.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._page = b""
        self._page_until = -1.0
        self.port = 0

    async def open(self, listen: str) -> None:
        host, port = split(listen, "metrics")
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=REQUEST_BYTES_MAX, backlog=CONNECTIONS_MAX
            )
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise Misuse(f"the metrics address {listen} cannot be listened on: {why}. Choose another port.") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        writer.transport.set_write_buffer_limits(0)  # so that `drain` waits until all is sent
        try:
            async with asyncio.timeout(REQUEST_WAIT_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._reply(request.split(b" ", 2)))
                await writer.drain()
                writer.close()
        except (TimeoutError, ValueError, EOFError, asyncio.LimitOverrunError, OSError, asyncio.CancelledError):
            pass  # it is no HTTP request, or the answer is not taken
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()  # `close` alone would wait for a reader that never reads

    def _reply(self, words: list[bytes]) -> bytes:
        from prometheus_client import CONTENT_TYPE_LATEST

        if words[0] not in (b"GET", b"HEAD"):
            status, kind, body = "405 Method Not Allowed", "text/plain", b"only GET is answered here\n"
        elif words[1].partition(b"?")[0] not in (b"/metrics", b"/"):
            status, kind, body = "404 Not Found", "text/plain", b"the metrics are at /metrics\n"
        else:
            status, kind, body = "200 OK", CONTENT_TYPE_LATEST, self._latest_page()
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + (b"" if words[0] == b"HEAD" else body)

    def _latest_page(self) -> bytes:
        now = asyncio.get_running_loop().time()
        if now >= self._page_until:
            self._page = self._metrics.page()
            self._page_until = now + PAGE_EVERY_S
        return self._page

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._open:
            writer.transport.abort()


async def serve(member: RunningMember, listen: str) -> MetricsServer:
    """Publish a member's metrics until it leaves."""
    server = MetricsServer(Metrics(member))
    await server.open(listen)
    member.call_at_end(server.close)
    return server
