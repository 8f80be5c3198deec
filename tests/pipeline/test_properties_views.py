"""P15–P24: the Spark formulations say what the plain Python ones say, of stories written by hand and of random ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, TypeAlias

import pytest

from tests.pipeline.traces import as_arrow, named, sentence
from tests.unit.test_checks_views import PLANTED, STORIES, TWINS
from tests.view_damage import COMMON, FOCUS, histories
from tests.view_stories import Trace, told
from unisono.pipeline.properties import row_picks
from unisono.pipeline.properties.registry import check
from unisono.pipeline.tables import keeping, tables_of
from unisono.trace.checks import CHECKERS
from unisono.trace.checks.checker import VIOLATIONS_MAX
from unisono.trace.checks.p24_determinism import judge_twins

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from unisono.pipeline.tables import TraceTables

TRACES_A_FOCUS = 60
Found: TypeAlias = Counter[tuple[str, tuple[str, ...], object]]
"""How often which run broke the property, who did it, and in which way."""


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    """Stories written by hand, whole and with a planted fault, and random ones with a mind to each property in turn."""
    stories = {f"story {name}": story for name, story in STORIES.items()}
    stories |= {f"planted {name}": STORIES[of].replace(old, new) for name, (of, old, new, _) in PLANTED.items()}
    made_up = {run: events for focus in FOCUS for run, events in histories(focus, TRACES_A_FOCUS) if events}
    return {run: told(story, run) for run, story in stories.items()} | made_up


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
        violations = checker.finish()
        assert checker.counts.total() < VIOLATIONS_MAX
        found.update((run, one.members, one.witness["what"]) for one in violations)
    return found


def by_spark(property: str, tables: TraceTables) -> tuple[Found, list[Row]]:
    rows = check(tables, [property]).collect()
    for row in rows:
        assert sentence(row).endswith(".")
    return Counter((row["run"], tuple(row["members"]), row["witness"]["what"]) for row in rows), rows


@pytest.mark.parametrize("property", FOCUS)
def test_spark_says_what_plain_python_says(property: str, tables: TraceTables, traces: dict[str, Trace]) -> None:
    assert len(traces) > 500
    expected = by_oracle(property, traces)
    assert len({run for run, _, _ in expected}) > 15, "too few of the traces break the property"
    found, _ = by_spark(property, tables)
    assert found == expected, f"only Spark: {found - expected}; only plain Python: {expected - found}"


def test_transactions_are_judged_in_shares_as_together(
    tables: TraceTables, traces: dict[str, Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_picks, "SHARE_ROWS", 3)
    found, _ = by_spark("P18", tables)
    assert found == by_oracle("P18", traces)


def test_all_violations_are_counted_and_the_first_of_each_view_told(spark: SparkSession) -> None:
    over = "\n".join(["a COUNTERS queue=2 queue_limit=1"] * (VIOLATIONS_MAX + 7))
    trace = told(f"a VIEW 1@a a\n{over}\na END", "many")
    rows = check(tables_of(spark.createDataFrame(as_arrow({"many": trace}))), ["P23"]).collect()
    assert len(rows) == VIOLATIONS_MAX
    assert [row["witness"]["untold"] for row in rows if "untold" in row["witness"]] == ["7"]


def twins() -> dict[str, Trace]:
    """Pairs of runs: some equal, some damaged, some of another label."""
    traces: dict[str, Trace] = {}
    for run, events in histories("P18", 150):
        random = Random(f"twins/{run}")
        label = {"twin": run if random.random() < 0.9 else "the same for many"}
        first = [
            replace(event, attributes={**(event.attributes or {}), **label}) if event.local_index == 0 else event
            for event in events
        ]
        second = list(first)
        if random.random() < 0.6:
            second = random.choice(COMMON)(second, random) or second
        traces |= {run: first, f"{run} again": named(f"{run} again", second)}
    return traces


def test_spark_finds_the_twins_that_plain_python_finds(spark: SparkSession) -> None:
    traces = twins() | {events[0].run: events for events in TWINS.values()}
    violations = judge_twins(event for events in traces.values() for event in events)
    expected = Counter((str(one.witness["run"]), one.members, one.witness["what"]) for one in violations)
    assert len({run for run, _, _ in expected}) > 30
    found, rows = by_spark("P24", tables_of(spark.createDataFrame(as_arrow(traces))))
    assert found == expected
    assert {(row["run"], *row["members"], int(row["witness"]["local"])) for row in rows} == {
        (one.witness["run"], *one.members, one.witness["local"]) for one in violations
    }
