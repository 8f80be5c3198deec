"""P13 sending-view delivery: a message is delivered in the view it was cast in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.properties.base import violation
from unisono.pipeline.properties.relations import batch_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P13"


def violations(tables: TraceTables) -> DataFrame:
    found = tables.parts.where((F.col("kind") == "DELIVER") & (F.col("cast_view") != F.col("view")))
    return violation(
        found,
        PROPERTY,
        F.array("who", "origin_who"),
        {"message": batch_name(), "local_index": "local_index", "cast_view": "cast_view", "cast_local": "cast_local"},
    )
