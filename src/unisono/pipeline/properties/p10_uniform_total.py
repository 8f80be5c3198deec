"""P10 uniform total: P9 over all members of V up to each one's BLOCK, crashed ones too: theirs is a prefix.

What any member of V, crashed or not, had delivered of the service `total` in V before it blocked is a prefix of the
whole sequence of everyone who got through V (went on to another view, or reached the END uncut). Of two members who did
not get through, one's sequence up to BLOCK is a prefix of the other's. Stays with missing rows are left out.

So, for each number that some member reached before it blocked: all who have an ordered message of that number have the
same one, and everyone who got through has one. The first number where that fails is told for each view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.properties.base import violation
from unisono.pipeline.properties.relations import STAY, judged_stays, message_name, sequences, transitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P10"


def violations(tables: TraceTables) -> DataFrame:
    view = ("run", "group", "view")
    through = transitions(tables).where(~F.col("cut")).select(*STAY, F.lit(True).alias("through"))
    stays = judged_stays(tables).select(*STAY, "who", "block_index", "ended").join(through, list(STAY), "left")
    through_by = (
        stays.where(F.col("through")).groupBy(*view).agg(F.array_sort(F.collect_set("who")).alias("all_through"))
    )
    said = F.struct("message", "who", "local_index", "ended")
    is_early = F.col("block_index").isNull() | (F.col("local_index") < F.col("block_index"))
    found = (
        sequences(tables)
        .join(stays, list(STAY), "inner")
        .withColumn("early", is_early)
        .where(F.col("early") | F.col("through"))
        .groupBy(*view, "place")
        .agg(
            F.min(F.when(F.col("early"), said)).alias("one"),
            F.min(said).alias("low"),
            F.max(said).alias("high"),
            F.collect_set(F.when(F.col("through"), F.col("who"))).alias("having"),
        )
        .where(F.col("one").isNotNull())
        .join(through_by, list(view), "left")
        .withColumn("lacking", F.array_except(F.coalesce("all_through", F.array().cast("array<string>")), "having"))
        .where((F.col("low.message") != F.col("high.message")) | (F.size("lacking") > 0))
        .withColumn(
            "other", F.when(F.col("low.message") != F.col("one.message"), F.col("low")).otherwise(F.col("high"))
        )
        .groupBy(*view)
        .agg(F.min(F.struct("place", "one", "other", "lacking")).alias("at"))
    )
    differs = F.col("at.one.message") != F.col("at.other.message")
    return violation(
        found,
        PROPERTY,
        F.array("at.one.who", F.when(differs, F.col("at.other.who")).otherwise(F.get("at.lacking", F.lit(0)))),
        {
            "number": "at.place",
            "message": message_name("at.one.message"),
            "local": "at.one.local_index",
            "ended": "at.one.ended",
            "other": F.when(differs, message_name("at.other.message")),
            "other_local": F.when(differs, F.col("at.other.local_index")),
        },
    )
