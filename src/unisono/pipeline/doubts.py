"""Which runs digests leave in doubt: the facts of all lives, compared by Spark.

A run without a doubt keeps every property that digests decide; why, is told in `verify`.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.owed import carried_by
from unisono.pipeline.piece_seams import misfits
from unisono.pipeline.properties.scanning import computed_once
from unisono.pipeline.tables import WHOSE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def doubtful(facts: DataFrame, in_pieces: bool = True) -> DataFrame:
    """The (run, group)s about which digests leave a doubt, each once. `in_pieces`: some lives were scanned in pieces."""
    seams = [misfits(facts.where(F.col("what") == "edge"))] if in_pieces else []
    facts = computed_once(_joined(facts)) if in_pieces else facts
    suspects = facts.where(F.col("what") == "suspect").select(*WHOSE)
    stays = facts.where(F.col("what") == "stay").select(*WHOSE, "who", "view", "way", "members")
    labels = (  # the pieces of a life name one protocol (P0)
        facts.groupBy(*WHOSE, "who")
        .agg(F.min("protocol").alias("one"), F.max("protocol").alias("other"))
        .where(F.col("one") != F.col("other"))
        .select(*WHOSE)
    )
    parts = (suspects, *seams, labels, *_views(facts, stays), _sequences(facts, stays), _sets(facts, stays))
    # Each is small. Spark plans one query of all of them anew after each of its stages, which takes longer than to run them.
    found = reduce(lambda one, other: one.unionByName(other), map(computed_once, parts)).distinct()
    return found.select(
        *(F.col(name).alias(name) for name in WHOSE)
    )  # columns of their own, to be joined with those of facts


def _views(facts: DataFrame, stays: DataFrame) -> tuple[DataFrame, ...]:
    """One member list and one order a view (P11), one life for every member that it lists, and parties as told (P15)."""
    orders = facts.where(F.col("what") == "order").select(*WHOSE, "view", "what", F.col("order").alias("said"))
    lists = facts.where(F.col("what") == "stay").select(*WHOSE, "view", "what", F.col("members").alias("said"))
    apart = (
        orders.unionByName(lists)
        .groupBy(*WHOSE, "view", "what")
        .agg(F.min("said").alias("one"), F.max("said").alias("other"))
        .where(F.col("one") != F.col("other"))
        .select(*WHOSE)
    )
    listed = stays.select(*WHOSE, F.explode(F.split("members", ",")).alias("who")).distinct()
    lives = facts.where(F.col("what") == "life").select(*WHOSE, "who")
    strangers = listed.join(lives, [*WHOSE, "who"], "left_anti").select(*WHOSE)
    twice = lives.groupBy(*WHOSE, "who").count().where(F.col("count") > 1).select(*WHOSE)
    # Members that go one way are exactly those that their VIEW rows name, and no others go to the same view (P15).
    parties = (
        stays.where(F.col("way").contains("|"))
        .groupBy(*WHOSE, "view", "way")
        .agg(F.concat_ws(",", F.array_sort(F.collect_set("who"))).alias("came"))
        .withColumn("next_view", F.substring_index("way", "|", 1))
        .withColumn("along", F.col("way").substr(F.length("next_view") + 2, F.length("way")))
        .withColumn("is_told", F.col("came") == F.col("along"))
        .groupBy(*WHOSE, "view", "next_view")
        .agg(F.min("is_told").alias("is_told"), F.count("*").alias("ways"))
        .where(~F.col("is_told") | (F.col("ways") > 1))
        .select(*WHOSE)
    )
    # Services that the order of their view carries (P0); a part of a life may not know that order.
    used = facts.where(F.col("what").isin("cast", "origin")).select(*WHOSE, "view", "service").distinct()
    named = facts.where(F.col("what") == "order").select(*WHOSE, "view", "order").distinct()
    foreign = (
        used.join(named, [*WHOSE, "view"], "inner")
        .where(~F.array_contains(carried_by(F.col("order")), F.col("service")))
        .select(*WHOSE)
    )
    return apart, foreign, strangers, twice, parties


def _sequences(facts: DataFrame, stays: DataFrame) -> DataFrame:
    """The sequence of each stay as one digest of its blocks; all stays of a view must agree.

    Those of one way owe each other the same sequence (P9). That causes come first (P8, P1) is shown by one sequence of all:
    a member that left or crashed may have cast after it delivered what others deliver later.
    """
    blocks = (
        facts.where(F.col("what") == "block")
        .groupBy(*WHOSE, "who", "view")
        .agg(
            F.sum("messages").alias("deliveries"),
            F.expr("bit_xor(xxhash64(service, block, messages, xor, sum))").alias("digest"),
        )
    )
    return (
        stays.join(blocks, [*WHOSE, "who", "view"], "left")
        .na.fill(0, ["deliveries", "digest"])
        .groupBy(*WHOSE, "view")
        .agg(
            F.min(F.struct("deliveries", "digest")).alias("one"), F.max(F.struct("deliveries", "digest")).alias("other")
        )
        .where(F.col("one") != F.col("other"))
        .select(*WHOSE)
    )


def _sets(facts: DataFrame, stays: DataFrame) -> DataFrame:
    """What each stay delivered of each origin is what that origin cast in that view (P1, P4, P5, P13, P14)."""
    cast = facts.where(F.col("what") == "cast").select(
        *WHOSE, "view", F.col("who").alias("origin"), "service", _digest().alias("cast")
    )
    origin = facts.where(F.col("what") == "origin").select(
        *WHOSE,
        "who",
        "view",
        "origin",
        "service",
        _digest().alias("delivered"),
    )
    return (
        stays.select(*WHOSE, "who", "view")
        .join(cast, [*WHOSE, "view"], "inner")
        .join(origin, [*WHOSE, "who", "view", "origin", "service"], "full")
        .where(~F.col("cast").eqNullSafe(F.col("delivered")))
        .select(*WHOSE)
    )


def _joined(facts: DataFrame) -> DataFrame:
    """The digests of pieces added up, so that they are those of whole lives."""
    partial = F.col("what").isin("block", "origin", "cast")
    identity = (*WHOSE, "protocol", "who", "what", "view", "service", "origin", "block")
    whole = F.lit(str(2**64)).cast("decimal(38,0)")  # sums wrap at 64 bits, and are written as signed numbers
    total = F.pmod(F.sum(F.col("sum").cast("decimal(38,0)")), whole)
    signed = F.when(total >= whole / 2, total - whole).otherwise(total).cast("bigint")
    added = (
        facts.where(partial)
        .groupBy(*identity)
        .agg(
            F.sum("rows").alias("rows"),
            F.sum("messages").alias("messages"),
            F.bit_xor("xor").alias("xor"),
            signed.alias("sum"),
        )
    )
    return facts.where(~partial).unionByName(added, allowMissingColumns=True)


def _digest() -> Column:
    return F.struct("rows", "messages", "xor", "sum")
