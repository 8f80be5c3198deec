"""What the checkers talk about: lives, their stays in views, and the messages cast and delivered there.

- a **life** is one incarnation of one member: everything between its first row and its END, LEAVE or CRASH;
- a **stay** is one life in one view, from its VIEW row to the next one or to its end;
- a **cast** is one batch as its origin cast it;
- a **delivery** is (a part of) a DELIVER or PLACE row. Where a member's rows are cut otherwise than the casts, a row is
  taken apart at the casts' borders, so that a delivery never belongs to two casts;
- a **transition** is (V→V'): the stays in V that went the same way.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from unisono.trace.checks.spans import Spans
from unisono.trace.schema import BLOCK, SHOWN, SNAPSHOT_IN, VIEW, Event, member_name

Span: TypeAlias = tuple[int, int, int]
"""The messages ``first … end-1`` of a life: (its number, first, end)."""

KEPT = SHOWN | {VIEW, BLOCK, SNAPSHOT_IN}

PLACED, TOTAL, DATAGRAM = 1, 2, 4
"""Bits of `Stay.marks`: a placeholder's turn; of the service `total`; of the service `datagram`."""


class Life:
    """One incarnation of one member, whether its rows were seen or others only spoke of it."""

    __slots__ = (
        "backlog",
        "backwards",
        "cast_end",
        "casts",
        "coming",
        "ending",
        "ending_reason",
        "firsts",
        "hole",
        "is_complete",
        "kept",
        "name",
        "next_index",
        "number",
        "protocol",
        "rows",
        "settled",
        "starts",
        "stay",
        "stays",
        "time_ns",
        "uncast",
        "uncommitted",
        "undigested",
        "unordered",
        "unstamped",
        "waiters",
        "waits_for",
    )

    def __init__(self, address: str, incarnation: int, number: int) -> None:
        self.name = member_name(address, incarnation)
        self.number = number
        self.rows = 0
        self.next_index = 0
        self.hole: tuple[int, int] | None = None  # the first missing rows, as local indices first … end-1
        self.ending: str | None = None  # END, LEAVE or CRASH
        self.ending_reason: str | None = None
        self.is_complete = False  # in an excerpt: it has left the view
        self.stay: Stay | None = None  # in the view installed last
        self.stays: dict[str, Stay] = {}  # by view, in the order of installation
        self.casts: dict[int, Cast] = {}  # by first index
        self.firsts: list[int] = []  # the keys of `casts`, ascending
        self.cast_end = 0  # every CAST seen ends at or below
        self.starts: dict[str, int] = {}  # by view: the first index cast in it
        self.protocol: str | None = None  # of the last row
        self.time_ns = -(1 << 63)  # likewise
        self.backwards: int | None = None  # the first row whose clock is behind the row before
        self.uncast: int | None = None  # the first DELIVER or PLACE of a message without a CAST
        self.undigested: int | None = None  # the first DELIVER whose digest cannot be compared with its CAST's
        self.unstamped: dict[str, int] = {}  # by view: the first CAST without a vector
        self.uncommitted: dict[
            tuple[str, str | None], int
        ] = {}  # by view and service: the first CAST without a transaction
        self.unordered: dict[
            tuple[str, str | None], int
        ] = {}  # likewise: the first message of a service that no order carries
        self.kept: list[Event] = []  # rows of the kinds `KEPT`: few, and several properties look at them in the end
        # For the history alone: rows that wait for a CAST of another life.
        self.backlog: deque[Event] = deque()
        self.coming = Spans()  # what the backlog has cast, or had
        self.waits_for: Life | None = None
        self.waiters: list[Life] = []
        self.settled = False  # no further CAST will come

    @property
    def unknown(self) -> str | None:
        """Why nothing can be said for this life, if so: rows are missing in the middle or at the end."""
        if self.hole is not None:
            first, end = self.hole
            missing = f"row {first} is" if end == first + 1 else f"rows {first} to {end - 1} are"
            return f"{missing} missing"
        if not self.rows:
            return "there is no trace of it"
        return None if self.ending or self.is_complete else "its trace stops without END, LEAVE or CRASH"

    def add_cast(self, cast: Cast) -> None:
        if not self.firsts or cast.first > self.firsts[-1]:
            self.firsts.append(cast.first)
        elif cast.first not in self.casts:
            insort(self.firsts, cast.first)
        self.casts[cast.first] = cast
        self.cast_end = max(self.cast_end, cast.end)
        self.starts.setdefault(cast.view, cast.first)

    def local_of(self, origin: Life, first: int, end: int) -> int | None:
        """The first row that delivered one of these messages in any view."""
        found = (stay.local_of(origin, first, end, placed=False) for stay in self.stays.values())
        return next((local for local in found if local is not None), None)

    def cast_of(self, first: int, end: int) -> Iterator[tuple[int, int, Cast | None]]:
        """``first … end-1`` cut at the borders of the casts, each part with its cast, or None where there is none."""
        place = max(0, bisect_right(self.firsts, first) - 1)
        while first < end:
            while place < len(self.firsts) and self.casts[self.firsts[place]].end <= first:
                place += 1
            cast = self.casts[self.firsts[place]] if place < len(self.firsts) else None
            if cast is None or cast.first >= end:
                yield first, end, None
                return
            if first < cast.first:
                yield first, cast.first, None
                first = cast.first
            yield first, min(end, cast.end), cast
            first = cast.end


