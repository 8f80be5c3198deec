"""Situations: how far a member is with the change of its view, without what makes every moment unique.

A situation is what the member that has just moved could say of itself. Times, names and numbers are left out, and only none, one
and several are told apart. So the same step, in groups of any size and at any time, is one situation; it is coarse enough that most
runs come to none that is new.
"""

from __future__ import annotations

from unisono.core.membership import ViewChange
from unisono.core.types import MemberId
from unisono.core.views import Phase
from unisono.sim.group_world import SimulatedProcess

COUNTS = ("none", "one", "several")
COUNTED = ("suspects", "awaited", "bases")
FLAGS = ("is_leaving", "is_gathering", "is_approaching", "is_primary", "is_switching")


class Sightings:
    """The situations of one run, looked at after each turn in which a member got on with the change of its view."""

    def __init__(self) -> None:
        self.first: dict[str, int] = {}
        """By situation: when a member first came to it."""
        self.turns = 0
        """What the run cost: all turns of its processes."""
        self._changes: dict[MemberId, ViewChange] = {}

    def __call__(self, process: SimulatedProcess) -> None:
        self.turns += 1
        change = process.member.state.view_change
        if self._changes.get(process.id) != change:
            self._changes[process.id] = change
            self.first.setdefault(situation(change, process.member.engine.phase), process.world.now)


def situation(change: ViewChange, phase: Phase) -> str:
    ballot = "-" if change.ballot is None else change.ballot.name
    counts = (f"{name} {COUNTS[min(len(getattr(change, name)), 2)]}" for name in COUNTED)
    flags = (name for name in FLAGS if getattr(change, name))
    return " ".join((change.participant.name, ballot, phase.name, *counts, *flags))
