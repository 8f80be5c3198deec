"""`unisono pipeline`: judge traces while they grow, and bring other systems' logs into the form of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unisono.cli import options as o
from unisono.cli.show import VIOLATIONS_SHOWN, err, make_table, on_spark, out, print_json, tell
from unisono.cli.watch import watch as watch_command
from unisono.core.errors import Misuse
from unisono.core.text import shorten
from unisono.trace.sanitize import sanitize_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unisono.pipeline.lake import Lake
    from unisono.pipeline.stream import PipelineStatus

app = typer.Typer(help="Judge growing traces on Spark, and other systems' logs.", no_args_is_help=True)
app.command("watch")(watch_command)
RUNS_SHOWN = 20


Tables = Annotated[str, typer.Option("--out", help="The folder of tables: a local path, or s3://bucket/key.")]
VacuumHours = Annotated[
    float,
    typer.Option(
        help="Delete files that have been unused by any table for this many hours; readers may still need younger ones."
    ),
]


@app.command("run")
def run(
    watch: Annotated[
        str, typer.Option(help="The folder that traces are written to, with all its subfolders: a path, or s3://….")
    ],
    tables: Tables,
    once: Annotated[bool, typer.Option("--once", help="Stop when everything there has been processed.")] = False,
    final: Annotated[
        bool, typer.Option("--final", help="No more data will come: judge unfinished runs too, then stop.")
    ] = False,
    measures: Annotated[bool, typer.Option("--measures", help="Write measures beside the verdicts.")] = False,
    views: Annotated[
        bool | None,
        typer.Option(
            "--views/--no-views",
            help="Judge each view when it is closed. Default: on, unless --once or --final is given.",
        ),
    ] = None,
    on_fail: Annotated[
        str | None,
        typer.Option(
            help="Called for each violation in a view: a command (JSON on standard input), or a URL to post to."
        ),
    ] = None,
    limit_s: Annotated[
        float,
        typer.Option("--limit", help="Maximum seconds between the first and the last member to leave a view.", min=0.1),
    ] = 600.0,
    forget_s: Annotated[
        float | None,
        typer.Option(
            "--forget",
            help="Seconds without new rows after which a group that did not end properly is forgotten, and after seven "
            "times as long an idle one. Default: 144 times --limit.",
            min=1,
        ),
    ] = None,
    keep_days: Annotated[
        float | None,
        typer.Option(
            help="Drop events and facts of runs that were judged and got no new rows for this many days, as `retain` "
            "does, while watching; parts of a day will do."
        ),
    ] = None,
    vacuum_hours: Annotated[
        float,
        typer.Option(
            help="Delete files that no table has held for this many hours, or a part of one, while watching.", min=0.01
        ),
    ] = 2.0,
    metrics: Annotated[
        str | None, typer.Option(help="HOST:PORT to serve metrics of views and violations for Prometheus on.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="A folder for Spark's checkpoint, if the tables are not on a local disk.")
    ] = None,
    master: o.Master = None,
    conf: o.Conf = None,
    json: o.Json = False,
) -> None:
    """Take segments into tables as they are written, and judge every run whose lives have all ended.

    May be killed at any moment and started again. Exit code 0: all judged runs pass; runs may still be open. 1: a violation, in
    an open run too. 2: a verdict cannot be given, a file cannot be read, or there is nothing to read.
    """
    from unisono.pipeline.session import require_pyspark

    require_pyspark()
    from unisono.pipeline.lake import require_folder_of_tables
    from unisono.pipeline.measures import measure_all
    from unisono.pipeline.retention import Ages
    from unisono.pipeline.storage import place
    from unisono.pipeline.stream import require_apart, run_pipeline
    from unisono.pipeline.watch_service import WatchOptions

    require_apart(place(watch), place(tables))  # bad input is told before Spark starts
    require_folder_of_tables(place(tables))
    wants_views = views if views is not None else not (once or final) or on_fail is not None
    watching = WatchOptions(limit_s, forget_s, on_fail=on_fail, metrics=metrics, checkpoint=checkpoint)
    if wants_views:
        watching.require_sound(place(tables))
    with on_spark("the pipeline", master, conf) as (spark, update):
        status = run_pipeline(
            spark,
            watch,
            tables,
            once=once,
            final=final,
            measure=measure_all if measures else None,
            progress=lambda text: update(0, text),
            views=watching if wants_views else None,
            ages=Ages(vacuum_hours * 3600, None if keep_days is None else keep_days * 86_400),
            log=lambda text: err.print(sanitize_lines(text), markup=False, soft_wrap=True),
        )
    if json:
        print_json(asdict(status))
    else:
        _show(status, tables)
    if status.exit_code:
        raise typer.Exit(status.exit_code)


def _show(status: PipelineStatus, tables: str) -> None:
    shown = sorted(status.results.items(), key=lambda item: (item[1] == "PASS", item))[:RUNS_SHOWN]
    reasons = _reasons(tables, frozenset(name for name, result in shown if result != "PASS"))
    for name, result in shown:
        tell(f"{result:8}{name}")
        for reason in reasons.get(name, ())[:VIOLATIONS_SHOWN]:
            tell(f"  {shorten(reason)}")
        if len(reasons.get(name, ())) > VIOLATIONS_SHOWN:
            tell("  … and more in the tables `violations` and `verdicts`")
    for name, why in list(status.waiting.items())[:RUNS_SHOWN]:
        tell(f"open    {name}: {why}")
    for name, why in list(status.unreadable.items())[:RUNS_SHOWN]:
        tell(f"unread  {name}: {why}")
    if status.unusable:
        tell(f"segments that hold nothing usable: {status.unusable}; the table `quarantine` says why.")
    if not status.segments:
        tell("there was nothing to read: no segment, Parquet or JSON lines, could be taken in.")
    passed, still_open = status.counts.get("PASS", 0), status.counts.get("open", 0)
    out.print(
        f"{status.segments} segments, {passed} of {status.judged} runs pass, {still_open} still open", markup=False
    )


def _reasons(tables: str, runs: frozenset[str]) -> dict[str, list[str]]:
    """By run that does not pass: why, as its tables say it."""
    from unisono.pipeline.data_files import Chosen
    from unisono.pipeline.lake import open_table

    reasons: dict[str, list[str]] = {}
    if not runs:
        return reasons
    for row in open_table(tables, "violations").read(Chosen(runs)).to_pylist():
        reasons.setdefault(row["run"], []).append(f"{row['property']} {row['sentence']}")
    for row in open_table(tables, "verdicts").read(Chosen(runs)).to_pylist():
        reasons.setdefault(row["run"], []).extend(f"unknown {member}: {why}" for member, why in row["unknown"])
    return reasons


@app.command("tables")
def tables(tables: Tables, json: o.Json = False) -> None:
    """List the tables: rows, files, bytes and version."""
    from unisono.pipeline.session import PipelineError, require_pyspark

    require_pyspark()
    from unisono.pipeline.lake import open_table, table_names

    found: list[dict[str, Any]] = []
    for name in table_names(tables):
        table = open_table(tables, name)
        files = table.files()
        count, size_bytes = sum(file.rows for file in files), sum(file.size_bytes for file in files)
        found.append({"table": name, "rows": count, "files": len(files), "bytes": size_bytes, "version": table.version})
    if not found:
        raise PipelineError(f"there are no tables in {tables}: `unisono pipeline run --out` writes them.")
    if json:
        print_json(found)
        return
    columns = ("rows", "files", "bytes", "version")
    rows = ([row["table"], *(f"{row[name]:,}" for name in columns)] for row in found)
    out.print(make_table(("table", *(f">{name}" for name in columns)), rows, box=None))


@app.command("compact")
def compact(tables: Tables, vacuum_hours: VacuumHours = 168, master: o.Master = None, conf: o.Conf = None) -> None:
    """Merge small files of all tables, and delete files that no table needs any more."""
    with _upkeep(tables, master, conf) as (spark, lake):
        from unisono.pipeline.upkeep import merge_all, vacuum

        merge_all(spark, lake)
        deleted = vacuum(lake, vacuum_hours)
    tell(f"compacted {tables}; {deleted} files deleted")


@app.command("retain")
def retain(
    tables: Tables,
    days: Annotated[float, typer.Option(min=0, help="Keep runs with new rows within this many days.")],
    vacuum_hours: VacuumHours = 168,
    master: o.Master = None,
    conf: o.Conf = None,
) -> None:
    """Drop events and facts of old runs that were judged, and what was said of their views.

    Verdicts on runs, violations and measures stay.
    """
    with _upkeep(tables, master, conf) as (spark, lake):
        from unisono.pipeline.gold import Gold
        from unisono.pipeline.lake import open_table
        from unisono.pipeline.ledger import SegmentLedger
        from unisono.pipeline.retention import drop_views, retire_runs, retired_runs
        from unisono.pipeline.upkeep import vacuum
        from unisono.pipeline.watch_hooks import HookMarks

        ledger = SegmentLedger(lake.segments, Gold(spark, lake.out).verdicts)
        dropped = retire_runs(spark, lake, ledger, days * 86_400)
        if runs := retired_runs(lake.out, ledger):
            HookMarks(lake.out).drop(drop_views(spark, open_table(lake.out, "views"), runs))
        deleted = vacuum(lake, vacuum_hours)
    tell(f"{dropped} segments dropped from {tables}; {deleted} files deleted")


@app.command("remove")
def remove(
    tables: Tables,
    run: Annotated[str | None, typer.Option(help="A run, with its verdicts and measures.")] = None,
    segment: Annotated[str | None, typer.Option(help="A segment, by its key in the table `segments`.")] = None,
    vacuum_hours: VacuumHours = 168,
    master: o.Master = None,
    conf: o.Conf = None,
) -> None:
    """Take a run or a segment out of the tables. Its raw files, if they are there, are not taken in again."""
    if (run is None) == (segment is None):
        raise Misuse("name either --run or --segment.")
    with _upkeep(tables, master, conf) as (spark, lake):
        from unisono.pipeline.gold import Gold
        from unisono.pipeline.lake import open_table, table_names
        from unisono.pipeline.ledger import SegmentLedger
        from unisono.pipeline.retention import violations_in
        from unisono.pipeline.session import PipelineError
        from unisono.pipeline.upkeep import own_segments, remove_segments, vacuum
        from unisono.pipeline.watch_hooks import HookMarks

        gold = Gold(spark, lake.out)
        ledger = SegmentLedger(lake.segments, gold.verdicts)
        if segment is not None:
            entry = ledger.segment(segment)
            removed = remove_segments(spark, lake, [] if entry is None else [entry])
        else:
            removed = remove_segments(spark, lake, own_segments(ledger, run or ""))
        if not removed and (run is None or not ledger.is_judged(run)):
            raise PipelineError(f"{tables} holds no {'run' if segment is None else 'segment'} {run or segment!r}.")
        if run is not None:
            has_views = "views" in table_names(lake.out)
            told = violations_in(open_table(lake.out, "views"), frozenset({run})) if has_views else []
            gold.remove(run)
            HookMarks(lake.out).drop(told)
        deleted = vacuum(lake, vacuum_hours)
    tell(f"{run or segment} was taken out of {tables}; {deleted} files deleted")


@contextmanager
def _upkeep(tables: str, master: str | None, conf: list[str] | None) -> Iterator[tuple[SparkSession, Lake]]:
    """A session and tables that are there."""
    from unisono.pipeline.session import require_pyspark

    require_pyspark()
    from unisono.pipeline.gold import Gold
    from unisono.pipeline.lake import Lake, open_table
    from unisono.pipeline.storage import place

    open_table(tables, "segments")  # bad input is told before Spark starts
    with on_spark(f"upkeep of {tables}", master, conf) as (spark, _):
        lake = Lake(place(tables))
        Gold(spark, lake.out)  # commits what a crash has left undone; its files are not waste
        yield spark, lake


@app.command("adapt")
def adapt(
    logs: Annotated[list[str], typer.Argument(help="Local log files of another system: CSV or JSON lines.")],
    mapping: Annotated[Path, typer.Option(help="TOML file that maps their columns.")],
    folder: Annotated[str, typer.Option("--out", help="The trace folder to write: a local path, or s3://bucket/key.")],
) -> None:
    """Turn another system's log into a trace, which `trace check` and `trace verify` can judge."""
    from unisono.pipeline.adapter import adapt_files, load_mapping, write_trace
    from unisono.pipeline.storage import place, upload

    target = place(folder)
    events = adapt_files([place(log).local_path for log in logs], load_mapping(mapping))
    if target.is_local:
        lives = write_trace(events, target.local_path)
    else:
        with TemporaryDirectory(prefix="unisono-") as local:
            lives = write_trace(events, Path(local))
            upload(Path(local), target)
    tell(f"{sum(lives.values())} events of {len(lives)} members in {target}")
