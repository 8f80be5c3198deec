"""P28 receipts: the stages of a receipt come in their order, and a doubt is final.

The statement is in `trace.checks.p28_receipts`, whose function decides. Here Spark picks the own deliveries that receipts speak of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from unisono.pipeline.properties.shown_rows import ShownFacts, decided, delivered_facts, overlaps, receipts
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
    return decided(tables, PROPERTY, _decide, delivered_facts(own).distinct())


def _decide(facts: ShownFacts) -> Iterator[Breach]:
    own: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for one in facts.delivered:
        own[one.who].append((one.local, one.first, one.end))

    def missing(name: str, span: Range, before: int) -> list[Range]:
        return missing_of(own[name], span, before)

    return decide(facts.lives, missing)
