"""What a space-time diagram is drawn with: shapes as SVG text, and the style sheet for light and dark.

The colours of the origins were chosen so that any two of them stay apart for normal sight and for the three colour
blindnesses, and each stands out from its paper. No rule uses variables, and nothing has an id: old renderers draw the light
theme, and several diagrams can stand in one page.
"""

from __future__ import annotations

from html import escape
from typing import Literal, NamedTuple, TypeAlias

from unisono.trace.diagram.layout import BAR, CAP, LABEL_SIZE, MEMBER_SIZE, NAME_SIZE, NOTE_SIZE, NUMBER_SIZE
from unisono.trace.sanitize import sanitize_lines

Theme: TypeAlias = Literal["light", "dark", "auto"]


def coordinate(value: float) -> str:
    """A tenth of a pixel is enough, and the same on every machine."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def clean(text: str) -> str:
    """Text that XML can hold and that shows only what it says: other characters are written as their numbers."""
    return escape(sanitize_lines(text))


def tag(name: str, css: str, title: str = "", **attributes: float | str) -> str:
    inner = f"><title>{clean(title)}</title></{name}>" if title else "/>"
    values = "".join(f' {k}="{v if isinstance(v, str) else coordinate(v)}"' for k, v in attributes.items())
    return f'<{name} class="{css}"{values}{inner}'


def group(css: str, parts: str, title: str = "") -> str:
    return f'<g class="{css}">{f"<title>{clean(title)}</title>" if title else ""}{parts}</g>'


def text(x: float, y: float, words: str, css: str, title: str = "") -> str:
    tooltip = f"<title>{clean(title)}</title>" if title else ""
    return f'<text class="{css}" x="{coordinate(x)}" y="{coordinate(y)}">{tooltip}{clean(words)}</text>'


def rect(x0: float, x1: float, y: float, height: float, css: str, title: str = "") -> str:
    return tag("rect", css, title, x=x0, y=y - height / 2, width=x1 - x0, height=height)


def line(x0: float, y0: float, x1: float, y1: float, css: str, title: str = "") -> str:
    return tag("line", css, title, x1=x0, y1=y0, x2=x1, y2=y1)


def dot(x: float, y: float, r: float, css: str, title: str = "") -> str:
    return tag("circle", css, title, cx=x, cy=y, r=r)


def path(x: float, y: float, d: str, css: str, title: str = "") -> str:
    return tag("path", css, title, d=f"M{coordinate(x)} {coordinate(y)}{d}")


def cap(x: float, y: float, css: str, title: str = "") -> str:
    """The mark of a delivery: the instant is its left edge, where the bar ends."""
    return tag("rect", css, title, x=x, y=y - BAR / 2 - 1, width=CAP, height=BAR + 2, rx=1)


def cross(x: float, y: float, title: str = "") -> str:
    return path(x - 6, y - 6, "l12 12m0 -12l-12 12", "cross", title)


def diamond(x: float, y: float, title: str = "") -> str:
    return path(x - 4, y, "l4 -4l4 4l-4 4z", "solid", title)


def pennant(x: float, y: float, title: str = "") -> str:
    return path(x, y - 5, "l7 5l-7 5z", "solid", title)


def hatch(x0: float, x1: float, top: float, bottom: float, title: str = "") -> str:
    """Slanted strokes, computed rather than a pattern: a pattern needs an id, and ids clash in a page with two diagrams."""
    height = bottom - top
    strokes = []
    x = x0 - height
    while x < x1:
        left, right = max(x, x0), min(x + height, x1)
        if right - left > 0.5:
            ends = (left, bottom - (left - x)), (right, bottom - (right - x))
            strokes.append("M{} {}L{} {}".format(*(coordinate(value) for end in ends for value in end)))
        x += 7
    area = rect(x0, x1, (top + bottom) / 2, height, "area")
    return group("", tag("path", "hatch", d="".join(strokes)) + area, title)


class Palette(NamedTuple):
    paper: str
    ink: str
    muted: str
    grid: str
    views: tuple[str, str, str]
    hatch: str
    alarm: str
    origins: tuple[str, ...]


LIGHT = Palette(
    paper="#ffffff",
    ink="#18202b",
    muted="#556070",
    grid="#d9dee7",
    views=("#f3f5f8", "#e6edf8", "#f7f1e3"),
    hatch="#9aa5b5",
    alarm="#c4001a",
    origins=("#0e47ca", "#fa6e1d", "#3cb5a0", "#891368", "#6e540a", "#a795ff", "#2e82b4", "#a96460"),
)
DARK = Palette(
    paper="#10151c",
    ink="#eef2f7",
    muted="#a0abbb",
    grid="#2b3442",
    views=("#19202a", "#1a2638", "#29241a"),
    hatch="#5f6c7f",
    alarm="#ff6b6b",
    origins=("#2b7df8", "#f59926", "#4acaad", "#9f7199", "#fee252", "#bc9cfe", "#9ae5fb", "#e4573f"),
)
ORIGINS = len(LIGHT.origins)

SHAPES = f"""
text {{ font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif }}
.title {{ font-size: 17px; font-weight: 600 }}
.note, .tick, .legend {{ font-size: {NOTE_SIZE}px }}
.member {{ font-size: {MEMBER_SIZE}px; font-weight: 600 }}
.flag {{ font-size: {LABEL_SIZE}px }}
.number {{ font-size: {NUMBER_SIZE}px; font-weight: 700 }}
.name {{ font-size: {NAME_SIZE}px }}
.flag, .number, .name {{ paint-order: stroke; stroke-width: 3px; stroke-linejoin: round }}
.middle {{ text-anchor: middle }}
.life {{ stroke-width: 1.6 }}
.dotted {{ stroke-dasharray: 2 4 }}
.pole {{ stroke-width: .8 }}
.install {{ stroke-width: 1.4 }}
.hatch {{ fill: none }}
.area {{ fill-opacity: 0 }}
.break {{ stroke-dasharray: 3 3 }}
.cross {{ stroke-width: 3; stroke-linecap: round; fill: none }}
.ring {{ stroke-width: 2; fill: none }}
.way {{ stroke: currentColor; stroke-width: 1.1; stroke-opacity: .45 }}
.again .way {{ stroke-dasharray: 7 3 }}
.way.unseen {{ stroke-dasharray: 2 3 }}
.drop {{ stroke: currentColor; stroke-width: 1.1; stroke-opacity: .6 }}
.t1 {{ fill: currentColor; fill-opacity: .36 }}
.t2 {{ fill: currentColor; fill-opacity: .78 }}
.open {{ fill: currentColor; fill-opacity: .1; stroke: currentColor; stroke-dasharray: 3 2 }}
.ordered {{ stroke: currentColor; stroke-width: 1.4 }}
.receive, .cast, .deliver, .chip {{ fill: currentColor }}
.place {{ stroke: currentColor; stroke-width: 1.5 }}
.lo {{ opacity: .25 }}
.hi .way {{ stroke-width: 2.2; stroke-opacity: .95 }}
.hi .t1, .hi .t2, .hi .deliver, .hi .cast {{ stroke-width: 1.2 }}
"""


def _colours(palette: Palette) -> str:
    fixed = f"""
