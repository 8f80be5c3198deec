"""P14 virtual synchrony: the members of one (V→V') delivered the same set in V, placeholders counted.

Not asked of a last view that was cut, nor of the service `datagram`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.attributed_rows import each_index
from unisono.pipeline.properties.base import violation
from unisono.pipeline.properties.relations import STAY, WAY, deliveries, transitions
from unisono.trace.schema import DATAGRAM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P14"


def violations(tables: TraceTables) -> DataFrame:
    asked = transitions(tables).where(~F.col("cut") & (F.size("together") > 1))
    found = (
        deliveries(tables)
        .where(~F.col("service").eqNullSafe(DATAGRAM))
        .select(*STAY, "local_index", "origin_who", each_index().alias("index"))
        .join(asked, list(STAY), "inner")
        .groupBy(*WAY, "next_view", "together", "origin_who", "index")
        .agg(F.min(F.struct("who", "local_index")).alias("holder"), F.collect_set("who").alias("holders"))
        .withColumn("lacking", F.array_except("together", "holders"))
        .where(F.size("lacking") > 0)
    )
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
