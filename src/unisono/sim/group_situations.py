"""Situations: how a group stands in the change of its views, without what makes every moment unique.

A situation is what the member that has just moved could say of itself, and the ways in which the others stand to it. Times,
names, numbers and counters are left out: a view is an earlier one than the mover's, the same or a later one, a suspect lives or
does not, and only none, one and several are told apart. So the same race, in groups of any size and at any time, is one
situation, and a run that comes to a new one has brought a group where no run before has been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

from unisono.core.membership import ViewChange
from unisono.core.types import MemberId, ViewId
from unisono.sim.explore.freeze import Frozen, freeze
from unisono.sim.group_world import SimulatedProcess

DIGEST_BYTES = 8
SEVERAL = 2


class Sightings:
    """The situations of one run, looked at after each turn in which a member got on with the change of its view."""

    def __init__(self) -> None:
        self.first: dict[str, int] = {}
        """By digest of a situation: when the group first came to it."""
        self.turns = 0
        """What the run cost: all turns of its processes."""
        self._changes: dict[MemberId, tuple[SimulatedProcess, ViewChange]] = {}
        self._known: dict[Frozen, str] = {}

    def __call__(self, process: SimulatedProcess) -> None:
        self.turns += 1
        change = process.member.state.view_change
        if process.id not in self._changes or self._changes[process.id][1] != change:
            self._changes[process.id] = (process, change)
            found = self._situation(process, change)
            name = self._known.get(found)
            if name is None:
                digest = blake2b(repr(found).encode(), digest_size=DIGEST_BYTES).hexdigest()
                name = self._known[found] = digest
                self.first[name] = process.world.now

    def _situation(self, mover: SimulatedProcess, change: ViewChange) -> Frozen:
        living = {member: other for member, (life, other) in self._changes.items() if life.alive}
        others = [other for member, other in living.items() if member != mover.id]

        def count(members: Iterable[MemberId], which: Callable[[MemberId], bool]) -> int:
            return min(sum(map(which, members)), SEVERAL)

        own = (
            change.participant,
            change.ballot,
            mover.member.engine.phase,
            mover.member.engine.casting.unfinished > 0,
            *(_relation(change.promised, one) for one in (change.closed, change.uninstalled)),
            change.promised.proposer == mover.id,
            *(count(some, living.__contains__) for some in (change.suspects, change.awaited)),
            *(count(some, lambda one: one not in living) for some in (change.suspects, change.awaited)),
            min(len(change.bases), SEVERAL),
            change.is_leaving,
            change.is_gathering,
            change.is_approaching,
            change.is_primary,
            change.is_switching,
        )
        stands = frozenset((one.participant, one.ballot, _relation(change.view, one.view)) for one in others)
        return freeze((own, stands))


def _relation(mine: ViewId | None, other: ViewId | None) -> str:
    if mine is None or other is None:
        return "none" if other is None else "some"
    return "earlier" if other < mine else "later" if other > mine else "same"
