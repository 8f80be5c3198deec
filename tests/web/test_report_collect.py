"""From verdicts and measures to a report's data: what is chosen, what is put together, and what is pointed out."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median

import pytest

from tests.web import reports
from unisono.pipeline.report.collect import TIMELINES_MAX, choose, collect
from unisono.pipeline.report.glance import RUNS_MAX, RUNS_OPEN, Glance
from unisono.pipeline.report.lanes import lanes_of, timelines
from unisono.pipeline.report.model import ReportData, RunReport, TimedStay, Timeline, overall, weaker_broken
from unisono.pipeline.report.neighbourhood import Neighbourhoods
from unisono.pipeline.verify import JudgedRuns, RunVerdict, RunViolation
from unisono.sim.faults import Fault
from unisono.sim.run import simulate
from unisono.sim.scenario import Scenario, Source
from unisono.trace.checks.properties import PROPERTIES
from unisono.trace.checks.property import Pointed
from unisono.trace.schema import Event
from unisono.trace.story import tell

TWO_ORDERS = {
    "x": "a:0", "x_local": "2", "y": "b:0", "y_local": "3", "other_y_local": "2", "other_x_local": "3",
}  # fmt: skip


def verdict(run: str, *properties: str, result: str = "FAIL") -> RunVerdict:
    found = tuple(RunViolation(run, "g", one, ("a", "b"), "1@a", TWO_ORDERS) for one in properties)
    return RunVerdict(run, "g", "toto", result, frozenset({"P9a", "P2", "P10"}), found, {}, "rows")


def events_of(run: str) -> list[Event]:
    return tell(reports.TWO_ORDERS, run=run)


def group_of(events: list[Event]) -> str:
    return events[0].group


def collected(*verdicts: RunVerdict) -> ReportData:
    return collect(JudgedRuns(verdicts, 0, ()), None)


def test_runs_come_worst_first_and_properties_in_their_order() -> None:
    data = collected(verdict("b", result="PASS"), verdict("c", result="UNKNOWN"), verdict("a", "P9a"))
    assert [run.name for run in data.runs] == ["a", "c", "b"]
    assert data.runs[0].owed == ("P2", "P9a", "P10")
    assert data.result == "FAIL"


def test_a_violation_is_told_and_drawn() -> None:
    judged = RunVerdict(
        "r", group_of(events_of("r")), "toto", "FAIL", frozenset({"P9a"}), verdict("r", "P9a").violations
    )
    data = collect(JudgedRuns((judged,), 0, ()), None, events_of)
    (finding,) = data.runs[0].findings
    assert finding.sentence.startswith("a delivered a:0 (local 2) before b:0 (local 3)")
    assert finding.diagram is not None
    assert finding.diagram.count('class="ring"') == 4
    assert data.runs[0].members == 3
    assert [line.run for line in data.timelines] == ["r"]


def test_only_eventful_timelines_are_shown_and_not_too_many() -> None:
    def stays(run: str, views: int) -> list[dict[str, object]]:
        where = {"run": run, "group": "g", "who": "a", "members": ["a"], "clock": "simulated"}
        return [{**where, "view": f"{i}@a", "start_ns": i, "end_ns": i + 1, "ended": None} for i in range(views)]

    quiet = [row for i in range(30) for row in stays(f"q{i}", 1)]
    busy = [row for i in range(30) for row in stays(f"b{i:02}", 2 + i)]
    assert len(choose(timelines(quiet), ())) == 1
    shown = choose(timelines(quiet + busy), ())
    assert [line.run for line in shown] == [f"b{i:02}" for i in range(29, 29 - TIMELINES_MAX, -1)]


# What a violation points at.


@pytest.mark.parametrize(
    ("property", "members", "witness", "messages", "rows"),
    [
        ("P9a", ("a", "b"), TWO_ORDERS, {("a", 0), ("b", 0)}, {("a", 2), ("a", 3), ("b", 2), ("b", 3)}),
        ("P2", ("c",), {"message": "c:0", "local": 4, "again_local": 3}, {("c", 0)}, {("c", 4), ("c", 3)}),
        (
            "P1",
            ("c", "a"),
            {"what": "not addressed", "message": "a:0-4", "local": 1, "cast_local": 1, "cast_destinations": "x, b"},
            {("a", 0)},
            {("c", 1), ("a", 1)},
        ),
        ("P11", ("a", "b"), {"what": "two lists", "local": 0, "other_local": 0}, set(), {("a", 0), ("b", 0)}),
        ("P8", ("b",), {"past": "a:0", "past_caster": "a", "past_local": "1"}, {("a", 0)}, {("a", 1)}),
        ("P9b", ("a",), {"circle": '[["a","a:0","b:0",2,3]]'}, {("a", 0), ("b", 0)}, {("a", 2), ("a", 3)}),
        ("P1", ("a", "nobody"), {"what": "never cast", "message": "nobody:7", "local": 99}, set(), set()),
    ],
)
def test_a_witness_points_at_messages_and_rows(
    property: str,
    members: tuple[str, ...],
    witness: dict[str, object],
    messages: set[tuple[str, int]],
    rows: set[tuple[str, int]],
) -> None:
    pointed = PROPERTIES[property].point(members, witness)
    assert Neighbourhoods(events_of("r")).found(pointed) == Pointed(frozenset(messages), frozenset(rows))


def test_a_picture_shows_the_neighbourhood_and_not_the_whole_run() -> None:
    lines = [f"a CAST m{i}\na,b DELIVER m{i}" for i in range(200)]
    events = tell("\n".join(["a,b VIEW 1@a a b", *lines, "all END"]))
    picture = Neighbourhoods(events).draw(Pointed(frozenset({("a", 100)}), frozenset({("a", 202)})))
    assert picture is not None
    assert "a:100" in picture
    assert "a:97" in picture
    assert "a:103" in picture
    assert "a:50<" not in picture
    assert len(picture) < 60_000


def test_where_nothing_is_named_nothing_is_drawn() -> None:
    assert Neighbourhoods(events_of("r")).draw(Pointed(frozenset(), frozenset())) is None


# The first screen.


@pytest.mark.parametrize(
    ("results", "quarantined", "wanted"),
    [
        (["PASS"], 0, "PASS"),
        (["PASS"], 1, "UNKNOWN"),
        (["PASS", "UNKNOWN"], 0, "UNKNOWN"),
        (["PASS", "UNKNOWN", "FAIL"], 0, "FAIL"),
        ([], 0, "UNKNOWN"),
    ],
)
def test_one_word_for_everything(results: list[str], quarantined: int, wanted: str) -> None:
    assert overall(results, quarantined) == wanted


def test_the_weakest_broken_property_is_named() -> None:
    assert weaker_broken("P9c", {"P9c", "P9b", "P9a"}) == "P9a"
    assert weaker_broken("P9a", {"P9c", "P9b", "P9a"}) is None
    run = reports.judged("r", reports.TWO_ORDERS)[0]
    assert run.weakest == ("P9a",)
    assert [(f.property, f.follows_from, f.diagram is not None) for f in run.findings] == [
        ("P9a", None, True),
        ("P9b", "P9a", False),
        ("P9c", "P9a", False),
    ]


def test_every_cell_says_how_its_property_fared() -> None:
    owed = ("P1", "P2", "P3")
    runs = (
        RunReport("bad", "g", "toto", "FAIL", 2, owed, (), {"P1": 3}),
        RunReport("dark", "g", "toto", "UNKNOWN", 2, owed, (), {}, {"a": "gone"}),
        RunReport("good", "g", "fifo", "PASS", 2, ("P1",)),
    )
    glance = Glance(ReportData("FAIL", runs))
    assert [[cell.css for cell in row.cells] for row in glance.open] == [
        ["fail", "pass", "pass"],
        ["unknown", "unknown", "unknown"],
        ["pass", "none", "none"],
    ]
    assert [(row.name, [cell.text for cell in row.cells]) for row in glance.summary] == [
        ("fifo", ["✓", "·", "·"]),
        ("toto", ["✗1", "?1", "?1"]),
    ]
    assert glance.sentence == "1 of 3 runs broke a promise: P1 (no creation) in 1 run. 1 more cannot be judged."


def test_of_many_runs_the_first_are_open_and_the_rest_is_folded() -> None:
    glance = Glance(reports.many(1_200))
    assert (len(glance.open), len(glance.open) + len(glance.folded)) == (RUNS_OPEN, RUNS_MAX)
    assert glance.listed == "500 of 1\u202f200 runs are shown"
    assert glance.sentence.startswith("100 of 1\u202f200 runs broke a promise: P9a (total, pairwise) in 100 runs")


def test_lanes_keep_time_where_there_is_one_clock_and_steps_elsewhere() -> None:
    stays = (
        TimedStay("a", "1@a", ("a", "b"), 0, 300),
        TimedStay("a", "2@a", ("a",), 300, 400),
        TimedStay("b", "1@a", ("a", "b"), 0, 100, "CRASH"),
    )
    timed = lanes_of(Timeline("r", "g", True, stays))
    assert [(box.left, box.width) for box in timed.lanes[0].boxes] == [("0.000%", "75.000%"), ("75.000%", "25.000%")]
    assert (timed.lanes[1].ending, timed.lanes[1].ending_at) == ("crashed", "25.000%")
    stepped = lanes_of(Timeline("r", "g", False, stays))
    assert [box.left for box in stepped.lanes[0].boxes] == ["0.000%", "50.000%"]
    assert not stepped.ticks


# The simulator's own figures, and Spark's from what it has recorded.


@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark")
def test_a_report_says_of_simulated_runs_what_the_simulator_measured(tmp_path: Path) -> None:
    from unisono.pipeline.session import open_session
    from unisono.pipeline.tables import load

    source = Source(rate=400, messages=60)
    crash = (Fault("crash", 60_000_000, ("c",)),)
    scenarios = (
        Scenario(order="sequencer", members=4, seed=3, source=source, faults=crash),
        Scenario(order="toto", members=4, seed=1, source=source),
        Scenario(order="toto", members=4, seed=2, source=source),
    )
    runs = [simulate(scenario, folder=tmp_path, keep=True) for scenario in scenarios]
    verdicts = [
        RunVerdict(run.events[0].run, run.events[0].group, run.measures.order, run.verdict.result, run.verdict.owed)
        for run in runs
    ]
    spark = open_session("local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    data = collect(JudgedRuns(tuple(verdicts), 0, ()), load(spark, [tmp_path]))
    assert data.result == "PASS"
    assert {(run.name, run.protocol, run.members) for run in data.runs} == {
        (verdict.run, verdict.protocol, 4) for verdict in verdicts
    }
    for cohort, latency, waits, cost in zip((runs[:1], runs[1:]), data.latency, data.waits, data.cost, strict=True):
        latencies = sorted(time for run in cohort for time in run.meter.latency)
        assert (latency.protocol, latency.messages) == (cohort[0].measures.order, len(latencies))
        assert latency.mean_ns == pytest.approx(mean(latencies))
        assert latency.quantile(0.5) == pytest.approx(median(latencies), rel=0.05)
        for ours, theirs in ((waits.t1_ns, "t1"), (waits.t2_ns, "t2")):
            assert ours == pytest.approx(mean(time for run in cohort for time in getattr(run.meter, theirs)))
        delivered = sum(run.measures.delivered for run in cohort)
        assert cost.packets == pytest.approx(sum(run.world.packets for run in cohort) / delivered, rel=0.05)
    indices = sum((run.meter.index for run in runs[1:]), Counter[int]())
    assert [one.counts for one in data.tau] == [tuple(sorted(indices.items()))]
    assert [line.views for line in data.timelines] == [2]
