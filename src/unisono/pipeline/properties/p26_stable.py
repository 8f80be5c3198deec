"""P26 stable is kept: what a caster was told is stable is delivered by every member of its view.

The statement is in `trace.checks.p26_stable`, whose function decides. Here Spark picks the casts that `stable` was told of, and who
delivered them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from unisono.pipeline.properties.shown_rows import RUN, ShownFacts, decided, delivered_facts, overlaps, receipts
from unisono.pipeline.tables import LIFE
from unisono.trace.checks.p26_stable import decide
from unisono.trace.checks.shown_rows import Breach, CastRange, Range, SpansOf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P26"


def violations(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    told = (F.col("attributes")["stage"] == "stable") & (F.col("attributes")["outcome"] == "ok")
    casts = (
        tables.casts.join(receipts(tables, told), list(LIFE), "inner")
        .where(overlaps())
        .select(*RUN, F.lit("cast").alias("fact"), "who", "view", "first", "count", "destinations")
        .distinct()
    )
    asked = casts.select(
        *RUN,
        "view",
        F.col("who").alias("origin_who"),
        F.col("first").alias("asked_first"),
        (F.col("first") + F.col("count")).alias("asked_end"),
    )
    delivered = (
        tables.deliveries.where(F.col("kind") == "DELIVER")
        .join(asked, [*RUN, "view", "origin_who"], "inner")
        .where(overlaps())
        .withColumn("early", F.lit(False))
    )
    return decided(tables, PROPERTY, _decide, casts, delivered_facts(delivered).distinct())


def _decide(facts: ShownFacts) -> Iterator[Breach]:
    casts: defaultdict[str, list[CastRange]] = defaultdict(list)
    for one in sorted(facts.casts, key=lambda one: (one.origin, one.first)):
        casts[one.origin].append(one)
    spans = SpansOf()
    for row in facts.delivered:
        spans.add((row.who, row.view, row.origin), row.first, row.end)

    def cast(name: str, first: int, end: int) -> list[CastRange]:
        cut = [
            CastRange(one.origin, max(first, one.first), min(end, one.end), one.view, one.destinations)
            for one in casts[name]
        ]
        return [one for one in cut if one.first < one.end]

    def missing(who: str, message: CastRange) -> list[Range]:
        return spans.outside((who, message.view, message.origin), message.first, message.end)

    return decide(facts.lives, cast, missing)
