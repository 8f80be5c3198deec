"""P17 safe: a safe message is delivered only after this member's STABLE for it, and when all members have it.

A message is safe if its CAST row has `attributes.safe` = ``true``. Where p delivers it in V, its STABLE rows before cover it; it
received (or cast) it before, and every other member of V has its RECEIVE (the origin: its CAST). While p is blocked for a
view change, the transitional set of its next view is asked instead of V; p alone if it never got there. Nothing is
concluded from the absence of rows of a life that is not whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.attributed_rows import each_index
from unisono.pipeline.properties.attributes import is_true, no_strings, whole_lives
from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import LIFE, name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P17"
MESSAGE = ("run", "group", "origin_who", "index")
ROW = ("run", "group", "who", "local_index", "view")


def violations(tables: TraceTables) -> DataFrame:
    rows = _delivered(tables)
    marks = _marks(tables)
    own = rows.join(marks, [*MESSAGE, "who"], "left").select(
        *ROW,
        "messages",
        (~F.col("holed") & ~F.coalesce(F.col("stable_at") < F.col("local_index"), F.lit(False))).alias("unstable"),
        (~F.col("holed") & ~F.coalesce(F.col("held_at") < F.col("local_index"), F.lit(False))).alias("unreceived"),
    )
    held = marks.where(F.col("held_at").isNotNull()).select(*MESSAGE, F.col("who").alias("other"), "held_at")
    others = (
        rows.withColumn("other", F.explode("asked"))
        .where(F.col("other") != F.col("who"))
        .join(whole_lives(tables).withColumnRenamed("who", "other"), ["run", "group", "other"], "inner")
        .join(held, [*MESSAGE, "other"], "left_anti")
        .select(*ROW, "messages", "other")
    )
    unstable = own.where(F.col("unstable")).select(*ROW, "messages").distinct()
    lacking = (
        own.where(F.col("unreceived"))
        .select(*ROW, "messages", F.col("who").alias("other"))
        .unionByName(others)
        .groupBy(*ROW, "messages")
        .agg(F.array_sort(F.collect_set("other")).alias("lacking"))
    )
    return violation(
        unstable,
        PROPERTY,
        F.array("who"),
        {"what": F.lit("unstable"), "local_index": "local_index", "messages": "messages"},
    ).unionByName(
        violation(
            lacking,
            PROPERTY,
            F.concat(F.array("who"), F.array_remove("lacking", F.col("who"))),
            {
                "what": F.lit("not held"),
                "local_index": "local_index",
                "messages": "messages",
                "lacking": F.concat_ws(", ", "lacking"),
            },
        )
    )


def _delivered(tables: TraceTables) -> DataFrame:
    """The safe messages that each member delivered in the view that it had installed, and who is asked whether it has them."""
    before = Window.partitionBy(*LIFE).orderBy("local_index").rowsBetween(Window.unboundedPreceding, -1)
    state = F.when(F.col("kind").isin("VIEW", "BLOCK", "UNBLOCK"), F.col("kind"))
    installed = F.when(F.col("kind") == "VIEW", F.col("local_index"))
    delivers = (
        tables.events.select(
            *LIFE, "local_index", "kind", "view", "origin", "origin_incarnation", "first", "count",
            F.last(state, ignorenulls=True).over(before).alias("state"),
            F.last(installed, ignorenulls=True).over(before).alias("from_index"),
        )
        .where(F.col("kind") == "DELIVER")
        .withColumn("origin_who", name_of(F.col("origin"), F.col("origin_incarnation")))
    )  # fmt: skip
    stays = tables.stays.select(*LIFE, "who", "view", "from_index", "members", "next_transitional")
    holed = tables.lives.select(*LIFE, "holed")
    asked = F.when(F.col("state") == "BLOCK", F.coalesce("next_transitional", no_strings())).otherwise(F.col("members"))
    safe = (
        tables.casts.where(is_true("safe"))
        .withColumn("cast_local", F.col("local_index"))
        .select("run", "group", "origin_who", "cast_local", each_index().alias("index"))
    )
    own_before = (F.col("origin_who") != F.col("who")) | (F.col("cast_local") < F.col("local_index"))
    row = Window.partitionBy("run", "group", "who", "local_index")
    return (
        delivers.join(stays, [*LIFE, "view", "from_index"], "inner")
        .join(holed, list(LIFE), "inner")
        .select(*ROW, "holed", asked.alias("asked"), "origin_who", each_index().alias("index"))
        .join(safe, list(MESSAGE), "inner")
        .where(own_before)
        .withColumn(
            "messages",
            F.concat_ws(", ", F.array_sort(F.collect_set(F.concat_ws(":", "origin_who", "index")).over(row))),
        )
    )


def _marks(tables: TraceTables) -> DataFrame:
    """When each member first had each message, and when it first knew it to be stable."""
    return (
        tables.events.where(F.col("kind").isin("RECEIVE", "CAST", "STABLE"))
        .select(
            "run",
            "group",
            name_of(F.col("member"), F.col("incarnation")).alias("who"),
            name_of(F.col("origin"), F.col("origin_incarnation")).alias("origin_who"),
            "local_index",
            "kind",
            each_index().alias("index"),
        )
        .groupBy(*MESSAGE, "who")
        .agg(
            F.min(F.when(F.col("kind") != "STABLE", F.col("local_index"))).alias("held_at"),
            F.min(F.when(F.col("kind") == "STABLE", F.col("local_index"))).alias("stable_at"),
        )
    )
