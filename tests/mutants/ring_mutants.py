"""The ring with one rule broken each: what every rule is for.

**Pass the decree on before closing.** 1. C lacks a packet, and the flush that brings it is lost. 2. C passes the decree on all the
same, and it comes around. 3. A installs a view that says C came along, although C has not closed.

**Pass on once.** 1. B hands the token to C, and it is lost. 2. Nobody else has it: the whole round waits for the star.

**Take a token twice.** 1. C has the whole token; chunks of it come again, because the network doubled them or B repeats itself.
2. C begins to gather it anew and pulls the rest, which brings more chunks to pull for.
"""

from __future__ import annotations

from unisono.core.membership.membership import Membership
from unisono.core.membership.participant import Participant
from unisono.core.membership.ring import Ring
from unisono.core.types import MemberId, ViewId
from unisono.core.wire.control import Chunk, Decree, RollCall


class _HastyParticipant(Participant):
    def decree(self, sender: MemberId, ballot: ViewId, decree: Decree) -> None:
        super().decree(sender, ballot, decree)
        if self._decree is not None:
            self._pass_decree()


class PassesOnBeforeClosing(Membership):
    participant_type = _HastyParticipant


class _OnceRing(Ring):
    def repeat(self) -> None:
        pass


class PassesOnOnce(Membership):
    def tick(self, now: int) -> None:
        self._ring.__class__ = _OnceRing
        super().tick(now)


class _ForgetfulRing(Ring):
    def take(self, sender: MemberId, chunk: Chunk) -> RollCall | Decree | None:
        self._taken = None
        return super().take(sender, chunk)


class TakesTokensTwice(Membership):
    def tick(self, now: int) -> None:
        self._ring.__class__ = _ForgetfulRing
        super().tick(now)
