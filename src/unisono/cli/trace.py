"""`unisono trace`: look at recorded runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from unisono.cli import options as o
from unisono.cli import trace_spark
from unisono.cli.group_options import Long
from unisono.cli.show import print_json, tell, tell_found
from unisono.core.errors import Misuse
from unisono.sim.files import write_whole
from unisono.sim.units import parse_duration
from unisono.trace.checks.judge import Result, Verdict, judge_all
from unisono.trace.checks.properties import CHECKERS
from unisono.trace.diagram import cut_window, render
from unisono.trace.promises import SHOWN
from unisono.trace.reader import close_killed, read
from unisono.trace.schema import CAST, DELIVER, VIEW, Event
from unisono.trace.schema import SHOWN as SHOWN_KINDS

app = typer.Typer(help="Judge, measure and draw recorded runs.", no_args_is_help=True)
app.command("verify")(trace_spark.verify)
app.command("measure")(trace_spark.measure)

Paths = Annotated[list[str], typer.Argument(help="Trace folders or files.")]


@app.command("check")
def check(paths: Paths, long: Long = False, json: o.Json = False) -> None:
    """Judge recorded runs in plain Python, for traces that fit in memory: does each order keep what it promises?"""
    _require_local(paths)
    trace = read(paths, tolerant=True)
    if not trace.runs and not trace.problems:
        raise Misuse(f"{', '.join(map(str, paths))} holds no run: name a folder written by `--trace`.")
    events = list(trace.events())
    verdicts = judge_all(events, troubled=trace.troubled)
    extents = measure_extents(events)
    notes = [*trace.notes, *(f"quarantined: {problem.text}" for problem in trace.problems)]
    names = _names(verdicts)
    if json:
        print_json(
            {
                names[whose]: {
                    "verdict": verdict.result,
                    "violations": [str(violation) for violation in verdict.violations],
                    "counts": verdict.counts,
                    "unknown": dict(verdict.unknown),
                    "notes": [*verdict.notes, *notes],
                    "files": len(trace.files.get(whose[0], ())),
                    **extents[whose].row(),
                    "judged": _sorted(verdict.owed - extents[whose].unjudged(verdict).keys()),
                    "not_judged": extents[whose].unjudged(verdict),
                }
                for whose, verdict in verdicts.items()
            }
        )
    else:
        for note in notes:
            tell(f"note: {note}", "yellow")
        for whose, verdict in verdicts.items():
            tell(f"{verdict.result:8}{names[whose]}")
            for line in extents[whose].lines(verdict, len(trace.files.get(whose[0], ()))):
                tell(f"        {line}")
            tell_found(map(str, verdict.violations), verdict.counts, verdict.unknown, verdict.notes, long)
        if len(verdicts) > 1:
            many = Counter(verdict.result.value for verdict in verdicts.values())
            tell(f"{len(verdicts)} runs: {', '.join(f'{number} {result}' for result, number in sorted(many.items()))}")
        if trace.problems and {verdict.result for verdict in verdicts.values()} == {"PASS"}:
            tell("UNKNOWN (exit code 2): the rows that can be used pass, but what is quarantined may be of any run.")
    results = {verdict.result for verdict in verdicts.values()}
    if trace.problems:
        results.add(Result.UNKNOWN)
    if results != {"PASS"}:
        raise typer.Exit(1 if "FAIL" in results else 2)


def _require_local(paths: Iterable[str]) -> None:
    for path in paths:
        if "://" in path and not Path(path).exists():
            raise Misuse(
                f"{path} is not a local path: `unisono trace verify` judges traces at file://, s3:// and hdfs://."
            )


Whose = tuple[str, str]  # a run and a group
OF_PRIMARIES = frozenset({"P27", "P29"})


def _names(verdicts: Iterable[Whose]) -> dict[Whose, str]:
    """By run; where a run holds several groups, by run and group."""
    runs = Counter(run for run, _ in verdicts)
    return {(run, group): run if runs[run] == 1 else f"{run} {group}" for run, group in verdicts}


@dataclass
class Extent:
    """How much of a run was judged."""

    orders: set[str] = field(default_factory=set)
    lives: set[tuple[str, int]] = field(default_factory=set)
    views: set[str] = field(default_factory=set)
    rows: int = 0
    casts: int = 0
    deliveries: int = 0
    is_shown: bool = False
    """Whether the trace records what applications were shown."""
    has_policy: bool = False
    """Whether views record if they are primary."""

    def add(self, event: Event) -> None:
        self.rows += 1
        self.orders.add(event.protocol)
        self.lives.add((event.member, event.incarnation))
        if event.kind == CAST:
            self.casts += event.count or 1
        elif event.kind == DELIVER:
            self.deliveries += event.count or 1
        elif event.kind == VIEW:
            self.orders.add(event.reason or event.protocol)
            self.views.add(event.view or "")
            self.has_policy |= "primary" in (event.attributes or {})
        self.is_shown |= event.kind in SHOWN_KINDS

    @property
    def members(self) -> int:
        return len({member for member, _ in self.lives})

    def unjudged(self, verdict: Verdict) -> dict[str, str]:
        """Properties that the verdict says nothing about, each with the reason."""
        reasons = {}
        for one in CHECKERS:
            if one not in verdict.owed:
                reasons[one] = f"not owed by {', '.join(sorted(self.orders))}"
            elif one in SHOWN and not self.is_shown:
                reasons[one] = "what applications were shown is not recorded"
            elif one in OF_PRIMARIES and not self.has_policy:
                reasons[one] = "no view is under the primary policy"
        return reasons

    def row(self) -> dict[str, Any]:
        counts = {"members": self.members, "lives": len(self.lives), "views": len(self.views)}
        return {
            "orders": sorted(self.orders),
            **counts,
            "rows": self.rows,
            "casts": self.casts,
            "deliveries": self.deliveries,
        }

    def lines(self, verdict: Verdict, files: int) -> Iterator[str]:
        lives = f" in {len(self.lives)} lives" if len(self.lives) > self.members else ""
        yield (
            f"{', '.join(sorted(self.orders))}: {_count(self.members, 'member')}{lives}, {_count(self.rows, 'row')} in "
            f"{_count(files, 'file')}; {_count(self.casts, 'cast')}, {_count(self.deliveries, 'deliver', 'y', 'ies')}, "
            f"{_count(len(self.views), 'view')}"
        )
        unjudged = self.unjudged(verdict)
        judged = _sorted(verdict.owed - unjudged.keys())
        yield f"judged: {len(judged)} properties, {' '.join(judged)}"
        for why in dict.fromkeys(unjudged.values()):
            yield f"not judged: {' '.join(one for one in unjudged if unjudged[one] == why)} ({why})"


def measure_extents(events: Iterable[Event]) -> dict[Whose, Extent]:
    extents: dict[Whose, Extent] = defaultdict(Extent)
    for event in events:
        extents[event.run, event.group].add(event)
    return extents


def _count(number: int, noun: str, one: str = "", several: str = "s") -> str:
    return f"{number:,} {noun}{one if number == 1 else several}"


def _sorted(properties: Iterable[str]) -> list[str]:
    return sorted(properties, key=list(CHECKERS).index)


@app.command("close")
def close(
    folder: Annotated[Path, typer.Argument(help="A trace folder.")],
    run: Annotated[str | None, typer.Option(help="Only this run.")] = None,
    member: Annotated[str | None, typer.Option(help="Only this member.")] = None,
    power_cut: Annotated[
        bool, typer.Option("--power-cut", help="The machine itself stopped: the last rows may be missing.")
    ] = False,
) -> None:
    """Append CRASH to the traces of killed members, which could not write it themselves."""
    notes: list[str] = []
    closed = close_killed(folder, run, member, power_cut=power_cut, notes=notes)
    for life in closed:
        tell(f"{life.run}: {life.member} closed with CRASH")
    for note in notes:
        tell(note, style="yellow")
    if not closed and not notes:
        tell("every trace in the folder has an ending already")


@app.command("diagram")
def diagram(
    paths: Paths,
    run: Annotated[str | None, typer.Option(help="The run, if there are several.")] = None,
    start: o.From = None,
    until: o.To = None,
    file: Annotated[Path, typer.Option("--out", help="File to write.", callback=o.refuse_other_storage)] = Path(
        "diagram.svg"
    ),
) -> None:
    """Draw a recorded run, or a part of it, as a space-time diagram (SVG)."""
    begin, end = (None if text is None else parse_duration(text) for text in (start, until))
    _require_local(paths)
    trace = read(paths)
    if not trace.runs:
        raise Misuse(f"{', '.join(map(str, paths))} holds no run: name a folder written by `--trace`.")
    if run is None and len(trace.runs) > 1:
        raise Misuse(f"there are several runs, choose one with --run: {', '.join(trace.runs)}.")
    name = run or trace.runs[0]
    if name not in trace.runs:
        raise Misuse(f"there is no run {name!r}: choose among {', '.join(trace.runs)}.")
    events = list(trace.events(name))
    begin, end = cut_window(events, begin, end)
    write_whole(file, render(events, title=name, start_ns=begin, end_ns=end))
    tell(str(file))
