"""How long messages are under way, and where the time goes. Each function takes the journeys of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.measures.spread import FIGURES, spread
from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RUN = ("run", "group", "protocol")


def latency(journeys: DataFrame, accuracy: int | None = None) -> DataFrame:
    """Cast to delivery in a run. `scope` is `sender`, by its own clock, or `all` members, where clocks are simulated."""
    scopes = F.when(F.col("at_sender"), F.array(F.lit("sender"), F.lit("all"))).otherwise(F.array(F.lit("all")))
    scoped = journeys.where(F.col("cast_ns").isNotNull()).withColumn("scope", F.explode(scopes))
    comparable = scoped.where((F.col("scope") == "sender") | (F.col("clock") == "simulated"))
    return spread(comparable, (*RUN, "scope"), _since("cast_ns"), accuracy).select(*RUN, "scope", *FIGURES)


def latency_by_member(journeys: DataFrame, accuracy: int | None = None) -> DataFrame:
    """Cast to delivery at each life: of its own messages, and (simulated clocks) of everybody's."""
    by = (*LIFE, "who", "protocol", "at_sender")
    known = journeys.where(F.col("cast_ns").isNotNull())
    return spread(known, by, _since("cast_ns"), accuracy).select(*by, *FIGURES)


def t1(journeys: DataFrame, accuracy: int | None = None) -> DataFrame:
    """Time from the first reception (at the sender: from the cast) until the place in the order is known."""
    return spread(journeys, RUN, F.col("ordered_ns") - F.col("start_ns"), accuracy).select(*RUN, *FIGURES)


def t2(journeys: DataFrame, accuracy: int | None = None) -> DataFrame:
    """From the moment that the place is known until delivery."""
    return spread(journeys, RUN, _since("ordered_ns"), accuracy).select(*RUN, *FIGURES)


def holdback(journeys: DataFrame, accuracy: int | None = None) -> DataFrame:
    """How long receivers held a message back, for whatever reason."""
    received = journeys.where(~F.col("at_sender"))
    return spread(received, RUN, _since("start_ns"), accuracy).select(*RUN, *FIGURES)


def _since(start: str) -> Column:
    return F.col("delivered_ns") - F.col(start)
