"""The plots of a report, each as two PNGs: for light paper and for dark.

Rows are cohorts, so that nine protocols fit and a name never has to be looked up in a legend. The colours are those of the
space-time diagrams, and t1 is faint and t2 strong, as there. Names come from traces: they are shown as they are, never
interpreted.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import matplotlib
from matplotlib.figure import Figure

from unisono.pipeline.report.model import Latency, Measure, MessageCost, ReportData, Tau, Waits, cohort_key
from unisono.pipeline.report.wording import cohort, duration, figures, shortened
from unisono.trace.diagram import DARK, LIGHT, Palette
from unisono.trace.sanitize import sanitize

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PER_INCH = 100  # CSS pixels in an inch of a figure
SHARPNESS = 2  # PNG pixels in a CSS pixel
WIDTH = 560
ROWS_MAX = 14
PANELS_MAX = 12
NAME_MAX = 22
BINS = 140
MS = 1e6


@dataclass(frozen=True)
class Plot:
    """A picture in both themes; width and height are CSS pixels."""

    name: str
    alt: str
    light: bytes
    dark: bytes
    width: int
    height: int
    left_out: int = 0
    """Number of cohorts for which there was no room."""


def draw(data: ReportData) -> dict[str, Plot]:
    """Every plot for which there is something to show, by name."""
    colours = _Colours(data)
    made = {}
    if curves := [one for one in data.latency if len(one.quantiles) > 3]:
        made["latency"] = _plot("latency", _tell_latency(curves), curves, _latency, colours)
    if data.waits:
        made["waits"] = _plot("waits", _tell_waits(data.waits), data.waits, _waits, colours)
    if data.tau:
        made["tau"] = _plot("tau", _tell_tau(data.tau), data.tau, _tau, colours, PANELS_MAX)
    if data.cost:
        made["cost"] = _plot("cost", _tell_cost(data.cost), data.cost, _cost, colours)
    return made


class _Colours:
    """Which of the palette's colours a protocol has, the same in every plot; and how cohorts are called."""

    def __init__(self, data: ReportData) -> None:
        names = sorted({one.protocol for one in data.measures}, key=lambda name: cohort_key(name, None))
        self.index = {name: i for i, name in enumerate(names)}
        self.several = data.several_sizes

    def label(self, protocol: str, members: int | None, room: int = NAME_MAX) -> str:
        return cohort(shortened(sanitize(protocol), room), members, self.several)


