"""Judging a small run as a whole: one task reads all its segments and asks the checkers of `trace.checks`.

A plan of joins costs seconds however little it joins, so a run whose rows fit a worker's memory is dealt out instead of being
taken apart: Spark gives each task some runs, and a run costs what reading it costs. Larger runs are judged
property by property (`properties`), which gives the same verdicts (the tests hold the two against each other).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.bronze import read_file
from unisono.pipeline.storage import Location, place
from unisono.pipeline.tables import WHOSE
from unisono.trace.checks.judge import Verdict, judge
from unisono.trace.checks.property import texts_of
from unisono.trace.schema import NAMES, NOT_KNOWN, Event, TraceError, from_row, member_name

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

ROWS_MAX = 200_000
"""Maximum number of rows of a run that is judged in one task; an event takes about a kilobyte in a worker."""
BYTES_MAX = 32 << 20
"""Maximum number of bytes in the files of such a run: a file may hold more than what could be read of it."""

COST = 16
"""What judging a byte in plain Python costs, compared with scanning it."""
NOTHING_USABLE = "none of its rows can be used"

Whose = tuple[str, str]
"""A run and its group."""

RUN_SAID_DDL = (
    "run string, `group` string, what string, name string, members array<string>, view string, "
    "witness map<string,string>, text string"
)
"""One row is one thing said of a run: a `violation`, how many there are of a property (`count`), a life that is `unknown`, or a
`problem` with a row or file."""


def judge_in_tasks(
    runs: DataFrame, files: DataFrame, also: Iterable[str] = (), size_bytes: int = 0, count: int = 0
) -> DataFrame:
    """What is said of these runs (`RUN_SAID_DDL`), each judged in one task: on what their orders owe, and `also`.

    `files` names those that may hold rows of each run; they have `size_bytes` and are `count` in all.
    """
    from unisono.pipeline.parallelism import tasks_for

    asked = F.array(*(F.lit(one) for one in sorted(also))).cast("array<string>")
    bundles = _bundles(runs, files).select("runs", "paths", asked.alias("also"))
    return bundles.repartition(tasks_for(size_bytes * COST, count)).mapInArrow(_judge_batches, RUN_SAID_DDL)


def _bundles(runs: DataFrame, files: DataFrame) -> DataFrame:
    """Runs that lie in one file are judged by one task, up to `ROWS_MAX` rows, so that the file is not read for each of them."""
    holds = F.count("*").over(Window.partitionBy("path"))
    theirs = (
        files.join(runs, list(WHOSE), "left_semi")
        .withColumn("holds", holds)
        .groupBy(*WHOSE)
        .agg(
            F.min(F.when(F.col("holds") > 1, F.col("path"))).alias("shared"),
            F.array_sort(F.collect_set("path")).alias("paths"),
        )
    )
    before = Window.partitionBy("shared").orderBy(*WHOSE).rowsBetween(Window.unboundedPreceding, -1)
    number = F.floor(F.coalesce(F.sum("rows").over(before), F.lit(0)) / ROWS_MAX)
    alone = runs.select(*WHOSE, "rows").join(theirs, list(WHOSE), "left")
    together = alone.where(F.col("shared").isNotNull()).withColumn("number", number)
    nothing = F.array().cast("array<string>")
    single = alone.where(F.col("shared").isNull()).select(
        F.array(F.array(*WHOSE)).alias("runs"), F.coalesce("paths", nothing).alias("paths")
    )
    several = together.groupBy("shared", "number").agg(
        F.collect_list(F.array(*WHOSE)).alias("runs"),
        F.array_distinct(F.flatten(F.collect_list("paths"))).alias("paths"),
    )
    return single.unionByName(several.select("runs", "paths"))


# On the workers.


def _judge_batches(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        for runs, paths, also in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            said = _judge_bundle([(run, group) for run, group in runs], [place(path) for path in paths], also)
            yield from as_table(said, RUN_SAID_DDL).to_batches()


def _judge_bundle(
    runs: Sequence[Whose], files: Sequence[Location], also: Sequence[str] = ()
) -> Iterator[tuple[Any, ...]]:
    lives: dict[Whose, dict[tuple[str, int], list[Event]]] = {whose: {} for whose in runs}
    troubled: dict[str | None, dict[str, str]] = {}  # by run and member: the first of its problems
    wanted = {run for run, _ in runs}
    for file in files:
        for row in rows_in(read_file(file, wanted), str(file)):
            if isinstance(row, Event):
                if (row.run, row.group) in lives:
                    lives[row.run, row.group].setdefault((row.member, row.incarnation), []).append(row)
                continue
            if row["member"] is not None:
                who = member_name(row["member"], row["incarnation"] or 0)
                troubled.setdefault(row["run"], {}).setdefault(who, row["problem"])
            yield (row["run"], row["group"], "problem", None, None, None, None, row["problem"])
    for whose, rows in lives.items():
        if not rows and not troubled.get(whose[0]):
            yield (*whose, "unknown", NOT_KNOWN, None, None, None, NOTHING_USABLE)
        ordered = [sorted(rows[life], key=_turn) for life in sorted(rows)]
        verdict = judge(chain.from_iterable(ordered), also=also, troubled=troubled.get(whose[0]))
        yield from _said(whose, verdict)


def events_of_run(files: Iterable[Location], run: str) -> Iterator[Event]:
    """The rows of a run that can be used, life after life, each in the order of its indices."""
    lives: dict[tuple[str, int], list[Event]] = {}
    for file in files:
        for row in rows_in(read_file(file, {run}), str(file)):
            if isinstance(row, Event):
                lives.setdefault((row.member, row.incarnation), []).append(row)
    for life in sorted(lives):
        yield from sorted(lives[life], key=_turn)


def _turn(event: Event) -> tuple[int, int]:
    return event.local_index, event.time_ns


def rows_in(batches: Iterable[pyarrow.RecordBatch], where: str) -> Iterator[Event | dict[str, Any]]:
    """Rows as they were read: those that can be used as events, the others as they are, with their `problem`."""
    for batch in batches:
        for row in batch.to_pylist():
            if row["problem"] is None:
                if row["attributes"] is not None:
                    row["attributes"] = dict(row["attributes"])
                try:
                    yield from_row({name: row[name] for name in NAMES}, where)
                    continue
                except TraceError as error:
                    row["problem"] = str(error)
            yield row


def _said(whose: Whose, verdict: Verdict) -> Iterator[tuple[Any, ...]]:
    for violation in verdict.violations:
        yield (
            *whose,
            "violation",
            violation.property,
            list(violation.members),
            violation.view,
            list(texts_of(violation.witness).items()),
            None,
        )
    for name, count in verdict.counts.items():
        yield (*whose, "count", name, None, None, None, str(count))
    for member, reason in verdict.unknown.items():
        yield (*whose, "unknown", member, None, None, None, reason)
