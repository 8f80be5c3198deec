"""What a turn of a member leads to: events for its application, and effects for its driver to perform."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from unisono.core.departure import Arrival, Cause, Departure, Origin
from unisono.core.membership import Evicted, Left, Outlived, Refused
from unisono.core.outbox import Note, VoteWatermark
from unisono.core.text import one_line, shorten
from unisono.core.transition import Transition
from unisono.core.types import Batch, MemberId, View, ViewId
from unisono.core.wire import Charter, part_of

LINE_LETTERS_MAX = 4_000


class Entered(NamedTuple):
    """A view was installed.

    `together` names this member and those that closed `previous`, the last view shown here, with the same cut: they delivered
    the same messages in it. All other members of the view count as joined, and all other members of `previous` as left; a member
    of both that closed `previous` with another cut is in both sets.
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
        """The view as a member sees it that comes from `previous` with `together`.

        Others left for the reasons that the proposer gave.
        """
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
    """Why a member that is in both views counts as left: for the same reason as it counts as joined."""
    cause = Cause.DIVERGED if arrival.origin is Origin.DIVERGED else Cause.DETOURED
    return Departure(arrival.member, cause, charter.id.proposer, 0, arrival.view)


class Replaced(NamedTuple):
    """The application's state is replaced by that of another part of the group; what only its own part had is lost."""

    lost: ViewId
    """The view whose state is discarded here."""
    lost_members: tuple[MemberId, ...]
    """The members that had that state, as far as this member knows."""
    kept: ViewId
    """The view whose state is taken over."""
    kept_members: tuple[MemberId, ...]
    """The members that had the state that is taken over."""

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
    """Something has waited here for longer than the watchdog allows; one sentence for each."""

    sentences: tuple[str, ...]

    @property
    def long(self) -> str:
        """A line for people, with whole incarnations."""
        return one_line(f"stalled: {' '.join(self.sentences)}", LINE_LETTERS_MAX)

    def __str__(self) -> str:
        return shorten(self.long)


class Resumed(NamedTuple):
    """Nothing that the watchdog reported waits any longer; how long it took."""

    lasted_ns: int

    @property
    def long(self) -> str:
        """A line for people."""
        return f"nothing waits any longer, after {self.lasted_ns / 1e9:.3f} s"

    def __str__(self) -> str:
        return self.long


class Diverged(NamedTuple):
    """Members that should have delivered the same messages in a view did not."""

    view: ViewId
    parts: tuple[tuple[MemberId, ...], ...]
    """Members of one part delivered the same messages; the largest part comes first."""
    origin: MemberId | None
    """The origin of the messages counted below; None: all messages, in their total order."""
    alike: int
    """All of them delivered at least this many first messages of the view alike."""
    differs_by: int
    """The message, counted from 1, with which they differ at the latest."""

    @property
    def long(self) -> str:
        """A line for people, with whole incarnations."""
        first, *others = (", ".join(map(str, part)) for part in self.parts)
        whose = "" if self.origin is None else f" of {self.origin}"
        return (
            f"in view {self.view}, {first} delivered other messages than {' and than '.join(others)}: the first difference is "
            f"between message {self.alike + 1} and message {self.differs_by}{whose}"
        )

    def __str__(self) -> str:
        return shorten(self.long)


Happening: TypeAlias = (
    Batch | Transition | Entered | Replaced | Aside | Refused | Outlived | Evicted | Stalled | Resumed | Diverged | Left
)
"""What a member shows its application, in the order of its stream."""


class Effects:
    """What a driver must perform after a turn, strictly top to bottom.

    The lists are the driver's to keep; the object itself is used again for the member's next turn.
    """

    __slots__ = ("datagrams", "deadline", "events", "notes", "vote_watermark", "records")

    def __init__(self) -> None:
        self.records: list[bytes] = []  # 1 write to stable storage before anything leaves
        self.vote_watermark: VoteWatermark | None = None  # 1 likewise, when this member votes for the first time
        self.datagrams: list[tuple[tuple[str, ...], bytes]] = []  # 2 send: to these addresses
        self.events: list[Happening] = []  # 3 show to the application
        self.deadline: int | None = None  # 4 take a turn by then, in ns of the driver's clock
        self.notes: list[Note] = []  # for the recorder; empty unless a trace is recorded
