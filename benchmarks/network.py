"""What a Python user would take, side by side: unisono on real sockets, and with --peers the alternatives. Loopback, this machine.

    ./dev bench network [--quick] [--peers] [--only PATTERN] [--json]

Every member is a process and takes every message in one total order; that it is one is checked in every run. Members cast
single messages and take single messages. Rates: delivered messages per second at the slowest member, casting as fast as flow
control lets them. Latencies: from cast to delivery at the other members, 200 messages per second in all. Rounds of all systems
alternate; the figures are medians. A round in which other processes used the machine is repeated, a few times at most.
`--only` takes what matches a pattern in the form "system: case", as in --only '(unisono|pyzmq): N=3'.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.network_cases import BASE, COMMON, OWN, Case
from benchmarks.network_judge import Sample, is_disturbed, settle
from benchmarks.network_peers import find_peers
from benchmarks.network_run import ROOT, System, measure
from benchmarks.network_table import ITERATES, OURS, show, verdicts

PEERS_PYTHON = ROOT / ".cache/peers-env/bin/python"
UNISONO = System("unisono", "benchmarks.network_member", sys.executable, lambda members: members, udp=True)
ITERATING = replace(UNISONO, name=ITERATES, module="benchmarks.network_iterating")


TRIES_MAX = 3


@dataclass(frozen=True)
class Scale:
    """How long and how often."""

    rounds: int
    repeats: float  # of disturbed runs, for each run that is wanted: a machine that is never quiet shall not hold us up
    warm_s: float
    seconds: float


FULL = Scale(rounds=5, repeats=1.0, warm_s=0.5, seconds=2.5)
QUICK = Scale(rounds=2, repeats=0.25, warm_s=0.3, seconds=1.0)


async def undisturbed(run: Callable[[], Awaitable[Sample]], tries: int) -> tuple[Sample, int]:
    """Return the first undisturbed sample, or else the least disturbed one, and the number of tries.

    A fault is a result and is not tried again.
    """
    samples: list[Sample] = []
    for number in range(1, tries + 1):
        sample = await run()
        if sample.fault is not None or not is_disturbed(sample.foreign):
            return sample, number
        samples.append(sample)
    return min(samples, key=lambda sample: sample.foreign), tries


def choose(systems: list[System], pattern: str | None) -> list[tuple[System, Case]]:
    """What one round holds: each case on one system after the other, then unisono's own cases."""
    pairs = [
        (system, case) for case in COMMON for system in systems if case.rate_per_s is None or system.has_latency
    ] + [(UNISONO, case) for case in OWN]
    if pattern is None:
        return pairs
    wanted = re.compile(pattern, re.IGNORECASE)
    pairs = [(system, case) for system, case in pairs if wanted.search(f"{system.name}: {case.name}")]
    needs_base = any(case.load_share is not None for _, case in pairs)
    if needs_base and (UNISONO, BASE) not in pairs:
        pairs.insert(0, (UNISONO, BASE))
    return pairs


@dataclass
class Bench:
    scale: Scale
    repeats_left: int = 0
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)

    async def run(self, pairs: list[tuple[System, Case]], progress: Progress) -> None:
        self.repeats_left = int(self.scale.repeats * self.scale.rounds * len(pairs))
        task = progress.add_task("", total=self.scale.rounds * len(pairs))
        for number in range(self.scale.rounds):
            for system, case in pairs:
                progress.update(task, description=f"round {number + 1}: {system.name}, {case.name}")
                sample = await self._sample(system, case)
                self.samples.setdefault(system.name, {}).setdefault(case.name, []).append(sample)
                progress.advance(task)

    async def _sample(self, system: System, case: Case) -> Sample:
        if case.load_share is not None:
            borne = [sample.per_s for sample in self.samples["unisono"][BASE.name] if sample.fault is None]
            if not borne:
                return Sample(fault=f"{BASE.name} has no figure yet to take a share of")
            case = case.at_rate(case.load_share * median(borne))
        scale = self.scale
        tries = 1 + min(TRIES_MAX - 1, self.repeats_left)
        sample, tried = await undisturbed(lambda: measure(system, case, scale.warm_s, scale.seconds), tries)
        self.repeats_left -= tried - 1
        return sample

    def results(self) -> dict[str, dict[str, dict[str, Any]]]:
        return {
            name: {case: settle(samples) for case, samples in cases.items()} for name, cases in self.samples.items()
        }


def find_systems(with_peers: bool) -> tuple[list[System], dict[str, str]]:
    if not with_peers:
        return [UNISONO, ITERATING], {}
    if not Path(PEERS_PYTHON).exists():
        sys.exit("./dev bench network: the peers' packages are not there; `./dev bench network --peers` installs them.")
    peers, missing = find_peers(str(PEERS_PYTHON))
    return [UNISONO, ITERATING, *peers], missing


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench network", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two short rounds instead of five")
    parser.add_argument("--peers", action="store_true", help="measure the alternatives too")
    parser.add_argument("--only", metavar="PATTERN", help='only what matches, in the form "system: case"')
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args()
    try:
        systems, missing = find_systems(options.peers)
        pairs = choose(systems, options.only)
    except re.error as error:
        parser.error(f"--only {options.only!r} is no pattern: {error}.")
    if not pairs:
        parser.error(f"--only {options.only!r} matches nothing; a case is named like 'unisono: {BASE.name}'.")
    bench = Bench(QUICK if options.quick else FULL)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            asyncio.run(bench.run(pairs, progress))
    except KeyboardInterrupt:
        print("./dev bench network: interrupted; these are the rounds so far.", file=sys.stderr)
    results = bench.results()
    names = [system.name for system in systems]
    if options.json:
        print(json.dumps(as_json(results, missing, names, bench.scale)))
    else:
        show(Console(), results, missing, names)
    if any(found["faults"] for name in OURS for found in results.get(name, {}).values()):
        sys.exit(1)


def as_json(results: dict[str, Any], missing: dict[str, str], names: list[str], scale: Scale) -> dict[str, Any]:
    compared = verdicts(results, names)
    return {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()},
        "rounds": scale.rounds,
        "seconds": scale.seconds,
        "systems": results,
        "missing": missing,
        "verdict": {
            row: {column: {"ratio": round(one.ratio, 3), "peer": one.peer} for column, one in found.items()}
            for row, found in compared.items()
        },
    }


if __name__ == "__main__":
    main()
