"""A group judged view by view without Spark: traces cut into parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow

from tests.pipeline.traces import as_arrow
from unisono.pipeline.data_files import write_data_file
from unisono.pipeline.lake import SCHEMAS, Lake, TableChange
from unisono.pipeline.looks import VIOLATIONS_TOLD, verdicts_of
from unisono.pipeline.scan import Fact, LifeScan
from unisono.pipeline.storage import place
from unisono.pipeline.view_judge import GroupJudge, Said
from unisono.pipeline.view_rows import Excerpt, judge_view
from unisono.pipeline.view_tables import excerpts_of, judge_views
from unisono.trace.schema import Event, member_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Trace = list[Event]
LIMIT_MS = 60_000


def lives_of(trace: Iterable[Event]) -> dict[str, Trace]:
    lives: dict[str, Trace] = {}
    for event in trace:
        lives.setdefault(member_name(event.member, event.incarnation), []).append(event)
    return lives


def parts_of(trace: Trace, random: Random) -> list[tuple[str, Trace]]:
    """Every life cut into parts at random, parts of one life in order, lives interleaved."""
    queues = []
    for who, rows in lives_of(trace).items():
        borders = (
            sorted(random.sample(range(1, len(rows)), min(len(rows) - 1, random.randrange(4)))) if len(rows) > 1 else []
        )
        cuts = [0, *borders, len(rows)]
        queues.append([(f"{who}.{i}", rows[a:b]) for i, (a, b) in enumerate(pairwise(cuts))])
    parts = []
    while queues := [queue for queue in queues if queue]:
        parts.append(random.choice(queues).pop(0))
    return parts


def facts_of(name: str, rows: Trace) -> list[tuple[str, Fact]]:
    return [(name, fact) for fact in scan_part(rows)]


def scan_part(rows: Trace) -> list[Fact]:
    scan = LifeScan(rows[0].local_index)
    scan.take(as_arrow({"": rows}))
    return list(scan.finish())


def said_of(steps: Iterable[list[tuple[str, Fact]]], limit_ms: int = LIMIT_MS) -> list[Said]:
    """Everything that is said; the judge is put away as text and made again between any two steps."""
    said: list[Said] = []
    spine: str | None = None
    views: dict[str, str] = {}
    for now_ms, facts in enumerate(steps):
        judge = GroupJudge(limit_ms, spine, views)
        said += judge.take(facts, now_ms)
        spine, views = judge.spine, judge.views
    return said


ExcerptJudge = Callable[[Said], Excerpt]


def results_of(
    said: Iterable[Said], trace: Trace, look: ExcerptJudge | None = None
) -> dict[str, tuple[str, frozenset[str]]]:
    """By view: what was said last, with what a look at rows finds; a FAIL stays."""
    results: dict[str, tuple[str, frozenset[str]]] = {}
    for one in said:
        result, broken = resolve(one, trace, look)
        if result is None or results.get(one.view, ("",))[0] == "FAIL":
            continue
        results[one.view] = result, broken
    return results


def resolve(one: Said, trace: Trace, look: ExcerptJudge | None = None) -> tuple[str | None, frozenset[str]]:
    if one.violations:
        return "FAIL", frozenset(name for name, _, _ in one.violations)
    if one.status in ("PASS", "UNKNOWN", "open"):
        return one.status, frozenset()
    found = verdicts_of("", "", one, judge_plainly(one, trace) if look is None else look(one))
    broken = frozenset(verdict.property for verdict in found if verdict.property is not None)
    return (found[0].result if found else None), broken


def judge_plainly(one: Said, trace: Trace) -> Excerpt:
    return judge_view(one.view, rows_of(trace, one.spans), one.asked, one.endings, one.spans)


def judge_on_spark(spark: SparkSession, asked: Mapping[str, tuple[Trace, Sequence[Said]]]) -> dict[str, list[Excerpt]]:
    """By run: what the Spark formulations find in the excerpts that are asked for; all in one pass."""
    rows = {run: [replace(event, run=run) for event in trace] for run, (trace, _) in asked.items()}
    looks = [(run, trace[0].group, said) for run, (trace, some) in asked.items() for said in some]
    found = judge_views(excerpts_of(spark.createDataFrame(as_arrow(rows)), looks), VIOLATIONS_TOLD)
    excerpts: dict[str, list[Excerpt]] = {run: [] for run in asked}
    for (run, _, _), excerpt in zip(looks, found, strict=True):
        excerpts[run].append(excerpt)
    return excerpts


def rows_of(trace: Trace, spans: Mapping[str, tuple[int, int]]) -> Trace:
    rows = []
    for event in trace:
        start, end = spans.get(member_name(event.member, event.incarnation), (1, 0))
        if start <= event.local_index and (end < 0 or event.local_index <= end):
            rows.append(event)
    return rows


class Lakeside:
    """Takes parts of traces into tables, as the pipeline does, without Spark."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._lake = Lake(str(out))

    def take(self, parts: Sequence[tuple[str, Trace]]) -> int:
        """One batch: the events of all parts in one file, and their facts; its number."""
        number = self._lake.batch + 1
        events = pyarrow.concat_tables([as_arrow({name: rows}) for name, rows in parts])
        events = events.append_column("segment", pyarrow.array(["" for _ in range(len(events))], pyarrow.string()))
        file = write_data_file(place(self.out / "events"), number, [events], SCHEMAS["events"])
        facts = []
        for name, rows in parts:
            told = scan_part(rows)
            told.append(Fact(*told[0][:4], "file", path=file.path, rows=len(rows), size_bytes=0))
            facts += [dict(zip(SCHEMAS["facts"].names, (*fact, name, number), strict=True)) for fact in told]
        table = pyarrow.Table.from_pylist(facts, schema=SCHEMAS["facts"])
        fact_file = write_data_file(place(self.out / "facts"), number, [table], SCHEMAS["facts"])
        return self._lake.publish(
            TableChange(), {"events": TableChange(add=(file,)), "facts": TableChange(add=(fact_file,))}
        )
