"""P1 on Spark: a delivery is held against its CAST by the plain checker.

A CAST comes first: what is in a circle of casts and deliveries that no order of events explains is looked for between consistent
cuts, because any row of a run may be part of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.properties.base import VIOLATION_DDL, violation
from unisono.pipeline.properties.consistent_cuts import divide
from unisono.pipeline.properties.few_rows import few_rows
from unisono.pipeline.properties.relations import RelationStep, batch_name, causal_order
from unisono.pipeline.properties.row_picks import wrong_deliveries
from unisono.pipeline.properties.scanning import found_table
from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables


def violations(tables: TraceTables) -> DataFrame:
    return few_rows("P1", more=wrong_deliveries)(tables).unionByName(_too_early(tables))


def _too_early(tables: TraceTables) -> DataFrame:
    """Delivered before the CAST can have been: in a circle of casts and deliveries, looked for between consistent cuts."""
    casters = tables.casts.groupBy(*LIFE).agg(F.max("local_index").alias("last_cast"))
    batch = ("run", "group", "who", "local_index", "kind", "view", "origin_who", "first", "count", "cast_first")
    deliveries = (
        tables.parts.where(F.col("cast_local").isNotNull())
        .join(casters, list(LIFE), "inner")
        .where(F.col("local_index") < F.col("last_cast"))  # what follows the last own cast is in no circle
        .select(*batch, "cast_local", F.col("origin_who").alias("other"), F.col("cast_local").alias("other_at"))
    )
    casts = tables.casts.withColumns({"kind": F.lit("CAST"), "cast_first": F.col("first")}).select(
        *batch, F.col("local_index").alias("cast_local")
    )
    steps = casts.unionByName(deliveries, allowMissingColumns=True).withColumns(
        {"stream": F.col("who"), "at": F.col("local_index")}
    )
    divided = divide(steps, ("run", "group"))
    columns = (*batch, "cast_local")
    found = (
        divided.windows.select(*columns, "window").groupBy("run", "group", "window").applyInArrow(_scan, VIOLATION_DDL)
    )
    if divided.proofs is None:
        return found
    witness: dict[str, Column | str] = {
        "what": F.lit("too early"),
        "message": batch_name(),
        "local": "local_index",
        "kind": "kind",
        "cast_local": "cast_local",
    }
    return found.unionByName(violation(divided.proofs, "P1", F.array("who", "origin_who"), witness))


def _scan(table: pyarrow.Table) -> pyarrow.Table:
    rows = table.sort_by([("who", "ascending"), ("local_index", "ascending"), ("first", "ascending")]).to_pylist()
    lives: dict[str, list[RelationStep]] = {}
    for number, row in enumerate(rows):
        message = (row["origin_who"], row["cast_first"])
        is_cast = row["kind"] == "CAST"
        step = (
            RelationStep(number, message, None)
            if is_cast
            else RelationStep(number, None, message, row["kind"] == "DELIVER")
        )
        lives.setdefault(row["who"], []).append(step)
    found = []
    for step, early in causal_order(lives):
        row = rows[step.row]
        if early:
            last = row["first"] + row["count"] - 1
            name = f"{row['origin_who']}:{row['first']}" + (f"-{last}" if row["count"] > 1 else "")
            witness = {
                "what": "too early",
                "message": name,
                "local": row["local_index"],
                "kind": row["kind"],
                "cast_local": row["cast_local"],
            }
            found.append((row["run"], row["group"], "P1", [row["who"], row["origin_who"]], row["view"], witness))
    return found_table(found)
