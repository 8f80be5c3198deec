"""A run as a space-time diagram: an SVG that stands alone, without scripts, fonts or network.

Members are lines, time runs to the right. A cast is a dot on its caster's line with the message's name; slanted lines lead
to where it is received. From there a bar shows how long the member **held the message back**: pale until its place in the
order was known (t1), strong until it was delivered (t2). The number behind a delivery counts the deliveries at that member,
so that one reads the total order along each line. Colours are the origins. Every mark has a tooltip.

The same events make the same bytes, in whatever order they come. `events` reads them, `layout` places everything, `svg` has the
shapes and colours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from unisono.trace import schema
from unisono.trace.diagram import svg
from unisono.trace.diagram.events import (
    BatchName,
    HeldBatch,
    Highlight,
    Point,
    counted,
    duration,
    message_of,
    tell,
    tell_hold,
)
from unisono.trace.diagram.layout import (
    BAR,
    CAP,
    NOTE_SIZE,
    ON_THE_LINE,
    UNDRAWN,
    DiagramLayout,
    MemberRow,
    lay_out,
    shortened,
    text_width,
)
from unisono.trace.diagram.svg import Theme
from unisono.trace.schema import Event, TraceError

LEFT, RIGHT = 20.0, 24.0
NAMES_ON_BOTH_SIDES = 1500  # a plot wider than a screen has the members' names at its right end, too


def render(
    events: Iterable[Event],
    *,
    title: str = "",
    start_ns: int | None = None,
    end_ns: int | None = None,
    theme: Theme = "auto",
    highlight: Collection[Highlight] = (),
) -> str:
    """Draw the events of one group as SVG.

    `start_ns` and `end_ns` cut a window out of the run; without one, a long run shows its first messages and says so.
    `highlight` names messages (`a:3`) or events (`("b", 17)`: member and local index) that stand out while the rest fades;
    a long run then shows the messages around them.
    """
    return _Drawing(lay_out(events, start_ns, end_ns, highlight), title, theme).svg()


def cut_window(events: Collection[Event], start_ns: int | None, end_ns: int | None) -> tuple[int | None, int | None]:
    """A window that is counted from the beginning of the run, as `render` takes it; an empty one is refused.

    Virtual time begins at 0. On real clocks the run begins with its earliest row, so a window makes sense for
    members of one machine, whose clocks are one.
    """
    if start_ns is None and end_ns is None:
        return None, None
    if start_ns is not None and end_ns is not None and start_ns >= end_ns:
        raise TraceError(f"the window from {duration(start_ns)} to {duration(end_ns)} is empty: --to must be later.")
    times = [event.time_ns for event in events if event.kind not in UNDRAWN]
    begin = 0 if all(event.clock == "simulated" for event in events) else min((e.time_ns for e in events), default=0)
    low, high = (None if one is None else begin + one for one in (start_ns, end_ns))
    if not any((low is None or low <= at) and (high is None or at <= high) for at in times):
        lasts = duration(max(times, default=begin) - begin)
        since = "" if start_ns is None else f" from {duration(start_ns)}"
        until = "" if end_ns is None else f" to {duration(end_ns)}"
        raise TraceError(f"nothing happens{since}{until}: the run lasts {lasts}.")
    return low, high


class _Drawing:
    """The layers of one diagram, from the paper up."""

    def __init__(self, layout: DiagramLayout, title: str, theme: Theme) -> None:
        self.layout, self.scale, self.names, self.rows = layout, layout.scale, layout.names, layout.rows
        self.title, self.theme = title, theme
        self.row_of = {row.life.name: row for row in self.rows}
        self.colour_of = {name: i for i, name in enumerate(layout.names.origins)}
        installed = {p.event.view or "" for row in self.rows for p in row.life.points if p.event.kind == schema.VIEW}
        in_order = sorted(installed, key=lambda view: (schema.view_number(view), view))
        self.shade_of = {view: i % 3 for i, view in enumerate(in_order)}
        self.width = layout.right + RIGHT
        self.name_again: float | None = None
        if self.scale.right - self.scale.left > NAMES_ON_BOTH_SIDES:
            self.name_again = layout.right + 14
            self.width += 14 + layout.names_width

    def svg(self) -> str:
        head, y = self.head()
        self.top, self.bottom = y, self.layout.stack(y)
        axis, height = self.axis()
        layers = [
            svg.rect(0, self.width, height / 2, height, "paper"),
            *(part for row in self.rows for part in self.views(row)),
            *axis,
            *(part for row in self.rows for part in self.installations(row)),
            *(part for row in self.rows for hold in row.holds for part in self.way(row, hold)),
            *(part for row in self.rows for part in self.life(row)),
            *(self.hold(row, hold) for row in self.rows for hold in row.holds),
            *(part for row in self.rows for part in self.flags(row)),
            *(part for row in self.rows for part in self.rings(row)),
            *head,
        ]
        width_, height_ = svg.coordinate(self.width), svg.coordinate(height)
        root = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{svg.root_class(self.theme)}" role="img" '
            f'aria-label="{svg.clean(self.title or "Space-time diagram")}" '
            f'width="{width_}" height="{height_}" viewBox="0 0 {width_} {height_}">'
        )
        return "\n".join([root, f"<style>\n{svg.style(self.theme)}</style>", *layers, "</svg>", ""])

    # What surrounds the plot.

    def head(self) -> tuple[list[str], float]:
        y = 30.0
        parts = []
        if self.title:
            parts.append(svg.text(LEFT, y, self.title, "title"))
            y += 19
        for note in self.notes():
            parts.append(svg.text(LEFT, y, note, "note"))
            y += 16
        x = LEFT
        y += 6
        for glyph, width, words in self.legend():
            wide = width + 6 + text_width(words, NOTE_SIZE) + 12
            if x > LEFT and x + wide > self.width:
                x, y = LEFT, y + 20
            place = f"translate({svg.coordinate(x)} {svg.coordinate(y - 4)})"
            parts.append(f'<g class="plain" transform="{place}">{glyph}</g>')
            parts.append(svg.text(x + width + 6, y, words, "legend"))
            x += wide
        return parts, y + 18

    def notes(self) -> Iterator[str]:
        if not self.rows:
            yield "There are no events."
            return
        orders = sorted({point.event.protocol for row in self.rows for point in row.life.points})
        batches = any(hold.count > 1 for row in self.rows for hold in row.holds)
        noun, shown, total = "batch" if batches else "message", len(self.layout.shown), self.layout.messages
        yield f"{', '.join(orders)} · {counted(len(self.rows), 'member')} · {counted(total, noun)}"
        if shown < total:
            which = "the first" if self.layout.emphasis.is_empty else "the highlighted and their neighbours:"
            yield f"showing {which} {counted(shown, noun)} of {total}; a time window shows others"

    def legend(self) -> Iterator[tuple[str, float, str]]:
        """The marks that occur: a glyph around the height 0, its width, what it means."""
        holds = [hold for row in self.rows for hold in row.holds]
        kinds = {point.event.kind for row in self.rows for point in row.life.points if self.scale.inside(point)}
        if holds:
            several = min(3, len(self.names.origins))
            chips = "".join(svg.dot(5 + 7 * i, 0, 4, f"chip o{i}") for i in range(several))
            dashed = "; dashed: from the ninth on" if len(self.names.origins) > svg.ORIGINS else ""
            yield chips, 3 + 7 * several, f"colour: who cast it{dashed}"
            yield svg.dot(4, 0, 4.2, "cast"), 8, "cast"
            yield svg.line(0, -5, 16, 4, "way") + svg.dot(16, 4, 2.2, "receive"), 18, "on its way, received"
        if any(hold.ordered for hold in holds):
            bars = svg.rect(0, 16, 0, BAR, "t1") + svg.rect(16, 30, 0, BAR, "t2")
            yield bars + svg.line(16, -5, 16, 5, "ordered"), 30, "held back: place unknown (t1) | known (t2)"
        elif holds:
            yield svg.rect(0, 24, 0, BAR, "t1"), 24, "held back"
        if schema.DELIVER in kinds:
            of = "; t: total, c: causal, f: fifo …" if self.names.several_services else ""
            yield svg.cap(0, 0, "deliver") + svg.text(7, 4, "7", "number"), 13, f"delivered, its number there{of}"
        if schema.PLACE in kinds:
            yield svg.cap(1, 0, "place"), 6, "not addressed: only its place passes"
        if any(hold.end is None for hold in holds):
            yield svg.rect(0, 24, 0, BAR, "open"), 24, "never delivered here"
        if schema.BLOCK in kinds:
            yield svg.hatch(0, 24, -6, 6), 24, "blocked by a view change"
        if schema.CRASH in kinds:
            yield svg.cross(6, 0), 12, "crash"
        if kinds & ON_THE_LINE:
            yield svg.diamond(4, 0), 8, "something else: see its tooltip"
        if self.scale.breaks:
            yield svg.line(2, -7, 2, 7, "break") + svg.line(10, -7, 10, 7, "break"), 12, "a pause, cut short"

    def axis(self) -> tuple[list[str], float]:
        y = self.bottom + 2
        parts = [svg.line(self.scale.left, y, self.scale.right, y, "life")]
        taken = []
        for start, end in self.scale.breaks:
            x0, x1 = self.scale.x(start), self.scale.x(end)
            parts += [svg.line(x, self.top, x, y + 5, "break") for x in (x0, x1)]
            parts.append(svg.text((x0 + x1) / 2, y + 17, f"+{duration(end - start)}", "tick middle"))
            taken.append((x0 - 4, x1 + 4))
        for at, words in self.layout.ticks():
            x, half = self.scale.x(at), text_width(words, NOTE_SIZE) / 2
            if all(x + half < x0 or x - half > x1 for x0, x1 in taken):
                parts.append(svg.line(x, self.top, x, y, "grid") + svg.line(x, y, x, y + 5, "life"))
                parts.append(svg.text(x, y + 17, words, "tick middle"))
                taken.append((x - half - 4, x + half + 4))
        y += 36
        if not self.layout.by_time:
            explained = "lines only say what came before what at one member, and that a cast comes before its receipts."
            parts.append(svg.text(LEFT, y, "Steps, not time: the clocks of these members cannot be compared;", "note"))
            parts.append(svg.text(LEFT, y + 16, explained, "note"))
            y += 32
        return parts, y

    # One member's row.

    def views(self, row: MemberRow) -> Iterator[str]:
        """The views as shades behind a line, and the spans in which a view change blocked it."""
        middle, height = (row.top + row.bottom) / 2, row.bottom - row.top
        for start, end in self.spans(row, schema.VIEW, {schema.VIEW}):
            x0, x1 = self.scale.clamped(start) - 2, self.scale.clamped(end) + 2
            shade = f"v{self.shade_of[start.event.view or '']}"
            yield svg.rect(x0, x1, middle, height, shade, tell(row.life, start))
        for start, end in self.spans(row, schema.BLOCK, {schema.VIEW, schema.UNBLOCK}):
            x0, x1 = self.scale.clamped(start), self.scale.clamped(end)
            yield svg.hatch(x0, x1, row.top, row.bottom, tell(row.life, start))

    def spans(self, row: MemberRow, begin: str, end: Collection[str]) -> list[tuple[Point, Point]]:
        """From each beginning to the next end, or to the end of the life."""
        began: Point | None = None
        spans = []
        for point in row.life.points:
            if began is not None and point.event.kind in end:
                spans.append((began, point))
                began = None
            if began is None and point.event.kind == begin:
                began = point
        if began is not None:
            spans.append((began, row.life.points[-1]))
        return [(a, b) for a, b in spans if a.at <= self.scale.high and b.at >= self.scale.low]

    def installations(self, row: MemberRow) -> Iterator[str]:
        for flag in row.flags:
            if flag.point.event.kind == schema.VIEW and self.scale.inside(flag.point):
                told = tell(row.life, flag.point)
                yield svg.line(flag.x, row.flag_y(flag) - 8, flag.x, row.bottom, "install", told)
                yield svg.pennant(flag.x, row.line, told)

    def life(self, row: MemberRow) -> Iterator[str]:
        points, y, name = row.life.points, row.line, row.life.name
        in_view = next((point for point in points if point.event.kind == schema.VIEW), points[-1])
        x0, x1, x2 = (self.scale.clamped(point) for point in (points[0], in_view, points[-1]))
        yield svg.line(x0, y, x1, y, "life dotted") + svg.line(x1, y, x2, y, "life")
        yield svg.dot(LEFT + 5, y, 5, f"chip {self.colour(name)}")
        yield svg.text(LEFT + 17, y + 5, self.names.member(name), "member", name)
        if name in self.names.aliases:
            yield svg.text(LEFT + 17, y + 19, shortened(name), "note", name)
        if self.name_again is not None:
            yield svg.text(self.name_again, y + 5, self.names.member(name), "member", name)
        for point in points:
            if point.event.kind in ON_THE_LINE and self.scale.inside(point):
                yield svg.diamond(self.scale.x(point.at), y, tell(row.life, point))
        if not self.scale.inside(points[-1]):
            return
        if points[-1].event.kind == schema.CRASH:
            yield svg.cross(x2, y, tell(row.life, points[-1]))
        elif points[-1].event.kind in schema.ENDINGS:
            yield svg.line(x2, y - 6, x2, y + 6, "life", tell(row.life, points[-1]))
        else:
            told = f"{name}: the trace stops here; what came after is unknown"
            yield svg.line(x2, y, x2 + 16, y, "life dotted", told)

    def flags(self, row: MemberRow) -> Iterator[str]:
        for flag in row.flags:
            kind, told = flag.point.event.kind, tell(row.life, flag.point)
            y = row.flag_y(flag)
            parts = svg.text(flag.x + 3, y, flag.text, "flag", told)
            if kind != schema.VIEW:
                parts += svg.line(flag.x, row.line, flag.x, y - 8, "pole")
            if kind == schema.CAST:
                parts += svg.dot(flag.x, row.line, 4.2, "cast", told)
            yield svg.group(self.css(message_of(flag.point.event)), parts)

    def rings(self, row: MemberRow) -> Iterator[str]:
        """Around the events that the caller pointed at."""
        lane = {id(p): row.lane_y(hold) for hold in row.holds for p in (hold.start, hold.ordered, hold.end) if p}
        for point in row.life.points:
            if self.layout.emphasis.marks(row.life, point) and self.scale.inside(point):
                kind, x = point.event.kind, self.scale.x(point.at)
                y = row.line if kind == schema.CAST else lane.get(id(point), row.line)
                x += CAP / 2 if kind in (schema.DELIVER, schema.PLACE) else 0
                yield svg.rect(x - 6, x + 6, y, BAR + 10, "ring", tell(row.life, point))

    # One message.

    def way(self, row: MemberRow, hold: HeldBatch) -> Iterator[str]:
        """The slanted line from the cast, cut at the edges; dotted to the delivery where no receipt was recorded."""
        caster = self.row_of.get(hold.message.origin)
        if hold.cast is None or caster is None:
            return
        if caster is row:
            x, y = self.scale.x(hold.cast.at), row.lane_y(hold)
            if hold.start and self.scale.inside(hold.start):
                yield svg.group(self.css(hold.message), svg.line(x, row.line, x, y, "drop"))
            return
        (x0, y0), (x1, y1) = (self.scale.x(hold.cast.at), caster.line), (self.scale.x(hold.first.at), row.lane_y(hold))
        left, right = self.scale.left, self.scale.right
        if max(x0, x1) < left or min(x0, x1) > right:
            return
        slope = (y1 - y0) / (x1 - x0) if x1 != x0 else 0.0
        cut0, cut1 = min(max(x0, left), right), min(max(x1, left), right)
        took = f", {duration(hold.first.at - hold.cast.at)} under way" if self.layout.by_time else ""
        told = f"{hold.message.name(hold.count)} to {row.life.name}{took}"
        css = "way" if hold.start else "way unseen"
        drawn = svg.line(cut0, y0 + (cut0 - x0) * slope, cut1, y1 + (cut1 - x1) * slope, css, told)
        yield svg.group(self.css(hold.message), drawn)

    def hold(self, row: MemberRow, hold: HeldBatch) -> str:
        scale, life, y = self.scale, row.life, row.lane_y(hold)
        x0, x1 = scale.clamped(hold.first), scale.clamped(hold.last)
        known = min(max(scale.clamped(hold.ordered), x0), x1) if hold.ordered else x1
        bars = ((x0, known, "t1"), (known, x1, "t2")) if hold.end else ((x0, x1, "open"),)
        parts = [svg.rect(a, b, y, BAR, css) for a, b, css in bars if b > a]
        if hold.start and hold.start.event.kind == schema.RECEIVE and scale.inside(hold.start):
            parts.append(svg.dot(x0, y, 2.2, "receive", tell(life, hold.start)))
        if hold.ordered and scale.inside(hold.ordered):
            parts.append(svg.line(known, y - BAR / 2 - 1, known, y + BAR / 2 + 1, "ordered", tell(life, hold.ordered)))
        x = x1 + 3
        if hold.end and scale.inside(hold.end):
            css, told = hold.end.event.kind.lower(), f"{tell(life, hold.end)}; {tell_hold(life, hold)}"
            parts.append(svg.cap(x1, y, css, told))
            parts.append(svg.text(x1 + CAP + 3, y + 3.8, self.names.number(hold.end.event), "number"))
            x = x1 + CAP + 3 + self.names.number_width(hold.end.event)
        if scale.inside(hold.last):
            parts.append(svg.text(x, y + 3.4, self.names.message(hold.message, hold.count), "name"))
        return svg.group(self.css(hold.message), "".join(parts), tell_hold(life, hold))

    # Names and colours.

    def colour(self, origin: str) -> str:
        i = self.colour_of[origin]
        return f"o{i % svg.ORIGINS}" + (" again" if i >= svg.ORIGINS else "")

    def css(self, message: BatchName | None) -> str:
        emphasis = self.layout.emphasis
        if message is None:
            return "plain"
        return self.colour(message.origin) + (
            "" if emphasis.is_empty else " hi" if message in emphasis.messages else " lo"
        )
