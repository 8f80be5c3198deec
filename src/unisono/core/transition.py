"""The event that ends a view."""

from __future__ import annotations

from typing import NamedTuple

from unisono.core.text import shorten
from unisono.core.types import MemberId, ViewId


class Transition(NamedTuple):
    """A view ends. Deliveries between this event and the next view are the agreed remainder of the old view.

    `together` names this member and those members of the next view that close the old one with the same remainder. `is_primary`
    tells whether the remainder becomes part of a primary: the next view is one, and this member's state is carried into it.
    Under `partitionable` every view is primary.
    """

    together: tuple[MemberId, ...]
    is_primary: bool
    view: ViewId
    """The view that ends."""

    @property
    def long(self) -> str:
        """A line for people, with whole incarnations."""
        text = f"view {self.view} ends; together: {', '.join(map(str, self.together))}"
        return text if self.is_primary else f"{text}; the next view is not primary"

    def __str__(self) -> str:
        return shorten(self.long)
