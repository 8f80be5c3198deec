"""`unisono trace verify` and `unisono trace measure`: judge and measure recorded runs on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from unisono.cli import options as o
from unisono.cli.group_options import Long
from unisono.cli.show import VIOLATIONS_SHOWN, make_table, on_spark, out, print_json, tell, tell_found
from unisono.core.errors import Misuse
from unisono.trace.checks.properties import CHECKERS

if TYPE_CHECKING:
    from unisono.pipeline.bronze import Where
    from unisono.pipeline.verify import JudgedRuns

Paths = Annotated[list[str], typer.Argument(help="Trace folders or files: local paths, s3://bucket/key, hdfs://….")]
RUNS_SHOWN = 20
WIDTH_IN_FILES = 200
"""Columns of a table in a file or pipe, where nothing needs to be folded."""


def verify(
    paths: Paths,
    master: o.Master = None,
    conf: o.Conf = None,
    report: Annotated[
        str | None, typer.Option(help="Also measure, and write a report page into this local folder.")
    ] = None,
    also: Annotated[str, typer.Option(help="Further properties to check in every run, as in P16,P22.")] = "",
    long: Long = False,
    json: o.Json = False,
) -> None:
    """Judge recorded runs on Spark: digests first, rows only where digests leave a doubt.

    Exit code 0: all pass. 1: a violation. 2: a verdict cannot be given, or bad input.
    """
    from unisono.pipeline.session import require_pyspark

    require_pyspark()
    from unisono.pipeline.storage import place, require
    from unisono.pipeline.verify import verify as judge

    places = [place(path) for path in paths]
    for one in places:  # bad input is told before Spark starts
        require(one)
    page_folder = None if report is None else place(report).local_path
    asked = frozenset(filter(None, also.split(",")))
    if strange := sorted(asked - CHECKERS.keys()):
        raise Misuse(f"there is no property {strange[0]!r}: choose among {', '.join(CHECKERS)}.")
    page = None
    with on_spark("judging", master, conf) as (spark, update):
        judgement = judge(spark, places, lambda text: update(0, text), also=asked)
        if page_folder is not None:
            update(0, "measuring")
            page = write_report(spark, places, judgement, page_folder)
    if json:
        print_json(_as_json(judgement) | ({"report": str(page)} if page else {}))
    else:
        _show(judgement, long)
        if page is not None:
            tell(f"report: {page}")
    if judgement.result != "PASS":
        raise typer.Exit(1 if judgement.result == "FAIL" else 2)


def write_report(spark: Any, paths: Sequence[Where], judgement: JudgedRuns, folder: Path, title: str = "") -> Path:
    """Measure what was judged, and write the page."""
    from unisono.pipeline.bronze import rows_in
    from unisono.pipeline.judge_in_task import BYTES_MAX, ROWS_MAX, events_of_run
    from unisono.pipeline.report import build, collect
    from unisono.pipeline.storage import place
    from unisono.pipeline.tables import keeping, load
    from unisono.trace.schema import TraceError

    def events_of(run: str) -> Any:
        files = judgement.files.get(run, {})
        places = [place(name) for name in sorted(files)]
        if sum(map(rows_in, places)) > ROWS_MAX or sum(files.values()) > BYTES_MAX:
            raise TraceError("there are too many for one process.")
        return events_of_run(places, run)

    with keeping() as keep:
        data = collect(judgement, load(spark, paths, keep), events_of, title)
    return build(data, folder)


def measure(
    paths: Paths,
    master: o.Master = None,
    conf: o.Conf = None,
    tables: Annotated[
        str | None, typer.Option("--out", help="Write every measure as Parquet into this folder, local or s3://….")
    ] = None,
    json: o.Json = False,
) -> None:
    """Measure recorded runs on Spark: latency and its parts, index of latency, throughput, gaps, cost."""
    from unisono.pipeline.session import require_pyspark

    require_pyspark()
    from unisono.pipeline.measures import fitting_accuracy, measure_all
    from unisono.pipeline.storage import place, require, write_frame
    from unisono.pipeline.tables import load

    places = [place(path) for path in paths]
    for one in places:
        require(one)
    target = None if tables is None else place(tables)
    with on_spark("measuring", master, conf) as (spark, update):
        loaded = load(spark, places)
        accuracy = fitting_accuracy(loaded)
        measures = measure_all(loaded, accuracy)
        rows = {}
        for number, (name, frame) in enumerate(measures.items()):
            update(number, name)
            told = frame if json else frame.limit(RUNS_SHOWN)
            rows[name] = [row.asDict(recursive=True) for row in told.collect()]
            if target is not None:
                write_frame(frame, target / name)
    stated = "exact" if accuracy is None else f"approximate, their rank within 1/{accuracy} of the whole"
    if json:
        print_json({"percentiles": stated, "measures": rows})
        return
    for name in ("latency", "t1", "t2", "index_of_latency", "cost"):
        if rows[name]:
            out.print(_table(name, rows[name]), width=None if out.is_terminal else WIDTH_IN_FILES)
    out.print(f"durations in ms; percentiles {stated}", style="dim")
    if target is not None:
        tell(f"all measures in {target}")


def _table(name: str, rows: list[dict[str, Any]]) -> Table:
    columns = {
        column: ("" if isinstance(value, str) else ">") + column.removesuffix("_ns")
        for column, value in rows[0].items()
        if column not in ("group", "view")
    }
    cells = ([_written(column, row[column]) for column in columns] for row in rows[:RUNS_SHOWN])
    return make_table(columns.values(), cells, no_wrap=("run",), title=name, pad_edge=False)


def _written(column: str, value: Any) -> str:
    if value is None:
        return "–"
    if column.endswith("_ns"):
        return f"{value / 1e6:.3f}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _show(judgement: JudgedRuns, long: bool = False) -> None:
    shown = [run for run in judgement.runs if run.result != "PASS"] or list(judgement.runs)
    for run in shown[:RUNS_SHOWN]:
        tell(f"{run.result:8}{run.run}  {run.protocol}, {len(run.owed)} properties, by {run.by}")
        explained = (f"{violation.property} {violation.explain()}" for violation in run.violations)
        tell_found(explained, run.counts, run.unknown, run.notes, long)
    for note in judgement.notes:
        tell(f"note: {note}", "yellow")
    for problem in judgement.problems[:VIOLATIONS_SHOWN]:
        tell(f"quarantined: {problem}")
    if (hidden := sum(judgement.count.values()) - judgement.count.get("PASS", 0) - len(shown[:RUNS_SHOWN])) > 0:
        tell(f"… and {hidden} more runs that do not pass")
    passed, every = judgement.count.get("PASS", 0), sum(judgement.count.values())
    why = ", but what is quarantined may be of any run" if judgement.quarantined and passed == every else ""
    tell(f"{judgement.result}: {passed} of {every} runs pass{why}")


def _as_json(judgement: JudgedRuns) -> dict[str, Any]:
    return {
        "result": judgement.result,
        "quarantined": judgement.quarantined,
        "problems": list(judgement.problems),
        "results": dict(judgement.count),
        "notes": list(judgement.notes),
        "runs": [
            {
                "run": run.run,
                "group": run.group,
                "protocol": run.protocol,
                "result": run.result,
                "by": run.by,
                "owed": sorted(run.owed),
                "violations": [
                    {"property": v.property, "members": list(v.members), "sentence": v.explain()}
                    for v in run.violations
                ],
                "counts": dict(run.counts),
                "unknown": dict(run.unknown),
                "notes": list(run.notes),
            }
            for run in judgement.runs
        ],
    }
