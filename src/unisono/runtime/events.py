"""What an application sees of its group: deliveries and views in one ordered stream, and news about the member itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, repeat
from typing import NamedTuple, TypeAlias

from unisono.core.departure import Departure
from unisono.core.happenings import Entered, Moving, Stalled
from unisono.core.membership_host import Evicted, Refused
from unisono.core.types import Batch, Key, MemberId, ViewId


class Delivery(NamedTuple):
    """A message, in its place. `index` counts its sender's messages; with the sender it names the message for ever."""

    sender: MemberId
    payload: bytes
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a delivery

    @property
    def key(self) -> Key:
        return Key(self.sender, self.index)


class View(NamedTuple):
    """From here on the group has these members. `left` says of each that is gone why."""

    number: int
    members: tuple[MemberId, ...]
    joined: tuple[MemberId, ...]
    left: Mapping[MemberId, Departure]
    id: ViewId
    order: str
    is_primary: bool


Event: TypeAlias = Delivery | View | Refused | Evicted | Stalled | Moving
"""`Refused` and `Evicted`: a group does not take this member, or has put it out, and why. `Stalled` and `Moving`: the watchdog."""


def view_of(entered: Entered, is_primary: bool) -> View:
    """What the application is told of a view."""
    view, charter = entered.view, entered.charter
    return View(view.id.number, view.members, entered.joined, entered.left, view.id, charter.order, is_primary)


def deliveries(batch: Batch, members: tuple[MemberId, ...]) -> Iterator[Delivery]:
    """The messages of a batch, one by one. (Made by `tuple` itself, which takes half the time of calling the class.)"""
    fields = zip(repeat(members[batch.origin]), batch.payloads or (), count(batch.first))
    return map(_make, repeat(Delivery), fields)


_make = tuple.__new__
