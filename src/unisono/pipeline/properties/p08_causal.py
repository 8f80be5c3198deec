"""P8 on Spark: pasts are computed in rounds.

A past is a **frontier**, one number an origin: how many of the messages that the origin cast in this view are in it. That loses
nothing, because what an origin cast earlier is in the past of what it cast later. In a large view, no process sees more than one
member's rows, and those as a stream: it keeps a few numbers an origin.

- Round 0 takes for the past of a CAST what its caster had cast and delivered itself. That is a lower bound.
- Each further round gives every delivery the past that its message had in the round before. The member knows that too
  from there on, so the pasts of its later casts may grow. When those of a view do not, they are the least solution of
  the definition, which is the past; and the deliveries of that round are judged by it.

If a member had delivered the whole past of a message before the message, that past adds nothing to what it knew. So in
a view that keeps P8 without exemptions nothing grows in round 1, and that round is the last. Otherwise there are as many
rounds as deliveries that came before a part of their past can follow one another, each in the past of the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import gt
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.attributed_rows import each_index
from unisono.pipeline.properties.base import violation
from unisono.pipeline.properties.scanning import computed_once
from unisono.trace.checks.spans import Spans
from unisono.trace.schema import TOTAL

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

ROWS_MAX = 200_000
"""Maximum number of rows of a view whose rounds are made in one task: for little data, planning costs more than scanning."""
ROWS_A_BATCH = 10_000
VIEW = ("run", "group", "view")
BATCH = (*VIEW, "origin_who", "cast_first")
_ROW = (
    *VIEW, "who", "stay", "local_index", "kind", "holed", "origin_who", "first", "service", "cast_first", "early", "origin",
    "start", "stop", "ranks", "size",
)  # fmt: skip
_SCAN_DDL = (
    "run string, `group` string, view string, who string, stay bigint, local_index bigint, origin_who string, "
    "first bigint, is_total boolean, past array<bigint>, missed int, start bigint, stop bigint"
)
"""One row is the past of a CAST (`past`), or a part of a delivery's past that was not delivered before it (`missed`:
the messages `start … stop-1` of the member of this rank)."""


def violations(tables: TraceTables) -> DataFrame:
    casts = _placed(tables.attributed.where(F.col("kind") == "CAST"))
    rows = computed_once(_rows(tables, casts))
    large = computed_once(rows.groupBy(*VIEW).count().where(F.col("count") > ROWS_MAX).select(*VIEW))
    small = rows if large.isEmpty() else rows.join(large, list(VIEW), "left_anti")
    missed = [small.groupBy(*VIEW).applyInArrow(_all_rounds, _SCAN_DDL)]
    if not large.isEmpty():
        missed += _rounds(rows.join(large, list(VIEW), "left_semi"))
    return _violations(tables, reduce(lambda one, other: one.unionByName(other), missed), casts)


def _rounds(rows: DataFrame) -> Iterator[DataFrame]:
    """What was missed in views too large for one task, as soon as no past of theirs grows any more."""
    before = computed_once(_scanned(rows, None))
    while True:
        now = computed_once(_scanned(rows, before))
        grown = computed_once(_grown(before, now))
        yield now.where(F.col("missed").isNotNull()).join(grown, list(VIEW), "left_anti")
        if grown.isEmpty():
            return
        rows, before = (computed_once(table.join(grown, list(VIEW), "left_semi")) for table in (rows, now))


def _placed(casts: DataFrame) -> DataFrame:
    """The batches of each origin and view, with the numbers `start … stop-1` that their messages have among all of them."""
    before = (
        Window.partitionBy(*VIEW, "origin_who")
        .orderBy("first", "local_index")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    end = F.col("first") + F.col("count")
    return (
        casts.withColumn("begin", F.greatest("first", F.coalesce(F.max(end).over(before), F.col("first"))))
        .withColumn("messages", F.greatest(end - F.col("begin"), F.lit(0)))
        .withColumn("start", F.coalesce(F.sum("messages").over(before), F.lit(0)))
        .withColumn("stop", F.col("start") + F.col("messages"))
    )


def _rows(tables: TraceTables, casts: DataFrame) -> DataFrame:
    """CAST, DELIVER and PLACE rows of each view, with messages and members as numbers."""
    same_view = F.col("cast_view").isNull() | (F.col("cast_view") == F.col("view"))
    delivered = tables.parts.where(same_view).withColumn("service", F.col("cast_service"))
    batches = casts.groupBy(*VIEW, "origin_who", F.col("first").alias("cast_first")).agg(
        F.max_by(F.struct("begin", "start", "stop"), "local_index").alias("at")
    )
    inside = delivered.join(batches, list(BATCH), "inner").withColumns(
        {
            "start": F.least("at.stop", F.col("at.start") + F.greatest(F.col("first") - F.col("at.begin"), F.lit(0))),
            "stop": F.least(
                "at.stop",
                F.col("at.start") + F.greatest(F.col("first") + F.col("count") - F.col("at.begin"), F.lit(0)),
            ),
        }
    )
    every = (
        casts.withColumns({"cast_first": F.col("first"), "cast_local": F.col("local_index")})
        .unionByName(inside, allowMissingColumns=True)
        .unionByName(_uncast(delivered, casts), allowMissingColumns=True)
    )
    # Rows of a view whose VIEW row is missing still hand on what they know, by the list that others have.
    lists = tables.views.groupBy(*VIEW).agg(
        F.min("members").alias("list"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_set("members")))).alias("names"),
    )
    members = F.coalesce("members", "list", F.array().cast("array<string>"))
    return (
        every.join(lists, list(VIEW), "left")
        .withColumn("members", members)
        .withColumns(
            {
                "early": (F.col("who") == F.col("origin_who")) & (F.col("local_index") < F.col("cast_local")),
                "origin": F.when(
                    F.array_contains("members", F.col("origin_who")), F.array_position("names", F.col("origin_who")) - 1
                ).cast("int"),
                "ranks": F.transform("members", lambda name: F.array_position("names", name).cast("int") - 1),
                "size": F.coalesce(F.size("names"), F.lit(0)),
            }
        )
        .select(*_ROW)
    )


def _uncast(delivered: DataFrame, casts: DataFrame) -> DataFrame:
    """Deliveries of what was cast by no row: they come after what their origin cast with a lower index."""
    lower = (
        Window.partitionBy(*VIEW, "origin_who")
        .orderBy("first", F.col("kind") != "CAST")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    rows = delivered.where(F.col("cast_first").isNull())
    both = rows.unionByName(casts.select(*VIEW, "origin_who", "first", "kind", "stop"), allowMissingColumns=True)
    below = both.withColumn("start", F.coalesce(F.max("stop").over(lower), F.lit(0)))
    return below.where(F.col("kind") != "CAST").withColumn("stop", F.col("start"))


def _scanned(rows: DataFrame, before: DataFrame | None) -> DataFrame:
    """One round: the pasts of casts, and what was missed, with the pasts that messages had in the round before."""
    if before is None:
        given = rows.withColumn("past", F.lit(None).cast("array<bigint>"))
    else:
        pasts = before.where(F.col("past").isNotNull()).groupBy(*VIEW, "origin_who", F.col("first").alias("cast_first"))
        latest = pasts.agg(F.max_by("past", "local_index").alias("past"))
        given = rows.join(latest, list(BATCH), "left")
    life = (*VIEW, "who")
    return given.repartition(*life).sortWithinPartitions(*life, "local_index", "first").mapInArrow(_scan, _SCAN_DDL)


def _grown(before: DataFrame, now: DataFrame) -> DataFrame:
    """The views of which some past has grown. Pasts only ever grow, so their sum tells."""
    total = F.aggregate("past", F.lit(0).cast("bigint"), lambda one, other: one + other).cast("decimal(38,0)")

    def sums(pasts: DataFrame, name: str) -> DataFrame:
        return pasts.where(F.col("past").isNotNull()).groupBy(*VIEW).agg(F.sum(total).alias(name))

    both = sums(before, "before").join(sums(now, "now"), list(VIEW), "inner")
    return both.where(F.col("before") != F.col("now")).select(*VIEW)


def _violations(tables: TraceTables, missed: DataFrame, casts: DataFrame) -> DataFrame:
    """What was missed, message by message, without what the member did not have to wait for."""
    names = tables.views.groupBy(*VIEW).agg(
        F.array_sort(F.array_distinct(F.flatten(F.collect_set("members")))).alias("names")
    )
    each = F.explode(F.sequence("start", F.col("stop") - 1))
    past = casts.where(F.col("start") < F.col("stop")).select(
        *VIEW,
        F.col("origin_who").alias("past_caster"),
        F.col("local_index").alias("past_local"),
        F.col("service").alias("past_service"),
        "destinations",
        (F.col("begin") - F.col("start")).alias("shift"),
        each.alias("number"),
    )
    voids = tables.parts.where(F.col("void") & (F.col("kind") == "PLACE") & F.col("cast_destinations").isNotNull())
    void = voids.select(
        *VIEW,
        "who",
        F.col("origin_who").alias("past_caster"),
        each_index().alias("past_index"),
        F.lit(True).alias("void"),
    ).distinct()
    waits = F.col("is_total") | (F.col("past_service") != TOTAL)
    addressed = F.col("destinations").isNull() | F.array_contains("destinations", F.col("who"))
    found = (
        missed.join(names, list(VIEW), "inner")
        .withColumn("past_caster", F.get("names", F.col("missed")))
        .withColumn("number", each)
        .drop("past")
        .join(past, [*VIEW, "past_caster", "number"], "inner")
        .withColumn("past_index", F.col("number") + F.col("shift"))
        .where(waits & addressed)
        .join(void, [*VIEW, "who", "past_caster", "past_index"], "left")
        .where(F.col("void").isNull())
    )
    witness: dict[str, Column | str] = {
        "message": F.concat_ws(":", "origin_who", "first"),
        "local": "local_index",
        "past": F.concat_ws(":", "past_caster", "past_index"),
        "past_caster": "past_caster",
        "past_local": "past_local",
    }
    return violation(found, "P8", F.array("who"), witness)


# On the workers.


@dataclass
class _Stay:
    """What one stay knows and has delivered, by the rank of the origin."""

    members: Sequence[int]
    known: list[int]
    delivered_to: list[int]
    """Everything that the origin cast in this view below it was delivered or placed here."""
    told: dict[bool, list[int]]
    """Below it, what is missing was told already: by messages that are `total` (True), and by others."""
    beyond: dict[int, Spans] = field(default_factory=dict)

    @classmethod
    def begin(cls, members: Sequence[int], size: int) -> _Stay:
        return cls(members, [0] * size, [0] * size, {True: [0] * size, False: [0] * size})

    def take(self, origin: int, start: int, stop: int) -> None:
        self.known[origin] = max(self.known[origin], stop)
        if start == self.delivered_to[origin] and origin not in self.beyond:
            self.delivered_to[origin] = stop
        elif stop > start:
            spans = self.beyond.setdefault(origin, Spans())
            spans.add(start, stop)
            if spans.firsts[0] <= self.delivered_to[origin]:
                self.delivered_to[origin] = spans.drop_below(self.delivered_to[origin])
            if not spans:
                del self.beyond[origin]

    def missed(self, past: list[int], origin: int, start: int, is_total: bool) -> Iterator[tuple[int, int, int]]:
        """Parts of the past of a message (number `start` of `origin`) that were neither delivered nor told."""
        for one in self.members:
            bound = start if one == origin else past[one]
            first = max(self.delivered_to[one], self.told[True][one], 0 if is_total else self.told[False][one])
            if first < bound:
                spans = self.beyond.get(one)
                for low, high in spans.outside(first, bound) if spans else [(first, bound)]:
                    yield one, low, high
            self.told[is_total][one] = max(self.told[is_total][one], bound)


Row: TypeAlias = tuple[Any, ...]
"""The columns `_ROW`, and at the end the past that the message had in the round before, if known."""


def _said(rows: Iterable[Row]) -> Iterator[Row]:
    """What the rows of lives say, view by view, each in its order. Kept are the stays of one life in one view."""
    whose: list[Any] | None = None
    stays: dict[int | None, _Stay] = {}
    for row in rows:
        *its, at, local, kind, holed, origin_who, first, service, _, early, origin, start, stop, ranks, size, past = row
        if its != whose:
            whose, stays = its, {}
        stay = stays.get(at)
        if stay is None:
            stay = stays[at] = _Stay.begin(sorted(set(ranks)), size)
        if kind == "CAST":
            yield (*its, at, local, origin_who, first, None, stay.known.copy(), None, None, None)
            if origin is not None:
                stay.known[origin] = max(stay.known[origin], stop)
        elif origin is not None:
            is_clean = start <= stay.delivered_to[origin] and True not in map(gt, past or (), stay.delivered_to)
            if past is not None and not early and not is_clean:
                total = service == TOTAL
                if kind == "DELIVER" and not holed:
                    for missed in stay.missed(past, origin, start, total):
                        yield (*its, at, local, origin_who, first, total, None, *missed)
                for one in stay.members:
                    stay.known[one] = max(stay.known[one], past[one])
            stay.take(origin, start, stop)


def _scan(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """One round over the rows of large views, which come life by life."""
    names = (*_ROW, "past")
    rows = (row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True))
    said = _said(rows)
    while some := list(islice(said, ROWS_A_BATCH)):
        yield from as_table(some, _SCAN_DDL).to_batches()


def _all_rounds(table: pyarrow.Table) -> pyarrow.Table:
    """All rounds over the rows of one small view; what was missed in the last of them."""
    order = [(name, "ascending") for name in ("who", "local_index", "first")]
    columns = table.sort_by(order).select(list(_ROW)).to_pydict()
    rows = list(zip(*columns.values(), strict=True))
    batches = list(zip(columns["origin_who"], columns["cast_first"], strict=True))
    pasts: dict[tuple[str, int], list[int]] = {}
    while True:
        said = list(_said((*row, pasts.get(batch)) for row, batch in zip(rows, batches, strict=True)))
        before, pasts = pasts, {(row[6], row[7]): row[9] for row in said if row[9] is not None}
        if pasts == before:
            return as_table((row for row in said if row[9] is None), _SCAN_DDL)
