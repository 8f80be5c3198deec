"""From trace folders to verdicts: digests first, rows only where digests leave a doubt.

1. Workers scan each life and return facts (`scan`): digests, and suspicions.
2. Spark compares the facts (`doubtful`). A run without a doubt keeps every property that digests decide (`DECIDED_BY_DIGESTS`).
3. The rows of doubtful runs, and of runs that owe a property that digests cannot decide, are looked at: of a run that is small
   enough in one task (`whole`), of a larger one by the properties' own formulations (`properties`).

Why no doubt means no violation, for a run whose lives are all whole (step by step in docs/pipeline.md):

- P0 and the FIFO properties P2, P6, P7 are looked at row by row inside each life; so are P3, and that an own message is delivered
  after its CAST.
- Every stay delivered of each origin exactly what that origin cast in the same view, by count, xor and sum of hashes over message
  and payload digest: P1, P4, P13. That is the same for all who stayed: P5, P14.
- All stays of one (view, way) have equal digests of every block of 4,096 ordered deliveries, each hashed with its ordinal: P9.
- One sequence everywhere that is FIFO, in which every caster delivered its own message after casting it, is causal: what m's
  caster had delivered when it cast m lies before m in its own sequence, and that is everyone's (P8, where all is total).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.pipeline.bronze import Segments, life_of, list_segments
from unisono.pipeline.explain import sentence
from unisono.pipeline.pieces import scan_batches
from unisono.pipeline.properties.registry import check
from unisono.pipeline.scan import SCAN_DDL
from unisono.pipeline.session import PipelineError
from unisono.pipeline.stitch import loose_ends
from unisono.pipeline.tables import Tables, keeping, load
from unisono.pipeline.whole import BYTES_MAX, NOTHING_USABLE, ROWS_MAX, Bundle, Whose, judge_whole
from unisono.trace.checks.checker import VIOLATIONS_MAX
from unisono.trace.promises import SHOWN, owed_by
from unisono.trace.schema import TOTAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DECIDED_BY_DIGESTS = frozenset(
    {"P0", "P1", "P2", "P3", "P4", "P5", "P6", "P7", "P9a", "P9b", "P9c", "P11", "P12", "P13", "P14"}
)
RUNS_AT_ONCE = 500
PIECE_BYTES_MIN = 32 << 20
"""A piece of a life is at least so large: below that, a core has more work with finding its place than with scanning."""


@dataclass(frozen=True)
class Violation:
    run: str
    group: str
    property: str
    members: tuple[str, ...]
    view: str | None
    witness: Mapping[str, str]
    told: str | None = None
    """The sentence, where whoever found it made one."""

    def explain(self) -> str:
        """The violation as a sentence that a person can check by hand."""
        return self.told or sentence(self.property, self.members, self.view, self.witness)


@dataclass(frozen=True)
class RunVerdict:
    """The verdict on one run of one group."""

    run: str
    group: str
    protocol: str
    result: str
    owed: frozenset[str]
    violations: tuple[Violation, ...] = ()
    """The first ones of each property."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    by: str = "digests"
    """Whether digests sufficed, or rows were looked at: of the run as a `whole` in one task, or `rows` by joins."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many violations of each broken property there are."""


@dataclass(frozen=True)
class Judgement:
    """What was found in all runs."""

    runs: tuple[RunVerdict, ...]
    quarantined: int
    problems: tuple[str, ...]

    @property
    def result(self) -> str:
        results = {run.result for run in self.runs}
        if "FAIL" in results:
            return "FAIL"
        return "PASS" if results == {"PASS"} and not self.quarantined else "UNKNOWN"


Progress = Callable[[str], None]


