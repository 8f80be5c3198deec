"""P19 state transfer: the hash chain over deliveries at (view, ordinal) is equal at donor, joiner and all.

SNAPSHOT_OUT and SNAPSHOT_IN name a view, a service (null: total) and an ordinal, and carry `attributes.chain` (total) or the
order-free `attributes.digest` of all messages up to there. A life had installed the view that its snapshot names, and a donor had
delivered so far; the donor's value is the one that its own rows give; the joiner's is that of a SNAPSHOT_OUT for the same point;
and so is everyone's who holds the state. Who that is, and why, is told beside the oracle.

A point of a life is (number of its stay, ordinal). One scan a life and service gives the values at all points of
which there is a SNAPSHOT_OUT; they are compared by joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.properties.attributes import entries, no_strings, whole_lives
from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import LIFE, name_of
from unisono.trace.checks.p19_state_transfer import START, chained, is_value, summed
from unisono.trace.schema import SHOW, TOTAL

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P19"
POINT = ("run", "group", "view", "service", "ordinal")
VALUE_DDL = (
    "run string, `group` string, member string, incarnation bigint, who string, service string, view string, ordinal bigint, "
    "reached_at bigint, value string, takes_later boolean, took_here boolean"
)
_SCANNED = (*LIFE, "who", "service", "kind", "local_index", "stay_number", "ordinal", "view", "origin_who", "first",
            "count", "value")  # fmt: skip


def violations(tables: TraceTables) -> DataFrame:
    snapshots = _snapshots(tables)
    at_point = Window.partitionBy(*POINT).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    given = F.when(F.col("kind") == "SNAPSHOT_OUT", F.coalesce("value", F.lit("none")))
    lives = tables.lives.select(*LIFE, "holed")
    whole = whole_lives(tables).groupBy("run", "group").agg(F.collect_set("who").alias("whole"))
    mine = F.get(F.filter("holders", lambda one: one["who"] == F.col("who")), F.lit(0))
    found = (
        snapshots.withColumn("given", F.array_sort(F.collect_set(given).over(at_point)))
        .join(lives, list(LIFE), "inner")
        .join(whole, ["run", "group"], "left")
        .join(_holders(tables, snapshots), list(POINT), "left")
        .withColumn("mine", mine)
        .withColumn("fault", F.explode(F.array_union(F.array_compact(F.array(*_own_faults())), _others())))
    )
    return violation(
        found,
        PROPERTY,
        F.array_compact(F.array("who", "fault.other")),
        {
            "what": "fault.what",
            "local": "local_index",
            "ordinal": "ordinal",
            "service": "service",
            "value": "value",
            "given": F.concat_ws(", ", "given"),
            "computed": "mine.value",
            "theirs": "fault.theirs",
        },
    )


def _fault(what: str, other: Column | None = None, theirs: Column | None = None) -> Column:
    absent = F.lit(None).cast("string")
    return F.struct(
        F.lit(what).alias("what"),
        (absent if other is None else other).alias("other"),
        (absent if theirs is None else theirs).alias("theirs"),
    )


def _is_donor() -> Column:
    """A snapshot that was given away by a life without a gap, in a view that it had installed, as far as it had delivered."""
    reached = F.coalesce(F.col("mine.reached_at") < F.col("local_index"), F.lit(False))
    return (F.col("kind") == "SNAPSHOT_OUT") & F.col("stay_number").isNotNull() & ~F.col("holed") & reached


def _own_faults() -> list[Column]:
    """What may be wrong with a snapshot by itself, each a fault or null."""
    installed = F.col("stay_number").isNotNull()
    takes = F.col("kind") == "SNAPSHOT_IN"
    was_given = F.coalesce(F.array_contains("given", F.col("value")), F.lit(False))
    lost = F.array_except("members", F.coalesce("whole", no_strings()))
    is_wrong = F.col("mine.value").isNotNull() & ~F.col("value").eqNullSafe(F.col("mine.value"))
    return [
        F.when(~installed & ~F.col("holed"), _fault("foreign view")),
        F.when(takes & installed & ~was_given & ((F.size("given") > 0) | (F.size(lost) == 0)), _fault("joiner")),
        F.when(~takes & installed & ~F.col("holed") & ~_is_donor(), _fault("not reached")),
        F.when(_is_donor() & is_wrong, _fault("donor")),
    ]


def _others() -> Column:
    """Members that hold the state at a donor's point, with another value there."""

    def differs(one: Column) -> Column:
        previous = F.col("mine.previous_view")
        came_along = previous.eqNullSafe(one["previous_view"]) & (
            previous.isNull() | F.array_contains(F.coalesce("mine.transitional", no_strings()), one["who"])
        )
        holds = (one["way"] == F.col("mine.way")) & one["reached_at"].isNotNull() & ~one["takes_later"] & one["live"]
        differs = (one["who"] != F.col("who")) & ~one["holed"] & (one["value"] != F.col("mine.value"))
        return F.coalesce(holds & (came_along | one["took_here"]) & differs, F.lit(False))

    everywhere = (F.col("service") == TOTAL) | (F.col("ordinal") == 0)
    apart = F.transform(F.filter("holders", differs), lambda one: _fault("other", one["who"], one["value"]))
    return F.when(_is_donor() & everywhere, apart).otherwise(F.array().cast(_FAULTS))


