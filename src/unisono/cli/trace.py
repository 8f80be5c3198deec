"""`unisono trace`: look at recorded runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from unisono.cli import options as o
from unisono.cli import trace_spark
from unisono.cli.show import VIOLATIONS_SHOWN, print_json, tell
from unisono.core.errors import Misuse
from unisono.sim.files import write_whole
from unisono.trace.checks.judge import Verdict, judge_all
from unisono.trace.diagram import render
from unisono.trace.reader import close_killed, read

app = typer.Typer(help="Look at recorded runs: judge them, measure them, draw them.", no_args_is_help=True)
app.command("verify")(trace_spark.verify)
app.command("measure")(trace_spark.measure)

Paths = Annotated[list[Path], typer.Argument(help="Trace folders or files.")]


@app.command("check")
def check(paths: Paths, json: o.Json = False) -> None:
    """Judge recorded runs in plain Python: what each order owes, on this machine, for traces that fit in memory."""
    trace = read(paths)
    if not trace.runs:
        raise Misuse(f"there is no run in {', '.join(map(str, paths))}: name a folder that `--trace` has written.")
    verdicts = _named(judge_all(trace.events()))
    if json:
        print_json(
            {
                name: {
                    "verdict": verdict.result,
                    "violations": [str(violation) for violation in verdict.violations],
                    "counts": verdict.counts,
                    "unknown": dict(verdict.unknown),
                }
                for name, verdict in verdicts.items()
            }
        )
    else:
        for note in trace.notes:
            tell(f"note: {note}", "yellow")
        for name, verdict in verdicts.items():
            tell(f"{verdict.result:8}{name}")
            for violation in verdict.violations[:VIOLATIONS_SHOWN]:
                tell(f"  {violation}")
            if (hidden := sum(verdict.counts.values()) - VIOLATIONS_SHOWN) > 0:
                tell(f"  … and {hidden} more")
            for member, why in verdict.unknown.items():
                tell(f"  unknown {member}: {why}")
    results = {verdict.result for verdict in verdicts.values()}
    if results != {"PASS"}:
        raise typer.Exit(1 if "FAIL" in results else 2)


def _named(verdicts: dict[tuple[str, str], Verdict]) -> dict[str, Verdict]:
    """By run; where a run holds several groups, by run and group."""
    runs = Counter(run for run, _ in verdicts)
    return {run if runs[run] == 1 else f"{run} {group}": verdict for (run, group), verdict in verdicts.items()}


@app.command("close")
def close(
    folder: Annotated[Path, typer.Argument(help="A trace folder.")],
    run: Annotated[str | None, typer.Option(help="Only this run.")] = None,
    member: Annotated[str | None, typer.Option(help="Only this member.")] = None,
    power_cut: Annotated[
        bool, typer.Option("--power-cut", help="Their machine stopped: the last rows may be missing.")
    ] = False,
) -> None:
    """Append CRASH to the traces of members that were killed and could not write it themselves."""
    notes: list[str] = []
    closed = close_killed(folder, run, member, power_cut=power_cut, notes=notes)
    for life in closed:
        tell(f"{life.run}: {life.member} closed with CRASH")
    for note in notes:
        tell(note, style="yellow")
    if not closed and not notes:
        tell("every trace in it has its ending")


@app.command("diagram")
def diagram(
    paths: Paths,
    run: Annotated[str | None, typer.Option(help="Which run, if there are several.")] = None,
    file: Annotated[Path, typer.Option("--out", help="Where to write it.")] = Path("diagram.svg"),
) -> None:
    """Draw a recorded run as a space-time diagram (SVG)."""
    trace = read(paths)
    if not trace.runs:
        raise Misuse(f"there is no run in {', '.join(map(str, paths))}: name a folder that `--trace` has written.")
    if run is None and len(trace.runs) > 1:
        raise Misuse(f"there are several runs, choose one with --run: {', '.join(trace.runs)}.")
    name = run or trace.runs[0]
    if name not in trace.runs:
        raise Misuse(f"there is no run {name!r}: choose among {', '.join(trace.runs)}.")
    write_whole(file, render(trace.events(name), title=name))
    tell(str(file))
