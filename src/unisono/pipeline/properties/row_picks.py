"""The rows that some checkers need of kinds of which there are many: those that may break the property, and what they name.

Each function returns rows of `TraceTables.events`, for `few_rows`. A checker finds in them what it finds in all rows of a run.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.attributed_rows import ORIGIN, each_index, marked
from unisono.pipeline.properties.attributes import is_true, whole
from unisono.pipeline.properties.few_rows import picked
from unisono.pipeline.properties.relations import STAY, WAY, transitions
from unisono.pipeline.tables import FEW, LIFE, WHOSE, name_of
from unisono.trace.checks.p16_merge import TRAFFIC
from unisono.trace.evidence import EVIDENCE
from unisono.trace.schema import (
    CAST,
    DATAGRAM,
    DECIDE,
    DELIVER,
    DROP,
    END,
    HEAL,
    LEAVE,
    NAMES,
    OK,
    PLACE,
    RECEIPT,
    RECEIVE,
    STABLE,
    TOTAL,
    VOTE,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

    from unisono.pipeline.tables import TraceTables

ROW = (*LIFE, "local_index")
MESSAGE = (*WHOSE, "origin_who", "index")
SHARE_ROWS = 200_000
"""About how many rows of transactions one task judges."""


def wrong_deliveries(tables: TraceTables) -> DataFrame:
    """For P1: deliveries that differ from their CAST; and those without one, if what is missing cannot hide it.

    With all that they deliver: a CAST that is there must not seem to be missing.
    """
    is_delivered = F.col("kind") == DELIVER
    is_alike = (F.col("cast_first") == F.col("row_first")) & (F.col("cast_count") == F.col("row_count"))
    addressed = F.coalesce(F.array_contains("cast_destinations", F.col("who")), F.lit(True))
    here, there = F.array_sort("destinations"), F.array_sort("cast_destinations")
    differs = (
        (is_delivered & (~addressed | (is_alike & (F.col("digest") != F.col("cast_digest")))))
        | (~is_delivered & addressed & ~F.col("void"))
        | (F.col("service") != F.col("cast_service"))
        | ~here.eqNullSafe(there)
    )
    wrong = tables.parts.where(F.col("cast_local").isNotNull() & differs)
    origins = tables.lives.select(
        *WHOSE,
        F.col("who").alias("origin_who"),
        F.lit(True).alias("traced"),
        F.col("unknown").isNotNull().alias("unknown"),
    )
    listed = tables.views.select(*WHOSE, F.explode("members").alias("origin_who")).distinct()
    hidden = F.when(F.col("traced"), F.col("unknown")).otherwise(F.col("listed").isNotNull() | F.col("stay_holed"))
    uncast = (
        tables.parts.where(F.col("cast_local").isNull())
        .join(origins, [*WHOSE, "origin_who"], "left")
        .join(listed.withColumn("listed", F.lit(True)), [*WHOSE, "origin_who"], "left")
        .where(~hidden)
    )
    rows = _all(wrong.select(*ROW), uncast.select(*ROW)).distinct()
    return picked(tables, _all(rows, _casts_of(tables.parts.join(rows, list(ROW), "left_semi"))))


def overlapping_deliveries(tables: TraceTables) -> DataFrame:
    """For P2: batches of one origin that overlap. Sorted by their first index, each begins before the highest end so far."""
    lower = _before("first", "local_index")
    batch = F.struct((F.col("first") + F.col("count")).alias("end"), "local_index")
    rows = tables.deliveries.where(F.col("kind") == DELIVER).withColumn("other", F.max(batch).over(lower))
    return picked(tables, _both(rows.where(F.col("other.end") > F.col("first"))))


def deliveries_of_strangers(tables: TraceTables) -> DataFrame:
    """For P3: deliveries in a view of which the member or the origin is none."""
    is_member, is_origin_member = (F.array_contains("members", F.col(name)) for name in ("who", "origin_who"))
    return picked(
        tables, tables.attributed.where((F.col("kind") != CAST) & ~(is_member & is_origin_member)).select(*ROW)
    )


def undelivered_casts(tables: TraceTables) -> DataFrame:
    """For P4: the casts of which their own member, if it did not crash, did not deliver everything; and what it delivered."""
    correct = tables.lives.where(F.col("ending").isin(END, LEAVE) & ~F.col("holed"))
    is_own = F.col("who") == F.col("origin_who")
    is_placed_for_others = F.coalesce(~F.array_contains("cast_destinations", F.col("who")), F.lit(False))
    counts = is_own & ((F.col("kind") == DELIVER) | is_placed_for_others)
    delivered = tables.parts.where(counts).select(*LIFE, each_index().alias("index"))
    casts = tables.casts.join(correct, list(LIFE), "left_semi").withColumn("index", each_index())
    return _messages(tables, casts.join(delivered, [*LIFE, "index"], "left_anti"), is_own)


def unshared_messages(tables: TraceTables) -> DataFrame:
    """For P5 and P14: messages that not all who left a view together have, or safe ones that all have who left it in one way.

    And those that are void at an addressee. Each row is cut down to such a message: what else is in its batch is not picked
    elsewhere, and would seem to be lacking there.
    """
    through = transitions(tables).where(~F.col("cut")).select(*STAY, "way", F.size("together").alias("asked"))
    ways = through.groupBy(*WHOSE, "view").agg(F.count_distinct("way").alias("ways"))
    is_void = (F.col("kind") == PLACE) & F.coalesce(F.array_contains("destinations", F.col("who")), F.lit(True))
    message = ("origin_who", "index")
    safe = tables.casts.where(is_true("safe")).select(*WHOSE, "origin_who", each_index().alias("index")).distinct()
    held = (
        tables.attributed.where((F.col("kind") != CAST) & ~F.col("service").eqNullSafe(DATAGRAM))
        .select(*STAY, "who", "origin_who", each_index().alias("index"), is_void.alias("void"))
        .join(through, list(STAY), "left")
        .groupBy(*WAY, *message)
        .agg(F.count_distinct("who").alias("having"), F.max("asked").alias("asked"), F.max("void").alias("void"))
    )
    lacked = held.where(F.col("way").isNotNull() & ((F.col("having") < F.col("asked")) | F.col("void")))
    unsafe = (
        held.join(safe, list(MESSAGE), "left_semi")
        .groupBy(*WHOSE, "view", *message)
        .agg(F.count("way").alias("having"))
        .join(ways, [*WHOSE, "view"], "inner")
        .where(F.col("having") < F.col("ways"))
    )
    asked = _all(lacked.select(*MESSAGE), unsafe.select(*MESSAGE)).distinct()
    return _rows_of(tables, asked, CAST, DELIVER, PLACE).unionByName(_words_before_views(tables))


def _words_before_views(tables: TraceTables) -> DataFrame:
    """Rows that name a view which their life installs later; as datagrams, so that they are not taken for deliveries in it."""
    installed = tables.stays.groupBy(*LIFE, "view").agg(F.min("from_index").alias("installed_at"))
    words = tables.attributed.join(installed, [*LIFE, "view"], "inner").where(
        F.col("local_index") < F.col("installed_at")
    )
    return picked(tables, words.select(*ROW)).withColumn("service", F.lit(DATAGRAM))


def _rows_of(tables: TraceTables, messages: DataFrame, *kinds: str) -> DataFrame:
    """The rows of these kinds about these messages (`MESSAGE`), each cut down to one of them."""
    origin = name_of(F.col("origin"), F.col("origin_incarnation"))
    each = tables.events.where(F.col("kind").isin(*kinds)).select(
        "*", origin.alias("origin_who"), each_index().alias("index")
    )
    one = F.lit(1).cast("bigint")
    return (
        each.join(messages, list(MESSAGE), "left_semi")
        .withColumns({"first": F.col("index"), "count": one})
        .select(*NAMES)
    )


def disordered_deliveries(tables: TraceTables) -> DataFrame:
    """For P6: deliveries behind a later one of the same origin, and that. Messages that are `total` wait for one another only."""
    before = _before("local_index")
    highest = F.struct((F.col("first") + F.col("count")).alias("end"), "local_index")
    is_total = F.col("service") == TOTAL
    after = F.when(is_total, F.max(F.when(is_total, highest)).over(before)).otherwise(F.max(highest).over(before))
    return picked(
        tables, _both(tables.deliveries.withColumn("other", after).where(F.col("other.end") > F.col("first")))
    )


def _before(*order: str) -> WindowSpec:
    """What a life delivered of one origin, up to a row."""
    origin = Window.partitionBy(*LIFE, "origin", "origin_incarnation")
    return origin.orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)


def _both(found: DataFrame) -> DataFrame:
    return found.select(*LIFE, F.explode(F.array("local_index", "other.local_index")).alias("local_index"))


def deliveries_of_other_views(tables: TraceTables) -> DataFrame:
    """For P13: deliveries of what was cast in another view, beside the CAST."""
    across = tables.parts.where(F.col("cast_view") != F.col("view"))
    return picked(tables, _all(across.select(*ROW), _casts_of(across)))


def rows_of_old_views(tables: TraceTables) -> DataFrame:
    """For P16: likewise, and rows that name another view than the one installed."""
    late = marked(tables.events).where(F.col("kind").isin(*sorted(TRAFFIC)) & (F.col("view") != F.col("installed")))
    across = tables.parts.where(F.col("cast_view") != F.col("view"))
    return picked(tables, _all(late.select(*ROW), across.select(*ROW), _casts_of(across)))


def unheld_safe_messages(tables: TraceTables) -> DataFrame:
    """For P17: safe messages delivered before a STABLE for them, or unreceived here, or by some member of the view.

    A member that is not whole may have received what its rows do not show.
    """
    who = name_of(F.col("member"), F.col("incarnation"))
    origin = name_of(F.col("origin"), F.col("origin_incarnation"))
    marks = tables.events.where(F.col("kind").isin(RECEIVE, CAST, STABLE)).select(
        *WHOSE, who.alias("who"), origin.alias("origin_who"), "local_index", "kind", each_index().alias("index")
    )
    at = F.min(F.when(F.col("kind") != STABLE, F.col("local_index")))
    known = marks.groupBy(*MESSAGE, "who").agg(
        at.alias("held_at"), F.min(F.when(F.col("kind") == STABLE, F.col("local_index"))).alias("stable_at")
    )
    holders = known.where(F.col("held_at").isNotNull()).groupBy(*MESSAGE).agg(F.collect_set("who").alias("holders"))
    whole = tables.lives.where(F.col("unknown").isNull()).groupBy(*WHOSE).agg(F.collect_set("who").alias("whole"))
    safe = tables.casts.where(is_true("safe")).select(*WHOSE, "origin_who", each_index().alias("index")).distinct()
    nobody = F.array().cast("array<string>")
    lacking = F.array_except(F.array_intersect("members", F.coalesce("whole", nobody)), F.coalesce("holders", nobody))
    is_known = (F.col("stable_at") < F.col("local_index")) & (F.col("held_at") < F.col("local_index"))
    delivered = (
        tables.attributed.where((F.col("kind") == DELIVER) & F.col("stay").isNotNull())
        .select(*WHOSE, "who", "local_index", "members", "origin_who", each_index().alias("index"))
        .join(safe, list(MESSAGE), "left_semi")
        .join(known, [*MESSAGE, "who"], "left")
        .join(holders, list(MESSAGE), "left")
        .join(whole, list(WHOSE), "left")
        .where(~F.coalesce(is_known, F.lit(False)) | (F.size(lacking) > 0))
    )
    return _rows_of(tables, delivered.select(*MESSAGE).distinct(), CAST, RECEIVE, STABLE, DELIVER)


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
