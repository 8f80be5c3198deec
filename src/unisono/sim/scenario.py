"""A run as data: who, under which order, with which load, network and faults, from which seed.

A scenario decides everything: running it twice gives the same trace to the byte. It is what the command line builds, what
swarm and shrinker vary, and what a replay file holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from unisono.core.config import MILLISECOND, Config
from unisono.core.errors import Misuse
from unisono.core.types import Service
from unisono.orders.registry import find_order
from unisono.sim.delay import parse_delay
from unisono.sim.files import write_whole

SOURCES = ("periodic", "poisson", "bursts", "saturating")
FAULTS = ("crash", "pause", "drift", "partition", "clog", "slow", "lossy")
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
class Fault:
    """One thing that goes wrong. `who` are the numbers of members, from 0, in the group that starts.

    | kind      | who            | amount                                                            |
    |-----------|----------------|-------------------------------------------------------------------|
    | crash     | one            |                                                                   |
    | pause     | one            |                                                                   |
    | drift     | one            | its clock runs faster by this share (0.1: 10 %)                    |
    | partition | one side of it |                                                                   |
    | clog      | from, to       | nothing passes in this direction until the end                    |
    | slow      | from, to       | delays in this direction are multiplied by this                   |
    | lossy     | from, to       | this share of packets in this direction is lost (and sent again)   |
    """

    kind: str
    at_ns: int
    who: tuple[int, ...]
    duration_ns: int = 0
    amount: float = 0.0


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

    def with_(self, **changes: Any) -> Scenario:
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Scenario:
        """Read what `to_json` wrote; anything else is refused with the name of what does not fit."""
        values = dict(_mapping(data, "a scenario"))
        _known(values, cls, "a scenario")
        if "source" in values:
            source = dict(_mapping(values["source"], "source"))
            _known(source, Source, "source")
            values["source"] = Source(**source)
        values["faults"] = tuple(_fault(fault) for fault in _list(values.get("faults", []), "faults"))
        values["config"] = dict(_mapping(values.get("config", {}), "config"))
        try:
            return cls(**values)
        except TypeError as error:
            raise Misuse(f"the scenario does not fit: {error}.") from None


def save_replay(path: Path, scenario: Scenario, sentence: str) -> None:
    """Write a replay file, whole or not at all."""
    write_whole(
        path, json.dumps({"kind": "scenario", "sentence": sentence, "scenario": scenario.to_json()}, indent=2) + "\n"
    )


# Validation: one clear sentence for each way in which a scenario can be wrong.


def _check(s: Scenario) -> None:
    order = find_order(s.order)
    _whole("members", s.members, 1, MEMBERS_MAX)
    _whole("seed", s.seed, 0, 2**63 - 1)
    parse_delay(_text("delay", s.delay))
    _share("loss", s.loss, 0.95)
    _share("duplicate", s.duplicate, 1.0)
    _share("reorder", s.reorder, 1.0)
    for name in ("retransmit_ns", "turn_ns", "detect_ns", "flush_ns"):
        _whole(name, getattr(s, name), 0, 10**15)
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
    for fault in s.faults:
        _check_fault(fault, s.members)
    if len({fault.who[0] for fault in s.faults if fault.kind == "crash"}) >= s.members:
        raise Misuse("every member would crash: leave at least one alive.")


def _check_source(source: Source) -> None:
    if source.kind not in SOURCES:
        raise Misuse(f"there is no source {source.kind!r}: choose among {', '.join(SOURCES)}.")
    _number("rate", source.rate, 1e-6, 1e9)
    _whole("messages", source.messages, 0, MESSAGES_MAX)
    _whole("burst", source.burst, 1, 10**6)
    _whole("depth", source.depth, 1, 10**6)
    _whole("size_bytes_min", source.size_bytes_min, 0, 2**31 - 1)
    _whole("size_bytes_max", source.size_bytes_max, source.size_bytes_min, 2**31 - 1)
    _share("causal_share", source.causal_share, 1.0)
    _share("fifo_share", source.fifo_share, 1.0)
    _share("subset_share", source.subset_share, 1.0)


def _check_fault(fault: Fault, members: int) -> None:
    if fault.kind not in FAULTS:
        raise Misuse(f"there is no fault {fault.kind!r}: choose among {', '.join(FAULTS)}.")
    needed = {"clog": 2, "slow": 2, "lossy": 2, "partition": None}.get(fault.kind, 1)
    if needed is not None and len(fault.who) != needed:
        raise Misuse(f"the fault {fault.kind} names {needed} member{'s' if needed > 1 else ''}, not {len(fault.who)}.")
    if any(not isinstance(m, int) or not 0 <= m < members for m in fault.who):
        raise Misuse(f"the fault {fault.kind} names members {list(fault.who)}: choose 0 to {members - 1}.")
    _whole(f"at_ns of {fault.kind}", fault.at_ns, 0, 10**15)
    _whole(f"duration_ns of {fault.kind}", fault.duration_ns, 0, 10**15)
    low, high = {"slow": (1.0, 1e6), "lossy": (0.0, 0.95), "drift": (-0.9, 10.0)}.get(fault.kind, (-1e9, 1e9))
    _number(f"amount of {fault.kind}", fault.amount, low, high)


def _fault(data: Any) -> Fault:
    values = dict(_mapping(data, "a fault"))
    _known(values, Fault, "a fault")
    values["who"] = tuple(_list(values.get("who", []), "who"))
    try:
        return Fault(**values)
    except TypeError as error:
        raise Misuse(f"a fault does not fit: {error}.") from None


def _whole(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Misuse(f"{name} must be a whole number, not {value!r}.")
    if not low <= value <= high:
        raise Misuse(f"{name} = {value} is out of range: choose {low} to {high}.")


def _number(name: str, value: Any, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Misuse(f"{name} must be a number, not {value!r}.")
    if not low <= value <= high:
        raise Misuse(f"{name} = {value:g} is out of range: choose {low:g} to {high:g}.")


def _share(name: str, value: Any, high: float) -> None:
    _number(name, value, 0.0, high)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Misuse(f"{name} must be a text, not {value!r}.")
    return value


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Misuse(f"{what} must be an object with names and values, not {type(value).__name__}.")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise Misuse(f"{what} must be a list, not {type(value).__name__}.")
    return list(value)


def _known(values: Mapping[str, Any], cls: type, what: str) -> None:
    known = [f.name for f in fields(cls)]
    for name in values:
        if name not in known:
            raise Misuse(f"{what} has no field {name!r}: choose among {', '.join(known)}.")
