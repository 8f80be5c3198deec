"""Tables on disk: twice is like once, a crash leaves the old or the new, and a foreign log becomes a verdict in gold."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from unisono.pipeline.adapter import adapt_files, load_mapping, write_trace
from unisono.pipeline.gold import (
    escape,
    manifests,
    read_gold,
    unescape,
    write_gold,
    write_silver,
    write_tables,
    writing,
)
from unisono.pipeline.session import PipelineError
from unisono.pipeline.tables import load
from unisono.pipeline.verify import RunVerdict, Violation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATA = Path(__file__).parent / "data"
ODD = ["001", "a/b=c%d", "é x", "_hidden", "?"]
"""Names of runs that a partition's folder could get wrong: numbers, signs of paths, hidden files."""


def prints(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file with its time and content."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def frame(spark: SparkSession, rows: list[tuple[str, int]]) -> DataFrame:
    made = [(run, number, {"b": str(number), "a": None}, [number]) for run, number in rows]
    return spark.createDataFrame(made, "run string, number bigint, words map<string,string>, list array<bigint>")


def numbers(found: DataFrame) -> list[tuple[str, int]]:
    return sorted((row["run"], row["number"]) for row in found.collect())


def test_tables_come_back_as_they_were_and_twice_changes_no_file(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(run, number) for run in ODD for number in range(3)]
    none = frame(spark, [])
    write_tables({"some": frame(spark, rows), "none": none}, tmp_path, ODD)
    before = prints(tmp_path)
    found = read_gold(spark, tmp_path, "some")
    assert numbers(found) == sorted(rows)
    assert found.columns == ["run", "number", "words", "list"]
    assert read_gold(spark, tmp_path, "none").count() == 0
    write_tables({"some": frame(spark, rows[::-1]).repartition(3), "none": none}, tmp_path, ODD)
    assert prints(tmp_path) == before


def test_writing_some_runs_leaves_the_others_alone_and_rows_that_are_gone_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_tables({"t": frame(spark, [("a", 1), ("b", 2), ("c", 3)])}, tmp_path, ["a", "b", "c"])
    before = prints(tmp_path)
    write_tables({"t": frame(spark, [("a", 9), ("b", 9)])}, tmp_path, ["b", "c"])
    after = prints(tmp_path)
    assert numbers(read_gold(spark, tmp_path, "t")) == [("a", 1), ("b", 9)]
    assert {name for name in before if before[name] == after.get(name)} == {
        "_runs/run=a.json", "t/_schema.json", "t/run=a/part-0.parquet",
    }  # fmt: skip


@pytest.mark.parametrize("survived", [1, 3])
def test_a_crash_between_renames_leaves_old_or_new_and_no_half_run_is_shown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    """Renames of the second writing: t and u of a, its manifest, t of b and so on; the process dies after some of them."""

    def tables(number: int) -> dict[str, DataFrame]:
        return {name: frame(spark, [("a", number), ("b", number)]) for name in ("t", "u")}

    write_tables(tables(1), tmp_path, ["a", "b"])
    rename, renames = os.replace, 0

    def dying(source: str | Path, target: str | Path) -> None:
        nonlocal renames
        renames += 1
        if renames > survived:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", dying)
    with pytest.raises(KeyboardInterrupt):
        write_tables(tables(2), tmp_path, ["a", "b"])
    monkeypatch.undo()
    shown = [("b", 1)] if survived == 1 else [("a", 2)]  # of the other one, some partitions are old and some new
    assert numbers(read_gold(spark, tmp_path, "t")) == numbers(read_gold(spark, tmp_path, "u")) == shown
    assert set(manifests(tmp_path)) == {run for run, _ in shown}
    write_tables(tables(2), tmp_path, ["a", "b"])
    assert numbers(read_gold(spark, tmp_path, "u")) == [("a", 2), ("b", 2)]
    assert not (tmp_path / ".staging").exists()


def test_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    with writing(tmp_path), pytest.raises(PipelineError, match="another process is writing to"), writing(tmp_path):
        pass
    with writing(tmp_path):
        pass


def test_a_table_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="holds no table 'verdicts': there is none"):
        read_gold(spark, tmp_path, "verdicts")


@pytest.mark.parametrize("run", ODD)
def test_names_of_partitions_come_back(run: str) -> None:
    assert unescape(escape(run)) == run
    assert "/" not in escape(run)


