"""Where everything in a space-time diagram goes: from lives and holds to pixels.

What a member holds at the same time hangs below its line in sub-lanes; a lane keeps room for the number and the name behind
each delivery. Labels stand above the line on poles, in tiers. The plot becomes wider until both are few enough to read.
`diagram` draws the result and decides nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from unicodedata import combining, east_asian_width

from unisono.trace import schema
from unisono.trace.diagram.events import (
    UNITS,
    VERBS,
    BatchName,
    Emphasis,
    HeldBatch,
    Highlight,
    Lifeline,
    Point,
    message_of,
    place,
    read,
)
from unisono.trace.schema import Event

LABEL_SIZE, NUMBER_SIZE, NAME_SIZE, MEMBER_SIZE, NOTE_SIZE = 10.5, 10.5, 9.5, 14.0, 11.0
BOLD = 1.1  # how much wider that is
TIER, LANE, BAR = 13.0, 14.0, 9.0  # heights: a tier of labels, a sub-lane, the bar in it
LINE_TO_LANES, PAD, ROW_GAP = 15.0, 6.0, 12.0
CAP = 4.0  # the width of a delivery's mark
BREAK = 64.0  # the width of a pause that is cut short
WIDTHS = (860, 1100, 1400, 1700, 2000, 2400, 2800, 3200, 3600)  # of the plot; margins come on top
TIERS_WANTED, LANES_TO_SPARE, MESSAGE_WIDTH, WORTH_WIDENING = 3, 2, 50, 1.2
MESSAGES_MAX, MEMBERS_MAX = 60, 12  # beyond these, only the first messages are shown
TICK_EVERY = 90.0  # the least distance of ticks on the axis
MARGIN, LABEL_MAX = 52.0, 18  # left of the plot, besides the member's name; how much of that is shown
NAME_MAX = 8  # longer addresses would drown the marks: messages then bear a letter for each member
UNDRAWN = schema.SHOWN | {schema.COUNTERS, schema.DROP, schema.STABLE}
ON_THE_LINE = frozenset(schema.KINDS - UNDRAWN - {*VERBS, schema.UNBLOCK})
"""What has no mark of its own: a diamond with a tooltip."""


def text_width(text: str, size: float) -> float:
    """An upper estimate for common sans-serif fonts: the reader's font is unknown when the diagram is drawn."""
    return size * sum(map(_advance, text))


def _advance(character: str) -> float:
    if combining(character):
        return 0.0
    if east_asian_width(character) in "WF":
        return 1.05
    if character in " .,:;|!'ijl()[]–-":
        return 0.40 if character != "–" else 0.55
    return 0.98 if character in "mwMW@%" else 0.76 if character.isupper() else 0.62


def shortened(text: str) -> str:
    return text if len(text) <= LABEL_MAX else text[: LABEL_MAX - 1] + "…"


class Scale:
    """From abscissas to pixels: linear, except that long pauses in which nothing happens are cut short."""

    def __init__(self, low: int, high: int, ats: Iterable[int], left: float, width: float, by_time: bool) -> None:
        self.low, self.high, self.left, self.right = low, max(high, low + 1), left, left + width
        inside = sorted({low, self.high, *(at for at in ats if low <= at <= high)})
        self.breaks = _pauses(inside) if by_time else []
        busy = self.high - low - sum(end - start for start, end in self.breaks)
        self.per_unit = (width - BREAK * len(self.breaks)) / busy

    def x(self, at: int) -> float:
        """Beyond both ends it goes on at the same rate, for lines that come from outside or lead there."""
        skipped = breaks = 0.0
        for start, end in self.breaks:
            share = min(max((at - start) / (end - start), 0.0), 1.0)
            skipped += share * (end - start)
            breaks += share
        return self.left + (at - self.low - skipped) * self.per_unit + breaks * BREAK

    def inside(self, point: Point | None) -> bool:
        return point is not None and self.low <= point.at <= self.high

    def clamped(self, point: Point) -> float:
        return self.x(min(max(point.at, self.low), self.high))


