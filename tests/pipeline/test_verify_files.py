"""What a file holds counts, not what it is called; what it lacks is never a reason to pass. All found by reading."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pytest

from tests.pipeline.traces import as_arrow
from tests.pipeline.view_tools import lives_of, scan_part
from unisono.pipeline import pieces as pieces_module
from unisono.pipeline import segments as segments_module
from unisono.pipeline import verify as verify_module
from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.data_files import write_data_file
from unisono.pipeline.doubts import RUN_DDL, account_of
from unisono.pipeline.lake import SCHEMAS, LakeTable, TableChange, open_table
from unisono.pipeline.measures import latency
from unisono.pipeline.measures.journeys import journeys_of
from unisono.pipeline.pieces import LifePiece, scan_piece
from unisono.pipeline.segments import scan_segments, segments_below
from unisono.pipeline.storage import place
from unisono.pipeline.stream import Pipeline
from unisono.pipeline.tables import Keep, TraceTables, keeping
from unisono.pipeline.verify import JudgedRuns, RunVerdict, _files, _judge_rows, verify
from unisono.sim.run import simulate
from unisono.sim.scenario import Scenario, Source
from unisono.trace.checks.checker import VIOLATIONS_MAX
from unisono.trace.checks.judge import Result, judge
from unisono.trace.parquet import arrow_schema, write_parquet
from unisono.trace.promises import order_that_owes
from unisono.trace.schema import END, INDEX_MAX, Event, member_name
from unisono.trace.sinks import stem_of
from unisono.trace.story import tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APART = """
    a,b VIEW 1@a a b
    a CAST x
    b CAST y
    a DELIVER x
    a DELIVER y
    b DELIVER y
    b DELIVER x
    all END"""
TWICE = """
    a VIEW 1@a a
    a CAST x
    a DELIVER x
    a DELIVER x
    all END"""
SOUND = TWICE.replace("    a DELIVER x\n", "", 1)


def told(story: str, run: str) -> list[Event]:
    return [replace(event, run=run) for event in tell(story)]


def write_lives(folder: Path, name: str, events: Iterable[Event]) -> list[Path]:
    """One file a life, by that name instead of the run's."""
    lives: dict[tuple[str, int], list[Event]] = {}
    for event in events:
        lives.setdefault((event.member, event.incarnation), []).append(event)
    paths = [folder / f"{stem_of(name, *life)}.000000.parquet" for life in lives]
    for path, rows in zip(paths, lives.values(), strict=True):
        write_parquet(path, rows)
    return paths


def suspicions(path: Path) -> set[str]:
    return {fact.suspicion for fact in scan_piece(LifePiece([str(path)], [0], True)) if fact.suspicion is not None}


def results(judgement: JudgedRuns) -> dict[str, str]:
    return {run.run: run.result for run in judgement.runs}


by_both_ways = pytest.mark.parametrize(
    "whole_rows_max", [10**6, pytest.param(0, marks=pytest.mark.slow)], ids=["whole", "joins"]
)


def test_a_run_is_found_in_files_that_bear_another_name(spark: SparkSession, tmp_path: Path) -> None:
    """It was judged on the rows of the files that bear its own name, which were none, and passed."""
    write_lives(tmp_path, "copy-r1", told(APART, "r1"))
    judgement = verify(spark, [tmp_path])
    assert results(judgement) == {"r1": "FAIL"}
    assert {violation.property for violation in judgement.runs[0].violations} >= {"P9a", "P9c"}


