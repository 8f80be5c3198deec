"""A stream that stands for weeks, judged by a driver that is killed again and again.

    ./dev bench weeks [--days 28] [--kills 10] [--age 60] [--folder DIR] [--json]

Each day of compressed time, runs of the simulator begin and end, some of them damaged, and one long
group goes on: its view changes every day. The traces are written where `unisono pipeline run`
watches. That process is killed at random moments and started again. In the end, what the table `views`
says must be what the plain judge says of each whole run, each violation must have called the hook,
and memory, state and files must not have grown with the days, beyond the 64 small files that a table
may have before they are merged. What a pipeline keeps for hours and days (dead files, groups that never
end properly, runs that were judged) it is told to keep for `--age` seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from unisono.orders.registry import ORDERS
from unisono.pipeline.lake import open_table
from unisono.pipeline.session import PipelineError
from unisono.pipeline.view_judge import BY_THE_RUN
from unisono.pipeline.views_table import GroupState, group_states
from unisono.sim.run import simulate
from unisono.sim.swarm import scenario_of
from unisono.trace.checks.judge import judge_all
from unisono.trace.parquet import write_parquet
from unisono.trace.schema import CAST, DELIVER, VIEW, Event
from unisono.trace.sinks import stem_of
from unisono.trace.story import renumber, tell

RUNS_A_DAY = 2
MEMBERS_MAX, MESSAGES_MAX = 5, 30
WAIT_S = 900.0
LONG = "weeks"
TABLES = ("segments", "events", "facts", "views", "verdicts", "violations")
AGE_S = 60.0
"""How long the pipeline keeps what it could do without: a few of these days, and longer than a turn of its stream."""
LIMIT_S = 20.0
MAINTENANCE = "spark.sql.streaming.stateStore.maintenanceInterval"
"""How often Spark makes snapshots of the state and deletes old versions: every minute, if it is not told otherwise."""


@dataclass
class Feeder:
    """Writes the traces, day by day."""

    folder: Path
    random: Random
    traces: dict[str, list[Event]] = field(default_factory=dict)
    segments: dict[tuple[str, str], int] = field(default_factory=dict)

    def day(self, number: int, is_last: bool) -> None:
        for at in range(RUNS_A_DAY):
            run, trace = self._run(number * RUNS_A_DAY + at)
            self.traces[run] = trace
            self._write(run, trace)
        part = list(long_group(number + 1, is_last))
        self.traces.setdefault(LONG, []).extend(part)
        self._write(LONG, part)

    def _run(self, number: int) -> tuple[str, list[Event]]:
        order = sorted(ORDERS)[number % len(ORDERS)]
        seed = number
        while (scenario := scenario_of(order, seed)).members > MEMBERS_MAX or scenario.source.messages > MESSAGES_MAX:
            seed += 1_000
        run = f"run-{number:05}"
        trace = [replace(event, run=run) for event in simulate(scenario, keep=True).events]
        return run, damaged(trace, self.random) if number % 5 == 4 else trace

    def _write(self, run: str, events: list[Event]) -> None:
        lives: dict[tuple[str, int], list[Event]] = {}
        for event in events:
            lives.setdefault((event.member, event.incarnation), []).append(event)
        for (member, incarnation), rows in lives.items():
            stem = stem_of(run, member, incarnation)
            number = self.segments.get((run, stem), 0)
            self.segments[run, stem] = number + 1
            target = self.folder / f"{stem}.{number:06}.parquet"
            write_parquet(target.with_suffix(".tmp"), rows)
            os.replace(target.with_suffix(".tmp"), target)


def damaged(trace: list[Event], random: Random) -> list[Event]:
    """A delivery happens twice."""
    rows = [at for at, event in enumerate(trace) if event.kind == DELIVER]
    if not rows:
        return trace
    at = random.choice(rows)
    return renumber([*trace[: at + 1], trace[at], *trace[at + 1 :]])


def long_group(day: int, is_last: bool) -> Iterator[Event]:
    """One day of three members that stay together: a view, and some messages in it."""
    lines = [f"a,b,c VIEW {day}@a a b c" + (" from a b c" if day > 1 else "")]
    lines += [f"{who} CAST {who}{number}" for number in range(20) for who in "abc"]
    lines += [f"a,b,c DELIVER {who}{number}" for number in range(20) for who in "abc"]
    lines += ["all END"] if is_last else ["a,b,c BLOCK"]
    events = tell("\n".join(lines), run=LONG)
    rows_a_day, casts_a_day = 1 + 20 + 60 + 1, 20
    for event in events:
        earlier = (day - 1) * rows_a_day
        moved = replace(event, local_index=event.local_index + earlier, time_ns=event.time_ns + 3 * earlier)
        if event.kind == VIEW and day > 1:
            moved = replace(moved, previous_view=f"{day - 1}@a")
        if event.kind in (CAST, DELIVER):
            moved = replace(moved, first=(event.first or 0) + (day - 1) * casts_a_day)
        yield moved


class Driver:
    """`unisono pipeline run`, killed and started again."""

    def __init__(self, traces: Path, out: Path, said: Path, log: Path, age_s: float) -> None:
        hook = f"{sys.executable} -c \"import sys; open({str(said)!r}, 'a').write(sys.stdin.read())\""
        self._command = [
            sys.executable, "-m", "unisono", "pipeline", "run", "--watch", str(traces), "--out", str(out), "--on-fail", hook,
            "--limit", str(LIMIT_S), "--forget", str(age_s), "--keep-days", str(age_s / 86_400),
            "--vacuum-hours", str(age_s / 3_600), "--conf", f"{MAINTENANCE}={age_s / 6:.0f}s",
        ]  # fmt: skip
        self._log = log
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """The process and its Java, at once."""
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def require_alive(self) -> None:
        if self._process.poll() is not None:
            raise SystemExit(f"the pipeline ended by itself:\n{self._log.read_text()[-2_000:]}")

    def memory_mb(self) -> float:
        """Of the whole group of processes; what is shared counts once."""
        total_kb = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError):
                if os.getpgid(int(folder.name)) == self._process.pid:
                    for line in (folder / "smaps_rollup").read_text().splitlines():
                        if line.startswith("Pss:"):
                            total_kb += int(line.split()[1])
        return total_kb / 1024


@dataclass
class Tables:
    """What the tables say, and what they have said of runs that they have dropped since."""

    out: Path
    states: dict[tuple[str, str], GroupState] = field(default_factory=dict)

    def look(self) -> dict[tuple[str, str], GroupState]:
        with suppress(PipelineError):  # until there is a table
            self.states |= group_states(open_table(str(self.out), "views").read().to_pylist())
        return self.states

    def is_judged(self, day: int) -> bool:
        """Whether the view of the day before is closed: then everything written until then was taken in."""
        state = self.look().get((LONG, "story")) or self.states.get((LONG, "g"))
        view = None if state is None else state.views.get(f"{day}@a")
        return view is not None and view["result"] != "open"

    def verdicts(self) -> dict[str, str]:
        """By run that has ended: the verdict on it."""
        return {row["run"]: row["result"] for row in open_table(str(self.out), "verdicts").read().to_pylist()}

    def sizes(self) -> dict[str, float]:
        watch = [file for file in (self.out / "_watch").rglob("*") if file.is_file()]
        files = [file for file in self.out.rglob("*") if file.is_file() and "_watch" not in file.parts]
        state = [file for file in watch if "state" in file.parts]
        held = {name: open_table(str(self.out), name).files() for name in TABLES}
        return {
            "state kB": sum(map(_size, state)) / 1024,
            "checkpoint files": len(watch),
            "data files": sum(map(len, held.values())),
            "all files": len(files),
            "all files kB": sum(map(_size, files)) / 1024,
            "rows of events": sum(file.rows for file in held["events"]),
            "marks": len(list((self.out / "_told").glob("*"))),
        }


def _size(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_size
    return 0


def wait_for(driver: Driver, holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        driver.require_alive()
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {WAIT_S:g} s in vain for {what}.")
        time.sleep(0.2)


def compare(feeder: Feeder, tables: Tables) -> list[str]:
    """Where views and whole runs do not agree."""
    states = {run: state for (run, _), state in tables.look().items()}
    verdicts = tables.verdicts()
    problems = []
    for run, trace in feeder.traces.items():
        (verdict,) = judge_all(trace).values()
        broken = {one.view for one in verdict.violations if one.property not in BY_THE_RUN}
        views = {view: row["result"] for view, row in states[run].views.items() if view} if run in states else {}
        if not views:
            problems.append(f"{run}: no view was judged")
        problems += [f"{run}: view {view} is {result}" for view, result in views.items() if result == "open"]
        if verdict.result == "PASS":
            problems += [f"{run}: passes, but {view} is {result}" for view, result in views.items() if result == "FAIL"]
        for view in broken:
            if views.get(str(view)) == "PASS":
                problems.append(f"{run}: {view} passed, but is broken")
        if verdicts.get(run, verdict.result) != verdict.result:
            problems.append(f"{run}: the verdict is {verdicts[run]}, and should be {verdict.result}")
        if broken and "FAIL" not in views.values():
            problems.append(f"{run}: {verdict.broken} was not found")
    return problems


def run(days: int, kills: int, folder: Path, seed: int = 1, age_s: float = AGE_S) -> dict[str, Any]:
    """Feed, kill, compare."""
    random = Random(f"weeks/{seed}")
    traces, out, said = folder / "traces", folder / "tables", folder / "hook.jsonl"
    traces.mkdir(parents=True)
    tables = Tables(out)
    feeder = Feeder(traces, random)
    driver = Driver(traces, out, said, folder / "log.txt", age_s)
    killed_on = set(random.sample(range(1, days), min(kills, days - 1)))
    samples: list[dict[str, float]] = []
    start = time.monotonic()
    try:
        for day in range(days):
            feeder.day(day, is_last=day == days - 1)
            if day in killed_on:
                time.sleep(random.random() * 2)
                driver.kill()
                driver.start()
            if day > 0:
                wait_for(driver, lambda day=day: tables.is_judged(day), f"day {day}")  # type: ignore[misc]
                samples.append({"memory MB": driver.memory_mb(), **tables.sizes()})
        wait_for(driver, lambda: tables.is_judged(days), "the last day")
        wait_for(
            driver, lambda: not [p for p in compare(feeder, tables) if p.endswith("open") or "no view" in p], "all runs"
        )
        expected = {name for state in tables.look().values() for name in state.failures}
        wait_for(driver, lambda: expected <= {one["id"] for one in hooks(said)}, "the hooks")
    finally:
        driver.kill()
    calls = hooks(said)
    quarter = max(1, len(samples) // 4)
    early, late = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    return {
        "days": days,
        "kills": driver.starts - 1,
        "runs": len(feeder.traces),
        "seconds": round(time.monotonic() - start, 1),
        "problems": compare(feeder, tables),
        "verdicts": len(tables.verdicts()),
        "violations": len({one["id"] for one in calls}),
        "hook calls": len(calls),
        "samples": samples,
        "growth": {
            name: {
                "second quarter": round(median(one[name] for one in early), 1),
                "last quarter": round(median(one[name] for one in late), 1),
            }
            for name in samples[0]
        },
    }


def hooks(said: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.read_text().splitlines()] if said.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=28)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--age", type=float, default=AGE_S, help="seconds for which the pipeline keeps things")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unisono-weeks-") as temporary:
        found = run(options.days, options.kills, options.folder or Path(temporary), options.seed, options.age)
    if options.json:
        print(json.dumps(found))
    else:
        print(f"{found['days']} days, {found['runs']} runs, {found['verdicts']} of them ended and judged")
        print(f"{found['kills']} kills, {found['seconds']} s")
        print(f"{found['violations']} violations, {found['hook calls']} calls of the hook")
        for name, sizes_ in found["growth"].items():
            print(
                f"{name:18}{sizes_['second quarter']:>12} in the second quarter{sizes_['last quarter']:>12} in the last"
            )
        print("views and whole runs agree" if not found["problems"] else "\n".join(found["problems"]))
    if found["problems"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
