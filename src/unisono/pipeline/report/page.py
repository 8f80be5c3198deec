"""The report as one HTML file: everything inside, nothing fetched, readable on paper, phone and laptop, by day and by night.

Texts come from traces and may be hostile. The template escapes all of them; the only markup that is let through is made
here. As a second lock, the page forbids itself every script but its own, and every connection.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.pipeline.report import wording
from unisono.pipeline.report.glance import Glance
from unisono.pipeline.report.lanes import lanes_of
from unisono.pipeline.report.model import FAIL, ReportData
from unisono.pipeline.session import PipelineError
from unisono.trace.diagram import DARK, LIGHT, Palette
from unisono.trace.sanitize import sanitize, sanitize_lines

if TYPE_CHECKING:
    from unisono.pipeline.report.plots import Plot

PAGE = "report.html"
FAILING_OPEN, FAILING_MAX = 8, 100
"""Broken runs whose violations are told at once, and in all."""
SENTENCES_OPEN, UNKNOWN_MAX, REASONS_MAX, PROBLEMS_MAX = 5, 20, 6, 20


def build(data: ReportData, folder: Path) -> Path:
    """Write the page and its plots into the folder. The same data make the same page."""
    try:
        import jinja2
        import matplotlib  # noqa: F401  # so that both are missed in the same words
    except ImportError as error:
        raise PipelineError(
            f"a report needs {error.name}: install the extra with `pip install 'unisono[spark]'`."
        ) from None
    from unisono.pipeline.report import plots

    pictures = plots.draw(data)
    folder.mkdir(parents=True, exist_ok=True)
    for name, plot in pictures.items():
        _write(folder / f"{name}.png", plot.light)
        _write(folder / f"{name}-dark.png", plot.dark)
    environment = jinja2.Environment(
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_text),
    )
    environment.filters.update(duration=wording.duration, figures=wording.figures, grouped=wording.grouped)
    environment.filters.update(svg=_markup, clean=sanitize, brief=wording.brief)
    html = environment.get_template("template.html.j2").render(_context(data, pictures))
    target = folder / PAGE
    _write(target, html.encode("utf-8", "replace"))
    return target


def _context(data: ReportData, pictures: dict[str, Plot]) -> dict[str, Any]:
    ranked = sorted(data.runs, key=lambda run: run.rank)
    broken = [run for run in ranked if run.result == FAIL]
    unknown = [run for run in ranked if run.unknown]
    glance = Glance(data)
    script = _text("page.js")
    return {
        "data": data,
        "glance": glance,
        "style": _markup(_variables() + _text("style.css")),
        "script": _markup(script),
        "script_hash": b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "plots": {name: _embedded(plot) for name, plot in pictures.items()},
        "broken_open": broken[:FAILING_OPEN],
        "broken_folded": broken[FAILING_OPEN:FAILING_MAX],
        "broken_left_out": glance.count[FAIL] - len(broken[:FAILING_MAX]),
        "unknown": unknown[:UNKNOWN_MAX],
        "unknown_left_out": glance.gaps - len(unknown[:UNKNOWN_MAX]),
        "reasons_max": REASONS_MAX,
        "sentences_open": SENTENCES_OPEN,
        "problems": data.problems[:PROBLEMS_MAX],
        "problems_left_out": max(0, len(data.problems) - PROBLEMS_MAX),
        "timelines": [lanes_of(one, data.several_groups) for one in data.timelines],
        "footnotes": [(one, wording.describe(one)) for one in glance.columns],
        "describe": wording.describe,
        "counted": wording.counted,
        "cohort": lambda one: wording.cohort(one.protocol, one.members, data.several_sizes),
        "missing": list(_missing(data)),
    }


def _missing(data: ReportData) -> Iterator[str]:
    """What the reader may look for in vain, and why."""
    if not data.latency:
        yield "latencies (nothing was measured, or the clocks of the members cannot be compared)"
    if not data.waits:
        yield "the waits t1 and t2 (the protocol records no moment at which a place becomes known)"
    if not data.tau:
        yield "the index of latency (only all-ack and ToTo have one)"
    if not data.cost:
        yield "packets and bytes (the trace holds no counters)"
    if not data.timelines:
        yield "the views over time"


def _embedded(plot: Plot) -> dict[str, Any]:
    def uri(png: bytes) -> str:
        return f"data:image/png;base64,{b64encode(png).decode()}"

    return {
        "light": uri(plot.light),
        "dark": uri(plot.dark),
        "alt": plot.alt,
        "width": plot.width,
        "height": plot.height,
        "left_out": plot.left_out,
    }


def _variables() -> str:
    """The diagrams' colours as variables of the page, with those of the verdicts."""
    verdicts = {
        "light": {"pass": "#0a6b5d", "pass-soft": "#e2f3ef", "fail-soft": "#fde8ea", "unknown": "#7d5200",
                  "unknown-soft": "#fbf0d9", "link": "#0e47ca", "card": "#f7f8fa", "solid": "#ffffff"},
        "dark": {"pass": "#4acaad", "pass-soft": "#12332f", "fail-soft": "#3d1a20", "unknown": "#f5b83d",
                 "unknown-soft": "#362a12", "link": "#86b6ff", "card": "#161d27", "solid": "#10151c"},
    }  # fmt: skip

    def block(palette: Palette, extra: dict[str, str]) -> str:
        plain = {"paper": palette.paper, "ink": palette.ink, "muted": palette.muted, "grid": palette.grid}
        plain |= {"hatch": palette.hatch, "fail": palette.alarm}
        plain |= {f"view{i}": colour for i, colour in enumerate(palette.views)}
        return "".join(f"--{name}: {value}; " for name, value in (plain | extra).items())

    return (
        f":root {{ color-scheme: light dark; {block(LIGHT, verdicts['light'])}}}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {block(DARK, verdicts['dark'])}}} }}\n"
    )


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _markup(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _shown(value: Any) -> Any:
    """Text of others, whichever way it came into the page. Our own markup stays as it is."""
    return sanitize_lines(value) if type(value) is str else value


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)
