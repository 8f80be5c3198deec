"""Figures beside the tables of a result page: SVG on white paper, drawn from the same data."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#2f6fde", "#d9572b", "#2a9d6f", "#8a4fc4", "#b8860b", "#c2407f", "#4a6572")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "unisono",  # so that the same figure is the same file
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
}

Curves = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""By name: the places and the heights of one curve."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure of a page; `alt` describes it for readers who cannot see it."""

    name: str
    alt: str
    svg: str


def curves(
    name: str, alt: str, across: str, up: str, points: Curves, fits: Curves | None = None, log: bool = False
) -> Drawing:
    """Marked points joined by lines; where `fits` has a curve of that name, the points stand alone beside it."""

    def paint(axes: Axes) -> None:
        for i, (label, (x, y)) in enumerate(points.items()):
            colour, fitted = COLOURS[i % len(COLOURS)], (fits or {}).get(label)
            axes.plot(x, y, MARKS[i % len(MARKS)] + ("" if fitted else "-"), color=colour, label=label, markersize=5)
            if fitted:
                axes.plot(*fitted, "--", color=colour, linewidth=1.2)
        axes.set(xlabel=across, ylabel=up)
        if log:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("{x:g}")
        axes.set_ylim(bottom=None if log else 0)
        axes.legend(frameon=False, fontsize=9)

    return _drawn(name, alt, 1, [paint])


def histograms(name: str, alt: str, across: str, panels: Mapping[str, Mapping[int, float]]) -> Drawing:
    """Shares by whole number, a panel each, all on one scale."""
    every = sorted({place for shares in panels.values() for place in shares})

    def painter(title: str, shares: Mapping[int, float]) -> Any:
        def paint(axes: Axes) -> None:
            heights = [100 * shares.get(place, 0.0) for place in every]
            bars = axes.bar([str(place) for place in every], heights, color=COLOURS[0])
            axes.bar_label(bars, fmt="%.0f", fontsize=8)
            axes.set(title=title, xlabel=across, ylim=(0, 100))
            axes.grid(visible=False, axis="x")

        return paint

    return _drawn(name, alt, len(panels), [painter(title, shares) for title, shares in panels.items()], "share (%)")


def stacks(name: str, alt: str, up: str, groups: Mapping[str, Mapping[str, tuple[float, float]]]) -> Drawing:
    """By group and bar two heights on top of each other: t1 faint, t2 strong."""

    def paint(axes: Axes) -> None:
        bars = list(dict.fromkeys(bar for group in groups.values() for bar in group))
        width = 0.8 / len(bars)
        for i, bar in enumerate(bars):
            places = [g + i * width for g in range(len(groups))]
            low, high = ([group[bar][part] for group in groups.values()] for part in (0, 1))
            axes.bar(places, low, width * 0.92, color=COLOURS[i], alpha=0.35, label=f"{bar} t1")
            axes.bar(places, high, width * 0.92, bottom=low, color=COLOURS[i], label=f"{bar} t2")
        axes.set_xticks([g + width * (len(bars) - 1) / 2 for g in range(len(groups))], list(groups))
        axes.set(ylabel=up)
        axes.grid(visible=False, axis="x")
        axes.legend(frameon=False, fontsize=9)

    return _drawn(name, alt, 1, [paint])


def _drawn(name: str, alt: str, panels: int, painters: Sequence[Any], up: str | None = None) -> Drawing:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(
            figsize=(7.2 if panels == 1 else 2.4 * panels, 3.6 if panels == 1 else 2.6), layout="constrained"
        )
        row = figure.subplots(1, panels, squeeze=False, sharey=True)[0]
        for axes, paint in zip(row, painters, strict=True):
            paint(axes)
        if up is not None:
            row[0].set_ylabel(up)
        return Drawing(name, alt, _svg(figure))


def _svg(figure: Figure) -> str:
    target = io.StringIO()
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in target.getvalue().split("\n"))
