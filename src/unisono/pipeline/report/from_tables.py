"""The rows of a report from Spark's tables: the measures, and two more that only a report needs.

- `latency_quantiles`: of each protocol, size of group and scope, the whole curve instead of three figures;
- `stays`: one row a member and view, with the times at which it began and ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unisono.pipeline.measures import cost, fitting_accuracy, joint_distribution, latency, t1, t2
from unisono.pipeline.measures.journeys import journeys_of
from unisono.pipeline.measures.latency import RUN
from unisono.pipeline.tables import LIFE, keeping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import Tables

SHARES = (0.0, 0.001, 0.005, *(i / 100 for i in range(1, 100)), 0.995, 0.999, 1.0)
APPROXIMATE = 2_000
"""A curve is a picture: a rank that is off by a two-thousandth cannot be seen."""


def measured(tables: Tables) -> dict[str, list[dict[str, Any]]]:
    """Everything that a report shows besides verdicts, fetched from Spark as plain rows. The journeys are made only once."""
    with keeping() as keep:
        kept = tables.cached(keep)
        accuracy = fitting_accuracy(kept)
        journeys = keep(journeys_of(kept))
        frames = {
            "latency": latency(journeys, accuracy),
            "latency_quantiles": latency_quantiles(journeys, kept),
            "t1": t1(journeys, accuracy),
            "t2": t2(journeys, accuracy),
            "joint_distribution": joint_distribution(kept),
            "cost": cost(kept),
            "stays": stays_in_time(kept),
        }
        return {name: [row.asDict(recursive=True) for row in frame.collect()] for name, frame in frames.items()}


def latency_quantiles(journeys: DataFrame, tables: Tables) -> DataFrame:
    """One row a protocol, size and scope: `quantiles` is a list of (share, ns)."""
    from pyspark.sql import functions as F

    sizes = tables.views.groupBy(*RUN).agg(F.max(F.size("members")).alias("members"))
    scopes = F.when(F.col("at_sender"), F.array(F.lit("sender"), F.lit("all"))).otherwise(F.array(F.lit("all")))
    known = (
        journeys.where(F.col("cast_ns").isNotNull())
        .withColumn("scope", F.explode(scopes))
        .where((F.col("scope") == "sender") | (F.col("clock") == "simulated"))
        .join(F.broadcast(sizes), list(RUN), "inner")
        .withColumn("duration_ns", F.col("delivered_ns") - F.col("cast_ns"))
        .withColumn("one", F.explode(F.sequence(F.lit(1), "count")))  # every message of a batch counts
    )
    curve = F.percentile_approx("duration_ns", list(SHARES), APPROXIMATE)
    shares = F.array(*(F.lit(share) for share in SHARES))
    return (
        known.groupBy("protocol", "members", "scope")
        .agg(curve.alias("curve"))
        .select("protocol", "members", "scope", F.arrays_zip(shares.alias("share"), F.col("curve")).alias("zipped"))
        .select(
            "protocol",
            "members",
            "scope",
            F.transform("zipped", lambda pair: F.array(pair["share"], pair["curve"].cast("double"))).alias("quantiles"),
        )
    )


def stays_in_time(tables: Tables) -> DataFrame:
    """The stays with their times: from the installation of a view to that of the next, or to the life's last row."""
    from pyspark.sql import functions as F

    installs = tables.views.select(
        *LIFE, F.col("local_index").alias("from_index"), F.col("time_ns").alias("start_ns"), "clock"
    )
    nexts = tables.views.select(*LIFE, F.col("local_index").alias("to_index"), F.col("time_ns").alias("next_ns"))
    lasts = tables.events.groupBy(*LIFE).agg(F.max("time_ns").alias("last_ns"))
    return (
        tables.stays.join(installs, [*LIFE, "from_index"], "inner")
        .join(nexts, [*LIFE, "to_index"], "left")
        .join(lasts, list(LIFE), "left")
        .select(
            *RUN,
            "who",
            "view",
            "members",
            "clock",
            "start_ns",
            F.coalesce("next_ns", "last_ns").alias("end_ns"),
            "ended",
        )
    )
