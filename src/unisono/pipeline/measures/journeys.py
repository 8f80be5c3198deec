"""The journey of a batch at one member: cast or received, its place known, delivered. One shuffle serves all durations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.tables import LIFE, name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

BATCH = ("origin", "origin_incarnation", "first")
COLUMNS = (
    *LIFE, *BATCH, "who", "protocol", "clock", "at_sender", "count", "cast_ns", "start_ns", "ordered_ns", "delivered_ns",
)  # fmt: skip


def journeys_of(tables: TraceTables) -> DataFrame:
    """One row a life and batch that it delivered.

    `start_ns` is when the life first had the batch: its own cast, or the first receipt; a batch that came with a flush has
    neither, and starts when it is delivered. `cast_ns` is by the clock of the caster: null unless both clocks are simulated or
    the caster is this life itself. Placeholders are no messages, and are left out.
    """

    def when(*kinds: str) -> F.Column:  # type: ignore[name-defined]
        return F.when(F.col("kind").isin(*kinds), F.col("time_ns"))

    here = (
        tables.events.where(F.col("kind").isin("CAST", "RECEIVE", "ORDERED", "DELIVER"))
        .groupBy(*LIFE, *BATCH)
        .agg(
            F.min("protocol").alias("protocol"),
            F.min("clock").alias("clock"),
            F.max("count").alias("count"),
            F.min(when("CAST", "RECEIVE")).alias("first_ns"),
            F.max(when("ORDERED")).alias("ordered_ns"),
            F.min(when("DELIVER")).alias("delivered_ns"),
        )
        .where(F.col("delivered_ns").isNotNull())
    )
    casts = tables.casts.select(
        "run", "group", *BATCH, F.col("time_ns").alias("at_ns"), F.col("clock").alias("its_clock")
    )
    own = (F.col("member") == F.col("origin")) & (F.col("incarnation") == F.col("origin_incarnation"))
    comparable = own | ((F.col("clock") == "simulated") & (F.col("its_clock") == "simulated"))
    return here.join(casts, ["run", "group", *BATCH], "left").select(
        *LIFE,
        *BATCH,
        name_of(F.col("member"), F.col("incarnation")).alias("who"),
        "protocol",
        "clock",
        own.alias("at_sender"),
        "count",
        F.when(comparable, F.col("at_ns")).alias("cast_ns"),
        F.coalesce("first_ns", "delivered_ns").alias("start_ns"),
        "ordered_ns",
        "delivered_ns",
    )
