"""Tables with commits: a batch is in all tables or in none, whatever dies, and two writers never both succeed."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from deltalake import DeltaTable

from unisono.pipeline import lake as lake_module
from unisono.pipeline import lake_source
from unisono.pipeline.data_files import ALL, Chosen, write_data_file
from unisono.pipeline.lake import (
    SCHEMAS,
    TAKE_IN,
    Lake,
    LakeTable,
    Series,
    TableChange,
    facts_stream,
    open_table,
    read_table,
    table_names,
)
from unisono.pipeline.session import PipelineError
from unisono.pipeline.storage import Location, place

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

Rows = list[dict[str, Any]]


def written(out: Location, name: str, batch: int, rows: Rows) -> TableChange:
    """A data file that no table holds yet."""
    table = pyarrow.Table.from_pylist(rows, SCHEMAS[name])
    return TableChange((write_data_file(out / name, batch, [table], SCHEMAS[name]),))


def put(lake: Lake, run: str) -> int:
    """Take in a made-up segment of a run."""
    batch = lake.batch + 1
    facts = written(lake.out, "facts", batch, [{"run": run, "group": "g", "what": "life", "batch": batch}])
    bad = written(lake.out, "quarantine", batch, [{"run": run, "problem": "torn"}])
    entry = written(lake.out, "segments", batch, [{"key": run, "batch": batch}])
    return lake.publish(entry, {"facts": facts, "quarantine": bad})


def runs_in(out: Location, name: str, chosen: Chosen = ALL) -> list[str]:
    return sorted(open_table(out, name).read(chosen).column("key" if name == "segments" else "run").to_pylist())


def everywhere(out: Location) -> list[str]:
    """The runs in every table, which must be the same ones."""
    found = [runs_in(out, name) for name in ("segments", "facts", "quarantine")]
    assert found[0] == found[1] == found[2]
    return found[0]


def test_batches_are_in_all_tables_and_files_that_cannot_matter_are_passed_over(tmp_path: Path) -> None:
    out = place(tmp_path / "out")
    lake = Lake(out)
    assert [put(lake, run) for run in ("a", "b", "c")] == [1, 2, 3]
    assert everywhere(out) == ["a", "b", "c"]
    assert runs_in(out, "facts", Chosen(runs=frozenset("b"))) == ["b"]
    assert runs_in(out, "facts", Chosen(after=1, until=2)) == ["b"]
    assert len(open_table(out, "facts").files(Chosen(after=2))) == 1
    assert Lake(out).batch == 3
    assert table_names(out) == ["events", "facts", "quarantine", "segments"]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("commits", [0, 1, 2])
def test_a_batch_is_whole_or_absent_wherever_its_process_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    out = place(tmp_path / "out")
    lake = Lake(out)
    put(lake, "a")
    commit, done = LakeTable.commit, 0

    def dying(self: LakeTable, *args: Any, **named: Any) -> None:
        nonlocal done
        if done == commits:
            raise Killed
        done += 1
        commit(self, *args, **named)

    monkeypatch.setattr(LakeTable, "commit", dying)
    with pytest.raises(Killed):
        put(lake, "b")
    monkeypatch.undo()
    again = Lake(out)
    assert everywhere(out) == (["a", "b"] if commits else ["a"])
    put(again, "c")
    assert everywhere(out) == (["a", "b", "c"] if commits else ["a", "c"])


def test_of_two_writers_one_fails_whichever_table_they_meet_at(tmp_path: Path) -> None:
    out = place(tmp_path / "out")
    put(Lake(out), "a")
    first, second = Lake(out), Lake(out)
    put(first, "b")
    with pytest.raises(PipelineError, match="another process is writing to"):
        put(second, "c")
    assert everywhere(out) == ["a", "b"]


def test_a_writer_that_slept_through_its_own_rolling_forward_cannot_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had decided a batch; another one has finished that, and gone on."""
    out = place(tmp_path / "out")
    put(Lake(out), "a")
    slow = Lake(out)
    apply = Series._apply

    def overtaken(self: Series, number: int, changes: Any) -> None:
        monkeypatch.undo()
        put(Lake(out), "c")
        apply(self, number, changes)

    monkeypatch.setattr(Series, "_apply", overtaken)
    with pytest.raises(PipelineError, match="another process is writing to"):
        put(slow, "b")
    assert everywhere(out) == ["a", "b", "c"]


def test_a_part_of_an_hour_keeps_what_is_being_written(tmp_path: Path) -> None:
    lake = Lake(place(tmp_path))
    put(lake, "r")
    written(lake.out, "facts", 2, [{"run": "r", "group": "g", "what": "life", "batch": 2}])
    facts = open_table(lake.out, "facts")
    assert facts.vacuum(0.5) == 0
    assert facts.vacuum(0) == 1, "no table holds it"


def test_a_log_is_kept_as_long_as_the_writer_says(tmp_path: Path) -> None:
    """Readers and other commands leave it as it is."""
    folder = place(tmp_path / "facts")
    intervals = []
    for log_s in (None, 90.0, None, 90.0, 30.0):
        table = LakeTable.made(folder, SCHEMAS["facts"], log_s)
        intervals.append((DeltaTable(str(tmp_path / "facts")).metadata().configuration, table.version))
    assert [one["delta.logRetentionDuration"] for one, _ in intervals] == [
        "interval 6 hours", "interval 90 seconds", "interval 90 seconds", "interval 90 seconds", "interval 30 seconds"
    ]  # fmt: skip
    assert [version for _, version in intervals] == [0, 1, 1, 1, 2]


