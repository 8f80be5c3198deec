"""P23 resources: queues, unacknowledged bytes, retransmissions per message within their limits.

COUNTERS rows carry what the driver counts and how far it may go: for each attribute ``x`` with a sibling ``x_limit``, x is at
most x_limit. Both are numbers with or without a fraction; something else is a violation too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.properties.attributes import decimal
from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P23"


def violations(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    value, limit = decimal(F.col("value")), decimal(F.col("limit"))
    unreadable = value.isNull() | limit.isNull()
    found = (
        tables.events.where((F.col("kind") == "COUNTERS") & F.col("attributes").isNotNull())
        .select(
            "run",
            "group",
            name_of(F.col("member"), F.col("incarnation")).alias("who"),
            "view",
            "local_index",
            "attributes",
            F.explode("attributes").alias("counter", "value"),
        )
        .withColumn("limit", F.try_element_at("attributes", F.concat("counter", F.lit("_limit"))))
        .where(F.col("limit").isNotNull() & (unreadable | (value > limit)))
    )
    return violation(
        found,
        PROPERTY,
        F.array("who"),
        {
            "what": F.when(unreadable, F.lit("unreadable")).otherwise("over"),
            "local_index": "local_index",
            "counter": "counter",
            "value": "value",
            "limit": "limit",
        },
    )
