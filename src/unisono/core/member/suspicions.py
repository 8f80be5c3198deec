"""Which members are believed to have crashed, and which to be faulty.

A member that is silent for too long (`Detector`) is suspected until anything authentic comes from it, even when it is no longer in
the view. A member that has sent what no correct member sends is blamed, whatever it sends later. It is forgiven after a while:
the wrong packet may have been a stranger's, or damaged on its way.
"""

from __future__ import annotations

from collections.abc import Sequence

from unisono.core.config import SECOND
from unisono.core.departure import Cause
from unisono.core.membership import Detector, DetectorSettings, Membership
from unisono.core.outbox import Note, NoteKind
from unisono.core.types import MemberId, Rank

NEVER = 2**63 - 1
FORGIVEN_NS = 30 * SECOND
"""How long a member that has sent what no correct member sends is kept out."""


class Suspicions:
    """Tells membership of suspicions as they begin and end. Methods return True if membership was told anything."""

    def __init__(
        self, settings: DetectorSettings, members_max: int, membership: Membership, noting: bool, now: int
    ) -> None:
        self._detector = Detector(settings, now)
        self._members_max = members_max
        self._membership = membership
        self._noting = noting
        self._forgive_at: dict[MemberId, int] = {}  # the members that are blamed
        self.silent: dict[MemberId, None] = {}
        """The members that are suspected because they are silent; anything authentic that they send refutes it."""
        self.notes: list[Note] = []
        """The suspicions of this turn, for the recorder."""
        self.heard_ranks: dict[Rank, None] = {}
        """Members of the view from which something authentic came: collected until `tell_detector`, which saves a call for each."""
        self.has_told_all = False
        """Whether all members of the view were sent something since `tell_detector`."""
        self.due = NEVER
        """When to call `tick`."""
        self.count = 0
        """How many suspicions there were so far."""

    # Questions.

    @property
    def members(self) -> tuple[MemberId, ...]:
        """The members that are suspected because they are silent."""
        return tuple(self.silent)

    @property
    def pauses(self) -> int:
        """How often this process itself was paused, so that the silence of others meant nothing."""
        return self._detector.pauses

    def wants_heartbeat(self, now: int) -> bool:
        """Whether the others must hear from this member now."""
        return self._detector.wants_heartbeat(now)

    def take_notes(self) -> list[Note]:
        """The suspicions of this turn, for the recorder."""
        notes, self.notes = self.notes, []
        return notes

    # What happens.

    def watch(self, members: Sequence[MemberId], me: MemberId, now: int) -> None:
        """A view of these members was installed."""
        self._detector.watch([member for member in members if member != me], now)
        self.due = now
        addresses = {member.address for member in members}
        for member in [one for one in self.silent if one.address in addresses]:  # it, or its next life, took part
            del self.silent[member]
            self._membership.unsuspect(member)

    def tell_detector(self, members: Sequence[MemberId], now: int) -> None:
        """A turn ends: tell the detector which members of the view were heard, and whether all were told something."""
        for rank in self.heard_ranks:
            self._detector.heard(members[rank], now)
        self.heard_ranks.clear()
        if self.has_told_all:
            self.has_told_all = False
            self._detector.sent(now)

    def heard(self, member: MemberId, now: int) -> bool:
        """Learn of an authentic datagram. Returns whether its sender, in this view or not, was suspected for its silence."""
        self._detector.heard(member, now)
        if member not in self.silent:
            return False
        del self.silent[member]
        self._membership.unsuspect(member)
        return True

    def tick(self, now: int) -> bool:
        """Suspect the members that have been silent for too long."""
        told = False
        for change in self._detector.tick(now):
            if change.suspected:  # what ends a suspicion is hearing, and that is seen at once
                self.suspect(change.peer, Cause.SUSPECTED, now, self._detector.silence(change.peer, now))
                told = True
        deadline = self._detector.deadline
        self.due = NEVER if deadline is None else deadline
        return told

    def forgive(self, now: int) -> bool:
        """Let the members in again that were blamed long ago."""
        told = False
        for member in [member for member, due in self._forgive_at.items() if due <= now]:
            del self._forgive_at[member]
            if member not in self.silent:
                self._membership.unsuspect(member)
                told = True
        return told

    def suspect(self, member: MemberId, cause: Cause, now: int, lasted_ns: int = 0) -> None:
        """Suspect a member for this reason, which has lasted for some time."""
        self.count += 1
        self._membership.suspect(member, cause, lasted_ns)
        if cause is Cause.FAULTY:
            self._forgive_at[member] = now + FORGIVEN_NS
        if cause is Cause.SUSPECTED:
            self.silent[member] = None
            while len(self.silent) > self._members_max:
                del self.silent[next(iter(self.silent))]  # it left the view long ago
        if self._noting:
            attributes = {"suspected": str(member), "reason": cause.name.lower()}
            self.notes.append(Note(NoteKind.SUSPECT, attributes=attributes))
