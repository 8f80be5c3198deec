"""A run as data: who, under which order, with which load, network and faults, from which seed.

A scenario decides everything: running it twice gives the same trace to the byte. It is what the command line builds, what
swarm and shrinker vary, and what a replay file holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from unisono.core.config import MILLISECOND, Config
from unisono.core.errors import Misuse
from unisono.core.types import Service
from unisono.orders.registry import find_order
from unisono.sim.checked import check_number, check_share, check_whole, make, mapping, text, variants
from unisono.sim.delay import SIMPLEST_DELAY, parse_delay
from unisono.sim.faults import Fault, check_fault, read_faults, without_defaults
from unisono.sim.shrink import without_parts

SOURCES = ("periodic", "poisson", "bursts", "saturating")
FAULTS = ("crash", "pause", "drift", "partition", "clog", "slow", "lossy")
"""Those that the simulator of orders plays."""
MEMBERS_MAX = 1_024
MESSAGES_MAX = 10**9


@dataclass(frozen=True, slots=True)
class Source:
    """What the applications cast. Rates are of the whole group, in messages per second."""

    kind: str = "poisson"
    rate: float = 100.0
    messages: int = 1_000
    """How many the whole group casts; then the run ends when everything under way has settled."""
    burst: int = 10
    """`bursts`: messages per burst; bursts come as a Poisson process."""
    depth: int = 8
    """`saturating`: own messages that each member keeps under way, cast no faster than one per mean delay."""
    size_bytes_min: int = 64
    size_bytes_max: int = 64
    causal_share: float = 0.0
    """Share of messages cast with the causal service (orders that carry both)."""
    fifo_share: float = 0.0
    """Share of messages cast with the FIFO service (RMP: semi-reliable)."""
    subset_share: float = 0.0
    """Share of messages addressed to a random subset of the members."""


@dataclass(frozen=True, slots=True)
class Scenario:
    order: str = "sequencer"
    members: int = 3
    seed: int = 1
    source: Source = field(default_factory=Source)
    delay: str = "uniform:0.5ms:2ms"
    loss: float = 0.0
    """Share of packets lost. Below the ordering streams are reliable, so a lost packet arrives late."""
    duplicate: float = 0.0
    reorder: float = 0.0
    """Share of packets that take an extra detour; the stream hands them over in order, so successors wait."""
    retransmit_ns: int = 10 * MILLISECOND
    """After how long a lost packet is sent again; doubles with every try."""
    turn_ns: int = 0
    """How long a member is busy with a turn; what arrives meanwhile is taken in one turn together."""
    detect_ns: int = 20 * MILLISECOND
    """How long after a crash the survivors are told to change the view."""
    flush_ns: int = 2 * MILLISECOND
    """How long a view change takes, from block to install."""
    faults: tuple[Fault, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def settings(self) -> Config:
        return Config.from_mapping(dict(self.config))

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"faults": [without_defaults(fault) for fault in self.faults]}

    @classmethod
    def from_json(cls, data: Any) -> Scenario:
        """Read what `to_json` wrote; anything else is refused with the name of what does not fit."""
        return make(
            cls,
            "a scenario",
            data,
            source=lambda value: make(Source, "source", value),
            faults=read_faults,
            config=lambda value: dict(mapping(value, "config")),
        )

    def smaller(self) -> Iterator[Scenario]:
        """Simpler scenarios, the most radical first. Those that make no sense are left out."""
        return variants(self, self._changes())

    def _changes(self) -> Iterator[dict[str, Any]]:
        messages = self.source.messages
        for fewer in dict.fromkeys((messages // 4, messages // 2, messages - 1)):
            if 1 <= fewer < messages:
                yield {"source": replace(self.source, messages=fewer)}
        yield from ({"faults": some} for some in without_parts(self.faults))
        for fewer in dict.fromkeys((2, self.members // 2, self.members - 1)):
            if 1 <= fewer < self.members:
                yield self._with_members(fewer)
        yield from ({name: 0.0} for name in ("loss", "duplicate", "reorder"))
        yield from ({name: 0} for name in ("turn_ns", "flush_ns"))
        yield {"source": replace(self.source, causal_share=0.0)}
        yield {"source": replace(self.source, fifo_share=0.0)}
        yield {"source": replace(self.source, subset_share=0.0)}
        yield {"source": replace(self.source, size_bytes_min=0, size_bytes_max=0)}
        for name in self.config:
            yield {"config": {other: value for other, value in self.config.items() if other != name}}
        if self.delay != SIMPLEST_DELAY:
            yield from ({"delay": delay} for delay in (SIMPLEST_DELAY, "uniform:0.1ms:3ms"))

    def _with_members(self, members: int) -> dict[str, Any]:
        """Fewer members; faults that name others go, and a threshold that no longer fits."""
        faults: Iterable[Fault | None] = self.faults
        for number in range(members, self.members):
            faults = [fault and fault.without(name_of(number)) for fault in faults]
        config = {name: value for name, value in self.config.items() if name != "phi"}
        return {"members": members, "faults": tuple(filter(None, faults)), "config": config}


def name_of(number: int) -> str:
    """a, b, ... z, then m26, m27, ..."""
    return chr(ord("a") + number) if number < 26 else f"m{number}"


def _check(s: Scenario) -> None:
    order = find_order(s.order)
    check_whole("members", s.members, 1, MEMBERS_MAX)
    check_whole("seed", s.seed, 0, 2**63 - 1)
    parse_delay(text("delay", s.delay))
    check_share("loss", s.loss, 0.95)
    for name in ("duplicate", "reorder"):
        check_share(name, getattr(s, name))
    for name in ("retransmit_ns", "turn_ns", "detect_ns", "flush_ns"):
        check_whole(name, getattr(s, name), 0, 10**15)
    config = s.settings
    if s.members > config.members_max:
        raise Misuse(f"{s.members} members are over the limit members_max = {config.members_max}.")
    if s.order == "toto":
        config.threshold(s.members)
    elif config.phi is not None:
        raise Misuse(f"phi is a setting of toto; {s.order} has none.")
    _check_source(s.source)
    if s.source.causal_share > 0 and Service.CAUSAL not in order.services - {order.service}:
        raise Misuse(
            f"{s.order} does not carry causal messages beside its own: take toto or all-ack, or causal_share 0."
        )
    if s.source.fifo_share > 0 and Service.FIFO not in order.services - {order.service}:
        raise Misuse(f"{s.order} does not carry FIFO messages beside its own: take rmp, or fifo_share 0.")
    if s.source.size_bytes_max > config.payload_bytes_max:
        raise Misuse(
            f"payloads of {s.source.size_bytes_max} bytes are over payload_bytes_max = {config.payload_bytes_max}."
        )
    names = [name_of(number) for number in range(s.members)]
    for fault in s.faults:
        check_fault(fault, FAULTS, names)
    if len({fault.who[0] for fault in s.faults if fault.kind == "crash"}) >= s.members:
        raise Misuse("every member would crash: leave at least one alive.")


def _check_source(source: Source) -> None:
    if source.kind not in SOURCES:
        raise Misuse(f"there is no source {source.kind!r}: choose among {', '.join(SOURCES)}.")
    check_number("rate", source.rate, 1e-6, 1e9)
    check_whole("messages", source.messages, 0, MESSAGES_MAX)
    for name in ("burst", "depth"):
        check_whole(name, getattr(source, name), 1, 10**6)
    check_whole("size_bytes_min", source.size_bytes_min, 0, 2**31 - 1)
    check_whole("size_bytes_max", source.size_bytes_max, source.size_bytes_min, 2**31 - 1)
    for name in ("causal_share", "fifo_share", "subset_share"):
        check_share(name, getattr(source, name))
