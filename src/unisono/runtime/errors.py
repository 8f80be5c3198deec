"""What can go wrong while a group runs, besides `Misuse`: each with a name, so that a program can tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from unisono.core.errors import Misuse, UnisonoError
from unisono.core.types import Key, MemberId


class Closed(Misuse):
    """The member has left, or is leaving: it casts nothing any more."""


class Unavailable(UnisonoError):
    """Something that is needed is not there now: a port, a host name, another process. The caller did not cause it."""


class TimedOut(UnisonoError, TimeoutError):
    """Something was not there in time; it may still come."""


class Uncertain(UnisonoError):
    """The view of an own message ended before every member was known to have it.

    That is final: no later stage of the message's receipt is ever confirmed.
    """

    def __init__(self, message: Key, known: Sequence[MemberId]) -> None:
        self.message = message
        self.known = tuple(known)
        """The members known to have it: those that closed the view with the same messages."""
        super().__init__(
            f"message {message.index} of {message.origin} may not have reached every member: its view ended when it was known "
            f"only at {_list(self.known)}. When the group is whole again look for its effect, and cast it again if there is none."
        )

    def __reduce__(self) -> tuple[type[Uncertain], tuple[Key, tuple[MemberId, ...]]]:
        return Uncertain, (self.message, self.known)


class NotFlushed(UnisonoError):
    """The member left, but not all members are known to have its last messages."""

    def __init__(self, who: MemberId, group: str, messages: Sequence[Key], members: Sequence[MemberId]) -> None:
        self.who, self.group = who, group
        self.messages = tuple(messages)
        """Own messages that some member may lack."""
        self.members = tuple(members)
        """The members that may lack one."""
        count, first, last = len(self.messages), self.messages[0].index, self.messages[-1].index
        which = (
            f"its message {first}" if count == 1 else f"{count} of its messages (the first is {first}, the last {last})"
        )
        where = f" at {_list(self.members)}" if self.members else ""
        super().__init__(
            f"{who} left {group!r}, and {which} may be missing{where}: wait for receipts, or give leave more time."
        )

    def __reduce__(self) -> tuple[type[NotFlushed], tuple[MemberId, str, tuple[Key, ...], tuple[MemberId, ...]]]:
        return NotFlushed, (self.who, self.group, self.messages, self.members)


class Outdated(UnisonoError):
    """The group knows a later life of the process at this member's address, so it takes this one for a ghost."""

    def __init__(self, who: MemberId, group: str, by: MemberId, newest: int) -> None:
        self.who, self.group, self.by = who, group, by
        self.newest = newest
        """The incarnation of that life."""
        super().__init__(
            f"{who} cannot be in {group!r}: {by.address} has met a later life of the process at {who.address} (incarnation "
            f"{newest}), so the clock of this machine was set back, or was ahead once. Start the program again: it asks the "
            "group first, and begins above that number."
        )

    def __reduce__(self) -> tuple[type[Outdated], tuple[MemberId, str, MemberId, int]]:
        return Outdated, (self.who, self.group, self.by, self.newest)


class JournalError(UnisonoError):
    """What must be remembered cannot be written."""


def fresh(error: Exception) -> Exception:
    """An error to raise once more: a copy if it is one of ours, so that tracebacks do not grow and callers share nothing."""
    if not isinstance(error, UnisonoError):
        return error
    again = copy(error)
    again.__cause__ = error.__cause__
    return again.with_traceback(error.__traceback__)


def _list(members: Sequence[MemberId]) -> str:
    """A few names, and how many more there are."""
    named = [str(member) for member in members]
    if len(named) > 4:
        return f"{', '.join(named[:3])} and {len(named) - 3} more"
    return f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else "".join(named)
