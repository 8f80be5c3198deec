"""`unisono sim swarm`: many random runs of whole groups, on all cores, stopped and resumed at will."""

from __future__ import annotations

import json as json_module
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
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
from unisono.sim.guided import Guided, GuidedSearch, PoolEntry
from unisono.sim.guided import hunt as hunt_guided
from unisono.sim.pool import fan_out
from unisono.trace.files import lines_of, open_regular, parse_json

_NUMBER = re.compile(r"([0-9]+)(?:\.replay)?\.json$")
HOUR_NS = 3_600 * 10**9
LATELY = 100
"""The runs of which a guided swarm says how many new situations they came to."""


def swarm(
    seeds: Annotated[int | None, typer.Option(help="Seeds per order; without it, run until stopped.")] = None,
    order: Annotated[str | None, typer.Option("--order", "-o", help="Only this order.")] = None,
    first: Annotated[int, typer.Option(help="The first seed; with --guided, the seed of the search.")] = 0,
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
    guided: Annotated[
        bool, typer.Option("--guided", help="Vary the runs that came to new situations; keep them in OUT/pool.")
    ] = False,
    json: o.Json = False,
) -> None:
    """Run whole groups with random faults, and judge every run; shrink each failure to a replay file."""
    names = [order] if order else list(ORDERS)
    for name in names:
        find_order(name)
    for option, value in (("--seeds", seeds), ("--workers", workers)):
        if value is not None and value < 1:
            raise Misuse(f"{option} must be at least 1, not {value}.")
    begun = monotonic()
    shown, more = (_run_guided if guided else _run_seeds)(names, seeds, first, workers, folder, fresh)
    told = summary(shown) | more
    if json:
        print_json(told | {"seconds": round(monotonic() - begun, 1)})
    else:
        _show(told)
    if told["failures"]:
        raise typer.Exit(1)


def _run_seeds(
    names: list[str], seeds: int | None, first: int, workers: int | None, folder: Path, fresh: bool
) -> tuple[list[GroupOutcome], dict[str, Any]]:
    """One seed after another. Returns all runs that were asked for, and what else is to be told."""
    with _notes(folder / "runs.jsonl", fresh) as (before, note):
        runs = {(one.order, one.seed): one for one in before}
        wanted = None if seeds is None else {(name, seed) for name in names for seed in range(first, first + seeds)}
        known = len(runs) if wanted is None else len(wanted & runs.keys())
        done = known
        with bar("swarm", None if wanted is None else len(wanted)) as update, _until_stopped():
            update(done)

            def seen(run: GroupOutcome) -> bool:
                nonlocal done
                runs[run.order, run.seed] = run
                note(run)
                done += 1
                update(done)
                return True

            work = ((name, seed, str(folder)) for name, seed in _work(names, seeds, first, runs.keys()))
            fan_out(hunt, work, seen, workers)
    return [one for key, one in runs.items() if wanted is None or key in wanted], {"new": done - known}


def _run_guided(
    names: list[str], seeds: int | None, first: int, workers: int | None, folder: Path, fresh: bool
) -> tuple[list[GroupOutcome], dict[str, Any]]:
    """Runs that are varied from those that came to new situations. Returns all runs, and what else is to be told."""
    pool = folder / "pool"
    pool.mkdir(parents=True, exist_ok=True)
    for path in pool.glob("*.json") if fresh else ():
        path.unlink()
    with _notes(folder / "guided.jsonl", fresh) as (before, note):
        search, runs = GuidedSearch(names, first, map(PoolEntry.load, sorted(pool.glob("*.json")))), list(before)
        total, known = None if seeds is None else seeds * len(names), len(runs)
        failures = sum(one.sentence is not None for one in runs)
        lately: deque[int] = deque(maxlen=LATELY)
        with bar("swarm", total) as update, _until_stopped():
            update(known)

            def seen(run: Guided) -> bool:
                nonlocal failures
                entry = search.note(run)
                if entry is not None:
                    entry.save(pool / f"{run.number:08}.json")
                runs.append(run.outcome)
                note(run.outcome)
                failures += run.outcome.sentence is not None
                lately.append(0 if entry is None else len(entry.new))
                update(
                    len(runs),
                    f"{len(runs):,} runs: {len(search.hits):,} situations, {sum(lately):,} new in the last {len(lately)} "
                    f"runs, {len(search.pool):,} in the pool, {failures} failures",
                )
                return True

            begin = 0 if fresh else max(known, _unused_number(folder))
            numbers = count(begin) if total is None else range(begin, begin + total - known)
            fan_out(hunt_guided, ((number, search.next(number), str(folder)) for number in numbers), seen, workers)
    return runs, {"situations": len(search.hits), "pool": len(search.pool), "new": len(runs) - known}


def _unused_number(folder: Path) -> int:
    """Above those of all runs that left a file. Workers may have been at an earlier one when a swarm was stopped."""
    names = [path.name for pattern in ("pool/*.json", "*-guided-*.replay.json") for path in folder.glob(pattern)]
    numbers = (_NUMBER.search(name) for name in names)
    return max((int(found[1]) + 1 for found in numbers if found is not None), default=0)


@contextmanager
def _notes(path: Path, fresh: bool) -> Iterator[tuple[list[GroupOutcome], Callable[[GroupOutcome], None]]]:
    """The runs that a file holds, and a function that adds one and tells a person if it failed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if fresh:
        path.unlink(missing_ok=True)
    before = list(_read(path))
    with open(path, "a", encoding="utf-8") as file:

        def note(run: GroupOutcome) -> None:
            file.write(json_module.dumps(asdict(run), separators=(",", ":")) + "\n")
            file.flush()
            if run.sentence is not None:
                err.print(f"{run.order} seed {run.seed}: {run.sentence}", markup=False, style="red")
                err.print(f"  replay it: unisono sim replay {run.replay}", markup=False)

        yield before, note


@contextmanager
def _until_stopped() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        err.print("stopped; run the same command to resume.")


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
    if "situations" in told:
        out.print(f"{told['situations']:,} situations seen, {told['pool']:,} scenarios in the pool")
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
