"""Why a member joined or left, as each application is told with a view."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple

from unisono.core.types import MemberId


class Cause(IntEnum):
    """What made a view lose a member. The numbers are on the wire."""

    LOST = 0  # the proposer of the view knows no more than that
    LEFT = 1  # it asked to leave
    SUSPECTED = 2  # it was silent for too long
    UNANSWERING = 3  # it was heard, but did not answer a proposal
    SLOW = 4  # evicted: it held the others' window shut for too long
    FAULTY = 5  # it sent what no correct member sends
    RESTARTED = 6  # a newer life of its process is there
    APART = 7  # it is in another view
    SPENT = 8  # it acknowledged nothing, however often it was sent again: a rule of programs that count resends
    DIVERGED = 9  # it is still there, but closed the last view with other messages
    DETOURED = 10  # it is still there, but came through another view


class Departure(NamedTuple):
    """Why one member is gone, according to whom, and how long it had been so."""

    member: MemberId
    code: int
    by: MemberId
    lasted_ns: int = 0
    view: int = 0
    """The number of the view in which it diverged, or through which it came."""

    @property
    def cause(self) -> Cause:
        """The cause that `code` stands for; LOST if only a later version knows it."""
        return Cause(self.code) if self.code in set(Cause) else Cause.LOST

    def __str__(self) -> str:
        return _PHRASES[self.cause].format(by=self.by.short, lasted=self.lasted_ns / 1e9, view=self.view)


class Origin(Enum):
    """Where a member that joined came from."""

    NEW = "new"  # it was not in the last view
    DIVERGED = "delivered other messages in view {view}"
    DETOURED = "came through view {view}"


class Arrival(NamedTuple):
    """Why a member of the view counts as joined: it did not come here from the last view with the same messages."""

    member: MemberId
    origin: Origin
    view: int = 0
    """The number of the view in which it diverged, or through which it came."""

    def __str__(self) -> str:
        return self.origin.value.format(view=self.view)


_PHRASES = {
    Cause.LOST: "lost",
    Cause.LEFT: "left",
    Cause.SUSPECTED: "suspected by {by} after {lasted:.3f} s of silence",
    Cause.UNANSWERING: "did not answer the proposal of {by}",
    Cause.SLOW: "evicted: {by} could not cast for {lasted:.3f} s because of it",
    Cause.FAULTY: "sent {by} what no correct member sends",
    Cause.RESTARTED: "restarted: a newer life of its process is there",
    Cause.APART: "found in another view by {by}",
    Cause.SPENT: "did not acknowledge what {by} sent, though {by} repeated it",
    Cause.DIVERGED: Origin.DIVERGED.value,
    Cause.DETOURED: Origin.DETOURED.value,
}
