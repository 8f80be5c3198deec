"""Who was in which view when, as lanes: a row a member, a box a view. Positions are shares of the width, so it fits any screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from unisono.pipeline.report.model import TimedStay, Timeline
from unisono.pipeline.report.wording import counted, duration
from unisono.trace.schema import view_number

MEMBERS_MAX, BOXES_MAX = 16, 60
NAMED_MAX = 16
"""Members of a view that a tooltip names."""
SHADES = 3


class Box(NamedTuple):
    left: str
    width: str
    css: str
    label: str
    told: str


class Lane(NamedTuple):
    who: str
    boxes: list[Box]
    ending: str | None
    ending_at: str


class Lanes(NamedTuple):
    title: str
    note: str
    lanes: list[Lane]
    ticks: list[tuple[str, str]]
    left_out: int


def timelines(rows: Iterable[Mapping[str, Any]]) -> tuple[Timeline, ...]:
    """One for each run and group of these stays; `views` and `lives` tell how many there are in all."""
    stays: dict[tuple[str, str], list[TimedStay]] = {}
    real: set[tuple[str, str]] = set()
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    for row in rows:
        key = row["run"], row["group"]
        totals[key] = row.get("views", 0), row.get("lives", 0)
        members = tuple(row.get("members") or ())
        stays.setdefault(key, []).append(
            TimedStay(row["who"], row["view"], members, row["start_ns"], row.get("end_ns"), row.get("ended"))
        )
        if row.get("clock") != "simulated":
            real.add(key)
    found = []
    for key, some in sorted(stays.items()):
        views, lives = totals[key]
        more = max(0, views - len({stay.view for stay in some})), max(0, lives - len({stay.who for stay in some}))
        ranked = tuple(sorted(some, key=lambda stay: (stay.start_ns, stay.who)))
        found.append(Timeline(*key, key not in real, ranked, *more))
    return tuple(found)


def lanes_of(timeline: Timeline, name_group: bool = False) -> Lanes:
    """The lanes of one run. Where clocks cannot be compared, each view is a step and only the steps' order means something."""
    views = sorted({stay.view for stay in timeline.stays}, key=lambda view: (view_number(view), view))
    order = dict.fromkeys(who for stay in timeline.stays for who in (*stay.members, stay.who))
    lived = {stay.who for stay in timeline.stays}
    names = [who for who in order if who in lived]
    low = min((stay.start_ns for stay in timeline.stays), default=0)
    high = max((stay.end_ns or stay.start_ns for stay in timeline.stays), default=1)
    place = {view: i for i, view in enumerate(views)}

    def box(stay: TimedStay) -> Box:
        if timeline.simulated:
            span = max(1, high - low)
            start, end = (stay.start_ns - low) / span, ((stay.end_ns or high) - low) / span
            when = f"from {duration(stay.start_ns)} to {duration(stay.end_ns)}"
        else:
            start, end = place[stay.view] / len(views), (place[stay.view] + 1) / len(views)
            when = f"for {duration((stay.end_ns or stay.start_ns) - stay.start_ns)} by its own clock"
        beyond = len(stay.members) - NAMED_MAX
        named = ", ".join(stay.members[:NAMED_MAX]) + (f" and {beyond} more" if beyond > 0 else "")
        told = f"{stay.who} in view {stay.view} ({named}) {when}"
        number = stay.view.partition("@")[0]
        return Box(_percent(start), _percent(max(end - start, 0.002)), f"v{place[stay.view] % SHADES}", number, told)

    lanes = []
    for who in names[:MEMBERS_MAX]:
        stays = [stay for stay in timeline.stays if stay.who == who]
        boxes = [box(stay) for stay in stays[:BOXES_MAX]]
        last = boxes[-1]
        ended = stays[-1].ended
        at = float(last.left.rstrip("%")) + float(last.width.rstrip("%"))
        lanes.append(Lane(who, boxes, {"CRASH": "crashed", "LEAVE": "left"}.get(ended or ""), _percent(at / 100)))
    ticks = [(_percent((at - low) / max(1, high - low)), duration(at)) for at in _round(low, high)]
    ticks = ticks if timeline.simulated else []
    group = f" / {timeline.group}" if name_group else ""
    members = len(names) + timeline.more_members
    note = f"{counted(timeline.views, 'view')}, {counted(members, 'member')}"
    return Lanes(timeline.run + group, note, lanes, ticks, max(0, members - MEMBERS_MAX))


def _round(low: int, high: int) -> range:
    """Round times between the two, three to seven of them."""
    wanted = max(1, (high - low) // 6)
    step = next(s for e in range(20) for s in (10**e, 2 * 10**e, 5 * 10**e) if s >= wanted)
    return range(-(-low // step) * step, high + 1, step)


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"
