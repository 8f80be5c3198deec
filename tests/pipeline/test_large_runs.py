"""What large runs need: circles and causal order are found without one process for all rows of a run."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql import functions as F

from tests.pipeline import traces
from tests.pipeline.damage import Trace
from tests.pipeline.test_properties import leaves_open
from tests.pipeline.traces import sentence
from unisono.pipeline.properties import consistent_cuts, p08_causal
from unisono.pipeline.properties.registry import PROPERTIES
from unisono.pipeline.tables import tables_of
from unisono.sim.run import simulate
from unisono.sim.scenario import Scenario, Source
from unisono.trace.checks import judge
from unisono.trace.story import renumber, tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = 30


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every run were large."""
    monkeypatch.setattr(consistent_cuts, "WINDOW", 8)
    monkeypatch.setattr(p08_causal, "ROWS_MAX", 0)


def long_story(run: str) -> Trace:
    """Two members cast in turn, and both deliver at once."""
    lines = [
        line for i in range(LONG) for line in (f"a CAST x{i}", f"a,b DELIVER x{i}", f"b CAST y{i}", f"a,b DELIVER y{i}")
    ]
    return tell("a,b VIEW 1@a a b\n" + "\n".join(lines) + "\nall END", run=run)


def long_circles() -> dict[str, Trace]:
    """A delivery that comes a whole run before its cast; and two members with opposite orders."""
    early = long_story("long circle of casts")
    last = next(i for i in reversed(range(len(early))) if early[i].member == "a" and early[i].kind == "DELIVER")
    early.insert(2, early.pop(last))
    opposite = long_story("opposite orders")
    places = [i for i, event in enumerate(opposite) if event.member == "b" and event.kind == "DELIVER"]
    said = [(opposite[i].origin, opposite[i].first, opposite[i].digest) for i in places]
    for i, (origin, first, digest) in zip(places, reversed(said), strict=True):
        opposite[i].origin, opposite[i].first, opposite[i].digest = origin, first, digest
    return {"long circle of casts": renumber(early), "opposite orders": opposite}


def corpus() -> dict[str, Trace]:
    clean = list(traces.simulated(1))
    every = dict(clean) | dict(traces.written()) | dict(traces.circle())
    every |= dict(islice(traces.damaged(clean, 15), 15))
    return every | long_circles()


def test_large_runs_are_judged_as_small_ones_are(spark: SparkSession, small_windows: None) -> None:
    every = corpus()
    tables = tables_of(spark.createDataFrame(traces.as_arrow(every))).cached()
    for name in ("P1", "P8", "P9b"):
        rows = PROPERTIES[name](tables).collect()
        by_oracle = {run for run, events in every.items() if name in judge(events, [name]).broken}
        differ = {run for run in {row["run"] for row in rows} ^ by_oracle if name not in leaves_open(every[run])}
        assert not differ, name
        for row in rows:
            assert sentence(row).endswith(".")


def test_a_window_holds_few_steps_of_each_stream(spark: SparkSession, small_windows: None) -> None:
    """However long the run: of a clean one the windows are found in a few rounds, and none is larger than it may be."""
    outcome = simulate(Scenario(order="fifo", members=3, source=Source(rate=2_000, messages=60)), keep=True)
    events = [event for event in outcome.events if event.kind in ("CAST", "DELIVER")]
    cast_at = {(event.member, event.first): event.local_index for event in events if event.kind == "CAST"}
    steps: list[tuple[Any, ...]] = []
    for event in events:
        needs = event.kind == "DELIVER"
        other = (event.origin, cast_at[event.origin or "", event.first]) if needs else (None, None)
        steps.append(("r", event.member, event.local_index, *other))
    frame = spark.createDataFrame(steps, "run string, stream string, at bigint, other string, other_at bigint")
    divided = consistent_cuts.divide(frame, ["run"])
    assert divided.proofs is None
    sizes = divided.windows.groupBy("window", "stream").agg(F.count("*").alias("steps")).collect()
    assert max(row["steps"] for row in sizes) <= 2 * consistent_cuts.WINDOW
    assert len({row["window"] for row in sizes}) > len(steps) // 3 // consistent_cuts.WINDOW // 2
    behind = divided.windows.alias("one").join(
        divided.windows.alias("other"),
        (F.col("one.other") == F.col("other.stream")) & (F.col("one.other_at") == F.col("other.at")),
    )
    assert behind.where(F.col("one.window") < F.col("other.window")).count() == 0, "no step needs one of a later window"