.paper, .place {{ fill: {palette.paper} }}
text, .solid {{ fill: {palette.ink} }}
.name, .tick, .note, .legend {{ fill: {palette.muted} }}
.flag, .number, .name {{ stroke: {palette.views[0]} }}
.life, .cross, .install, .hi .t1, .hi .t2, .hi .deliver, .hi .cast {{ stroke: {palette.ink} }}
.pole, .break {{ stroke: {palette.muted} }}
.grid {{ stroke: {palette.grid} }}
.hatch {{ stroke: {palette.hatch} }}
.ring {{ stroke: {palette.alarm} }}
.plain {{ color: {palette.muted} }}
"""
    views = "".join(f".v{i} {{ fill: {colour} }}\n" for i, colour in enumerate(palette.views))
    return fixed + views + "".join(f".o{i} {{ color: {colour} }}\n" for i, colour in enumerate(palette.origins))


def _scoped(rules: str, theme: Theme) -> str:
    """Every selector below the root's class, so that a page around the diagram is left alone."""
    lines = []
    for rule in rules.strip().splitlines():
        selectors, body = rule.split(" {", 1)
        scoped = ", ".join(f".{root_class(theme)} {selector}" for selector in selectors.split(", "))
        lines.append(f"{scoped} {{{body}\n")
    return "".join(lines)


def root_class(theme: Theme) -> str:
    return f"unisono-diagram-{theme}"


def style(theme: Theme) -> str:
    """The style sheet. `auto` follows the reader's setting where the renderer knows it, and is light elsewhere."""
    rules = _scoped(SHAPES, theme) + _scoped(_colours(DARK if theme == "dark" else LIGHT), theme)
    if theme == "auto":
        rules += "@media (prefers-color-scheme: dark) {\n" + _scoped(_colours(DARK), theme) + "}\n"
    return rules
