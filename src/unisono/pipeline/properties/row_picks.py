"""The rows that some checkers need of kinds of which there are many: those that may break the property, and what they name.

Each function returns rows of `TraceTables.events`, for `few_rows`. A checker finds in them what it finds in all rows of a run.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.attributed_rows import ORIGIN, each_index, marked
from unisono.pipeline.properties.attributes import is_true, whole
from unisono.pipeline.properties.few_rows import picked
from unisono.pipeline.tables import FEW, LIFE, WHOSE, name_of
from unisono.trace.checks.p16_merge import TRAFFIC
from unisono.trace.evidence import EVIDENCE
from unisono.trace.schema import CAST, DECIDE, DELIVER, DROP, END, HEAL, OK, RECEIPT, RECEIVE, VOTE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

ROW = (*LIFE, "local_index")
SHARE_ROWS = 200_000
"""About how many rows of transactions one task judges."""


def rows_of_old_views(tables: TraceTables) -> DataFrame:
    """For P16: rows that name another view than the one installed, and deliveries of what was cast in one, beside the CAST."""
    late = marked(tables.events).where(F.col("kind").isin(*sorted(TRAFFIC)) & (F.col("view") != F.col("installed")))
    across = tables.parts.where(F.col("cast_view") != F.col("view"))
    return picked(tables, _all(late.select(*ROW), across.select(*ROW), _casts_of(across)))


def _casts_of(parts: DataFrame, *more: str) -> DataFrame:
    """Where the CAST of each delivery is, if there is one."""
    return parts.where(F.col("cast_local").isNotNull()).select(
        *WHOSE,
        F.col("origin").alias("member"),
        F.col("origin_incarnation").alias("incarnation"),
        F.col("cast_local").alias("local_index"),
        *more,
    )


def rows_of_transactions(tables: TraceTables) -> DataFrame:
    """For P18: all rows of each transaction in one share.

    A delivery is of the transaction that its CAST names. Those that deliveries confuse with others are judged together.
    """
    named = tables.events.where(F.col("transaction").isNotNull()).select(*ROW, "kind", "transaction")
    own = named.where(F.col("kind").isin(CAST, RECEIVE, VOTE, DECIDE)).drop("kind")
    of_cast = named.where(F.col("kind") == CAST).select(
        *WHOSE,
        F.col("member").alias("origin"),
        F.col("incarnation").alias("origin_incarnation"),
        F.col("local_index").alias("cast_local"),
        F.col("transaction").alias("of_cast"),
    )
    delivered = (
        tables.parts.join(of_cast, [*ORIGIN, "cast_local"], "left")
        .join(named.drop("kind"), list(ROW), "left")
        .withColumn("both", F.array_compact(F.array_distinct(F.array("of_cast", "transaction"))))
        .withColumn("transaction", F.explode("both"))
    )
    rows = _all(own, delivered.select(*ROW, "transaction"), _casts_of(delivered, "transaction")).distinct()
    apart = delivered.where(F.size("both") > 1).select(*WHOSE, "transaction", F.lit(True).alias("is_apart")).distinct()
    sizes = rows.groupBy(*WHOSE).agg((F.count("*") / SHARE_ROWS).cast("bigint").alias("size"))
    share = F.when(F.col("is_apart"), -1).otherwise(F.pmod(F.xxhash64("transaction"), F.col("size") + 1))
    shared = rows.join(F.broadcast(sizes), list(WHOSE), "inner").join(apart, [*WHOSE, "transaction"], "left")
    return picked(tables, shared.select(*ROW, share.alias("share")))


def suspicious_packets(tables: TraceTables) -> DataFrame:
    """For P21: RECEIVE rows of a stranger to the view, or of a sender that was not authenticated; and DROPs of injected packets."""
    lists = tables.views.groupBy(*LIFE, "view").agg(F.min_by("members", "local_index").alias("first_list"))
    senders = F.array_compact(F.array(name_of(F.col("origin"), F.col("origin_incarnation")), _attribute("sender")))
    is_strange = (_attribute("authenticated") == "false") | (F.size(F.array_except(senders, "first_list")) > 0)
    accepted = tables.events.where(F.col("kind") == RECEIVE).join(lists, [*LIFE, "view"], "left").where(is_strange)
    dropped = tables.events.where((F.col("kind") == DROP) & _attribute("injected").isNotNull())
    return dropped.unionByName(accepted.select(*dropped.columns))


def late_messages(tables: TraceTables) -> DataFrame:
    """For P22: casts that a life with HEAL which installed their view, or their caster, did not deliver by the earliest limit.

    They come with all their deliveries; and with decisions to abort.
    """
    bound = whole(_attribute("bound_ns"))
    heals = tables.outline.where((F.col("kind") == HEAL) & bound.isNotNull())
    limits = heals.groupBy(*WHOSE).agg(F.min("time_ns").alias("healed"), F.min(bound).alias("bound"))
    lives = tables.lives.where(~F.col("holed") & (F.col("ending") == END)).join(heals, list(LIFE), "left_semi")
    due = F.greatest("time_ns", "healed") + F.col("bound")
    casts = (
        tables.casts.join(lives, list(LIFE), "left_semi")
        .join(F.broadcast(limits), list(WHOSE), "inner")
        .select(*ROW, "view", "origin_who", due.alias("due"), each_index().alias("index"))
    )
    there = tables.views.join(lives, list(LIFE), "left_semi").select(*WHOSE, "view", "who").distinct()
    asked = casts.join(there, [*WHOSE, "view"], "inner").unionByName(casts.withColumn("who", F.col("origin_who")))
    message = (*WHOSE, "origin_who", "index")
    delivered = tables.deliveries.withColumn("index", each_index())
    times = delivered.groupBy(*message, "who").agg(F.min("time_ns").alias("at"))
    late = asked.join(times, [*message, "who"], "left").where(F.col("at").isNull() | (F.col("at") > F.col("due")))
    theirs = delivered.join(late, list(message), "left_semi")
    aborts = tables.votes.where((F.col("kind") == DECIDE) & (F.col("decision") == "abort"))
    return picked(tables, _all(late.select(*ROW), theirs.select(*ROW), aborts.select(*ROW)))


def stable_messages(tables: TraceTables) -> DataFrame:
    """For P26: the casts of which a caster was told that they are stable, and who delivered them."""
    return _messages(tables, _with_receipts(tables, (_attribute("stage") == "stable") & (_attribute("outcome") == OK)))


def safe_messages(tables: TraceTables) -> DataFrame:
    """For P27: the safe casts of primary views, and who delivered them."""
    primary = tables.views.where(is_true("primary"))
    return _messages(tables, tables.casts.where(is_true("safe")).join(primary, [*WHOSE, "view"], "left_semi"))


def receipted_messages(tables: TraceTables) -> DataFrame:
    """For P28: the casts of which a caster was told anything, and its own deliveries of them."""
    return _messages(tables, _with_receipts(tables, F.lit(True)), F.col("who") == F.col("origin_who"))


def telling_rows(tables: TraceTables) -> DataFrame:
    """For `owed.untold`: the first row of each life, view and service that says, or fails to say, what a property needs.

    And the first delivery of each life without a CAST, or whose digest cannot be compared with the CAST's; all with their CASTs.
    """
    says: tuple[Column, ...] = (_attribute("vector").isNull(), F.col("transaction").isNull(), is_true("safe"))
    kinds = sorted(frozenset[str]().union(*(one.kinds for one in EVIDENCE)) - FEW)
    first = F.min("local_index").alias("local_index")
    firsts = tables.events.where(F.col("kind").isin(*kinds)).groupBy(*LIFE, "kind", "view", "service", *says).agg(first)
    is_alike = (F.col("cast_first") == F.col("row_first")) & (F.col("cast_count") == F.col("row_count"))
    is_comparable = is_alike & F.col("digest").isNotNull() & F.col("cast_digest").isNotNull()
    is_cast = F.col("cast_local").isNotNull()
    unclear = tables.parts.where(~is_cast | ((F.col("kind") == DELIVER) & ~is_comparable))
    rows = _all(firsts.select(*ROW), unclear.groupBy(*LIFE, is_cast).agg(first).select(*ROW))
    return picked(tables, _all(rows, _casts_of(tables.parts.join(rows, list(ROW), "left_semi"))))


def _with_receipts(tables: TraceTables, condition: Column) -> DataFrame:
    """The casts of which RECEIPT rows that meet a condition tell."""
    told = tables.outline.where((F.col("kind") == RECEIPT) & condition).select(*LIFE, each_index().alias("index"))
    return tables.casts.withColumn("index", each_index()).join(told, [*LIFE, "index"], "left_semi")


def _messages(tables: TraceTables, casts: DataFrame, whose: Column | None = None) -> DataFrame:
    """These casts and their deliveries."""
    asked = casts.select(*ORIGIN, F.col("local_index").alias("cast_local"))
    delivered = tables.parts if whose is None else tables.parts.where(whose)
    theirs = delivered.join(asked, [*ORIGIN, "cast_local"], "left_semi")
    return picked(tables, _all(casts.select(*ROW), theirs.select(*ROW)))


def _attribute(name: str) -> Column:
    return F.col("attributes")[name]


def _all(*tables: DataFrame) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), tables)
