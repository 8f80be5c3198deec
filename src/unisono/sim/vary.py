"""Variations of scenarios: faults are added, moved, struck elsewhere or taken away, and what surrounds them changes.

Every variation is valid data: a change that makes no sense is drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

from unisono.core.config import MILLISECOND
from unisono.core.errors import Misuse
from unisono.sim.group_scenario import COLLECTED, GroupScenario
from unisono.sim.group_swarm import DELAYS, KINDS, Attendance, draw_fault

FAULTS_MAX = 12
NEAR_NS = 40 * MILLISECOND
"""How far from a moment a fault strikes that is put beside it."""
NEAR_SHARE = 0.75
TRIES = 50

Changes: TypeAlias = Mapping[str, Any]


def vary(scenario: GroupScenario, moments: Sequence[int], rng: Random) -> GroupScenario:
    """The scenario with one change, or with several. `moments`: when its run came to situations that were new."""
    wanted = rng.choice((1, 2, 4))
    for _ in range(TRIES):
        changes = dict(rng.choice(CHANGES)(scenario, moments, rng))
        if "faults" in changes:
            changes["faults"] = tuple(sorted(changes["faults"], key=lambda fault: fault.at_ns)[:FAULTS_MAX])
        try:
            varied = replace(scenario, **changes)
        except Misuse:
            continue
        if varied != scenario:
            scenario, wanted = varied, wanted - 1
        if not wanted:
            break
    return scenario


def _when(scenario: GroupScenario, moments: Sequence[int], rng: Random) -> int:
    """Just before or after a moment of the run or another fault, or at any time."""
    near = moments if moments and rng.random() < 0.5 else [fault.at_ns for fault in scenario.faults]
    if not near or rng.random() > NEAR_SHARE:
        return rng.randint(0, scenario.duration_ns)
    return min(max(rng.choice(near) + rng.randint(-NEAR_NS, NEAR_NS), 0), scenario.duration_ns)


def _add_fault(scenario: GroupScenario, moments: Sequence[int], rng: Random) -> Changes:
    attendance = Attendance(scenario.members, scenario.faults)
    fault = draw_fault(rng.choice(KINDS), _when(scenario, moments, rng), attendance, rng)
    return {} if fault is None else {"faults": (*scenario.faults, fault)}


def _alter_fault(scenario: GroupScenario, moments: Sequence[int], rng: Random) -> Changes:
    """A fault is taken away, strikes at another time, once more, for another time, or others."""
    if not scenario.faults:
        return {}
    faults = list(scenario.faults)
    fault = faults.pop(rng.randrange(len(faults)))
    moved = replace(fault, at_ns=_when(scenario, moments, rng))
    stretched = replace(fault, duration_ns=round(fault.duration_ns * rng.choice((0.1, 0.5, 2.0, 4.0))))
    up = Attendance(scenario.members, scenario.faults).up(fault.at_ns)
    elsewhere = replace(fault, who=tuple(rng.sample(up, min(len(fault.who), len(up)))))
    return {"faults": (*faults, *rng.choice(((), (moved,), (fault, moved), (stretched,), (elsewhere,))))}


def _alter_rest(scenario: GroupScenario, moments: Sequence[int], rng: Random) -> Changes:
    share, has_state = rng.choice((0.1, 0.3, 0.7)), rng.random() < 0.5
    changes: Sequence[Changes] = (
        {"casts": tuple(cast for cast in scenario.casts if rng.random() < share)},
        {"delay": rng.choice(DELAYS)},
        {"loss": rng.choice((0.0, 0.02, 0.1, 0.3))},
        {"duplicate": rng.choice((0.0, 0.1)), "reorder": rng.choice((0.0, 0.1, 0.3))},
        {"replay": rng.choice((0.0, 0.05))},
        {"collect": rng.choice(COLLECTED)},
        {"is_primary": not scenario.is_primary},
        {"has_state": has_state, "can_merge": has_state and rng.random() < 0.6},
        {"seed": rng.randrange(2**32)},  # other fates of the datagrams
    )
    return rng.choice(changes)


CHANGES = (_add_fault, _alter_fault, _alter_rest)
