"""From folders to verdicts: digests never hide a fault, rows are looked at where they must be, and clean runs raise no alarm."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.generate import generate
from tests.pipeline import traces
from tests.unit.test_checks_judge import SWITCHED, switched
from unisono.orders.registry import ORDERS
from unisono.pipeline.doubts import accounts
from unisono.pipeline.segments import scan_segments, segments_below
from unisono.pipeline.tables import keeping
from unisono.pipeline.verify import verify
from unisono.sim.run import simulate
from unisono.sim.scenario import Scenario, Source
from unisono.sim.swarm import scenario_of
from unisono.trace.checks.judge import judge
from unisono.trace.parquet import write_parquet
from unisono.trace.promises import SHOWN, promises
from unisono.trace.schema import Event
from unisono.trace.sinks import stem_of
from unisono.trace.story import tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLEAN_RUNS = 500


def write(folder: Path, runs: Iterable[tuple[str, Iterable[Event]]], rows_max: int = 10**9) -> None:
    """The segments of every life, as a recorder would leave them."""
    for run, events in runs:
        lives: dict[tuple[str, int], list[Event]] = {}
        for event in events:
            lives.setdefault((event.member, event.incarnation), []).append(event)
        for (member, incarnation), rows in lives.items():
            for number, start in enumerate(range(0, len(rows), rows_max)):
                name = f"{stem_of(run, member, incarnation)}.{number:06}.parquet"
                write_parquet(folder / name, rows[start : start + rows_max])


def runs_in_doubt(spark: SparkSession, folder: Path) -> set[str]:
    """By digests, with every segment a piece."""
    with keeping() as keep:
        facts = keep(scan_segments(segments_below(spark, [folder], keep, piece_bytes=1)))
        return {row["run"] for row in accounts(facts).where("needs_rows").collect()}


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[Event]]:
    """Clean and damaged runs."""
    clean = list(traces.simulated(4))
    damaged = list(islice(traces.damaged(clean, 120), 120))
    planted = [(name, events) for name, events, *_ in traces.planted()]
    return {run: list(events) for run, events in [*clean, *damaged, *planted] if events}


@pytest.mark.parametrize("rows_max", [10**9, 30], ids=["whole lives", "pieces"])
def test_digests_never_hide_what_the_oracle_sees(
    spark: SparkSession, corpus: dict[str, list[Event]], tmp_path: Path, rows_max: int
) -> None:
    """Lives in small pieces, too, so that much of the damage lies at the edge between two."""
    write(tmp_path, corpus.items(), rows_max)
    doubts = runs_in_doubt(spark, tmp_path)
    free = {run: events for run, events in corpus.items() if events[0].run not in doubts}
    assert free, "some runs are decided by digests alone"
    assert len(doubts) > 50, "damage is noticed"
    for run, events in free.items():
        verdict = judge(events)
        assert verdict.result == "PASS", f"{run}: {verdict}"


def test_a_member_that_left_and_a_label_that_changes_are_doubtful(spark: SparkSession, tmp_path: Path) -> None:
    """Found by reading: sequences were compared among members of one way alone, and labels inside one piece alone."""
    apart = [
        "a,b,c VIEW 1@a a b c", "a CAST x", "b DELIVER x", "b CAST y", "b DELIVER y", "b LEAVE", "a,c DELIVER y",
        "a,c DELIVER x", "a,c VIEW 2@a a c from a c", "all END",
    ]  # fmt: skip
    clean = ["a,b VIEW 1@a a b", "a CAST x", "a,b DELIVER x", "all END"]
    label = [
        replace(event, protocol="fifo") if (event.member, event.kind) == ("a", "END") else event
        for event in tell("\n".join(clean), run="label")
    ]
    runs = {"apart": tell("\n".join(apart), run="apart"), "label": label, "clean": tell("\n".join(clean), run="clean")}
    assert {run for run, events in runs.items() if judge(events).result != "PASS"} == {"apart", "label"}
    write(tmp_path, runs.items(), rows_max=1)
    assert runs_in_doubt(spark, tmp_path) == {"apart", "label"}


@pytest.mark.parametrize(
    ("whole_rows_max", "every"), [(10**6, 1), pytest.param(0, 3, marks=pytest.mark.slow)], ids=["whole", "joins"]
)
def test_verify_and_the_oracle_give_the_same_verdicts(
    spark: SparkSession, corpus: dict[str, list[Event]], tmp_path: Path, whole_rows_max: int, every: int
) -> None:
    some = dict(islice(corpus.items(), 0, None, every))
    write(tmp_path, some.items())
    judgement = verify(spark, [tmp_path], whole_rows_max=whole_rows_max)
    assert {run.by for run in judgement.runs} == {"digests", "whole" if whole_rows_max else "rows"}
    ours = {run.run: (run.result, frozenset(v.property for v in run.violations)) for run in judgement.runs}
    for events in some.values():
        verdict = judge(events)
        assert ours[events[0].run] == (verdict.result.value, verdict.broken), events[0].run
    for run in judgement.runs:
        for violation in run.violations:
            assert violation.explain(), "every violation is a sentence"


@pytest.mark.parametrize("whole_rows_max", [10**6, 0], ids=["whole", "joins"])
def test_a_run_whose_order_is_switched_owes_in_each_view_what_its_order_promises(
    spark: SparkSession, tmp_path: Path, whole_rows_max: int
) -> None:
    """What only the first order promises is owed in its view, and in no other."""
    only_total = SWITCHED.replace("b DELIVER x\nb DELIVER y", "b DELIVER y\nb DELIVER x")
    both = SWITCHED.replace("b DELIVER v\nb DELIVER w", "b DELIVER w\nb DELIVER v")
    stories = {"clean": SWITCHED, "only total": only_total, "both": both}
    runs = {name: [replace(event, run=name) for event in switched(story)] for name, story in stories.items()}
    write(tmp_path, runs.items())
    judgement = verify(spark, [tmp_path], whole_rows_max=whole_rows_max)
    found = {run.run: (run.result, {one.property for one in run.violations}) for run in judgement.runs}
    assert found == {
        "clean": ("PASS", set()),
        "only total": ("FAIL", {"P9a", "P9b", "P9c"}),
        "both": ("FAIL", {"P6", "P7"}),
    }
    assert {run.owed for run in judgement.runs} == {(promises("fifo-total") | promises("fifo")) - SHOWN}


def test_five_hundred_clean_runs_raise_no_alarm(spark: SparkSession, tmp_path: Path) -> None:
    made = 0
    for seed in range(-(-CLEAN_RUNS // len(ORDERS))):
        for order in ORDERS:
            scenario = scenario_of(order, 10_000 + seed)
            small = Source(kind=scenario.source.kind, rate=scenario.source.rate, messages=6, depth=2, burst=3)
            simulate(
                replace(scenario, source=small, members=max(2, min(4, scenario.members)), faults=(), config={}),
                folder=tmp_path,
            )
            made += 1
    judgement = verify(spark, [tmp_path])
    assert len(judgement.runs) == made >= CLEAN_RUNS
    alarms = [(run.run, run.result) for run in judgement.runs if run.result != "PASS"]
    assert not alarms


def test_a_large_clean_trace_is_decided_by_digests_alone(spark: SparkSession, tmp_path: Path) -> None:
    rows = generate(tmp_path, 80_000, members=8)
    judgement = verify(spark, [tmp_path])
    assert rows == 80_000
    assert [(run.result, run.by) for run in judgement.runs] == [("PASS", "digests")]


def _around(events: list[Event], mine: list[int], edge: int) -> tuple[Event, Event]:
    """The last delivery before an edge and the first after it."""
    before = [events[i] for i in mine[:edge] if events[i].kind == "DELIVER"]
    return before[-1], next(events[i] for i in mine[edge:] if events[i].kind == "DELIVER")


@pytest.mark.parametrize("damage", [None, "gap", "swap"])
def test_a_life_in_pieces_is_clean_or_not_as_it_is_in_one(
    spark: SparkSession, tmp_path: Path, damage: str | None
) -> None:
    """One member with nearly all of the rows is dealt to several tasks; what is wrong at an edge is not lost between them."""
    outcome = simulate(Scenario(order="fifo-total", members=3, source=Source(rate=2_000, messages=150)), keep=True)
    events = list(outcome.events)
    mine = [i for i, event in enumerate(events) if event.member == "b"]
    if damage == "gap":  # the first row of the fourth segment
        del events[mine[3 * 25]]
    elif damage == "swap":
        pairs = (_around(events, mine, edge) for edge in range(50, len(mine) - 25, 25))
        x, y = next((x, y) for x, y in pairs if x.origin != y.origin)
        for name in ("origin", "first", "digest"):
            one, other = getattr(x, name), getattr(y, name)
            setattr(x, name, other)
            setattr(y, name, one)
    write(tmp_path, [(events[0].run, events)], rows_max=25)
    doubts = runs_in_doubt(spark, tmp_path)
    assert bool(doubts) is (damage is not None)


@pytest.mark.parametrize(("whole_rows_max", "by"), [(10**6, "whole"), pytest.param(0, "rows", marks=pytest.mark.slow)])
def test_one_swap_in_a_large_trace_is_found_and_told(
    spark: SparkSession, tmp_path: Path, whole_rows_max: int, by: str
) -> None:
    outcome = simulate(Scenario(order="causal-total", members=4, source=Source(rate=2_000, messages=150)), keep=True)
    events = list(outcome.events)
    places = [i for i, e in enumerate(events) if e.member == "c" and e.kind == "DELIVER"]
    x, y = next((a, b) for a, b in pairwise(places[60:]) if events[a].origin != events[b].origin)
    for name in ("origin", "first", "digest"):
        one, other = getattr(events[x], name), getattr(events[y], name)
        setattr(events[x], name, other)
        setattr(events[y], name, one)
    write(tmp_path, [(events[0].run, events)])
    (run,) = verify(spark, [tmp_path], whole_rows_max=whole_rows_max).runs
    assert run.result == "FAIL"
    assert run.by == by
    assert {"P9a", "P9c"} <= {violation.property for violation in run.violations}
    assert any("c delivered" in violation.explain() for violation in run.violations)


def test_every_run_of_a_file_with_several_is_judged(spark: SparkSession, tmp_path: Path) -> None:
    """A file of another system may hold anything: the run of its first row is not the only one."""
    events = []
    for seed in (1, 2):
        outcome = simulate(Scenario(seed=seed, source=Source(messages=6)), keep=True)
        events += list(outcome.events)
    broken = [event for event in events if event.run.endswith("-2") and event.kind == "DELIVER"][-1]
    broken.digest = (broken.digest or 0) ^ 1
    write_parquet(tmp_path / "everything.parquet", events)
    judgement = verify(spark, [tmp_path])
    assert [(run.run, run.result) for run in judgement.runs] == [("sequencer-3-1", "PASS"), ("sequencer-3-2", "FAIL")]
