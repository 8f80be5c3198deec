"""The benchmark of weeks, in small: a killed driver says what the plain judge says."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

pytest.importorskip("pyspark")

from benchmarks.weeks import run
from tests.pipeline.test_verify_files import write_lives
from tests.pipeline.test_watch import STORY, wait_for
from unisono.pipeline.data_files import write_data_file
from unisono.pipeline.lake import SCHEMAS, Lake, TableChange, open_table
from unisono.pipeline.retention import Ages, DeadFiles
from unisono.pipeline.storage import Location, place
from unisono.pipeline.stream import Pipeline
from unisono.pipeline.watch_service import WatchOptions, views_judged
from unisono.trace.story import tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROWTH_MAX = 2.0
FILES_MAX = 800
"""Files are merged and cleaned away when there are many: this is beyond all of these limits together."""


def test_a_dead_file_goes_when_it_has_been_dead_for_long_enough(tmp_path: Path) -> None:
    """A file that is being written is in no table yet: it must not go."""
    now = 0.0
    lake = Lake(place(tmp_path))
    kept, wasted, writing = (written(lake, batch) for batch in (1, 2, 3))
    lake.publish(TableChange(), {"facts": kept})
    dead_files = DeadFiles(lake.out, age_s=80.0, clock=lambda: now)
    assert dead_files.delete_old() == 0
    now = 79.0
    assert dead_files.delete_old() == 0, "not for long enough"
    lake.publish(TableChange(), {"facts": writing})
    late = written(lake, 4)
    now = 80.0
    assert dead_files.delete_old() == 0, "a look is not due"
    now = 90.0
    assert dead_files.delete_old() == 1
    there = {file.name for file in (tmp_path / "facts").glob("*.parquet")}
    assert there == {name_of(kept), name_of(writing), name_of(late)}, name_of(wasted)
    now = 180.0
    assert dead_files.delete_old() == 1
    assert {file.path for file in open_table(lake.out, "facts").files()} == {name_of(kept), name_of(writing)}


def test_what_an_earlier_process_left_goes_at_the_first_look(tmp_path: Path) -> None:
    lake = Lake(place(tmp_path))
    old, young = (tmp_path / "facts" / name_of(written(lake, batch)) for batch in (1, 2))
    long_ago = time.time() - 2 * 3600
    os.utime(old, (long_ago, long_ago))
    assert DeadFiles(lake.out, age_s=3600).delete_old() == 1
    assert (old.exists(), young.exists()) == (False, True)


def written(lake: Lake, batch: int) -> TableChange:
    rows = pyarrow.Table.from_pylist([{"run": "r", "group": "g", "what": "life", "batch": batch}], SCHEMAS["facts"])
    return TableChange((write_data_file(lake.out / "facts", batch, [rows], SCHEMAS["facts"]),))


def name_of(change: TableChange) -> str:
    return change.add[0].path


def test_old_runs_go_with_their_views_and_marks_while_the_pipeline_runs(spark: SparkSession, tmp_path: Path) -> None:
    watched, out = tmp_path / "watched", place(tmp_path / "out")
    log: list[str] = []
    called: list[str] = []
    watched.mkdir()
    broken = STORY.replace("a,b DELIVER x", "a,b DELIVER x\na DELIVER x")
    for name, story in (("old", broken), ("open", STORY.replace("all END", "a END"))):
        write_lives(watched, name, tell(story, run=name))
    pipeline = Pipeline(spark, str(watched), out, ages=Ages(runs_s=0.0))
    with views_judged(spark, out, WatchOptions(every_s=0.1, on_fail="true"), log.append) as judged:
        for name in ("old", "older now"):
            status = pipeline.look()
            judged.require_alive()
            wait_for(lambda name=name: said_of(out, name).get("1@a") == "FAIL", "the violation")  # type: ignore[misc]
            wait_for(lambda name=name: marks(out) == ids_of(out, name), "the marks")  # type: ignore[misc]
            called += marks(out)
            if name == "old":
                write_lives(watched, "older now", tell(broken, run="older now"))
            judged.drop(pipeline.clean_up())
            wait_for(lambda name=name: not said_of(out, name), "the views to go")  # type: ignore[misc]
            wait_for(lambda: not marks(out), "the marks to go")
        judged.require_alive()
    assert len(log) == len(called) == len(set(called)), "each violation was told once"
    assert said_of(out, "open")
    assert set(open_table(out, "events").read().column("run").to_pylist()) == {"open"}
    assert set(open_table(out, "facts").read().column("run").to_pylist()) == {"open"}
    assert open_table(out, "verdicts").read().select(["run", "result"]).to_pylist() == [
        {"run": "old", "result": "FAIL"},
        {"run": "older now", "result": "FAIL"},
    ]
    assert status.results == pipeline.look().results, "nothing is taken in again"
    assert Pipeline(spark, str(watched), out).look().results == status.results, "nor by another process"


def rows_of(out: Location, run: str) -> list[dict[str, Any]]:
    return [row for row in open_table(out, "views").read().to_pylist() if row["run"] == run]


def said_of(out: Location, run: str) -> dict[str, str]:
    """By view: the last result."""
    return {row["view"]: row["result"] for row in sorted(rows_of(out, run), key=lambda row: row["said_ms"])}


def ids_of(out: Location, run: str) -> list[str]:
    return sorted(row["id"] for row in rows_of(out, run) if row["id"] is not None)


def marks(out: Location) -> list[str]:
    folder = Path(out.uri) / "_told"
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


def test_three_days_with_a_kill(tmp_path: Path) -> None:
    found = run(days=3, kills=1, folder=tmp_path)
    assert found["kills"] == 1
    assert not found["problems"]
    assert found["hook calls"] >= found["violations"] > 0


@pytest.mark.slow
def test_four_weeks_with_ten_kills_and_nothing_grows(tmp_path: Path) -> None:
    found = run(days=28, kills=10, folder=tmp_path)
    assert found["kills"] == 10
    assert not found["problems"]
    assert found["violations"] <= found["hook calls"] <= found["violations"] + 10
    for name in ("memory MB", "state kB", "checkpoint files"):
        sizes = found["growth"][name]
        assert sizes["last quarter"] <= GROWTH_MAX * sizes["second quarter"], (name, sizes)
    for name in ("data files", "checkpoint files", "all files"):
        assert found["growth"][name]["last quarter"] < FILES_MAX, name
