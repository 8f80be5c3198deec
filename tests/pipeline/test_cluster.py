"""The same functions on clusters: a standalone master with two workers, started here on loopback, and `local-cluster`.

The standalone one reads and writes S3. Its workers are started without the variables that lead there.

The workers' interpreter cannot import unisono by itself: it runs without `site` (`-S`), so the environment's `.pth` files are
not read, and gets the installed packages by their folder alone. What it imports as unisono is what was shipped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.s3 import settings_of
from tests.pipeline.test_faults import killed, record, segments
from unisono.experiments.grid import read_grid
from unisono.experiments.runner import run_grid
from unisono.pipeline.adapter import adapt_files, load_mapping, write_trace
from unisono.pipeline.storage import Location, place, upload
from unisono.trace.reader import read_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DATA = Path(__file__).parent / "data"
RUNS = ("chorus-1", "sequencer-3-1", "sequencer-3-2")
WAIT_S = 240.0

DRIVER = '''
import json, os, signal, sys, threading, time
from pathlib import Path
from deltalake import DeltaTable
from unisono.experiments.grid import read_grid
from unisono.experiments.runner import run_grid
from unisono.pipeline.session import open_session
from unisono.pipeline.storage import place
from unisono.pipeline.stream import run_pipeline
from unisono.pipeline.verify import verify
from unisono.pipeline.lake import TAKE_IN, open_table
from unisono.pipeline.watch import await_batch, start_watch

master, data, grid, shared = sys.argv[1:5]
workers = [int(pid) for pid in sys.argv[5:]]
data = place(data)
trace = data / "trace"
spark = open_session(master, settings={
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
})
context = spark.sparkContext
said = {}

def judge(folder):
    judgement = verify(spark, [folder])
    return {run.run: [run.result, run.by, sorted(v.explain() for v in run.violations), dict(run.unknown)] for run in judgement.runs}

def children(pid):
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            command = stat.with_name("cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if int(fields[1]) == pid and "CoarseGrainedExecutorBackend" in command:
            found[int(stat.parent.name)] = command
    return list(found)

def kill_executor():
    """The one of the first worker; the one before it may just have been killed."""
    until = time.monotonic() + 60
    while not (executors := children(workers[0])):
        assert time.monotonic() < until, "no executor comes again"
        time.sleep(0.05)
    os.kill(executors[0], signal.SIGKILL)

def kill_worker():
    os.kill(workers[1], signal.SIGKILL)

def slowly(batches):
    import os, pyarrow, time
    from unisono.pipeline.bronze import read_file
    from unisono.pipeline.storage import place
    for batch in batches:
        for path in batch.column(0).to_pylist():
            time.sleep(0.4)
            rows = sum(len(part) for part in read_file(place(path)))
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array([rows]), pyarrow.array([os.getppid()])], names=["rows", "pid"])

def count():
    """The rows of every segment, slowly, a task each."""
    files = sorted((entry.place.uri,) for entry in trace.files() if entry.place.name.endswith(".parquet"))
    listing = spark.createDataFrame(context.parallelize(files, len(files)), "path string")
    return sum(row["rows"] for row in listing.mapInArrow(slowly, "rows bigint, pid bigint").collect())

def harmed(work, harm, tasks_done=0):
    """The result of some work, in which harm was done when tasks were running and this many of a stage were done."""
    tracker, over, when = context.statusTracker(), threading.Event(), []
    def is_time():
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage and stage.numActiveTasks and stage.numCompletedTasks >= tasks_done for stage in stages)
    def wait():
        while not over.is_set() and not is_time():
            time.sleep(0.01)
        when.append(not over.is_set())
        if when[0]:
            harm()
    waiter = threading.Thread(target=wait)
    waiter.start()
    try:
        result = work()
    finally:
        over.set()
        waiter.join()
    assert when == [True], "it was too quick"
    return result

def take_in():
    run_pipeline(spark, trace, data / "tables", final=True)

def watch():
    """View by view; both workers see the folder of the checkpoint."""
    query = start_watch(spark, data / "tables", shared)
    await_batch(query, open_table(data / "tables", "facts").transaction(TAKE_IN))
    query.stop()

def table(name):
    options = (data / "tables").delta_options()
    return DeltaTable((data / "tables" / name).uri, storage_options=options).to_pyarrow_table().to_pylist()

def where(_):
    import unisono
    return unisono.__file__

said["unisono"] = sorted(set(context.parallelize(range(4), 4).map(where).collect()))
said["clean"] = judge(trace / "clean")
if workers:
    said["all"] = judge(trace)
    said["rows, executor killed"] = harmed(count, kill_executor, 1)
    said["all, executor killed"] = harmed(lambda: judge(trace), kill_executor)
    run = lambda: run_grid(spark, read_grid(Path(grid)), data / "experiment", traces=True, chunk_s=1.0)
    said["experiment, executor killed"] = len(harmed(run, kill_executor, 1))
    harmed(take_in, kill_executor)
    said["taken in, executor killed"] = {row["run"]: row["result"] for row in table("verdicts")}
    said["segments"] = sorted(row["key"] for row in table("segments"))
    said["events"] = len(table("events"))
    harmed(watch, kill_executor)
    said["views, executor killed"] = [[row["run"], row["result"]] for row in table("views")]
    said["rows, worker killed"] = harmed(count, kill_worker, 1)
    said["clean, worker killed"] = judge(trace / "clean")
print(json.dumps(said))
spark.stop()
'''
GRID = """
name = "cluster"
[[block]]
order = ["toto", "abcast"]
members = 4
seeds = 8
messages = 100
"""


@dataclass
class Cluster:
    master: str
    workers: list[int]


@pytest.fixture(scope="module")
def worker_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the installed packages, but not unisono."""
    import numpy

    packages = Path(numpy.__file__).parents[1]
    script = tmp_path_factory.mktemp("python") / "python"
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)
    for module, found in (("numpy, pandas, pyarrow", True), ("unisono", False)):
        ran = subprocess.run(
            [script, "-c", f"import {module}"], capture_output=True, cwd=script.parent, env=environment()
        )
        assert (ran.returncode == 0) is found, ran.stderr.decode()
    return script


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that keeps its promises, one that breaks them, one of which something is missing."""
    folder = tmp_path_factory.mktemp("trace")
    write_trace(adapt_files([DATA / "chorus.csv"], load_mapping(DATA / "chorus.toml")), folder / "broken")
    record(folder / "clean", 1)
    killed(segments(folder / "holed", record(folder / "holed", 2))[-1])
    return folder


def environment(**more: str) -> dict[str, str]:
    """That of this process, without what leads to S3 or to unisono: workers learn both from the driver."""
    left_out = ("PYSPARK_", "SPARK_", "AWS_", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | {"SPARK_LOCAL_IP": "127.0.0.1"} | more


@contextmanager
def java(arguments: list[str], log: Path, pattern: str) -> Iterator[tuple[int, str]]:
    """One of Spark's own processes, ended by its pid; with it, what its log says first that matches."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            env=environment(SPARK_HOME=str(home), SPARK_LOG_DIR=str(log.parent)),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=log.parent,
        )
    try:
        until = time.monotonic() + WAIT_S
        while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, f"{arguments[0]} did not start: {log.read_text()}"
            time.sleep(0.1)
        yield process.pid, found[0]
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    deploy = "org.apache.spark.deploy"
    ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with java([f"{deploy}.master.Master", *ports], folder / "master.log", r"spark://127\.0\.0\.1:\d+") as (_, master):

        def worker(number: int) -> Any:
            size = ["-c", "1", "-m", "1g", "-d", str(folder / f"work-{number}")]
            log = folder / f"worker-{number}.log"
            return java([f"{deploy}.worker.Worker", *ports, *size, master], log, "Successfully registered with master")

        with worker(0) as (first, _), worker(1) as (second, _):
            yield Cluster(master, [first, second])


