"""Variations of scenarios: a fault is added, moved, struck elsewhere or taken away, two scripts are spliced, an option changes.

Every variation is valid data. What names a member that is no longer there is left out, and a change that makes no sense is drawn
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeAlias

from unisono.core.config import MILLISECOND
from unisono.core.errors import Misuse
from unisono.sim.faults import FAULTS, Fault
from unisono.sim.group_scenario import COLLECTED, GroupScenario
from unisono.sim.group_swarm import DELAYS, KINDS, NAMES, Attendance, draw_fault

FAULTS_MAX = 12
NEAR_NS = 40 * MILLISECOND
"""How far from a moment a fault strikes that is put beside it."""
TRIES = 50

Changes: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Ancestry:
    """What a variation is made of."""

    parent: GroupScenario
    moments: Sequence[int]
    """When the parent's run came to situations that were new."""
    other: GroupScenario
    """Another scenario that was worth while."""
    orders: Sequence[str]


def vary(ancestry: Ancestry, rng: Random) -> GroupScenario:
    """The parent with one change, or with several."""
    scenario, wanted = ancestry.parent, rng.choice((1, 2, 3, 4, 6))
    for _ in range(TRIES):
        change = rng.choice(CHANGES)
        try:
            varied = _fit(scenario, change(replace(ancestry, parent=scenario), rng))
        except Misuse:
            continue
        if varied != scenario:
            scenario, wanted = varied, wanted - 1
        if not wanted:
            break
    return scenario


def _fit(scenario: GroupScenario, changes: Changes) -> GroupScenario:
    """The scenario with these changes, without what then names members that are not there."""
    some: dict[str, Any] = {
        name: changes.get(name, getattr(scenario, name)) for name in ("members", "faults", "casts", "checks")
    }
    known, faults = set(some["members"]), []
    for fault in sorted(some["faults"], key=lambda fault: fault.at_ns):
        if fault.kind != "join" or fault.who[0] not in known:
            faults.append(fault)
        if fault.kind == "join":
            known.update(fault.who)
    some["faults"] = tuple(
        fault for fault in faults if known.issuperset([*fault.who, *(name for part in fault.parts for name in part)])
    )
    some["casts"] = tuple(cast for cast in some["casts"] if known.issuperset([cast.who, *cast.to]))
    some["checks"] = tuple(check for check in some["checks"] if check.who in known)
    return replace(scenario, **{**changes, **some})


# Single faults.


def _when(ancestry: Ancestry, rng: Random) -> int:
    """Just before or after a moment of the parent's run or another fault, or at any time."""
    scenario = ancestry.parent
    end = max(scenario.duration_ns, 1)
    kind = rng.randrange(4)
    moments = ancestry.moments if kind < 2 else [fault.at_ns for fault in scenario.faults] if kind == 2 else ()
    at = rng.choice(moments) + rng.randint(-NEAR_NS, NEAR_NS) if moments else rng.randrange(end)
    return min(max(at, 0), end)


def _add(ancestry: Ancestry, rng: Random) -> Changes:
    scenario, at, kind = ancestry.parent, _when(ancestry, rng), rng.choice(KINDS)
    if len(scenario.faults) >= FAULTS_MAX:
        raise Misuse("There are faults enough.")
    if kind == "join":
        taken = {*scenario.members, *(fault.who[0] for fault in scenario.faults if fault.kind == "join")}
        spare = [name for name in NAMES if name not in taken]
        fault = Fault(kind, at, (rng.choice(spare),)) if spare else None
    else:
        fault = draw_fault(kind, at, Attendance(scenario.members, scenario.faults), rng)
    return {} if fault is None else {"faults": (*scenario.faults, fault)}


def _remove(ancestry: Ancestry, rng: Random) -> Changes:
    return _instead(ancestry, rng, lambda fault: ())


def _move(ancestry: Ancestry, rng: Random) -> Changes:
    return _instead(ancestry, rng, lambda fault: (replace(fault, at_ns=_when(ancestry, rng)),))