def test_a_foreign_log_becomes_silver_and_its_verdict_gold(spark: SparkSession, tmp_path: Path) -> None:
    events = adapt_files([DATA / "chorus.csv"], load_mapping(DATA / "chorus.toml"))
    assert sum(write_trace(events, tmp_path / "trace").values()) == 14
    write_silver(load(spark, [tmp_path / "trace"]), tmp_path / "silver")
    assert read_gold(spark, tmp_path / "silver", "deliveries").count() == 6
    assert sorted(row["who"] for row in read_gold(spark, tmp_path / "silver", "lives").collect()) == ["n1", "n2", "n3"]
    witness = {"number": "0", "message": "n1:0", "local_index": "2", "other": "n2:0", "other_local": "1"}
    broken = Violation("chorus-1", "choir", "P9c", ("n1", "n3"), "1@n1", witness)
    verdict = RunVerdict(
        "chorus-1", "choir", "sequencer", "FAIL", frozenset({"P9c", "P0"}), (broken,), {"n2": "?"}, "rows", {"P9c": 7}
    )
    write_gold(spark, tmp_path / "gold", [verdict], inputs={"chorus-1": {"segments": 3}})
    [row] = read_gold(spark, tmp_path / "gold", "verdicts").collect()
    assert tuple(row) == ("chorus-1", "choir", "sequencer", "FAIL", "rows", ["P0", "P9c"], {"n2": "?"}, 3, {"P9c": 7})
    [row] = read_gold(spark, tmp_path / "gold", "violations").collect()
    assert (row["property"], row["members"], row["witness"]) == ("P9c", ["n1", "n3"], witness)
    assert row["sentence"] == broken.explain()
    assert manifests(tmp_path / "gold")["chorus-1"]["results"] == {"choir": "FAIL"}


# The adapter, without Spark.


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1,n1,sing,1,n1,,,", "line 2: the mapping does not say what kind 'sing' is"),
        ("1,n1,abcast,1,n1,,n1-0,", "line 2: msg is 'n1-0', which the pattern"),
        ("x,n1,stop,1,n1,,,", "line 2, column time_ns: must be a whole number, not 'x'"),
        ("1,n1,abcast,1,n1,,,", "line 2, column first: is missing, and a CAST row needs it"),
        ("1,n1,abcast,1,n1,,n2/0,", "line 2, column origin: n1 cannot cast a message of 'n2'"),
        ("1,n1", "line 2: the header has 8 fields"),
    ],
)
def test_what_a_mapping_does_not_fit_is_told_with_file_and_line(tmp_path: Path, line: str, words: str) -> None:
    log = tmp_path / "chorus.csv"
    log.write_text(f"ts_us,node,what,epoch,leader,nodes,msg,sum\n{line}\n", encoding="utf-8")
    with pytest.raises(PipelineError) as caught:
        list(adapt_files([log], load_mapping(DATA / "chorus.toml")))
    assert f"{log}, {words}" in str(caught.value)


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"format": "xml"}, 'format must be "csv" or "jsonl"'),
        ({"format": "csv", "colums": {}}, r"there is no \[colums\]"),
        ({"format": "csv", "columns": {"x": "membr"}}, "a trace has no column 'membr'"),
        ({"format": "csv", "kinds": {"x": "SING"}}, r"\[kinds\] x = 'SING'"),
        ({"format": "csv", "patterns": {"x": "("}}, "is no regular expression"),
        ({"format": "csv", "order": {"ordinal": "x"}}, "knows local_index alone"),
    ],
)
def test_a_mapping_with_a_mistake_is_refused(mapping: dict[str, object], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        load_mapping(mapping)


def test_json_lines_with_a_counter_of_their_own(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"n": 0, "who": "a", "in": ["a"], "t": 1.5}\n\n{"n": 1, "who": "a", "k": "END"}\n', encoding="utf-8"
    )
    mapping = load_mapping(
        {
            "format": "jsonl",
            "constants": {"run": "r", "group": "g", "protocol": "fifo", "clock": "real", "kind": "VIEW", "view": "1@a"},
            "columns": {"who": "member", "in": "members", "t": "time_ns"},
            "scale": {"time_ns": 1000},
            "order": {"local_index": "n"},
        }
    )
    first = next(adapt_files([log], mapping))
    assert (first.member, first.members, first.time_ns, first.local_index) == ("a", ("a",), 1500, 0)
