"""The measures of the pipeline against those that the simulator took while it ran, and against plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from unisono.orders.registry import ORDERS
from unisono.pipeline.measures import measure_all
from unisono.pipeline.measures.cost import cost_of_cells, packets_theory
from unisono.pipeline.tables import load, tables_of
from unisono.sim.faults import Fault
from unisono.sim.measure import Spread, packets_in_theory
from unisono.sim.run import Outcome, simulate
from unisono.sim.scenario import Scenario, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unisono.pipeline.tables import TraceTables

MS = 1_000_000
SCENARIOS = [
    Scenario(order="toto", members=4, seed=1, source=Source(rate=800, messages=120)),
    Scenario(order="all-ack", members=3, seed=2, source=Source(rate=300, messages=60, causal_share=0.3)),
    Scenario(order="tomp", members=3, seed=3, source=Source(kind="bursts", burst=4, rate=2_000, messages=100)),
    Scenario(
        order="abcast",
        members=4,
        seed=4,
        source=Source(rate=1_000, messages=150),
        faults=(Fault("crash", 40 * MS, ("c",)),),
    ),
    Scenario(order="fifo", members=3, seed=5, source=Source(rate=500, messages=50)),
]

Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("traces")
    found = {}
    for scenario in SCENARIOS:
        outcome = simulate(scenario, folder=folder / scenario.order, keep=True)
        assert outcome.verdict.result == "PASS"
        found[outcome.events[0].run] = outcome
    found["folder"] = folder  # type: ignore[assignment]
    return found


@pytest.fixture(scope="module")
def runs(outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    return {run: outcome for run, outcome in outcomes.items() if run != "folder"}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, outcomes: dict[str, Outcome]) -> TraceTables:
    folder: Any = outcomes["folder"]
    return load(spark, [Path(folder)])


@pytest.fixture(scope="module")
def measured(tables: TraceTables) -> Rows:
    return {name: collect(frame) for name, frame in measure_all(tables).items()}


def collect(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def of_run(rows: Iterable[dict[str, Any]], run: str, **wanted: Any) -> dict[str, Any] | None:
    found = [row for row in rows if row["run"] == run and all(row[key] == value for key, value in wanted.items())]
    assert len(found) <= 1
    return found[0] if found else None


def agree(row: dict[str, Any] | None, oracle: Spread) -> None:
    if not oracle.count:
        assert row is None
        return
    assert row is not None
    assert row["messages"] == oracle.count
    assert row["rank_error"] == 0
    assert [row["mean_ns"], row["p50_ns"], row["p99_ns"]] == pytest.approx([oracle.mean, oracle.p50, oracle.p99])


def test_latency_is_what_the_simulator_measured(measured: Rows, runs: dict[str, Outcome]) -> None:
    for run, outcome in runs.items():
        agree(of_run(measured["latency"], run, scope="all"), outcome.measures.latency)
        agree(of_run(measured["latency"], run, scope="sender"), outcome.measures.latency_sender)


def test_t1_and_t2_are_what_the_simulator_measured(measured: Rows, runs: dict[str, Outcome]) -> None:
    for run, outcome in runs.items():
        agree(of_run(measured["t1"], run), outcome.measures.t1)
        agree(of_run(measured["t2"], run), outcome.measures.t2)


def test_latency_by_member_adds_up_to_that_of_the_run(measured: Rows, runs: dict[str, Outcome]) -> None:
    for run, outcome in runs.items():
        rows = [row for row in measured["latency_by_member"] if row["run"] == run]
        total = sum(row["messages"] * row["mean_ns"] for row in rows)
        assert sum(row["messages"] for row in rows) == outcome.measures.latency.count
        assert total / outcome.measures.latency.count == pytest.approx(outcome.measures.latency.mean)
        own = sum(row["messages"] for row in rows if row["at_sender"])
        assert own == outcome.measures.latency_sender.count


def test_holdback_is_first_receipt_to_delivery_at_the_others(measured: Rows, runs: dict[str, Outcome]) -> None:
    for run, outcome in runs.items():
        received: dict[Any, int] = {}
        waits = []
        for event in outcome.events:
            key = event.member, event.origin, event.first
            if event.kind == "RECEIVE":
                received.setdefault(key, event.time_ns)
            elif event.kind == "DELIVER" and event.member != event.origin:
                waits += [event.time_ns - received.get(key, event.time_ns)] * (event.count or 0)
        agree(of_run(measured["holdback"], run), Spread.of(waits))


def test_index_of_latency_and_its_joint_distribution(measured: Rows, runs: dict[str, Outcome]) -> None:
    for run, outcome in runs.items():
        joint: Counter[tuple[int, int]] = Counter()
        for event in outcome.events:
            if event.kind == "ORDERED" and event.attributes and "index_of_latency" in event.attributes:
                pair = int(event.attributes["index_of_latency"]), int(event.attributes["concurrency"])
                joint[pair] += event.count or 0
        rows = [row for row in measured["joint_distribution"] if row["run"] == run]
        assert {(row["tau"], row["omega"]): row["messages"] for row in rows} == joint
        summary = of_run(measured["index_of_latency"], run)
        if not joint:
            assert summary is None
            continue
        assert summary is not None
        assert sum(row["share"] for row in rows) == pytest.approx(1)
        assert summary["tau_mean"] == pytest.approx(outcome.measures.index_of_latency)
        assert summary["omega_mean"] == pytest.approx(outcome.measures.concurrency)
        assert (summary["tau_min"], summary["tau_max"]) == (min(joint)[0], max(joint)[0])


def test_throughput_counts_each_members_messages_by_its_own_clock(measured: Rows, runs: dict[str, Outcome]) -> None:
    for run, outcome in runs.items():
        for row in (row for row in measured["throughput"] if row["run"] == run):
            own = [e for e in outcome.events if e.member == row["member"] and e.kind in ("CAST", "RECEIVE", "DELIVER")]
            delivered = [e for e in own if e.kind == "DELIVER"]
            span = delivered[-1].time_ns - own[0].time_ns
            count = sum(e.count or 0 for e in delivered)
            assert (row["delivered"], row["span_ns"]) == (count, span)
            assert row["cast"] == sum(e.count or 0 for e in own if e.kind == "CAST")
            assert row["delivered_per_second"] == pytest.approx(count * 1e9 / span)


def test_gaps_of_a_view_change(measured: Rows, runs: dict[str, Outcome]) -> None:
    run = "abcast-4-4"
    rows = {row["member"]: row for row in measured["view_change_gaps"]}
    assert set(rows) == {"a", "b", "d"}
    for member, row in rows.items():
        own = [event for event in runs[run].events if event.member == member]
        block = next(event for event in own if event.kind == "BLOCK")
        install = [event for event in own if event.kind == "VIEW"][1]
        first = next(event for event in own if event.kind == "DELIVER" and event.view == install.view)
        assert (row["run"], row["view"], row["next_view"]) == (run, block.view, install.view)
        assert row["blocked_ns"] == install.time_ns - block.time_ns == 2 * MS
        assert row["gap_ns"] == first.time_ns - block.time_ns


def test_approximate_percentiles_keep_their_stated_error(
    tables: TraceTables, measured: Rows, runs: dict[str, Outcome]
) -> None:
    accuracy = 50
    rows = collect(measure_all(tables, accuracy)["latency"])
    assert {row["rank_error"] for row in rows} == {1 / accuracy}
    for row in rows:
        exact = of_run(measured["latency"], row["run"], scope=row["scope"])
        assert exact is not None
        assert [row["messages"], row["max_ns"]] == [exact["messages"], exact["max_ns"]]
        assert row["mean_ns"] == pytest.approx(exact["mean_ns"])
    outcome = runs["tomp-3-3"]  # batches: each message counts
    cast = {(e.origin, e.first): e.time_ns for e in outcome.events if e.kind == "CAST"}
    delivered = [e for e in outcome.events if e.kind == "DELIVER"]
    values = [e.time_ns - cast[e.origin, e.first] for e in delivered for _ in range(e.count or 0)]
    found = of_run(rows, "tomp-3-3", scope="all")
    assert found is not None
    assert sum(v < found["p50_ns"] for v in values) <= (0.5 + 1 / accuracy) * len(values)
    assert sum(v <= found["p50_ns"] for v in values) >= (0.5 - 1 / accuracy) * len(values)
    assert median(values) == of_run(measured["latency"], "tomp-3-3", scope="all")["p50_ns"]  # type: ignore[index]


def test_real_clocks_are_compared_with_themselves_alone(tables: TraceTables, measured: Rows) -> None:
    from pyspark.sql import functions as F

    real = tables_of(tables.events.where(F.col("run") == "toto-4-1").withColumn("clock", F.lit("real")))
    found = measure_all(real)
    rows = collect(found["latency"])
    assert [row["scope"] for row in rows] == ["sender"]
    exact = of_run(measured["latency"], "toto-4-1", scope="sender")
    assert rows == [exact]
    assert {row["at_sender"] for row in collect(found["latency_by_member"])} == {True}


def test_cost_stands_beside_the_theory_where_counters_were_recorded(
    spark: SparkSession, tables: TraceTables, measured: Rows
) -> None:
    from pyspark.sql import functions as F

    assert {row["run"] for row in measured["cost"]} == {row["run"] for row in measured["latency"]}
    for row in measured["cost"]:
        assert 0 < row["packets_per_message"] < 4 * row["packets_theory"], "of the size of the theory"
    events = tables.events.where((F.col("run") == "tomp-3-3") & (F.col("kind") != "COUNTERS"))
    ends = events.where(F.col("kind") == "END").withColumn("kind", F.lit("COUNTERS"))

    def counting(packets: str, bytes: str) -> DataFrame:
        sent = F.create_map(F.lit("packets"), F.lit(packets), F.lit("bytes"), F.lit(bytes))
        return ends.withColumn("attributes", sent)

    told = events.unionByName(counting("300", "9000")).unionByName(
        counting("1.5e3", "many")
    )  # what is no number counts not
    rows = collect(measure_all(tables_of(told))["cost"])
    assert len(rows) == 1
    assert (rows[0]["messages"], rows[0]["members"], rows[0]["packets_theory"]) == (100, 3, 6)
    assert (rows[0]["packets_per_message"], rows[0]["bytes_per_message"]) == (9, 270)


def test_the_theory_is_the_simulators(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    cells = [(order, n, float(n), 1.0) for order in ORDERS for n in (2, 5)]
    frame = spark.createDataFrame(
        cells, "order string, members int, packets_per_message double, bytes_per_message double"
    )
    for row in frame.select("*", packets_theory(F.col("order"), F.col("members")).alias("theory")).collect():
        assert row["theory"] == packets_in_theory(row["order"], row["members"])[1]
    assert cost_of_cells(frame).count() == len(cells)
