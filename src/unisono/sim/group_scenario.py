"""A run of a whole group as data: its members, what they cast, and what goes wrong, each with its time and by address.

Like a scenario of orders it decides everything: it is what the swarm draws, the shrinker makes smaller and a replay file holds.
What members draw themselves, and what becomes of each datagram, follows from `order` and `seed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from unisono.core.config import MILLISECOND, SECOND, Config
from unisono.core.errors import Misuse
from unisono.core.types import Service
from unisono.orders.registry import find_order
from unisono.sim.checked import check_flag, check_share, check_whole, items, make, mapping, text, variants
from unisono.sim.delay import SIMPLEST_DELAY, parse_delay
from unisono.sim.faults import FAULTS, Fault, check_event, check_fault, names, read_faults, without_defaults
from unisono.sim.shrink import without_parts

MEMBERS_MAX = 64
DURATION_NS_MAX = 1_000 * SECOND
COLLECTED = ("star", "ring")
EVENTS = ("casts", "checks", "faults")


@dataclass(frozen=True, slots=True)
class PlannedCast:
    """A member casts a message, unless it is not up or not in a view."""

    at_ns: int
    who: str
    size_bytes: int = 0
    """The payload is at least its own name long."""
    to: tuple[str, ...] = ()
    """Addresses of recipients; none: all."""
    is_safe: bool = False
    is_causal: bool = False
    """Cast with the causal service (orders that carry both)."""
    is_awaited: bool = False
    """The application waits for its receipt."""


@dataclass(frozen=True, slots=True)
class PlannedCheck:
    """A member compares what all have delivered."""

    at_ns: int
    who: str


@dataclass(frozen=True, slots=True)
class GroupScenario:
    order: str
    seed: int
    members: Mapping[str, int]
    """Addresses of those that start by themselves, with the time in ns."""
    duration_ns: int = SECOND
    """After this, and 0.3 s, all faults end, and everything must come to rest."""
    delay: str = "uniform:0.2ms:2ms"
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    replay: float = 0.0
    """The share of datagrams beside which an old one of the same link comes again."""
    collect: str = "star"
    """How the reports of a view change travel."""
    is_primary: bool = False
    """Only a primary view may cast, and a primary needs a majority of `members`."""
    has_state: bool = False
    can_merge: bool = False
    casts: tuple[PlannedCast, ...] = ()
    checks: tuple[PlannedCheck, ...] = ()
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        _check(self)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {name: [without_defaults(one) for one in getattr(self, name)] for name in EVENTS}

    @classmethod
    def from_json(cls, data: Any) -> GroupScenario:
        """Read what `to_json` wrote; anything else is refused with the name of what does not fit."""
        return make(
            cls,
            "a scenario",
            data,
            members=lambda value: dict(mapping(value, "members")),
            casts=lambda value: tuple(make(PlannedCast, "a cast", one, to=names) for one in items(value, "casts")),
            checks=lambda value: tuple(make(PlannedCheck, "a check", one) for one in items(value, "checks")),
            faults=read_faults,
        )

    def smaller(self) -> Iterator[GroupScenario]:
        """Simpler scenarios, the most radical first. Those that make no sense are left out."""
        return variants(self, self._changes())

    def _changes(self) -> Iterator[dict[str, Any]]:
        yield from (self._until(self.duration_ns * quarters // 4) for quarters in (1, 2, 3))
        yield from ({"faults": some} for some in without_parts(self.faults))
        yield from ({"casts": some} for some in without_parts(self.casts, len(self.casts) // 8))
        yield {"checks": ()}
        joined = (fault.who[0] for fault in self.faults if fault.kind == "join")
        yield from (self._without_member(name) for name in (*joined, *self.members))
        yield from ({name: 0.0} for name in ("loss", "duplicate", "reorder", "replay"))
        yield {"has_state": False, "can_merge": False}
        yield from ({name: False} for name in ("can_merge", "is_primary"))
        yield {"collect": "star"}
        yield {"casts": tuple(PlannedCast(cast.at_ns, cast.who) for cast in self.casts)}
        plain = PlannedCast(0, "")
        for name in ("to", "is_safe", "is_causal", "is_awaited", "size_bytes"):
            yield {"casts": tuple(replace(cast, **{name: getattr(plain, name)}) for cast in self.casts)}
        yield from ({"casts": some} for some in without_parts(self.casts))
        yield from ({"checks": some} for some in without_parts(self.checks))
        yield {"members": dict.fromkeys(self.members, 0)}
        yield {"delay": SIMPLEST_DELAY}
        yield self._until(max((one.at_ns for name in EVENTS for one in getattr(self, name)), default=0) + MILLISECOND)

    def _until(self, end_ns: int) -> dict[str, Any]:
        if end_ns >= self.duration_ns:
            return {}
        kept = {name: tuple(one for one in getattr(self, name) if one.at_ns <= end_ns) for name in EVENTS}
        return {"duration_ns": end_ns} | kept

    def _without_member(self, gone: str) -> dict[str, Any]:
        """Without one member, what it does and what happens to it."""
        return {
            "members": {name: start for name, start in self.members.items() if name != gone},
            "casts": tuple(
                replace(cast, to=tuple(n for n in cast.to if n != gone)) for cast in self.casts if cast.who != gone
            ),
            "checks": tuple(check for check in self.checks if check.who != gone),
            "faults": tuple(filter(None, (fault.without(gone) for fault in self.faults))),
        }


def _check(s: GroupScenario) -> None:
    order = find_order(s.order)
    check_whole("seed", s.seed, 0, 2**63 - 1)
    parse_delay(text("delay", s.delay))
    for name in ("loss", "duplicate", "reorder", "replay"):
        check_share(name, getattr(s, name), 0.95)
    for name in ("is_primary", "has_state", "can_merge"):
        check_flag(name, getattr(s, name))
    check_whole("duration_ns", s.duration_ns, 0, DURATION_NS_MAX)
    if s.collect not in COLLECTED:
        raise Misuse(f"reports cannot be collected by {s.collect!r}: choose among {', '.join(COLLECTED)}.")
    if s.can_merge and not s.has_state:
        raise Misuse("can_merge needs has_state: without a state there is nothing to merge.")
    check_whole("the number of members", len(s.members), 1, MEMBERS_MAX)
    for name, start in s.members.items():
        text("an address", name)
        check_whole(f"the start of {name}", start, 0, DURATION_NS_MAX)
    known = set(s.members)
    for fault in s.faults:
        if fault.kind == "join":
            check_fault(fault, FAULTS, known | set(fault.who))
            if fault.who[0] in known:
                raise Misuse(f"{fault.who[0]} cannot join: it is a member already.")
            known.update(fault.who)
    for fault in s.faults:
        check_fault(fault, FAULTS, known)
    for check in s.checks:
        check_event("check", check.at_ns, (check.who,), known)
    has_causal = Service.CAUSAL in order.services - {order.service}
    for cast in s.casts:
        check_event("cast", cast.at_ns, (cast.who, *cast.to), known)
        check_whole("size_bytes", cast.size_bytes, 0, Config().payload_bytes_max)
        for name in ("is_safe", "is_causal", "is_awaited"):
            check_flag(name, getattr(cast, name))
        if cast.is_causal and not has_causal:
            raise Misuse(f"{s.order} does not carry causal messages beside its own: take toto or all-ack.")
