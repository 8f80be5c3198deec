"""What a space-time diagram shows: who lived, and what each member held from when to when.

**Read** turns the events of a trace into lives and holds, **point out** finds what the caller wants to stand out. **Place**
gives every event an abscissa: its time in a simulated run, or a logical step where the clocks of several members cannot be
compared. **Tell** puts an event or a hold into words, for the tooltips. Broken traces are read as well as whole ones, since
those are the ones that people want to look at.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from unisono.trace import schema
from unisono.trace.schema import Event, TraceError, member_name, view_number

STEPS = schema.ENDINGS | {
    *(schema.CAST, schema.RECEIVE, schema.ORDERED, schema.DELIVER, schema.PLACE),
    *(schema.VIEW, schema.BLOCK, schema.UNBLOCK),
}
UNPLACED = -1
UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
VERBS = {
    schema.CAST: "casts",
    schema.RECEIVE: "receives",
    schema.ORDERED: "knows the place of",
    schema.DELIVER: "delivers",
    schema.PLACE: "passes over",
    schema.VIEW: "installs",
    schema.BLOCK: "is blocked by a view change",
    schema.CRASH: "crashes",
    schema.LEAVE: "leaves",
    schema.END: "ends",
}


class BatchName(NamedTuple):
    """A batch by the name of its caster and its first index: what the rows about it are joined by."""

    origin: str
    first: int

    def name(self, count: int, origin: str | None = None) -> str:
        last = f"–{self.first + count - 1}" if count > 1 else ""
        return f"{self.origin if origin is None else origin}:{self.first}{last}"


def message_of(event: Event) -> BatchName | None:
    if event.origin is None or event.first is None:
        return None
    return BatchName(member_name(event.origin, event.origin_incarnation or 0), event.first)


@dataclass(slots=True, eq=False)
class Point:
    """An event and its abscissa: nanoseconds or steps."""

    event: Event
    at: int = UNPLACED


@dataclass(slots=True, eq=False)
class HeldBatch:
    """One batch at one member, from its arrival (RECEIVE; at its caster CAST) to its turn (DELIVER or PLACE)."""

    message: BatchName
    count: int
    start: Point | None = None
    ordered: Point | None = None
    end: Point | None = None
    until: Point | None = None  # where the wait of a batch that never got its turn is over: next view, or the end
    cast: Point | None = None
    lane: int = 0

    @property
    def first(self) -> Point:
        first = self.start or self.end
        assert first is not None, "a hold has an arrival or a turn"
        return first

    @property
    def last(self) -> Point:
        return self.end or self.until or self.first


@dataclass(slots=True, eq=False)
class Lifeline:
    """One incarnation of one member: a horizontal line. Its points are in local order, and there is at least one."""

    name: str
    points: list[Point]
    holds: list[HeldBatch] = field(default_factory=list)


# Read.


def read(events: Iterable[Event]) -> list[Lifeline]:
    """The lives in a trace of one group, in the order of its views."""
    rows = list(events)
    if len({(row.run, row.group) for row in rows}) > 1:
        raise TraceError("A diagram shows one group of one run: select its events first.")
    grouped: dict[str, list[Point]] = defaultdict(list)
    for row in rows:
        grouped[member_name(row.member, row.incarnation)].append(Point(row))
    views = sorted({(view_number(row.view or ""), row.view or "", row.members or ()) for row in rows if row.members})
    ranked = dict.fromkeys(name for _, _, members in views for name in members)
    names = [name for name in ranked if name in grouped] + sorted(grouped.keys() - ranked.keys())
    lives = [Lifeline(name, sorted(grouped[name], key=_locally)) for name in names]
    for life in lives:
        life.holds = _holds(life.points)
    return lives


def _locally(point: Point) -> tuple[int, int, str]:
    return point.event.local_index, point.event.time_ns, point.event.kind


def _holds(points: Sequence[Point]) -> list[HeldBatch]:
    """Join what happened to each batch here. A second delivery is a hold of its own, so that one sees it."""
    holds: list[HeldBatch] = []
    waiting: dict[BatchName, deque[HeldBatch]] = defaultdict(deque)
    early: dict[BatchName, Point] = {}  # the place of a batch can be known before the batch is here
    views = 0  # how many holds the last view found here
    for point in points:
        event = point.event
        message = message_of(event)
        if event.kind == schema.VIEW:
            for hold in holds[views:]:
                hold.until = point
            views = len(holds)
        if message is None:
            continue
        if event.kind in (schema.CAST, schema.RECEIVE):
            holds.append(HeldBatch(message, event.count or 1, point, early.pop(message, None)))
            waiting[message].append(holds[-1])
        elif event.kind == schema.ORDERED:
            if waiting[message]:
                waiting[message][0].ordered = point
            else:
                early[message] = point
        elif event.kind in (schema.DELIVER, schema.PLACE):
            if not waiting[message]:
                holds.append(HeldBatch(message, event.count or 1))
                waiting[message].append(holds[-1])
            waiting[message].popleft().end = point
    for hold in holds[views:]:
        hold.until = points[-1]
    return holds


# Point out.


Highlight: TypeAlias = str | tuple[str, int]
"""A message by its name (`a:3`), or an event by its member and local index."""


class Emphasis:
    """What is to stand out: messages, and events with the messages that they are about."""

    def __init__(self, lives: Sequence[Lifeline], highlight: Collection[Highlight]) -> None:
        self._events = {item for item in highlight if not isinstance(item, str)}
        named = [_parsed(item) for item in highlight if isinstance(item, str)]
        self.messages: set[BatchName] = set()
        self.is_empty = True
        for life in lives:
            for point in life.points:
                message = message_of(point.event)
                meant = message is not None and any(
                    origin == message.origin and message.first <= index < message.first + (point.event.count or 1)
                    for origin, index in named
                )
                if meant or self.marks(life, point):
                    self.is_empty = False
                    self.messages |= set() if message is None else {message}

    def marks(self, life: Lifeline, point: Point) -> bool:
        return (life.name, point.event.local_index) in self._events


def _parsed(name: str) -> tuple[str, int]:
    """`a:3` and the batch `a:3–7` both mean the batch that holds message 3 of a."""
    origin, _, indices = name.rpartition(":")
    first = indices.partition("–")[0]
    if not (origin and first.isascii() and first.isdigit()):
        raise TraceError(f"{name!r} is not the name of a message: write its origin and index, as in a:3.")
    return origin, int(first)


# Place.


class Casts:
    """Finds the cast of a batch: the cast that starts with its first message, or else a cast that contains it."""

    def __init__(self, lives: Sequence[Lifeline]) -> None:
        self._by_origin: dict[str, list[tuple[int, Point]]] = defaultdict(list)
        for point in (point for life in lives for point in life.points if point.event.kind == schema.CAST):
            message = message_of(point.event)
            if message is not None:
                self._by_origin[message.origin].append((message.first, point))
        for casts in self._by_origin.values():
            casts.sort(key=lambda cast: cast[0])

    def find(self, message: BatchName) -> Point | None:
        casts = self._by_origin.get(message.origin, [])
        i = bisect_right(casts, message.first, key=lambda cast: cast[0]) - 1
        if i < 0 or message.first >= casts[i][0] + (casts[i][1].event.count or 1):
            return None
        return casts[i][1]


def place(lives: Sequence[Lifeline]) -> bool:
    """Give every point its abscissa. False: in steps, because the clocks of several members cannot be compared."""
    casts = Casts(lives)
    by_time = len(lives) < 2 or all(point.event.clock == "simulated" for life in lives for point in life.points)
    if by_time:
        for life in lives:
            for point in life.points:
                point.at = point.event.time_ns
    else:
        _place_by_steps(lives, casts)
    for life in lives:
        for hold in life.holds:
            hold.cast = casts.find(hold.message)
    return by_time


def _place_by_steps(lives: Sequence[Lifeline], casts: Casts) -> None:
    """The longest path over each member's own order and *a cast comes before its receipts and deliveries*.

    A broken trace can hold a cycle: A delivers y and then casts x, B delivers x and then casts y. The first line that waits
    then goes on without its cause.
    """
    placed = [0] * len(lives)
    step = [0] * len(lives)
    forced = False
    while any(done < len(life.points) for done, life in zip(placed, lives, strict=True)):
        progress = False
        for rank, life in enumerate(lives):
            while placed[rank] < len(life.points):
                point = life.points[placed[rank]]
                cause = _cause(point, casts)
                if cause is not None and cause.at == UNPLACED and not forced:
                    break
                forced = False
                after = UNPLACED if cause is None else cause.at
                point.at = step[rank] = max(step[rank] + (point.event.kind in STEPS), after + 1)
                placed[rank] += 1
                progress = True
        forced = not progress


def _cause(point: Point, casts: Casts) -> Point | None:
    event = point.event
    is_effect = event.kind in (schema.RECEIVE, schema.ORDERED, schema.DELIVER, schema.PLACE)
    message = message_of(event) if is_effect else None
    if message is None or message.origin == member_name(event.member, event.incarnation):
        return None
    return casts.find(message)


# Tell.


def duration(nanoseconds: int) -> str:
    unit, name = next((unit for unit in UNITS if abs(nanoseconds) >= unit[0]), UNITS[-1])
    return f"{nanoseconds / unit:.4g} {name}"


def counted(number: int, noun: str) -> str:
    plural = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{plural}"


def tell(life: Lifeline, point: Point) -> str:
    """Who, what, when and where in the trace."""
    event, message = point.event, message_of(point.event)
    what = f" {message.name(event.count or 1)}" if message else ""
    if event.kind == schema.VIEW:
        what = f" view {event.view}: {', '.join(event.members or ())}"
    if event.ordinal is not None:
        what += f" as number {event.ordinal} of {event.service} in view {event.view}"
    details = [event.transaction, event.decision, event.reason]
    details += [f"{key} {value}" for key, value in sorted((event.attributes or {}).items())]
    if any(details):
        what += f" ({', '.join(filter(None, details))})"
    when = f"at {duration(event.time_ns)}"
    if event.clock != "simulated":
        since = event.time_ns - life.points[0].event.time_ns
        when = f"{duration(since)} after its first event, by its own clock"
    return f"{life.name} {VERBS.get(event.kind, event.kind)}{what} · {when} · local {event.local_index}"


def tell_hold(life: Lifeline, hold: HeldBatch) -> str:
    """Both ends belong to one member, so the duration is known with any clock."""
    start, name = hold.first.event.time_ns, hold.message.name(hold.count)
    if hold.end is None:
        return f"{life.name} held {name} and never delivered it"
    end = hold.end.event.time_ns
    told = f"{life.name} held {name} for {duration(end - start)}"
    if hold.ordered is None:
        return told
    known = max(hold.ordered.event.time_ns, start)
    return f"{told}: t1 {duration(known - start)}, t2 {duration(end - known)}"
