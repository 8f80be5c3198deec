"""`unisono sim swarm`: many random runs of whole groups, on all cores, stopped and resumed at will."""

from __future__ import annotations

import json as json_module
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer

from unisono.cli import options as o
from unisono.cli.show import bar, err, out, print_json
from unisono.core.errors import Misuse
from unisono.orders.registry import ORDERS, find_order
from unisono.sim.group_run import GroupOutcome
from unisono.sim.group_swarm import hunt
from unisono.sim.pool import fan_out
from unisono.trace.files import lines_of, open_regular, parse_json

HOUR_NS = 3_600 * 10**9


def swarm(
    seeds: Annotated[int | None, typer.Option(help="Seeds per order; without it, run until stopped.")] = None,
    order: Annotated[str | None, typer.Option("--order", "-o", help="Only this order.")] = None,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Number of processes. Default: one per core.")] = None,
    folder: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Folder for the records of all runs, from which the same command resumes, and replay files of failures.",
            callback=o.refuse_other_storage,
        ),
    ] = Path("swarm"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard the records of an earlier swarm.")] = False,
    json: o.Json = False,
) -> None:
    """Run whole groups with random faults, and judge every run; shrink each failure to a replay file."""
    names = [order] if order else list(ORDERS)
    for name in names:
        find_order(name)
    for option, value in (("--seeds", seeds), ("--workers", workers)):
        if value is not None and value < 1:
            raise Misuse(f"{option} must be at least 1, not {value}.")
    notes = folder / "runs.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    if fresh:
        notes.unlink(missing_ok=True)
    runs = {(one.order, one.seed): one for one in _read(notes)}
    wanted = None if seeds is None else {(name, seed) for name in names for seed in range(first, first + seeds)}
    before = len(runs) if wanted is None else len(wanted & runs.keys())
    begun, done = monotonic(), before
    with bar("swarm", None if wanted is None else len(wanted)) as update, open(notes, "a", encoding="utf-8") as file:
        update(done)

        def seen(run: GroupOutcome) -> bool:
            nonlocal done
            runs[run.order, run.seed] = run
            file.write(json_module.dumps(asdict(run), separators=(",", ":")) + "\n")
            file.flush()
            if run.sentence is not None:
                err.print(f"{run.order} seed {run.seed}: {run.sentence}", markup=False, style="red")
                err.print(f"  replay it: unisono sim replay {run.replay}", markup=False)
            done += 1
            update(done)
            return True

        try:
            work = ((name, seed, str(folder)) for name, seed in _work(names, seeds, first, runs.keys()))
            fan_out(hunt, work, seen, workers)
        except KeyboardInterrupt:
            err.print("stopped; run the same command to resume.")
    shown = [one for key, one in runs.items() if wanted is None or key in wanted]
    failed = [one for one in shown if one.sentence is not None]
    told = summary(shown)
    if json:
        print_json(told | {"seconds": round(monotonic() - begun, 1), "new": done - before})
    else:
        _show(told)
    if failed:
        raise typer.Exit(1)


def summary(runs: Iterable[GroupOutcome]) -> dict[str, Any]:
    """Add up what many runs showed."""
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    failures, simulated, views, deliveries, datagrams = [], 0, 0, 0, 0
    for one in runs:
        counts[one.order] += 1
        faults.update(one.faults)
        simulated += one.simulated_ns
        views += one.views
        deliveries += one.deliveries
        datagrams += one.datagrams
        if one.sentence is not None:
            failures.append([one.order, one.seed, one.sentence, one.replay])
    return {
        "runs": dict(sorted(counts.items())),
        "simulated_hours": round(simulated / HOUR_NS, 2),
        "views": views,
        "deliveries": deliveries,
        "datagrams": datagrams,
        "faults": dict(faults.most_common()),
        "failures": sorted(failures),
    }


def _show(told: dict[str, Any]) -> None:
    runs = told["runs"]
    out.print(f"{sum(runs.values()):,} runs: " + ", ".join(f"{name} {number:,}" for name, number in runs.items()))
    out.print(
        f"{told['simulated_hours']:,} simulated hours, {told['views']:,} views installed, {told['deliveries']:,} deliveries, "
        f"{told['datagrams']:,} datagrams"
    )
    out.print("faults: " + (", ".join(f"{name} {number:,}" for name, number in told["faults"].items()) or "none"))
    failures = told["failures"]
    out.print("[green]no violation[/]" if not failures else f"[red]{len(failures)} runs failed[/]")


def _work(
    names: list[str], seeds: int | None, first: int, done: Iterable[tuple[str, int]]
) -> Iterator[tuple[str, int]]:
    known = set(done)
    for seed in count(first) if seeds is None else range(first, first + seeds):
        for name in names:
            if (name, seed) not in known:
                yield name, seed


def _read(notes: Path) -> Iterator[GroupOutcome]:
    """Read the recorded runs. A torn line, left by a killed process, is ignored, so its run is repeated."""
    if not notes.exists():
        return
    try:
        with open_regular(notes) as file:
            for line in lines_of(file):
                with suppress(ValueError, TypeError):
                    yield GroupOutcome(**parse_json(line))
    except OSError as error:
        raise Misuse(f"{notes} cannot be read: {error.strerror or error}. Begin anew with --fresh.") from None
