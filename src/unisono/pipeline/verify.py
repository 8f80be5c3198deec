"""From trace folders to verdicts: digests first, rows only where digests leave a doubt.

1. Workers list the segments, scan each life and return facts (`segments`, `scan`): digests, and suspicions.
2. The facts of each run are compared (`doubts`). A run without a doubt keeps every property that digests decide.
3. The rows of doubtful runs, and of runs that owe a property that digests cannot decide, are looked at: of a run that is small
   enough in one task (`judge_in_task`), of a larger one property by property (`properties`). Facts name the files.

Verdicts and violations are tables. The driver fetches how many runs there are of each result, and the first of them.

Why no doubt means no violation, for a run whose lives are all whole (step by step in docs/pipeline.md):

- P0 and the FIFO properties P2, P6, P7 are looked at row by row inside each life; so are P3, and that an own message is delivered
  after its CAST.
- Every stay delivered of each origin exactly what that origin cast in the same view, by count, xor and sum of hashes over message
  and payload digest: P1, P4, P13. That is the same for all who stayed: P5, P14.
- All stays of one view, whatever way their members went, have equal digests of every block of 4,096 ordered deliveries, each
  hashed with its ordinal: P9.
- Without a total order, members may each deliver the other's message before they cast their own. Digests do not show such circles,
  which no order of events explains (P1): rows are asked.
- One sequence everywhere that is FIFO, in which every caster delivered its own message after casting it, is causal: what m's
  caster had delivered when it cast m lies before m in its own sequence, and that is everyone's (P8, where all is total).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.bronze import Where
from unisono.pipeline.doubts import accounts
from unisono.pipeline.judge_in_task import BYTES_MAX, NOTHING_USABLE, ROWS_MAX, RUN_SAID_DDL, judge_in_tasks
from unisono.pipeline.owed import owed_only, untold
from unisono.pipeline.parallelism import fit_shuffles, tasks_for
from unisono.pipeline.properties.registry import check
from unisono.pipeline.properties.scanning import UNTOLD, computed_once
from unisono.pipeline.segments import scan_segments, segments_below
from unisono.pipeline.session import PipelineError
from unisono.pipeline.tables import WHOSE, Keep, keeping, load_paths, name_of, tables_of
from unisono.trace.checks.checker import VIOLATIONS_MAX
from unisono.trace.checks.properties import PROPERTIES, place_of
from unisono.trace.schema import NOT_KNOWN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from unisono.pipeline.tables import TraceTables

RUNS_TOLD = 1_000
"""Runs that a judgement tells of, those that do not pass first. All are counted, and in its tables."""
VIOLATIONS_TOLD = 50_000
PROBLEMS_TOLD = 100
RUNS_LOCATED, FILES_LOCATED = 50, 10_000
"""Maximum number of runs that do not pass of which the driver learns where their rows lie, for diagrams."""
EXPANSION = 8
"""Rows in memory, compared with the packed bytes of their files."""
VERDICT_COLUMNS = (*WHOSE, "protocol", "result", "owed", "by", "counts", "unknown", "notes", "rows")
VIOLATION_COLUMNS = (*WHOSE, "property", "members", "view", "witness")


@dataclass(frozen=True)
class RunViolation:
    run: str
    group: str
    property: str
    members: tuple[str, ...]
    view: str | None
    witness: Mapping[str, str]

    def explain(self) -> str:
        """The violation as a sentence that a person can check by hand."""
        return PROPERTIES[self.property].tell(self.members, self.view, self.witness)


@dataclass(frozen=True)
class RunVerdict:
    """The verdict on one run of one group."""

    run: str
    group: str
    protocol: str
    result: str
    owed: frozenset[str]
    violations: tuple[RunViolation, ...] = ()
    """The first ones of each property."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    by: str = "digests"
    """Whether digests sufficed, or rows were looked at: of the run as a `whole` in one task, or `rows` by joins."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many violations of each broken property there are."""
    notes: tuple[str, ...] = ()
    """What a reader should know besides; it changes no result."""


