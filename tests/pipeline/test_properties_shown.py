"""P25–P29: the Spark formulations say what the plain Python ones say, of stories written by hand, random ones, and real groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.test_verify import write
from tests.pipeline.traces import as_arrow, sentence
from tests.shown_stories import SHOWN_FOCUS, shown, shown_histories
from tests.unit.test_checks_shown import PLANTED, STORIES
from tests.view_stories import Trace
from unisono.pipeline.properties.registry import PROPERTIES, check
from unisono.pipeline.tables import keeping, tables_of
from unisono.pipeline.verify import verify
from unisono.sim.group_swarm import run_group_seed
from unisono.sim.run import simulate
from unisono.sim.swarm import scenario_of
from unisono.trace.checks import CHECKERS
from unisono.trace.promises import SHOWN
from unisono.trace.sinks import MemorySink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unisono.pipeline.tables import TraceTables

TRACES_A_FOCUS = 40
Found = Counter[tuple[str, tuple[str, ...], object, str]]
"""How often which run broke the property, who did it, in which way, and what is said of it."""


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    stories = {f"story {name}": story for name, story in STORIES.items()}
    stories |= {f"planted {name}": STORIES[of].replace(old, new) for name, (of, old, new, _) in PLANTED.items()}
    made_up = {run: events for focus in SHOWN_FOCUS for run, events in shown_histories(focus, TRACES_A_FOCUS) if events}
    return {run: shown(story, run) for run, story in stories.items()} | made_up


@pytest.fixture(scope="module")
def tables(spark: SparkSession, traces: dict[str, Trace]) -> Iterator[TraceTables]:
    with keeping() as keep:
        yield tables_of(spark.createDataFrame(as_arrow(traces))).cached(keep)


def by_oracle(property: str, traces: dict[str, Trace]) -> Found:
    found: Found = Counter()
    for run, events in traces.items():
        checker = CHECKERS[property]()
        for event in events:
            checker.observe(event)
        found.update((run, one.members, one.witness["what"], one.sentence) for one in checker.finish())
    return found


def test_the_properties_have_checkers_on_both_sides() -> None:
    assert set(SHOWN_FOCUS) == SHOWN
    assert CHECKERS.keys() >= SHOWN
    assert PROPERTIES.keys() >= SHOWN


@pytest.mark.parametrize("property", SHOWN_FOCUS)
def test_spark_says_what_plain_python_says(property: str, tables: TraceTables, traces: dict[str, Trace]) -> None:
    expected = by_oracle(property, traces)
    assert len({run for run, *_ in expected}) > 8, "too few of the traces break the property"
    found: Found = Counter()
    for row in check(tables, [property]).collect():
        told = sentence(row)
        found[row["run"], tuple(row["members"]), row["witness"]["what"], told] += 1
    assert found == expected, f"only Spark: {found - expected}; only plain Python: {expected - found}"


def test_the_rows_of_a_group_are_looked_at_and_those_of_seats_are_not(spark: SparkSession, tmp_path: Path) -> None:
    sink = MemorySink()
    assert run_group_seed("sequencer", 3, sinks=lambda member: (sink,)).result == "PASS"
    seats = list(simulate(scenario_of("sequencer", 0), keep=True).events)
    altered = shown(STORIES["a partition and a heal"], "altered")
    for event in altered:
        if event.kind == "SHOW" and event.member == "b" and event.view == "2@a":
            event.attributes = {**(event.attributes or {}), "shown": "7"}
    (tmp_path / "clean").mkdir()
    (tmp_path / "altered").mkdir()
    write(tmp_path / "clean", [("group", list(sink.events)), ("seats", seats)])
    write(tmp_path / "altered", [("altered", altered)])
    judged = {run.run: run for run in verify(spark, [tmp_path]).runs}
    assert judged["swarm-sequencer-3"].result == "PASS"
    assert judged["swarm-sequencer-3"].by == "whole"
    assert judged["altered"].result == "FAIL"
    assert {one.property for one in judged["altered"].violations} == {"P25"}
    assert [run.result for run in judged.values()].count("PASS") == 2
    [by_rows] = verify(spark, [tmp_path / "altered"], whole_rows_max=0).runs
    assert {one.property for one in by_rows.violations} == {"P25"}
