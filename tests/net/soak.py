"""A soak: members come and go about once a second while the others cast, and nothing may grow.

    python -m tests.net.soak --minutes 10      (or ./dev soak)

Two members stay; two leave and join again, taking turns, each time as a new life in the same process. So every change is two
views. What leaks shows as a trend in memory, files or tasks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from tests.net.stage import Stage, staged

RSS_GROWTH_KIB_MAX = 8 << 10
STAYING, COMING = "ab", "cd"


@dataclass
class Table:
    """What each process used, at each look."""

    rows: list[dict[str, dict[str, Any]]] = field(default_factory=list)

    def look(self, stage: Stage, changes: int, began: float) -> dict[str, dict[str, Any]]:
        row: dict[str, dict[str, Any]] = {"": {"changes": changes, "seconds": monotonic() - began}}
        for name in STAYING + COMING:
            row[name] = stage.ask(name)
        self.rows.append(row)
        return row

    def leaks(self) -> list[str]:
        """What grew between the first look, after the warm-up, and the last one."""
        first, last = self.rows[0], self.rows[-1]
        found = []
        for name in STAYING + COMING:
            grown = last[name]["rss_kib"] - first[name]["rss_kib"]
            if grown > RSS_GROWTH_KIB_MAX:
                found.append(f"the memory of {name} grew by {grown} KiB")
            for what in ("files", "tasks"):
                if last[name][what] > first[name][what]:
                    found.append(f"{name} has {last[name][what]} {what} instead of {first[name][what]}")
        return found

    def __str__(self) -> str:
        return "\n".join([TITLE, *map(line_of, self.rows)])


TITLE = f"{'s':>6} {'changes':>8} {'views':>6} {'delivered':>10}   " + "   ".join(
    f"{name + ': MiB':>7} files tasks" for name in STAYING + COMING
)


def line_of(row: dict[str, dict[str, Any]]) -> str:
    about, a = row[""], row["a"]
    view = int(a["view"].partition("@")[0])
    text = f"{about['seconds']:6.0f} {about['changes']:8} {view:6} {a['delivered']:10}   "
    parts = [
        f"{row[name]['rss_kib'] / 1024:7.1f} {row[name]['files']:5} {row[name]['tasks']:5}" for name in STAYING + COMING
    ]
    return text + "   ".join(parts)


def come_and_go(stage: Stage, name: str) -> None:
    """One leaves and joins again."""
    lives = len(stage[name].said("joined"))
    stage[name].tell("again")
    stage.until(lambda: len(stage[name].said("joined")) > lives, f"{name} is back")
    stage.until_one_view(STAYING + COMING)


def soak(folder: Path, changes: int | None = None, warm_up: int = 20, seconds: float = 0.0) -> Table:
    """So many changes, or as many as there are in so many seconds, after a warm-up."""
    table, began, looked = Table(), monotonic(), 0.0
    with staged(folder, 4, rate=30, pace=0.1, trace=None) as stage:
        stage.gather(STAYING + COMING)
        done = 0
        while done < changes if changes is not None else monotonic() - began < seconds:
            come_and_go(stage, COMING[done % len(COMING)])
            done += 1
            if (
                done >= warm_up
                and (changes is None or done in (warm_up, changes))
                and monotonic() - looked > 10 * (changes is None)
            ):
                looked = monotonic()
                row = table.look(stage, done, began)
                if changes is None:
                    print(line_of(row), flush=True)
        table.look(stage, done, began)
        stage.settle(STAYING + COMING)
        stage.leave(STAYING + COMING)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    print(TITLE, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        table = soak(Path(folder), seconds=60 * minutes)
    leaks = table.leaks()
    print(line_of(table.rows[-1]))
    print("\n".join(leaks) or "Nothing grew.")
    sys.exit(1 if leaks else 0)


if __name__ == "__main__":
    main()