def test_a_new_column_is_added_and_is_null_in_older_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = place(tmp_path / "out")
    put(Lake(out), "a")
    wider = SCHEMAS["facts"].append(pyarrow.field("extra", pyarrow.int64()))
    monkeypatch.setitem(SCHEMAS, "facts", wider)
    lake = Lake(out)
    change = written(out, "facts", 2, [{"run": "b", "batch": 2, "extra": 7}])
    lake.publish(TableChange(), {"facts": change})
    found = open_table(out, "facts").read()
    assert dict(zip(found.column("run").to_pylist(), found.column("extra").to_pylist(), strict=True)) == {
        "a": None,
        "b": 7,
    }


def test_a_column_of_another_type_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = place(tmp_path / "out")
    Lake(out)
    other = pyarrow.schema([("run", pyarrow.string()), ("rows", pyarrow.string())])
    monkeypatch.setitem(SCHEMAS, "facts", other)
    with pytest.raises(PipelineError, match=r"the column rows of .*facts is long, and this program writes string"):
        Lake(out)


def test_facts_in_the_columns_of_an_older_release_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = place(tmp_path / "out")
    older = pyarrow.schema([("run", pyarrow.string()), ("name", pyarrow.string()), ("note", pyarrow.string())])
    with monkeypatch.context() as patch:
        patch.setitem(SCHEMAS, "facts", older)
        patch.setattr(lake_module, "FORMER_COLUMNS", frozenset())
        Lake(out)
    with pytest.raises(
        PipelineError, match=r"the column note of .*facts is of an older release: .* take the traces in"
    ):
        Lake(out)


@pytest.mark.parametrize("layer", ["silver", "gold"])
def test_tables_of_the_release_before_are_refused(tmp_path: Path, layer: str) -> None:
    (tmp_path / layer).mkdir()
    opened: list[Callable[[], Any]] = [lambda: Lake(place(tmp_path)), lambda: open_table(place(tmp_path), "events")]
    for act in opened:
        with pytest.raises(PipelineError, match="tables of an older release"):
            act()


def test_a_table_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="holds no table 'verdicts': there are no tables"):
        open_table(place(tmp_path), "verdicts")
    Lake(place(tmp_path))
    with pytest.raises(PipelineError, match="there are events, facts, quarantine, segments"):
        open_table(place(tmp_path), "measures/latency")


def stream_once(spark: SparkSession, out: Location, checkpoint: Path) -> list[Row]:
    """What the stream brings until now; at most once, also after a restart."""
    found: list[Row] = []
    query = (
        facts_stream(spark, out)
        .writeStream.foreachBatch(lambda frame, number: found.extend(frame.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return found


def test_workers_need_no_deltalake() -> None:
    """What they import for taking in, reading, rewriting and judging."""
    modules = ("take_in", "rewriting", "lake_source", "judge_in_task", "watch")
    imports = "; ".join(f"import unisono.pipeline.{module}" for module in modules)
    subprocess.run([sys.executable, "-c", f"import sys; {imports}; assert 'deltalake' not in sys.modules"], check=True)


def test_spark_reads_tables_and_streams_facts_batch_by_batch(spark: SparkSession, tmp_path: Path) -> None:
    out = place(tmp_path / "out")
    lake = Lake(out)
    for run in "ab":
        put(lake, run)
    assert [row["run"] for row in read_table(spark, out, "facts", Chosen(runs=frozenset("b"))).collect()] == ["b"]
    assert sorted(row["run"] for row in stream_once(spark, out, tmp_path / "checkpoint")) == ["a", "b"]
    put(lake, "c")
    assert [row["run"] for row in stream_once(spark, out, tmp_path / "checkpoint")] == ["c"]
    assert stream_once(spark, out, tmp_path / "checkpoint") == []


def test_a_stream_that_is_behind_takes_some_batches_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = place(tmp_path / "out")
    lake = Lake(out)
    for run in "abc":
        put(lake, run)
    stream = lake_source.BatchesStream({"path": (out / "facts").uri})
    limit = stream.getDefaultReadLimit()
    assert stream.latestOffset({"batch": 0}, limit) == {"batch": 3}
    monkeypatch.setattr(lake_source, "ROWS_A_TURN", 1)
    assert [stream.latestOffset({"batch": start}, limit)["batch"] for start in range(4)] == [1, 2, 3, 3]
    assert pickle.loads(pickle.dumps(stream)).latestOffset({"batch": 2}, limit) == {"batch": 3}
    put(lake, "d")
    assert stream.latestOffset({"batch": 3}, limit) == {"batch": 4}, "it sees what is new"


def test_on_s3_a_batch_is_committed_and_a_second_writer_fails(bucket: Location) -> None:
    out = bucket / "lake"
    lake, other = Lake(out), Lake(out)
    put(lake, "a")
    with pytest.raises(PipelineError, match="another process is writing to"):
        put(other, "b")
    assert everywhere(out) == ["a"]
    assert lake.silver["facts"].transaction(TAKE_IN) == 1
