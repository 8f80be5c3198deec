"""Traces of whole groups, with crashes, joins, partitions and merges: Spark and the checkers that looked on say the same."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.pipeline import traces
from tests.pipeline.test_verify import write
from unisono.orders.registry import ORDERS
from unisono.pipeline.verify import verify
from unisono.sim.group_swarm import run_group_seed
from unisono.sim.group_world import ALSO_OWED
from unisono.trace.checks.judge import judge
from unisono.trace.promises import promises
from unisono.trace.schema import Event
from unisono.trace.sinks import MemorySink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _comparable(result: str, broken: frozenset[str]) -> tuple[str, frozenset[str]]:
    """Where a delivery was moved before its cast (P1), only who reads life after life knows by then that it is a safe one (P17)."""
    return result, broken - {"P17"} if "P1" in broken else broken


@pytest.mark.parametrize(
    ("runs", "whole_rows_max"),
    [(12, 10**6), pytest.param(500, 10**6, marks=pytest.mark.slow), pytest.param(60, 0, marks=pytest.mark.slow)],
    ids=["some", "five hundred", "joins"],
)
def test_spark_says_what_the_onlookers_said(
    spark: SparkSession, tmp_path: Path, runs: int, whole_rows_max: int
) -> None:
    said: dict[str, tuple[str, frozenset[str]]] = {}
    kept: list[tuple[str, list[Event]]] = []
    for number in range(runs):
        order = sorted(ORDERS)[number % len(ORDERS)]
        sink = MemorySink()
        done = run_group_seed(order, 5_000 + number, sinks=lambda member, sink=sink: (sink,))  # type: ignore[misc]
        run = sink.events[0].run
        said[run] = (done.result, frozenset())
        kept.append((run, list(sink.events)))
        assert done.result == "PASS", done.sentence
    chosen = Random(runs).sample(kept, max(4, runs // 10))
    for label, events in traces.damaged(chosen, max(10, runs // 5)):
        verdict = judge(events, promises(events[0].protocol) | ALSO_OWED)
        said[label] = (verdict.result.value, verdict.broken)
        kept.append((label, events))
    assert any(result == "FAIL" for result, _ in said.values())
    write(tmp_path, [(events[0].run, events) for _, events in kept])
    names = {events[0].run: label for label, events in kept}
    judgement = verify(spark, [tmp_path], whole_rows_max=whole_rows_max, also=ALSO_OWED)
    ours = {
        names[one.run]: (one.result, frozenset(violation.property for violation in one.violations))
        for one in judgement.runs
    }
    assert {label: _comparable(*verdict) for label, verdict in ours.items()} == {
        label: _comparable(*verdict) for label, verdict in said.items()
    }
