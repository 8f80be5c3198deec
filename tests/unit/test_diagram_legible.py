"""The space-time diagram can be read: nothing covers anything, and colours differ for every eye.

The checkers of overlaps are shown drawings with planted faults, for one that cannot fail proves nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from itertools import combinations
from xml.etree.ElementTree import Element

import pytest

from tests.drawings import (
    CHECKS,
    MS,
    Box,
    Check,
    marks,
    number,
    overlapping_bars,
    overlapping_texts,
    parse,
    poisson,
    rect_boxes,
    text_boxes,
    texts_on_bars,
    view_change,
    words,
)
from unisono.sim.faults import Fault
from unisono.sim.run import simulate
from unisono.sim.scenario import Scenario, Source
from unisono.trace.diagram import layout as diagram_layout
from unisono.trace.diagram import svg as diagram_svg
from unisono.trace.diagram.drawing import render
from unisono.trace.schema import Event


def simulated(order: str, members: int, messages: int, *faults: Fault) -> list[Event]:
    scenario = Scenario(order, members, 2, Source(rate=600, messages=messages), faults=faults)
    return list(simulate(scenario, keep=True).events)


SAMPLES: dict[str, Callable[[], list[Event]]] = {
    "small": partial(poisson, 3, 6, 1),
    "large": partial(poisson, 8, 40, 2),
    "subsets": partial(poisson, 5, 20, 3, partial=True),
    "steps": partial(poisson, 4, 15, 4, clock="real"),
    "long": partial(poisson, 6, 100, 5),
    "view change": view_change,
    "abcast": partial(simulated, "abcast", 8, 40),
    "toto": partial(simulated, "toto", 8, 40),
    "causal": partial(simulated, "causal", 8, 40),
    "crash": partial(simulated, "sequencer", 4, 24, Fault("crash", 20 * MS, ("a",))),
}


@pytest.fixture(scope="module", params=SAMPLES)
def sample(request: pytest.FixtureRequest) -> tuple[list[Event], Element]:
    events = SAMPLES[request.param]()
    return events, parse(render(events, title=request.param))


@pytest.mark.parametrize("check", CHECKS)
def test_nothing_covers_anything(check: Check, sample: tuple[list[Event], Element]) -> None:
    _, root = sample
    assert check(root) == []


def test_everything_is_inside_the_picture(sample: tuple[list[Event], Element]) -> None:
    _, root = sample
    width, height = number(root, "width"), number(root, "height")
    assert width <= 4_000
    for box in text_boxes(root) + rect_boxes(root, "t1", "t2", "open", "deliver", "place"):
        assert 0 <= box.x0 <= box.x1 <= width, box
        assert 0 <= box.y0 <= box.y1 <= height, box


def move(element: Element, onto: Element) -> None:
    for name in ("x", "y"):
        element.set(name, onto.get(name, ""))


def test_a_text_that_is_moved_onto_another_is_found() -> None:
    root = parse(render(poisson(3, 6, 1)))
    first, second = marks(root, "flag")[-2:]
    move(first, second)
    assert (words(first), words(second)) in overlapping_texts(root)


def test_a_bar_that_is_moved_onto_another_is_found() -> None:
    root = parse(render(poisson(3, 6, 1)))
    first, second = marks(root, "t1")[:2]
    move(first, second)
    assert overlapping_bars(root)


def test_a_label_that_is_moved_onto_a_bar_is_found() -> None:
    root = parse(render(poisson(3, 6, 1)))
    bar, label = marks(root, "t1")[0], marks(root, "name")[0]
    label.set("x", bar.get("x", ""))
    label.set("y", str(number(bar, "y") + number(bar, "height")))
    assert texts_on_bars(root)


@pytest.mark.seconds
def test_without_lanes_bars_would_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagram_layout, "_lanes", lambda boxes: [0] * len(boxes))
    root = parse(render(poisson(8, 40, 2)))
    assert overlapping_bars(root)
    assert overlapping_texts(root)
    assert texts_on_bars(root)


def test_without_tiers_labels_would_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagram_layout, "_hoist", lambda flags: None)
    assert overlapping_texts(parse(render(poisson(8, 40, 2))))


def test_no_pole_crosses_a_label() -> None:
    root = parse(render(poisson(3, 40, 6)))
    labels = [box for box in text_boxes(root) if re.fullmatch(r"\w:\d+|view.*", box.what)]
    poles = [(number(pole, "x1"), number(pole, "y2"), number(pole, "y1")) for pole in marks(root, "pole")]
    assert len({y for _, y, _ in poles}) > 3, "the labels stand in tiers"
    for x, top, bottom in poles:
        assert not [label for label in labels if label.meets(Box(x - 0.2, x + 0.2, top, bottom, ""), 0)]


# Colours.


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def linear(colour: str) -> list[float]:
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]


SIGHTS = {  # Machado, Oliveira, Fernandes 2009, severity 1, on linear RGB
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deutan": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "tritan": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}


def perceived(colour: str, sight: str) -> tuple[float, ...]:
    """Oklab (Ottosson 2020), in which distances are about as large as they look."""
    red, green, blue = (
        min(max(sum(a * b for a, b in zip(row, linear(colour), strict=True)), 0), 1) for row in SIGHTS[sight]
    )
    long = math.cbrt(0.41222 * red + 0.53633 * green + 0.05145 * blue)
    middle = math.cbrt(0.21190 * red + 0.68070 * green + 0.10740 * blue)
    short = math.cbrt(0.08830 * red + 0.28172 * green + 0.62998 * blue)
    return (
        0.21045 * long + 0.79362 * middle - 0.00407 * short,
        1.97800 * long - 2.42859 * middle + 0.45059 * short,
        0.02590 * long + 0.78277 * middle - 0.80868 * short,
    )


@pytest.mark.parametrize("palette", [diagram_svg.LIGHT, diagram_svg.DARK])
@pytest.mark.parametrize("sight", SIGHTS)
def test_origins_differ_for_every_eye(palette: diagram_svg.Palette, sight: str) -> None:
    for one, other in combinations(palette.origins, 2):
        assert math.dist(perceived(one, sight), perceived(other, sight)) > 0.1, (one, other)


@pytest.mark.parametrize("palette", [diagram_svg.LIGHT, diagram_svg.DARK])
def test_everything_stands_out_from_the_paper(palette: diagram_svg.Palette) -> None:
    def contrast(colour: str, paper: str) -> float:
        dark, bright = sorted((luminance(colour), luminance(paper)))
        return (bright + 0.05) / (dark + 0.05)

    for paper in (palette.paper, *palette.views):
        assert contrast(palette.ink, paper) > 7
        assert contrast(palette.muted, paper) > 4.5
        assert min(contrast(colour, paper) for colour in palette.origins) > 2