def _nudge(ancestry: Ancestry, rng: Random) -> Changes:
    def nudge(fault: Fault) -> Sequence[Fault]:
        return (replace(fault, at_ns=max(0, fault.at_ns + rng.randint(-NEAR_NS, NEAR_NS) // 4)),)

    return _instead(ancestry, rng, nudge)


def _strike_other(ancestry: Ancestry, rng: Random) -> Changes:
    """The same fault to others."""

    def strike(fault: Fault) -> Sequence[Fault]:
        up = Attendance(ancestry.parent.members, ancestry.parent.faults).up(fault.at_ns)
        count = FAULTS[fault.kind].members
        if fault.kind in ("join", "partition") or len(up) < count:
            return (fault,)
        return (replace(fault, who=tuple(rng.sample(up, count))),)

    return _instead(ancestry, rng, strike)


def _stretch(ancestry: Ancestry, rng: Random) -> Changes:
    factor = rng.choice((0.1, 0.5, 0.8, 1.25, 2.0, 4.0))
    return _instead(ancestry, rng, lambda fault: (replace(fault, duration_ns=round(fault.duration_ns * factor)),))


def _repeat(ancestry: Ancestry, rng: Random) -> Changes:
    """A fault strikes once more."""
    return _instead(ancestry, rng, lambda fault: (fault, replace(fault, at_ns=_when(ancestry, rng))))


def _instead(ancestry: Ancestry, rng: Random, change: Callable[[Fault], Sequence[Fault]]) -> Changes:
    """Other faults in the place of one."""
    faults = ancestry.parent.faults
    if not faults:
        return _add(ancestry, rng)
    place = rng.randrange(len(faults))
    changed = (*faults[:place], *change(faults[place]), *faults[place + 1 :])
    return {"faults": changed[:FAULTS_MAX]}


# The whole scenario.


def _splice(ancestry: Ancestry, rng: Random) -> Changes:
    """The faults of two scenarios, one from the beginning and one from the end."""
    one, other = ancestry.parent, ancestry.other
    at = rng.randrange(max(one.duration_ns, 1))
    faults = [*(f for f in one.faults if f.at_ns < at), *(f for f in other.faults if f.at_ns >= at)]
    return {"faults": tuple(faults[:FAULTS_MAX]), "duration_ns": max(one.duration_ns, other.duration_ns)}


def _cast_otherwise(ancestry: Ancestry, rng: Random) -> Changes:
    """A share of the casts, or those of another scenario."""
    casts, share = ancestry.parent.casts, rng.choice((0.1, 0.3, 0.7))
    if rng.random() < 0.3:
        return {"casts": ancestry.other.casts}
    return {"casts": tuple(cast for cast in casts if rng.random() < share)}


def _alter_option(ancestry: Ancestry, rng: Random) -> Changes:
    other = ancestry.other
    has_state = rng.random() < 0.5
    return rng.choice(
        (
            {"delay": rng.choice(DELAYS)},
            {"loss": rng.choice((0.0, 0.02, 0.1, 0.3))},
            {"duplicate": rng.choice((0.0, 0.1)), "reorder": rng.choice((0.0, 0.1, 0.3))},
            {"replay": rng.choice((0.0, 0.05))},
            {"collect": rng.choice(COLLECTED)},
            {"is_primary": not ancestry.parent.is_primary},
            {"has_state": has_state, "can_merge": has_state and rng.random() < 0.6},
            {"order": rng.choice(ancestry.orders)},
            {"members": other.members},
        )
    )


def _draw_anew(ancestry: Ancestry, rng: Random) -> Changes:
    """Other fates of the datagrams."""
    return {"seed": rng.randrange(2**32)}


CHANGES = (
    _add,
    _add,
    _add,
    _remove,
    _move,
    _move,
    _nudge,
    _strike_other,
    _stretch,
    _repeat,
    _splice,
    _cast_otherwise,
    _alter_option,
    _draw_anew,
)
