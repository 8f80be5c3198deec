"""P24 on Spark: each run is compared with the twin that is least in the order of names.

Lives are compared by count, xor and sum of their rows' hashes; the rows of those that differ, one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import name_of
from unisono.trace.schema import NAMES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PAIR = ("group", "run", "twin", "label")


def violations(tables: TraceTables) -> DataFrame:
    pairs, rows = _pairs(tables), _rows(tables)
    digests = rows.groupBy("side", "group", "who").agg(
        F.struct(
            F.count("*").alias("rows"),
            F.bit_xor("one").alias("xor"),
            F.sum(F.col("other").cast("decimal(38,0)")).alias("sum"),
        ).alias("digest")
    )
    lost = pairs.join(_lost(tables), ["side", "group"], "inner").select(*PAIR, "who")
    apart = (
        pairs.join(digests, ["side", "group"], "inner")
        .groupBy(*PAIR, "who")
        .agg(F.collect_list("digest").alias("digests"))
        .where(_differ("digests"))
        .join(lost, [*PAIR, "who"], "left_anti")
    )
    found = (
        apart.select(*PAIR, "who", F.explode(F.array("run", "twin")).alias("side"))
        .join(rows, ["side", "group", "who"], "inner")
        .groupBy(*PAIR, "who", "local_index")
        .agg(F.collect_list("one").alias("hashes"))
        .where(_differ("hashes"))
        .groupBy(*PAIR, "who")
        .agg(F.min("local_index").alias("local_index"))
    )
    return violation(
        found,
        "P24",
        F.array("who"),
        {"what": F.lit("differs"), "twin": "twin", "label": "label", "local": "local_index"},
    )


def _differ(values: str) -> Column:
    """Whether the two sides of a pair have not the same value, or one of them has none."""
    return (F.size(values) < 2) | (F.size(F.array_distinct(values)) > 1)


def _pairs(tables: TraceTables) -> DataFrame:
    """Each run with the one it is compared with, once for each of the two as `side`."""
    same = Window.partitionBy("group", "label").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return (
        tables.events.where(F.col("local_index") == 0)
        .groupBy("run", "group")
        .agg(F.min(F.col("attributes")["twin"]).alias("label"))
        .where(F.col("label").isNotNull())
        .withColumn("twin", F.min("run").over(same))
        .where(F.col("run") != F.col("twin"))
        .select(*PAIR, F.explode(F.array("run", "twin")).alias("side"))
    )


def _rows(tables: TraceTables) -> DataFrame:
    """Two hashes of every row, the run left out. As JSON, a null cannot be mistaken for its neighbour."""
    told = [F.col(name) for name in NAMES if name not in ("run", "attributes")]
    attributes = F.array_sort(F.map_entries("attributes")).alias("attributes")
    text = F.to_json(F.struct(*told, attributes))
    return tables.events.select(
        F.col("run").alias("side"),
        "group",
        name_of(F.col("member"), F.col("incarnation")).alias("who"),
        "local_index",
        F.xxhash64(text).alias("one"),
        F.xxhash64(text, F.lit("other")).alias("other"),
    )


def _lost(tables: TraceTables) -> DataFrame:
    """Lives of which rows may be missing."""
    key = ("run", "group", "who")
    unwhole = tables.lives.where(F.col("unknown").isNotNull()).select(*key)
    listed = tables.views.select("run", "group", F.explode("members").alias("who")).distinct()
    lost = unwhole.unionByName(listed.join(tables.lives, list(key), "left_anti").select(*key))
    return lost.withColumnRenamed("run", "side")
