"""The faults that a scenario names, for every simulated world: one vocabulary, and what makes sense of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from unisono.core.config import SECOND
from unisono.core.errors import Misuse
from unisono.orders.registry import find_order
from unisono.sim.checked import check_number, check_whole, items, make, text

TIME_NS_MAX = 1_000_000 * SECOND


class FaultKind(NamedTuple):
    """How many members a fault names, and the range of its amount, if it has one."""

    members: int = 1
    amounts: tuple[float, float] | None = None


FAULTS = {
    "crash": FaultKind(),
    "restart": FaultKind(),
    "pause": FaultKind(),
    "leave": FaultKind(),
    "join": FaultKind(),
    "partition": FaultKind(0),
    "one way": FaultKind(2),
    "triangle": FaultKind(2),
    "clog": FaultKind(2),
    "slow": FaultKind(2, (1.0, 1e6)),
    "lossy": FaultKind(2, (0.0, 0.95)),
    "drift": FaultKind(1, (-0.9, 10.0)),
    "narrow": FaultKind(1, (1.0, 1e12)),
    "switch": FaultKind(),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    | kind      | who        | what happens                                                                       |
    |-----------|------------|------------------------------------------------------------------------------------|
    | crash     | one        | its process dies                                                                   |
    | restart   | one        | its process dies, and after the duration a new one starts at its address            |
    | pause     | one        | its process stands still for the duration                                          |
    | leave     | one        | it leaves, unless it is paused                                                     |
    | join      | one, new   | a process starts at a new address                                                  |
    | partition |            | for the duration only members of one of the `parts` hear each other                |
    | one way   | from, to   | nothing passes in this direction                                                   |
    | triangle  | two        | nothing passes between them                                                        |
    | clog      | from, to   | nothing passes in this direction for the duration, then all of it at once          |
    | slow      | from, to   | delays in this direction are multiplied by this                                    |
    | lossy     | from, to   | this share of what is sent in this direction is lost                               |
    | drift     | one        | its clock runs faster by this share (0.1: 10 %)                                     |
    | narrow    | one        | it can send this many bytes per second                                             |
    | switch    | one        | it switches the group to `order`                                                   |

    Without a duration, it goes on until all is healed.
    """

    kind: str
    at_ns: int
    who: tuple[str, ...] = ()
    duration_ns: int = 0
    amount: float = 0.0
    parts: tuple[tuple[str, ...], ...] = ()
    order: str = ""

    def without(self, gone: str) -> Fault | None:
        """What is left of it if there is no such member."""
        parts = tuple(filter(None, (tuple(name for name in part if name != gone) for part in self.parts)))
        is_left = gone not in self.who and (self.kind != "partition" or len(parts) > 1)
        return replace(self, parts=parts) if is_left else None


def read_faults(value: Any) -> tuple[Fault, ...]:
    return tuple(make(Fault, "a fault", one, who=names, parts=_parts) for one in items(value, "faults"))


def names(value: Any) -> tuple[str, ...]:
    return tuple(text("an address", one) for one in items(value, "a list of addresses"))


def _parts(value: Any) -> tuple[tuple[str, ...], ...]:
    return tuple(names(one) for one in items(value, "parts"))


def without_defaults(row: Any) -> dict[str, Any]:
    """A dataclass as an object of JSON, without the fields that say nothing."""
    return {one.name: value for one in fields(row) if (value := getattr(row, one.name)) != one.default}


def check_event(kind: str, at_ns: int, who: Collection[str], known: Collection[str]) -> None:
    check_whole(f"at_ns of {kind}", at_ns, 0, TIME_NS_MAX)
    for name in who:
        if name not in known:
            raise Misuse(f"a {kind} names the member {name!r}: choose among {', '.join(sorted(known))}.")


def check_fault(fault: Fault, kinds: Collection[str], known: Collection[str]) -> None:
    """Whether a world that plays these kinds, with these members, can play it."""
    if fault.kind not in kinds:
        raise Misuse(f"there is no fault {fault.kind!r}: choose among {', '.join(kinds)}.")
    kind = FAULTS[fault.kind]
    if len(fault.who) != kind.members:
        raise Misuse(
            f"the fault {fault.kind} names {kind.members} member{'s' * (kind.members != 1)}, not {len(fault.who)}."
        )
    check_event(fault.kind, fault.at_ns, (*fault.who, *(name for part in fault.parts for name in part)), known)
    check_whole(f"duration_ns of {fault.kind}", fault.duration_ns, 0, TIME_NS_MAX)
    if kind.amounts is not None:
        check_number(f"amount of {fault.kind}", fault.amount, *kind.amounts)
    elif fault.amount != 0:
        having = ", ".join(name for name in kinds if FAULTS[name].amounts is not None)
        raise Misuse(f"the fault {fault.kind} has an amount: only {having} have one.")
    if fault.kind == "partition" and not fault.parts:
        raise Misuse("a partition needs parts: lists of those that hear each other.")
    if fault.kind != "partition" and fault.parts:
        raise Misuse(f"the fault {fault.kind} has parts: only a partition has parts.")
    if fault.kind == "switch":
        find_order(fault.order)
    elif fault.order:
        raise Misuse(f"the fault {fault.kind} has an order: only a switch has one.")