def verify(
    spark: SparkSession,
    paths: Iterable[str | Path],
    progress: Progress = lambda text: None,
    whole_rows_max: int = ROWS_MAX,
    also: frozenset[str] = frozenset(),
) -> Judgement:
    """Judge every run below these paths; of runs that need a look at their rows, those up to `whole_rows_max` as a whole.

    `also`: properties that are asked of every run besides what its order owes, such as those of views.
    """
    files = list_segments(paths)
    progress(f"scanning {len(files)} segments")
    facts = scan(spark, files).persist()
    try:
        runs = _runs(facts)
        if not runs:
            raise PipelineError("there is no run in these files: are they a trace?")
        progress(f"comparing digests of {len(runs)} runs")
        doubts = doubtful(facts)
        misnamed = {row["note"] for row in facts.where("what = 'misnamed'").select("note").collect()}
    finally:
        facts.unpersist()
    for run in [run for run, group in runs if group == "?" and run != "?"]:
        if known := [whose for whose in runs if whose[0] == run and whose[1] != "?"]:
            del runs[run, "?"]  # a file that cannot be read is of a run that others tell of
            doubts.update(known)
    verdicts: list[RunVerdict] = []
    rest: dict[Whose, frozenset[str]] = {}
    for (run, group), about in sorted(runs.items()):
        owed = about.owed | also
        if (run, group) in doubts or "?" in (run, group):
            rest[run, group] = owed
        elif open_properties := _undecided(owed, about):
            rest[run, group] = open_properties
        else:
            verdicts.append(RunVerdict(run, group, about.protocol, "PASS", owed))
    segments = Segments(files, misnamed)
    small, large = _by_size(segments, rest, runs, whole_rows_max)
    problems: list[str] = []
    for some, judged in ((small, _judge_whole), (large, _judge_rows)):
        if some:
            progress(f"looking at the rows of {len(some)} runs")
            found, bad = judged(spark, segments, some, runs, also)
            verdicts += found
            problems += bad
    return Judgement(
        tuple(sorted(verdicts, key=lambda v: (v.run, v.group))), len(problems), tuple(sorted(set(problems)))
    )


