"""What goes wrong around the pipeline: damaged, foreign, missing or doubled input, and a machine that lacks something.

The verdict is never PASS by accident, and every error is one sentence that names the file and the cure.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from unisono.pipeline import session
from unisono.pipeline.adapter import adapt_files, load_mapping, write_trace
from unisono.pipeline.segments import segments_below
from unisono.pipeline.session import PipelineError, open_session
from unisono.sim.run import simulate
from unisono.sim.scenario import Scenario, Source
from unisono.trace.parquet import write_parquet
from unisono.trace.reader import read_segment
from unisono.trace.schema import Event, to_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).parent / "data"
Damage = Callable[[Path], None]


def record(folder: Path, seed: int) -> str:
    """A small run of three members; its name."""
    simulate(Scenario(seed=seed, source=Source(messages=6)), folder=folder)
    return f"sequencer-3-{seed}"


def segments(folder: Path, run: str) -> list[Path]:
    return sorted(folder.glob(f"{run}.*"))


def rewrite(path: Path, change: Callable[[list[Event]], list[Event]]) -> None:
    write_parquet(path, change(read_segment(path).rows))


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no Parquet file\n" * 40)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def older_version(path: Path) -> None:
    _rewrite_table(
        path, lambda table: table.drop_columns("transitional").replace_schema_metadata({"unisono.schema": "0"})
    )


def only_the_version(path: Path) -> None:
    _rewrite_table(path, lambda table: table.replace_schema_metadata({"unisono.schema": "0"}))


def without_local_index(path: Path) -> None:
    _rewrite_table(path, lambda table: table.drop_columns("local_index"))


def _rewrite_table(path: Path, change: Callable[[Any], Any]) -> None:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        table = file.read()
    pyarrow.parquet.write_table(change(table), path)


def killed(path: Path) -> None:
    rewrite(path, lambda rows: rows[:-1])


def a_row_lost(path: Path) -> None:
    rewrite(path, lambda rows: rows[:4] + rows[5:])


def unknown_kind(path: Path) -> None:
    rewrite(path, lambda rows: [*rows[:-1], replace(rows[-1], kind="DANCE"), replace(rows[-1], local_index=len(rows))])


def torn_line(path: Path) -> None:
    lines = "".join(map(to_line, read_segment(path).rows))
    path.unlink()
    path.with_name(path.name.replace(".parquet", ".open.jsonl")).write_text(lines[:-30], encoding="ascii")


def gone(path: Path) -> None:
    path.unlink()


DAMAGES: dict[Damage, str] = {
    garbage: "{path}",
    cut_in_half: "{path}",
    older_version: "{path}",
    only_the_version: "{path}",
    without_local_index: "{path}",
    unknown_kind: "{path}",
    killed: "its trace stops without END, LEAVE or CRASH",
    a_row_lost: "missing",
    torn_line: "the last line is torn",
    gone: "there is no trace of it",
}
"""What is done to the last member's segment, and what the verdict says about it."""


def test_no_damage_passes_by_accident(spark: SparkSession, tmp_path: Path) -> None:
    """All at once, because a judgement by rows costs the same for one run as for twelve."""
    from unisono.pipeline.verify import verify

    clean = record(tmp_path, 100)
    said = {}
    for seed, (damage, words) in enumerate(DAMAGES.items(), 1):
        run = record(tmp_path, seed)
        path = segments(tmp_path, run)[-1]
        damage(path)
        said[run] = (damage.__name__, words.format(path=path))
    write_trace(adapt_files([DATA / "chorus.csv"], load_mapping(DATA / "chorus.toml")), tmp_path / "foreign")
    (tmp_path / "holiday.jsonl").write_text('{"where": "beach"}\n', encoding="utf-8")
    judgement = verify(spark, [tmp_path])
    results = {verdict.run: verdict for verdict in judgement.runs}
    assert results[clean].result == "PASS"
    for run, (name, words) in said.items():
        assert results[run].result == "UNKNOWN", f"{name}: {results[run]}"
        told = [*results[run].unknown.values(), *judgement.problems]
        assert any(words in text for text in told), f"{name}: {told}"
    assert {violation.property for violation in results["chorus-1"].violations} == {"P9a", "P9b", "P9c"}
    assert {run: verdict.result for run, verdict in results.items() if run not in said} == {
        clean: "PASS",
        "chorus-1": "FAIL",  # a foreign log with a violation
        "?": "UNKNOWN",  # no trace at all
    }
    assert any("holiday.jsonl, line 1" in problem for problem in judgement.problems)


