"""What a member shows: what happens to its application, and what its driver must do after a turn."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from unisono.core.departure import Arrival, Cause, Departure, Origin
from unisono.core.member.comparison import Diverged
from unisono.core.membership.context import Evicted, Left, Outlived, Refused
from unisono.core.outbox import Note, Pledge
from unisono.core.text import one_line, shorten
from unisono.core.types import Batch, MemberId, Transition, View, ViewId
from unisono.core.wire.control import Charter, part_of

LINE_LETTERS_MAX = 4_000


class Entered(NamedTuple):
    """A view was installed.

    `together` names this member and those that closed `previous`, the last view shown here, with the same cut: they delivered
    the same messages in it. All other members of the view count as joined, all other members of `previous` as left; a member
    of both that diverged is in both sets.
    """

    view: View
    charter: Charter
    previous: View | None
    together: tuple[MemberId, ...]
    joined: dict[MemberId, Arrival]
    left: dict[MemberId, Departure]
    is_primary: bool

    @classmethod
    def of(
        cls, view: View, charter: Charter, previous: View | None, together: tuple[MemberId, ...], is_primary: bool
    ) -> Entered:
        """What a member sees that comes from `previous` together with these; why others left is as the proposer knew it."""
        before = () if previous is None else previous.members
        joined = {one: _arrival(one, charter, previous) for one in view.members if one not in together}
        known = {departure.member: departure for departure in charter.departures}
        left = {}
        for one in before:
            if one in joined:
                left[one] = _divergence(joined[one], charter)
            elif one not in together:
                left[one] = known.get(one) or Departure(one, Cause.LOST, charter.id.proposer)
        return cls(view, charter, previous, together, joined, left, is_primary)


def _arrival(member: MemberId, charter: Charter, previous: View | None) -> Arrival:
    part = part_of(charter, member)
    if previous is None or member not in previous.members or part is None:
        return Arrival(member, Origin.NEW)
    origin = Origin.DIVERGED if part.view == previous.id else Origin.DETOURED
    return Arrival(member, origin, part.view.number)


def _divergence(arrival: Arrival, charter: Charter) -> Departure:
    """The same reason as that of its arrival, for a member that is in both views."""
    cause = Cause.DIVERGED if arrival.origin is Origin.DIVERGED else Cause.DETOURED
    return Departure(arrival.member, cause, charter.id.proposer, 0, arrival.view)


class Replaced(NamedTuple):
    """The application's state is replaced by that of another part of the group: what only its own part had is gone."""

    lost: ViewId
    """The view whose state is thrown away here …"""
    lost_members: tuple[MemberId, ...]
    """… and who had it, as far as this member knows."""
    kept: ViewId
    """The view whose state is taken over …"""
    kept_members: tuple[MemberId, ...]
    """… and who had that."""

    @property
    def long(self) -> str:
        """A line for people, with whole incarnations."""
        lost, kept = (", ".join(map(str, some)) for some in (self.lost_members, self.kept_members))
        return f"the state that {lost} had since view {self.lost} is thrown away here; that of {kept} is taken over"

    def __str__(self) -> str:
        return shorten(self.long)


class Aside(NamedTuple):
    """Bytes that one member sent to this one alone, beside the order (`send`)."""

    sender: MemberId
    data: bytes


class Stalled(NamedTuple):
    """Something has waited here for longer than the watchdog allows: a sentence for each thing that has."""

    sentences: tuple[str, ...]

    @property
    def long(self) -> str:
        """A line for people, with whole incarnations."""
        return one_line(f"stalled: {' '.join(self.sentences)}", LINE_LETTERS_MAX)

    def __str__(self) -> str:
        return shorten(self.long)


class Moving(NamedTuple):
    """Nothing of what the watchdog spoke of waits any longer; it took so long."""

    lasted_ns: int

    @property
    def long(self) -> str:
        """A line for people."""
        return f"it moves again, after {self.lasted_ns / 1e9:.3f} s"

    def __str__(self) -> str:
        return self.long


Happening: TypeAlias = (
    Batch | Transition | Entered | Replaced | Aside | Refused | Outlived | Evicted | Stalled | Moving | Diverged | Left
)
"""What happens to an application, in this order."""


class Effects:
    """What a driver must do after a turn, strictly top to bottom."""

    __slots__ = ("datagrams", "deadline", "events", "notes", "pledge", "records")

    def __init__(self) -> None:
        self.records: list[bytes] = []  # 1 write to stable storage before anything leaves
        self.pledge: Pledge | None = None  # 1 likewise, if it is new that this member has voted
        self.datagrams: list[tuple[tuple[str, ...], bytes]] = []  # 2 send: to these addresses
        self.events: list[Happening] = []  # 3 show the application
        self.deadline: int | None = None  # 4 take a turn by then, in ns of the driver's clock
        self.notes: list[Note] = []  # for the recorder; empty unless someone records