@dataclass(frozen=True)
class JudgedRuns:
    """What was found in all runs."""

    runs: tuple[RunVerdict, ...]
    """The first `RUNS_TOLD`, with those that do not pass before the others; in the order of their names."""
    quarantined: int
    problems: tuple[str, ...]
    """The first ones of what could not be used."""
    results: Mapping[str, int] = field(default_factory=dict)
    """By result: the number of runs, told or not."""
    verdicts: DataFrame | None = None
    """One row a run of a group (`VERDICT_COLUMNS`)."""
    violations: DataFrame | None = None
    """One row a violation that is told (`VIOLATION_COLUMNS`); the verdict's `counts` has all."""
    notes: tuple[str, ...] = ()
    """About files that were left out."""
    files: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By run, of the first that do not pass: the files with its rows, and their bytes."""

    @property
    def count(self) -> Mapping[str, int]:
        return self.results or Counter(run.result for run in self.runs)

    @property
    def result(self) -> str:
        results = {result for result, number in self.count.items() if number}
        if "FAIL" in results:
            return "FAIL"
        return "PASS" if results == {"PASS"} and not self.quarantined else "UNKNOWN"

    def release(self) -> None:
        """Let Spark forget the tables."""
        for table in (self.verdicts, self.violations):
            if table is not None:
                table.unpersist()


Progress = Callable[[str], None]


def verify(
    spark: SparkSession,
    paths: Iterable[Where],
    progress: Progress = lambda text: None,
    whole_rows_max: int = ROWS_MAX,
    also: frozenset[str] = frozenset(),
    runs_told: int = RUNS_TOLD,
) -> JudgedRuns:
    """Judge every run below these paths; of runs that need a look at their rows, those up to `whole_rows_max` as a whole.

    `also`: properties that are asked of every run besides what its order owes, such as those of views.
    """
    with keeping() as keep:
        segments = segments_below(spark, list(paths), keep)
        progress(f"scanning {segments.count} segments")
        found = judge_facts(scan_segments(segments), progress, whole_rows_max, also, runs_told)
        return replace(found, notes=segments.notes)


def judge_facts(
    facts: DataFrame,
    progress: Progress = lambda text: None,
    whole_rows_max: int = ROWS_MAX,
    also: frozenset[str] = frozenset(),
    runs_told: int = RUNS_TOLD,
    ask_digests: bool = True,
) -> JudgedRuns:
    """Judge every run that these facts tell of (columns of `scan.SCAN_DDL`), wherever the files that they name lie.

    Without `ask_digests` all runs are judged from their rows: of a few small ones they cost less than comparing digests.
    """
    with keeping() as keep:
        facts = keep(facts)
        runs = computed_once(accounts(facts, also, ask_digests))
        count, needing, strays = runs.agg(
            F.count("*"), F.count_if("needs_rows"), F.count_if(F.col("group") == NOT_KNOWN)
        ).collect()[0]
        if strays:
            runs = computed_once(_with_strays(runs))
            count, needing = runs.agg(F.count("*"), F.count_if("needs_rows")).collect()[0]
        if not count:
            raise PipelineError("there is no run in these files: are they a trace?")
        progress(f"compared the digests of {count} runs")
        if not needing:
            return _judgement(runs.withColumn("by", F.lit("digests")), [], {"PASS": count}, runs_told)
        progress(f"looking at the rows of {needing} runs")
        files = computed_once(_files(facts, runs.where(F.col("needs_rows"))))
        rest = runs.where(F.col("needs_rows")).join(_sizes(files), list(WHOSE), "left")
        rest = computed_once(rest.withColumn("is_small", _is_small(whole_rows_max)))
        known = _totals(rest)
        small, large = rest.where(F.col("is_small")), rest.where(~F.col("is_small"))
        said: list[DataFrame] = []
        if known["small"]:
            said.append(computed_once(judge_in_tasks(small, files, also, known["small_bytes"], known["small_files"])))
        if known["large"]:
            said.append(_judge_rows(large, files, also, known["large_bytes"], known["large_files"], keep))
        by = F.when(F.col("is_small"), F.lit("whole")).otherwise(F.lit("rows"))
        judged = runs.join(rest.select(*WHOSE, by.alias("by")), list(WHOSE), "left")
        judgement = _judgement(judged.withColumn("by", F.coalesce("by", F.lit("digests"))), said, {}, runs_told)
        return replace(judgement, files=_files_read(files, judgement.runs))


def _totals(rest: DataFrame) -> Mapping[str, int]:
    def total(condition: Column, column: str) -> Column:
        return F.coalesce(F.sum(F.when(condition, F.col(column))), F.lit(0))

    is_small = F.col("is_small")
    row = rest.agg(
        F.count_if(is_small).alias("small"),
        F.count_if(~is_small).alias("large"),
        total(is_small, "bytes").alias("small_bytes"),
        total(is_small, "files").alias("small_files"),
        total(~is_small, "bytes").alias("large_bytes"),
        total(~is_small, "files").alias("large_files"),
    ).first()
    assert row is not None
    return row.asDict()


def _with_strays(runs: DataFrame) -> DataFrame:
    """A file that cannot be read is of a run that others tell of, if there is one: then it is their doubt."""
    of_run = Window.partitionBy("run")
    is_stray = (F.col("group") == NOT_KNOWN) & (F.col("run") != NOT_KNOWN)
    marked = runs.withColumns({"has_strays": F.max(is_stray).over(of_run), "has_others": F.max(~is_stray).over(of_run)})
    needs_rows = F.col("needs_rows") | F.col("has_strays") | (F.col("run") == NOT_KNOWN)
    kept = marked.where(~(is_stray & F.col("has_others")))
    return kept.withColumn("needs_rows", needs_rows).drop("has_strays", "has_others")


def _files(facts: DataFrame, needing: DataFrame) -> DataFrame:
    """The files that hold rows of these runs, or may: `path`, and the `bytes` that are theirs.

    Of a file that cannot be read only its name tells the run, or nothing does; so all that it may belong to look into it.
    """
    files = (
        facts.where(F.col("what") == "file")
        .groupBy(*WHOSE, "path")
        .agg(F.coalesce(F.sum("size_bytes"), F.lit(0)).alias("bytes"))
    )
    whose = needing.select(*WHOSE)
    of_group = whose.join(files, list(WHOSE), "inner")
    of_run = whose.where(F.col("group") != NOT_KNOWN).join(
        files.where(F.col("group") == NOT_KNOWN).drop("group"), "run", "inner"
    )
    of_any = whose.where(F.col("run") != NOT_KNOWN).crossJoin(
        F.broadcast(files.where(F.col("run") == NOT_KNOWN).drop(*WHOSE))
    )
    every = of_group.unionByName(of_run).unionByName(of_any)
    return every.groupBy(*WHOSE, "path").agg(F.sum("bytes").alias("bytes"))


def _sizes(files: DataFrame) -> DataFrame:
    return files.groupBy(*WHOSE).agg(F.sum("bytes").alias("bytes"), F.count("*").alias("files"))


def _is_small(rows_max: int) -> Column:
    return (F.col("rows") <= rows_max) & (F.coalesce("bytes", F.lit(0)) <= BYTES_MAX)


def _judge_rows(
    rest: DataFrame, files: DataFrame, also: frozenset[str], size_bytes: int, count: int, keep: Keep
) -> DataFrame:
    """What is said property by property of runs of any size, as `judge_in_task.RUN_SAID_DDL`."""
    fit_shuffles(rest.sparkSession, size_bytes * EXPANSION)
    paths = files.join(rest, list(WHOSE), "left_semi").select("path").distinct()
    loaded = load_paths(paths, tasks_for(size_bytes, count), keep)
    said = [loaded.quarantine.select(*WHOSE, F.lit("problem").alias("what"), F.col("problem").alias("text"))]
    # What is owed is one of a few combinations of promises, however many the runs.
    owed = {one for row in rest.select("owed").distinct().collect() for one in row["owed"]}
    chosen = rest.select(*WHOSE)
    events = computed_once(loaded.events.join(F.broadcast(chosen), list(WHOSE), "left_semi"))
    said += _said_by_rows(tables_of(events, computed_once(loaded.quarantine), computed_once), chosen, owed, also)
    nothing = rest.sparkSession.createDataFrame([], RUN_SAID_DDL)
    every = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), said, nothing)
    return computed_once(every.select(*nothing.columns))


def _said_by_rows(tables: TraceTables, chosen: DataFrame, owed: Iterable[str], also: frozenset[str]) -> list[DataFrame]:
    # One plan of all properties would be too large for Spark to compare and to explain, however little it reads.
    each = [computed_once(_first_ones(owed_only(check(tables, {one}), tables, also))) for one in sorted(owed)]
    found = reduce(lambda one, other: one.unionByName(other), each)
    counts = found.groupBy(*WHOSE, "property").agg(F.max("of").cast("string").alias("text"))
    return [
        found.select(
            *WHOSE, F.lit("violation").alias("what"), F.col("property").alias("name"), "members", "view", "witness"
        ),
        counts.select(*WHOSE, F.lit("count").alias("what"), F.col("property").alias("name"), "text"),
        _unknown(tables, chosen).select(
            *WHOSE, F.lit("unknown").alias("what"), F.col("who").alias("name"), F.col("unknown").alias("text")
        ),
    ]


def _first_ones(violations: DataFrame) -> DataFrame:
    """As many of each run, group and property as the plain checkers tell, with how many there are: a million would not fit here."""
    alike = Window.partitionBy("run", "group", "property")
    more = F.coalesce(F.sum(F.col("witness")[UNTOLD].cast("bigint")).over(alike), F.lit(0))
    numbered = violations.withColumn("of", F.count("*").over(alike) + more).withColumn(
        "place", F.row_number().over(alike.orderBy("view", "members", F.col("witness").cast("string")))
    )
    return numbered.where(F.col("place") <= VIOLATIONS_MAX).drop("place")


def _unknown(tables: TraceTables, chosen: DataFrame) -> DataFrame:
    """The lives of which something is missing; members of views without a trace too, and runs without any life.

    A file that cannot be used may have the name of a life of which nothing else is known.
    """
    columns = (*WHOSE, "who", "unknown")
    lives = tables.lives.select(*columns)
    listed = tables.views.select(*WHOSE, F.explode("members").alias("who")).distinct()
    absent = listed.join(lives, [*WHOSE, "who"], "left_anti").withColumn("unknown", F.lit("there is no trace of it"))
    who = name_of(F.col("member"), F.coalesce("incarnation", F.lit(0)))
    bad = tables.quarantine.where(F.col("member").isNotNull()).select("run", who.alias("who"), "problem")
    unused = (
        bad.groupBy("run", "who")
        .agg(F.min("problem").alias("unknown"))
        .join(chosen, "run", "inner")
        .select(*columns)
        .join(lives.unionByName(absent), [*WHOSE, "who"], "left_anti")
    )
    empty = chosen.join(lives.unionByName(unused), list(WHOSE), "left_anti").select(
        *WHOSE, F.lit(NOT_KNOWN).alias("who"), F.lit(NOTHING_USABLE).alias("unknown")
    )
    missing = lives.where(F.col("unknown").isNotNull()).unionByName(absent).unionByName(unused).unionByName(empty)
    doubts = untold(tables).select(*columns).join(missing, [*WHOSE, "who"], "left_anti")
    return missing.unionByName(doubts)


def _judgement(judged: DataFrame, parts: Sequence[DataFrame], results: Mapping[str, int], runs_told: int) -> JudgedRuns:
    """Put together what digests and rows say, and fetch as much of it as can be told."""
    nothing = judged.sparkSession.createDataFrame([], RUN_SAID_DDL)
    said = reduce(lambda one, other: one.unionByName(other), parts) if parts else nothing
    if parts:
        counts = _as_map(said.where(F.col("what") == "count"), F.col("text").cast("bigint"), "counts")
        unknown = _as_map(said.where(F.col("what") == "unknown"), F.col("text"), "unknown")
        judged = judged.join(counts, list(WHOSE), "left").join(unknown, list(WHOSE), "left")
    else:
        absent = {"counts": "map<string,bigint>", "unknown": "map<string,string>"}
        judged = judged.withColumns({name: F.lit(None).cast(kind) for name, kind in absent.items()})
    result = (
        F.when(F.col("counts").isNotNull(), F.lit("FAIL"))
        .when(
            F.col("unknown").isNotNull() | (F.col("run") == NOT_KNOWN) | (F.col("group") == NOT_KNOWN), F.lit("UNKNOWN")
        )
        .otherwise(F.lit("PASS"))
    )
    verdicts = judged.withColumn("result", result).select(*VERDICT_COLUMNS).persist()
    violations = (
        said.where(F.col("what") == "violation")
        .select(*WHOSE, F.col("name").alias("property"), "members", "view", "witness")
        .persist()
    )
    problems = said.where(F.col("what") == "problem")
    quarantined = problems.count() if parts else 0
    some = problems.select("text").distinct().orderBy("text").limit(PROBLEMS_TOLD).collect() if quarantined else []
    if not results:
        found = {row["result"]: row["count"] for row in verdicts.groupBy("result").count().collect()}
        results = {result: found[result] for result in ("PASS", "FAIL", "UNKNOWN") if result in found}
    told = _told(verdicts, violations, results, runs_told)
    return JudgedRuns(told, quarantined, tuple(row["text"] for row in some), results, verdicts, violations)


def _files_read(files: DataFrame, told: Iterable[RunVerdict]) -> dict[str, dict[str, int]]:
    """Where the rows of the first runs lie that do not pass."""
    worst_first = sorted(told, key=lambda run: run.result != "FAIL")
    bad = [run.run for run in worst_first if run.result != "PASS"][:RUNS_LOCATED]
    found: dict[str, dict[str, int]] = {}
    if bad:
        for row in files.where(F.col("run").isin(bad)).limit(FILES_LOCATED).collect():
            found.setdefault(row["run"], {})[row["path"]] = row["bytes"]
    return found


def _as_map(said: DataFrame, value: Column, name: str) -> DataFrame:
    """By run: a map from names to values."""
    each = said.groupBy(*WHOSE, "name").agg(F.min(value).alias("value"))
    entries = F.array_sort(F.collect_list(F.struct("name", "value")))
    return each.groupBy(*WHOSE).agg(F.map_from_entries(entries).alias(name))


def _told(verdicts: DataFrame, violations: DataFrame, results: Mapping[str, int], most: int) -> tuple[RunVerdict, ...]:
    first = verdicts
    if sum(results.values()) > most:
        rank = F.when(F.col("result") == "FAIL", 0).when(F.col("result") == "UNKNOWN", 1).otherwise(2)
        first = verdicts.orderBy(rank, *WHOSE).limit(most)
    rows = sorted(first.collect(), key=lambda row: (row["run"] or "", row["group"] or ""))
    found: dict[tuple[str, str], list[RunViolation]] = {}
    if results.get("FAIL"):
        chosen = violations.join(F.broadcast(first.select(*WHOSE)), list(WHOSE), "left_semi")
        # The first of every property of every run come before the second of any.
        alike = Window.partitionBy(*WHOSE, "property").orderBy("view", "members", F.col("witness").cast("string"))
        numbered = chosen.withColumn("place", F.row_number().over(alike))
        for row in numbered.orderBy("place", *WHOSE, "property").limit(VIOLATIONS_TOLD).collect():
            whose = (row["run"], row["group"])
            members = tuple(row["members"] or ())
            found.setdefault(whose, []).append(
                RunViolation(*whose, row["property"], members, row["view"], row["witness"] or {})
            )
    return tuple(_verdict(row, found.get((row["run"], row["group"]), [])) for row in rows)


def _verdict(row: Any, found: list[RunViolation]) -> RunVerdict:
    counts = dict(sorted((row["counts"] or {}).items(), key=lambda pair: place_of(pair[0])))
    return RunVerdict(
        row["run"],
        row["group"],
        row["protocol"],
        row["result"],
        frozenset(row["owed"]),
        tuple(sorted(found, key=lambda v: (place_of(v.property), v.members))),
        row["unknown"] or {},
        row["by"],
        counts,
        tuple(row["notes"] or ()),
    )