class MemberList:
    """A view's id with one list of members. Two members that disagree about the list have two of these."""

    __slots__ = ("id", "members", "ranks")

    def __init__(self, id: str, members: tuple[str, ...]) -> None:
        self.id = id
        self.members = members
        self.ranks = {name: rank for rank, name in enumerate(members)}


class Stay:
    """One life in one view, and the log of what it delivered there."""

    __slots__ = (
        "block",
        "early",
        "holed",
        "id",
        "installed",
        "life",
        "locals",
        "marks",
        "next",
        "next_view",
        "order",
        "rank",
        "spans",
        "strange",
        "totals",
        "transitional",
        "view",
        "voids",
    )

    def __init__(self, life: Life, view: MemberList, order: str | None) -> None:
        self.life = life
        self.view = view
        self.id = view.id
        self.rank = view.ranks.get(life.name)
        self.order = order  # None: rows name the view, but there is no VIEW row
        self.installed = order is not None
        self.holed = False  # rows of this stay are missing
        self.next_view: str | None = None
        self.transitional: tuple[str, ...] | None = None
        # The log: three lists side by side, because there are as many entries as deliveries.
        self.spans: list[Span] = []
        self.locals = array("q")
        self.marks = bytearray()
        self.totals = 0
        self.block: int | None = None  # length of the log at the first BLOCK
        # By rank: everything cast in this view below it was delivered or placed; -1: nothing was yet.
        self.next = [-1] * len(view.members)
        self.early: dict[int, Spans] = {}  # by rank: delivered beyond `next`
        self.strange = False  # something delivered is not covered by `next` and `early`
        self.voids: dict[int, Spans] = {}  # by origin's number: addressed to this member, but the payload was void

    def missing(self, origin: Life, rank: int, start: int, end: int) -> list[tuple[int, int]]:
        """What `origin` (with this rank here) cast in this view, ``start … end-1``, and was not delivered here so far."""
        first = self.next[rank]
        if first < 0:
            first = origin.starts.get(self.id, end)
        first = max(first, start)
        if first >= end:
            return []
        early = self.early.get(rank)
        return early.outside(first, end) if early else [(first, end)]

    def local_of(self, origin: Life, first: int, end: int, *, placed: bool = True) -> int | None:
        """The first row that delivered (or, with `placed`, placed) one of these messages."""
        for (number, low, high), local, mark in zip(self.spans, self.locals, self.marks, strict=True):
            if number == origin.number and low < end and first < high and (placed or not mark & PLACED):
                return local
        return None

    def early_ranges(self) -> dict[int, Spans]:
        return {rank: spans for rank, spans in self.early.items() if spans}


class Cast:
    """One batch as its origin cast it."""

    __slots__ = ("destinations", "digest", "end", "first", "local_index", "origin", "service", "span", "stay", "view")

    def __init__(self, origin: Life, stay: Stay, event: Event) -> None:
        assert event.first is not None
        assert event.count is not None
        self.origin = origin
        self.stay = stay
        self.view = stay.id
        self.first = event.first
        self.end = event.first + event.count
        self.span: Span = (origin.number, self.first, self.end)
        self.service = event.service
        self.destinations = event.destinations
        self.digest = event.digest
        self.local_index = event.local_index

    def addresses(self, life: Life) -> bool:
        return self.destinations is None or life.name in self.destinations


class DeliveredPart:
    """Messages ``first … end-1`` of one cast, delivered or placed in a stay. Only valid while it is being looked at."""

    __slots__ = ("cast", "end", "event", "first", "origin", "rank", "stay")

    def __init__(
        self,
        stay: Stay,
        origin: Life,
        rank: int | None,
        first: int,
        end: int,
        cast: Cast | None,
        event: Event,
    ) -> None:
        self.stay = stay
        self.origin = origin
        self.rank = rank  # of the origin in this stay's view, None if it is not in it
        self.first = first
        self.end = end
        self.cast = cast  # None: no CAST of it was seen before
        self.event = event

    @property
    def name(self) -> str:
        return message_name(self.origin, self.first, self.end)


class ViewPassage(NamedTuple):
    """(V→V'): whole stays in one view with the same next view and transitional set, or that ended there with END."""

    view: str
    next_view: str | None
    stays: list[Stay]
    cut: bool
    """Every END says that messages were still under way."""


def message_name(origin: Life, first: int, end: int) -> str:
    """``a:5``, or ``a:5-7`` for several."""
    return named(origin.name, first, end)


def named(origin: str, first: int, end: int) -> str:
    return f"{origin}:{first}" if end == first + 1 else f"{origin}:{first}-{end - 1}"
