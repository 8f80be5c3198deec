"""P22 bounded liveness: after the last HEAL one view a component, and everything delivered, within the bound;
no member is BLOCKed longer.

HEAL is written at every member that lives, with `attributes.bound_ns` and, where parts stay apart, `attributes.component`. A
component's start is its latest HEAL, or the last CRASH, LEAVE, JOIN or PAUSE of the run if one came later; its bound is the
largest. At start + bound its members have one view, without members that crashed, left or belong elsewhere; what one of them
casts at t, it and all members that then have its view deliver by max(t, start) + bound. Asked of lives without a gap that
ended with END; if cut, as far as they got. From the first BLOCK (or start) to the next UNBLOCK, VIEW or ending it is no longer
than the bound, and a life that ended uncut is not still blocked. Messages of a transaction that a member aborted are not
asked for. With real clocks each member is judged alone, and for BLOCK alone.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from unisono.pipeline.attributed_rows import each_index
from unisono.pipeline.properties.attributes import whole
from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import LIFE, name_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P22"
COMPONENT = ("run", "group", "component", "alone")
_ENDINGS = ("END", "LEAVE", "CRASH")


def violations(tables: TraceTables) -> DataFrame:
    healed = _healed(tables)
    asked = _asked(tables, healed)
    found = [_views(asked), _outsiders(tables, healed, asked), _late(tables, asked), _blocked(tables, healed)]
    return reduce(lambda one, other: one.unionByName(other), found)


def _healed(tables: TraceTables) -> DataFrame:
    """Every life with a HEAL: its component, and that one's start and bound."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    is_simulated = F.col("clock") == "simulated"
    name = name_of(F.col("member"), F.col("incarnation"))
    bound = whole(F.col("attributes")["bound_ns"])
    last = F.max_by(
        F.struct(
            F.col("time_ns").alias("time"),
            bound.alias("bound"),
            F.coalesce(F.col("attributes")["component"], F.lit("")).alias("component"),
            F.when(is_simulated, "").otherwise(name).alias("alone"),
        ),
        "local_index",
    )
    heals = (
        tables.events.where((F.col("kind") == "HEAL") & bound.isNotNull())
        .groupBy(*LIFE, name.alias("who"))
        .agg(last.alias("heal"))
        .select(*LIFE, "who", "heal.*")
    )
    disturbed = (
        tables.events.where(is_simulated & F.col("kind").isin("CRASH", "LEAVE", "JOIN", "PAUSE"))
        .groupBy("run", "group")
        .agg(F.max("time_ns").alias("disturbed"))
    )
    same = Window.partitionBy(*COMPONENT).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    latest = F.max("time").over(same)
    return heals.join(disturbed, ["run", "group"], "left").select(
        *LIFE,
        "who",
        "component",
        "alone",
        F.when(F.col("alone") == "", F.greatest(latest, "disturbed")).otherwise(latest).alias("start"),
        F.max("bound").over(same).alias("bound"),
    )


def _asked(tables: TraceTables, healed: DataFrame) -> DataFrame:
    """Lives that are asked for views and deliveries: what they had installed at the deadline, and until when they were there.

    `until` is null for a life that ended uncut: what it had not done by then it would never do.
    """
    from pyspark.sql import functions as F

    lives = tables.lives.where(~F.col("holed") & (F.col("ending") == "END")).select(*LIFE, "ending_reason")
    ends = (
        tables.events.where(F.col("kind").isin(*_ENDINGS))
        .groupBy(*LIFE)
        .agg(F.min_by("time_ns", "local_index").alias("end_time"))
    )
    asked = (
        healed.where(F.col("alone") == "")
        .join(lives, list(LIFE), "inner")
        .join(ends, list(LIFE), "inner")
        .withColumn("deadline", F.col("start") + F.col("bound"))
        .withColumn("until", F.when(F.col("ending_reason") == "cut", F.col("end_time")))
    )
    installs = tables.views.select(
        *LIFE, F.col("time_ns").alias("installed_at"), "local_index", F.struct("view", "members").alias("installed")
    )
    there = (
        asked.join(installs, list(LIFE), "inner")
        .where(F.col("installed_at") <= F.col("deadline"))
        .groupBy(*LIFE)
        .agg(F.max_by("installed", "local_index").alias("there"))
    )
    return asked.join(there, list(LIFE), "left").select(
        *LIFE, "who", "component", "alone", "start", "bound", "deadline", "until", "there"
    )


def _reached(time: str) -> Column:
    from pyspark.sql import functions as F

    return F.col("until").isNull() | (F.col("until") >= F.col(time))


