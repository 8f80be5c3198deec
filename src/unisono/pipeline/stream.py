"""From growing traces to tables: watch a folder, take in what is new, judge every run that has ended.

What is missing is told by the tables alone: the watched folder is compared with the ledger, and the ledger with the
verdicts. There is no other memory. So a process that is killed at any moment and started again goes
on where the tables are (`lake` says why they are never half-way).

1. Rows of segments that are being written are taken in as they come (`take_in`).
2. A run is judged when all its lives have ended, from the tables: the raw files may be gone by then.
3. A run that is still open is judged when the caller says that nothing more will come (`final`), and when a
   look is the last one: a violation in the rows that are there is one, whatever follows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.data_files import Chosen, DataFile
from unisono.pipeline.gold import Gold
from unisono.pipeline.judge_in_task import ROWS_MAX
from unisono.pipeline.lake import SCHEMAS, Lake, TableChange, read_table
from unisono.pipeline.ledger import Due, LifeTodo, SegmentLedger, find_segments
from unisono.pipeline.retention import Ages, DeadFiles, look_interval_s, retire_runs, retired_runs
from unisono.pipeline.rewriting import Drop
from unisono.pipeline.session import PipelineError, plain_errors
from unisono.pipeline.storage import Location, place
from unisono.pipeline.tables import TraceTables, keeping, tables_of
from unisono.pipeline.take_in import OPEN_BYTES_MAX, REPLACE, TASK_REPORT_DDL, LedgerEntry, Todo, take_in_lives
from unisono.pipeline.upkeep import joined, ledger_file, merge_silver, needs_merging, taken_out
from unisono.pipeline.verify import JudgedRuns, judge_facts
from unisono.trace.schema import NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unisono.pipeline.watch_service import JudgedViews, WatchOptions

LOOK_EVERY_S = 1.0
BATCH_BYTES = 2 << 30
"""Approximate number of bytes that one batch takes in: a restart repeats no more."""
BATCH_LIVES = 20_000
TASK_BYTES = 32 << 20
RUNS_A_JUDGEMENT = 1_000
"""Maximum number of runs that are judged at once and committed together."""
RUNS_TOLD = 1_000
"""Maximum number of runs that a status names; all are counted."""
QUARANTINE = ("run", "group", "member", "incarnation", "local_index", "file", "problem")
DUE_DDL = "run string, segments bigint, batch bigint, problem string, copied string"
VERDICTS_DDL = (
    "run string, `group` string, protocol string, result string, owed array<string>, by string, "
    "counts map<string,bigint>, unknown map<string,string>"
)
Progress = Callable[[str], None]
Measure: TypeAlias = "Callable[..., Mapping[str, DataFrame]]"
"""Called with tables, and with `keep=` for what several measures ask for."""


@dataclass(frozen=True)
class PipelineStatus:
    """Where the pipeline stands. Of many runs it names the first, and counts all."""

    segments: int
    results: Mapping[str, str]
    """By run: PASS, FAIL or UNKNOWN; those that do not pass come before the others."""
    waiting: Mapping[str, str]
    """By run that is still open: what it waits for."""
    unreadable: Mapping[str, str]
    """By segment that could not be read just now: why."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """By result, and for `open` ones: the number of runs, named or not."""
    unusable: int = 0
    """The number of finished segments that hold nothing that can be used."""

    @property
    def judged(self) -> int:
        """How many runs have a verdict."""
        return sum(number for result, number in self.counts.items() if result != "open")

    @property
    def exit_code(self) -> int:
        """1: a violation. 2: a verdict cannot be given, or there was nothing to judge. 0: all that was judged passes."""
        if "FAIL" in self.results.values():
            return 1
        has_read_all = self.segments and not self.unreadable and not self.unusable
        is_sound = has_read_all and set(self.results.values()) <= {"PASS"}
        return 0 if is_sound else 2


class Pipeline:
    """Takes a folder of traces into a folder of tables."""

    def __init__(
        self,
        spark: SparkSession,
        watched: str | Location,
        out: str | Location,
        *,
        measure: Measure | None = None,
        progress: Progress = lambda text: None,
        ages: Ages | None = None,
    ) -> None:
        """`ages`: what `clean_up` keeps; None: Delta's logs stay as long as before."""
        self.spark, self.watched, self.out = spark, place(watched), place(out)
        require_apart(self.watched, self.out)
        self._measure, self._progress = measure, progress
        self._ages = ages or Ages()
        log_s = None if ages is None else ages.log_s
        self.lake = Lake(self.out, log_s)
        self._gold = Gold(spark, self.out, log_s)
        self._ledger = SegmentLedger(self.lake.segments, self._gold.verdicts)
        self._dead_files = DeadFiles(self.out, self._ages.dead_s)
        self._tidied = 0
        self._retired_s = time.monotonic()
        self._failed: frozenset[str] = frozenset()

    def take_failed(self) -> frozenset[str]:
        """The runs that got the verdict FAIL since the last call."""
        failed, self._failed = self._failed, frozenset()
        return failed

    def look(self, final: bool = False, last: bool = False) -> PipelineStatus:
        """Take in what is new and judge what is due. Repeating it changes nothing."""
        self._take_in(final)
        for due in _some(self._ledger.due(final)):
            self._judge(due)
        for due in _some(self._ledger.still_open()) if last and not final else ():
            self._judge(due, only_failures=True)
        self._tidy_up()
        return self.status()

    def status(self) -> PipelineStatus:
        ledger = self._ledger
        waiting = dict(islice(ledger.waiting(), RUNS_TOLD))
        counts = {**ledger.count_results(), "open": ledger.count_waiting()}
        results, unread = ledger.results(RUNS_TOLD), ledger.unread(RUNS_TOLD)
        return PipelineStatus(ledger.segments, results, waiting, unread, counts, ledger.count_unusable())

    def _tidy_up(self) -> None:
        """Keep files few while this goes on for weeks."""
        if self.lake.batch == self._tidied or not needs_merging(self.lake):
            return
        self._progress("merging small files")
        merge_silver(self.spark, self.lake)
        self._tidied = self.lake.batch

    def clean_up(self) -> frozenset[str]:
        """Delete dead files and drop old runs, where it is time; old runs of which the table `views` still tells."""
        self._dead_files.delete_old()
        age_s, now_s = self._ages.runs_s, time.monotonic()
        if age_s is None or now_s < self._retired_s + look_interval_s(age_s):
            return frozenset()
        self._retired_s = now_s
        with plain_errors(f"dropping old runs of {self.out}"):
            retire_runs(self.spark, self.lake, self._ledger, age_s)
            return retired_runs(self.out, self._ledger)

    # Taking in.

    def _take_in(self, final: bool) -> None:
        self._ledger.begin_look()
        wants_all = True
        while True:
            try:
                self._ledger.see(find_segments(self.watched))
            except OSError as error:
                raise PipelineError(f"{self.watched} cannot be read: {error.strerror or error}.") from None
            is_new = False
            # Rows that a running group has written meanwhile come with the next look.
            lives = (life for life in self._ledger.todo(final) if wants_all or final or any(map(_is_due, life.todos)))
            for some in _batches(lives):
                self._progress(f"taking in {sum(len(life.todos) for life in some)} segments")
                is_new = self._take_in_batch(some) or is_new
            if not is_new:
                return
            wants_all = False

    def _take_in_batch(self, lives: Sequence[LifeTodo]) -> bool:
        """Whether there may be more: something was taken in, or must be looked at again."""
        batch = self.lake.batch + 1
        with plain_errors(f"taking in segments of {self.watched}"):
            tasks = max(
                1, min(len(lives), max(_bytes(lives) // TASK_BYTES, self.spark.sparkContext.defaultParallelism))
            )
            rows = [
                (json.dumps([asdict(todo) for todo in life.todos]), json.dumps([asdict(one) for one in life.reached]))
                for life in lives
            ]
            todo = self.spark.createDataFrame(
                self.spark.sparkContext.parallelize(rows, int(tasks)), "todos string, reached string"
            )
            said = todo.mapInArrow(take_in_lives(self.out.uri, batch, SCHEMAS), TASK_REPORT_DDL).collect()
        entries: list[LedgerEntry] = []
        files: dict[str, list[DataFile]] = {}
        quiet = {todo.key: todo.size_bytes for life in lives for todo in life.todos}
        for row in said:
            one = json.loads(row["text"])
            if row["what"] == "file":
                files.setdefault(one["table"], []).append(DataFile(*one["file"]))
                continue
            del quiet[one["key"]]
            if row["what"] == "entry":
                entries.append(LedgerEntry.from_row(one))
            elif row["what"] == "changed":
                self._ledger.changed(one["key"])
            else:
                self._ledger.unreadable(one["key"], one["why"])
        for key, size_bytes in quiet.items():
            self._ledger.looked_at(key, size_bytes)
        if not entries:
            return any(row["what"] == "changed" for row in said)
        # Events come before the facts about them: a judge that sees these looks into those.
        changes = {name: TableChange(tuple(files[name])) for name in SCHEMAS if name in files}
        replaced = frozenset(entry.key for entry in entries if entry.act == REPLACE)
        if replaced:
            held = self._ledger.runs_of(replaced)
            entries = [replace(one, runs=sorted({*one.runs, *held.get(one.key, ())})) for one in entries]
            changes = joined(changes, taken_out(self.spark, self.lake, Drop(segments=replaced)))
        self.lake.publish(TableChange((ledger_file(self.lake, entries),)), changes)
        self._ledger.take(entries, batch)
        return True

    # Judging.

    def _judge(self, due: Sequence[Due], only_failures: bool = False) -> None:
        """Judge a few runs, and commit what is found."""
        from pyspark.sql import functions as F

        self._progress(f"judging {len(due)} runs")
        with plain_errors("judging"), keeping() as keep:
            sound = [one for one in due if one.copied is None]
            found = judge_silver(self.spark, self.out, sound) if sound else JudgedRuns((), 0, ())
            try:
                verdicts = keep(verdict_rows(self.spark, due, found.verdicts))
                violations = found.violations
                if only_failures:
                    failed = verdicts.where(F.col("result") == "FAIL").select("run").distinct()
                    verdicts = verdicts.join(F.broadcast(failed), "run", "left_semi")
                results = [tuple(row) for row in verdicts.select("run", "result", "batch").distinct().collect()]
                told = frozenset(run for run, _, _ in results)
                if not told:
                    return
                if only_failures and violations is not None:
                    violations = violations.join(F.broadcast(failed), "run", "left_semi")
                again = frozenset(one.run for one in due if one.is_judged and one.run in told)
                measures = self._measure(silver_tables(self.spark, self.out, told), keep=keep) if self._measure else {}
                self._gold.write(verdicts, violations, again, measures)
                self._ledger.judged(results)
                self._failed |= {run for run, result, _ in results if result == "FAIL"}
            finally:
                found.release()  # a pipeline that runs for weeks would keep the tables of every judgement


def run_pipeline(
    spark: SparkSession,
    watched: str | Location,
    out: str | Location,
    *,
    once: bool = False,
    final: bool = False,
    measure: Measure | None = None,
    progress: Progress = lambda text: None,
    views: WatchOptions | None = None,
    log: Progress = lambda text: None,
    ages: Ages | None = None,
) -> PipelineStatus:
    """Watch until interrupted; `once`: until everything that is there has been seen; `final`: and judge open runs too.

    With `views`, the views of running groups are judged beside it, and `log` gets a line for each violation.
    `ages`: how long a pipeline that watches keeps what it could do without.
    """
    pipeline = Pipeline(spark, watched, out, measure=measure, progress=progress, ages=ages)
    if once or final:
        status = pipeline.look(final, last=True)
        with _beside(spark, pipeline.out, views, log) as judged:
            if judged is not None:
                judged.tell_runs(pipeline.take_failed())
                judged.finish()
            return status
    log_s = None if ages is None else ages.log_s
    with _beside(spark, pipeline.out, views, log, log_s) as judged:
        while True:
            status = pipeline.look()
            retired = pipeline.clean_up()
            if judged is not None:
                judged.require_alive()
                judged.tell_runs(pipeline.take_failed())
                judged.drop(retired)
            progress(f"{status.segments} segments, {status.judged} runs judged, {status.counts.get('open', 0)} open")
            time.sleep(LOOK_EVERY_S)


def _beside(
    spark: SparkSession, out: Location, views: WatchOptions | None, log: Progress, log_s: float | None = None
) -> AbstractContextManager[JudgedViews | None]:
    if views is None:
        return nullcontext()
    from unisono.pipeline.watch_service import views_judged

    return views_judged(spark, out, views, log, log_s)


def require_apart(watched: Location, out: Location) -> None:
    """Tables inside the watched folder would be taken for traces."""
    try:
        is_folder = watched.is_folder()
    except OSError as error:
        raise PipelineError(f"{watched} cannot be read: {error.strerror or error}.") from None
    if not is_folder:
        raise PipelineError(f"{watched} is no folder: name the folder that traces are written to.")
    if f"{out}/".startswith(f"{watched}/"):
        raise PipelineError(f"{out} lies in the watched folder {watched}: choose a place for the tables outside of it.")


def _batches(lives: Iterable[LifeTodo]) -> Iterator[list[LifeTodo]]:
    """Group lives into batches of limited size."""
    some: list[LifeTodo] = []
    size_bytes = 0
    for life in lives:
        if some and (len(some) >= BATCH_LIVES or size_bytes + life.size_bytes > BATCH_BYTES):
            yield some
            some, size_bytes = [], 0
        some.append(life)
        size_bytes += life.size_bytes
    if some:
        yield some


def _some(due: Iterator[Due]) -> Iterator[list[Due]]:
    """Group runs into those that are judged at once."""
    while some := list(islice(due, RUNS_A_JUDGEMENT)):
        yield some


def _is_due(todo: Todo) -> bool:
    """Whether a segment is worth another round: a running group would keep a look busy for ever."""
    return not todo.is_open or todo.replaces or todo.size_bytes - todo.done_bytes > OPEN_BYTES_MAX


def _bytes(lives: Iterable[LifeTodo]) -> int:
    return sum(life.size_bytes for life in lives)


# From silver.


def facts_of(spark: SparkSession, out: Location, runs: Sequence[Due]) -> DataFrame:
    """The facts of a few runs. None is older than their first batch; merged files may have younger names."""
    first = min(one.first_batch for one in runs)
    facts = read_table(spark, out, "facts", Chosen(frozenset(one.run for one in runs), after=first - 1))
    return facts.drop("segment", "batch")


def judge_silver(spark: SparkSession, out: Location, runs: Sequence[Due]) -> JudgedRuns:
    """Judge a few runs from the tables alone. Verdicts and violations stay with the workers, as frames."""
    facts = facts_of(spark, out, runs).persist()
    try:
        if facts.isEmpty():
            return JudgedRuns((), 0, ())
        rows = sum(one.rows for one in runs)
        return judge_facts(facts, ask_digests=rows > ROWS_MAX, runs_told=0)
    finally:
        facts.unpersist()


def verdict_rows(spark: SparkSession, due: Sequence[Due], judged: DataFrame | None) -> DataFrame:
    """Rows of the table `verdicts`, at least one for each run.

    A run of which rows are there twice, or nothing can be used, has no verdict. One of which something cannot be used
    does not pass, whatever the rest says.
    """
    from pyspark.sql import functions as F

    rows = ((one.run, one.segments, one.last_batch, one.problem, one.copied) for one in due)
    runs = spark.createDataFrame(as_table(rows, DUE_DDL))
    judged = spark.createDataFrame([], VERDICTS_DDL) if judged is None else judged
    joined_runs = runs.join(judged, "run", "left")
    is_judged = F.col("result").isNotNull()
    reason = F.coalesce("copied", "problem", F.when(~is_judged, F.lit("nothing in its files can be used")))
    is_doubted = ~is_judged | ((F.col("result") == "PASS") & reason.isNotNull())
    unknown = F.coalesce("unknown", F.expr("cast(map() as map<string,string>)"))
    others = F.map_filter(unknown, lambda who, _: who != "?")
    doubted = F.map_concat(others, F.create_map(F.lit("?"), reason))
    return joined_runs.select(
        "run",
        F.coalesce("group", F.lit("?")).alias("group"),
        F.coalesce("protocol", F.lit("?")).alias("protocol"),
        F.when(is_doubted, F.lit("UNKNOWN")).otherwise(F.col("result")).alias("result"),
        F.coalesce("by", F.lit("nothing")).alias("by"),
        F.coalesce("owed", F.expr("cast(array() as array<string>)")).alias("owed"),
        F.when(is_doubted, doubted).otherwise(unknown).alias("unknown"),
        "segments",
        F.coalesce("counts", F.expr("cast(map() as map<string,bigint>)")).alias("counts"),
        "batch",
    )


def silver_tables(spark: SparkSession, out: Location, runs: frozenset[str] | None = None) -> TraceTables:
    """The typed tables of events that were taken in; of these runs, or of all."""
    chosen = Chosen(runs)
    events = read_table(spark, out, "events", chosen).select(*NAMES)
    return tables_of(events, read_table(spark, out, "quarantine", chosen).select(*QUARANTINE))
