"""Why a member is gone from the view: noted by whoever saw the reason, written into the charter, shown to everyone."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from unisono.core.types import MemberId


class Cause(IntEnum):
    """What made a view lose a member. The numbers are on the wire."""

    LOST = 0  # whoever proposed the view knows no more than that
    LEFT = 1  # it asked for it
    SUSPECTED = 2  # it was silent for too long
    UNANSWERING = 3  # it was heard, but did not answer a proposal
    SLOW = 4  # evicted: it held the others' window shut for too long
    FAULTY = 5  # it sent what no correct member sends
    RESTARTED = 6  # a newer life of its process is there
    APART = 7  # it is in another view
    SPENT = 8  # it acknowledged nothing, however often it was sent again: a rule of programs that count resends


class Departure(NamedTuple):
    """Why one member is gone, according to whom, and how long it had been so."""

    member: MemberId
    code: int
    by: MemberId
    lasted_ns: int = 0

    @property
    def cause(self) -> Cause:
        """A number that a later version may have added means as little as no reason."""
        return Cause(self.code) if self.code in set(Cause) else Cause.LOST

    def __str__(self) -> str:
        return _PHRASES[self.cause].format(by=self.by, lasted=self.lasted_ns / 1e9)


_PHRASES = {
    Cause.LOST: "lost",
    Cause.LEFT: "left",
    Cause.SUSPECTED: "suspected by {by} after {lasted:.3f} s of silence",
    Cause.UNANSWERING: "did not answer the proposal of {by}",
    Cause.SLOW: "evicted, because it held the window of {by} shut for {lasted:.3f} s",
    Cause.FAULTY: "sent {by} what no correct member sends",
    Cause.RESTARTED: "restarted: a newer life of its process is there",
    Cause.APART: "is in another view, as {by} knows",
    Cause.SPENT: "did not acknowledge what {by} sent to it again and again",
}
