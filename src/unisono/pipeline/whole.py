"""Judging a small run as a whole: one task reads all its segments and asks the checkers of `trace.checks`.

A plan of joins costs seconds however little it joins, so a run whose rows fit a worker's memory is dealt out instead of being
taken apart: Spark gives each task some runs, and a run costs what reading it costs. Larger runs are judged by the properties'
own formulations (`properties`), which give the same verdicts (the tests hold the two against each other).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.pipeline.bronze import read_file
from unisono.trace.checks.judge import Verdict, judge
from unisono.trace.schema import NAMES, Event, TraceError, from_row, member_name

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

ROWS_MAX = 200_000
"""A run of at most so many rows is judged as a whole; an event takes about a kilobyte in a worker."""
BYTES_MAX = 32 << 20
"""And of at most so many bytes in files, because a file may hold more than what could be read of it."""

NOTHING_USABLE = "none of its rows can be used"

Whose = tuple[str, str]
"""A run and its group."""

_COLUMNS = ("run", "group", "what", "name", "members", "view", "witness", "text")
WHOLE_DDL = (
    "run string, `group` string, what string, name string, members array<string>, view string, "
    "witness map<string,string>, text string"
)
"""One row is one thing said of a run: a `violation`, how many there are of a property (`count`), a life that is `unknown`, or a
`problem` with a row or file."""


@dataclass(frozen=True)
class Bundle:
    """The runs that one row of a job judges, each with what it owes, and the files that may hold their rows."""

    owed: Mapping[Whose, frozenset[str]]
    files: Sequence[Path]


@dataclass
class Found:
    """What the workers say of each run."""

    violations: dict[Whose, list[dict[str, Any]]] = field(default_factory=dict)
    counts: dict[Whose, dict[str, int]] = field(default_factory=dict)
    unknown: dict[Whose, dict[str, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """One for each row or file that could not be used."""


def judge_whole(spark: SparkSession, bundles: Sequence[Bundle]) -> Found:
    """Judge these runs, each in one task."""
    rows = [
        (
            [[run, group, ",".join(sorted(owed))] for (run, group), owed in bundle.owed.items()],
            [str(file.resolve()) for file in bundle.files],
        )
        for bundle in bundles
    ]
    slices = min(len(rows), spark.sparkContext.defaultParallelism * 8)
    dealt = [row for i in range(slices) for row in rows[i::slices]]
    listing = spark.createDataFrame(
        spark.sparkContext.parallelize(dealt, slices), "runs array<array<string>>, paths array<string>"
    )
    found = Found()
    for row in listing.mapInArrow(_judge_batches, WHOLE_DDL).collect():
        whose = (row["run"], row["group"])
        if row["what"] == "problem":
            found.problems.append(row["text"])
        elif row["what"] == "count":
            found.counts.setdefault(whose, {})[row["name"]] = int(row["text"])
        elif row["what"] == "unknown":
            found.unknown.setdefault(whose, {})[row["name"]] = row["text"]
        else:
            found.violations.setdefault(whose, []).append(row.asDict())
    return found


# On the workers.


def _judge_batches(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    text = pyarrow.string()
    types = (text, text, text, text, pyarrow.list_(text), text, pyarrow.map_(text, text), text)
    for batch in batches:
        for runs, paths in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            owed = {(run, group): frozenset(ids.split(",")) for run, group, ids in runs}
            said = list(_judge_bundle(owed, [Path(path) for path in paths]))
            columns = list(zip(*said, strict=True)) if said else [()] * len(types)
            arrays = [pyarrow.array(list(column), type) for column, type in zip(columns, types, strict=True)]
            yield pyarrow.RecordBatch.from_arrays(arrays, names=list(_COLUMNS))


def _judge_bundle(owed: Mapping[Whose, frozenset[str]], files: Sequence[Path]) -> Iterator[tuple[Any, ...]]:
    lives: dict[Whose, dict[tuple[str, int], list[Event]]] = {whose: {} for whose in owed}
    troubled: dict[str | None, dict[str, str]] = {}  # by run and member: the first of its problems
    for file in files:
        for row in _read(file):
            if isinstance(row, Event):
                if (row.run, row.group) in lives:
                    lives[row.run, row.group].setdefault((row.member, row.incarnation), []).append(row)
                continue
            if row["member"] is not None:
                who = member_name(row["member"], row["incarnation"] or 0)
                troubled.setdefault(row["run"], {}).setdefault(who, row["problem"])
            yield (row["run"], row["group"], "problem", None, None, None, None, row["problem"])
    for whose, rows in lives.items():
        if not rows:
            yield (*whose, "unknown", "?", None, None, None, NOTHING_USABLE)
        ordered = [sorted(rows[life], key=lambda event: (event.local_index, event.time_ns)) for life in sorted(rows)]
        verdict = judge(chain.from_iterable(ordered), owed[whose])
        yield from _said(whose, verdict, troubled.get(whose[0], {}))


def _read(file: Path) -> Iterator[Event | dict[str, Any]]:
    """Every row of a file, as an event; one that cannot be used as it is, with its `problem`."""
    for batch in read_file(file):
        for row in batch.to_pylist():
            if row["problem"] is None:
                if row["attributes"] is not None:
                    row["attributes"] = dict(row["attributes"])
                try:
                    yield from_row({name: row[name] for name in NAMES}, str(file))
                    continue
                except TraceError as error:
                    row["problem"] = str(error)
            yield row


def _said(whose: Whose, verdict: Verdict, troubled: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    for violation in verdict.violations:
        witness = {name: _text(value) for name, value in violation.witness.items() if value is not None}
        view = witness.get("view")
        yield (
            *whose,
            "violation",
            violation.property,
            list(violation.members),
            view,
            list(witness.items()),
            violation.sentence,
        )
    for name, count in verdict.counts.items():
        yield (*whose, "count", name, None, None, None, str(count))
    for member in sorted(verdict.unknown.keys() | troubled.keys()):
        yield (*whose, "unknown", member, None, None, None, troubled.get(member) or verdict.unknown[member])


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
