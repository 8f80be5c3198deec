"""Index of latency τ and concurrency ω, as the ORDERED rows of all-ack and ToTo carry them (004, section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.measures.latency import RUN
from unisono.pipeline.properties.attributes import whole as number_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables


def joint_distribution(tables: TraceTables) -> DataFrame:
    """How many messages, over all members, had this τ and this ω, and which share of the run's that is."""
    whole = Window.partitionBy(*RUN).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return (
        tables.orderings.select(
            *RUN,
            number_in(F.col("attributes")["index_of_latency"]).alias("tau"),
            number_in(F.col("attributes")["concurrency"]).alias("omega"),
            "count",
        )
        .where(F.col("tau").isNotNull() & F.col("omega").isNotNull())
        .groupBy(*RUN, "tau", "omega")
        .agg(F.sum("count").alias("messages"))
        .select(*RUN, "tau", "omega", "messages", (F.col("messages") / F.sum("messages").over(whole)).alias("share"))
    )


def index_of_latency(tables: TraceTables) -> DataFrame:
    """Means of τ and ω in a run, and between which bounds τ lay."""
    joint = joint_distribution(tables)
    return (
        joint.groupBy(*RUN)
        .agg(
            F.sum("messages").alias("messages"),
            F.sum(F.col("tau") * F.col("messages")).alias("taus"),
            F.sum(F.col("omega") * F.col("messages")).alias("omegas"),
            F.min("tau").alias("tau_min"),
            F.max("tau").alias("tau_max"),
        )
        .select(
            *RUN,
            "messages",
            (F.col("taus") / F.col("messages")).alias("tau_mean"),
            (F.col("omegas") / F.col("messages")).alias("omega_mean"),
            "tau_min",
            "tau_max",
        )
    )