def _views(asked: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    view = F.coalesce("there.view", F.lit("none"))
    found = (
        asked.where(_reached("deadline"))
        .groupBy(*COMPONENT, "bound")
        .agg(
            F.countDistinct(view).alias("views"),
            F.array_sort(F.collect_set("who")).alias("lives"),
            F.array_sort(F.collect_set(F.concat_ws(" at ", view, "who"))).alias("told"),
        )
        .where(F.col("views") > 1)
    )
    return _told(found, "views", F.col("lives"), bound="bound", told=F.concat_ws(", ", "told"))


def _outsiders(tables: TraceTables, healed: DataFrame, asked: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    gone = tables.lives.select("run", "group", F.col("who").alias("listed"), "ending")
    elsewhere = healed.select("run", "group", F.col("who").alias("listed"), F.struct("component", "alone").alias("at"))
    is_outside = F.coalesce(F.col("ending").isin("CRASH", "LEAVE"), F.lit(False)) | F.coalesce(
        F.col("at") != F.struct("component", "alone"), F.lit(False)
    )
    found = (
        asked.where(_reached("deadline") & F.col("there").isNotNull())
        .select(*COMPONENT, "bound", F.col("there.view").alias("view"), F.explode("there.members").alias("listed"))
        .distinct()
        .join(gone, ["run", "group", "listed"], "left")
        .join(elsewhere, ["run", "group", "listed"], "left")
        .where(is_outside)
        .groupBy(*COMPONENT, "bound", "view")
        .agg(F.array_sort(F.collect_set("listed")).alias("outsiders"))
    )
    return _told(found, "outsiders", F.col("outsiders"), bound="bound", outsiders=F.concat_ws(", ", "outsiders"))


def _late(tables: TraceTables, asked: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    casters = asked.select(*LIFE, "component", "alone", "start", "bound")
    transactions = tables.events.where(F.col("kind") == "CAST").select(*LIFE, "local_index", "transaction")
    aborted = tables.votes.where((F.col("kind") == "DECIDE") & (F.col("decision") == "abort"))
    casts = (
        tables.casts.join(casters, list(LIFE), "inner")
        .join(transactions, [*LIFE, "local_index"], "inner")
        .join(aborted.select("run", "group", "transaction"), ["run", "group", "transaction"], "left_anti")
        .withColumn("due", F.greatest("time_ns", "start") + F.col("bound"))
        .withColumn("cast_local", F.col("local_index"))
        .select(*COMPONENT, "view", "origin_who", "cast_local", "first", "due", each_index().alias("index"))
    )
    # Who was cut, and the times of deliveries, are the receiver's.
    receivers = asked.select(*COMPONENT, "who", "until", F.col("there.view").alias("there"))
    times = (
        tables.deliveries.withColumn("index", each_index())
        .groupBy("run", "group", "who", "origin_who", "index")
        .agg(F.min("time_ns").alias("delivered_at"))
    )
    owes = (F.col("who") == F.col("origin_who")) | F.coalesce(F.col("there") == F.col("view"), F.lit(False))
    found = (
        casts.join(receivers, list(COMPONENT), "inner")
        .where(owes & _reached("due"))
        .join(times, ["run", "group", "who", "origin_who", "index"], "left")
        .where(F.col("delivered_at").isNull() | (F.col("delivered_at") > F.col("due")))
        .groupBy("run", "group", "view", "who", "origin_who", "cast_local", "first", "due")
        .agg(F.min("index").alias("index"))
    )
    message = F.concat_ws(":", "origin_who", "index")
    return _told(found, "late", F.array("who", "origin_who"), message=message, cast_local="cast_local", due="due")


def _blocked(tables: TraceTables, healed: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    order = Window.partitionBy(*LIFE).orderBy("local_index")
    is_block = F.col("kind") == "BLOCK"
    lives = tables.lives.where(~F.col("holed")).select(*LIFE, F.col("ending_reason"))
    length = F.col("end_time") - F.greatest("time_ns", "start")
    is_cut = F.coalesce(F.col("ending_reason") == "cut", F.lit(False))
    for_ever = (F.col("by") == "END") & ~is_cut
    found = (
        tables.events.where(is_block | F.col("kind").isin("UNBLOCK", "VIEW", *_ENDINGS))
        .withColumn("again", is_block & F.coalesce(F.lag("kind").over(order) == "BLOCK", F.lit(False)))
        .where(~F.col("again"))
        .withColumn("by", F.lead("kind").over(order))
        .withColumn("end_time", F.lead("time_ns").over(order))
        .where(is_block & F.col("by").isNotNull())
        .join(healed, list(LIFE), "inner")
        .join(lives, list(LIFE), "inner")
        .withColumn("length", F.when(~for_ever, length))
        .where(for_ever | (length > F.col("bound")))
    )
    return _told(found, "blocked", F.array("who"), local_index="local_index", length="length", bound="bound")


def _told(found: DataFrame, what: str, members: Column, **witness: Column | str) -> DataFrame:
    from pyspark.sql import functions as F

    return violation(found, PROPERTY, members, {"what": F.lit(what), **witness})
