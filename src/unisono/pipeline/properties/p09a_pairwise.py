"""P9a total, pairwise: two members of one (V→V') that deliver m and m' agree on their order.

Judges the service `total`; placeholders count. Of members with the same sequence one is compared. For each pair, the
messages that both have are sorted by one's order: their places at the other must rise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.properties.base import violation
from unisono.pipeline.properties.relations import WAY, first_places, message_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P9a"


def violations(tables: TraceTables) -> DataFrame:
    places = first_places(tables)
    other = places.select(
        *WAY,
        "message",
        F.col("who").alias("other"),
        F.col("place").alias("other_place"),
        F.col("local_index").alias("other_local"),
    )
    pairs = places.join(other, [*WAY, "message"], "inner").where(F.col("who") < F.col("other"))
    pair = (*WAY, "who", "other")
    before = Window.partitionBy(*pair).orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    found = (
        pairs.withColumn("x", F.max(F.struct("other_place", "message", "local_index", "other_local")).over(before))
        .where(F.col("x.other_place") > F.col("other_place"))
        .groupBy(*pair)
        .agg(F.min(F.struct("place", "message", "local_index", "other_local", "x")).alias("y"))
    )
    return violation(
        found,
        PROPERTY,
        F.array("who", "other"),
        {
            "x": message_name("y.x.message"),
            "y": message_name("y.message"),
            "x_local": "y.x.local_index",
            "y_local": "y.local_index",
            "other_x_local": "y.x.other_local",
            "other_y_local": "y.other_local",
        },
    )