@by_both_ways
def test_a_run_without_rows_does_not_pass(
    spark: SparkSession, tmp_path: Path, whole_rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: the files of a doubtful run are not told of, so that no row of it is found."""
    write_lives(tmp_path, "copy-r1", told(APART, "r1"))
    write_lives(tmp_path, "r2", told(SOUND, "r2"))
    find = verify_module._files
    monkeypatch.setattr(verify_module, "_files", lambda facts, needing: find(facts, needing).where("run != 'r1'"))
    found = results(verify(spark, [tmp_path], whole_rows_max=whole_rows_max, also=frozenset({"P15"})))
    assert found == {"r1": "UNKNOWN", "r2": "PASS"}


def test_a_second_run_in_a_later_part_of_a_file_is_judged(spark: SparkSession, tmp_path: Path) -> None:
    """Its rows began where a batch did, and were taken for more of the first."""
    import pyarrow.parquet

    one, other = write_lives(tmp_path, "one", told(SOUND, "r1"))[0], write_lives(tmp_path, "two", told(TWICE, "r2"))[0]
    with pyarrow.parquet.ParquetWriter(tmp_path / "both.parquet", arrow_schema()) as writer:
        for path in (one, other):
            writer.write_table(pyarrow.parquet.read_table(path).cast(arrow_schema()))
            path.unlink()
    assert results(verify(spark, [tmp_path])) == {"r1": "PASS", "r2": "FAIL"}


@pytest.mark.parametrize("column", ["service", "view", "first", "count", "origin"])
def test_a_row_that_lacks_what_its_kind_needs_is_not_passed_over(tmp_path: Path, column: str) -> None:
    """Rows without a service had no digest, so that nothing could differ."""
    import pyarrow
    import pyarrow.parquet

    path = write_lives(tmp_path, "r1", told(SOUND, "r1"))[0]
    assert not suspicions(path)
    table = pyarrow.parquet.read_table(path)
    at = table.schema.get_field_index(column)
    kept = [None if kind == "DELIVER" else value for kind, value in rows_of(table, "kind", column)]
    pyarrow.parquet.write_table(table.set_column(at, column, pyarrow.array(kept, table.schema.field(at).type)), path)
    assert "unreadable" in suspicions(path)


def rows_of(table: object, *columns: str) -> list[tuple[object, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("column", "value"), [("first", -1), ("count", 0), ("ordinal", -1), ("origin_incarnation", -1)]
)
def test_a_number_that_cannot_be_is_not_passed_over(tmp_path: Path, column: str, value: int) -> None:
    events = [replace(event, **{column: value}) if event.kind == "DELIVER" else event for event in told(SOUND, "r1")]  # type: ignore[arg-type]
    assert "unreadable" in suspicions(write_lives(tmp_path, "r1", events)[0])


def test_what_a_file_says_of_its_columns_hides_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column was not read if the file's metadata called it empty, true or not."""
    rows = [replace(event, previous_view="0@b") if event.kind == "VIEW" else event for event in told(SOUND, "r1")]
    path = write_lives(tmp_path, "r1", rows)[0]
    monkeypatch.setattr(pieces_module, "_columns_used", lambda file: set())
    assert suspicions(path) == {"P15"}


def test_a_life_that_begins_with_its_end_is_not_passed_over(tmp_path: Path) -> None:
    alone = Event("r", "g", "sequencer", "z", 0, 0, 0, "simulated", END)
    assert suspicions(write_lives(tmp_path, "r", [alone])[0]) == {"P0"}


def test_lives_of_real_groups_are_judged_by_digests(spark: SparkSession, tmp_path: Path) -> None:
    """Their incarnations are times in nanoseconds, which did not fit; every one of them was judged row by row."""
    outcome = simulate(Scenario(order="sequencer", members=3, source=Source(messages=20)), keep=True)
    lives = {
        event.member: 1_790_000_000_000_000_000 + 12_345 * i for i, event in enumerate(outcome.events) if event.members
    }

    def names(some: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if some is None else tuple(member_name(one, lives[one]) for one in some)

    events = [
        replace(
            event,
            incarnation=lives[event.member],
            origin_incarnation=None if event.origin is None else lives[event.origin],
            members=names(event.members),
            transitional=names(event.transitional),
        )
        for event in outcome.events
    ]
    write_lives(tmp_path, events[0].run, events)
    (run,) = verify(spark, [tmp_path]).runs
    assert (run.result, run.by) == ("PASS", "digests")


def test_rows_that_could_not_be_scanned_count_for_the_size_of_a_run(tmp_path: Path) -> None:
    paths = [write_lives(tmp_path, "r1", told(SOUND, "r1"))[0], tmp_path / "r1.a.0.000001.parquet"]
    rows = [replace(event, origin="") for event in told(SOUND, "r1")]
    write_parquet(paths[1], rows)
    paths[0].write_bytes(b"damaged")
    facts = list(scan_piece(LifePiece([str(path) for path in paths], [0, 0], True)))
    assert sum(fact.rows or 0 for fact in facts if fact.what in ("life", "suspect")) >= len(rows)


def in_parts(trace: Iterable[Event], **cuts: list[int]) -> list[list[Event]]:
    """The rows of each life, cut where it is told."""
    parts = []
    for who, rows in lives_of(trace).items():
        borders = [0, *cuts.get(who, []), len(rows)]
        parts += [rows[start:stop] for start, stop in pairwise(borders)]
    return parts


def needs_rows(parts: Iterable[list[Event]]) -> bool:
    return account_of([fact for rows in parts for fact in scan_part(rows)]).needs_rows


CRASHED = "a,b,c VIEW 1@a a b c\n a CAST x\n a,b,c DELIVER x\n c CRASH\n"
STRANGER = "a,b VIEW 1@a a b\n z JOIN\n a CAST x\n a,b,z DELIVER x\n all END"
AWAY = "a,b VIEW 1@a a b\n a SUSPECT\n a CAST x\n a DELIVER x\n a SUSPECT\n all END"


@pytest.mark.parametrize(
    ("story", "changed", "cuts"),
    [
        (CRASHED + "a,b VIEW 2@a a b from a b c\n all END", {}, {}),
        (CRASHED + "a VIEW 2@a a b c from a b\n b VIEW 2@a a b c from a b c\n all END", {"VIEW": "cut"}, {}),
        (STRANGER, {"DELIVER": "1@a"}, {"z": [1]}),
        (STRANGER, {"DELIVER": "9@z"}, {"z": [1]}),
        (AWAY, {"CAST": "9@z", "DELIVER": "9@z"}, {"a": [2, 4]}),
        ("a JOIN\n a VIEW 1@a a b from a b\n b VIEW 1@a a b\n all END", {}, {"a": [1]}),
    ],
    ids=[
        "with one that is no member",
        "by another cut",
        "a stranger",
        "in a view of nobody",
        "for a while in a view of nobody",
        "from nowhere with another",
    ],
)
def test_digests_pass_no_run_that_its_rows_do_not_pass(
    story: str, changed: dict[str, str], cuts: dict[str, list[int]]
) -> None:
    """Each was passed by its digests alone, the last four if the life was cut into parts."""
    trace = told(story, "r")
    for at, event in enumerate(trace):
        if (new := changed.get(event.kind)) == "cut":
            trace[at] = replace(event, attributes={"cut": event.member})
        elif new is not None and event.member in cuts:
            trace[at] = replace(event, view=new)
    assert judge(trace).result == Result.FAIL
    assert needs_rows(in_parts(trace, **cuts))


def test_two_parts_of_a_life_that_begin_alike_are_not_taken_for_one() -> None:
    """What both tell was added up, so that every message seemed to be cast as often as it was delivered."""
    trace = told("a VIEW 1@a a\n a CAST x\n a DELIVER x\n a CAST y\n a DELIVER y\n all END", "r")
    assert not needs_rows(in_parts(trace, a=[3]))
    parts = [trace[:3], trace[3:5], trace[3:]]
    assert judge([event for rows in parts for event in rows]).result == Result.FAIL
    assert needs_rows(parts)


def test_numbers_that_are_absurd_in_sum_are_told_of_all_the_same() -> None:
    """The number of rows did not fit its column, and the whole judgement failed."""
    trace = [replace(event, local_index=INDEX_MAX) for event in told("a,b VIEW 1@a a b", "r")]
    account = account_of([fact for rows in in_parts(trace) for fact in scan_part(rows)])
    assert account.needs_rows
    assert len(as_table([account], RUN_DDL)) == 1


CAUSAL = """
    a,b,c VIEW 1@a a b c
    a CAST x
    a,b,c DELIVER x
    b CAST y
    a,b DELIVER y
    c CRASH
    a,b VIEW 2@a a b from a b
    all END"""
OVERTAKEN = """
    d,e,f VIEW 1@d d e f
    d CAST x
    d,e DELIVER x
    e CAST y
    d,e,f DELIVER y
    f DELIVER x
    d,e,f VIEW 2@d d e f from d e f
    f CAST z
    f,d DELIVER z
    e CRASH
    d,f VIEW 3@d d f from d f
    d,f END"""


MISSED = "a,b VIEW 1@a a b\n" + "\n".join(f"a CAST m{i}\n a DELIVER m{i}" for i in range(60)) + "\n all END"


def test_large_runs_are_judged_each_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    """By joins, of few properties because they take long. What the causal group of r owes was asked of the other one, too, where an
    answer may overtake; as many violations came to one process as there were; what was kept for joins was kept for good."""
    groups = (("r", "g1", "causal", CAUSAL), ("r", "g2", "fifo", OVERTAKEN), ("missed", "g", "fifo", MISSED))
    for run, group, order, story in groups:
        rows = told(story, run)
        own = [replace(row, group=group, protocol=order, service=order if row.service else None) for row in rows]
        write_lives(tmp_path, run, own)
    owed = [("r", "g1", ["P8"]), ("r", "g2", ["P6"]), ("missed", "g", ["P5"])]
    kept = spark.sparkContext._jsc.getPersistentRDDs().size
    before = kept()
    with keeping() as keep:
        rest = spark.createDataFrame(owed, "run string, `group` string, owed array<string>")
        files = _files(scan_segments(segments_below(spark, [tmp_path], keep)), rest)
        said = [row.asDict() for row in _judge_rows(rest, files, frozenset(), 0, 9, keep).collect()]
    assert {(row["what"], row["run"], row["name"]) for row in said} <= {
        ("violation", "missed", "P5"),
        ("count", "missed", "P5"),
        ("unknown", "r", "a"),  # the casts of this causal group have no vectors
        ("unknown", "r", "b"),
    }
    assert sum(row["what"] == "violation" for row in said) == VIOLATIONS_MAX
    assert [row["text"] for row in said if row["what"] == "count"] == ["60"]
    deadline = time.monotonic() + 30
    while kept() > before and time.monotonic() < deadline:
        spark._jvm.System.gc()  # type: ignore[union-attr]
        time.sleep(0.1)
    assert kept() <= before, "nothing is kept"


@pytest.mark.parametrize(
    ("listed", "result", "broken"),
    [
        (["P1", "P8"], "FAIL", {"P8"}),
        (["P1", "P8", "P99"], "FAIL", {"P8"}),
        (["P1", "P99"], "UNKNOWN", set()),
    ],
    ids=["known", "one that there is not", "nothing else is broken"],
)
def test_what_a_trace_lists_as_owed_is_asked_for(
    spark: SparkSession, tmp_path: Path, listed: list[str], result: str, broken: set[str]
) -> None:
    """Digests do not decide P8 where messages are not totally ordered. An unknown property in a list does not excuse the others."""
    story = "a,b,c VIEW 1@a a b c\n a CAST x\n a,b DELIVER x\n b CAST y\n a,b,c DELIVER y\n c DELIVER x\n all END"
    order = order_that_owes(listed)
    rows = [replace(row, protocol=order, service="fifo" if row.service else None) for row in told(story, "r")]
    write_lives(tmp_path, "r", rows)
    (run,) = verify(spark, [tmp_path]).runs
    assert (run.result, set(run.counts)) == (result, broken)
    assert run.owed == {"P0", *listed} - {"P99"}
    if "P99" in listed:
        assert all("there is no property 'P99'" in reason for reason in run.unknown.values())
        assert run.unknown.keys() == {"a", "b", "c"}


def test_all_violations_are_counted_and_the_first_told(spark: SparkSession, tmp_path: Path) -> None:
    """Those that were told were taken for all."""
    write_lives(tmp_path, "r", told(MISSED, "r"))
    counted(verify(spark, [tmp_path]).runs[0])


def counted(run: RunVerdict) -> None:
    assert run.result == "FAIL"
    assert run.counts["P5"] == 60
    assert sum(violation.property == "P5" for violation in run.violations) == 50


def test_figures_follow_a_run_that_has_grown(spark: SparkSession, tmp_path: Path) -> None:
    """Spark remembered what it had read of the same folder, so that the figures of before were written again."""
    watched, out = tmp_path / "watched", tmp_path / "out"
    watched.mkdir()

    def measure(tables: TraceTables, keep: Keep) -> dict[str, DataFrame]:
        return {"latency": latency(keep(journeys_of(tables)))}

    pipeline = Pipeline(spark, str(watched), str(out), measure=measure)
    found = []
    for name in "ab":
        write_lives(watched, "chat", told(SOUND.replace("a", name).replace(f"{name}ll", "all"), "chat"))
        pipeline.look()
        found.append(set(open_table(str(out), "measures/latency").read().column("messages").to_pylist()))
    assert found == [{1}, {2}]


def test_of_a_delta_table_the_files_are_read_that_its_log_names(spark: SparkSession, tmp_path: Path) -> None:
    """Merged files lie beside those that they replaced, and every delivery seemed to be there twice."""
    table = LakeTable.made(place(tmp_path / "events"), SCHEMAS["events"])
    rows = as_arrow({"": told(SOUND, "merged")})
    rows = rows.append_column("segment", pyarrow.array([""] * len(rows), pyarrow.string()))
    halves = [write_data_file(table.folder, 1, [half], table.schema) for half in (rows.slice(0, 2), rows.slice(2))]
    table.commit(TableChange(add=tuple(halves)), "test", 1)
    merged = write_data_file(table.folder, 2, [rows], table.schema)
    table.commit(TableChange(add=(merged,), remove=tuple(half.path for half in halves)), "test", 2)
    assert len(list((tmp_path / "events").glob("*.parquet"))) == 3
    (run,) = verify(spark, [tmp_path / "events"]).runs
    assert (run.run, run.result) == ("merged", "PASS")


def test_many_segments_are_dealt_by_their_names(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dealing them by size brings the names of all into one task."""
    for number in range(3):
        write_lives(tmp_path, f"r{number}", told(SOUND, f"r{number}"))
    monkeypatch.setattr(segments_module, "DEALT_BY_SIZE_MAX", 2)
    with keeping() as keep:
        dealt = scan_segments(segments_below(spark, [tmp_path], keep))
        assert {row["run"] for row in dealt.select("run").distinct().collect()} == {"r0", "r1", "r2"}
        plan = dealt._jdf.queryExecution().toString()
        assert "row_number" not in plan
