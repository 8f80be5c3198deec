"""Reading attributes, and what several of the later properties need. What attributes mean is in docs/trace-conventions.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.properties.relations import STAY, transitions
from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables


def is_true(name: str) -> Column:
    return F.coalesce(F.col("attributes")[name] == "true", F.lit(False))


def whole(text: Column) -> Column:
    """A whole number of at most 18 digits; null if it is not written as one."""
    return F.when(text.rlike(r"^-?[0-9]{1,18}\z"), text.try_cast("bigint"))


def whole_lives(tables: TraceTables) -> DataFrame:
    """Lives of which nothing is missing, with `whole` = true to be found again behind an outer join."""
    return tables.lives.where(F.col("unknown").isNull()).select("run", "group", "who", F.lit(True).alias("whole"))


def entries(tables: TraceTables) -> DataFrame:
    """How each life came into each view first, and how it left it: `way` and `cut` as `transitions` has them."""
    again = Window.partitionBy(*LIFE, "view").orderBy("from_index")
    firsts = (
        tables.stays.withColumn("again", F.row_number().over(again))
        .where(F.col("again") == 1)
        .select(*LIFE, "who", "view", "members", "next_view", "next_transitional", F.col("from_index").alias("stay"))
    )
    return firsts.join(transitions(tables).select(*STAY, "way", "cut"), list(STAY), "left")


def no_strings() -> Column:
    return F.array().cast("array<string>")