def scan(spark: SparkSession, files: Iterable[Path], piece_bytes: int | None = None) -> DataFrame:
    """The facts of every life: one task reads the segments of some lives, the largest first; one far larger is cut into pieces."""
    lives: dict[str, list[Path]] = {}
    for file in files:
        lives.setdefault(life_of(file) or file.name, []).append(file)
    cores = spark.sparkContext.defaultParallelism
    sizes = {file: file.stat().st_size for segments in lives.values() for file in segments}
    enough = piece_bytes or max(PIECE_BYTES_MIN, sum(sizes.values()) // (2 * cores))
    pieces = [piece for segments in lives.values() for piece in _cut(sorted(segments, key=_segment_key), sizes, enough)]
    pieces.sort(key=lambda piece: -sum(sizes[path] for path in piece[0]))
    rows = [
        ([str(path.resolve()) for path in paths], [str(path.resolve()) for path in before], number, is_last)
        for paths, before, number, is_last in pieces
    ]
    slices = min(len(rows), max(2, cores * 8))
    dealt = [rows[i::slices] for i in range(slices)]  # large and small ones mixed in every task
    listing = spark.createDataFrame(
        spark.sparkContext.parallelize([row for part in dealt for row in part], slices),
        "paths array<string>, before array<string>, number int, is_last boolean",
    )
    return listing.mapInArrow(scan_batches, SCAN_DDL)


def _cut(
    segments: list[Path], sizes: Mapping[Path, int], enough: int
) -> Iterator[tuple[list[Path], list[Path], int, bool]]:
    """A life as pieces of about this size: their segments, those before them, which piece it is and whether the last."""
    start, number, size = 0, 0, 0
    for at, segment in enumerate(segments):
        size += sizes[segment]
        is_last = at == len(segments) - 1
        if is_last or size >= enough:
            yield segments[start : at + 1], segments[:start], number, is_last
            start, number, size = at + 1, number + 1, 0


def doubtful(facts: DataFrame) -> set[Whose]:
    """The (run, group)s about which digests leave a doubt."""
    from pyspark.sql import functions as F

    key = ["run", "group"]
    edges = (
        facts.where(F.col("what") == "edge").select(*key, "who", "view", "name", "number", "count", "note").collect()
    )
    if edges:
        facts = _joined(facts)
    suspects = facts.where(F.col("what") == "suspect").select(*key)
    stays = facts.where(F.col("what") == "stay").select(
        *key, "who", "view", F.col("name").alias("way"), F.col("note").alias("members")
    )
    # One member list a view (P11), and a life for every member that a view lists.
    lists = (
        stays.groupBy(*key, "view")
        .agg(F.countDistinct("members").alias("lists"))
        .where(F.col("lists") > 1)
        .select(*key)
    )
    listed = stays.select(*key, F.explode(F.split("members", ",")).alias("who")).distinct()
    lives = facts.where(F.col("what") == "life").select(*key, "who")
    strangers = listed.join(lives, [*key, "who"], "left_anti").select(*key)
    twice = lives.groupBy(*key, "who").count().where(F.col("count") > 1).select(*key)
    # The sequence of each stay as one digest of its blocks; stays of one way must agree (P9).
    blocks = (
        facts.where(F.col("what") == "block")
        .groupBy(*key, "who", "view")
        .agg(
            F.sum("count").alias("deliveries"),
            F.expr("bit_xor(xxhash64(name, number, count, xor, sum))").alias("digest"),
        )
    )
    ways = (
        stays.where(F.col("way").isNotNull())
        .join(blocks, [*key, "who", "view"], "left")
        .na.fill(0, ["deliveries", "digest"])
    )
    apart = (
        ways.groupBy(*key, "view", "way")
        .agg(F.countDistinct("deliveries", "digest").alias("sequences"))
        .where(F.col("sequences") > 1)
        .select(*key)
    )
    # What each stay delivered of each origin is what that origin cast in that view (P1, P4, P5, P13, P14).
    cast = facts.where(F.col("what") == "cast").select(
        *key, "view", F.col("who").alias("origin"), F.col("note").alias("service"), _digest().alias("cast")
    )
    origin = facts.where(F.col("what") == "origin").select(
        *key, "who", "view", F.col("name").alias("origin"), F.col("note").alias("service"), _digest().alias("delivered")
    )
    owed = stays.select(*key, "who", "view").join(cast, [*key, "view"], "inner")
    unequal = (
        owed.join(origin, [*key, "who", "view", "origin", "service"], "full")
        .where(~F.col("cast").eqNullSafe(F.col("delivered")))
        .select(*key)
    )
    parts = (suspects, lists, strangers, twice, apart, unequal)
    everything = parts[0]
    for part in parts[1:]:
        everything = everything.unionByName(part)
    return {(row["run"], row["group"]) for row in everything.distinct().collect()} | loose_ends(edges)


def _joined(facts: DataFrame) -> DataFrame:
    """The digests of pieces added up, so that they are those of whole lives."""
    from pyspark.sql import functions as F

    partial = F.col("what").isin("block", "origin", "cast")
    by_block = F.when(F.col("what") == "block", F.col("number"))
    identity = ["run", "group", "protocol", "who", "what", "view", "name", "note"]
    whole = F.lit(str(2**64)).cast("decimal(38,0)")  # sums wrap at 64 bits, and are written as signed numbers
    total = F.pmod(F.sum(F.col("sum").cast("decimal(38,0)")), whole)
    signed = F.when(total >= whole / 2, total - whole).otherwise(total).cast("bigint")
    added = (
        facts.where(partial)
        .groupBy(*identity, by_block.alias("block"))
        .agg(
            F.sum("number").alias("rows"),
            F.sum("count").alias("count"),
            F.bit_xor("xor").alias("xor"),
            signed.alias("sum"),
        )
        .withColumn("number", F.coalesce("block", "rows"))
    )
    return facts.where(~partial).unionByName(added.select(*facts.columns))


def _digest() -> Any:
    from pyspark.sql import functions as F

    return F.struct("number", "count", "xor", "sum")


@dataclass(frozen=True)
class _About:
    """What the facts say of one run."""

    protocol: str
    services: frozenset[str]
    rows: int
    orders: frozenset[str]
    """Those that it was switched to."""
    is_shown: bool = False
    """Whether something was recorded of what applications were shown."""

    @property
    def owed(self) -> frozenset[str]:
        """What all of its orders promise."""
        return owed_by(self.protocol).intersection(*map(owed_by, self.orders))


def _runs(facts: DataFrame) -> dict[Whose, _About]:
    """Every run with its order, the services that it carried, and its size."""
    from pyspark.sql import functions as F

    rows = (
        facts.groupBy("run", "group")
        .agg(
            F.min("protocol").alias("protocol"),
            F.collect_set(F.when(F.col("what").isin("origin", "cast"), F.col("note"))).alias("services"),
            F.collect_set(F.when(F.col("what") == "order", F.col("name"))).alias("orders"),
            F.sum(F.when(F.col("what").isin("life", "suspect"), F.col("number"))).alias("rows"),
            F.max(F.col("what") == "shown").alias("is_shown"),
        )
        .collect()
    )
    return {
        (row["run"], row["group"]): _About(
            row["protocol"],
            frozenset(row["services"]),
            row["rows"] or 0,
            frozenset(row["orders"]),
            bool(row["is_shown"]),
        )
        for row in rows
    }


def _undecided(owed: frozenset[str], about: _About) -> frozenset[str]:
    """The owed properties that equal digests do not decide.

    P8 is decided where every message was totally ordered, P25–P29 where nothing was recorded of what applications were shown.
    """
    left = owed - DECIDED_BY_DIGESTS
    if about.services <= {TOTAL}:
        left -= {"P8"}
    return left if about.is_shown else left - SHOWN


def _by_size(
    segments: Segments, rest: Mapping[Whose, frozenset[str]], runs: Mapping[Whose, _About], rows_max: int
) -> tuple[dict[Whose, frozenset[str]], dict[Whose, frozenset[str]]]:
    """The runs that one task can judge as a whole, and the larger ones. Files that do not tell whose they are bind all together."""
    bundles = [list(rest)] if segments.nameless else [[whose] for whose in rest]
    small: dict[Whose, frozenset[str]] = {}
    for bundle in bundles:
        rows = sum(runs[whose].rows for whose in bundle)
        size = sum(file.stat().st_size for file in segments.of_runs(run for run, _ in bundle))
        if rows <= rows_max and size <= BYTES_MAX:
            small |= {whose: rest[whose] for whose in bundle}
    return small, {whose: owed for whose, owed in rest.items() if whose not in small}


def _judge_whole(
    spark: SparkSession,
    segments: Segments,
    rest: Mapping[Whose, frozenset[str]],
    runs: Mapping[Whose, _About],
    also: frozenset[str],
) -> tuple[list[RunVerdict], list[str]]:
    """Verdicts on small runs, and what could not be read of them."""
    bundles: dict[str, dict[Whose, frozenset[str]]] = {}
    for whose, owed in rest.items():
        bundles.setdefault("" if segments.nameless else whose[0], {})[whose] = owed
    found = judge_whole(spark, [Bundle(owed, segments.of_runs({run for run, _ in owed})) for owed in bundles.values()])
    violations = {
        (run, group): [
            Violation(run, group, said["name"], tuple(said["members"]), said["view"], said["witness"], said["text"])
            for said in some
        ]
        for (run, group), some in found.violations.items()
    }
    return _verdicts(rest, runs, violations, found.counts, found.unknown, "whole", also), found.problems


def _judge_rows(
    spark: SparkSession,
    segments: Segments,
    rest: Mapping[Whose, frozenset[str]],
    runs: Mapping[Whose, _About],
    also: frozenset[str],
) -> tuple[list[RunVerdict], list[str]]:
    """Verdicts on runs of any size, by the properties' own formulations, and what could not be read of them."""
    owed_of: dict[frozenset[str], list[Whose]] = {}
    for whose, owed in rest.items():
        owed_of.setdefault(owed, []).append(whose)
    violations: dict[Whose, list[Violation]] = {}
    counts: dict[Whose, dict[str, int]] = {}
    with keeping() as keep:
        tables = load(spark, segments.of_runs({run for run, _ in rest}), keep)
        for owed, some in owed_of.items():
            for start in range(0, len(some), RUNS_AT_ONCE):
                chosen = set(some[start : start + RUNS_AT_ONCE])
                with keeping() as keep_part:
                    part = tables.of_runs({run for run, _ in chosen}).cached(keep_part)
                    rows = _first_ones(check(part, owed)).collect()
                for row in rows:
                    whose = (row["run"], row["group"])
                    if whose not in chosen:  # another group of the same run, which owes something else
                        continue
                    counts.setdefault(whose, {})[row["property"]] = row["of"]
                    members = tuple(row["members"] or ())
                    found = Violation(*whose, row["property"], members, row["view"], row["witness"])
                    violations.setdefault(whose, []).append(found)
        problems = [row["problem"] for row in tables.quarantine.select("problem").collect()]
        unknown = _unknown(tables, rest)
    return _verdicts(rest, runs, violations, counts, unknown, "rows", also), problems


def _first_ones(violations: DataFrame) -> DataFrame:
    """So many of each run, group and property as the plain checkers tell, with how many there are: a million would not fit here."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    alike = Window.partitionBy("run", "group", "property")
    numbered = violations.withColumn("of", F.count("*").over(alike)).withColumn(
        "place", F.row_number().over(alike.orderBy("view", "members", F.col("witness").cast("string")))
    )
    return numbered.where(F.col("place") <= VIOLATIONS_MAX).drop("place")


def _verdicts(
    rest: Iterable[Whose],
    runs: Mapping[Whose, _About],
    violations: Mapping[Whose, Sequence[Violation]],
    counts: Mapping[Whose, Mapping[str, int]],
    unknown: Mapping[Whose, Mapping[str, str]],
    by: str,
    also: frozenset[str],
) -> list[RunVerdict]:
    verdicts = []
    for run, group in rest:
        broken, missing = violations.get((run, group), ()), unknown.get((run, group), {})
        result = "FAIL" if broken else "UNKNOWN" if missing or "?" in (run, group) else "PASS"
        ranked = tuple(sorted(broken, key=lambda v: (_rank(v.property), v.members)))
        about, how_many = runs[run, group], counts.get((run, group), {})
        owed = about.owed | also
        verdicts.append(RunVerdict(run, group, about.protocol, result, owed, ranked, missing, by, how_many))
    return verdicts


def _unknown(tables: Tables, rest: Iterable[Whose]) -> dict[Whose, dict[str, str]]:
    """The lives of which something is missing; members of views without a trace too, and runs without any life."""
    from pyspark.sql import functions as F

    holed = tables.lives.where(F.col("unknown").isNotNull()).select("run", "group", "who", "unknown")
    listed = tables.views.select("run", "group", F.explode("members").alias("who")).distinct()
    absent = listed.join(tables.lives, ["run", "group", "who"], "left_anti").select(
        "run", "group", "who", F.lit("there is no trace of it").alias("unknown")
    )
    result: dict[Whose, dict[str, str]] = {}
    for row in holed.unionByName(absent).collect():
        result.setdefault((row["run"], row["group"]), {})[row["who"]] = row["unknown"]
    alive = {(row["run"], row["group"]) for row in tables.lives.select("run", "group").distinct().collect()}
    for whose in rest:
        if whose not in alive:
            result.setdefault(whose, {})["?"] = NOTHING_USABLE
    return result


def _rank(property: str) -> tuple[int, str]:
    return int("".join(c for c in property if c.isdigit())), property


def _segment_key(path: Path) -> tuple[str, ...]:
    return tuple(path.name.split("."))
