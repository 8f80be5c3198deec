"""Growing traces: each segment is taken in once and each run judged once, whatever is killed, and in whatever pieces it comes."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.test_faults import garbage, killed, record, segments, torn_line
from unisono.pipeline import stream
from unisono.pipeline.gold import manifests, read_gold, writing
from unisono.pipeline.ledger import find_segments, missing, read_ledger, run_states, sweep, take_in
from unisono.pipeline.session import PipelineError
from unisono.pipeline.stream import Pipeline, read_silver, run_pipeline
from unisono.pipeline.verify import Judgement, RunVerdict
from unisono.trace.checks.judge import judge
from unisono.trace.promises import promises
from unisono.trace.reader import close_killed, read
from unisono.trace.schema import TraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def content(folder: Path) -> dict[str, str]:
    """All that counts of the tables, by hash: what Spark remembers for itself is left out."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock" and "_checkpoint" not in path.parts
    }


def judged_in_python(spark: SparkSession, paths: Iterable[str | Path]) -> Judgement:
    """The verdicts of the checkers without Spark, which are quicker."""
    try:
        trace = read(paths)
    except TraceError as error:
        raise PipelineError(str(error)) from None
    runs = []
    for run in trace.runs:
        events = list(trace.events(run))
        verdict = judge(events, promises(events[0].protocol))
        runs.append(
            RunVerdict(run, events[0].group, events[0].protocol, verdict.result, verdict.owed, (), verdict.unknown)
        )
    return Judgement(tuple(runs), 0, ())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "verify", judged_in_python)


