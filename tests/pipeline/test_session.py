"""The session's own parts: what is shipped, what is told of an error, what is kept."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from unisono.pipeline.session import PipelineError, open_session, package_archive, plain_errors, reason
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
    kept = {name: str(spark.conf.get(name)) for name in ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")}
    assert open_session("local[2]", settings=kept | {"spark.sql.codegen.wholeStage": "false"}) is spark
    with pytest.raises(PipelineError, match=r"already runs in this process on 'local\[2\]'"):
        open_session("local[1]")


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
