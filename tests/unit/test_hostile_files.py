"""Files that would fill the memory, exhaust the stack or never end: every reader refuses them in one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unisono.cli import swarm
from unisono.core.errors import Misuse
from unisono.experiments.grid import read_grid
from unisono.experiments.runner import read_rows
from unisono.papers.directory.node import read_permanent
from unisono.pipeline.adapter import Mapped, adapt_files, load_mapping
from unisono.pipeline.bronze import against_open, read_file
from unisono.pipeline.pieces import read_columns
from unisono.pipeline.session import PipelineError
from unisono.pipeline.storage import place
from unisono.runtime.members_file import read_members
from unisono.sim.delay import parse_delay
from unisono.sim.explore.orders import load_counterexample
from unisono.sim.files import load_json, write_whole
from unisono.trace import files, parquet
from unisono.trace.files import LINE_BYTES_MAX, TEXT_BYTES_MAX, lines_of, open_regular, parse_json, parse_toml
from unisono.trace.parquet import Bomb, arrow_schema
from unisono.trace.reader import read
from unisono.trace.schema import TraceError, to_line
from unisono.trace.story import tell

SENTENCES = (Misuse, PipelineError, TraceError)


def mapped(form: str) -> Callable[[Path], Any]:
    return lambda path: list(adapt_files([path], Mapped(form)))


WHOLE: dict[str, Callable[[Path], Any]] = {
    "members": read_members,
    "permanent groups": read_permanent,
    "replay": load_json,
    "counterexample": load_counterexample,
    "delays": lambda path: parse_delay(f"file:{path}"),
    "grid": read_grid,
    "mapping": load_mapping,
}
"""Readers of small files."""
LINES: dict[str, Callable[[Path], Any]] = {
    "trace": read,
    "foreign JSON lines": mapped("jsonl"),
    "foreign CSV": mapped("csv"),
    "notes of a swarm": lambda path: list(swarm._read(path)),
}
"""Readers of lines."""
READERS = WHOLE | LINES


def sentence(reader: Callable[[Path], Any], path: Path) -> str:
    with pytest.raises(SENTENCES) as refused:
        reader(path)
    said = str(refused.value)
    assert said.endswith(".")
    assert "\n" not in said
    assert str(path) in said
    return said


@pytest.mark.parametrize("name", READERS)
def test_a_fifo_is_refused_without_waiting_for_it(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.jsonl")
    assert "not a regular file" in sentence(READERS[name], tmp_path / "fifo.jsonl")


@pytest.mark.parametrize("name", READERS)
def test_a_device_without_an_end_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    assert "not a regular file" in sentence(READERS[name], tmp_path / "zero.jsonl")


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_that_is_far_too_large_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(TEXT_BYTES_MAX + 1)
    assert f"more than {TEXT_BYTES_MAX >> 20} MiB" in sentence(WHOLE[name], path)


@pytest.mark.parametrize("name", LINES)
def test_a_line_without_an_end_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "endless.jsonl"
    with open(path, "wb") as file:
        file.truncate(100 * LINE_BYTES_MAX)  # a sparse file: it takes no room
    assert f"line 1 has more than {LINE_BYTES_MAX >> 20} MiB" in sentence(LINES[name], path)


DEEP = 100_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("replay", "[" * DEEP),
        ("replay", "[" * 150 + "]" * 150),
        ("counterexample", '{"kind":' * DEEP),
        ("grid", "a = " + "[" * DEEP),
        ("grid", f"a = {'[' * 150}{']' * 150}"),
        ("grid", f"a = {'9' * 10_000}"),
        ("mapping", "a = " + "[" * DEEP),
        ("trace", "[" * DEEP + "\n"),
        ("trace", "[" * 900 + "]" * 900 + "\n"),
        ("trace", '{"run": ' + "[" * 900 + "]" * 900 + "}\n"),
        ("foreign JSON lines", '{"a": ' + "[" * DEEP + "\n"),
        ("foreign JSON lines", '{"a": ' + "[" * 900 + "]" * 900 + "}\n"),
    ],
)
def test_deep_nesting_is_refused_in_one_sentence(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text(text, "utf-8")
    sentence(READERS[name], path)


def test_a_deep_line_among_a_swarms_notes_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("[" * DEEP + "\n", "utf-8")
    assert list(swarm._read(tmp_path / "notes")) == []


def test_nesting_that_people_write_is_fine() -> None:
    assert parse_json("[" * 50 + "]" * 50)
    assert parse_toml("a = " + "[" * 50 + "]" * 50)


def problems(path: Path) -> list[str]:
    return [text for batch in read_file(place(path)) for text in batch.column("problem").to_pylist() if text]


@pytest.mark.parametrize("number", ["²", "99999999999999999999"])
@pytest.mark.parametrize("ending", ["jsonl", "parquet", "open.jsonl"])
def test_a_name_with_a_number_that_there_cannot_be_harms_no_judge(number: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"run.b.{number}.000000.{ending}"
    path.write_bytes(b"{\n")
    assert len(problems(path)) == 1
    assert len(read(tmp_path, tolerant=True).problems) == 1


def test_a_finished_segment_is_held_against_its_open_form(tmp_path: Path) -> None:
    rows = tell("a JOIN\na VIEW 1@a a\na END")
    finished, opened = tmp_path / "r.a.0.000000.parquet", tmp_path / "r.a.0.000000.open.jsonl"
    parquet.write_parquet(finished, rows)
    assert list(against_open(place(finished))) == []
    opened.write_text("".join(map(to_line, rows[:2])) + "{")
    assert list(against_open(place(finished))) == []
    assert len(problems(opened)) == 1, "its torn line"
    opened.write_text("".join(map(to_line, [*rows[:2], replace(rows[2], kind="LEAVE")])))
    for found in (list(against_open(place(finished))), list(read_file(place(opened)))):
        ((problem,),) = [batch.column("problem").to_pylist() for batch in found]
        assert problem.endswith("which of the two is right?")


@pytest.mark.parametrize("line", ['{"run":"a","run":"b"}', '{"run":"a","attributes":{"x":"1","x":"2"}}'])
def test_a_line_that_says_one_thing_twice_is_refused(line: str, tmp_path: Path) -> None:
    """The last value counted, and another reader may take the first."""
    path = tmp_path / "a.jsonl"
    path.write_text(line + "\n")
    assert "twice" in sentence(read, path)
    assert ["twice" in text for text in problems(path)] == [True]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_the_judge_names_a_fifo_instead_of_waiting(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    assert ["not a regular file" in text for text in problems(tmp_path / name)] == [True]


def test_the_judge_keeps_what_is_before_a_line_without_an_end(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(to_line(tell("a JOIN\na END")[0]) + "[" * DEEP + "\n", "utf-8")
    assert ["nested too deeply" in text for text in problems(path)] == [True]
    with open(path, "ab") as file:
        file.truncate(100 * LINE_BYTES_MAX)
    assert "line 3 has more than" in problems(path)[-1]


# Parquet.


@pytest.fixture
def table() -> Any:
    import pyarrow

    rows = [{name: getattr(row, name) for name in arrow_schema().names} for row in tell("a JOIN\na VIEW 1@a a\na END")]
    for row in rows:
        row["attributes"] = None if row["attributes"] is None else list(row["attributes"].items())
    return pyarrow.Table.from_pylist(rows, arrow_schema())


def repeated(table: Any, count: int, **columns: Any) -> Any:
    """The first row, many times, with some columns replaced by one value."""
    import pyarrow

    arrays = []
    for field in table.schema:
        value = columns.get(field.name, table.column(field.name)[0].as_py())
        arrays.append(pyarrow.repeat(pyarrow.scalar(value, field.type), count))
    return pyarrow.Table.from_arrays(arrays, schema=table.schema)


def write(path: Path, table: Any, **options: Any) -> Path:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path, compression="zstd", **options)
    return path


LONG = "x" * 200_000


@pytest.fixture(params=["string", "list", "map", "rows", "packed", "columns"])
def bomb(request: pytest.FixtureRequest, table: Any, tmp_path: Path) -> Path:
    """A small file of which far more comes out."""
    import pyarrow

    path = tmp_path / "r.a.0.000000.parquet"
    if request.param == "string":
        write(path, repeated(table, 1_000, reason=LONG))
    elif request.param == "list":
        write(path, repeated(table, 1_000, members=[LONG]))
    elif request.param == "map":
        write(path, repeated(table, 1_000, attributes=[("k", LONG)]))
    elif request.param == "rows":
        write(path, repeated(table, 2_000_000))
    elif request.param == "packed":
        request.getfixturevalue("small_limits")
        write(path, repeated(table, 1, reason=LONG * 200), use_dictionary=False)
    else:
        wide = {f"c{number}": pyarrow.array([1, 2, 3]) for number in range(parquet.COLUMNS_MAX)}
        for name, column in wide.items():
            table = table.append_column(name, column)
        write(path, table)
    assert path.stat().st_size < 1 << 20
    return path


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "CHUNK_BYTES_MAX", 32 << 20)
    monkeypatch.setattr(parquet, "UNPACKED_FREE", 64 << 20)


@pytest.mark.seconds
def test_a_parquet_bomb_is_refused_before_it_goes_off(bomb: Path, small_limits: None) -> None:
    import pyarrow

    before = pyarrow.default_memory_pool().max_memory()
    assert "is refused: " in sentence(read, bomb.parent)
    assert len(problems(bomb)) == 1
    with pytest.raises(Bomb):
        list(read_columns(place(bomb)))
    assert pyarrow.default_memory_pool().max_memory() - before < 256 << 20


def test_a_bomb_among_the_measures_of_an_experiment_is_refused(bomb: Path, small_limits: None) -> None:
    (bomb.parent / "measures").mkdir()
    bomb.rename(bomb.parent / "measures" / "a.parquet")
    with pytest.raises(Misuse, match=r"cannot be read|other columns"):
        read_rows(bomb.parent)


@pytest.mark.parametrize("kind", ["double", "float", "halffloat", "list"])
def test_digests_that_have_lost_digits_are_refused(kind: str, table: Any, tmp_path: Path) -> None:
    import pyarrow

    types = {"double": pyarrow.float64(), "float": pyarrow.float32(), "halffloat": pyarrow.float16()}
    name = "frontier" if kind == "list" else "digest"
    column = pyarrow.nulls(len(table), types.get(kind, pyarrow.list_(pyarrow.float64())))
    path = write(tmp_path / "a.parquet", table.set_column(table.schema.get_field_index(name), name, column))
    assert "loses digits" in sentence(read, path)
    assert ["loses digits" in text for text in problems(path)] == [True]


def test_ordinary_files_are_read_as_before(table: Any, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "r.a.0.000000.parquet"
    with pyarrow.parquet.ParquetWriter(path, table.schema) as writer:
        for number in range(3):  # groups of rows with words of their own
            writer.write_table(repeated(table, 30_000, reason=f"{number}", members=[f"m{number}"]))
    found = pyarrow.Table.from_batches(list(read_file(place(path)))).drop_columns(["file", "problem"])
    assert found.equals(pyarrow.parquet.read_table(path).cast(found.schema))


# Writing.


def test_nothing_is_written_over_a_device(tmp_path: Path) -> None:
    """A picture whose target was /dev/zero read it to the end first; as root, /dev/null was replaced by a file."""
    os.mkfifo(tmp_path / "picture.svg")
    with pytest.raises(Misuse, match="not a regular file"):
        write_whole(tmp_path / "picture.svg", "<svg/>")


# Planted faults.


def test_a_reader_that_takes_any_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_regular", lambda file, path: file)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_a_fifo_is_refused_without_waiting_for_it("members", tmp_path)


def test_a_reader_that_reads_every_line_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)
    with open_regular(tmp_path / "a") as file, pytest.raises(OSError, match="line 1 has more than 10 bytes"):
        list(lines_of(file, 10))
    with open_regular(tmp_path / "a") as file:
        assert list(lines_of(file, 11)) == [b"x" * 11]


def test_a_reader_that_weighs_nothing_is_found(
    table: Any, tmp_path: Path, small_limits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "r.a.0.000000.parquet", repeated(table, 400, reason=LONG))
    monkeypatch.setattr(parquet, "_unpacked_bytes", lambda column: 0)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_a_parquet_bomb_is_refused_before_it_goes_off(path, None)