@pytest.mark.parametrize("copy", ["copied.parquet", "sequencer-3-1.a.0.000001.parquet", "elsewhere/{name}"])
def test_a_copied_segment_is_refused_by_name(spark: SparkSession, tmp_path: Path, copy: str) -> None:
    run = record(tmp_path, 1)
    path = segments(tmp_path, run)[0]
    other = tmp_path / copy.format(name=path.name)
    other.parent.mkdir(exist_ok=True)
    shutil.copy(path, other)
    with pytest.raises(PipelineError, match=r"(is a copy of|has the name of)") as caught:
        segments_below(spark, [tmp_path], lambda table: table)
    assert str(path) in str(caught.value)
    assert str(other) in str(caught.value)


def test_an_empty_folder_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="holds no trace: neither Parquet nor JSON lines"):
        segments_below(spark, [tmp_path], lambda table: table)


def test_a_folder_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"there is nothing at .*nowhere"):
        segments_below(spark, [tmp_path / "nowhere"], lambda table: table)


# The machine.


def test_an_unreachable_master_fails_in_bounded_time_with_one_sentence() -> None:
    start = time.monotonic()
    with pytest.raises(PipelineError, match=r"no Spark master answers at spark://127\.0\.0\.1:1 .*--master"):
        open_session("spark://127.0.0.1:1")
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("master", ["127.0.0.1:7077", "sc://127.0.0.1", "mesos://x"])
def test_what_is_no_master_is_told(master: str) -> None:
    with pytest.raises(PipelineError, match=r"is no Spark master: use local\[\*\]"):
        open_session(master)


def fake_java(folder: Path, script: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("""echo 'openjdk version "11.0.2" 2019-01-15' >&2""", "is Java 11"),
        ("""echo 'java version "1.8.0_202"' >&2""", "is Java 8"),
        ("echo hello >&2", "is Java of unknown version"),
        ("exit 3", "does not run"),
    ],
)
@pytest.mark.parametrize("where", ["JAVA_HOME", "PATH"])
def test_the_wrong_java_is_named_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str, where: str
) -> None:
    java = fake_java(tmp_path, script)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(
        where, str(tmp_path if where == "JAVA_HOME" else f"{java.parent}{os.pathsep}{os.environ['PATH']}")
    )
    with pytest.raises(PipelineError, match="install Java 17 or newer") as caught:
        open_session("local[2]")
    assert str(java) in str(caught.value)
    assert words in str(caught.value)


def test_no_java_at_all_is_told_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PipelineError, match="Spark needs Java, and there is none: install Java 17"):
        open_session("local[2]")


def test_a_java_home_without_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match=r"does not run .*JAVA_HOME"):
        open_session("local[2]")


@pytest.mark.parametrize("lacking", ["pyspark", "pyarrow", "pandas", "numpy"])
def test_a_missing_package_is_told_with_the_cure(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    def find_spec(name: str) -> ModuleSpec | None:
        return None if name == lacking else ModuleSpec(name, None)

    monkeypatch.setattr(session, "find_spec", find_spec)
    with pytest.raises(
        PipelineError, match=rf"needs {lacking}: install the extra with `pip install 'unisono\[spark\]'`"
    ):
        open_session("local[2]")
