"""P5 agreement: in V, what one member delivers every addressee of the same (V→V') delivers.

This is the non-uniform form: what a crashed member alone delivered binds nobody. Placeholders do not count: an
addressee for whom the payload became void while another one delivered it has broken agreement. Not asked of a last view
that was cut, nor of the service `datagram`: whoever gets one gets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.booked import each_index
from unisono.pipeline.properties.base import violation
from unisono.pipeline.properties.relations import STAY, WAY, deliveries, transitions
from unisono.trace.schema import DATAGRAM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import Tables

PROPERTY = "P5"


def violations(tables: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    asked = transitions(tables).where(~F.col("cut") & (F.size("together") > 1))
    for_all = F.max(F.col("destinations").isNull())
    messages = (
        deliveries(tables)
        .where((F.col("kind") == "DELIVER") & ~F.col("service").eqNullSafe(DATAGRAM))
        .select(*STAY, "local_index", "origin_who", "destinations", each_index().alias("index"))
        .join(asked, list(STAY), "inner")
        .groupBy(*WAY, "next_view", "together", "origin_who", "index")
        .agg(
            F.min(F.struct("who", "local_index")).alias("holder"),
            F.collect_set("who").alias("holders"),
            F.when(~for_all, F.max("destinations")).alias("destinations"),
        )
    )
    addressed = F.when(F.col("destinations").isNull(), F.col("together")).otherwise(
        F.array_intersect("together", "destinations")
    )
    found = messages.withColumn("lacking", F.array_except(addressed, "holders")).where(F.size("lacking") > 0)
    return violation(
        found,
        PROPERTY,
        F.concat(F.array("holder.who"), "lacking"),
        {
            "message": F.concat("origin_who", F.lit(":"), "index"),
            "holder": "holder.who",
            "local_index": "holder.local_index",
            "lacking": F.concat_ws(", ", "lacking"),
            "next_view": "next_view",
        },
    )
