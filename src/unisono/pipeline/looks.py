"""Look at the rows of views: what the judge of a group asks (`view_judge.Said`), answered from the table `events`.

A small view is read and judged in one task, by the plain checkers (`view_rows`). Larger ones are judged on Spark, property
by property (`view_tables`). The question and the answer, an `Excerpt`, are the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow

from unisono.pipeline.bronze import read_runs
from unisono.pipeline.data_files import Chosen
from unisono.pipeline.judge_in_task import rows_in
from unisono.pipeline.lake import LakeTable, open_table
from unisono.pipeline.lake_source import read_files
from unisono.pipeline.storage import Location, place
from unisono.pipeline.view_judge import ROWS_MAX, Said
from unisono.pipeline.view_rows import Excerpt, judge_view
from unisono.pipeline.view_tables import Look, excerpts_of, judge_views
from unisono.pipeline.views_table import ViewVerdict
from unisono.trace.checks.property import Violation, texts_of
from unisono.trace.schema import Event, member_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_ON_SPARK_MAX = 10_000_000
"""The rows of larger views are not looked at: while they are, every other view waits."""
VIOLATIONS_TOLD = 5
"""Maximum number of reported violations of one property in one view: each calls a hook."""
GROUP_SAID_DDL = "run string, `group` string, said string"


def look_at_rows(
    spark: SparkSession, out: Location, looks: Sequence[Look], rows_max: int = ROWS_MAX
) -> list[ViewVerdict]:
    """Answer what the judge asks: of views of at most `rows_max` rows each in one task, of larger ones on Spark."""
    small = [look for look in looks if look[2].rows <= rows_max]
    large = [look for look in looks if rows_max < look[2].rows <= ROWS_ON_SPARK_MAX]
    found = [_too_large(look) for look in looks if look[2].rows > max(rows_max, ROWS_ON_SPARK_MAX)]
    if small or large:
        events = open_table(out, "events")
        found += _in_tasks(spark, events, small) if small else []
        found += _on_spark(spark, events, large) if large else []
    return found


def _too_large(look: Look) -> ViewVerdict:
    run, group, said = look
    why = (
        f"{said.why + '; ' if said.why else ''}the view has {said.rows} rows, and views of more than {ROWS_ON_SPARK_MAX} "
        "are not looked at; the verdict on the run decides when it ends"
    )
    return ViewVerdict(run, group, said.view, said.order, "UNKNOWN", "facts", why, said.asked)


def _in_tasks(spark: SparkSession, events: LakeTable, looks: Sequence[Look]) -> list[ViewVerdict]:
    of_runs = _files_of_runs(events, looks)
    rows = [(run, group, json.dumps(asdict(said)), list(of_runs[run])) for run, group, said in looks]
    slices = min(len(rows), spark.sparkContext.defaultParallelism * 4)
    folder = events.folder.uri
    frame = spark.createDataFrame(
        spark.sparkContext.parallelize(rows, slices), f"{GROUP_SAID_DDL}, files array<string>"
    ).mapInArrow(lambda batches: _look_batches(folder, batches), "verdict string")
    return [ViewVerdict(*json.loads(row["verdict"])) for row in frame.collect()]


def _on_spark(spark: SparkSession, events: LakeTable, looks: Sequence[Look]) -> list[ViewVerdict]:
    of_runs = _files_of_runs(events, looks)
    near = {path: of_runs[run][path] for run, _, said in looks for path in _near(said, of_runs[run])}
    every = {path: size for files in of_runs.values() for path, size in files.items()}
    chosen = Chosen(runs=frozenset(of_runs))
    for files in (near, every) if len(near) < len(every) else (every,):
        paths = [((events.folder / path).uri, size) for path, size in files.items()]
        excerpts = excerpts_of(read_files(spark, paths, events.schema, chosen), looks)
        if not excerpts.missing:
            break
    found = judge_views(excerpts, VIOLATIONS_TOLD)
    return [verdict for look, excerpt in zip(looks, found, strict=True) for verdict in verdicts_of(*look, excerpt)]


def _files_of_runs(events: LakeTable, looks: Sequence[Look]) -> dict[str, dict[str, int]]:
    """By run: the files that may hold rows of it, with their sizes."""
    runs = {run: Chosen(runs=frozenset({run})) for run, _, _ in looks}
    files = events.files(Chosen(runs=frozenset(runs)))
    return {
        run: {file.path: file.size_bytes for file in files if chosen.may_be_in(file.low, file.high)}
        for run, chosen in runs.items()
    }


def _near(said: Said, of_run: Iterable[str]) -> list[str]:
    """The files that were written with rows of the view. They may have been rewritten since; then rows are missing."""
    names = {name.rpartition("/")[2] for name in said.files or ()}
    return [path for path in of_run if path.rpartition("/")[2] in names]


def verdicts_of(run: str, group: str, said: Said, excerpt: Excerpt) -> list[ViewVerdict]:
    """What is said of a view after a look at its rows; nothing of an open one in which no violation was found."""

    def verdict(result: str, why: str, **more: Any) -> ViewVerdict:
        return ViewVerdict(run, group, said.view, said.order, result, "rows", why, said.asked, **more)

    if excerpt.violations:
        return [
            verdict(
                "FAIL",
                said.why,
                property=violation.property,
                members=violation.members,
                witness=texts_of(violation.witness),
                sentence=violation.sentence,
            )
            for violation in _first_ones(excerpt.violations)
        ]
    if said.status == "look":
        return []
    if excerpt.missing:
        return [verdict("UNKNOWN", f"rows of {', '.join(excerpt.missing)} are missing")]
    if excerpt.doubts and said.best == "PASS":
        who, reason = next(iter(excerpt.doubts.items()))
        return [verdict("UNKNOWN", f"{who}: {reason}")]
    return [verdict(said.best, said.why if said.best != "PASS" else "")]


def _first_ones(violations: Iterable[Violation]) -> Iterator[Violation]:
    told: Counter[str] = Counter()
    for violation in violations:
        told[violation.property] += 1
        if told[violation.property] <= VIOLATIONS_TOLD:
            yield violation


# On the workers.


def _look_batches(folder: str, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            found = _look(place(folder), row["run"], row["group"], said_from(row["said"]), row["files"])
            texts = list(map(json.dumps, found))
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array(texts, pyarrow.string())], names=["verdict"])


def _look(folder: Location, run: str, group: str, said: Said, of_run: list[str]) -> list[ViewVerdict]:
    near = _near(said, of_run)
    for paths in (near, of_run) if len(near) < len(of_run) else (of_run,):
        rows = list(islice(_read(folder, paths, run, group, said.spans), ROWS_MAX + 1))
        if len(rows) > ROWS_MAX:  # of a life that no view tells the size of
            why = f"more than {ROWS_MAX} rows are too many to look at while the group runs"
            return [ViewVerdict(run, group, said.view, said.order, "UNKNOWN", "rows", why, said.asked)]
        found = judge_view(said.view, rows, said.asked, said.endings, said.spans)
        if not found.missing:
            break
    return verdicts_of(run, group, said, found)


def _read(
    folder: Location, paths: Iterable[str], run: str, group: str, spans: Mapping[str, tuple[int, int]]
) -> Iterator[Event]:
    """The rows that can be used. Others are missing, and missed."""
    for path in paths:
        for row in rows_in(read_runs(folder / path, frozenset({run})), path):
            if isinstance(row, Event) and row.group == group:
                start, end = spans.get(member_name(row.member, row.incarnation), (1, 0))
                if start <= row.local_index and (end < 0 or row.local_index <= end):
                    yield row


def said_from(text: str) -> Said:
    """What the judge said, from its JSON."""
    values = json.loads(text)
    spans = {who: (start, end) for who, (start, end) in values["spans"].items()}
    violations = tuple((name, who, sentence) for name, who, sentence in values["violations"])
    files = None if values["files"] is None else tuple(values["files"])
    return Said(**{**values, "asked": tuple(values["asked"]), "spans": spans, "violations": violations, "files": files})
