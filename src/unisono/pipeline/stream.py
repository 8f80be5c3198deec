"""Judging while runs go on: watch a folder of traces, take in finished segments, judge every run whose lives have all ended.

Spark's Structured Streaming tells *when* to look: its file source wakes us when files have appeared, and its checkpoint spares us
those it has told of. *What* is missing is told by the output alone, by comparing the watched folder with the ledger, and the ledger
with the manifests of gold (`ledger`, `gold`). Hence exactly once, at every moment at which a process may be killed:

1. Killed while workers take segments in: those without an entry in the ledger are taken in again, to the same bytes.
2. Killed between silver and gold: a run whose manifest is missing, or was made from other segments, is judged again.
3. Killed while gold is written: see `gold`; there is no manifest, so the run is judged again.
4. A checkpoint that is lost, or further than the output, does no harm: every start begins with a look of its own.

A run with a life without an ending stays open. It is judged, and UNKNOWN, when the caller says that nothing more will come
(`final`); only then are segments read that were never finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from unisono.pipeline.bronze import EVENT_DDL
from unisono.pipeline.gold import manifests, write_gold, writing
from unisono.pipeline.ledger import Entry, RunState, find_segments, missing, read_ledger, run_states, sweep, take_in_all
from unisono.pipeline.session import PipelineError, plain_errors
from unisono.pipeline.tables import Tables, keeping, tables_of
from unisono.pipeline.verify import RunVerdict, verify
from unisono.trace.schema import NAMES
from unisono.trace.sinks import OPEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOK_EVERY = "1 second"
QUARANTINE = ("run", "group", "member", "incarnation", "local_index", "file", "problem")
Progress = Callable[[str], None]
Measure: TypeAlias = "Callable[..., Mapping[str, DataFrame]]"
"""Called with tables, and with `keep=` for what several measures ask for."""


@dataclass(frozen=True)
class Status:
    """Where the pipeline stands."""

    segments: int
    results: Mapping[str, str]
    """By run: PASS, FAIL or UNKNOWN."""
    waiting: Mapping[str, str]
    """By run that is still open: what it waits for; by segment that could not be read just now: why."""


class Pipeline:
    """Takes a folder of traces into a folder of tables. Hold its lock (`writing`) while it works."""

    def __init__(
        self,
        spark: SparkSession,
        watched: Path,
        out: Path,
        *,
        measure: Measure | None = None,
        progress: Progress = lambda text: None,
    ) -> None:
        if not watched.is_dir():
            raise PipelineError(f"{watched} is no folder: name the one that traces are written to.")
        if out.resolve().is_relative_to(watched.resolve()):
            raise PipelineError(
                f"{out} lies in the watched folder {watched}: choose a place for the tables outside of it."
            )
        self.spark, self.watched, self.out = spark, watched.resolve(), out.resolve()
        self.silver, self.gold = self.out / "silver", self.out / "gold"
        self._measure, self._progress = measure, progress
        self._ledger = read_ledger(self.silver)
        self._unreadable: dict[str, str] = {}

    def look(self, final: bool = False) -> Status:
        """Do whatever there is to do. Doing it again changes nothing."""
        found = find_segments(self.watched, with_open=True)
        unfinished = [key for key, path in found.items() if path.name.endswith(OPEN)]
        self._take_in({key: path for key, path in found.items() if final or key not in unfinished})
        states = run_states(self._ledger.values(), () if final else unfinished)
        known = manifests(self.gold)
        due = {
            run: state
            for run, state in states.items()
            if (final or state.waits_for is None) and known.get(run, {}).get("inputs", {}).get("digest") != state.digest
        }
        if due:
            self._progress(f"judging {len(due)} runs")
            self._write(due)
        return self.status(states)

    def status(self, states: Mapping[str, RunState] | None = None) -> Status:
        states = run_states(self._ledger.values()) if states is None else states
        results = {run: _worst(manifest["results"].values()) for run, manifest in manifests(self.gold).items()}
        waiting = {run: state.waits_for for run, state in states.items() if state.waits_for and run not in results}
        return Status(len(self._ledger), results, waiting | self._unreadable)

    def _take_in(self, found: Mapping[str, Path]) -> None:
        new = missing(found, self._ledger)
        self._unreadable = {}
        if not new:
            return
        self._progress(f"taking in {len(new)} segments")
        rows = [(str(path), key, str(self.silver)) for key, path in new.items()]
        tasks = min(len(rows), self.spark.sparkContext.defaultParallelism * 4)
        with plain_errors(f"taking in segments of {self.watched}"):
            todo = self.spark.createDataFrame(
                self.spark.sparkContext.parallelize(rows, tasks), "path string, key string, silver string"
            )
            for row in todo.mapInArrow(take_in_all, "key string, unreadable string").collect():
                if row["unreadable"] is not None:
                    self._unreadable[row["key"]] = row["unreadable"]
        self._ledger = read_ledger(self.silver)

    def _write(self, due: Mapping[str, RunState]) -> None:
        with plain_errors("judging"):
            verdicts = self._judge(due)
            inputs = {run: {"digest": state.digest, "segments": len(state.entries)} for run, state in due.items()}
            with keeping() as keep:
                measures = (
                    self._measure(read_silver(self.spark, self.out).of_runs(due), keep=keep) if self._measure else {}
                )
                write_gold(self.spark, self.gold, verdicts, measures, inputs)

    def _judge(self, due: Mapping[str, RunState]) -> list[RunVerdict]:
        """Judge some runs together. Where the input of one is refused, find out whose by halves; it gets no verdict."""
        try:
            paths = sorted({entry.path for state in due.values() for entry in state.entries})
            found = verify(self.spark, paths).runs
        except PipelineError as error:
            if len(due) == 1:
                return [_no_verdict(run, str(error)) for run in due]
            names = list(due)
            halves = names[: len(names) // 2], names[len(names) // 2 :]
            return [verdict for half in halves for verdict in self._judge({run: due[run] for run in half})]
        verdicts = []
        for run, state in due.items():
            own = [verdict for verdict in found if verdict.run == run]
            problem = _problem(state.entries)
            verdicts += [_doubted(verdict, problem) for verdict in own] or [
                _no_verdict(run, problem or "nothing in its files can be used")
            ]
        return verdicts


def run_pipeline(
    spark: SparkSession,
    watched: Path,
    out: Path,
    *,
    once: bool = False,
    final: bool = False,
    measure: Measure | None = None,
    progress: Progress = lambda text: None,
) -> Status:
    """Watch until interrupted; `once`: until everything that is there has been seen; `final`: and judge open runs too."""
    pipeline = Pipeline(spark, watched, out, measure=measure, progress=progress)
    failures: list[Exception] = []

    def on_batch(frame: DataFrame, number: int) -> None:
        try:
            pipeline.look()
        except Exception as error:
            failures.append(error)
            raise

    with writing(pipeline.out):
        sweep(pipeline.silver)
        pipeline.look()
        with plain_errors(f"watching {watched}"):
            try:
                _watch(pipeline, on_batch, once or final)
            except Exception:
                if failures:
                    raise failures[0] from None
                raise
        return pipeline.look(final)


def _watch(pipeline: Pipeline, on_batch: Callable[[DataFrame, int], None], once: bool) -> None:
    """Let Spark tell of new files. Only their appearance counts, so their content is never asked for."""
    files = (
        pipeline.spark.readStream.format("binaryFile")
        .schema("path string, modificationTime timestamp, length bigint, content binary")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.{parquet,jsonl}")
        .option("maxFileAge", "36500d")  # a trace that was copied here keeps its old date
        .load(str(pipeline.watched))
        .select("path")
    )
    writer = files.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(pipeline.out / "_checkpoint"))
    query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=LOOK_EVERY)).start()
    try:
        while query.isActive:
            time.sleep(0.2)  # not inside a call to Java, which Ctrl-C would tear
        query.awaitTermination()  # raises what ended it
    finally:
        query.stop()


def read_silver(spark: SparkSession, out: Path) -> Tables:
    """The silver tables of everything that was taken in."""
    silver = out / "silver"
    quarantine = (
        "run string, `group` string, member string, incarnation bigint, local_index bigint, file string, problem string"
    )
    frames = {}
    for table, ddl in (("events", EVENT_DDL), ("quarantine", quarantine)):
        (silver / table).mkdir(parents=True, exist_ok=True)
        frames[table] = spark.read.schema(ddl).parquet(str(silver / table))
    return tables_of(frames["events"].select(*NAMES), frames["quarantine"].select(*QUARANTINE))


def _problem(entries: list[Entry]) -> str | None:
    return next((problem for entry in entries for problem in entry.problems), None)


def _doubted(verdict: RunVerdict, problem: str | None) -> RunVerdict:
    """A run of which something could not be used cannot pass, whatever the rest says."""
    if problem is None or verdict.result != "PASS":
        return verdict
    return replace(verdict, result="UNKNOWN", unknown={**verdict.unknown, "?": problem})


def _no_verdict(run: str, why: str) -> RunVerdict:
    return RunVerdict(run, "?", "?", "UNKNOWN", frozenset(), (), {"?": why}, "nothing")


def _worst(results: Iterable[str]) -> str:
    found = set(results)
    return next((result for result in ("FAIL", "UNKNOWN") if result in found), "PASS")
