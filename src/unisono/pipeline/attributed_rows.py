"""Silver, the second half: rows in their stays, and deliveries beside their casts.

A row belongs to the stay that its life installed last, if it names that view; otherwise to the stay of the view that it
does name (P0 objects), or to none. `stay` is the local index of the stay's VIEW row. Where rows of a stay are missing,
nothing may be concluded from the absence of a row: `holed` says so for the stay up to this row, `stay_holed` for the
whole stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.tables import LIFE, first_index, name_of, order_said

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ORIGIN = ("run", "group", "origin", "origin_incarnation")
CAST = ("cast_first", "cast_count", "cast_local", "cast_view", "cast_service", "cast_destinations", "cast_digest")
_BATCH = (
    "origin",
    "origin_incarnation",
    "origin_who",
    "first",
    "count",
    "service",
    "destinations",
    "ordinal",
    "digest",
)


def marked(events: DataFrame) -> DataFrame:
    """Every row with what its life had said before: the row before it, the view installed last, the last gap up to here."""
    order = Window.partitionBy(*LIFE).orderBy("local_index", "time_ns")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    installs = F.col("kind") == "VIEW"
    return (
        events.withColumn("previous", F.lag("local_index").over(order))
        .withColumn("missing", F.col("local_index") > F.coalesce(F.col("previous") + 1, first_index(events)))
        .select(
            *LIFE,
            name_of(F.col("member"), F.col("incarnation")).alias("who"),
            "local_index",
            "kind",
            "view",
            "origin",
            "origin_incarnation",
            name_of(F.col("origin"), F.col("origin_incarnation")).alias("origin_who"),
            *_BATCH[3:],
            F.coalesce(F.col("attributes")["void"] == "true", F.lit(False)).alias("void"),
            F.col("attributes")["vector"].alias("vector"),
            "previous",
            "protocol",
            F.lag("protocol").over(order).alias("protocol_before"),
            F.last(F.when(installs, order_said()), ignorenulls=True).over(before).alias("order"),
            F.last(F.when(installs, F.col("local_index")), ignorenulls=True).over(before).alias("installed_at"),
            F.last(F.when(installs, F.col("view")), ignorenulls=True).over(before).alias("installed"),
            F.max(F.when(F.col("missing"), F.col("local_index"))).over(so_far).alias("gap_at"),
        )
    )


def attributed_rows(events: DataFrame, stays: DataFrame) -> DataFrame:
    """CAST, DELIVER and PLACE rows with the stay that they belong to."""
    rows = marked(events).where(F.col("kind").isin("CAST", "DELIVER", "PLACE"))
    rows = rows.withColumn("in_time", F.col("view").eqNullSafe(F.col("installed")))
    key = (*LIFE, "view")
    its_stays = stays.select(
        *(F.col(name).alias(f"its_{name}") for name in key),
        F.col("from_index").alias("stay"),
        "members",
        F.col("holed").alias("was_holed"),
        "first_word",
    )
    there = F.when(F.col("in_time"), F.col("stay") == F.col("installed_at")).otherwise(
        F.col("first_word") & (F.col("stay") < F.col("local_index"))
    )
    joined = rows.join(its_stays, [*(F.col(name) == F.col(f"its_{name}") for name in key), there], "left")
    return joined.select(
        *LIFE,
        "who",
        "local_index",
        "kind",
        "view",
        *_BATCH,
        "void",
        "vector",
        "stay",
        "members",
        F.when(F.col("stay").isNull(), F.lit(True))
        .when(F.col("in_time"), F.coalesce(F.col("gap_at") > F.col("stay"), F.lit(False)))
        .otherwise(F.col("was_holed"))
        .alias("holed"),
        F.coalesce("was_holed", F.lit(True)).alias("stay_holed"),
    )


def batches(casts: DataFrame) -> DataFrame:
    """One row a batch that was cast, in the words of a delivery of it. Of two with the same first index the later one counts."""
    last = F.max_by(
        F.struct(F.col("count"), F.col("local_index"), F.col("view"), "service", "destinations", "digest"),
        "local_index",
    )
    return (
        casts.groupBy(*ORIGIN, "origin_who", "first")
        .agg(last.alias("cast"))
        .select(
            *ORIGIN,
            "origin_who",
            "first",
            F.col("cast.count").alias("count"),
            F.col("cast.local_index").alias("cast_local"),
            F.col("cast.view").alias("cast_view"),
            F.col("cast.service").alias("cast_service"),
            F.col("cast.destinations").alias("cast_destinations"),
            F.col("cast.digest").alias("cast_digest"),
        )
    )


def parts(attributed: DataFrame, casts: DataFrame) -> DataFrame:
    """Deliveries beside their casts. A row that is cut like its cast is one part; any other is taken apart into messages.

    The columns of `CAST` are null for messages without a CAST.
    """
    cast = batches(casts).withColumns({"cast_first": F.col("first"), "cast_count": F.col("count")})
    rows = attributed.where(F.col("kind") != "CAST").withColumns(
        {"row_first": F.col("first"), "row_count": F.col("count")}
    )
    alike = rows.join(cast.select(*ORIGIN, "first", "count", *CAST), [*ORIGIN, "first", "count"], "left")
    others = alike.where(F.col("cast_local").isNull()).drop(*CAST)
    single = others.withColumn("first", each_index()).withColumn("count", F.lit(1).cast("bigint"))
    messages = cast.withColumn("first", each_index()).select(*ORIGIN, "first", *CAST)
    apart = single.join(messages, [*ORIGIN, "first"], "left")
    return alike.where(F.col("cast_local").isNotNull()).unionByName(apart)


def each_index() -> Column:
    """The indices of a batch, one a row."""
    return F.explode(F.sequence(F.col("first"), F.col("first") + F.col("count") - 1))
