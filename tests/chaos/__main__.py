"""Black-box tests with faults: `./dev chaos`.

Member processes in network namespaces are killed, paused, cut off from each other, slowed down and restarted, as a seed
decides. They use the public interface alone and write down what they are shown; a checker that knows nothing of the code
judges their logs. A run that breaks a promise keeps its plan and its logs.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic, time
from types import FrameType

from tests.chaos.checker import Report, check, load
from tests.chaos.nemesis import ROOT, Interrupted, Nemesis
from tests.chaos.schedule import ORDERS, PATIENCE, Plan, draw
from tests.net.namespaces import missing, sweep


@dataclass
class Outcome:
    """One run."""

    plan: Plan
    folder: Path
    report: Report
    faults: list[str]
    seconds: float

    @property
    def verdict(self) -> str:
        return "PASS" if self.report.is_clean else "FAIL"

    def line(self) -> str:
        counts, broken = self.report.counts, self.report.broken
        what = "" if self.report.is_clean else " " + ", ".join(f"{check} {n}" for check, n in sorted(broken.items()))
        return (
            f"seed {self.plan.seed:<6} {self.plan}  {counts['messages']:6} messages {counts['deliveries']:7} deliveries "
            f"{counts['views']:4} views {self.seconds:5.1f} s  {self.verdict}{what}"
        )


@dataclass
class Summary:
    """All runs so far."""

    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def failed(self) -> list[Outcome]:
        return [one for one in self.outcomes if not one.report.is_clean]

    def __str__(self) -> str:
        lines = [
            f"\n{'order':14}{'runs':>6}{'messages':>10}{'deliveries':>12}{'views':>8}{'pairs':>8}{'receipts':>10}{'failed':>8}"
        ]
        groups = [(order, [one for one in self.outcomes if one.plan.order == order]) for order in ORDERS]
        groups.append(("all", self.outcomes))
        for order, outcomes in groups:
            if outcomes:
                total = sum((one.report.counts for one in outcomes), Counter[str]())
                failed = sum(not one.report.is_clean for one in outcomes)
                lines.append(
                    f"{order:14}{len(outcomes):6}{total['messages']:10,}{total['deliveries']:12,}{total['views']:8,}"
                    f"{total['pairs']:8,}{total['receipts']:10,}{failed:8}"
                )
        faults = Counter(kind for one in self.outcomes for kind in one.faults)
        lines.append("\nfaults: " + (", ".join(f"{n} × {kind}" for kind, n in faults.most_common()) or "none"))
        broken = Counter(check for one in self.failed for check in one.report.broken)
        told = ", ".join(f"{check} in {n} runs" for check, n in broken.most_common())
        lines.append(f"broken: {told or 'nothing'}")
        lines.append(f"{len(self.outcomes)} runs in {self.seconds:.0f} s, {len(self.failed)} failed")
        return "\n".join(lines)


def perform(plan: Plan, folder: Path, stop: threading.Event, patience: float) -> Outcome:
    """Carry out a plan, and judge its logs."""
    began = monotonic()
    nemesis = Nemesis(plan, folder, stop, patience)
    nemesis.run()
    report = check(load(folder))
    (folder / "verdict.txt").write_text(f"{report}\n")
    return Outcome(plan, folder, report, nemesis.faults, monotonic() - began)


def run_all(
    plans: Iterator[Plan],
    base: Path,
    seconds: float | None,
    jobs: int,
    patience: float,
    keep_all: bool,
    quiet: bool = False,
) -> Summary:
    """Run plans until there are no more, or the time is over; those under way are finished. Folders of clean runs are removed."""
    summary, began, stop = Summary(), monotonic(), threading.Event()
    sweep()
    with ThreadPoolExecutor(jobs) as pool:
        running: set[Future[Outcome]] = set()
        try:
            while True:
                while len(running) < jobs and (seconds is None or monotonic() - began < seconds):
                    plan = next(plans, None)
                    if plan is None:
                        break
                    running.add(pool.submit(perform, plan, new_folder(base, plan.seed), stop, patience))
                if not running:
                    break
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    outcome = future.result()
                    summary.outcomes.append(outcome)
                    summary.seconds = monotonic() - began
                    tell(outcome, quiet)
                    if outcome.report.is_clean and not keep_all:
                        shutil.rmtree(outcome.folder)
        except BaseException:
            stop.set()  # every run ends its processes and removes its namespaces
            raise
    return summary


def new_folder(base: Path, seed: int) -> Path:
    """A folder for a run: what an earlier run with this seed left behind is kept."""
    for number in count(1):
        folder = base / (f"seed-{seed}" if number == 1 else f"seed-{seed}-{number}")
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError("counting never ends")


def tell(outcome: Outcome, quiet: bool) -> None:
    if not quiet:
        print(outcome.line(), flush=True)
    if not outcome.report.is_clean:
        folder = outcome.folder
        told = "\n".join(f"    {line}" for line in str(outcome.report).splitlines()[:8])
        print(f"{told}\n    logs:         {folder}", flush=True)
        print(f"    check again:  ./dev chaos --check {folder}", flush=True)
        print(f"    repeat:       ./dev chaos --plan {folder / 'plan.json'}", flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="start no run after this time (default: 120)")
    parser.add_argument("--runs", type=int, help="number of runs, instead of a time")
    parser.add_argument(
        "--seed", type=int, help="of the first run; the next run has the next seed (default: the clock)"
    )
    parser.add_argument("--orders", default=",".join(ORDERS), help="comma-separated (default: all ten)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (default: 2)")
    parser.add_argument("--keep", type=Path, help="folder for logs (default: .cache/chaos); all runs are kept if given")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help=f"bound of liveness, in failure timeouts (default: {PATIENCE})"
    )
    parser.add_argument("--plan", type=Path, action="append", default=[], help="repeat the plan in this file")
    parser.add_argument("--check", type=Path, help="judge the logs in this folder again, and run nothing")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.orders.split(",")) - set(ORDERS)
    if unknown:
        parser.error(f"there is no order {', '.join(sorted(unknown))}: choose among {', '.join(ORDERS)}")
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    if chosen.check is not None:
        report = check(load(chosen.check))
        print(report)
        print(", ".join(f"{n} {what}" for what, n in report.counts.items()))
        return 0 if report.is_clean else 1
    reason = missing()
    if reason is not None:
        print(f"./dev chaos cannot run here: {reason}.", file=sys.stderr)
        return 2
    seed = int(time()) % 1_000_000 if chosen.seed is None else chosen.seed
    seconds = None if chosen.runs is not None or chosen.plan else chosen.seconds
    plans: Iterator[Plan]
    if chosen.plan:
        plans = map(Plan.read, chosen.plan)
    else:
        orders = tuple(chosen.orders.split(","))
        seeds = count(seed) if chosen.runs is None else iter(range(seed, seed + chosen.runs))
        plans = (draw(one, orders) for one in seeds)
        print(f"The first seed is {seed}.", flush=True)
    base = (chosen.keep or ROOT / ".cache" / "chaos").resolve()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        summary = run_all(plans, base, seconds, chosen.jobs, chosen.patience, chosen.keep is not None)
    except (KeyboardInterrupt, Interrupted):
        print("Interrupted; processes and namespaces are gone.", file=sys.stderr)
        return 130
    print(summary)
    return 1 if summary.failed else 0


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
