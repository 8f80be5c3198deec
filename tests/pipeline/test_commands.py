"""The commands that work on Spark, as a person meets them: results, exit codes, files. All share the tests' session."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.pipeline.test_faults import DATA, killed, record, rewrite, segments
from unisono.cli.app import app
from unisono.pipeline import stream
from unisono.pipeline.lake import Lake, TableChange
from unisono.pipeline.ledger import find_segments
from unisono.pipeline.storage import FileEntry, Location, place, upload
from unisono.trace.reader import read_segment
from unisono.trace.schema import DELIVER, Event

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(autouse=True)
def same_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISONO_SPARK_MASTER", "local[2]")


def ask(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def told(*arguments: str | Path) -> tuple[int, Any]:
    result = ask(*arguments, "--json")
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def chorus(tmp_path: Path) -> Path:
    """The log of another system, which breaks a promise."""
    folder = tmp_path / "chorus"
    done = ask("pipeline", "adapt", DATA / "chorus.csv", "--mapping", DATA / "chorus.toml", "--out", folder)
    assert done.exit_code == 0
    assert "events of 3 members" in done.stdout
    return folder


def test_verify_tells_pass_violation_and_unknown_apart(tmp_path: Path, chorus: Path) -> None:
    clean, holed = tmp_path / "clean", tmp_path / "holed"
    record(clean, 1)
    killed(segments(holed, record(holed, 2))[-1])
    code, said = told("trace", "verify", clean)
    assert (code, said["result"], said["runs"][0]["by"]) == (0, "PASS", "digests")
    code, said = told("trace", "verify", holed)
    assert (code, said["result"]) == (2, "UNKNOWN")
    assert said["runs"][0]["unknown"] == {"c": "its trace stops without END, LEAVE or CRASH"}
    shown = ask("trace", "verify", chorus, clean, holed)
    assert shown.exit_code == 1
    assert "FAIL" in shown.stdout
    assert "before" in shown.stdout, "the violation is told in a sentence"
    assert "Traceback" not in shown.output


def test_measure_prints_and_writes_tables(tmp_path: Path) -> None:
    run = record(tmp_path / "trace", 1)
    code, said = told("trace", "measure", tmp_path / "trace", "--out", tmp_path / "measures")
    assert code == 0
    assert said
    assert any((tmp_path / "measures").rglob("*.parquet"))
    shown = ask("trace", "measure", tmp_path / "trace").stdout.splitlines()
    assert len([line for line in shown if line.strip().startswith(f"{run} ")]) >= 5, "runs are named in full"


def test_an_experiment_of_ones_own_writes_a_page_and_does_not_run_twice(tmp_path: Path) -> None:
    grid = tmp_path / "mine.toml"
    block = 'order = ["abcast", "tomp"]\nmembers = 3\nmessages = 20\nseeds = 2\n'
    grid.write_text(f'name = "mine"\n[[block]]\n{block}', encoding="utf-8")
    arguments = ("experiment", "run", grid, "--out", tmp_path / "out", "--page", tmp_path / "page" / "mine.md")
    code, said = told(*arguments)
    assert (code, said["cells"], said["verdicts"]) == (0, 4, {"PASS": 4})
    written = (tmp_path / "page" / "mine.md").read_text("utf-8")
    assert "| abcast | 3 | poisson |" in written
    measures = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "measures").iterdir()}
    assert told(*arguments) == (code, said)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "measures").iterdir()} == measures


def test_a_quick_experiment_has_its_figure(tmp_path: Path) -> None:
    page = tmp_path / "tomp.md"
    code, said = told("experiment", "run", "tomp", "--quick", "--out", tmp_path / "out", "--page", page)
    assert code == 0
    assert set(said["verdicts"]) == {"PASS"}
    assert "](img/tomp-parts.svg)" in page.read_text("utf-8")
    assert (tmp_path / "img" / "tomp-parts.svg").read_text("utf-8").startswith("<?xml")


def test_the_pipeline_takes_in_what_is_there_and_judges_it(tmp_path: Path, chorus: Path) -> None:
    record(chorus.parent / "watched", 1)
    code, said = told("pipeline", "run", "--watch", tmp_path / "watched", "--out", tmp_path / "tables", "--once")
    assert (code, said["results"], said["waiting"]) == (0, {"sequencer-3-1": "PASS"}, {})
    code, said = told("pipeline", "run", "--watch", chorus, "--out", tmp_path / "other", "--once")
    assert (code, said["results"]) == (1, {"chorus-1": "FAIL"})
    again = ask("pipeline", "run", "--watch", chorus, "--out", tmp_path / "other", "--once")
    assert "P9a n1 delivered n1:0 (local 2) before n2:0" in again.stdout, "a person reads why"


def test_a_java_process_that_dies_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*arguments: Any, **options: Any) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(stream, "run_pipeline", dies)
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        result = ask("pipeline", "run", "--watch", tmp_path, "--out", tmp_path.parent / "tables", "--once")
        assert "Spark's Java process has ended" in str(result.exception)
        assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN, "a word to a dead process must not end this one"
    finally:
        signal.signal(signal.SIGPIPE, before)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--out", "file"), "is a file: name a folder for the tables"),
        (("--out", "tables", "--on-fail", "'"), "is no command"),
        (("--out", "tables", "--views", "--metrics", "nonsense"), "is no address"),
        (("--out", "tables", "--views", "--checkpoint", "gs://x"), "storage of the kind gs:// is not supported"),
    ],
)
def test_what_is_wrong_with_options_is_told_before_anything_is_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "watched").mkdir()
    (tmp_path / "file").touch()
    result = ask("pipeline", "run", "--watch", "watched", "--once", *options)
    assert complaint in str(result.exception)
    assert not (tmp_path / "tables").exists()


def test_with_once_and_views_the_command_ends_and_calls_the_hook(tmp_path: Path, chorus: Path) -> None:
    tables, said = tmp_path / "tables", tmp_path / "said"
    hook = f"tee -a {said}"
    arguments = ("pipeline", "run", "--watch", chorus, "--out", tables, "--once", "--on-fail", hook)
    assert [told(*arguments)[0] for _ in range(2)] == [1, 1]
    calls = [json.loads(line) for line in said.read_text("utf-8").splitlines()]
    assert calls
    assert len(calls) == len({call["id"] for call in calls}), "each violation once, also through a restart"


def test_a_table_that_was_deleted_or_damaged_is_told_and_not_made_anew(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    lake = Lake(place(tables))
    lake.publish(TableChange(), {})
    log = next((tables / "segments" / "_delta_log").glob("*0.json"))
    (tmp_path / "watched").mkdir()
    (tables / "facts").rename(tmp_path / "elsewhere")
    result = ask("pipeline", "run", "--watch", tmp_path / "watched", "--out", tables, "--once")
    assert "facts is missing" in str(result.exception)
    assert not (tables / "facts").exists()
    log.write_text("garbage")
    for command in ("tables", "compact"):
        assert "segments cannot be read" in str(ask("pipeline", command, "--out", tables).exception)


def test_nothing_to_read_and_files_that_workers_cannot_read_are_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, tables = tmp_path / "watched", tmp_path / "tables"
    watched.mkdir()
    arguments = ("pipeline", "run", "--watch", watched, "--out", tables, "--once")
    done = ask(*arguments)
    assert (done.exit_code, "there was nothing to read" in done.output) == (2, True)
    run = record(watched, 1)

    def as_the_driver_sees_it(folder: Location) -> Iterator[tuple[str, FileEntry]]:
        """On a disk that the workers do not have."""
        for key, file in find_segments(folder):
            yield key, file._replace(place=place(f"{file.place}.elsewhere.parquet"))

    with monkeypatch.context() as patch:
        patch.setattr(stream, "find_segments", as_the_driver_sees_it)
        code, said = told(*arguments)
    assert (code, said["results"], len(said["unreadable"])) == (2, {}, 3)
    assert "No such file" in next(iter(said["unreadable"].values()))
    code, said = told(*arguments)
    assert (code, said["results"]) == (0, {run: "PASS"}), "it is tried again"


def with_a_delivery_twice(rows: list[Event]) -> list[Event]:
    at = max(at for at, row in enumerate(rows) if row.kind == DELIVER)
    return [replace(row, local_index=index) for index, row in enumerate([*rows[: at + 1], *rows[at:]])]


def test_tables_are_listed_compacted_retained_and_removed(tmp_path: Path) -> None:
    watched, tables = tmp_path / "watched", tmp_path / "tables"
    first, second = record(watched, 1), record(watched, 2)
    rewrite(segments(watched, first)[0], with_a_delivery_twice)
    told("pipeline", "run", "--watch", watched, "--out", tables, "--once", "--views", "--on-fail", "true")
    assert list((tables / "_told").iterdir()), "the hook was called"
    rows = sum(len(read_segment(path).rows) for path in watched.iterdir())

    def listed() -> dict[str, dict[str, int]]:
        code, said = told("pipeline", "tables", "--out", tables)
        assert code == 0
        return {row.pop("table"): row for row in said}

    before = listed()
    assert (before["events"]["rows"], before["verdicts"]["rows"], before["segments"]["rows"]) == (rows, 2, 6)
    assert "verdicts" in ask("pipeline", "tables", "--out", tables).stdout
    assert ask("pipeline", "compact", "--out", tables, "--vacuum-hours", "0").exit_code == 0
    compacted = listed()
    assert (compacted["events"]["rows"], compacted["events"]["files"]) == (rows, 1)
    assert len(list((tables / "events").glob("*.parquet"))) == 1, "files that no table holds are gone"
    done = ask("pipeline", "retain", "--out", tables, "--days", "1")
    assert "0 segments dropped" in done.output
    done = ask("pipeline", "remove", "--out", tables, "--run", first)
    assert f"{first} was taken out" in done.output
    assert listed()["verdicts"]["rows"] == 1
    assert not list((tables / "_told").iterdir()), "the marks of its violations went with it"
    assert 0 < listed()["views"]["rows"] < before["views"]["rows"], "also from what was said of its views"
    done = ask("pipeline", "retain", "--out", tables, "--days", "0", "--vacuum-hours", "0")
    assert "3 segments dropped" in done.output, second
    after = listed()
    assert (after["events"]["rows"], after["facts"]["rows"], after["verdicts"]["rows"]) == (0, 0, 1)
    assert after["views"]["rows"] == 0
    code, said = told("pipeline", "run", "--watch", watched, "--out", tables, "--once")
    assert (code, said["results"]) == (0, {second: "PASS"}), "what was taken out stays out"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pipeline", "tables", "--out", "{empty}"), "there are no tables in {empty}"),
        (("pipeline", "compact", "--out", "{empty}"), "holds no table 'segments'"),
        (("pipeline", "remove", "--out", "{empty}"), "name either --run or --segment"),
        (("pipeline", "run", "--watch", "{clean}", "--out", "{older}"), "tables of an older release"),
        (("pipeline", "run", "--watch", "{clean}", "--out", "{clean}/tables"), "lies in the watched folder"),
        (("trace", "verify", "{empty}"), "{empty}"),
        (("trace", "verify", "{missing}"), "{missing}"),
        (("trace", "measure", "{empty}"), "{empty}"),
        (("pipeline", "run", "--watch", "{missing}", "--out", "{empty}"), "is no folder"),
        (("experiment", "run", "tompp"), "there is no experiment 'tompp'"),
        (("experiment", "run", "{missing}.toml"), "cannot be read"),
        (("trace", "verify", "{clean}", "--master", "sparc://x"), "is no Spark master"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """As the command itself answers it: the error is a `UnisonoError` with a sentence, which `main` prints."""
    places = {"empty": tmp_path / "empty", "missing": tmp_path / "missing", "clean": tmp_path / "clean"}
    places["empty"].mkdir()
    places["older"] = tmp_path / "older"
    (places["older"] / "silver").mkdir(parents=True)
    record(places["clean"], 1)
    result = ask(*(argument.format(**places) for argument in arguments))
    assert result.exit_code != 0
    assert words.format(**places) in str(result.exception)
    assert "\n" not in str(result.exception)


# The same commands on S3.


def test_the_commands_read_from_s3_and_write_to_it(
    tmp_path: Path, bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of its own: nothing may appear there, least of all a folder named `s3a:`."""
    monkeypatch.chdir(tmp_path)
    there = bucket.uri.replace("s3://", "s3a://")
    done = ask("pipeline", "adapt", DATA / "chorus.csv", "--mapping", DATA / "chorus.toml", "--out", f"{there}/chorus")
    assert done.exit_code == 0, done.output
    record(tmp_path / "clean", 1)
    upload(tmp_path / "clean", bucket / "clean")
    shutil.rmtree(tmp_path / "clean")
    code, said = told("trace", "verify", f"{there}/chorus", f"{there}/clean")
    assert code == 1
    assert {run["run"]: run["result"] for run in said["runs"]} == {"chorus-1": "FAIL", "sequencer-3-1": "PASS"}
    assert all(str(problem).startswith("s3://") for problem in said["problems"])
    code, _ = told("trace", "measure", f"{there}/clean", "--out", f"{there}/measures")
    assert code == 0
    assert (bucket / "measures" / "latency").is_folder()
    code, said = told("pipeline", "run", "--watch", f"{there}/clean", "--out", f"{there}/tables", "--once")
    assert (code, said["results"]) == (0, {"sequencer-3-1": "PASS"})
    assert (bucket / "tables" / "verdicts").is_folder()
    refused = ask("trace", "verify", f"{there}/clean", "--report", f"{there}/report")
    assert "is not on this machine: name a local path here" in str(refused.exception)
    assert os.listdir(tmp_path) == []


