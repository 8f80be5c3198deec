"""Messages a second. Every life is measured by its own clock, so no two clocks are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

SECOND_NS = 1e9


def throughput(tables: TraceTables) -> DataFrame:
    """What each life delivered, and cast, a second between its first cast, receipt or delivery and its last delivery."""
    kind = F.col("kind")
    seen = tables.events.where(kind.isin("CAST", "RECEIVE", "DELIVER")).groupBy(*LIFE)
    counted = seen.agg(
        F.min("protocol").alias("protocol"),
        F.coalesce(F.sum(F.when(kind == "CAST", F.col("count"))), F.lit(0)).alias("cast"),
        F.coalesce(F.sum(F.when(kind == "DELIVER", F.col("count"))), F.lit(0)).alias("delivered"),
        F.min("time_ns").alias("from_ns"),
        F.max(F.when(kind == "DELIVER", F.col("time_ns"))).alias("to_ns"),
    )
    span = F.col("to_ns") - F.col("from_ns")
    rate = F.when(span > 0, F.col("delivered") * SECOND_NS / span)
    return counted.select(
        *LIFE, "protocol", "cast", "delivered", span.alias("span_ns"), rate.alias("delivered_per_second")
    )
