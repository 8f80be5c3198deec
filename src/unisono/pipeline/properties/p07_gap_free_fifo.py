"""P7 on Spark.

For each stay and origin, every index from the first of the view on is asked: where was it delivered here, and where the
earliest message with a higher index? The latter is a running minimum along falling indices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.attributed_rows import ORIGIN, batches, each_index
from unisono.pipeline.properties.base import violation
from unisono.pipeline.properties.relations import STAY
from unisono.trace.schema import DATAGRAM, TOTAL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables


def violations(tables: TraceTables) -> DataFrame:
    of_origin = (*STAY, "who", "origin", "origin_incarnation", "origin_who")
    in_view = (
        F.col("stay").isNotNull()
        & F.array_contains("members", F.col("origin_who"))
        & (F.col("cast_view").isNull() | (F.col("cast_view") == F.col("view")))
    )
    rows = tables.parts.where(in_view)
    judged = ~F.col("holed") & ~(F.col("void") & (F.col("kind") == "PLACE"))
    asks = rows.where(judged).select(*of_origin, F.col("first").alias("index"), _ask().alias("ask"))
    answers = rows.select(
        *of_origin,
        "local_index",
        (F.col("void") & (F.col("kind") == "PLACE")).alias("void"),
        each_index().alias("index"),
    )
    answers = answers.groupBy(*of_origin, "index").agg(F.min("local_index").alias("here"), F.max("void").alias("void"))
    questions = _indices(tables, rows, of_origin).join(answers, [*of_origin, "index"], "left")
    higher = (
        Window.partitionBy(*of_origin)
        .orderBy(F.col("index").desc())
        .rangeBetween(Window.unboundedPreceding, -1)  # the order falls: strictly higher indices
    )
    both = questions.withColumn("asked", F.lit(True)).unionByName(asks, allowMissingColumns=True)
    strong = F.min(F.when(F.col("ask.total"), F.col("ask"))).over(higher)
    both = both.withColumn("any", F.min("ask").over(higher)).withColumn("strong", strong).where(F.col("asked"))
    messages = batches(tables.casts).select(
        *ORIGIN, "cast_service", "cast_destinations", F.lit(True).alias("cast"), each_index().alias("index")
    )
    later = F.when(F.col("cast_service").eqNullSafe(TOTAL), F.col("strong")).otherwise(F.col("any"))
    exempt = F.col("void") & F.array_contains("cast_destinations", F.col("who"))
    found = (
        both.join(messages, [*ORIGIN, "index"], "left")
        .withColumn("later", later)
        .where(F.col("here").isNull() | (F.col("later.local_index") < F.col("here")))
        .where(F.col("later").isNotNull() & ~F.coalesce(exempt, F.lit(False)))
        .where(~F.col("cast_service").eqNullSafe(DATAGRAM))
    )
    return violation(
        found,
        "P7",
        F.array("who"),
        {
            "message": F.concat("origin_who", F.lit(":"), "later.first"),
            "local": "later.local_index",
            "missing": F.concat("origin_who", F.lit(":"), "index"),
        },
    )


def _ask() -> Column:
    """A delivery that asks for everything below its first index."""
    return F.struct("local_index", "first", (F.col("service") == TOTAL).alias("total"))


def _indices(tables: TraceTables, rows: DataFrame, of_origin: tuple[str, ...]) -> DataFrame:
    """What may be missing: from the origin's first index in this view (or the first seen here) to the highest delivered here."""
    starts = tables.casts.groupBy(*ORIGIN, "view").agg(F.min_by("first", "local_index").alias("start"))
    bounds = rows.groupBy(*of_origin).agg(
        F.max("first").alias("highest"), F.min_by("first", F.struct("local_index", "first")).alias("seen")
    )
    start = F.coalesce("start", "seen")
    return (
        bounds.join(starts, [*ORIGIN, "view"], "left")
        .where(start < F.col("highest"))
        .select(*of_origin, F.explode(F.sequence(start, F.col("highest") - 1)).alias("index"))
    )
