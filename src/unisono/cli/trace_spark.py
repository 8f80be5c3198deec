"""`unisono trace verify` and `unisono trace measure`: judge and measure recorded runs on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

from unisono.cli import options as o
from unisono.cli.group_options import Long
from unisono.cli.show import VIOLATIONS_SHOWN, bar, cell, out, print_json, tell
from unisono.core.errors import Misuse
from unisono.core.text import shorten
from unisono.trace.checks.judge import CHECKERS

if TYPE_CHECKING:
    from unisono.pipeline.verify import Judgement

Paths = Annotated[list[Path], typer.Argument(help="Trace folders or files.")]
Master = Annotated[str | None, typer.Option(help="Spark's master: local[*] without it, or spark://host:7077.")]
RUNS_SHOWN = 20


def verify(
    paths: Paths,
    master: Master = None,
    report: Annotated[
        Path | None, typer.Option(help="Also measure, and write a page to look at into this folder.")
    ] = None,
    also: Annotated[
        str, typer.Option(help="Properties to ask of every run besides what its order owes: P15,P22.")
    ] = "",
    long: Long = False,
    json: o.Json = False,
) -> None:
    """Judge recorded runs on Spark: digests first, rows only where digests leave a doubt.

    Exit code 0: all pass. 1: a violation. 2: a verdict cannot be given, or bad input.
    """
    from unisono.pipeline.session import open_session, plain_errors, require_pyspark

    require_pyspark()
    from unisono.pipeline.bronze import list_segments
    from unisono.pipeline.verify import verify as judge

    list_segments(paths)  # bad input is told before Spark starts
    asked = frozenset(filter(None, also.split(",")))
    if strange := sorted(asked - CHECKERS.keys()):
        raise Misuse(f"there is no property {strange[0]!r}: choose among {', '.join(CHECKERS)}.")
    page = None
    with bar("starting Spark", None) as update, plain_errors("judging"):
        spark = open_session(master)
        judgement = judge(spark, paths, lambda text: update(0, text), also=asked)
        if report is not None:
            update(0, "measuring")
            page = write_report(spark, paths, judgement, report)
    if json:
        print_json(_as_json(judgement) | ({"report": str(page)} if page else {}))
    else:
        _show(judgement, long)
        if page is not None:
            tell(f"report: {page}")
    if judgement.result != "PASS":
        raise typer.Exit(1 if judgement.result == "FAIL" else 2)


def write_report(spark: Any, paths: list[Path], judgement: Judgement, folder: Path, title: str = "") -> Path:
    """Measure what was judged, and write the page."""
    from unisono.pipeline.bronze import Segments, list_segments, rows_in
    from unisono.pipeline.report import build, collect
    from unisono.pipeline.tables import load
    from unisono.pipeline.whole import BYTES_MAX, ROWS_MAX
    from unisono.trace.reader import read
    from unisono.trace.schema import TraceError

    segments = Segments(list_segments(paths))

    def events_of(run: str) -> Any:
        files = segments.of_runs([run])
        if sum(map(rows_in, files)) > ROWS_MAX or sum(file.stat().st_size for file in files) > BYTES_MAX:
            raise TraceError("there are too many for one process.")
        return read(files).events(run)

    return build(collect(judgement, load(spark, paths), events_of, title), folder)


def measure(
    paths: Paths,
    master: Master = None,
    tables: Annotated[
        Path | None, typer.Option("--out", help="Write every measure as Parquet into this folder.")
    ] = None,
    json: o.Json = False,
) -> None:
    """Measure recorded runs on Spark: latency and its parts, index of latency, throughput, gaps, cost."""
    from unisono.pipeline.session import open_session, plain_errors, require_pyspark

    require_pyspark()
    from unisono.pipeline.bronze import list_segments
    from unisono.pipeline.measures import fitting_accuracy, measure_all
    from unisono.pipeline.tables import load

    list_segments(paths)
    with bar("starting Spark", None) as update, plain_errors("measuring"):
        loaded = load(open_session(master), paths)
        accuracy = fitting_accuracy(loaded)
        measures = measure_all(loaded, accuracy)
        rows = {}
        for number, (name, frame) in enumerate(measures.items()):
            update(number, name)
            rows[name] = [row.asDict(recursive=True) for row in frame.collect()]
            if tables is not None:
                frame.write.mode("overwrite").parquet(str(tables / name))
    stated = "exact" if accuracy is None else f"approximate, their rank within 1/{accuracy} of the whole"
    if json:
        print_json({"percentiles": stated, "measures": rows})
        return
    for name in ("latency", "t1", "t2", "index_of_latency", "cost"):
        if rows[name]:
            out.print(_table(name, rows[name]))
    out.print(f"durations in ms; percentiles {stated}", style="dim")
    if tables is not None:
        tell(f"all measures in {tables}")


def _table(name: str, rows: list[dict[str, Any]]) -> RichTable:
    columns = [column for column in rows[0] if column not in ("group", "view")]
    table = RichTable(title=name, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column.removesuffix("_ns"), justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows[:RUNS_SHOWN]:
        table.add_row(*(_cell(column, row[column]) for column in columns))
    return table


def _cell(column: str, value: Any) -> Text:
    return cell(_written(column, value))


def _written(column: str, value: Any) -> str:
    if value is None:
        return "–"
    if column.endswith("_ns"):
        return f"{value / 1e6:.3f}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _show(judgement: Judgement, long: bool = False) -> None:
    written = str if long else shorten
    shown = [run for run in judgement.runs if run.result != "PASS"] or list(judgement.runs)
    for run in shown[:RUNS_SHOWN]:
        tell(f"{run.result:8}{run.run}  {run.protocol}, {len(run.owed)} properties, by {run.by}")
        for violation in run.violations[:VIOLATIONS_SHOWN]:
            tell(written(f"  {violation.property} {violation.explain()}"))
        if (hidden := sum(run.counts.values()) - VIOLATIONS_SHOWN) > 0:
            tell(f"  … and {hidden} more")
        for member, why in run.unknown.items():
            tell(written(f"  unknown {member}: {why}"))
    for problem in judgement.problems[:VIOLATIONS_SHOWN]:
        tell(f"quarantined: {problem}")
    passed = sum(run.result == "PASS" for run in judgement.runs)
    tell(f"{judgement.result}: {passed} of {len(judgement.runs)} runs pass")


def _as_json(judgement: Judgement) -> dict[str, Any]:
    return {
        "result": judgement.result,
        "quarantined": judgement.quarantined,
        "problems": list(judgement.problems),
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
            }
            for run in judgement.runs
        ],
    }
