"""P2 no duplication: at most one DELIVER per (member, incarnation, message), across all views of that life.

Batches of one origin, sorted by their first index, overlap if one begins before the highest end so far: no batch is
taken apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P2"


def violations(tables: TraceTables) -> DataFrame:
    lower = (
        Window.partitionBy(*LIFE, "origin", "origin_incarnation")
        .orderBy("first", "local_index")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    batch = F.struct((F.col("first") + F.col("count")).alias("end"), "local_index")
    found = (
        tables.deliveries.where(F.col("kind") == "DELIVER")
        .withColumn("other", F.max(batch).over(lower))
        .where(F.col("other.end") > F.col("first"))
    )
    return violation(
        found,
        PROPERTY,
        F.array("who"),
        {
            "message": F.concat("origin_who", F.lit(":"), "first"),
            "local_index": F.least("local_index", "other.local_index"),
            "again_local": F.greatest("local_index", "other.local_index"),
        },
    )
