"""The space-time diagram: everything is in it, in its place, safe to show, and the same every time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from random import Random
from xml.etree.ElementTree import Element

import pytest

from tests.drawings import (
    CHECKS,
    MS,
    Trace,
    drawn,
    marks,
    number,
    of_kind,
    overlapping_texts,
    parse,
    places,
    poisson,
    told,
    view_change,
    words,
)
from unisono.trace import story
from unisono.trace.diagram import svg as diagram_svg
from unisono.trace.diagram.drawing import render
from unisono.trace.diagram.layout import lay_out
from unisono.trace.schema import CAST, CRASH, DELIVER, END, JOIN, ORDERED, PLACE, RECEIVE, TraceError

# Complete and true.


def test_every_event_of_a_message_is_drawn() -> None:
    events = poisson(8, 40, 2, partial=False)
    root = parse(render(events))
    assert places(marks(root, "cast")) == of_kind(events, CAST)
    assert places(marks(root, "receive")) == of_kind(events, RECEIVE)
    assert places(marks(root, "ordered")) == of_kind(events, ORDERED)
    assert places(marks(root, "deliver")) == of_kind(events, DELIVER)
    assert len(marks(root, "way")) == len(of_kind(events, RECEIVE))
    assert {words(flag) for flag in marks(root, "flag")} >= {f"{e.origin}:{e.first}" for e in events if e.kind == CAST}


def test_placeholders_are_hollow_marks() -> None:
    events = poisson(5, 20, 3, partial=True)
    root = parse(render(events))
    assert places(marks(root, "place")) == of_kind(events, PLACE) != set()
    assert places(marks(root, "deliver")) == of_kind(events, DELIVER)


def test_the_bar_is_the_holdback_time_and_its_shades_are_t1_and_t2() -> None:
    trace = Trace("a", "b")
    trace.add(1, "a", CAST, "a:0")
    trace.add(2, "b", RECEIVE, "a:0")
    trace.add(5, "b", ORDERED, "a:0")
    trace.add(6, "b", DELIVER, "a:0")
    root = parse(render(trace.events))
    (t1,), (t2,), (cap,) = marks(root, "t1"), marks(root, "t2"), marks(root, "deliver")
    assert number(t1, "width") == pytest.approx(3 * number(t2, "width"), rel=0.01)
    assert number(t1, "x") + number(t1, "width") == pytest.approx(number(t2, "x"), abs=0.2)
    assert number(t2, "x") + number(t2, "width") == pytest.approx(number(cap, "x"), abs=0.2)
    assert told(cap) == (
        "b delivers a:0 as number 0 of total in view 1@a · at 6 ms · local 3; b held a:0 for 4 ms: t1 3 ms, t2 1 ms"
    )
    (way,) = marks(root, "way")
    assert told(way) == "a:0 to b, 1 ms under way"
    assert number(way, "x2") == pytest.approx(number(t1, "x"), abs=0.1)


def test_a_place_that_is_known_before_the_message_is_all_t2() -> None:
    trace = Trace("a", "b")
    trace.add(1, "a", CAST, "a:0")
    trace.add(2, "b", ORDERED, "a:0")
    trace.add(3, "b", RECEIVE, "a:0")
    trace.add(5, "b", DELIVER, "a:0")
    root = parse(render(trace.events))
    assert marks(root, "t1") == []
    assert len(marks(root, "t2")) == 1


def test_the_numbers_along_a_line_are_the_order_of_delivery() -> None:
    events = poisson(3, 12, 7)
    root = parse(render(events))
    numbers = {told(cap).split(" as ")[0]: words(label) for cap, label in numbered(root)}
    expected = {f"{e.member} delivers {e.origin}:{e.first}": str(e.ordinal) for e in events if e.kind == DELIVER}
    assert numbers == expected


def numbered(root: Element) -> Iterator[tuple[Element, Element]]:
    for group in drawn(root, "g"):
        yield from zip(marks(group, "deliver"), marks(group, "number"), strict=True)


def test_a_crash_ends_the_line_and_a_view_change_is_hatched() -> None:
    root = parse(render(view_change()))
    (cross,) = marks(root, "cross")
    assert told(cross).startswith("c crashes · at 3 ms")
    assert len(marks(root, "hatch")) == 2
    assert "view 2@a" in {words(flag) for flag in marks(root, "flag")}
    crashed_at = float(cross.get("d", "").split()[0].removeprefix("M")) + 6
    assert crashed_at in {round(number(line, "x2"), 1) for line in marks(root, "life")}
    (undelivered,) = [bar for bar in marks(root, "open") if number(bar, "width") > 50 and "b held" in around(root, bar)]
    view_at = next(number(line, "x1") for line in marks(root, "install") if "b installs view 2@a" in told(line))
    assert number(undelivered, "x") + number(undelivered, "width") == pytest.approx(view_at, abs=0.2)
    assert [number(area, "x") + number(area, "width") for area in marks(root, "area")] == pytest.approx([view_at] * 2)
    (suspicion,) = [mark for mark in marks(root, "solid") if "SUSPECT" in told(mark)]
    assert "member c" in told(suspicion)


def around(root: Element, element: Element) -> str:
    return next(told(group) for group in root.findall("g") if element in list(group))


def test_a_second_delivery_and_one_without_a_receipt_are_seen() -> None:
    events = story.tell(
        """
        a,b VIEW 1@a a b
        a CAST x count 4
        b DELIVER x[0:2]
        b DELIVER x[2:4]
        b DELIVER x[2:4]
        """
    )
    root = parse(render(events))
    assert places(marks(root, "deliver")) == of_kind(events, DELIVER)
    assert len(marks(root, "unseen")) == 3
    assert {words(name) for name in marks(root, "name")} >= {"a:0–1", "a:2–3"}
    assert "a:0–3" in {words(flag) for flag in marks(root, "flag")}


def test_a_trace_that_stops_is_dotted_and_says_so() -> None:
    trace = Trace("a")
    trace.add(1, "a", CAST, "a:0")
    dotted = marks(parse(render(trace.events)), "dotted")
    assert [told(line) for line in dotted if told(line)] == ["a: the trace stops here; what came after is unknown"]


def test_services_count_apart() -> None:
    trace = Trace("a")
    trace.add(1, "a", CAST, "a:0")
    trace.add(2, "a", CAST, "a:1", service="causal")
    trace.add(3, "a", DELIVER, "a:1", service="causal", ordinal=0)
    trace.add(4, "a", DELIVER, "a:0", ordinal=0)
    assert [words(label) for label in marks(parse(render(trace.events)), "number")] == ["t0", "c0"]


def test_long_addresses_become_letters() -> None:
    trace = Trace("10.0.0.1:7000", "10.0.0.2:7000")
    trace.add(1, "10.0.0.1:7000", CAST, "10.0.0.1:7000:3")
    root = parse(render(trace.events))
    assert "A:3" in {words(flag) for flag in marks(root, "flag")}
    assert [words(label) for label in marks(root, "member")] == ["A", "B"]
    assert told(marks(root, "cast")[0]).startswith("10.0.0.1:7000 casts 10.0.0.1:7000:3 · at 1 ms")


def test_incarnations_have_lines_of_their_own() -> None:
    trace = Trace("a", "b")
    trace.add(5, "a", JOIN, incarnation=1, local_index=0)
    assert [words(label) for label in marks(parse(render(trace.events)), "member")] == ["a", "b", "a#1"]


# Time.


def ticks(root: Element) -> list[str]:
    return [words(tick) for tick in marks(root, "tick")]


@pytest.mark.parametrize(("span", "unit"), [(4_000, "ns"), (4_000_000, "µs"), (4_000_000_000, "ms"), (10**11, "s")])
def test_the_axis_has_sensible_units(span: int, unit: str) -> None:
    trace = Trace("a", "b")
    for i in range(20):
        trace.add(span / MS * (i + 1) / 20, "a", CAST, f"a:{i}")
    labels = ticks(parse(render(trace.events)))
    assert 5 <= len(labels) <= 12
    assert {label.split()[1] for label in labels} == {unit}
    assert all(len(label) < 10 for label in labels)


def test_a_long_pause_is_cut_short_and_named() -> None:
    events = poisson(3, 12, 8)
    last = max(event.time_ns for event in events)
    events = [replace(event, time_ns=last + 500 * MS) if event.kind == END else event for event in events]
    root = parse(render(events))
    assert len(marks(root, "break")) == 2
    (label,) = [label for label in ticks(root) if label.startswith("+")]
    assert 480 < float(label.split()[0]) <= 510
    assert label.split()[1] == "ms"


def test_no_ticks_are_counted_through_a_pause() -> None:
    """Found by reading: they were, at the step of what lies around it, so that a day took hours to draw."""
    events = poisson(3, 12, 8)
    day = 86_400_000 * MS
    events = [replace(event, time_ns=event.time_ns + day) if event.kind == END else event for event in events]
    layout = lay_out(events, None, None, ())
    assert len(list(islice(layout.ticks(), 1_000))) < 50


def test_real_clocks_are_placed_by_steps_and_not_compared() -> None:
    events = poisson(4, 15, 4, clock="real")
    svg = render(events)
    assert "Steps, not time" in svg
    shifted = [replace(e, time_ns=e.time_ns + 10**15) if e.member == "b" else e for e in events]
    assert render(shifted) == svg
    for way in marks(parse(svg), "way"):
        assert number(way, "x1") < number(way, "x2")


def test_real_clocks_of_one_member_are_a_time() -> None:
    trace = Trace("a", clock="real")
    trace.add(5, "a", CAST, "a:0")
    root = parse(render([replace(event, time_ns=event.time_ns + 10**15) for event in trace.events]))
    assert (ticks(root)[0], ticks(root)[-1]) == ("0 ms", "5 ms")


def test_a_causal_cycle_is_drawn_all_the_same() -> None:
    trace = Trace("a", "b", clock="real")
    for here, there in (("a", "b"), ("b", "a")):
        trace.add(1, here, DELIVER, f"{there}:0")
        trace.add(2, here, CAST, f"{here}:0")
    root = parse(render(trace.events))
    assert places(marks(root, "deliver")) == of_kind(trace.events, DELIVER)
    assert any(number(way, "x1") > number(way, "x2") for way in marks(root, "way"))


# Much of it.


def test_a_long_run_shows_the_first_messages_and_says_so() -> None:
    events = poisson(6, 100, 5)
    svg = render(events)
    assert "showing the first 60 messages of 100" in svg
    shown = marks(parse(svg), "cast")
    first = sorted(event.time_ns for event in events if event.kind == CAST)[:60]
    assert places(shown) == {(e.member, e.local_index) for e in events if e.kind == CAST and e.time_ns <= first[-1]}


def test_many_members_share_the_room() -> None:
    svg = render(poisson(24, 50, 5))
    assert "showing the first 30 messages of 50" in svg
    assert len(marks(parse(svg), "member")) == 2 * 24


def test_a_window_shows_what_meets_it() -> None:
    events = poisson(6, 100, 5)
    start, end = 40 * MS, 52 * MS
    svg = render(events, start_ns=start, end_ns=end)
    root = parse(svg)
    assert "showing" not in svg
    inside = [event for event in events if start <= event.time_ns <= end]
    for kind, css in ((CAST, "cast"), (RECEIVE, "receive"), (ORDERED, "ordered"), (DELIVER, "deliver")):
        assert places(marks(root, css)) == of_kind(inside, kind) != set()
    assert [check(root) for check in CHECKS] == [[], [], []]
    left = min(number(life, "x1") for life in marks(root, "life"))
    cut = [number(way, "y1") for way in marks(root, "way") if number(way, "x1") == left]
    assert cut
    assert not {number(life, "y1") for life in marks(root, "life")} & set(cut)
    assert (ticks(root)[0], ticks(root)[-1]) == ("40 ms", "52 ms")
    assert sum(words(flag) == "view 1@a" for flag in marks(root, "flag")) == 6


def test_a_highlight_stands_out_and_draws_the_window_to_itself() -> None:
    events = poisson(6, 100, 5)
    late = [event for event in events if event.kind == DELIVER][-30]
    root = parse(render(events, highlight={f"{late.origin}:{late.first}", (late.member, late.local_index)}))
    names = {words(name) for group in marks(root, "hi", "g") for name in marks(group, "name")}
    assert names == {f"{late.origin}:{late.first}"}
    assert places(marks(root, "ring")) == {(late.member, late.local_index)}
    assert len(marks(root, "lo", "g")) > 100
    first = min((event for event in events if event.kind == CAST), key=lambda event: event.time_ns)
    assert (first.member, first.local_index) not in places(marks(root, "cast"))
    assert marks(parse(render(events, highlight={"z:9"})), "lo", "g") == []


def test_a_message_of_a_batch_means_the_batch() -> None:
    trace = Trace("a")
    trace.add(1, "a", CAST, "a:3", count=5)
    for name in ("a:3", "a:7", "a:3–7"):
        assert len(marks(parse(render(trace.events, highlight=[name])), "hi", "g")) == 3
    with pytest.raises(TraceError, match="'a3' is not the name of a message"):
        render(trace.events, highlight=["a3"])


def test_one_diagram_is_one_group() -> None:
    events = Trace("a", "b").events
    with pytest.raises(TraceError, match="one group of one run"):
        render([events[0], replace(events[1], group="another")])


def test_no_events_are_said_to_be_none() -> None:
    assert "There are no events." in {words(note) for note in marks(parse(render([])), "note")}


# Safe and the same.


def test_hostile_names_are_only_text() -> None:
    hostile = ("<script>alert(1)</script>", "\"'&\x00\ud800]]>", "</style>", "漢字" * 9)
    trace = Trace(*hostile)
    for i, member in enumerate(hostile):
        trace.add(i, member, CAST, f"{member}:0")
        trace.add(i, member, CRASH, reason="<b>")
    svg = render(trace.events, title="</text><script>1</script>\x07")
    root = parse(svg)
    assert {element.tag for element in root.iter()} <= {
        *["svg", "style", "g", "rect", "line", "circle", "path", "text", "title"]
    }
    assert not any(name.startswith("on") or name in ("href", "id") for e in root.iter() for name in e.attrib)
    assert hostile[0] in told(marks(root, "cast")[0])
    assert overlapping_texts(root) == []


def test_the_drawing_needs_nothing_from_outside() -> None:
    svg = render(poisson(3, 6, 1)).replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|url\(|@import|<script|href", svg)


def test_themes() -> None:
    events = poisson(3, 6, 1)
    light, dark, auto = render(events, theme="light"), render(events, theme="dark"), render(events, theme="auto")
    assert [palette.paper in light for palette in (diagram_svg.LIGHT, diagram_svg.DARK)] == [True, False]
    assert [palette.paper in dark for palette in (diagram_svg.LIGHT, diagram_svg.DARK)] == [False, True]
    before, _, after = auto.partition("@media (prefers-color-scheme: dark)")
    assert diagram_svg.LIGHT.paper in before
    assert diagram_svg.DARK.paper in after
    for svg in (light, dark, auto):
        selectors = re.findall(r"(?m)^([^@}\n][^{\n]*) \{ ", svg.partition("<style>")[2].partition("</style>")[0])
        assert len(selectors) > 30
        assert all(part.startswith(".unisono-diagram-") for line in selectors for part in line.split(", "))


def test_the_order_of_the_events_does_not_matter() -> None:
    events = poisson(5, 20, 3, partial=True)
    shuffled = list(events)
    Random(1).shuffle(shuffled)
    assert render(shuffled) == render(events)


def test_the_hash_seed_does_not_matter() -> None:
    code = (
        "from unisono.sim.run import simulate; from unisono.sim.scenario import Scenario, Source;"
        "from unisono.trace.diagram.drawing import render;"
        "print(render(simulate(Scenario('toto', 4, 1, Source(messages=20)), keep=True).events, highlight={'a:1', 'b:0'}))"
    )
    drawings = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "4242")
    }
    assert len(drawings) == 1
