"""What the tables hold: a foreign log becomes a verdict, and data files of events are segments of a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.test_faults import record
from unisono.pipeline.adapter import adapt_files, load_mapping, write_trace
from unisono.pipeline.bronze import read_file
from unisono.pipeline.lake import read_table
from unisono.pipeline.session import PipelineError
from unisono.pipeline.storage import place
from unisono.pipeline.stream import run_pipeline, silver_tables
from unisono.trace.checks.judge import judge
from unisono.trace.reader import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).parent / "data"


def test_a_foreign_log_is_taken_in_and_its_verdict_and_sentence_are_in_the_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = adapt_files([DATA / "chorus.csv"], load_mapping(DATA / "chorus.toml"))
    assert sum(write_trace(events, tmp_path / "trace").values()) == 14
    out = place(tmp_path / "out")
    assert run_pipeline(spark, str(tmp_path / "trace"), out, once=True).results == {"chorus-1": "FAIL"}
    assert silver_tables(spark, out).deliveries.count() == 6
    assert {row["who"] for row in silver_tables(spark, out).lives.collect()} == {"n1", "n2", "n3"}
    [verdict] = read_table(spark, out, "verdicts").collect()
    assert (verdict["run"], verdict["group"], verdict["result"], verdict["by"]) == (
        "chorus-1", "choir", "FAIL", "whole",
    )  # fmt: skip
    assert verdict["counts"]["P9c"] > 0
    broken = {row["property"]: row for row in read_table(spark, out, "violations").collect()}
    assert broken["P9c"]["members"] == ["n1", "n3"]
    assert broken["P9c"]["witness"]
    assert "n3" in broken["P9c"]["sentence"]


def test_data_files_of_events_are_trace_segments(spark: SparkSession, tmp_path: Path) -> None:
    """Any reader of traces reads them, and what does not know the tables judges them."""
    run = record(tmp_path / "trace", 1)
    out = place(tmp_path / "out")
    run_pipeline(spark, str(tmp_path / "trace"), out, once=True)
    files = sorted((tmp_path / "out" / "events").glob("*.parquet"))
    rows = [row for file in files for batch in read_file(place(file)) for row in batch.to_pylist()]
    assert {row["problem"] for row in rows} == {None}
    events = sorted(read(tmp_path / "trace").events(), key=lambda e: (e.member, e.local_index))
    assert [row["local_index"] for row in sorted(rows, key=lambda r: (r["member"], r["local_index"]))] == [
        event.local_index for event in events
    ]
    one = read_file(place(files[0]), runs={"another"})
    assert not list(one), "row groups of other runs are passed over"
    assert {row["run"] for row in rows} == {run}


def test_the_notebook_does_what_it_says(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISONO_SPARK_MASTER", "local[2]")
    notebook = json.loads((Path(__file__).parents[2] / "examples" / "tables.ipynb").read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names: dict[str, Any] = {}
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells[-1] == "spark.stop()", "the last one; here others use the session"
    for cell in cells[:-1]:
        exec(compile(cell, "tables.ipynb", "exec"), names)
    assert set(names["status"].results.values()) == {"PASS"}
    assert len(names["before_anything"]) == 0
    assert len(names["ledger"]) == 6
    assert sum(deliveries for _, _, deliveries, _ in names["by_member"]) == names["delivered"] > 0


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
        ({"format": "csv", "properties": ["P1"], "kinds": {"x": "SING"}}, r"\[kinds\] x = 'SING'"),
        ({"format": "csv", "patterns": {"x": "("}}, "is no regular expression"),
        ({"format": "csv", "properties": ["P1"], "order": {"ordinal": "x"}}, "knows local_index alone"),
        ({"format": "csv"}, "say what to judge by: an order in .* or a list of properties"),
        ({"format": "csv", "constants": {"protocol": "raft"}}, "nothing is promised for the order 'raft'"),
        ({"format": "csv", "properties": ["P1"], "constants": {"protocol": "fifo"}}, "not both"),
        ({"format": "csv", "properties": ["P99"]}, "there is no property 'P99'"),
        ({"format": "csv", "properties": "P1"}, "must be a list of names"),
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


def test_a_log_can_be_judged_by_a_list_of_properties(tmp_path: Path) -> None:
    """The made-up system's third node lets one message overtake another: P9a forbids it, and FIFO does not."""
    text = (DATA / "chorus.toml").read_text(encoding="utf-8").replace('protocol = "sequencer"\n', "")
    for properties, result in ((["P9a"], "FAIL"), (["P1", "P6"], "PASS")):
        mapping = tmp_path / "mapping.toml"
        mapping.write_text(text.replace("[constants]", f"properties = {properties}\n[constants]", 1), encoding="utf-8")
        verdict = judge(adapt_files([DATA / "chorus.csv"], load_mapping(mapping)))
        assert verdict.result == result, str(verdict)
        assert verdict.owed == {"P0", *properties}
