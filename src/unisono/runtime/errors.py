"""What can go wrong while a group runs, besides `Misuse`: each with a name, so that a program can tell them apart."""

from __future__ import annotations

from unisono.core.errors import Misuse, UnisonoError


class Closed(Misuse):
    """The member has left, or is leaving: it casts nothing any more."""


class TimedOut(UnisonoError, TimeoutError):
    """Something was not there in time; it may still come."""


class NotFlushed(UnisonoError):
    """The member left, but not all members are known to have its last messages."""


class JournalError(UnisonoError):
    """What must be remembered cannot be written."""
