"""P27 safe and primary: once a safe message is delivered in a primary view, every later primary has it.

The statement is in `trace.checks.p27_safe_primary`, whose function decides. Here Spark picks the safe messages of primary views,
and who delivered them, before it blocked or after.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unisono.pipeline.properties.attributes import is_true
from unisono.pipeline.properties.shown_rows import (
    RUN,
    ShownFacts,
    blocks,
    decided,
    delivered_facts,
    overlaps,
    recorded_runs,
)
from unisono.pipeline.tables import LIFE
from unisono.trace.checks.p27_safe_primary import decide
from unisono.trace.checks.shown_rows import Breach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P27"


def violations(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    primaries = tables.views.where(is_true("primary")).select(*RUN, "view").distinct()
    casts = (
        tables.casts.where(is_true("safe"))
        .join(primaries, [*RUN, "view"], "left_semi")
        .join(recorded_runs(tables), list(RUN), "left_semi")
        .select(*RUN, F.lit("cast").alias("fact"), "who", "view", "first", "count", "destinations")
    )
    asked = casts.select(
        *RUN,
        "view",
        F.col("who").alias("origin_who"),
        F.col("first").alias("asked_first"),
        (F.col("first") + F.col("count")).alias("asked_end"),
    )
    early = F.col("block_index").isNull() | (F.col("local_index") < F.col("block_index"))
    delivered = (
        tables.deliveries.where(F.col("kind") == "DELIVER")
        .join(asked, [*RUN, "view", "origin_who"], "inner")
        .where(overlaps())
        .join(blocks(tables), [*LIFE, "view"], "left")
        .withColumn("early", early)
    )
    return decided(tables, PROPERTY, _decide, casts, delivered_facts(delivered).distinct())


def _decide(facts: ShownFacts) -> Iterator[Breach]:
    return decide(facts.lives, facts.casts, facts.delivered)
