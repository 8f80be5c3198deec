"""`unisono pipeline`: judge traces while they grow, and bring other systems' logs into the form of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unisono.cli import options as o
from unisono.cli.show import bar, out, print_json, tell

app = typer.Typer(help="Judge growing traces on Spark, and other systems' logs.", no_args_is_help=True)
RUNS_SHOWN = 20


@app.command("run")
def run(
    watch: Annotated[Path, typer.Option(help="The folder that traces are written to, with all its subfolders.")],
    tables: Annotated[Path, typer.Option("--out", help="Where silver and gold tables are kept.")],
    once: Annotated[bool, typer.Option("--once", help="Stop when everything that is there has been seen.")] = False,
    final: Annotated[
        bool, typer.Option("--final", help="Nothing more will come: judge runs that have not ended, too, then stop.")
    ] = False,
    measures: Annotated[bool, typer.Option("--measures", help="Write measures beside the verdicts.")] = False,
    master: Annotated[
        str | None, typer.Option(help="Spark's master: local[*] without it, or spark://host:7077.")
    ] = None,
    json: o.Json = False,
) -> None:
    """Take finished segments into tables as they appear, each once, and judge every run whose lives have all ended.

    May be killed at any moment and started again. Exit code 0: all judged runs pass. 1: a violation. 2: a verdict cannot be given.
    """
    from unisono.pipeline.session import PipelineError, open_session, require_pyspark

    require_pyspark()
    from unisono.pipeline.measures import measure_all
    from unisono.pipeline.stream import run_pipeline

    if not watch.is_dir():  # bad input is told before Spark starts
        raise PipelineError(f"{watch} is no folder: name the one that traces are written to.")
    with bar("starting Spark", None) as update:
        status = run_pipeline(
            open_session(master),
            watch,
            tables,
            once=once,
            final=final,
            measure=measure_all if measures else None,
            progress=lambda text: update(0, text),
        )
    if json:
        print_json({"segments": status.segments, "results": dict(status.results), "waiting": dict(status.waiting)})
    else:
        for name, result in sorted(status.results.items(), key=lambda item: (item[1] == "PASS", item))[:RUNS_SHOWN]:
            tell(f"{result:8}{name}")
        for name, why in list(status.waiting.items())[:RUNS_SHOWN]:
            tell(f"open    {name}: {why}")
        passed = sum(result == "PASS" for result in status.results.values())
        out.print(
            f"{status.segments} segments, {passed} of {len(status.results)} runs pass, {len(status.waiting)} still open",
            markup=False,
        )
    found = set(status.results.values())
    if found - {"PASS"}:
        raise typer.Exit(1 if "FAIL" in found else 2)


@app.command("adapt")
def adapt(
    logs: Annotated[list[Path], typer.Argument(help="Log files of another system: CSV or JSON lines.")],
    mapping: Annotated[Path, typer.Option(help="A TOML file that says what their columns mean.")],
    folder: Annotated[Path, typer.Option("--out", help="The trace folder to write.")],
) -> None:
    """Turn another system's log into a trace, which `trace check` and `trace verify` can judge."""
    from unisono.pipeline.adapter import adapt_files, load_mapping, write_trace

    lives = write_trace(adapt_files(logs, load_mapping(mapping)), folder)
    tell(f"{sum(lives.values())} events of {len(lives)} members in {folder}")
