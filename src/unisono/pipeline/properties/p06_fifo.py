"""P6 FIFO: per (member, origin, origin's incarnation) the index increases, across views; placeholders count.

Where one stream carries two services, a message that is not `total` need not wait for an earlier `total` one of its
origin (as in P8); so that pair alone may come in the other order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.properties.base import violation
from unisono.pipeline.properties.relations import batch_name
from unisono.pipeline.tables import LIFE
from unisono.trace.schema import TOTAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P6"


def violations(tables: TraceTables) -> DataFrame:
    before = (
        Window.partitionBy(*LIFE, "origin", "origin_incarnation")
        .orderBy("local_index")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    highest = F.struct((F.col("first") + F.col("count") - 1).alias("index"), "local_index")
    is_total = F.col("service") == TOTAL
    found = (
        tables.deliveries.withColumn(
            "before",
            F.when(is_total, F.max(F.when(is_total, highest)).over(before)).otherwise(F.max(highest).over(before)),
        )
        .where(F.col("before.index") >= F.col("first"))
        .withColumn("before_index", F.col("before.index"))
    )
    return violation(
        found,
        PROPERTY,
        F.array("who"),
        {
            "message": batch_name(),
            "local_index": "local_index",
            "before": F.concat("origin_who", F.lit(":"), "before_index"),
            "before_local": "before.local_index",
        },
    )
