"""What a member shows: what happens to its application, and what its driver must do after a turn."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from unisono.core.control import Charter
from unisono.core.membership_host import Left, Refused
from unisono.core.outbox import Note
from unisono.core.types import Batch, MemberId, View


class Entered(NamedTuple):
    """A view was installed. `left` says of each member that is gone why: it left, or it was lost (crashed, cut off, too slow)."""

    view: View
    charter: Charter
    previous: View | None
    joined: tuple[MemberId, ...]
    left: dict[MemberId, str]


class Aside(NamedTuple):
    """Bytes that one member sent to this one alone, beside the order (`send`)."""

    sender: MemberId
    data: bytes


Happening: TypeAlias = Batch | Entered | Aside | Refused | Left
"""What happens to an application, in this order."""


class Effects:
    """What a driver must do after a turn, strictly top to bottom."""

    __slots__ = ("datagrams", "deadline", "events", "notes", "records")

    def __init__(self) -> None:
        self.records: list[bytes] = []  # 1 write to stable storage before anything leaves
        self.datagrams: list[tuple[tuple[str, ...], bytes]] = []  # 2 send: to these addresses
        self.events: list[Happening] = []  # 3 show the application
        self.deadline: int | None = None  # 4 take a turn by then, in ns of the driver's clock
        self.notes: list[Note] = []  # for the recorder; empty unless someone records
