"""What benchmarks gave over time: a file with one line for each recorded run, and the page that draws it.

./dev bench NAME [options of that benchmark] --record    appends a line, and draws the page anew
./dev bench history                                      draws the page anew
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from unisono.experiments.figures import COLOURS, Drawing, curves

ROOT = Path(__file__).resolve().parents[1]
HISTORY = ROOT / "benchmarks" / "history.jsonl"
PAGE = ROOT / "docs" / "results" / "history.md"


class Series(NamedTuple):
    """What is kept of one benchmark's JSON output: the numbers at `path`, where `*` stands for every name."""

    path: tuple[str, ...]
    unit: str
    title: str


KEPT = {
    "alone": Series(("cpu_us", "*"), "µs of CPU", "A message alone, by role"),
    "ordering": Series(("orders", "*", "1"), "µs of CPU", "Ordering, by message and member, one message a batch"),
    "simulator": Series(
        ("orders", "*", "deliveries_per_second"), "deliveries per second", "The simulator, one message a batch"
    ),
}


class Record(NamedTuple):
    """One line of the file."""

    date: str
    commit: str
    machine: str
    benchmark: str
    figures: dict[str, float]


def figures_of(benchmark: str, output: Any) -> dict[str, float]:
    """What is kept of a benchmark's output, by the name that `*` stands for."""
    *above, last = KEPT[benchmark].path
    outer = output[above[0]]
    return dict(outer) if last == "*" else {name: row[last] for name, row in outer.items()}


def machine() -> str:
    """Figures of one machine can be compared, those of two cannot."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.python_implementation()} {platform.python_version()}"
    )


def commit() -> str:
    """The checked-out commit; `-dirty` says that what was measured differs from it."""
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    same = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "src", "benchmarks/*.py"], cwd=ROOT).returncode == 0
    return head.stdout.strip() + ("" if same else "-dirty")


def record(benchmark: str, history: Path = HISTORY) -> Record:
    """Run a benchmark without options, so that records compare, and append what it gives to the history."""
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "--json"]
    output = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)
    made = Record(datetime.now(UTC).date().isoformat(), commit(), machine(), benchmark, figures_of(benchmark, output))
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(made._asdict(), ensure_ascii=False) + "\n")
    return made


def load(history: Path = HISTORY) -> list[Record]:
    return [Record(**json.loads(line)) for line in history.read_text("utf-8").splitlines()]


def draw(benchmark: str, records: Sequence[Record]) -> Drawing:
    """The records of the machine that recorded last; as many curves as can be told apart."""
    series = KEPT[benchmark]
    drawn = [one for one in records if one.machine == records[-1].machine]
    points = {
        name: (
            [place for place, one in enumerate(drawn, start=1) if name in one.figures],
            [one.figures[name] for one in drawn if name in one.figures],
        )
        for name in list(records[-1].figures)[: len(COLOURS)]
    }
    alt = f"{series.title}: {series.unit} by record"
    return curves(f"history-{benchmark}", alt, "record", series.unit, points)


def page_of(records: Sequence[Record]) -> str:
    parts = [
        "# Benchmark history\n",
        "Drawn by `./dev bench history` from `benchmarks/history.jsonl`, to which commands such as `./dev\n"
        "bench simulator --record` append a line. A picture shows the records of the machine that recorded\n"
        "last, in order, and at most seven curves. Figures of different machines do not compare, nor those\n"
        "of a quiet and of a busy one.\n",
    ]
    for benchmark, series in KEPT.items():
        chosen = [one for one in records if one.benchmark == benchmark]
        if not chosen:
            continue
        drawing = draw(benchmark, chosen)
        names = list(chosen[-1].figures)
        parts += [
            f"## {series.title}\n",
            f"`./dev bench {benchmark} --record`, {series.unit}.\n",
            f"![{drawing.alt}](img/{drawing.name}.svg)\n",
            "| date | commit | machine | " + " | ".join(names) + " |",
            "|---|---|---|" + "---:|" * len(names),
            *(f"| {one.date} | {one.commit} | {one.machine} | {cells(one, names)} |" for one in chosen),
            "",
        ]
    return "\n".join(parts)


def cells(one: Record, names: Sequence[str]) -> str:
    return " | ".join(f"{one.figures[name]:,.4g}" if name in one.figures else "" for name in names)


def write(records: Sequence[Record], page: Path = PAGE) -> None:
    """Write the page and its pictures."""
    (page.parent / "img").mkdir(parents=True, exist_ok=True)
    for benchmark in dict.fromkeys(one.benchmark for one in records):
        drawing = draw(benchmark, [one for one in records if one.benchmark == benchmark])
        (page.parent / "img" / f"{drawing.name}.svg").write_text(drawing.svg, "utf-8")
    page.write_text(page_of(records), "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("benchmark", nargs="?", choices=sorted(KEPT), help="whose figures to record")
    parser.add_argument("--record", action="store_true", help="run it and append its figures to the history")
    chosen = parser.parse_args()
    if chosen.record != (chosen.benchmark is not None):
        parser.error("a benchmark and --record go together")
    if chosen.record:
        made = record(chosen.benchmark)
        print(f"recorded {made.benchmark} at {made.commit}: {made.figures}")
    write(load())
    return 0


if __name__ == "__main__":
    sys.exit(main())
