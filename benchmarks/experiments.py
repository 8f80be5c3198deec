"""How much of a core experiments get through Spark, and what a second executor brings.

    ./dev bench experiments [--cells 96] [--json]

The same cells are run in a bare loop of one process, by one executor with one core, and by two. Each is a process of its own, and
runs some cells before the clock starts, so that neither starting Java nor loading modules is counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from unisono.experiments.cell import run_cell
from unisono.experiments.grid import Grid, make_grid
from unisono.experiments.runner import run_grid

WAYS = {"bare loop": None, "one executor": "local-cluster[1,1,1024]", "two executors": "local-cluster[2,1,1024]"}


def cells(count: int, first_seed: int) -> Grid:
    """Runs of the orders that experiments compare most, of about a fifth of a second each."""
    orders = ["sequencer", "abcast", "tomp", "toto"]
    seeds = list(range(first_seed, first_seed + max(1, count // len(orders))))
    return make_grid("bench", {"order": orders, "members": 5, "rate": 500, "messages": 800, "seed": seeds})


def measure(master: str | None, count: int) -> dict[str, float]:
    """Deliveries and seconds of the measured cells, run one way."""
    warm, measured = cells(8, 1_000), cells(count, 0)
    if master is None:
        for cell in warm.cells:
            run_cell(cell.id, cell.scenario)
        start = perf_counter()
        rows = [run_cell(cell.id, cell.scenario) for cell in measured.cells]
        seconds = perf_counter() - start
    else:
        from unisono.pipeline.session import open_session

        spark = open_session(master, "unisono bench experiments")
        with tempfile.TemporaryDirectory() as folder:
            run_grid(spark, warm, Path(folder) / "warm")
            start = perf_counter()
            rows = run_grid(spark, measured, Path(folder) / "measured")
            seconds = perf_counter() - start
        spark.stop()
    assert all(row["verdict"] == "PASS" for row in rows)
    return {"deliveries": sum(row["deliveries"] for row in rows), "seconds": round(seconds, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench experiments", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cells", type=int, default=96)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(WAYS[options.way], options.cells)))
        return
    found: dict[str, dict[str, float]] = {}
    for way in WAYS:
        command = [sys.executable, "-m", "benchmarks.experiments", "--way", way, "--cells", str(options.cells)]
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        found[way] = json.loads(ran.stdout.strip().split("\n")[-1])
        found[way]["per_second"] = round(found[way]["deliveries"] / found[way]["seconds"])
    bare, one, two = (found[way]["per_second"] for way in WAYS)
    ratios = {"one_executor_of_bare": round(one / bare, 2), "two_executors_of_one": round(two / one, 2)}
    if options.json:
        print(json.dumps({"cells": options.cells, "ways": found, **ratios}))
        return
    for way, figures in found.items():
        print(f"{way:<14} {figures['seconds']:>7.2f} s, {figures['per_second']:>9,.0f} deliveries a second")
    print(f"one executor reaches {ratios['one_executor_of_bare']:.0%} of the bare loop; ", end="")
    print(f"two are {ratios['two_executors_of_one']:.2f} times as fast as one")


if __name__ == "__main__":
    main()
