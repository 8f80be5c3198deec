"""What the applications do: when each member casts, how much, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from unisono.core.options import DEFAULT, CastOptions
from unisono.core.types import MemberId, Service
from unisono.sim.scenario import Scenario, Source

SECOND = 1_000_000_000


class Workload:
    """The load of one run. Every kind of draw has its own random stream, so changing one leaves the others alone."""

    def __init__(self, scenario: Scenario, stream: Callable[[str], Random]) -> None:
        source = scenario.source
        self.source = source
        self.remaining = source.messages
        self._gap_ns = scenario.members * SECOND / source.rate  # between two casts of one member, on average
        self._times = stream("arrivals")
        self._sizes = stream("sizes")
        self._services = stream("services")
        self._subsets = stream("subsets")
        self._phases = stream("phases")
        self._plain = source.causal_share == source.fifo_share == source.subset_share == 0
        self._filler = bytes(source.size_bytes_max)

    def first_ns(self) -> int:
        """When a member casts first: a random phase for periodic sources, a first gap for the others."""
        match self.source.kind:
            case "periodic":
                return int(self._phases.random() * self._gap_ns)
            case "saturating":
                return int(self._phases.random() * 1_000)
            case _:
                return self._gap()

    def next_ns(self) -> int | None:
        """How long after this cast the member casts again; None: when own messages are delivered."""
        match self.source.kind:
            case "periodic":
                return int(self._gap_ns)
            case "saturating":
                return None
            case _:
                return self._gap()

    def count(self, unfinished: int) -> int:
        """How many messages a member casts at this moment, given how many of its own are under way."""
        match self.source.kind:
            case "bursts":
                wanted = self.source.burst
            case "saturating":
                wanted = max(0, self.source.depth - unfinished)
            case _:
                wanted = 1
        wanted = min(wanted, self.remaining)
        self.remaining -= wanted
        return wanted

    def payload(self, name: str) -> bytes:
        """Bytes of the wanted size that begin with the message's name, so that no two messages are alike."""
        source = self.source
        size = source.size_bytes_min
        if source.size_bytes_max > size:
            size = self._sizes.randint(size, source.size_bytes_max)
        text = name.encode()
        return (text + self._filler)[: max(size, len(text))] if size else b""

    def options(self, members: tuple[MemberId, ...]) -> CastOptions:
        if self._plain:
            return DEFAULT
        service, to = None, None
        if self.source.causal_share and self._services.random() < self.source.causal_share:
            service = Service.CAUSAL
        elif self.source.fifo_share and self._services.random() < self.source.fifo_share:
            service = Service.FIFO
        if self.source.subset_share and self._subsets.random() < self.source.subset_share:
            count = self._subsets.randint(1, len(members))
            to = tuple(self._subsets.sample(members, count))
        return CastOptions(to, service) if service or to else DEFAULT

    def _gap(self) -> int:
        scale = self.source.burst if self.source.kind == "bursts" else 1
        return 1 + int(self._times.expovariate(1.0) * self._gap_ns * scale)


def describe(source: Source) -> str:
    """The load in a few words."""
    match source.kind:
        case "saturating":
            return f"saturating, {source.depth} under way each"
        case "bursts":
            return f"bursts of {source.burst}, {source.rate:g} messages/s"
        case kind:
            return f"{kind}, {source.rate:g} messages/s"