def drive(
    master: str, data: Location, grid: Path, shared: Path, python: Path, workers: list[int], **more: str
) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER, master, data.uri, str(grid), str(shared), *map(str, workers)],
        env=environment(PYSPARK_PYTHON=str(python), PYTHONPATH=os.environ.get("PYTHONPATH", ""), **more),
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
    )
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = json.loads(ran.stdout.strip().split("\n")[-1])
    return said


@pytest.fixture(scope="module")
def local(spark: SparkSession, trace: Path) -> dict[str, Any]:
    """What is found without a cluster."""
    from unisono.pipeline.verify import verify

    return {
        run.run: [run.result, run.by, sorted(v.explain() for v in run.violations), dict(run.unknown)]
        for run in verify(spark, [trace]).runs
    }


def test_a_cluster_on_s3_judges_alike_and_survives_the_loss_of_executors_and_of_a_worker(
    cluster: Cluster,
    trace: Path,
    worker_python: Path,
    local: dict[str, Any],
    spark: SparkSession,
    bucket: Location,
    s3_address: str,
    tmp_path: Path,
) -> None:
    upload(trace, bucket / "trace")
    (tmp_path / "grid.toml").write_text(GRID, encoding="utf-8")
    more = settings_of(s3_address)
    said = drive(
        cluster.master, bucket, tmp_path / "grid.toml", tmp_path / "checkpoint", worker_python, cluster.workers, **more
    )
    assert {run: result for run, (result, *_) in local.items()} == dict(
        zip(RUNS, ("FAIL", "PASS", "UNKNOWN"), strict=True)
    )
    assert said["all"] == said["all, executor killed"] == on(bucket / "trace", trace, local)
    assert all("unisono.zip" in path for path in said["unisono"]), said["unisono"]
    rows = sum(len(read_segment(path).rows) for path in trace.rglob("*.parquet"))
    assert said["rows, executor killed"] == said["rows, worker killed"] == rows
    assert said["clean"] == said["clean, worker killed"] == {RUNS[1]: local[RUNS[1]]}
    assert said["taken in, executor killed"] == {run: result for run, (result, *_) in local.items()}
    assert said["segments"] == sorted(
        str(path.relative_to(trace)).removesuffix(".parquet") for path in trace.rglob("*.parquet")
    )
    assert said["events"] == rows, "each row is in once"
    views = {run: {result for which, result in said["views, executor killed"] if which == run} for run in RUNS}
    assert "FAIL" in views[RUNS[0]]
    assert "PASS" in views[RUNS[1]]
    assert not {"FAIL", "PASS"} & views[RUNS[2]], "a view whose member is missing stays open"
    cells = run_grid(spark, read_grid(tmp_path / "grid.toml"), tmp_path, traces=True)
    assert said["experiment, executor killed"] == len(cells) == 16
    there = bucket / "experiment"
    assert (there / "results.parquet").read_bytes() == (tmp_path / "results.parquet").read_bytes()
    for entry in place(tmp_path / "traces").files():
        copy = there / entry.place.uri.removeprefix(f"{tmp_path}/")
        assert copy.read_bytes() == entry.place.read_bytes()


def on(there: Location, here: Path, found: dict[str, Any]) -> dict[str, Any]:
    """What was found in one folder, as it would be told of another."""
    text: dict[str, Any] = json.loads(json.dumps(found).replace(str(here), there.uri))
    return text


@pytest.mark.slow
def test_a_local_cluster_judges_alike(trace: Path, worker_python: Path, local: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "trace").symlink_to(trace)
    said = drive("local-cluster[2,1,1024]", place(tmp_path), tmp_path, tmp_path, worker_python, [])
    assert said["clean"] == {RUNS[1]: local[RUNS[1]]}
    assert all("unisono.zip" in path for path in said["unisono"]), said["unisono"]
