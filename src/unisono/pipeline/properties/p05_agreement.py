"""P5 agreement: in V, what one member delivers every addressee of the same (V→V') delivers.

What only a crashed member delivered is not owed by others, unless it was **safe** (`attributes.safe` of its CAST is ``true``) and
delivered before that member blocked: then every addressee that got through V, whichever way, delivers it too (uniform agreement).

Placeholders do not count: an addressee for whom the payload became void while another one delivered it has broken agreement. So
has one for whom it became void although its caster, which holds it, went the same (V→V'), or before the member blocked. Not asked
of a last view that was cut, nor of the service `datagram`: delivering one obliges no other member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.attributed_rows import each_index
from unisono.pipeline.properties.base import violation
from unisono.pipeline.properties.relations import STAY, WAY, deliveries, judged_stays, transitions
from unisono.trace.schema import DATAGRAM

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P5"


def violations(tables: TraceTables) -> DataFrame:
    through = transitions(tables).where(~F.col("cut"))
    delivered = (
        deliveries(tables)
        .where((F.col("kind") == "DELIVER") & ~F.col("service").eqNullSafe(DATAGRAM))
        .select(*STAY, "local_index", "origin_who", "destinations", each_index().alias("index"))
    )
    of_one_way = (
        delivered.join(through.where(F.size("together") > 1), list(STAY), "inner")
        .groupBy(*WAY, "next_view", "together", "origin_who", "index")
        .agg(
            F.min(F.struct("who", "local_index")).alias("holder"),
            F.collect_set("who").alias("holders"),
            _destinations().alias("destinations"),
        )
        .withColumns({"safe": F.lit(None).cast("string"), "cast_local": F.lit(None).cast("bigint")})
    )
    found = _without(of_one_way).unionByName(_safe(tables, delivered, through))
    found = found.unionByName(_void(tables, through), allowMissingColumns=True)
    return violation(
        found,
        PROPERTY,
        F.concat(F.array("holder.who"), "lacking"),
        {
            "message": F.concat("origin_who", F.lit(":"), "index"),
            "holder": "holder.who",
            "local_index": "holder.local_index",
            "lacking": F.concat_ws(", ", "lacking"),
            "next_view": "next_view",
            "safe": "safe",
            "cast_local": "cast_local",
        },
    )


def _destinations() -> Column:
    """Of one message as several delivered it; null: it is for all."""
    return F.when(~F.max(F.col("destinations").isNull()), F.max("destinations"))


def _without(messages: DataFrame) -> DataFrame:
    """Messages that a member of `together` lacks."""
    addressed = F.when(F.col("destinations").isNull(), F.col("together")).otherwise(
        F.array_intersect("together", "destinations")
    )
    return messages.withColumn("lacking", F.array_except(addressed, "holders")).where(F.size("lacking") > 0)


def _safe(tables: TraceTables, delivered: DataFrame, through: DataFrame) -> DataFrame:
    """Messages delivered safely by a member before it blocked, but by none that went one way through the same view."""
    view = ("run", "group", "view")
    message = ("origin_who", "index")
    safe = (
        tables.casts.where(F.col("attributes")["safe"] == "true")
        .select("run", "group", "origin_who", each_index().alias("index"))
        .distinct()
    )
    is_early = F.col("block_index").isNull() | (F.col("local_index") < F.col("block_index"))
    early = (
        delivered.join(safe, ["run", "group", *message], "left_semi")
        .join(judged_stays(tables).select(*STAY, "who", "block_index"), list(STAY), "inner")
        .where(is_early)
        .groupBy(*view, *message)
        .agg(F.min(F.struct("who", "local_index")).alias("holder"), _destinations().alias("destinations"))
    )
    ways = through.select(*WAY, "next_view", "together").distinct()
    had = delivered.join(through.select(*STAY, "way"), list(STAY), "inner").select(*WAY, *message).distinct()
    missed = (
        early.join(ways, list(view), "inner")
        .join(had, [*WAY, *message], "left_anti")
        .withColumn("holders", F.array().cast("array<string>"))
        .withColumns({"safe": F.lit("true"), "cast_local": F.lit(None).cast("bigint")})
    )
    return _without(missed)


def _void(tables: TraceTables, through: DataFrame) -> DataFrame:
    """What is void at an addressee, although no cut had closed the view, or the caster went the same way."""
    addressed = F.col("destinations").isNull() | F.array_contains("destinations", F.col("who"))
    casters = through.select(*WAY, F.col("who").alias("origin_who"), F.lit(True).alias("with_caster")).distinct()
    blocked = judged_stays(tables).select(*STAY, "block_index")
    is_early = F.col("block_index").isNull() | (F.col("local_index") < F.col("block_index"))
    return (
        tables.parts.where((F.col("kind") == "PLACE") & addressed & (F.col("cast_view") == F.col("view")))
        .join(through.select(*STAY, "way", "next_view"), list(STAY), "inner")
        .join(casters, [*WAY, "origin_who"], "left")
        .join(blocked, list(STAY), "inner")
        .where(F.col("with_caster") | is_early)
        .select(
            *WAY,
            "next_view",
            "origin_who",
            F.col("first").alias("index"),
            F.struct(F.col("origin_who").alias("who"), "local_index").alias("holder"),
            F.array("who").alias("lacking"),
            F.when(F.col("with_caster"), F.col("cast_local")).otherwise(-1).alias("cast_local"),
        )
    )
