"""What an application sees of its group: deliveries and views in one ordered stream, and news about the member itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, repeat
from typing import NamedTuple, TypeAlias

from unisono.core.departure import Arrival, Departure
from unisono.core.events import Diverged, Entered, Replaced, Resumed, Stalled
from unisono.core.membership import Evicted, Refused
from unisono.core.text import one_line, shorten
from unisono.core.transition import Transition
from unisono.core.types import Batch, Key, MemberId, ViewId

LETTERS_SHOWN = 80


class Delivery(NamedTuple):
    """A message, in its place. `index` counts its sender's messages; with the sender it names the message for ever."""

    sender: MemberId
    payload: bytes
    index: int  # type: ignore[assignment]  # hides tuple.index, which has no use on a delivery

    @property
    def key(self) -> Key:
        return Key(self.sender, self.index)

    def __str__(self) -> str:
        """A line for people; a long payload is cut."""
        text = self.payload[: 4 * LETTERS_SHOWN].decode(errors="backslashreplace")
        is_cut = len(text) > LETTERS_SHOWN or len(self.payload) > 4 * LETTERS_SHOWN
        size = f" ({len(self.payload):,} bytes)" if is_cut else ""
        return f"{self.sender.short}:{self.index} {one_line(text, LETTERS_SHOWN)}{size}"


class View(NamedTuple):
    """From here on the group has these members.

    `together` names this member and those that closed the last view shown here with the same messages. All others of `members`
    are in `joined`, all others of the last view in `left`, each with the reason; a member that was in both views and delivered
    other messages in the last one is in both.
    """

    number: int
    members: tuple[MemberId, ...]
    joined: Mapping[MemberId, Arrival]
    left: Mapping[MemberId, Departure]
    id: ViewId
    order: str
    is_primary: bool
    together: tuple[MemberId, ...]

    @property
    def long(self) -> str:
        """A line for people, with whole incarnations."""
        text = f"view {self.id} of {len(self.members)}: {', '.join(map(str, self.members))}"
        if self.joined:
            text += f"; joined: {', '.join(f'{member} ({why})' for member, why in self.joined.items())}"
        gone = {member: why for member, why in self.left.items() if member not in self.joined}
        if gone:
            text += f"; gone: {', '.join(f'{member} ({why})' for member, why in gone.items())}"
        return text if self.is_primary else f"{text}; not primary, so read-only"

    def __str__(self) -> str:
        return shorten(self.long)


Event: TypeAlias = Delivery | Transition | View | Replaced | Refused | Evicted | Stalled | Resumed | Diverged
"""`Refused` and `Evicted`: a group does not take this member, or has put it out, and why. `Stalled` and `Resumed`: the watchdog.
`Diverged`: members that should have delivered the same did not."""


def view_of(entered: Entered) -> View:
    """What the application is told of a view."""
    view, joined, left = entered.view, entered.joined, entered.left
    order, is_primary = entered.charter.order, entered.is_primary
    return View(view.id.number, view.members, joined, left, view.id, order, is_primary, entered.together)


def deliveries(batch: Batch, members: tuple[MemberId, ...]) -> Iterator[Delivery]:
    """The messages of a batch, one by one. (Made by `tuple` itself, which takes half the time of calling the class.)"""
    fields = zip(repeat(members[batch.origin]), batch.payloads or (), count(batch.first))
    return map(_make, repeat(Delivery), fields)


_make = tuple.__new__
