"""Growing traces: each row is taken in once and each run judged, whatever is killed, and in whatever pieces it comes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

from tests.pipeline import traces
from tests.pipeline.test_faults import garbage, killed, record, segments, torn_line
from tests.pipeline.test_verify import write
from unisono.pipeline import gold, stream, upkeep
from unisono.pipeline.data_files import Chosen, DataFile, write_data_file
from unisono.pipeline.gold import Gold
from unisono.pipeline.lake import SCHEMAS, Lake, LakeTable, TableChange, open_table
from unisono.pipeline.ledger import Due, SegmentLedger, find_segments
from unisono.pipeline.measures import latency
from unisono.pipeline.measures.journeys import journeys_of
from unisono.pipeline.retention import Ages
from unisono.pipeline.session import PipelineError
from unisono.pipeline.storage import Location, place
from unisono.pipeline.stream import Pipeline, PipelineStatus, run_pipeline
from unisono.pipeline.take_in import ADD, REPLACE, LedgerEntry, Reached, take_in_lives
from unisono.pipeline.upkeep import merge_silver, own_segments, remove_segments
from unisono.pipeline.verify import JudgedRuns
from unisono.sim.run import simulate
from unisono.sim.scenario import Scenario, Source
from unisono.trace.checks.judge import judge
from unisono.trace.parquet import write_parquet
from unisono.trace.reader import close_killed, read_segment
from unisono.trace.schema import END, NAMES, Event, from_row, to_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unisono.pipeline.tables import Keep, TraceTables


def content(out: Path) -> dict[str, list[Any]]:
    """All rows that count, whatever the files and batches in which they came."""
    found: dict[str, list[Any]] = {}
    for name in ("events", "quarantine", "facts", "verdicts", "violations"):
        table = open_table(place(out), name).read()
        if name == "facts":
            table = table.filter(pyarrow.compute.not_equal(table.column("what"), "file"))
        columns = [column for column in table.column_names if column != "batch"]
        found[name] = sorted(map(repr, table.select(columns).to_pylist()))
    return found


def events_in(out: Path, run: str | None = None) -> list[Event]:
    rows = open_table(place(out), "events").read(Chosen(None if run is None else frozenset({run}))).to_pylist()
    for row in rows:
        row["attributes"] = None if row["attributes"] is None else dict(row["attributes"])
    events = [from_row({name: row[name] for name in NAMES}, "the table") for row in rows]
    return sorted(events, key=lambda event: (event.run, event.member, event.incarnation, event.local_index))


def judged_in_python(spark: SparkSession, out: Location, runs: Sequence[Due]) -> JudgedRuns:
    """The verdicts of the checkers without Spark, which are quicker; from the tables, as always."""
    found: list[tuple[Any, ...]] = []
    for due in runs:
        if events := events_in(Path(out.uri), due.run):
            verdict = judge(events)
            about = (due.run, events[0].group, events[0].protocol, verdict.result, sorted(verdict.owed), "digests")
            found.append((*about, {}, dict(verdict.unknown)))
    return JudgedRuns((), 0, (), verdicts=spark.createDataFrame(found, stream.VERDICTS_DDL))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "judge_silver", judged_in_python)


def cached_tables(spark: SparkSession) -> int:
    return int(spark._jsparkSession.sharedState().cacheManager().numCachedEntries())


def pipeline_of(spark: SparkSession, watched: Path, out: Path, **named: Any) -> Pipeline:
    return Pipeline(spark, str(watched), str(out), **named)


@pytest.mark.usefixtures("quick")
def test_a_trace_that_comes_in_pieces_gives_the_tables_of_one_that_was_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    recorded, watched = tmp_path / "recorded", tmp_path / "watched"
    whole, broken = record(recorded, 1), record(recorded / "deeper", 2)
    killed(segments(recorded / "deeper", broken)[-1])
    files = sorted(Path(file.place.uri).relative_to(recorded) for _, file in find_segments(place(recorded)))
    watched.mkdir()
    pipeline = pipeline_of(spark, watched, tmp_path / "pieces")
    statuses = []
    for part in (files[::2], files[1::2]):
        for path in part:
            (watched / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(recorded / path, watched / path)
        statuses.append(pipeline.look())
    assert statuses[0].results == {}
    assert sorted(statuses[0].waiting) == [whole, broken]
    assert statuses[1].results == {whole: "PASS"}
    assert statuses[1].waiting == {broken: "the trace of c has no ending"}
    assert pipeline.look(final=True).results == {whole: "PASS", broken: "UNKNOWN"}
    at_once = run_pipeline(spark, str(watched), str(tmp_path / "at once"), final=True)
    assert at_once == pipeline.status()
    assert content(tmp_path / "at once") == content(tmp_path / "pieces")
    written = sum(len(read_segment(watched / path).rows) for path in files)
    assert len(events_in(tmp_path / "pieces")) == written


def lines_of(path: Path) -> list[str]:
    return [to_line(event) for event in read_segment(path).rows]


@pytest.mark.usefixtures("quick")
def test_a_segment_is_taken_in_while_it_grows_and_nothing_twice_when_it_is_finished(
    spark: SparkSession, tmp_path: Path
) -> None:
    recorded, watched, out = tmp_path / "recorded", tmp_path / "watched", tmp_path / "out"
    run = record(recorded, 1)
    last = segments(recorded, run)[-1]
    shutil.copytree(recorded, watched)
    (watched / last.name).unlink()
    growing = watched / last.name.replace(".parquet", ".open.jsonl")
    lines = lines_of(last)
    pipeline = pipeline_of(spark, watched, out)
    taken = []
    for text in ("".join(lines[:4]) + lines[4][:20], "".join(lines[:9]), "".join(lines[:9])):
        growing.write_text(text, encoding="ascii")
        assert pipeline.look().waiting == {run: "the trace of c has no ending"}
        taken.append(len([event for event in events_in(out) if event.member == "c"]))
    assert taken == [4, 9, 9], "whole lines, as they come"
    batches = pipeline.lake.batch
    pipeline.look()
    assert pipeline.lake.batch == batches, "a look that finds nothing commits nothing"
    shutil.copy2(last, watched / last.name)  # finished; the open one is still there, as after a crash
    assert pipeline.look().results == {run: "PASS"}
    growing.unlink()
    assert pipeline.look().results == {run: "PASS"}
    assert run_pipeline(spark, str(recorded), str(tmp_path / "at once"), once=True).results == {run: "PASS"}
    assert events_in(out) == events_in(tmp_path / "at once")


@pytest.mark.usefixtures("quick")
def test_a_large_growing_segment_with_a_bad_line_is_taken_in_to_its_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: its first part replaced itself for ever, and a look never ended."""
    recorded, watched, out = tmp_path / "recorded", tmp_path / "watched", tmp_path / "out"
    run = record(recorded, 1)
    last = segments(recorded, run)[-1]
    lines = lines_of(last)
    watched.mkdir()
    growing = watched / last.name.replace(".parquet", ".open.jsonl")
    growing.write_text("".join([*lines[:2], "{bad\n", *lines[2:]]), encoding="ascii")
    monkeypatch.setattr("unisono.pipeline.ledger.OPEN_BYTES_MAX", growing.stat().st_size // 3)
    pipeline = pipeline_of(spark, watched, out)
    pipeline.look()
    with growing.open("a", encoding="ascii") as file:
        file.write(lines[-1])  # more comes
    pipeline.look()
    acts = [row["act"] for row in open_table(place(out), "segments").read().to_pylist()]
    assert acts == ["add", "add"], "a replacement would read the first part again, and find more to read"


@pytest.mark.usefixtures("quick")
def test_a_segment_that_holds_something_else_than_before_takes_its_own_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Seen while it was copied; finished with other rows than it had while it grew; torn, and then closed."""
    recorded, watched, out = tmp_path / "recorded", tmp_path / "watched", tmp_path / "out"
    runs = [record(recorded, seed) for seed in (1, 2, 3)]
    shutil.copytree(recorded, watched)
    copied = segments(watched, runs[0])[-1]
    copied.write_bytes(copied.read_bytes()[:-30])
    grown = segments(watched, runs[1])[-1]
    growing = grown.with_name(grown.name.replace(".parquet", ".open.jsonl"))
    growing.write_text(
        "".join(to_line(replace(event, time_ns=event.time_ns + 1)) for event in read_segment(grown).rows[:3]), "ascii"
    )
    grown.unlink()
    torn_line(segments(watched, runs[2])[-1])
    pipeline = pipeline_of(spark, watched, out)
    first = pipeline.look(final=True)
    assert first.results == dict.fromkeys(runs, "UNKNOWN")
    assert len(content(out)["quarantine"]) == 2
    for run in runs:
        shutil.copy2(segments(recorded, run)[-1], watched)
    rows = read_segment(grown).rows
    write_parquet(grown, rows[1:])  # fewer rows before the end of the part than were taken in
    assert pipeline.look().results[runs[1]] == "UNKNOWN"
    assert events_in(out, runs[1]) != events_in(out, runs[0])
    growing.unlink()  # beside it, no finished form with other rows is believed
    write_parquet(grown, rows)
    assert pipeline.look().results == dict.fromkeys(runs, "PASS")
    assert run_pipeline(spark, str(recorded), str(tmp_path / "at once"), once=True).results == dict.fromkeys(
        runs, "PASS"
    )
    assert content(out)["events"] == content(tmp_path / "at once")["events"]
    assert not content(out)["quarantine"]
    assert content(out)["verdicts"] == content(tmp_path / "at once")["verdicts"]


@pytest.mark.usefixtures("quick")
def test_a_run_is_judged_again_when_more_of_it_comes_and_never_passes_with_a_bad_segment(
    spark: SparkSession, tmp_path: Path
) -> None:
    watched, out = tmp_path / "watched", tmp_path / "out"
    run = record(watched, 1)
    torn_line(segments(watched, run)[-1])
    pipeline = pipeline_of(spark, watched, out)
    assert pipeline.look().waiting == {run: "the trace of c has no ending"}
    assert pipeline.look(final=True).results == {run: "UNKNOWN"}
    assert len(content(out)["quarantine"]) == 1
    close_killed(watched)  # the open segment is finished, with a CRASH
    assert pipeline.look().results == {run: "UNKNOWN"}
    assert not content(out)["quarantine"]
    assert open_table(place(out), "verdicts").read().column("segments").to_pylist() == [3]
    bad = tmp_path / "bad"
    other = record(bad, 2)
    garbage(segments(bad, other)[0])
    status = pipeline_of(spark, bad, tmp_path / "out2").look(final=True)
    assert (status.results, status.exit_code) == ({other: "UNKNOWN"}, 2)


@pytest.mark.usefixtures("quick")
def test_a_copy_of_a_segment_leaves_no_verdict_until_it_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    watched, out = tmp_path / "watched", tmp_path / "out"
    run = record(watched, 1)
    shutil.copy2(segments(watched, run)[0], watched / "copy.parquet")
    pipeline = pipeline_of(spark, watched, out)
    assert pipeline.look(last=True).results == {run: "UNKNOWN"}
    [unknown] = open_table(place(out), "verdicts").read().column("unknown").to_pylist()
    assert "is it a copy?" in dict(unknown)["?"]
    lake = Lake(place(out))
    assert remove_segments(spark, lake, filter(None, [SegmentLedger(lake.segments).segment("copy")])) == 1
    again = pipeline_of(spark, watched, out)
    assert again.look().results == {run: "PASS"}
    assert len(events_in(out)) == sum(len(read_segment(path).rows) for path in segments(watched, run))


def swapped(path: Path) -> None:
    """Two neighbouring deliveries change places."""
    rows = read_segment(path).rows
    delivered = [i for i, row in enumerate(rows) if row.kind == "DELIVER"]
    i, j = next((i, j) for i, j in pairwise(delivered) if rows[i].origin != rows[j].origin)
    for name in ("origin", "first", "count", "digest"):
        one, other = getattr(rows[i], name), getattr(rows[j], name)
        rows[i], rows[j] = replace(rows[i], **{name: other}), replace(rows[j], **{name: one})
    write_parquet(path, rows)


def test_runs_are_judged_and_measured_when_their_files_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    """And a violation in a run that is still open is a violation."""
    watched, out = tmp_path / "watched", tmp_path / "out"
    good, bad, still_open = (record(watched, seed) for seed in (1, 2, 3))
    swapped(segments(watched, bad)[0])
    write_parquet(segments(watched, bad)[-1], read_segment(segments(watched, bad)[-1]).rows[:-1])
    killed(segments(watched, still_open)[-1])

    def measure(tables: TraceTables, keep: Keep) -> dict[str, DataFrame]:
        return {"latency": latency(keep(journeys_of(tables)))}

    pipeline = pipeline_of(spark, watched, out, measure=measure)
    pipeline._take_in(final=False)
    shutil.rmtree(watched)
    watched.mkdir()
    status = pipeline.look(last=True)
    assert status.results == {good: "PASS", bad: "FAIL"}
    assert status.waiting == {still_open: "the trace of c has no ending"}
    assert status.exit_code == 1
    measured = open_table(place(out), "measures/latency").read()
    assert set(measured.column("run").to_pylist()) == {good, bad}
    assert {row["property"] for row in open_table(place(out), "violations").read().to_pylist()} >= {"P9c"}
    cached = cached_tables(spark)
    again = run_pipeline(spark, str(watched), str(out), once=True)
    assert again == status
    assert cached_tables(spark) == cached, "what was judged is let go"


def test_from_facts_of_small_segments_runs_are_judged_as_by_the_plain_checkers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digests first, however few the rows; much of the damage lies at the edge between two segments."""
    clean = list(traces.simulated(2))
    sound = {}
    for order in ("sequencer", "toto", "abcast", "fifo-total"):
        events = simulate(Scenario(order=order, seed=1, source=Source(messages=40)), keep=True).events
        sound[f"sound {order}"] = traces.named(f"sound {order}", events)
    planted = [(name, list(events)) for name, events, *_ in traces.planted()]
    runs = dict([*sound.items(), *clean, *islice(traces.damaged(clean, 60), 60), *planted])
    expected = {events[0].run: judge(events).result for events in runs.values() if events}
    watched, out = tmp_path / "watched", tmp_path / "out"
    watched.mkdir()
    write(watched, ((run, events) for run, events in runs.items() if events), rows_max=25)
    monkeypatch.setattr(stream, "ROWS_MAX", 0)
    found = run_pipeline(spark, str(watched), str(out), final=True).results
    assert found.keys() == expected.keys()
    table = open_table(place(out), "verdicts").read().to_pylist()
    repeated = {row["run"] for row in table if "is it a copy?" in dict(row["unknown"]).get("?", "")}
    wrong = {run: (found[run], result) for run, result in expected.items() if found[run] != result}
    assert {run for run in wrong if run not in repeated} == set(), wrong
    assert all(result != "PASS" for run, result in expected.items() if run in repeated)
    assert {row["by"] for row in table if row["run"] in sound} == {"digests"}
    assert sum(result == "FAIL" for result in expected.values()) >= 30


SCRIPT = """
import sys
from unisono.pipeline.session import open_session
from unisono.pipeline.stream import run_pipeline
small = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
run_pipeline(open_session("local[2]", settings=small), sys.argv[1], sys.argv[2], once=True)
"""


def kill_when(watched: Path, out: Path, pattern: str) -> None:
    """Start a pipeline and kill it, with everything that it started, as soon as a file of that name is there."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(watched), str(out)], start_new_session=True, stderr=subprocess.PIPE
    ) as process:
        until = time.monotonic() + 300
        while process.poll() is None and not any(out.glob(pattern)) and time.monotonic() < until:
            time.sleep(0.001)
        said = b"" if process.poll() is None or process.stderr is None else process.stderr.read()
        assert any(out.glob(pattern)), f"{pattern} never came; {said.decode()}"
        os.killpg(process.pid, signal.SIGKILL)


def test_killed_at_any_moment_and_started_again_it_gives_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    runs = [record(watched, seed) for seed in (1, 2)]
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    status = run_pipeline(spark, str(watched), str(undisturbed), once=True)
    assert status.results == dict.fromkeys(runs, "PASS")
    kill_when(watched, disturbed, "events/*.parquet")  # while workers take segments in
    kill_when(watched, disturbed, "segments/_delta_log/*1.json")  # when the batch is decided
    kill_when(watched, disturbed, "verdicts/*.parquet")  # while results are written
    assert run_pipeline(spark, str(watched), str(disturbed), once=True) == status
    assert content(disturbed) == content(undisturbed)
    events = events_in(disturbed)
    assert len(events) == len({(event.run, event.member, event.local_index) for event in events})


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("commits", range(6))
def test_whichever_commit_is_the_last_before_the_end_the_next_start_completes_the_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """The ledger, events, facts and quarantine; verdicts and violations."""
    watched, out = tmp_path / "watched", tmp_path / "out"
    good, bad = record(watched, 1), record(watched, 2)
    garbage(segments(watched, bad)[0])
    undisturbed = run_pipeline(spark, str(watched), str(tmp_path / "undisturbed"), final=True)
    commit, done = LakeTable.commit, 0

    def dying(self: LakeTable, *args: Any, **named: Any) -> None:
        nonlocal done
        if done == commits:
            raise Killed
        done += 1
        commit(self, *args, **named)

    monkeypatch.setattr(LakeTable, "commit", dying)
    try:
        run_pipeline(spark, str(watched), str(out), final=True)
    except Killed:
        pass
    else:
        assert commits == 5, "violations there are none, so five commits are all"
    monkeypatch.setattr(LakeTable, "commit", commit)
    assert run_pipeline(spark, str(watched), str(out), final=True) == undisturbed
    assert content(out) == content(tmp_path / "undisturbed")
    assert undisturbed.results == {good: "PASS", bad: "UNKNOWN"}


@pytest.mark.usefixtures("quick")
def test_many_runs_are_judged_a_few_at_a_time_and_all_are_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is collected and what workers are told by name does not grow with runs."""
    watched, out = tmp_path / "watched", tmp_path / "out"
    *runs, still_open = [record(watched, seed) for seed in range(1, 5)]
    killed(segments(watched, still_open)[-1])
    monkeypatch.setattr(stream, "RUNS_A_JUDGEMENT", 2)
    monkeypatch.setattr(stream, "RUNS_TOLD", 1)
    asked = []

    def counted(spark: SparkSession, out: Location, runs: Sequence[Due]) -> JudgedRuns:
        asked.append(len(runs))
        return judged_in_python(spark, out, runs)

    monkeypatch.setattr(stream, "judge_silver", counted)
    pipeline = pipeline_of(spark, watched, out)
    status = pipeline.look()
    assert asked == [2, 1]
    assert (dict(status.counts), len(status.results), list(status.waiting)) == ({"PASS": 3, "open": 1}, 1, [still_open])
    assert sorted(open_table(place(out), "verdicts").read().column("run").to_pylist()) == sorted(runs)
    assert pipeline_of(spark, watched, out).look() == status, "a new process knows what this one does"
    assert asked == [2, 1]


def test_a_second_pipeline_fails_at_its_first_commit(spark: SparkSession, tmp_path: Path) -> None:
    watched, out = tmp_path / "watched", tmp_path / "out"
    watched.mkdir()
    first, second = pipeline_of(spark, watched, out), pipeline_of(spark, watched, out)
    record(watched, 1)
    first._take_in(final=False)
    with pytest.raises(PipelineError, match="another process is writing to"):
        second._take_in(final=False)


# Upkeep.


@pytest.mark.usefixtures("quick")
def test_merged_files_hold_the_same_rows_and_runs_are_found_in_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a pipeline that does it by itself: files stay few, and a stream of facts sees nothing twice."""
    from tests.pipeline.test_lake import stream_once

    recorded, watched, out = tmp_path / "recorded", tmp_path / "watched", tmp_path / "out"
    runs = [record(recorded, seed) for seed in range(1, 4)]
    watched.mkdir()
    monkeypatch.setattr(upkeep, "SMALL_FILES_MAX", 5)
    monkeypatch.setattr(gold, "FILES_MAX", 1)
    pipeline = pipeline_of(spark, watched, out, ages=Ages(dead_s=0))
    files: list[int] = []
    streamed: list[Any] = []
    for path in sorted(recorded.iterdir()):
        shutil.copy2(path, watched)
        pipeline.look()
        pipeline.clean_up()
        files.append(len(open_table(place(out), "facts").files()))
        if len(files) in (4, 9):
            streamed += stream_once(spark, place(out), tmp_path / "checkpoint")
    assert max(files) <= 7, files
    assert len(open_table(place(out), "verdicts").files()) == 1
    assert len(list((out / "events").glob("*.parquet"))) <= 7, "what was merged is deleted"
    assert pipeline.status().results == dict.fromkeys(runs, "PASS")
    at_once = tmp_path / "at once"
    run_pipeline(spark, str(recorded), str(at_once), once=True)
    assert content(out)["events"] == content(at_once)["events"]
    names = open_table(place(out), "facts").schema.names
    told = [tuple(row[name] for name in names) for row in streamed if row["what"] != "file"]
    rows = open_table(place(out), "facts").read().to_pylist()
    assert sorted(map(repr, told)) == sorted(repr(tuple(row.values())) for row in rows if row["what"] != "file")
    monkeypatch.undo()  # and judge with Spark
    merge_silver(spark, pipeline.lake)
    assert len(open_table(place(out), "events").files()) == 1
    for run in (runs[0], runs[-1]):
        [due] = [one for one in SegmentLedger(pipeline.lake.segments).due() if one.run == run]
        found = stream.judge_silver(spark, place(out), [due])
        assert found.verdicts is not None
        assert [(row["run"], row["result"]) for row in found.verdicts.collect()] == [(run, "PASS")]


@pytest.mark.usefixtures("quick")
def test_old_runs_are_dropped_but_for_their_verdicts_and_a_run_is_removed_wholly(
    spark: SparkSession, tmp_path: Path
) -> None:
    watched, out = tmp_path / "watched", tmp_path / "out"
    old, young, open_one = (record(watched, seed) for seed in (1, 2, 3))
    killed(segments(watched, open_one)[-1])
    status = run_pipeline(spark, str(watched), str(out), once=True)
    lake = Lake(place(out))
    ledger = SegmentLedger(lake.segments, Gold(spark, place(out)).verdicts)
    assert not list(ledger.old_segments(datetime.now(UTC) - timedelta(days=1)))
    due = list(ledger.old_segments(datetime.now(UTC)))
    assert {run for entry in due for run in entry.runs} == {old, young}, "a run that was not judged stays"
    remove_segments(spark, lake, [entry for entry in due if entry.runs == [old]])
    assert {event.run for event in events_in(out)} == {young, open_one}
    assert run_pipeline(spark, str(watched), str(out), once=True).results == status.results, "nothing is taken in again"
    lake = Lake(place(out))
    remove_segments(spark, lake, own_segments(SegmentLedger(lake.segments), young))
    Gold(spark, place(out)).remove(young)
    assert {event.run for event in events_in(out)} == {open_one}
    assert open_table(place(out), "verdicts").read().column("run").to_pylist() == [old]
    assert set(open_table(place(out), "facts").read().column("run").to_pylist()) == {open_one}
    touched = segments(watched, young)[0]
    os.utime(touched, ns=(1, 1))
    assert young in run_pipeline(spark, str(watched), str(out), once=True).waiting, "a file that changed is another one"


# Without Spark.


def state_of(watched: Path, out: Path) -> dict[str, str | None]:
    """What each run waits for, taken in without Spark."""
    lake = Lake(place(out))
    ledger = SegmentLedger(lake.segments)
    ledger.see(find_segments(place(watched)))
    lives = list(ledger.todo())
    task = take_in_lives(str(out), lake.batch + 1, SCHEMAS)
    rows = {
        "todos": [json.dumps([asdict(todo) for todo in life.todos]) for life in lives],
        "reached": [json.dumps([asdict(one) for one in life.reached]) for life in lives],
    }
    entries = []
    for batch in task(iter(pyarrow.table(rows).to_batches())):
        for row in batch.to_pylist():
            if row["what"] == "entry":
                entries.append(LedgerEntry.from_row(json.loads(row["text"])))
    if entries:
        lake.publish(TableChange((upkeep.ledger_file(lake, entries),)), {})
        ledger.take(entries, lake.batch)
    again = SegmentLedger(lake.segments)
    assert dict(again.states()) == dict(ledger.states()), "a new process knows what this one does"
    assert dict(again.known()) == dict(ledger.known())
    return {run: state.waits_for for run, state in ledger.states()}


def in_two(path: Path) -> Iterator[Path]:
    """Cut a segment into two, as a recorder that rotates writes them."""
    rows = read_segment(path).rows
    for number, part in enumerate((rows[:5], rows[5:])):
        made = path.with_name(path.name.replace("000000", f"{number:06d}"))
        write_parquet(made, part)
        yield made


def test_a_run_waits_for_what_is_missing_of_it(tmp_path: Path) -> None:
    watched, out = tmp_path / "watched", tmp_path / "out"
    run = record(watched, 1)
    first, second = in_two(segments(watched, run)[0])
    hidden = tmp_path / "hidden"
    first.rename(hidden)
    assert state_of(watched, out) == {run: f"segment 000000 of {run}.a.0 is missing"}
    hidden.rename(first)
    ending = read_segment(second).rows[-1]
    rows = read_segment(second).rows[:-1]
    write_parquet(second, rows)
    assert state_of(watched, out) == {run: "the trace of a has no ending"}
    assert ending.kind == END
    third = second.with_name(second.name.replace("000001.parquet", "000002.open.jsonl"))
    third.write_text(to_line(ending), encoding="ascii")
    assert state_of(watched, out) == {run: None}


def test_a_replaced_segment_leaves_runs_alone_that_share_another_one_with_its_run(tmp_path: Path) -> None:
    lake = Lake(place(tmp_path))
    ledger = SegmentLedger(lake.segments)

    def take(key: str, act: str, lives: list[Reached]) -> None:
        runs = sorted({life.run for life in lives})
        entry = LedgerEntry(key, act, f"{key}.parquet", 1, 1, sum(life.rows for life in lives), runs, [], lives)
        lake.publish(TableChange((upkeep.ledger_file(lake, [entry]),)), {})
        ledger.take([entry], lake.batch)

    take("shared", ADD, [Reached("one", "g", "a", 0, 0, 5, 5), Reached("other", "g", "a", 0, 0, 5, 5)])
    take("own", ADD, [Reached("one", "g", "a", 0, 5, 9, 4)])
    take("own", REPLACE, [Reached("one", "g", "a", 0, 5, 8, 3)])
    states = dict(ledger.states())
    assert (states["one"].rows, states["one"].copied) == (8, None)
    assert (states["other"].rows, states["other"].copied) == (5, None)
    assert dict(SegmentLedger(lake.segments).states()) == states, "a new process knows what this one does"
    given = []
    with pytest.raises(PipelineError, match="holds rows of other too"):
        given += list(islice(own_segments(ledger, "one"), 1))
    assert not given, "before any segment of the run goes"


def test_the_memory_of_the_ledger_does_not_grow_with_runs_and_segments(tmp_path: Path) -> None:
    lake = Lake(place(tmp_path))
    count = 20_000

    def entries(first: int, end: int) -> list[LedgerEntry]:
        found = []
        for number in range(first, end):
            life = Reached(f"run-{number:08d}", "g", "a", 0, 0, 5, 5, "1@a", ["a"], "toto", 1, END, ["a"])
            found.append(LedgerEntry(f"{life.run}.a.0.000000", ADD, "x.parquet", 1, 1, 5, [life.run], [], [life]))
        return found

    step = 2_000
    for first in range(0, count, step):
        lake.publish(TableChange((upkeep.ledger_file(lake, entries(first, first + step)),)), {})
    tracemalloc.start()
    ledger = SegmentLedger(lake.segments)
    ledger.take(entries(count, count + 1), lake.batch + 1)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ledger.segments == count + 1
    assert len(list(ledger.due())) == count + 1
    assert kept < 1 << 20, "what is known lies on the disk"
    assert peak < 64 << 20


def test_the_ledger_takes_the_rows_of_its_log_in_their_order_however_they_lie_in_files(tmp_path: Path) -> None:
    """A segment was replaced; the file that says so was merged with older ones around a file between them."""
    lake = Lake(place(tmp_path))

    def file(batches: list[int]) -> DataFile:
        rows = []
        for batch in batches:
            life = Reached("one", "g", "a", 0, 0, batch, batch)
            act = REPLACE if batch == 3 else ADD
            entry = LedgerEntry(
                "s" if batch in (2, 3) else f"s{batch}", act, "x.parquet", 1, 1, batch, ["one"], [], [life]
            )
            rows.append({**asdict(entry), "batch": batch, "taken_in": datetime.now(UTC)})
        table = pyarrow.Table.from_pylist(rows, SCHEMAS["segments"])
        return write_data_file(lake.segments.folder, batches[-1], [table], SCHEMAS["segments"])

    lake.publish(TableChange((file([1, 3]), file([2]))), {})
    ledger = SegmentLedger(lake.segments)
    assert dict(ledger.known())["s"].rows == 3
    assert next(ledger.still_open()).last_batch == 3


def test_a_segment_that_cannot_be_read_now_is_not_in(tmp_path: Path) -> None:
    """That a disk does not answer says nothing of what is in a file."""
    watched, out = tmp_path / "watched", tmp_path / "out"
    watched.mkdir()
    (watched / "r.z.0.000000.parquet").symlink_to(tmp_path / "nowhere")
    (watched / "r.y.0.000000.jsonl").mkdir()
    assert state_of(watched, out) == {}
    assert not SegmentLedger(Lake(place(out)).segments).segments


@pytest.mark.parametrize(
    ("results", "unreadable", "segments", "code"),
    [
        ({"a": "PASS"}, {}, 1, 0),
        ({"a": "PASS", "b": "FAIL"}, {"x": "gone"}, 1, 1),
        ({"a": "PASS", "b": "UNKNOWN"}, {}, 1, 2),
        ({"a": "PASS"}, {"x": "gone"}, 1, 2),
        ({}, {}, 0, 2),
        ({}, {}, 3, 0),
    ],
)
def test_exit_codes(results: dict[str, str], unreadable: dict[str, str], segments: int, code: int) -> None:
    assert PipelineStatus(segments, results, {}, unreadable).exit_code == code


def test_a_segment_of_which_nothing_can_be_used_is_an_exit_code() -> None:
    """Its run looks as if it were still open, and waits for rows that are here and lost."""
    assert PipelineStatus(1, {}, {"a": "there is no life in it"}, {}, {"open": 1}, unusable=1).exit_code == 2
    assert PipelineStatus(2, {"b": "PASS"}, {}, {}, unusable=1).exit_code == 2
    assert PipelineStatus(2, {"b": "FAIL"}, {}, {}, unusable=1).exit_code == 1


@pytest.mark.usefixtures("quick")
def test_a_damaged_segment_counts_as_unusable(spark: SparkSession, tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    run = record(watched, 2)
    for segment in segments(watched, run):
        segment.write_bytes(b"PAR1 and nothing else")
    status = pipeline_of(spark, watched, tmp_path / "out").look(last=True)
    assert (status.unusable, status.exit_code) == (status.segments, 2)


def test_a_folder_in_the_wrong_place_is_told(tmp_path: Path) -> None:
    no_spark: SparkSession = None  # type: ignore[assignment]
    with pytest.raises(PipelineError, match="is no folder"):
        pipeline_of(no_spark, tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(PipelineError, match="lies in the watched folder"):
        pipeline_of(no_spark, tmp_path, tmp_path / "out")