def test_an_experiment_keeps_everything_on_s3(
    tmp_path: Path, bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = tmp_path / "mine.toml"
    grid.write_text('name = "mine"\n[[block]]\norder = "abcast"\nmessages = 20\nseeds = 2\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    arguments = ("experiment", "run", grid, "--out", f"{bucket}/out", "--traces", "--page", f"{bucket}/page/mine.md")
    code, said = told(*arguments)
    assert (code, said["verdicts"]) == (0, {"PASS": 2})
    assert "| abcast | 3 | poisson |" in (bucket / "page" / "mine.md").read_bytes().decode()
    names = {entry.place.uri.removeprefix(f"{bucket}/out/").split("/")[0] for entry in (bucket / "out").files()}
    assert names == {"measures", "page.md", "results.parquet", "tables.json", "traces"}
    assert told(*arguments) == (code, said)
    assert os.listdir(tmp_path) == ["mine.toml"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("trace", "verify", "gs://bucket/x"), "kind gs:// is not supported"),
        (("trace", "measure", "dbfs:/x"), "kind dbfs:// is not supported"),
        (("experiment", "run", "tomp", "--out", "abfs://c@a/x"), "kind abfs:// is not supported"),
        (("trace", "verify", "{bucket}/x", "--conf", "shuffle=3"), "is no setting"),
        (("trace", "verify", "s3://no-such-bucket/x"), "there is no bucket 'no-such-bucket'"),
        (("trace", "verify", "{bucket}/none"), "there is nothing at {bucket}/none"),
        (("pipeline", "run", "--watch", "{bucket}/in", "--out", "{bucket}/tables"), "give --checkpoint a folder"),
    ],
)
def test_storage_that_cannot_be_used_is_told_before_spark_starts(
    bucket: Location, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    (bucket / "x").write_bytes(b"")
    (bucket / "in" / "y").write_bytes(b"")

    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("unisono.pipeline.session.open_session", start)
    result = ask(*(argument.format(bucket=bucket) for argument in arguments))
    assert words.format(bucket=bucket) in str(result.exception)
    assert "\n" not in str(result.exception)
