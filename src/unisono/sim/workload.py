"""What the applications do: when each member casts, how much, and to whom.

Every draw is keyed (`lots`): when a member casts by how often it has cast, and the rest by the message, so that what happens to
one member changes nothing about the casts of others.
"""

from __future__ import annotations

from math import log

from unisono.core.config import SECOND
from unisono.core.options import DEFAULT, CastOptions
from unisono.core.types import MemberId, Service
from unisono.sim.lots import MASK, STEP, key_of, number, pick
from unisono.sim.scenario import Scenario, Source, name_of

SIZE, SERVICE, IS_SUBSET, SUBSET, RECIPIENT = (
    key_of(what) for what in ("size", "service", "is subset", "subset", "to")
)
"""What alters the key of a message, so that each of these is decided by a number of its own."""


class Workload:
    """The load of one run."""

    def __init__(self, scenario: Scenario) -> None:
        source = scenario.source
        self.source = source
        self.remaining = source.messages
        self._seed = scenario.seed
        self._gap_ns = scenario.members * SECOND / source.rate  # between two casts of one member, on average
        self._names = [f"{name_of(member)}/".encode() for member in range(scenario.members)]
        self._keys = [key_of(scenario.seed, "cast", member) for member in range(scenario.members)]
        self._is_plain = source.causal_share == source.fifo_share == source.subset_share == 0
        self._filler = bytes(source.size_bytes_max)

    def first_ns(self, member: int) -> int:
        """When a member casts first: a random phase for periodic sources, a first gap for the others."""
        match self.source.kind:
            case "periodic":
                return int(self._draw(member) * self._gap_ns)
            case "saturating":
                return int(self._draw(member) * 1_000)
            case _:
                return self._gap(member)

    def next_ns(self, member: int) -> int | None:
        """How long after this cast the member casts again; None: when own messages are delivered."""
        match self.source.kind:
            case "periodic":
                return int(self._gap_ns)
            case "saturating":
                return None
            case _:
                return self._gap(member)

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

    def message(self, member: int, index: int, members: tuple[MemberId, ...]) -> tuple[bytes, CastOptions]:
        """What a member casts as its message of this index. The payload begins with a name, so that no two are alike."""
        source = self.source
        size = source.size_bytes_min
        if self._is_plain and size == source.size_bytes_max:
            key = 0
        else:
            key = key_of(self._seed, "message", member, index)
            size += pick(key ^ SIZE, source.size_bytes_max - size + 1)
        name = b"%b%d" % (self._names[member], index)
        payload = (name + self._filler)[: max(size, len(name))] if size else b""
        return payload, DEFAULT if self._is_plain else self._options(key, members)

    def _options(self, key: int, members: tuple[MemberId, ...]) -> CastOptions:
        source, service, to = self.source, None, None
        drawn = number(key ^ SERVICE)
        if drawn < source.causal_share:
            service = Service.CAUSAL
        elif drawn < source.causal_share + source.fifo_share:
            service = Service.FIFO
        if number(key ^ IS_SUBSET) < source.subset_share:
            count = 1 + pick(key ^ SUBSET, len(members))
            to = tuple(sorted(members, key=lambda one: number(key ^ RECIPIENT ^ key_of(one)))[:count])
        return CastOptions(to, service) if service or to else DEFAULT

    def _draw(self, member: int) -> float:
        key = self._keys[member] = self._keys[member] + STEP & MASK
        return number(key)

    def _gap(self, member: int) -> int:
        scale = self.source.burst if self.source.kind == "bursts" else 1
        return 1 + int(-log(1.0 - self._draw(member)) * self._gap_ns * scale)


def describe(source: Source) -> str:
    """The load in a few words."""
    match source.kind:
        case "saturating":
            return f"saturating, {source.depth} under way each"
        case "bursts":
            return f"bursts of {source.burst}, {source.rate:g} messages/s"
        case kind:
            return f"{kind}, {source.rate:g} messages/s"