def _pauses(ats: Sequence[int]) -> list[tuple[int, int]]:
    """Stretches of time to leave out of the drawing: long gaps between events, without a margin at both ends."""
    gaps = sorted(pairwise(ats), key=lambda gap: (gap[0] - gap[1], gap[0]))
    total = ats[-1] - ats[0]
    share = max(0.25, 6 / len(ats))
    found = []
    for start, end in gaps[:4]:
        if end - start <= share * total:
            break
        total -= end - start
        found.append((start, end))
    rest = total // 20
    return sorted((start + rest, end - rest) for start, end in found if end - start > 4 * rest)


class Names:
    """What is written at the marks: `a:3`, with letters for the members where their addresses are long."""

    def __init__(self, lives: Sequence[Lifeline]) -> None:
        named = [life.name for life in lives]
        self.origins = named + sorted({hold.message.origin for life in lives for hold in life.holds} - set(named))
        self.aliases: dict[str, str] = {}
        if any(len(name) > NAME_MAX for name in self.origins):
            self.aliases = {name: _letters(i) for i, name in enumerate(self.origins)}
        services = {point.event.service for life in lives for point in life.points if point.event.ordinal is not None}
        self.several_services = len(services) > 1

    def member(self, name: str) -> str:
        return self.aliases.get(name, shortened(name))

    def message(self, message: BatchName, count: int) -> str:
        return message.name(count, self.aliases.get(message.origin))

    def number(self, event: Event) -> str:
        """A delivery's ordinal, behind the first letter of its service if there are several: they count apart."""
        service = (event.service or "?")[0] if self.several_services else ""
        return f"{service}{'?' if event.ordinal is None else event.ordinal}"

    def number_width(self, event: Event) -> float:
        return text_width(self.number(event), NUMBER_SIZE * BOLD) + 3

    def flag(self, event: Event) -> str:
        """What stands on a pole above the line, or nothing."""
        message = message_of(event)
        if event.kind == schema.CAST and message is not None:
            return self.message(message, event.count or 1)
        if event.kind == schema.VIEW:
            number, _, proposer = (event.view or "?").partition("@")
            return shortened(f"view {number}@{self.aliases.get(proposer, proposer)}")
        return {schema.CRASH: "crash", schema.LEAVE: "leaves"}.get(event.kind, "")


