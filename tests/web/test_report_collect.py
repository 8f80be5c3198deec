"""From verdicts and measures to a report's data: what is chosen, what is put together, and what is pointed out."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.web import reports
from unisono.experiments.report_from_sim import collect_simulated
from unisono.pipeline.report.collect import TIMELINES_MAX, collect
from unisono.pipeline.report.glance import RUNS_MAX, RUNS_OPEN, Glance
from unisono.pipeline.report.lanes import lanes_of
from unisono.pipeline.report.model import ReportData, RunReport, TimedStay, Timeline, overall, weaker_broken
from unisono.pipeline.report.neighbourhood import Neighbourhoods
from unisono.pipeline.verify import JudgedRuns, RunVerdict, RunViolation
from unisono.sim.faults import Fault
from unisono.sim.run import Outcome, simulate
from unisono.sim.scenario import Scenario, Source
from unisono.trace.checks.properties import PROPERTIES
from unisono.trace.checks.property import Pointed
from unisono.trace.schema import Event
from unisono.trace.story import tell

TWO_ORDERS = {
    "x": "a:0", "x_local": "2", "y": "b:0", "y_local": "3", "other_y_local": "2", "other_x_local": "3",
}  # fmt: skip
FIGURES = {"p50_ns": 2e6, "p99_ns": 9e6, "max_ns": 9_500_000, "rank_error": 0.0}


def verdict(run: str, *properties: str, result: str = "FAIL") -> RunVerdict:
    found = tuple(RunViolation(run, "g", one, ("a", "b"), "1@a", TWO_ORDERS) for one in properties)
    return RunVerdict(run, "g", "toto", result, frozenset({"P9a", "P2", "P10"}), found, {}, "rows")


def events_of(run: str) -> list[Event]:
    return tell(reports.TWO_ORDERS, run=run)


def group_of(events: list[Event]) -> str:
    return events[0].group


def collected(*verdicts: RunVerdict, measured: dict[str, list[dict[str, object]]] | None = None) -> ReportData:
    return collect(JudgedRuns(verdicts, 0, ()), measured, None)


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


def test_everything_is_json() -> None:
    for data in (reports.mixed(), reports.many(20)):
        assert json.loads(json.dumps(data.to_json()))["result"] == "FAIL"


def test_runs_of_one_protocol_and_size_are_put_together() -> None:
    def row(run: str, protocol: str, messages: int, mean: float, members: int) -> dict[str, object]:
        named = {"run": run, "group": "g", "protocol": protocol, "members": members}
        return {**named, "scope": "all", "messages": messages, "mean_ns": mean, **FIGURES}

    rows = [row("1", "toto", 100, 1e6, 8), row("2", "toto", 300, 3e6, 8), row("3", "toto", 50, 7e6, 4)]
    taus = [
        {
            "run": run,
            "group": "g",
            "protocol": "toto",
            "members": 8,
            "tau": tau,
            "omega": 1,
            "messages": 10,
            "source": source,
        }
        for run, tau, source in (("1", 5, "poisson"), ("2", 5, "poisson"), ("2", 6, "periodic"))
    ]
    curve = {"protocol": "toto", "members": 8, "scope": "all", "quantiles": [[0.0, 0.0], [1.0, 9e6]]}
    data = collected(
        measured={"latency": rows, "latency_quantiles": [curve], "joint_distribution": taus, "t1": rows, "t2": rows}
    )
    assert [(one.members, one.messages, one.mean_ns) for one in data.latency] == [
        (4, 50, 7e6),
        (8, 400, 2.5e6),
    ]
    assert [one.quantile(0.5) for one in data.latency] == [2e6, 4.5e6]
    assert [(one.source, one.counts) for one in data.tau] == [("periodic", ((6, 10),)), ("poisson", ((5, 20),))]
    assert [one.t1_ns for one in data.waits] == [7e6, 2.5e6]
    assert data.several_sizes


def test_latencies_at_the_sender_stand_in_only_where_clocks_cannot_be_compared() -> None:
    def row(protocol: str, scope: str) -> dict[str, object]:
        return {
            "run": "1",
            "group": "g",
            "protocol": protocol,
            "scope": scope,
            "messages": 1,
            "mean_ns": 1e6,
            **FIGURES,
        }

    data = collected(measured={"latency": [row("fifo", "sender"), row("fifo", "all"), row("toto", "sender")]})
    assert [(one.protocol, one.scope) for one in data.latency] == [("fifo", "all"), ("toto", "sender")]


def test_only_eventful_timelines_are_shown_and_not_too_many() -> None:
    def stays(run: str, views: int) -> list[dict[str, object]]:
        where = {"run": run, "group": "g", "who": "a", "members": ["a"], "clock": "simulated"}
        return [{**where, "view": f"{i}@a", "start_ns": i, "end_ns": i + 1, "ended": None} for i in range(views)]

    quiet = [row for i in range(30) for row in stays(f"q{i}", 1)]
    busy = [row for i in range(30) for row in stays(f"b{i:02}", 2 + i)]
    assert len(collected(measured={"stays": quiet}).timelines) == 1
    shown = collected(measured={"stays": quiet + busy}).timelines
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
        RunReport("bad", "g", "toto", "FAIL", 2, owed, ("P1", "P2"), (), {"P1": 3}),
        RunReport("dark", "g", "toto", "UNKNOWN", 2, owed, owed, (), {}, {"a": "gone"}),
        RunReport("good", "g", "fifo", "PASS", 2, ("P1",), ("P1",)),
    )
    glance = Glance(ReportData("FAIL", runs))
    assert [[cell.css for cell in row.cells] for row in glance.open] == [
        ["fail", "pass", "skipped"],
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


# From the simulator, and from Spark: the same runs give the same report.


def outcomes(folder: Path | None = None) -> list[Outcome]:
    source = Source(rate=400, messages=60)
    crash = (Fault("crash", 60_000_000, ("c",)),)
    scenarios = [
        Scenario(order="toto", members=4, seed=1, source=source),
        Scenario(order="toto", members=4, seed=2, source=source),
        Scenario(order="sequencer", members=4, seed=3, source=source, faults=crash),
    ]
    return [simulate(scenario, folder=folder, keep=True) for scenario in scenarios]


def test_simulated_runs_make_a_report() -> None:
    runs = outcomes()
    data = collect_simulated(runs)
    assert data.result == "PASS"
    assert [one.protocol for one in data.latency] == ["sequencer", "toto"]
    expected = [one.measures.latency for one in runs[:2]]
    assert data.latency[1].mean_ns == pytest.approx(
        sum(s.mean * s.count for s in expected) / sum(s.count for s in expected)
    )
    assert data.latency[0].quantile(0.99) == pytest.approx(runs[2].measures.latency.p99)
    assert {one.source for one in data.tau} == {"poisson"}
    assert [line.views for line in data.timelines] == [2]
    assert data.cost[0].packets == pytest.approx(runs[2].measures.packets_per_message)


@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark")
def test_spark_tables_make_the_same_report(tmp_path: Path) -> None:
    from unisono.pipeline.session import open_session
    from unisono.pipeline.tables import load

    runs = outcomes(tmp_path)
    simulated = collect_simulated(runs)
    verdicts = [
        RunVerdict(run.name, run.group, run.protocol, run.result, frozenset(run.owed)) for run in simulated.runs
    ]
    spark = open_session("local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    data = collect(JudgedRuns(tuple(verdicts), 0, ()), load(spark, [tmp_path]))
    assert [(run.name, run.protocol, run.members) for run in data.runs] == [
        (run.name, run.protocol, run.members) for run in simulated.runs
    ]
    for ours, theirs in zip(data.latency, simulated.latency, strict=True):
        assert (ours.protocol, ours.members, ours.messages) == (theirs.protocol, theirs.members, theirs.messages)
        assert ours.mean_ns == pytest.approx(theirs.mean_ns)
        assert ours.quantile(0.5) == pytest.approx(theirs.quantile(0.5), rel=0.05)
    for ours_, theirs_ in zip(data.waits, simulated.waits, strict=True):
        assert [ours_.t1_ns, ours_.t2_ns] == pytest.approx([theirs_.t1_ns, theirs_.t2_ns])
    assert [one.counts for one in data.tau] == [one.counts for one in simulated.tau]
    assert data.timelines == simulated.timelines
