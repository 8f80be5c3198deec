"""What a member shows: what happens to its application, and what its driver must do after a turn."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from unisono.core.control import Charter
from unisono.core.departure import Cause, Departure
from unisono.core.membership_host import Evicted, Left, Refused
from unisono.core.outbox import Note, Pledge
from unisono.core.types import Batch, MemberId, View


class Entered(NamedTuple):
    """A view was installed. `left` says of each member that is gone why, as whoever proposed the view knew it."""

    view: View
    charter: Charter
    previous: View | None
    joined: tuple[MemberId, ...]
    left: dict[MemberId, Departure]

    @classmethod
    def of(cls, view: View, charter: Charter, previous: View | None) -> Entered:
        """What a member sees that comes from `previous`; what the charter does not say is not known."""
        before = () if previous is None else previous.members
        joined = tuple(member for member in view.members if member not in before)
        known = {departure.member: departure for departure in charter.departures}
        gone = [member for member in before if member not in view.members]
        left = {one: known.get(one) or Departure(one, Cause.LOST, charter.id.proposer) for one in gone}
        return cls(view, charter, previous, joined, left)


class Aside(NamedTuple):
    """Bytes that one member sent to this one alone, beside the order (`send`)."""

    sender: MemberId
    data: bytes


class Stalled(NamedTuple):
    """Something has waited here for longer than the watchdog allows: a sentence for each thing that has."""

    sentences: tuple[str, ...]


class Moving(NamedTuple):
    """Nothing of what the watchdog spoke of waits any longer; it took so long."""

    lasted_ns: int


Happening: TypeAlias = Batch | Entered | Aside | Refused | Evicted | Stalled | Moving | Left
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