_FAULTS = "array<struct<what:string,other:string,theirs:string>>"


def _holders(tables: TraceTables, snapshots: DataFrame) -> DataFrame:
    """For each point of which there is a SNAPSHOT_OUT: all who installed the view, their values, how they came and went."""
    ways = entries(tables).select(*LIFE, "view", F.when(~F.col("cut"), F.col("way")).alias("way"))
    came = _numbered(tables).select(*LIFE, "view", "previous_view", "transitional")
    one = F.struct(
        "who",
        "reached_at",
        "value",
        "takes_later",
        "took_here",
        "way",
        "previous_view",
        "transitional",
        "holed",
        "live",
    )
    shown = tables.events.where(F.col("kind") == SHOW).select(*LIFE, "view").distinct().withColumn("shown", F.lit(True))
    told = shown.select("run", "group").distinct().withColumn("told", F.lit(True))
    return (
        _values(tables, snapshots)
        .join(ways, [*LIFE, "view"], "inner")
        .join(came, [*LIFE, "view"], "inner")
        .join(tables.lives.select(*LIFE, "holed"), list(LIFE), "inner")
        .join(shown, [*LIFE, "view"], "left")
        .join(told, ["run", "group"], "left")
        .withColumn("live", F.col("shown").isNotNull() | F.col("told").isNull())
        .groupBy(*POINT)
        .agg(F.collect_list(one).alias("holders"))
    )


def _numbered(tables: TraceTables) -> DataFrame:
    """Where each life installed each view first, and its how-manieth view that was."""
    order = Window.partitionBy(*LIFE).orderBy("local_index")
    numbered = tables.views.withColumn("stay_number", F.row_number().over(order).cast("bigint"))
    first = F.min(F.struct("local_index", "stay_number", "previous_view", "transitional", "members"))
    return (
        numbered.groupBy(*LIFE, "view")
        .agg(first.alias("at"))
        .select(
            *LIFE,
            "view",
            F.col("at.local_index").alias("installed_at"),
            F.col("at.stay_number").alias("stay_number"),
            F.col("at.previous_view").alias("previous_view"),
            F.col("at.transitional").alias("transitional"),
            F.col("at.members").alias("members"),
        )
    )


def _snapshots(tables: TraceTables) -> DataFrame:
    """SNAPSHOT rows; `stay_number` is null where the life had not installed the view."""
    service = F.coalesce("service", F.lit(TOTAL))
    rows = tables.events.where(F.col("kind").isin("SNAPSHOT_IN", "SNAPSHOT_OUT")).select(
        *LIFE,
        name_of(F.col("member"), F.col("incarnation")).alias("who"),
        "kind",
        "view",
        "local_index",
        service.alias("service"),
        F.coalesce("ordinal", F.lit(0)).cast("bigint").alias("ordinal"),
        F.when(service == TOTAL, F.col("attributes")["chain"]).otherwise(F.col("attributes")["digest"]).alias("value"),
    )
    numbered = _numbered(tables).select(*LIFE, "view", "installed_at", "stay_number", "members")
    return rows.join(numbered, [*LIFE, "view"], "left").withColumn(
        "stay_number", F.when(F.col("installed_at") < F.col("local_index"), F.col("stay_number"))
    )


