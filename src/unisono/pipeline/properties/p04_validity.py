"""P4 validity: a correct member delivers what it cast, or places it if it did not address itself.

Correct: it ends with END or LEAVE. Not asked of a life with missing rows, nor, if it ended with the reason `cut`, of
what it cast in its last view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.attributed_rows import each_index
from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P4"


def violations(tables: TraceTables) -> DataFrame:
    last_views = tables.stays.where(F.col("to_index").isNull()).select(*LIFE, F.col("view").alias("last_view"))
    correct = (
        tables.lives.where(F.col("ending").isin("END", "LEAVE") & ~F.col("holed"))
        .join(last_views, list(LIFE), "left")
        .select(*LIFE, "ending", F.when(F.col("ending_reason") == "cut", F.col("last_view")).alias("exempt"))
    )
    own = (F.col("origin") == F.col("member")) & (F.col("origin_incarnation") == F.col("incarnation"))
    not_for_itself = F.coalesce(~F.array_contains("cast_destinations", F.col("who")), F.lit(False))
    counts = (F.col("kind") == "DELIVER") | not_for_itself
    delivered = tables.parts.where(own & counts).select(*LIFE, each_index().alias("index"))
    found = (
        tables.casts.join(correct, list(LIFE), "inner")
        .where(~F.col("view").eqNullSafe(F.col("exempt")))
        .withColumn("index", each_index())
        .join(delivered, [*LIFE, "index"], "left_anti")
    )
    return violation(
        found,
        PROPERTY,
        F.array("who"),
        {"message": F.concat("who", F.lit(":"), "index"), "local_index": "local_index", "ending": "ending"},
    )
