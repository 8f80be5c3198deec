"""P11 view agreement, self-inclusion: one member list and one order a view; a member is in every view that it installs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import WHOSE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P11"


def violations(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    outside = violation(
        tables.views.where(~F.array_contains("members", F.col("who"))),
        PROPERTY,
        F.array("who"),
        {"what": F.lit("outside"), "list": F.concat_ws(", ", "members"), "local_index": "local_index"},
    )
    two_lists = _disagreement(
        tables, "members", "list", F.concat_ws(", ", "one.members"), F.concat_ws(", ", "other.members")
    )
    two_orders = _disagreement(tables, "order", "order", F.col("one.order"), F.col("other.order"))
    return two_lists.unionByName(two_orders).unionByName(outside)


def _disagreement(tables: TraceTables, column: str, name: str, one: Column, other: Column) -> DataFrame:
    """Views of which two VIEW rows say different things in a column."""
    from pyspark.sql import functions as F

    said = F.struct(column, "who", "local_index")
    apart = (
        tables.views.groupBy(*WHOSE, "view")
        .agg(F.min(said).alias("one"), F.max(said).alias("other"))
        .where(F.col(f"one.{column}") != F.col(f"other.{column}"))
    )
    witness: dict[str, Column | str] = {
        "what": F.lit(f"two {name}s"),
        name: one,
        "local_index": "one.local_index",
        f"other_{name}": other,
        "other_local": "other.local_index",
    }
    return violation(apart, PROPERTY, F.array("one.who", "other.who"), witness)