@pytest.mark.usefixtures("quick")
def test_a_trace_that_comes_in_pieces_gives_the_tables_of_one_that_was_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    recorded, watched = tmp_path / "recorded", tmp_path / "watched"
    whole, broken = record(recorded, 1), record(recorded / "deeper", 2)
    killed(segments(recorded / "deeper", broken)[-1])
    files = [path.relative_to(recorded) for path in find_segments(recorded).values()]
    watched.mkdir()
    pipeline = Pipeline(spark, watched, tmp_path / "pieces")
    statuses = []
    for part in (files[::2], files[1::2]):
        for path in part:
            (watched / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(recorded / path, watched / path)
        statuses.append(pipeline.look())
    assert statuses[0].results == {}
    assert sorted(statuses[0].waiting) == [whole, broken]
    assert statuses[1].results == {whole: "PASS"}
    assert statuses[1].waiting == {broken: "the trace of c has no ending"}
    assert pipeline.look(final=True).results == {whole: "PASS", broken: "UNKNOWN"}
    at_once = run_pipeline(spark, watched, tmp_path / "at once", final=True)
    assert at_once == pipeline.status()
    assert content(tmp_path / "at once") == content(tmp_path / "pieces")
    assert read_silver(spark, tmp_path / "pieces").events.count() == sum(
        1 for _ in read([watched, watched / "deeper"]).events()
    )


@pytest.mark.usefixtures("quick")
def test_a_run_is_judged_again_when_more_of_it_comes_and_never_passes_with_a_bad_segment(
    spark: SparkSession, tmp_path: Path
) -> None:
    watched = tmp_path / "watched"
    run = record(watched, 1)
    torn_line(segments(watched, run)[-1])
    pipeline = Pipeline(spark, watched, tmp_path / "out")
    assert pipeline.look().waiting == {run: "there is no trace of c"}
    assert pipeline.look(final=True).results == {run: "UNKNOWN"}
    assert read_silver(spark, tmp_path / "out").quarantine.count() == 1
    close_killed(watched)  # the open segment is finished, with a CRASH
    assert pipeline.look().results == {run: "UNKNOWN"}
    assert read_silver(spark, tmp_path / "out").quarantine.count() == 0
    assert [row["segments"] for row in read_gold(spark, tmp_path / "out" / "gold", "verdicts").collect()] == [3]
    bad = tmp_path / "bad"
    other = record(bad, 2)
    garbage(segments(bad, other)[0])
    assert Pipeline(spark, bad, tmp_path / "out2").look(final=True).results == {other: "UNKNOWN"}


SCRIPT = """
import sys
from pathlib import Path
from unisono.pipeline.session import open_session
from unisono.pipeline.stream import run_pipeline
small = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
run_pipeline(open_session("local[2]", settings=small), Path(sys.argv[1]), Path(sys.argv[2]), once=True)
"""


def kill_when(watched: Path, out: Path, pattern: str) -> None:
    """Start a pipeline and kill it, with everything that it started, as soon as a file of that name is there."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(watched), str(out)], start_new_session=True, stderr=subprocess.PIPE
    ) as process:
        until = time.monotonic() + 300
        while process.poll() is None and not any(out.glob(pattern)) and time.monotonic() < until:
            time.sleep(0.002)
        said = b"" if process.poll() is None or process.stderr is None else process.stderr.read()
        assert any(out.glob(pattern)), f"{pattern} never came; {said.decode()}"
        os.killpg(process.pid, signal.SIGKILL)


def test_killed_at_any_moment_and_started_again_it_gives_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    runs = [record(watched, seed) for seed in (1, 2)]
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    status = run_pipeline(spark, watched, undisturbed, once=True)
    assert status.results == dict.fromkeys(runs, "PASS")
    kill_when(watched, disturbed, "silver/events/run=*/*")  # while workers take segments in
    kill_when(watched, disturbed, "gold/.staging/*/*")  # while gold is written
    assert not manifests(disturbed / "gold")
    assert run_pipeline(spark, watched, disturbed, once=True) == status
    assert content(disturbed) == content(undisturbed)
    events = read_silver(spark, disturbed).events
    assert events.count() == events.select("run", "member", "local_index").distinct().count()
    again = content(disturbed)
    shutil.rmtree(disturbed / "_checkpoint")  # the output knows what is in it without Spark's memory
    assert run_pipeline(spark, watched, disturbed, once=True) == status
    assert content(disturbed) == again


# Without Spark.


class Killed(BaseException):
    """Stands for the end of the process."""


def dying_after(monkeypatch: pytest.MonkeyPatch, renames: int) -> None:
    rename, done = os.replace, count()

    def replace(source: str | Path, target: str | Path) -> None:
        if next(done) >= renames:
            raise Killed
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_worker_that_dies_between_any_two_renames_can_do_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    watched = tmp_path / "watched"
    run = record(watched, 1)
    lines = segments(watched, run)[0]
    torn_line(lines)  # an event file, a quarantine file, and the entry in the ledger: three renames
    [(key, path)] = [
        (k, p) for k, p in find_segments(watched, with_open=True).items() if p.name.endswith(".open.jsonl")
    ]
    take_in(path, key, tmp_path / "undisturbed")
    dying_after(monkeypatch, renames)
    with pytest.raises(Killed):
        take_in(path, key, tmp_path / "disturbed")
    monkeypatch.undo()
    assert missing({key: path}, read_ledger(tmp_path / "disturbed")) == {key: path}
    take_in(path, key, tmp_path / "disturbed")
    sweep(tmp_path / "disturbed")
    assert content(tmp_path / "disturbed") == content(tmp_path / "undisturbed")


def states(watched: Path, silver: Path) -> dict[str, str | None]:
    found = find_segments(watched, with_open=True)
    for key, path in missing(found, read_ledger(silver)).items():
        if not path.name.endswith(".open.jsonl"):
            take_in(path, key, silver)
    still_open = [key for key, path in found.items() if path.name.endswith(".open.jsonl")]
    return {run: state.waits_for for run, state in run_states(read_ledger(silver).values(), still_open).items()}


def in_two(path: Path) -> Iterator[Path]:
    """Cut a segment into two, as a recorder that rotates writes them."""
    from unisono.trace.parquet import write_parquet
    from unisono.trace.reader import read_segment

    rows = read_segment(path).rows
    for number, part in enumerate((rows[:5], rows[5:])):
        made = path.with_name(path.name.replace("000000", f"{number:06d}"))
        write_parquet(made, part)
        yield made


def test_a_run_waits_for_what_is_missing_of_it(tmp_path: Path) -> None:
    watched, silver = tmp_path / "watched", tmp_path / "silver"
    run = record(watched, 1)
    first, second = in_two(segments(watched, run)[0])
    hidden = tmp_path / "hidden"
    first.rename(hidden)
    assert states(watched, silver) == {run: f"segment 000000 of {run}.a.0 is missing"}
    hidden.rename(first)
    being_written = second.with_name(second.name.replace("000001.parquet", "000002.open.jsonl"))
    being_written.touch()
    assert states(watched, silver) == {run: f"{run}.a.0.000002 is still being written"}
    being_written.unlink()
    assert states(watched, silver) == {run: None}


def test_a_folder_in_the_wrong_place_is_told(tmp_path: Path) -> None:
    no_spark: SparkSession = None  # type: ignore[assignment]
    with pytest.raises(PipelineError, match="is no folder"):
        Pipeline(no_spark, tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(PipelineError, match="lies in the watched folder"):
        Pipeline(no_spark, tmp_path, tmp_path / "out")
    (tmp_path / "watched").mkdir()
    with writing(tmp_path / "out"), pytest.raises(PipelineError, match="another process is writing"):
        run_pipeline(no_spark, tmp_path / "watched", tmp_path / "out", once=True)
