"""What a view change costs: from BLOCK to the next view, and until something is delivered again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables


def view_change_gaps(tables: TraceTables) -> DataFrame:
    """One row a life and change of view: blocked for how long, and how long until the first delivery in the next view.

    `gap_ns` is null where the next view delivered nothing; both are null if the change began without a BLOCK.
    """
    blocks = tables.events.where(F.col("kind") == "BLOCK").select(
        *LIFE, F.col("local_index").alias("block_index"), F.col("time_ns").alias("block_ns")
    )
    installs = tables.views.select(*LIFE, F.col("local_index").alias("to_index"), F.col("time_ns").alias("install_ns"))
    firsts = (
        tables.deliveries.where(F.col("kind") == "DELIVER")
        .groupBy(*LIFE, F.col("view").alias("next_view"))
        .agg(F.min("time_ns").alias("first_ns"))
    )
    return (
        tables.stays.where(F.col("next_view").isNotNull())
        .join(blocks, [*LIFE, "block_index"], "left")
        .join(installs, [*LIFE, "to_index"], "left")
        .join(firsts, [*LIFE, "next_view"], "left")
        .select(
            *LIFE,
            "who",
            "protocol",
            "view",
            "next_view",
            "block_ns",
            (F.col("install_ns") - F.col("block_ns")).alias("blocked_ns"),
            (F.col("first_ns") - F.col("block_ns")).alias("gap_ns"),
        )
    )
