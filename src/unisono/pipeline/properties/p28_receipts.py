"""P28 receipts: the stages of a receipt come in their order, and a doubt is final.

The statement is in `trace.checks.p28_receipts`, whose function decides. Here Spark picks the own deliveries that receipts speak of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from unisono.pipeline.properties.shown_rows import RUN, ShownFacts, decided, delivered_facts, overlaps, receipts
from unisono.pipeline.tables import LIFE
from unisono.trace.checks.p28_receipts import decide, missing_of
from unisono.trace.checks.shown_rows import Breach, Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P28"


def violations(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    asked = receipts(tables, F.col("attributes")["stage"].isin("delivered", "applied"))
    own = (
        tables.deliveries.where(F.col("origin_who") == F.col("who"))
        .join(asked, list(LIFE), "inner")
        .where(overlaps())
        .withColumn("early", F.lit(False))
    )
    cast = (
        tables.casts.join(receipts(tables, F.lit(True)), list(LIFE), "inner")
        .where(overlaps())
        .select(*RUN, F.lit("cast").alias("fact"), "who", "view", "first", "count", "destinations", "local_index")
    )
    return decided(tables, PROPERTY, _decide, delivered_facts(own).distinct(), cast.distinct())


def _decide(facts: ShownFacts) -> Iterator[Breach]:
    own: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for one in facts.delivered:
        own[one.who].append((one.local, one.first, one.end))

    def missing(name: str, span: Range, before: int) -> list[Range]:
        return missing_of(own[name], span, before)

    cast: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for batch in facts.casts:
        cast[batch.origin].append((batch.local, batch.first, batch.end))

    def uncast(name: str, span: Range, before: int) -> list[Range]:
        return missing_of(cast[name], span, before)

    return decide(facts.lives, missing, uncast)
