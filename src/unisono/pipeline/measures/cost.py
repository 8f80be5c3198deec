"""Packets and bytes a message beside the theory (000, section 1; packets to oneself are not counted).

Traces hold them where COUNTERS were recorded: cumulative `packets` and `bytes` that a life has sent. The measures that the
simulator's experiments keep hold them ready made: `cost_of_cells`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.measures.latency import RUN
from unisono.pipeline.properties.attributes import whole

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

FACTORS = {"fifo": 1, "causal": 1, "abcast": 3, "tomp": 3, "all-ack": 1, "toto": 1, "rmp": 5}
"""How many times n - 1 packets a message without batching costs; every other order is a sequencer's 2."""
BEYOND = ("all-ack", "toto")
"""Explicit acknowledgements of idle members come on top."""


def packets_theory(protocol: Column, members: Column) -> Column:
    factor = F.lit(2)
    for name, value in FACTORS.items():
        factor = F.when(protocol == name, F.lit(value)).otherwise(factor)
    return (factor * (members - 1)).cast("double")


def cost(tables: TraceTables) -> DataFrame:
    """One row a run that has COUNTERS: what all members sent, for each message that some member delivered."""
    attributes = F.col("attributes")
    sent = (
        tables.events.where((F.col("kind") == "COUNTERS") & attributes["packets"].isNotNull())
        .groupBy(*RUN, "member", "incarnation")
        .agg(
            F.max(whole(attributes["packets"])).alias("packets"),
            F.max(whole(attributes["bytes"])).alias("bytes"),
        )
        .groupBy(*RUN)
        .agg(F.sum("packets").alias("packets"), F.sum("bytes").alias("bytes"))
    )
    messages = (
        tables.deliveries.where(F.col("kind") == "DELIVER")
        .groupBy(*RUN, "origin_who", "first")
        .agg(F.max("count").alias("count"))
        .groupBy(*RUN)
        .agg(F.sum("count").alias("messages"))
    )
    sizes = tables.views.groupBy(*RUN).agg(F.max(F.size("members")).alias("members"))
    return (
        sent.join(messages, list(RUN), "inner")
        .join(sizes, list(RUN), "inner")
        .select(
            *RUN,
            "members",
            "messages",
            (F.col("packets") / F.col("messages")).alias("packets_per_message"),
            (F.col("bytes") / F.col("messages")).alias("bytes_per_message"),
            packets_theory(F.col("protocol"), F.col("members")).alias("packets_theory"),
            F.col("protocol").isin(*BEYOND).alias("acknowledgements_on_top"),
        )
    )


def cost_of_cells(cells: DataFrame) -> DataFrame:
    """The same from the measures of an experiment, one row an order and size of group, over all its runs."""
    return (
        cells.groupBy("order", "members")
        .agg(
            F.count("*").alias("runs"),
            F.avg("packets_per_message").alias("packets_per_message"),
            F.avg("bytes_per_message").alias("bytes_per_message"),
        )
        .select(
            "order",
            "members",
            "runs",
            "packets_per_message",
            "bytes_per_message",
            packets_theory(F.col("order"), F.col("members")).alias("packets_theory"),
            F.col("order").isin(*BEYOND).alias("acknowledgements_on_top"),
        )
    )
