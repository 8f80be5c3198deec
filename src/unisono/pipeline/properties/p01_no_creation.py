"""P1 no creation: every DELIVER has its CAST, equal digest, receiver among the destinations.

The CAST comes first: a message delivered by its own caster before it was cast was created out of nothing, and so was
one in a circle of casts and deliveries that no order of events explains. If rows of the origin are missing, or it
stopped without an ending, the CAST is unknown and not asked for. The digest is that of a batch, so it is only compared
where the delivery is cut like the cast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.booked import ORIGIN
from unisono.pipeline.properties.base import COLUMNS, VIOLATION_DDL, violation
from unisono.pipeline.properties.relations import Step, batch_name, causal_order
from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import Tables

PROPERTY = "P1"


def violations(tables: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    delivered = tables.parts.where(F.col("kind") == "DELIVER")
    cast = delivered.where(F.col("cast_local").isNotNull())
    alike = (F.col("cast_first") == F.col("row_first")) & (F.col("cast_count") == F.col("row_count"))
    altered = cast.where(alike & (F.col("digest") != F.col("cast_digest")))
    not_addressed = cast.where(~F.array_contains("cast_destinations", F.col("who")))
    found = _say(_uncast(tables, delivered), "never cast")
    for rows, what in ((altered, "digest"), (not_addressed, "destinations")):
        found = found.unionByName(_say(rows, what))
    return found.unionByName(_too_early(tables)).select(*COLUMNS)


def _say(found: DataFrame, what: str) -> DataFrame:
    from pyspark.sql import functions as F

    witness: dict[str, Column | str] = {
        "what": F.lit(what),
        "message": batch_name(),
        "local_index": "local_index",
        "cast_local": "cast_local",
        "digest": "digest",
        "cast_digest": "cast_digest",
        "destinations": F.concat_ws(", ", "cast_destinations"),
    }
    return violation(found, PROPERTY, F.array("who", "origin_who"), witness)


def _uncast(tables: Tables, delivered: DataFrame) -> DataFrame:
    """Delivered, but cast by nobody; unless what is missing of the trace may hide the CAST."""
    from pyspark.sql import functions as F

    lives = tables.lives.select(
        "run",
        "group",
        F.col("member").alias("origin"),
        F.col("incarnation").alias("origin_incarnation"),
        F.lit(True).alias("traced"),
        F.col("unknown").isNotNull().alias("unknown"),
    )
    listed = (
        tables.views.select("run", "group", F.explode("members").alias("origin_who"))
        .distinct()
        .withColumn("listed", F.lit(True))
    )
    hidden = F.when(F.col("traced"), F.col("unknown")).otherwise(F.col("listed").isNotNull() | F.col("stay_holed"))
    return (
        delivered.where(F.col("cast_local").isNull())
        .join(lives, list(ORIGIN), "left")
        .join(listed, ["run", "group", "origin_who"], "left")
        .where(~hidden)
    )


def _too_early(tables: Tables) -> DataFrame:
    """Delivered before the CAST can have been: found by putting all rows of a group into an order in which casts come first."""
    from pyspark.sql import functions as F

    casters = tables.casts.groupBy(*LIFE).agg(F.max("local_index").alias("last_cast"))
    deliveries = (
        tables.parts.where(F.col("cast_local").isNotNull())
        .join(casters, list(LIFE), "inner")
        .where(F.col("local_index") < F.col("last_cast"))  # what follows the last own cast is in no circle
        .select(
            "run",
            "group",
            "who",
            "local_index",
            "kind",
            "view",
            "origin_who",
            "first",
            "count",
            "cast_first",
            "cast_local",
        )
    )
    casts = tables.casts.select(
        "run", "group", "who", "local_index", F.lit("CAST").alias("kind"), "view", "origin_who", "first", "count",
        F.col("first").alias("cast_first"), F.col("local_index").alias("cast_local"),
    )  # fmt: skip
    return casts.unionByName(deliveries).groupBy("run", "group").applyInArrow(_scan, VIOLATION_DDL)


def _scan(table: pyarrow.Table) -> pyarrow.Table:
    from unisono.pipeline.properties.scanning import found_table

    rows = table.sort_by([("who", "ascending"), ("local_index", "ascending"), ("first", "ascending")]).to_pylist()
    lives: dict[str, list[Step]] = {}
    for number, row in enumerate(rows):
        message = (row["origin_who"], row["cast_first"])
        is_cast = row["kind"] == "CAST"
        step = Step(number, message, None) if is_cast else Step(number, None, message, row["kind"] == "DELIVER")
        lives.setdefault(row["who"], []).append(step)
    found = []
    for step, early in causal_order(lives):
        row = rows[step.row]
        if early and step.delivers:
            last = row["first"] + row["count"] - 1
            name = f"{row['origin_who']}:{row['first']}" + (f"-{last}" if row["count"] > 1 else "")
            witness = {
                "what": "too early",
                "message": name,
                "local_index": row["local_index"],
                "cast_local": row["cast_local"],
            }
            found.append((row["run"], row["group"], PROPERTY, [row["who"], row["origin_who"]], row["view"], witness))
    return found_table(found)
