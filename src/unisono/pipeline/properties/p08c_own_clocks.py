"""P8c on Spark: one scan a stay gives the frontier of every CAST; vectors are compared with it by a join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.attributed_rows import ORIGIN
from unisono.pipeline.properties.base import violation
from unisono.pipeline.properties.relations import STAY, batch_name
from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

FRONTIER_DDL = (
    "run string, `group` string, origin string, origin_incarnation bigint, first bigint, count bigint, cast_local bigint, "
    "cast_view string, frontier array<bigint>, members array<string>"
)
_COLUMNS = (*STAY, "who", "local_index", "kind", "members", "holed", "origin_who", "first", "count")


def violations(tables: TraceTables) -> DataFrame:
    casts = tables.attributed.where((F.col("kind") == "CAST") & F.col("stay").isNotNull())
    pieces = tables.parts
    counted = pieces.where(
        F.col("stay").isNotNull()
        & F.array_contains("members", F.col("origin_who"))
        & (F.col("cast_view").isNull() | (F.col("cast_view") == F.col("view")))
    )
    frontiers = (
        casts.select(*_COLUMNS).unionByName(counted.select(*_COLUMNS)).groupBy(*STAY).applyInArrow(_scan, FRONTIER_DDL)
    )
    stamped = (
        casts.select(*ORIGIN, "origin_who", F.col("first").alias("cast_first"), "vector")
        .unionByName(
            pieces.where(F.col("cast_first") == F.col("row_first")).select(
                *ORIGIN, "origin_who", "cast_first", "vector"
            )
        )
        .where(F.col("vector").isNotNull())
        .distinct()
    )
    read = F.from_json("vector", "array<bigint>")
    found = (
        frontiers.join(stamped.withColumnRenamed("cast_first", "first"), [*ORIGIN, "first"], "inner")
        .withColumn("read", read)
        .where(~F.col("read").eqNullSafe(F.col("frontier")))
        .join(_limits(tables), ["run", "group", "cast_view"], "left")
        .where(F.col("limits").isNull() | ~F.coalesce(_may_wait(), F.lit(False)))
        .withColumn("view", F.col("cast_view"))
    )
    return violation(
        found,
        "P8c",
        F.array("origin_who"),
        {
            "message": batch_name(),
            "local": "cast_local",
            "vector": "vector",
            "frontier": F.concat(F.lit("["), F.array_join("frontier", ","), F.lit("]")),
        },
    )


def _limits(tables: TraceTables) -> DataFrame:
    """By view with safe messages: how many messages each member cast there (`limits`), of those whose traces are whole."""
    view = ("run", "group", "view")
    safe = tables.casts.where(F.col("attributes")["safe"] == "true").select(*view).distinct()
    whole = tables.lives.where(F.col("unknown").isNull()).select("run", "group", "who")
    cast = tables.casts.groupBy(*view, "who").agg(F.sum("count").alias("cast"))
    each = F.struct("who", F.coalesce("cast", F.lit(0)).alias("cast"))
    return (
        safe.join(whole, ["run", "group"], "left")
        .join(cast, [*view, "who"], "left")
        .groupBy(*view)
        .agg(F.map_from_entries(F.collect_list(F.when(F.col("who").isNotNull(), each))).alias("limits"))
        .withColumnRenamed("view", "cast_view")
    )


def _may_wait() -> Column:
    """Whether what a vector counts beyond the frontier may wait to become safe."""

    def is_possible(entry: Column) -> Column:
        limit = F.coalesce(F.col("limits")[entry["members"]], entry["read"])
        other = (entry["read"] >= entry["frontier"]) & (entry["read"] <= limit)
        return F.when(entry["members"] == F.col("origin_who"), entry["read"] == entry["frontier"]).otherwise(other)

    entries = F.arrays_zip("read", "frontier", "members")
    return (F.size("read") == F.size("frontier")) & F.forall(
        entries, lambda entry: F.coalesce(is_possible(entry), F.lit(False))
    )


def _scan(table: pyarrow.Table) -> pyarrow.Table:
    """The frontiers of the casts of one stay."""
    rows: list[dict[str, Any]] = table.sort_by([("local_index", "ascending"), ("first", "ascending")]).to_pylist()
    members: list[str] = rows[0]["members"]
    rank = {name: number for number, name in enumerate(members)}
    delivered = [0] * len(members)
    start: int | None = None
    frontiers = []
    for row in rows:
        if row["kind"] != "CAST":
            delivered[rank[row["origin_who"]]] += row["count"]
            continue
        start = row["first"] if start is None else start
        frontier = delivered.copy()
        if row["who"] in rank:
            frontier[rank[row["who"]]] = row["first"] - start
        if not row["holed"]:
            cast = [row[name] for name in (*LIFE, "first", "count", "local_index", "view")]
            frontiers.append((*cast, frontier, members))
    return as_table(frontiers, FRONTIER_DDL)