def _letters(i: int) -> str:
    return (chr(ord("A") + i // 26 - 1) if i >= 26 else "") + chr(ord("A") + i % 26)


@dataclass(slots=True)
class FlagLabel:
    """A label above a life line, on a pole at its left edge."""

    x: float
    text: str
    point: Point
    tier: int = 0


@dataclass(slots=True)
class MemberRow:
    """A life with its pixels. What it holds hangs below the line, flags stand above it."""

    life: Lifeline
    holds: list[HeldBatch]
    flags: list[FlagLabel]
    lanes: int
    lanes_needed: int  # by the bars and marks without their labels
    top: float = 0.0

    @property
    def tiers(self) -> int:
        return 1 + max((flag.tier for flag in self.flags), default=0)

    @property
    def line(self) -> float:
        return self.top + PAD + self.tiers * TIER + 4

    @property
    def bottom(self) -> float:
        return self.line + LINE_TO_LANES + self.lanes * LANE - LANE / 2 + PAD - 2

    def lane_y(self, hold: HeldBatch) -> float:
        return self.line + LINE_TO_LANES + hold.lane * LANE

    def flag_y(self, flag: FlagLabel) -> float:
        return self.line - 6 - flag.tier * TIER


@dataclass(slots=True)
class DiagramLayout:
    rows: list[MemberRow]
    scale: Scale
    names: Names
    by_time: bool
    emphasis: Emphasis
    messages: int  # in the window, shown or not
    shown: frozenset[BatchName]
    names_width: float
    right: float  # where the last label ends

    def stack(self, y: float) -> float:
        """Put the rows below each other from a height on, and say where they end."""
        for row in self.rows:
            row.top = y
            y = row.bottom + ROW_GAP
        return y

    def ticks(self) -> Iterator[tuple[int, str]]:
        """Abscissas of the axis's ticks, with their labels."""
        scale = self.scale
        wanted = TICK_EVERY / scale.per_unit
        step = next(s for e in range(20) for s in (10**e, 2 * 10**e, 5 * 10**e) if s >= wanted)
        span = scale.high - scale.low
        unit, name = next((u for u in UNITS if step >= u[0] or (span >= 10 * u[0] and step * 100 >= u[0])), UNITS[-1])
        first = self.rows[0].life.points[0].event if self.rows else None
        zero = first.time_ns if first and self.by_time and first.clock == "real" else 0
        at = scale.low + (zero - scale.low) % step
        while at <= scale.high:
            end = next((end for start, end in scale.breaks if start < at < end), None)
            if end is not None:  # skip a shortened pause in one step: it has no room for ticks, and may span millions
                at -= (at - end) // step * step
                continue
            yield at, f"{(at - zero) / unit:.10g} {name}" if self.by_time else f"step {at}"
            at += step


def lay_out(
    events: Iterable[Event], start_ns: int | None, end_ns: int | None, highlight: Collection[Highlight]
) -> DiagramLayout:
    """Read, place and arrange."""
    lives = read(events)
    by_time = place(lives)
    names = Names(lives)
    emphasis = Emphasis(lives, highlight)
    size = NOTE_SIZE if names.aliases else MEMBER_SIZE * BOLD
    names_width = max((text_width(shortened(life.name), size) for life in lives), default=0.0)
    low, high = _window(lives, start_ns, end_ns, by_time)
    holds = [h for life in lives for h in life.holds if h.first.at <= high and h.last.at >= low]
    limit = MESSAGES_MAX * MEMBERS_MAX // max(MEMBERS_MAX, len(lives))
    wanted = _wanted(holds, limit, emphasis.messages)
    messages = len({hold.message for hold in holds})
    if len(wanted) < messages:
        ats = [at for h in holds if h.message in wanted for at in (h.first.at, (h.end or h.first).at)]
        low, high = max(low, min(ats)), min(high, max(ats))
    ats = [p.at for life in lives for p in life.points if _drawn(p.event, wanted)]

    def at_width(width: float) -> tuple[Scale, list[MemberRow]]:
        scale = Scale(low, high, ats, MARGIN + names_width, width, by_time)
        return scale, [_arrange(life, wanted, scale, names) for life in lives]

    scale, rows = at_width(_width(lambda width: at_width(width)[1], len(wanted)))
    ends = [flag.x + 3 + text_width(flag.text, LABEL_SIZE) for row in rows for flag in row.flags]
    ends += [scale.clamped(h.last) + CAP + label_width(h, scale, names) for row in rows for h in row.holds]
    return DiagramLayout(
        rows, scale, names, by_time, emphasis, messages, wanted, names_width, max([scale.right, *ends])
    )


def _window(lives: Sequence[Lifeline], start_ns: int | None, end_ns: int | None, by_time: bool) -> tuple[int, int]:
    """The range of abscissas. Without comparable clocks the window counts on each member's own."""
    ats = [
        point.at
        for life in lives
        for point in life.points
        if (start_ns is None or point.event.time_ns >= start_ns) and (end_ns is None or point.event.time_ns <= end_ns)
        if point.event.kind not in UNDRAWN
    ] or [0]
    low, high = min(ats), max(ats)
    if by_time:
        low, high = low if start_ns is None else start_ns, high if end_ns is None else end_ns
    return low, max(low, high)


def _width(rows_at: Callable[[float], list[MemberRow]], messages: int) -> float:
    """The narrowest plot that is roomy, or that is hardly higher than the widest one would be."""

    def height(rows: list[MemberRow]) -> int:
        return sum(row.tiers + row.lanes for row in rows)

    lowest = height(rows_at(WIDTHS[-1]))
    for width in (width for width in WIDTHS if width >= MESSAGE_WIDTH * messages):
        rows = rows_at(width)
        roomy = all(row.lanes <= row.lanes_needed + LANES_TO_SPARE and row.tiers <= TIERS_WANTED for row in rows)
        if roomy or height(rows) <= WORTH_WIDENING * lowest:
            return width
    return WIDTHS[-1]


def _wanted(holds: Sequence[HeldBatch], limit: int, highlight: Collection[BatchName]) -> frozenset[BatchName]:
    """The first messages, or those around the first highlighted one."""
    begun: dict[BatchName, int] = {}
    for hold in holds:
        begun[hold.message] = min(hold.first.at, begun.get(hold.message, hold.first.at))
    order = sorted(begun, key=lambda message: (begun[message], message))
    found = next((i for i, message in enumerate(order) if message in highlight), 0)
    begin = max(0, min(found - limit // 4, len(order) - limit))
    return frozenset(order[begin : begin + limit]) | {message for message in order if message in highlight}


def _drawn(event: Event, wanted: Collection[BatchName]) -> bool:
    return event.kind not in UNDRAWN and (event.first is None or message_of(event) in wanted)


def _arrange(life: Lifeline, wanted: Collection[BatchName], scale: Scale, names: Names) -> MemberRow:
    flags = [
        FlagLabel(scale.x(point.at), text, point)
        for point in life.points
        if scale.inside(point) and _drawn(point.event, wanted) and (text := names.flag(point.event))
    ]
    earlier = [point for point in life.points if point.event.kind == schema.VIEW and point.at < scale.low]
    if earlier and life.points[-1].at >= scale.low:
        flags.append(FlagLabel(scale.left, names.flag(earlier[-1].event), earlier[-1]))
    holds = [h for h in life.holds if h.message in wanted and h.first.at <= scale.high and h.last.at >= scale.low]
    holds.sort(key=lambda hold: (hold.first.at, hold.last.at, hold.message))
    bars = [(scale.clamped(hold.first), scale.clamped(hold.last)) for hold in holds]
    lanes = _lanes(
        [(x0 - 4, x1 + CAP + label_width(h, scale, names) + 5) for h, (x0, x1) in zip(holds, bars, strict=True)]
    )
    for hold, lane in zip(holds, lanes, strict=True):
        hold.lane = lane
    bare = _lanes([(x0, x1 + CAP) for x0, x1 in bars])
    _hoist(flags)
    return MemberRow(life, holds, flags, 1 + max(lanes, default=0), 1 + max(bare, default=0))


def label_width(hold: HeldBatch, scale: Scale, names: Names) -> float:
    """Of the number and the name behind a delivery."""
    if not scale.inside(hold.last):
        return 0.0
    name = text_width(names.message(hold.message, hold.count), NAME_SIZE)
    number = 0.0 if hold.end is None else names.number_width(hold.end.event)
    return 3 + number + name


def _lanes(boxes: Sequence[tuple[float, float]]) -> list[int]:
    """The first lane that is free, for boxes in the order of their left edges."""
    free: list[float] = []
    lanes = []
    for x0, x1 in boxes:
        lane = next((i for i, end in enumerate(free) if end <= x0), len(free))
        free[lane : lane + 1] = [x1]
        lanes.append(lane)
    return lanes


def _hoist(flags: list[FlagLabel]) -> None:
    """Raise a flag over every pole that stands behind its text, from right to left: then no pole crosses a text."""
    flags.sort(key=lambda flag: flag.x)
    for i in range(len(flags) - 1, -1, -1):
        end = flags[i].x + 3 + text_width(flags[i].text, LABEL_SIZE) + 4
        flags[i].tier = max((flag.tier + 1 for flag in flags[i + 1 :] if flag.x < end), default=0)
