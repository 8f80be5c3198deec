"""The same functions on clusters: a standalone master with two workers, started here on loopback, and `local-cluster`.

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

from tests.pipeline.test_faults import killed, record, segments
from unisono.pipeline.adapter import adapt_files, load_mapping, write_trace
from unisono.trace.reader import read_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DATA = Path(__file__).parent / "data"
RUNS = ("chorus-1", "sequencer-3-1", "sequencer-3-2")
WAIT_S = 240.0

DRIVER = '''
import json, os, signal, sys, threading, time
from pathlib import Path
from unisono.pipeline.session import open_session
from unisono.pipeline.verify import verify

master, trace = sys.argv[1:3]
workers = [int(pid) for pid in sys.argv[3:]]
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

def slowly(batches):
    import os, pyarrow, time
    from unisono.pipeline.bronze import read_file
    for batch in batches:
        for path in batch.column(0).to_pylist():
            time.sleep(0.4)
            rows = sum(len(part) for part in read_file(Path(path)))
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array([rows]), pyarrow.array([os.getppid()])], names=["rows", "pid"])

def count_while(harm):
    """Count the rows of every segment, slowly, and do harm when the first tasks are done."""
    files = [(str(path),) for path in sorted(Path(trace).rglob("*.parquet"))]
    listing = spark.createDataFrame(context.parallelize(files, len(files)), "path string")
    counts = []
    job = threading.Thread(target=lambda: counts.extend(listing.mapInArrow(slowly, "rows bigint, pid bigint").collect()))
    job.start()
    tracker = context.statusTracker()
    def done():
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage and 0 < stage.numCompletedTasks < stage.numTasks for stage in stages)
    while job.is_alive() and not done():
        time.sleep(0.05)
    assert job.is_alive(), "the job was too quick"
    harm()
    job.join()
    return sum(row["rows"] for row in counts)

def judge_while(harm):
    """Judge everything, and do harm as soon as tasks run."""
    tracker, over = context.statusTracker(), threading.Event()
    def wait():
        while not over.is_set() and not any(
            stage and stage.numActiveTasks for stage in map(tracker.getStageInfo, tracker.getActiveStageIds())
        ):
            time.sleep(0.01)
        harmed.append(not over.is_set())
        harm()
    harmed = []
    waiter = threading.Thread(target=wait)
    waiter.start()
    result = judge(trace)
    over.set()
    waiter.join()
    assert harmed == [True], "the judgement was too quick"
    return result

def where(_):
    import unisono
    return unisono.__file__

said["unisono"] = sorted(set(context.parallelize(range(4), 4).map(where).collect()))
said["clean"] = judge(trace + "/clean")
if workers:
    said["all"] = judge(trace)
    said["rows, executor killed"] = count_while(lambda: os.kill(children(workers[0])[0], signal.SIGKILL))
    said["all, executor killed"] = judge_while(lambda: os.kill(children(workers[0])[0], signal.SIGKILL))
    said["rows, worker killed"] = count_while(lambda: os.kill(workers[1], signal.SIGKILL))
    said["clean, worker killed"] = judge(trace + "/clean")
print(json.dumps(said))
spark.stop()
'''


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
        ran = subprocess.run([script, "-c", f"import {module}"], capture_output=True, cwd=script.parent)
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
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
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


def drive(master: str, trace: Path, python: Path, workers: list[int]) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER, master, str(trace), *map(str, workers)],
        env=environment(PYSPARK_PYTHON=str(python)),
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


def test_a_standalone_cluster_judges_alike_and_survives_the_loss_of_an_executor_and_of_a_worker(
    cluster: Cluster, trace: Path, worker_python: Path, local: dict[str, Any]
) -> None:
    said = drive(cluster.master, trace, worker_python, cluster.workers)
    assert {run: result for run, (result, *_) in local.items()} == dict(
        zip(RUNS, ("FAIL", "PASS", "UNKNOWN"), strict=True)
    )
    assert said["all"] == said["all, executor killed"] == local
    assert all("unisono.zip" in path for path in said["unisono"]), said["unisono"]
    rows = sum(len(read_segment(path).rows) for path in trace.rglob("*.parquet"))
    assert said["rows, executor killed"] == said["rows, worker killed"] == rows
    assert said["clean"] == said["clean, worker killed"] == {RUNS[1]: local[RUNS[1]]}


@pytest.mark.slow
def test_a_local_cluster_judges_alike(trace: Path, worker_python: Path, local: dict[str, Any]) -> None:
    said = drive("local-cluster[2,1,1024]", trace, worker_python, [])
    assert said["clean"] == {RUNS[1]: local[RUNS[1]]}
    assert all("unisono.zip" in path for path in said["unisono"]), said["unisono"]
