"""A faulty member in a running group: FAIL soon after the view's close."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.net.conftest import folder
from tests.net.stage import staged
from unisono.pipeline.lake import open_table
from unisono.pipeline.stream import Pipeline
from unisono.pipeline.watch_service import WatchOptions, views_judged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["folder"]

WITHIN_S = 10.0
LOOKS = 8
"""On a machine that is busy with other things, as many looks of the pipeline may pass instead."""
DEADLINE_S = 120.0
MUTANT = "tests.mutants.running_mutants:swap_deliveries"


def test_a_mutant_in_a_running_group_fails_within_seconds_of_the_views_close(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, told = folder / "tables", folder / "told.jsonl"
    hook = f"{sys.executable} -c \"import sys; open({str(told)!r}, 'a').write(sys.stdin.read())\""
    log: list[tuple[int, str]] = []
    looks: list[float] = []
    with staged(folder, 4, silence_s=60) as stage:
        stage.start("a", "b", rate=30, min_members=3)
        stage.start("c", rate=30, min_members=3, mutant=MUTANT)
        stage.until_one_view("abc")
        pipeline = Pipeline(spark, str(stage.traces), str(tables))
        options = WatchOptions(on_fail=hook, every_s=0.2)
        tell = partial(_note, log)
        with views_judged(spark, str(tables), options, tell) as judged:

            def look_until(result: str) -> list[dict[str, Any]]:
                """Take in what the group writes until something is said of a view."""
                deadline = time.monotonic() + DEADLINE_S
                while True:
                    start = time.monotonic()
                    pipeline.look()
                    looks.append(time.monotonic() - start)
                    judged.require_alive()
                    found = [row for row in rows_of(tables, "views") if row["result"] == result]
                    if found:
                        return found
                    assert time.monotonic() < deadline, f"waited in vain for {result}"

            stage.until_delivered("abc", 100)  # the fault is among them
            look_until("open")
            stage.start("d", rate=30)
            stage.until_one_view("abcd")
            failures = look_until("FAIL")
            stage.until_delivered("abcd", 30)  # the group goes on
            mutant = stage["c"].id
    seconds = (log[0][0] - closed_ns(tables, failures[0]["view"])) / 1e9
    allowed = max(WITHIN_S, LOOKS * median(looks))
    with capsys.disabled():
        print(f"\nFAIL {seconds:.1f} s after the view was closed (a look takes {median(looks):.1f} s)")
    assert seconds < allowed
    assert {row["property"] for row in failures} & {"P9a", "P6"}
    assert any(mutant in row["members"] for row in failures), (mutant, failures)
    assert {row["id"] for row in failures} <= {json.loads(line)["id"] for line in told.read_text().splitlines()}
    assert all(line.startswith("FAIL stage/") for _, line in log)


def _note(log: list[tuple[int, str]], text: str) -> None:
    log.append((time.monotonic_ns(), text))


def rows_of(tables: Path, name: str) -> list[dict[str, Any]]:
    return list(open_table(str(tables), name).read().to_pylist())


def closed_ns(tables: Path, view: str) -> int:
    """When the last member left a view, by the clock that all processes of this machine share."""
    installed = [row for row in rows_of(tables, "events") if row["kind"] == "VIEW"]
    return max(int(row["time_ns"]) for row in installed if row["previous_view"] == view)
