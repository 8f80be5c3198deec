"""P3 in-view: the deliverer and the origin of a message are members of the view in which it is delivered or placed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.properties.base import violation
from unisono.pipeline.properties.relations import batch_name, deliveries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P3"


def violations(tables: TraceTables) -> DataFrame:
    is_member, is_origin_member = (F.array_contains("members", F.col(name)) for name in ("who", "origin_who"))
    # Where there is no VIEW row, P0 has said so, or the row is missing.
    found = deliveries(tables).where(F.col("stay").isNotNull() & ~(is_member & is_origin_member))
    return violation(
        found,
        PROPERTY,
        F.array("who", "origin_who"),
        {
            "message": batch_name(),
            "local_index": "local_index",
            "kind": "kind",
            "stranger": F.when(is_member, F.col("origin_who")).otherwise(F.col("who")),
            "list": F.concat_ws(", ", "members"),
        },
    )
