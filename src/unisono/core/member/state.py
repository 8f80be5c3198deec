"""The read-only state of a member: what `explain` and the watchdog may ask of it."""

from __future__ import annotations

from typing import Protocol

from unisono.core.streams import Streams
from unisono.core.types import MemberId
from unisono.core.views import ViewEngine


class MemberState(Protocol):
    """A `Member` as its observers see it. They ask questions of these parts, and change none of them."""

    @property
    def id(self) -> MemberId: ...

    @property
    def now(self) -> int:
        """The time of the last turn."""

    @property
    def engine(self) -> ViewEngine:
        """Casts, orders and delivers in the current view."""

    @property
    def streams(self) -> Streams | None:
        """The streams of the current view; None: there was no view yet."""

    @property
    def settled_index(self) -> int:
        """All own messages below this index are stable or in doubt."""
