"""What tests of the space-time diagram share: traces to draw, and a drawing read back into marks and boxes.

The boxes of texts are computed from the drawing alone, with the letter widths of a wide font (DejaVu Sans).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random
from typing import Any, TypeAlias
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from unisono.trace.diagram import layout as diagram_layout
from unisono.trace.schema import BLOCK, CAST, CRASH, DELIVER, END, ORDERED, PLACE, RECEIVE, SUSPECT, VIEW, Event

MS = 1_000_000


# Traces.


class Trace:
    """A trace that is written down event by event, each at its time."""

    def __init__(self, *members: str, clock: str = "simulated") -> None:
        self.events: list[Event] = []
        self.members, self.clock = members, clock
        self._ordinals: dict[str, int] = {}
        for member in members:
            self.add(0, member, VIEW, members=members)

    def add(self, time: float, member: str, kind: str, message: str = "", **values: Any) -> Event:
        """`message` is `a:3`; the time is in milliseconds."""
        index = sum(event.member == member for event in self.events)
        event = Event("run", "g", "fifo", member, 0, index, int(time * MS), self.clock, kind, view="1@a")
        if message:
            event.origin, _, first = message.rpartition(":")
            event.origin_incarnation, event.first, event.count, event.service = 0, int(first), 1, "total"
        if kind in (DELIVER, PLACE):
            event.ordinal = self._ordinals[member] = self._ordinals.get(member, -1) + 1
        self.events.append(replace(event, **values))
        return self.events[-1]


def poisson(members: int, messages: int, seed: int, clock: str = "simulated", partial: bool = False) -> list[Event]:
    """A total order by the moment at which all have a message; later, each member hears of its place."""
    random = Random(seed)
    names = [chr(ord("a") + i) for i in range(members)]
    happened: list[tuple[float, int, str, str, str]] = []
    now, indices = 0.0, dict.fromkeys(names, 0)
    casts = []
    for _ in range(messages):
        now += random.expovariate(1.0)
        origin = random.choice(names)
        received = {name: now + (0 if name == origin else random.uniform(0.4, 3.0)) for name in names}
        casts.append((max(received.values()), now, origin, indices[origin], received))
        indices[origin] += 1
    delivered = dict.fromkeys(names, 0.0)
    for ready, cast, origin, index, received in sorted(casts):
        message = f"{origin}:{index}"
        happened.append((cast, len(happened), origin, CAST, message))
        for name in names:
            known = max(received[name], ready - random.uniform(0.0, 1.5))
            delivered[name] = max(ready + random.uniform(0.1, 1.0), delivered[name])
            turn = PLACE if partial and random.random() < 0.2 else DELIVER
            if name != origin:
                happened.append((received[name], len(happened), name, RECEIVE, message))
            happened.append((known, len(happened), name, ORDERED, message))
            happened.append((delivered[name], len(happened), name, turn, message))
    trace = Trace(*names, clock=clock)
    for time, _, name, kind, message in sorted(happened):
        trace.add(time, name, kind, message)
    for name in names:
        trace.add(now + 10, name, END)
    return trace.events


def view_change() -> list[Event]:
    """c crashes with a message that only b got; a and b are blocked, and go on in a view of two."""
    trace = Trace("a", "b", "c")
    trace.add(1, "c", CAST, "c:0")
    trace.add(2, "b", RECEIVE, "c:0")
    trace.add(3, "c", CRASH)
    trace.add(6, "a", SUSPECT, attributes={"member": "c"})
    for member in ("a", "b"):
        trace.add(7, member, BLOCK)
        trace.add(9, member, VIEW, view="2@a", members=("a", "b"))
    trace.add(10, "a", CAST, "a:0", view="2@a")
    trace.add(10, "a", DELIVER, "a:0", view="2@a")
    trace.add(11, "b", RECEIVE, "a:0", view="2@a")
    trace.add(12, "b", DELIVER, "a:0", view="2@a")
    trace.add(13, "a", END)
    trace.add(13, "b", END)
    return trace.events


# What is in a drawing.


@dataclass
class Box:
    x0: float
    x1: float
    y0: float
    y1: float
    what: str

    def meets(self, other: Box, slack: float = 0.15) -> bool:
        wide = min(self.x1, other.x1) - max(self.x0, other.x0)
        high = min(self.y1, other.y1) - max(self.y0, other.y0)
        return wide > slack and high > slack


def parse(svg: str) -> Element:
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.removeprefix("{http://www.w3.org/2000/svg}")
    return root


def drawn(root: Element, tag: str) -> Iterator[Element]:
    """Everything with this tag, without the glyphs of the legend."""
    legend = {id(element) for glyph in root.findall("g[@transform]") for element in glyph.iter()}
    return (element for element in root.iter(tag) if id(element) not in legend)


def marks(root: Element, css: str, tag: str = "*") -> list[Element]:
    return [element for element in drawn(root, tag) if css in element.get("class", "").split()]


def told(element: Element) -> str:
    return element.findtext("title", "")


def words(element: Element) -> str:
    return (element.text or "") + "".join(child.tail or "" for child in element)


def number(element: Element, name: str) -> float:
    return float(element.get(name, "nan"))


def places(elements: Iterable[Element]) -> set[tuple[str, int]]:
    """Member and local index, as the tooltips have them."""
    found = (re.match(r"(\S+) .* · local (\d+)", told(element)) for element in elements)
    return {(match[1], int(match[2])) for match in found if match}


def of_kind(events: Iterable[Event], *kinds: str) -> set[tuple[str, int]]:
    return {(event.member, event.local_index) for event in events if event.kind in kinds}


# Overlaps.

WIDTHS = {" ": 0.32, ":": 0.34, ".": 0.32, ",": 0.32, "i": 0.28, "l": 0.28, "–": 0.5, "m": 0.98, "w": 0.82, "@": 1.0}


def text_boxes(root: Element) -> list[Box]:
    sizes = dict(re.findall(r"\.(\w+) \{ font-size: ([\d.]+)px", root.findtext("style", "")))
    sizes |= dict.fromkeys(("note", "tick", "legend"), str(diagram_layout.NOTE_SIZE))
    boxes = []
    for element in drawn(root, "text"):
        css = element.get("class", "").split()
        size = float(sizes[css[0]])
        bold = 1.09 if css[0] in ("number", "member", "title") else 1.0
        wide = size * bold * sum(WIDTHS.get(letter, 0.64) for letter in words(element))
        x, y = number(element, "x") - (wide / 2 if "middle" in css else 0), number(element, "y")
        boxes.append(Box(x, x + wide, y - 0.74 * size, y + 0.2 * size, words(element)))
    return boxes


def rect_boxes(root: Element, *classes: str) -> list[Box]:
    return [
        Box(x, x + number(element, "width"), y, y + number(element, "height"), css)
        for css in classes
        for element in marks(root, css, "rect")
        for x, y in [(number(element, "x"), number(element, "y"))]
    ]


def meeting(boxes: Sequence[Box]) -> list[tuple[str, str]]:
    return [(a.what, b.what) for a, b in combinations(boxes, 2) if a.meets(b)]


Check: TypeAlias = Callable[[Element], list[tuple[str, str]]]
"""What covers what in a drawing."""


def overlapping_texts(root: Element) -> list[tuple[str, str]]:
    return meeting(text_boxes(root))


def overlapping_bars(root: Element) -> list[tuple[str, str]]:
    return meeting(rect_boxes(root, "t1", "t2", "open"))


def texts_on_bars(root: Element) -> list[tuple[str, str]]:
    bars = rect_boxes(root, "t1", "t2", "open", "deliver", "place")
    return [(text.what, bar.what) for text in text_boxes(root) for bar in bars if text.meets(bar)]


CHECKS: list[Check] = [overlapping_texts, overlapping_bars, texts_on_bars]
