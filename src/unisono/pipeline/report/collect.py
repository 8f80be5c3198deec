"""From the pipeline's results to what a report shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unisono.pipeline.report.glance import RUNS_MAX
from unisono.pipeline.report.lanes import timelines
from unisono.pipeline.report.model import (
    PASS,
    WORST_FIRST,
    Measured,
    ProtocolTally,
    ReportData,
    ReportedViolation,
    RunReport,
    Timeline,
    tallies_of,
    weaker_broken,
)
from unisono.pipeline.report.neighbourhood import Neighbourhoods
from unisono.pipeline.report.wording import shortened
from unisono.trace.checks.properties import PROPERTIES, place_of
from unisono.trace.checks.property import Violation
from unisono.trace.schema import ENDINGS, VIEW, Event, TraceError, member_name

if TYPE_CHECKING:
    from unisono.pipeline.tables import TraceTables
    from unisono.pipeline.verify import JudgedRuns, RunVerdict

FINDINGS_MAX, SENTENCE_MAX = 20, 2_000
"""Violations of one run that are told, and characters of one sentence; all are counted."""
PICTURES_PER_RUN, PICTURES_MAX = 3, 24
RUNS_READ_MAX = 24
"""Runs whose rows are read for pictures and timelines."""
TIMELINES_MAX = 8

EventsOfRun = Callable[[str], Iterable[Event]]


def collect(
    judgement: JudgedRuns,
    tables: TraceTables | None,
    events_of_run: EventsOfRun | None = None,
    title: str = "",
    runs_max: int = RUNS_MAX,
) -> ReportData:
    """Bring verdicts and measures together: totals of all runs, and the first `runs_max` runs, the worst first.

    `tables` are Spark's tables, from which the measures are made; None: a report of verdicts alone. `events_of_run` gives the
    rows of one run: it is asked only for the runs that get pictures, the worst first.
    """
    shown = sorted(judgement.runs, key=lambda run: (_rank(run.result), run.run, run.group))[:runs_max]
    found = _measured(tables, shown)
    reading = _Reading(events_of_run)
    runs = [_run(verdict, found.sizes, reading) for verdict in shown]
    return ReportData(
        result=judgement.result,
        runs=tuple(runs),
        title=title or "unisono report",
        latency=found.latency,
        waits=found.waits,
        tau=found.tau,
        cost=found.cost,
        timelines=choose(found.timelines or reading.timelines, runs),
        quarantined=judgement.quarantined,
        problems=tuple(judgement.problems),
        notes=(*found.notes, *reading.notes),
        tallies=_tallies(judgement),
    )


def _measured(tables: TraceTables | None, shown: Iterable[RunVerdict]) -> Measured:
    if tables is None:
        return Measured()
    from unisono.pipeline.report.from_tables import measured

    return measured(tables, [(run.run, run.group, _rank(run.result)) for run in shown], TIMELINES_MAX)


def _tallies(judgement: JudgedRuns) -> tuple[ProtocolTally, ...]:
    if judgement.verdicts is None:
        return tallies_of(_outline(verdict) for verdict in judgement.runs)
    from unisono.pipeline.report.totals import tallies

    return tallies(judgement.verdicts)


class _Reading:
    """Fetches the rows of runs, and draws, until enough was fetched and drawn."""

    def __init__(self, events_of_run: EventsOfRun | None) -> None:
        self._events_of_run = events_of_run
        self._read = self._drawn = 0
        self.timelines: list[Timeline] = []
        self.notes: list[str] = []

    def events(self, run: str, group: str) -> list[Event]:
        if self._events_of_run is None or self._read >= RUNS_READ_MAX:
            return []
        self._read += 1
        try:
            events = [event for event in self._events_of_run(run) if event.group == group]
        except TraceError as error:
            self.notes.append(f"The rows of {run} could not be read for pictures: {error}")
            return []
        self.timelines += timelines_of(events)
        return events

    def may_draw(self) -> bool:
        self._drawn += 1
        return self._drawn <= PICTURES_MAX


def _run(verdict: RunVerdict, sizes: Mapping[tuple[str, str], int], reading: _Reading) -> RunReport:
    size = sizes.get((verdict.run, verdict.group))
    events = reading.events(verdict.run, verdict.group) if size is None or verdict.result != PASS else []
    told = [Violation(v.property, v.members, v.witness, v.explain(), v.view) for v in verdict.violations]
    run = _outline(verdict)
    return replace(run, members=size or size_of(events), findings=findings(told, run.broken, events, reading.may_draw))


def _outline(verdict: RunVerdict) -> RunReport:
    """A run without what takes measures and rows to know."""
    counts = Counter(verdict.counts) | Counter(v.property for v in verdict.violations)
    owed = tuple(sorted(verdict.owed, key=place_of))
    return RunReport(
        name=verdict.run,
        group=verdict.group,
        protocol=verdict.protocol,
        result=verdict.result,
        owed=owed,
        broken=dict(sorted(counts.items(), key=lambda pair: place_of(pair[0]))),
        unknown=dict(verdict.unknown)
        or ({"?": "it is not known which run these rows are of"} if verdict.run == "?" else {}),
    )


def findings(
    told: Iterable[Violation],
    broken: Iterable[str],
    events: Iterable[Event],
    may_draw: Callable[[], bool] = lambda: True,
) -> tuple[ReportedViolation, ...]:
    """The first violations, those of the weakest properties before those that follow from them.

    Only the former are drawn, one of each property, and no two pictures are about the same messages.
    """
    broken = frozenset(broken)
    ranked = sorted(told, key=lambda one: (weaker_broken(one.property, broken) is not None, place_of(one.property)))
    around: Neighbourhoods | None = None
    rows, found = list(events), []
    drawn: dict[str, frozenset[Any]] = {}  # by property: the messages in its picture
    for one in ranked[:FINDINGS_MAX]:
        weaker, diagram = weaker_broken(one.property, broken), None
        wanted = weaker is None and one.property not in drawn and len(drawn) < PICTURES_PER_RUN
        if rows and wanted:
            around = around or Neighbourhoods(rows)
            meant = around.found(PROPERTIES[one.property].point(one.members, one.witness))
            if (not meant.messages or meant.messages not in drawn.values()) and may_draw():
                diagram = around.draw(meant)
                drawn[one.property] = meant.messages
        sentence = shortened(one.sentence, SENTENCE_MAX)
        found.append(ReportedViolation(one.property, sentence, one.members, weaker, diagram))
    return tuple(found)


def timelines_of(events: Iterable[Event]) -> tuple[Timeline, ...]:
    """Who was in which view when, straight from rows."""
    lives: dict[tuple[str, str, str], list[Event]] = {}
    for event in events:
        lives.setdefault((event.run, event.group, member_name(event.member, event.incarnation)), []).append(event)
    stays: list[dict[str, Any]] = []
    for (run, group, who), rows in lives.items():
        rows.sort(key=lambda event: event.local_index)
        installs = [event for event in rows if event.kind == VIEW]
        ended = rows[-1].kind if rows[-1].kind in ENDINGS else None
        for event, after in zip(installs, [*installs[1:], None], strict=True):
            stays.append(
                {
                    "run": run,
                    "group": group,
                    "who": who,
                    "view": event.view,
                    "members": event.members,
                    "clock": event.clock,
                    "start_ns": event.time_ns,
                    "end_ns": (after or rows[-1]).time_ns,
                    "ended": None if after else ended,
                }
            )
    return timelines(stays)


def size_of(events: Iterable[Event]) -> int | None:
    return max((len(event.members) for event in events if event.members), default=None)


def choose(timelines: Iterable[Timeline], runs: Iterable[RunReport]) -> tuple[Timeline, ...]:
    """The few that are worth a look: of bad runs first, then those with the most changes. A quiet run looks like any other."""
    rank = {(run.name, run.group): _rank(run.result) for run in runs}
    worth = sorted(timelines, key=lambda one: (rank.get((one.run, one.group), 2), -one.views, one.run, one.group))
    eventful = [one for one in worth if one.views > 1 or rank.get((one.run, one.group), 2) < 2]
    return tuple((eventful or worth[:1])[:TIMELINES_MAX])


def _rank(result: str) -> int:
    return WORST_FIRST.get(result, 1)
