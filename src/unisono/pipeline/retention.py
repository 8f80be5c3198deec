"""What a pipeline that runs for weeks keeps, and for how long.

Three things would grow for ever: data files that no table holds any more, rows of runs that were judged long ago, and
what the table `views` and the marks of hooks say of those runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from unisono.pipeline.data_files import Chosen
from unisono.pipeline.lake import Lake, LakeTable, open_table, table_folder, table_names
from unisono.pipeline.ledger import SegmentLedger
from unisono.pipeline.rewriting import Drop
from unisono.pipeline.storage import Location
from unisono.pipeline.upkeep import remove_segments, rewrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGS_TO_DEAD = 3
"""Delta's log is kept three times as long as the files that it no longer names."""
LOOKS_PER_AGE = 8
LOOK_WITHIN_S = 3600.0
"""Dead files and old runs are looked for several times in their age, and at least this often: processes do not live for ever."""
RETIRE = "retire"


@dataclass(frozen=True)
class Ages:
    """How long a running pipeline keeps what it could do without."""

    dead_s: float = 2 * 3600.0
    """Data files that no table holds: a reader of an older version may still use them."""
    runs_s: float | None = None
    """Events and facts of runs that were judged and got no new rows; None: for ever."""

    @property
    def log_s(self) -> float:
        return LOGS_TO_DEAD * self.dead_s


def look_interval_s(age_s: float) -> float:
    """How often to look for what has reached an age."""
    return min(age_s / LOOKS_PER_AGE, LOOK_WITHIN_S)


class DeadFiles:
    """Deletes data files that no table has held for some time, counted from when this process noticed.

    Its first look goes by what Delta's logs say, in whole hours: it finds what earlier processes left.
    """

    def __init__(self, out: Location, age_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._age_s, self._clock = out, age_s, clock
        self._since: dict[tuple[str, str], float] = {}
        self._looked: float | None = None

    def delete_old(self) -> int:
        """Delete what has been dead for long enough; how many files. Free unless a look is due."""
        now = self._clock()
        if self._looked is not None and now < self._looked + look_interval_s(self._age_s):
            return 0
        tables = {name: open_table(self._out, name) for name in table_names(self._out)}
        left = sum(table.vacuum(self._age_s / 3600) for table in tables.values()) if self._looked is None else 0
        self._looked = now
        dead = {(name, path) for name, table in tables.items() for path in table.dead_files()}
        self._since = {key: self._since.get(key, now) for key in dead}  # a file that was being written is alive by now
        old = [key for key, since in self._since.items() if now >= since + self._age_s]
        for name, path in old:
            (table_folder(self._out, name) / path).delete()
            del self._since[name, path]
        return left + len(old)


def retire_runs(spark: SparkSession, lake: Lake, ledger: SegmentLedger, age_s: float) -> int:
    """Drop events and facts of runs that were judged and got nothing new for that long; how many segments."""
    before = datetime.now(UTC) - timedelta(seconds=age_s)
    return remove_segments(spark, lake, ledger.old_segments(before), ledger)


def retired_runs(out: Location, ledger: SegmentLedger) -> frozenset[str]:
    """Runs of which the table `views` still has rows, though their events were dropped."""
    if "views" not in table_names(out):
        return frozenset()
    views = open_table(out, "views")
    runs: set[str] = set()
    for part in views.parts(views.files()):
        runs |= set(pc.unique(part.column("run")).to_pylist())
    return frozenset(run for run in runs if ledger.is_retired(run))


def violations_in(views: LakeTable, runs: frozenset[str]) -> list[str]:
    """The ids of the violations that the table `views` has of some runs."""
    chosen = Chosen(runs)
    return [
        one for part in views.parts(views.files(chosen), chosen) for one in part.column("id").drop_null().to_pylist()
    ]


def drop_views(spark: SparkSession, views: LakeTable, runs: frozenset[str]) -> list[str]:
    """Take all rows of some runs out of the table `views`; the ids of the violations among them."""
    ids = violations_in(views, runs)
    files = views.files(Chosen(runs))
    change = rewrite(spark, views, [[file] for file in files], Drop(runs=runs)).get(views.name)
    if change:
        views.commit(change, RETIRE, views.transaction(RETIRE) + 1)
    return ids