@dataclass(frozen=True)
class Pen:
    """One theme."""

    palette: Palette
    colours: _Colours

    def of(self, protocol: str) -> str:
        return self.palette.origins[self.colours.index[protocol] % len(self.palette.origins)]

    def pale(self, protocol: str) -> str:
        """Mixed with the paper instead of transparent, so that no grid shines through."""
        pairs = zip(_rgb(self.of(protocol)), _rgb(self.palette.paper), strict=True)
        return "#" + "".join(f"{round(0.42 * colour + 0.58 * paper):02x}" for colour, paper in pairs)

    def figure(self, height: float, width: float = WIDTH) -> Figure:
        return Figure(figsize=(width / PER_INCH, height / PER_INCH), layout="constrained")

    def clean(self, axes: Axes, grid: str = "x") -> None:
        """Only what helps to read values."""
        axes.set_axisbelow(True)
        axes.grid(axis="x" if grid == "x" else "y", color=self.palette.grid, linewidth=0.8)
        for side in ("top", "right", "left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.tick_params(length=0, colors=self.palette.muted)

    def name_rows(self, axes: Axes, names: Sequence[str]) -> None:
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", colors=self.palette.ink)
        axes.set_ylim(len(names) - 0.4, -0.6)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


Row = TypeVar("Row", bound=Measure)


def _plot(
    name: str,
    alt: str,
    rows: Sequence[Row],
    paint: Callable[[Pen, list[Row]], Figure],
    colours: _Colours,
    room: int = ROWS_MAX,
) -> Plot:
    shown = list(rows[:room])
    settings: dict[Any, Any] = {
        "font.size": 13 * 72 / PER_INCH,
        "text.parse_math": False,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "figure.dpi": PER_INCH * SHARPNESS,
    }
    images = []
    for palette in (LIGHT, DARK):
        colour: dict[Any, Any] = {
            "text.color": palette.ink,
            "axes.labelcolor": palette.muted,
            "axes.edgecolor": palette.grid,
        }
        with matplotlib.rc_context(settings | colour), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a glyph that the font lacks becomes a box, and that is fine
            figure = paint(Pen(palette, colours), shown)
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", dpi=PER_INCH * SHARPNESS, metadata={"Software": None})
        images.append(buffer.getvalue())
    width, height = (round(side * PER_INCH) for side in figure.get_size_inches())
    return Plot(name, alt, images[0], images[1], width, height, len(rows) - len(shown))


# Latency: the distribution of each cohort as a hill, with its median and 99th percentile.


def _latency(pen: Pen, rows: list[Latency]) -> Figure:
    figure = pen.figure(90 + 62 * len(rows))
    axes = figure.subplots()
    most = max(_tail(one) for one in rows) / MS * 1.04 or 1.0
    edges = [most * i / BINS for i in range(BINS + 1)]
    for place, one in enumerate(rows):
        masses = [_share_below(one, high * MS) - _share_below(one, low * MS) for low, high in pairwise(edges)]
        top = _usual_top(masses)
        heights = [min(mass / top, 1.0) * 0.82 for mass in masses]
        base, colour = place + 0.28, pen.of(one.protocol)
        middles = [(low + high) / 2 for low, high in pairwise(edges)]
        pale = pen.pale(one.protocol)
        axes.fill_between(middles, base, [base - h for h in heights], color=pale, linewidth=0, step="mid")
        axes.step(middles, [base - h for h in heights], color=colour, linewidth=1.3, where="mid")
        axes.plot([edges[0], most], [base, base], color=pen.palette.grid, linewidth=1)
        for share, style in ((0.5, "-"), (0.99, (0, (1, 1)))):
            at = (one.quantile(share) or 0.0) / MS
            axes.plot([at, at], [base, base - 0.86], color=pen.palette.ink, linewidth=2, linestyle=style)
    pen.clean(axes)
    pen.name_rows(axes, [pen.colours.label(one.protocol, one.members) for one in rows])
    axes.set_ylim(len(rows) - 0.6, -0.75)
    axes.set_xlim(0, most)
    axes.set_xlabel("ms from cast to delivery   ( | median   ┊ p99)")
    return figure


def _tail(one: Latency) -> float:
    return one.quantile(0.995) or one.quantiles[-1][1]


def _usual_top(masses: Sequence[float]) -> float:
    """The greatest share in a bin, unless one bin dwarfs all others: then it is cut off so that these can be seen."""
    ranked = sorted(masses, reverse=True)
    return min(ranked[0], 2.5 * ranked[1]) or ranked[0] or 1.0


def _share_below(one: Latency, ns: float) -> float:
    """The distribution function, linear between known quantiles."""
    pairs = one.quantiles
    if ns < pairs[0][1]:
        return 0.0
    for (p0, x0), (p1, x1) in pairwise(pairs):
        if ns < x1:
            return p0 + (p1 - p0) * (ns - x0) / (x1 - x0)
    return 1.0


def _tell_latency(rows: Sequence[Latency]) -> str:
    told = [f"{one.protocol} median {duration(one.quantile(0.5))}, p99 {duration(one.quantile(0.99))}" for one in rows]
    return f"Distribution of the latency from cast to delivery. {'; '.join(told[:ROWS_MAX])}."


# t1 and t2: one bar a cohort.


def _waits(pen: Pen, rows: list[Waits]) -> Figure:
    figure = pen.figure(110 + 38 * len(rows))
    axes = figure.subplots()
    longest = max((one.t1_ns + one.t2_ns) / MS for one in rows) or 1.0
    for place, one in enumerate(rows):
        t1, t2 = one.t1_ns / MS, one.t2_ns / MS
        axes.barh(place, t1, 0.62, color=pen.pale(one.protocol), linewidth=0)
        axes.barh(place, t2, 0.62, left=t1, color=pen.of(one.protocol), linewidth=0)
        axes.plot([t1, t1], [place - 0.38, place + 0.38], color=pen.palette.ink, linewidth=1.3)
        told = f"{figures(t1)} + {figures(t2)}"
        axes.annotate(told, (t1 + t2, place), (6, 0), textcoords="offset points", va="center", color=pen.palette.ink)
    pen.clean(axes)
    pen.name_rows(axes, [pen.colours.label(one.protocol, one.members) for one in rows])
    axes.set_xlim(0, longest * 1.28)
    axes.set_xlabel("mean wait at a member, ms: faint t1 + strong t2")
    return figure


def _tell_waits(rows: Sequence[Waits]) -> str:
    told = [f"{one.protocol} t1 {duration(one.t1_ns)}, t2 {duration(one.t2_ns)}" for one in rows[:ROWS_MAX]]
    return f"Mean waits until a message's place is known, and from then until delivery. {'; '.join(told)}."


# The index of latency: a small histogram for each cohort and source, as figures 5 and 6 of the paper.


def _tau(pen: Pen, rows: list[Tau]) -> Figure:
    sources = sorted({one.source for one in rows})
    cohorts = list(dict.fromkeys((one.protocol, one.members) for one in rows))
    if len(sources) == 2 and len(rows) == 2 * len(cohorts):  # a column for each source
        places = [(cohorts.index((one.protocol, one.members)), sources.index(one.source)) for one in rows]
    else:
        places = [divmod(place, 2) for place in range(len(rows))]
    lines = 1 + max(line for line, _ in places)
    figure = pen.figure(46 + 150 * lines)
    grid = figure.subplots(lines, 2, squeeze=False, sharey=True)
    for axes in grid.flat:
        axes.set_visible(False)
    for one, place in zip(rows, places, strict=True):
        axes = grid[place]
        axes.set_visible(True)
        size = one.members or max(tau for tau, _ in one.counts)
        shares = {tau: count / one.messages for tau, count in one.counts}
        axes.bar(list(shares), list(shares.values()), 0.82, color=pen.of(one.protocol), linewidth=0)
        axes.axvline(one.mean, color=pen.palette.ink, linewidth=1.6, linestyle=":")
        pen.clean(axes, "y")
        axes.set_xlim(0.4, size + 0.6)
        axes.set_ylim(0, 1.04)
        axes.set_xticks(range(1, size + 1) if size <= 10 else range(size // 8, size + 1, size // 8))
        axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
        named = [pen.colours.label(one.protocol, one.members, 14), shortened(sanitize(one.source), 10)]
        title = f"{', '.join(filter(None, named))}: mean {one.mean:.2f}"
        axes.set_title(title, loc="left", fontsize=13 * 72 / PER_INCH)
    axis = "τ: members heard of before delivery"
    figure.supxlabel(axis, fontsize=13 * 72 / PER_INCH, color=pen.palette.muted)
    return figure


def _tell_tau(rows: Sequence[Tau]) -> str:
    told = [f"{one.protocol} {one.source} mean {one.mean:.2f} of {one.members or '?'}" for one in rows[:PANELS_MAX]]
    return f"Share of messages by index of latency. {'; '.join(told)}."


# Cost: what was measured as a bar, what theory says as a mark.


def _cost(pen: Pen, rows: list[MessageCost]) -> Figure:
    figure = pen.figure(110 + 38 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    most_packets = max(max(one.packets, one.packets_theory) for one in rows) or 1.0
    most_bytes = max(one.bytes for one in rows) or 1.0
    for place, one in enumerate(rows):
        colour, ink = pen.of(one.protocol), pen.palette.ink
        left.barh(place, one.packets, 0.56, color=colour, linewidth=0)
        left.plot([one.packets_theory] * 2, [place - 0.4, place + 0.4], color=ink, linewidth=2.4)
        end = max(one.packets, one.packets_theory)
        left.annotate(figures(one.packets), (end, place), (6, 0), textcoords="offset points", va="center", color=ink)
        right.barh(place, one.bytes, 0.56, color=colour, linewidth=0)
        right.annotate(
            figures(one.bytes), (one.bytes, place), (6, 0), textcoords="offset points", va="center", color=ink
        )
    for axes, most, label in (
        (left, most_packets, "packets a message;  | theory"),
        (right, most_bytes, "bytes a message"),
    ):
        pen.clean(axes)
        axes.set_xlim(0, most * 1.32)
        axes.set_xlabel(label)
        axes.locator_params(axis="x", nbins=5)
    pen.name_rows(left, [pen.colours.label(one.protocol, one.members) for one in rows])
    return figure


def _tell_cost(rows: Sequence[MessageCost]) -> str:
    told = [f"{one.protocol} {figures(one.packets)}, theory {figures(one.packets_theory)}" for one in rows[:ROWS_MAX]]
    return f"Packets a message, measured and in theory. {'; '.join(told)}."
