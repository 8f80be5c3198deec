"""The report of many runs: totals of all of them, and a page that does not grow with their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
from pyspark.sql import functions as F

from tests.pipeline.damage import Trace
from tests.pipeline.test_verify import write
from tests.web.reports import FINE, LOST_IN_A_CRASH, TWO_ORDERS, UNFINISHED
from unisono.pipeline.report import ReportData, build, collect
from unisono.pipeline.report.from_tables import measured
from unisono.pipeline.report.glance import Glance
from unisono.pipeline.report.totals import tallies
from unisono.pipeline.tables import TraceTables, keeping, load
from unisono.pipeline.verify import JudgedRuns, verify
from unisono.trace.story import tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS, FEW = 120, 60
TOLD, SHOWN = 20, 8
"""Runs that the judgement tells of, and those that the page lists: lowered, so that few runs are many."""


def story(number: int) -> tuple[str, str]:
    """Of every twelve runs two are broken and one stops in the middle."""
    kinds = {3: (TWO_ORDERS, "causal-total"), 7: (LOST_IN_A_CRASH, "sequencer"), 11: (UNFINISHED, "sequencer")}
    return kinds.get(number % 12, (FINE, "causal-total" if number % 2 else "sequencer"))


def trace_of(number: int) -> Trace:
    text, protocol = story(number)
    return tell(text, protocol=protocol, run=f"run-{number:04}")


class Judged(NamedTuple):
    judgement: JudgedRuns
    tables: TraceTables
    data: ReportData
    page: Path


def judged(spark: SparkSession, folder: Path, runs: int) -> Iterator[Judged]:
    traces = {str(number): trace_of(number) for number in range(runs)}
    (folder / "traces").mkdir()
    write(folder / "traces", ((trace[0].run, trace) for trace in traces.values()))
    judgement = verify(spark, [folder / "traces"], runs_told=TOLD)
    with keeping() as keep:
        tables = load(spark, [folder / "traces"], keep)
        data = collect(judgement, tables, lambda run: traces[str(int(run[-4:]))], runs_max=SHOWN)
        yield Judged(judgement, tables, data, build(data, folder / "report"))
    judgement.release()


@pytest.fixture(scope="module")
def many(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    yield from judged(spark, tmp_path_factory.mktemp("many"), RUNS)


@pytest.fixture(scope="module")
def few(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    yield from judged(spark, tmp_path_factory.mktemp("few"), FEW)


def test_totals_are_of_all_runs_though_few_are_told(many: Judged) -> None:
    assert (len(many.judgement.runs), len(many.data.runs)) == (TOLD, SHOWN)
    glance = Glance(many.data)
    assert glance.count == Counter(PASS=90, FAIL=20, UNKNOWN=10)
    assert glance.sentence.startswith("20 of 120 runs broke a promise: ")
    assert "P9a (total, pairwise) in 10 runs" in glance.sentence
    assert glance.sentence.endswith("10 more cannot be judged.")
    assert [(row.name, row.note) for row in glance.summary] == [
        ("sequencer", "80 runs, 10 broken"),
        ("causal-total", "40 runs, 10 broken"),
    ]
    places = {name: glance.columns.index(name) for name in ("P5", "P9a")}
    assert [row.cells[places["P9a"]].text for row in glance.summary] == ["?10", "✗10"]
    assert glance.summary[1].cells[places["P9a"]].told == "P9a: broken in 10 of 40 runs"
    assert glance.gaps == 10


def test_spark_counts_runs_as_the_plain_report_does(spark: SparkSession, few: Judged) -> None:
    assert few.judgement.verdicts is not None
    whole = verify(spark, [few.page.parents[1] / "traces"])
    plain = collect(JudgedRuns(whole.runs, 0, ()), None)
    assert len(plain.runs) == FEW
    whole.release()

    def said(data: ReportData) -> dict[str, object]:
        return {
            one.protocol: (
                {**one.results},
                {property: {**states} for property, states in one.states.items()},
                {**one.weakest},
                one.gaps,
            )
            for one in data.tallies
        }

    assert said(few.data) == said(plain)


def test_runs_that_do_not_pass_come_first_and_the_page_says_how_many_it_shows(many: Judged) -> None:
    assert {run.result for run in many.data.runs} == {"FAIL"}
    assert all(run.findings for run in many.data.runs)
    page = many.page.read_text("utf-8")
    assert "8 of 120 runs are shown, those that do not pass first. All are counted above." in page
    assert "8 of 20 broken runs are shown." in page
    assert page.count("<tr data-run=") == SHOWN
    assert "10 runs of which something is missing" in page  # though none of them is listed


def test_measures_are_of_all_runs(many: Judged) -> None:
    delivered: Counter[str] = Counter()
    for number in range(RUNS):
        trace = trace_of(number)
        delivered[trace[0].protocol] += sum(event.kind == "DELIVER" for event in trace)
    found: Counter[str] = Counter()
    for one in many.data.latency:
        assert one.scope == "all"
        found[one.protocol] += one.messages
    assert found == delivered


def test_neither_the_page_nor_what_is_fetched_grows_with_the_runs(few: Judged, many: Judged) -> None:
    sizes = [one.page.stat().st_size for one in (few, many)]
    assert abs(sizes[1] - sizes[0]) < 0.05 * sizes[0]  # figures of more digits, and plots with other numbers

    def fetched(one: Judged) -> list[int]:
        found = measured(one.tables, [(run.name, run.group, 0) for run in one.data.runs], 3)
        stays = [line.stays for line in found.timelines]
        return [
            *map(len, (found.latency, found.waits, found.tau, found.cost, found.sizes, stays)),
            sum(map(len, stays)),
        ]

    assert fetched(few) == fetched(many)


def test_rare_protocols_share_a_line(many: Judged) -> None:
    assert many.judgement.verdicts is not None
    is_odd = F.col("run") == "run-0000"
    verdicts = many.judgement.verdicts.withColumn("protocol", F.when(is_odd, "odd").otherwise(F.col("protocol")))
    assert {one.protocol for one in tallies(verdicts)} == {"sequencer", "causal-total", "odd"}
    lines = Glance(replace(many.data, tallies=tallies(verdicts, protocols_max=2)))
    assert [(row.name, row.note) for row in lines.summary] == [
        ("sequencer", "79 runs, 10 broken"),
        ("2 other protocols", "41 runs, 10 broken"),
    ]
    assert (lines.total, lines.protocols) == (120, 3)


def test_a_measure_with_more_cohorts_than_there_is_room_for_says_so(many: Judged) -> None:
    found = measured(many.tables, [], 3, cohorts_max=1)
    assert len(found.latency) == 1
    assert "there are more" in found.notes[0]
    assert measured(many.tables, [], 3).notes == ()