def _values(tables: TraceTables, snapshots: DataFrame) -> DataFrame:
    """What the rows of each life give for every point of which there is a SNAPSHOT_OUT, in views that it installed."""
    numbered = _numbered(tables)
    points = snapshots.where(F.col("kind") == "SNAPSHOT_OUT").select(*POINT).distinct()
    who = name_of(F.col("member"), F.col("incarnation"))
    nothing = {
        "origin_who": F.lit(None).cast("string"),
        "first": F.lit(0).cast("bigint"),
        "count": F.lit(0).cast("bigint"),
    }
    asked = (
        points.join(numbered.select(*LIFE, "view", "stay_number"), ["run", "group", "view"], "inner")
        .withColumns({"who": who, "kind": F.lit("POINT"), "local": F.lit(-1).cast("bigint"), **nothing})
        .withColumn("value", F.lit(None).cast("string"))
    )
    taken = snapshots.where((F.col("kind") == "SNAPSHOT_IN") & F.col("stay_number").isNotNull()).withColumns(nothing)
    delivered = _deliveries(tables).join(points.select("run", "group").distinct(), ["run", "group"], "left_semi")
    rows = [table.select(*_SCANNED) for table in (asked, taken, delivered)]
    return rows[0].unionByName(rows[1]).unionByName(rows[2]).groupBy(*LIFE, "service").applyInArrow(_scan, VALUE_DDL)


def _deliveries(tables: TraceTables) -> DataFrame:
    before = Window.partitionBy(*LIFE).orderBy("local_index").rowsBetween(Window.unboundedPreceding, -1)
    number = F.count(F.when(F.col("kind") == "VIEW", 1)).over(before)
    return (
        tables.events.withColumn("stay_number", number)
        .where(F.col("kind").isin("DELIVER", "PLACE"))
        .withColumn("who", name_of(F.col("member"), F.col("incarnation")))
        .withColumn("origin_who", name_of(F.col("origin"), F.col("origin_incarnation")))
        .withColumn("value", F.lit(None).cast("string"))
    )


def _scan(table: pyarrow.Table) -> pyarrow.Table:
    """The values of one life and service at the points that are asked for."""
    rows: list[dict[str, Any]] = table.sort_by([("local_index", "ascending")]).to_pylist()
    step = chained if rows[0]["service"] == TOTAL else summed

    def point(row: dict[str, Any]) -> tuple[int, int]:
        return row["stay_number"], row["ordinal"]

    taken = [row for row in rows if row["kind"] == "SNAPSHOT_IN"]
    delivered = [row for row in rows if row["kind"] in ("DELIVER", "PLACE")]
    told = []
    for asked in (row for row in rows if row["kind"] == "POINT"):
        at = point(asked)
        before = [row for row in taken if point(row) <= at]
        last = max(before, key=lambda row: (*point(row), row["local_index"])) if before else None
        base = point(last) if last else (0, 0)
        value: str | None = last["value"] if last else START
        ends = [row["local_index"] for row in delivered if point(row) == (at[0], at[1] - 1)]
        reached_at = -1 if at[1] == 0 else min(ends, default=None)
        if value is None or not is_value(value):
            value = None
        else:
            for row in delivered:
                if base <= point(row) < at:
                    for index in range(row["first"], row["first"] + row["count"]):
                        value = step(value, f"{row['origin_who']}:{index}")
        key = [asked[name] for name in (*LIFE, "who", "service", "view", "ordinal")]
        later = any(point(row) > at for row in taken)
        told.append((*key, reached_at, value, later, any(row["stay_number"] == at[0] for row in before)))
    return as_table(told, VALUE_DDL)
