"""`unisono experiment`: grids of simulated runs on Spark, and the papers' tables rebuilt from them."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from unisono.cli import options as o
from unisono.cli.show import bar, err, make_table, out, print_json, tell
from unisono.experiments.catalogue import EXPERIMENTS, find_experiment
from unisono.experiments.pages import PaperTable, page
from unisono.trace.sanitize import json_text

app = typer.Typer(help="Run experiments: grids of simulated runs, fanned out by Spark.", no_args_is_help=True)


@app.command("run")
def run(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE.toml", help="A built-in experiment, or a grid in a file.")],
    master: o.Master = None,
    conf: o.Conf = None,
    folder: Annotated[
        str | None,
        typer.Option(
            "--out", help="Folder for results; an interrupted run resumes there. results/NAME, or s3://bucket/key."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version that takes seconds.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard results of an earlier run.")] = False,
    traces: Annotated[bool, typer.Option("--traces", help="Keep the trace of every run too.")] = False,
    to: Annotated[
        str | None, typer.Option("--page", help="Also write the page here, such as docs/results/tomp.md.")
    ] = None,
    json: o.Json = False,
) -> None:
    """Run an experiment, or resume it, and show its tables."""
    from unisono.pipeline.session import open_session, parse_settings, plain_errors, require_pyspark

    require_pyspark()
    from unisono.experiments.runner import run_grid
    from unisono.pipeline.storage import place

    experiment = find_experiment(name)
    grid = experiment.grid(quick)
    target = place(folder or f"results/{experiment.name}{'-quick' if quick else ''}")
    pages = [target / "page.md", *([] if to is None else [place(to)])]
    settings = parse_settings(conf or ())
    with plain_errors(f"the experiment {experiment.name}"):
        spark = open_session(master, f"unisono experiment {experiment.name}", settings)
        with bar(experiment.name, len(grid.cells)) as update:
            rows = run_grid(spark, grid, target, not fresh, update, traces)
    tables = experiment.summarise(rows)
    drawings = experiment.draw(rows)
    text = page(experiment, rows, quick, drawings)
    for one in pages:
        one.write_bytes(text.encode())
        for drawing in drawings:
            (one.parent / "img" / f"{experiment.name}-{drawing.name}.svg").write_bytes(drawing.svg.encode())
    verdicts = Counter(row["verdict"] for row in rows)
    summary = {"experiment": experiment.name, "cells": len(rows), "verdicts": verdicts}
    summary["tables"] = [table.to_json() for table in tables]
    (target / "tables.json").write_bytes(f"{json_text(summary, indent=1)}\n".encode())
    if json:
        print_json(summary)
    else:
        for table in tables:
            _show(table)
        out.print(f"{len(rows):,} runs, " + ", ".join(f"{n:,} {verdict}" for verdict, n in sorted(verdicts.items())))
        tell(f"results in {target}")
    for row in rows:
        if row["verdict"] != "PASS":
            err.print(f"{row['id']}: {row['verdict']} {row['problem'] or ''}", markup=False)
    if verdicts.keys() - {"PASS"}:
        raise typer.Exit(1 if verdicts.keys() & {"FAIL", "FAULT"} else 2)


@app.command("list")
def list_experiments(json: o.Json = False) -> None:
    """List the built-in experiments."""
    if json:
        print_json({name: len(experiment.grid(False).cells) for name, experiment in EXPERIMENTS.items()})
        return
    for name, experiment in EXPERIMENTS.items():
        out.print(f"[bold]{name:<12}[/] {experiment.title}, {len(experiment.grid(False).cells):,} runs")


def _show(table: PaperTable) -> None:
    columns = [f">{name}" if form else name for name, form in table.columns]
    out.print(make_table(columns, table.cells(), title=table.title, padding=(0, 1, 0, 0)))
    if table.note:
        out.print(table.note, style="dim", markup=False)
