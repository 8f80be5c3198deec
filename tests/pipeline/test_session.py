"""The session's own parts: what is shipped, what is told of an error, what is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.test_faults import record
from unisono.pipeline.session import PipelineError, open_session, package_archive, parse_settings, plain_errors, reason
from unisono.trace.schema import TraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = """An error occurred while calling o31.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times.
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$2(DAGScheduler.scala:2898)
"""
WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
unisono.trace.schema.TraceError: /t/a.parquet: the column kind is missing.

\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (JAVA, "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times"),
        (WORKER, "/t/a.parquet: the column kind is missing"),
        ("", "ValueError"),
    ],
)
def test_the_telling_line_of_an_error_is_found(text: str, line: str) -> None:
    assert reason(ValueError(text)) == line


def test_our_own_errors_pass_unchanged() -> None:
    with pytest.raises(TraceError, match=r"^mine\.$"), plain_errors("reading"):
        raise TraceError("mine.")
    with pytest.raises(ZeroDivisionError), plain_errors("reading"):  # a fault of ours, which must not be dressed up
        raise ZeroDivisionError


def test_an_error_of_spark_becomes_a_sentence_without_a_trace(spark: SparkSession) -> None:
    with pytest.raises(PipelineError) as caught, plain_errors("looking"):
        spark.sql("select nothing from nowhere").collect()
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("looking failed: [TABLE_OR_VIEW_NOT_FOUND]")
    assert caught.value.__suppress_context__


def test_the_error_of_a_worker_becomes_a_sentence_too(spark: SparkSession) -> None:
    def broken(number: int) -> int:
        raise ValueError(f"number {number} is odd")

    with (
        pytest.raises(PipelineError, match=r"^counting failed: number 1 is odd\. UNISONO_DEBUG=1"),
        plain_errors("counting"),
    ):
        spark.sparkContext.parallelize([1], 1).map(broken).collect()


def test_asking_twice_gives_the_same_session_and_another_master_is_refused(spark: SparkSession) -> None:
    assert open_session("local[2]") is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2", "a session that is there keeps its settings"
    with pytest.raises(PipelineError, match=r"already runs in this process on 'local\[2\]'"):
        open_session("local[1]")


SETTINGS = """
import json, os, sys
from unisono.pipeline.session import is_given, open_session
from unisono.pipeline.storage import place, write_frame
from unisono.pipeline.verify import verify
spark = open_session(settings={"spark.sql.session.timeZone": "CET"})
keys = ("spark.master", "spark.driver.memory", "spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions",
        "spark.sql.session.timeZone", "spark.sql.adaptive.skewJoin.enabled")
told = {"settings": {key: [spark.sparkContext.getConf().get(key), is_given(spark, key)] for key in keys}}
told["environment"] = spark.sparkContext.parallelize([0], 1).map(
    lambda _: [os.environ.get("AWS_REGION"), os.environ.get("AWS_SECRET_ACCESS_KEY")]).collect()[0]
told["command"] = open(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/cmdline").read()
told["default"] = spark._jsc.hadoopConfiguration().get("fs.defaultFS")
told["judged"] = [run.result for run in verify(spark, ["trace"]).runs]
write_frame(spark.range(7), place("rows"))
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a program tells that was started with settings of all kinds, in a folder with a trace."""
    folder = tmp_path_factory.mktemp("settings")
    (folder / "spark-defaults.conf").write_text(
        "spark.driver.memory 700m\nspark.sql.adaptive.enabled false\nspark.sql.shuffle.partitions 5\n"
        "spark.executorEnv.AWS_REGION there\nspark.hadoop.fs.defaultFS hdfs://127.0.0.1:9\n"
    )
    record(folder / "trace", 1)
    said = "--master local[1] --conf spark.sql.shuffle.partitions=7 --conf spark.sql.session.timeZone=EST pyspark-shell"
    kept = {key: value for key, value in os.environ.items() if key != "UNISONO_SPARK_MASTER"}
    kept |= {"SPARK_CONF_DIR": str(folder), "PYSPARK_SUBMIT_ARGS": said}
    kept |= {"AWS_SECRET_ACCESS_KEY": "between us", "AWS_REGION": "here"}
    ran = subprocess.run(
        [sys.executable, "-c", SETTINGS], env=kept, cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout.strip().split("\n")[-1])
    return told | {"folder": folder}


def test_what_the_user_sets_wins_and_our_defaults_fill_the_gaps(told: dict[str, Any]) -> None:
    assert told["settings"] == {
        "spark.master": ["local[1]", True],
        "spark.driver.memory": ["700m", True],
        "spark.sql.adaptive.enabled": ["false", True],
        "spark.sql.shuffle.partitions": ["7", True],
        "spark.sql.session.timeZone": ["CET", True],
        "spark.sql.adaptive.skewJoin.enabled": ["true", False],
    }


def test_workers_learn_the_way_to_s3_but_the_list_of_processes_does_not(told: dict[str, Any]) -> None:
    assert told["environment"] == ["there", "between us"]
    assert "between us" not in told["command"]


def test_a_relative_path_is_local_whatever_the_default_file_system_is(told: dict[str, Any]) -> None:
    assert told["default"] == "hdfs://127.0.0.1:9"
    assert told["judged"] == ["PASS"]
    assert [path.name for path in (told["folder"] / "rows").iterdir()] == ["part-00000.parquet"]


def test_settings_of_a_command_are_pairs() -> None:
    assert parse_settings(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}
    for text in ("spark.a", "a=b", "=b"):
        with pytest.raises(PipelineError, match=r"is no setting: write it as spark\.key=value"):
            parse_settings([text])


def test_the_archive_is_the_package_and_imports_alone() -> None:
    archive = package_archive()
    assert package_archive() == archive
    with zipfile.ZipFile(archive) as content:
        names = content.namelist()
    assert "unisono/trace/schema.py" in names
    assert not [name for name in names if "__pycache__" in name]
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import unisono.trace.schema as s; print(s.__file__)"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(str(archive))
