"""P1 no creation: every DELIVER and PLACE has its CAST, equal digest and service, receiver among the destinations.

A PLACE has the service and the destinations of its CAST too, and a DELIVER the destinations: other properties look at the row at
hand. Only a member that the CAST does not address places it, unless the payload is void.

The CAST comes first: a message delivered by its own caster before it was cast was created out of nothing, and so was
one in a circle of casts and deliveries that no order of events explains. If rows of the origin are missing, or it
stopped without an ending, the CAST is unknown and not asked for. The digest is that of a batch, so it is only compared
where the delivery is cut like the cast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.attributed_rows import ORIGIN
from unisono.pipeline.properties.base import COLUMNS, VIOLATION_DDL, violation
from unisono.pipeline.properties.relations import RelationStep, batch_name, causal_order
from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P1"


def violations(tables: TraceTables) -> DataFrame:
    of_casts = tables.parts.where(F.col("cast_local").isNotNull())
    told = of_casts.withColumn("what", F.explode(F.array_compact(F.array(*_faults()))))
    uncast = _uncast(tables).withColumn("what", F.lit("never cast"))
    return _say(told).unionByName(_say(uncast)).unionByName(_too_early(tables)).select(*COLUMNS)


def _faults() -> list[Column]:
    """How a DELIVER or PLACE may differ from its CAST, each a name or null."""
    is_delivered = F.col("kind") == "DELIVER"
    is_alike = (F.col("cast_first") == F.col("row_first")) & (F.col("cast_count") == F.col("row_count"))
    addressed = F.array_contains("cast_destinations", F.col("who"))
    here, there = F.array_sort("destinations"), F.array_sort("cast_destinations")
    return [
        F.when(is_delivered & is_alike & (F.col("digest") != F.col("cast_digest")), F.lit("digest")),
        F.when(is_delivered & ~addressed, F.lit("not addressed")),
        F.when(~is_delivered & F.coalesce(addressed, F.lit(True)) & ~F.col("void"), F.lit("withheld")),
        F.when(F.col("service") != F.col("cast_service"), F.lit("service")),
        F.when(~here.eqNullSafe(there), F.lit("destinations")),
    ]


def _say(found: DataFrame) -> DataFrame:
    witness: dict[str, Column | str] = {
        "what": "what",
        "message": batch_name(),
        "local_index": "local_index",
        "cast_local": "cast_local",
        "digest": "digest",
        "cast_digest": "cast_digest",
        "service": "service",
        "cast_service": "cast_service",
        "kind": "kind",
        "destinations": _addressees("destinations"),
        "cast_destinations": _addressees("cast_destinations"),
    }
    return violation(found, PROPERTY, F.array("who", "origin_who"), witness)


def _addressees(column: str) -> Column:
    return F.when(F.col(column).isNull(), F.lit("everyone")).otherwise(F.concat_ws(", ", column))


def _uncast(tables: TraceTables) -> DataFrame:
    """Delivered or placed without a CAST; unless what is missing of the trace may hide the CAST."""
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
        tables.parts.where(F.col("cast_local").isNull())
        .join(lives, list(ORIGIN), "left")
        .join(listed, ["run", "group", "origin_who"], "left")
        .where(~hidden)
    )


def _too_early(tables: TraceTables) -> DataFrame:
    """Delivered before the CAST can have been: in a circle of casts and deliveries, looked for between consistent cuts."""
    from unisono.pipeline.properties.consistent_cuts import divide

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
        "local_index": "local_index",
        "kind": "kind",
        "cast_local": "cast_local",
    }
    return found.unionByName(violation(divided.proofs, PROPERTY, F.array("who", "origin_who"), witness))


def _scan(table: pyarrow.Table) -> pyarrow.Table:
    from unisono.pipeline.properties.scanning import found_table

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
                "local_index": row["local_index"],
                "kind": row["kind"],
                "cast_local": row["cast_local"],
            }
            found.append((row["run"], row["group"], PROPERTY, [row["who"], row["origin_who"]], row["view"], witness))
    return found_table(found)
