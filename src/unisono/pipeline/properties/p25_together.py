"""What Spark does for P25: it adds up what each life delivered in each view, and picks the deliveries of views about which
members that showed the next one differ, so that a violation can name messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.properties.few_rows import SummedUp, picked
from unisono.pipeline.tables import LIFE, WHOSE
from unisono.trace.checks.history import History
from unisono.trace.checks.p25_together import DeliveredInView, Together
from unisono.trace.schema import DATAGRAM, SHOW, SHOWN, TOTAL
from unisono.trace.shown import Shown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables


def _checker(history: History, totals: list[dict[str, Any]]) -> Together:
    return Together(
        history,
        {
            (row["who"], row["view"]): DeliveredInView(
                Shown(row["shown"], row["digest"], row["chain"]), row["ordinary"]
            )
            for row in totals
        },
    )


def _recorded(tables: TraceTables) -> DataFrame:
    """The runs in which anything was recorded of what applications were shown."""
    return tables.outline.where(F.col("kind").isin(*sorted(SHOWN))).select(*WHOSE).distinct()


def _blocks(tables: TraceTables) -> DataFrame:
    """When each life blocked first in each view."""
    return tables.stays.groupBy(*LIFE, "view").agg(F.min("block_index").alias("block_index"))


def _to_everyone(tables: TraceTables) -> DataFrame:
    """Deliveries that count."""
    return tables.deliveries.where(
        (F.col("kind") == "DELIVER") & F.col("destinations").isNull() & ~F.col("service").eqNullSafe(DATAGRAM)
    ).join(_recorded(tables), list(WHOSE), "left_semi")


def _totals(tables: TraceTables) -> DataFrame:
    """As `trace.shown` adds them up."""
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
        hashed.join(_blocks(tables), [*LIFE, "view"], "left")
        .groupBy(*LIFE, "view")
        .agg(
            F.sum("count").alias("shown"),
            F.sum("hash").alias("sum"),
            F.sum(F.when(F.col("is_total"), F.col("placed"))).alias("placed_sum"),
            F.sum(F.when(before, F.col("count")).otherwise(0)).alias("early"),
        )
    )
    entered = _blocks(tables).join(_recorded(tables), list(WHOSE), "left_semi")
    whole = entered.join(added, [*LIFE, "view"], "full")
    return whole.join(tables.lives.select(*LIFE, "who"), list(LIFE), "inner").select(
        *WHOSE,
        "who",
        "view",
        F.coalesce("shown", F.lit(0)).alias("shown"),
        _hex("sum").alias("digest"),
        _hex("placed_sum").alias("chain"),
        F.when(F.col("block_index").isNotNull(), F.coalesce("early", F.lit(0))).alias("ordinary"),
    )


def _hash(text: Column) -> Column:
    """The first 64 bits of SHA-256, as a decimal."""
    return F.conv(F.substring(F.sha2(text, 256), 1, 16), 16, 10).cast("decimal(20,0)")


def _modulus() -> Column:
    return F.lit(str(2**64)).cast("decimal(20,0)")


def _hex(total: str) -> Column:
    """A sum modulo 2**64 as sixteen hexadecimal digits."""
    rest = F.pmod(F.coalesce(F.col(total), F.lit(0).cast("decimal(38,0)")), _modulus())
    return F.lpad(F.lower(F.conv(rest.cast("decimal(20,0)").cast("string"), 10, 16)), 16, "0")


def differing_deliveries(tables: TraceTables) -> DataFrame:
    """The deliveries in views about which SHOW rows of the next view differ."""
    told = F.struct(*(F.col("attributes")[name] for name in ("shown", "digest", "chain")))
    apart = (
        tables.outline.where((F.col("kind") == SHOW) & F.col("attributes")["previous"].isNotNull())
        .groupBy(*WHOSE, F.col("attributes")["previous"].alias("previous"), F.col("view").alias("next"))
        .agg(F.countDistinct(told).alias("told"))
        .where(F.col("told") > 1)
        .select(*WHOSE, F.col("previous").alias("view"))
        .distinct()
    )
    return picked(tables, _to_everyone(tables).join(apart, [*WHOSE, "view"], "left_semi").select(*LIFE, "local_index"))


TOTALS = SummedUp(_totals, _checker)
