"""Distributions in a few figures: count, mean, median, 99th percentile, greatest.

Exact percentiles hold all distinct values of a group in one place and interpolate between the closest ranks. For large traces
`percentile_approx` keeps a summary instead: what it returns for p has a rank between (p - 1/accuracy) and (p + 1/accuracy) of
all values. The column `rank_error` says which it was: 0 is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

EXACT_EVENTS_MAX = 20_000_000
"""Maximum number of events for which exact percentiles are cheap enough."""
ACCURACY = 10_000
"""For more: a rank that is off by at most a ten-thousandth of the whole."""
FIGURES = ("messages", "mean_ns", "p50_ns", "p99_ns", "max_ns", "rank_error")


def fitting_accuracy(tables: TraceTables) -> int | None:
    """None (exact) for a trace of usual size, ACCURACY for a large one. Counts the events."""
    return ACCURACY if tables.events.count() > EXACT_EVENTS_MAX else None


def spread(rows: DataFrame, by: tuple[str, ...], duration: Column, accuracy: int | None) -> DataFrame:
    """The figures of a duration for each group of rows; a row counts as the `count` messages of its batch."""
    values = rows.select(*by, duration.alias("duration_ns"), "count").where(F.col("duration_ns").isNotNull())
    if accuracy is None:
        p50, p99 = (F.percentile("duration_ns", F.lit(p), F.col("count")) for p in (0.5, 0.99))
    else:  # knows no weights, so a batch is laid out message by message
        values = values.withColumn("one", F.explode(F.sequence(F.lit(1), "count"))).withColumn("count", F.lit(1))
        p50, p99 = (F.percentile_approx("duration_ns", p, accuracy).cast("double") for p in (0.5, 0.99))
    weighted = F.sum(F.col("duration_ns").cast("decimal(38,0)") * F.col("count"))  # a bigint might overflow
    return (
        values.groupBy(*by)
        .agg(
            F.sum("count").alias("messages"),
            weighted.cast("double").alias("sum_ns"),
            p50.alias("p50_ns"),
            p99.alias("p99_ns"),
            F.max("duration_ns").alias("max_ns"),
        )
        .select(
            *by,
            "messages",
            (F.col("sum_ns") / F.col("messages")).alias("mean_ns"),
            "p50_ns",
            "p99_ns",
            "max_ns",
            F.lit(0.0 if accuracy is None else 1.0 / accuracy).alias("rank_error"),
        )
    )
