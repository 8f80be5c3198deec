"""P25 together means the same: members that go from one view to the next together were shown the same messages.

The statement is in `trace.checks.p25_together`, whose function decides. Here Spark adds up what each life delivered in each view,
and picks the deliveries of views about which members that showed the next one differ, so that a violation can name messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unisono.pipeline.properties.shown_rows import (
    RUN,
    ShownFacts,
    blocks,
    decided,
    delivered_facts,
    recorded_runs,
)
from unisono.pipeline.tables import LIFE
from unisono.trace.checks.p25_together import Batches, DeliveredInView, decide
from unisono.trace.checks.shown_rows import Breach
from unisono.trace.schema import DATAGRAM, TOTAL
from unisono.trace.shown import Shown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P25"


def violations(tables: TraceTables) -> DataFrame:
    return decided(tables, PROPERTY, _decide, _totals(tables), _differing(tables))


def _decide(facts: ShownFacts) -> Iterator[Breach]:
    delivered = {
        (row["who"], row["view"]): DeliveredInView(Shown(row["shown"], row["digest"], row["chain"]), row["ordinary"])
        for row in facts.totals
    }

    def batches(name: str, view: str) -> Batches:
        mine = [one for one in facts.delivered if one.who == name and one.view == view]
        return [(one.origin, one.first, one.end) for one in sorted(mine, key=lambda one: one.local)]

    return decide(facts.lives, delivered, batches)


def _to_everyone(tables: TraceTables) -> DataFrame:
    """Deliveries that count."""
    from pyspark.sql import functions as F

    return tables.deliveries.where(
        (F.col("kind") == "DELIVER") & F.col("destinations").isNull() & ~F.col("service").eqNullSafe(DATAGRAM)
    ).join(recorded_runs(tables), list(RUN), "left_semi")


def _totals(tables: TraceTables) -> DataFrame:
    """As `trace.shown` adds them up."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    is_total = F.col("service").eqNullSafe(TOTAL)
    text = F.concat(
        "origin_who",
        F.lit(":"),
        "first",
        F.lit("+"),
        "count",
        F.lit("="),
        F.coalesce(F.col("digest").cast("string"), F.lit("")),
    )
    place = F.row_number().over(Window.partitionBy(*LIFE, "view", "is_total").orderBy("local_index"))
    hashed = (
        _to_everyone(tables)
        .withColumn("is_total", is_total)
        .withColumn("hash", _hash(text))
        .withColumn("placed", F.pmod(F.col("hash") * place.cast("decimal(10,0)"), _modulus()))
    )
    before = F.col("local_index") < F.col("block_index")
    added = (
        hashed.join(blocks(tables), [*LIFE, "view"], "left")
        .groupBy(*LIFE, "view")
        .agg(
            F.sum("count").alias("shown"),
            F.sum("hash").alias("sum"),
            F.sum(F.when(F.col("is_total"), F.col("placed"))).alias("placed_sum"),
            F.sum(F.when(before, F.col("count")).otherwise(0)).alias("early"),
        )
    )
    entered = blocks(tables).join(recorded_runs(tables), list(RUN), "left_semi")
    whole = entered.join(added, [*LIFE, "view"], "full")
    return whole.join(tables.lives.select(*LIFE, "who"), list(LIFE), "inner").select(
        *RUN,
        F.lit("totals").alias("fact"),
        "who",
        "view",
        F.coalesce("shown", F.lit(0)).alias("shown"),
        _hex("sum").alias("digest"),
        _hex("placed_sum").alias("chain"),
        F.when(F.col("block_index").isNotNull(), F.coalesce("early", F.lit(0))).alias("ordinary"),
    )


def _hash(text: Column) -> Column:
    """The first 64 bits of SHA-256, as a decimal."""
    from pyspark.sql import functions as F

    return F.conv(F.substring(F.sha2(text, 256), 1, 16), 16, 10).cast("decimal(20,0)")


def _modulus() -> Column:
    from pyspark.sql import functions as F

    return F.lit(str(2**64)).cast("decimal(20,0)")


def _hex(total: str) -> Column:
    """A sum modulo 2**64 as sixteen hexadecimal digits."""
    from pyspark.sql import functions as F

    rest = F.pmod(F.coalesce(F.col(total), F.lit(0).cast("decimal(38,0)")), _modulus())
    return F.lpad(F.lower(F.conv(rest.cast("decimal(20,0)").cast("string"), 10, 16)), 16, "0")


def _differing(tables: TraceTables) -> DataFrame:
    """The deliveries in views about which SHOW rows of the next view differ."""
    from pyspark.sql import functions as F

    told = F.struct(*(F.col("attributes")[name] for name in ("shown", "digest", "chain")))
    apart = (
        tables.events.where((F.col("kind") == "SHOW") & F.col("attributes")["previous"].isNotNull())
        .groupBy(*RUN, F.col("attributes")["previous"].alias("previous"), F.col("view").alias("next"))
        .agg(F.countDistinct(told).alias("told"))
        .where(F.col("told") > 1)
        .select(*RUN, F.col("previous").alias("view"))
        .distinct()
    )
    rows = _to_everyone(tables).join(apart, [*RUN, "view"], "left_semi")
    return delivered_facts(rows.withColumn("early", F.lit(False)))
