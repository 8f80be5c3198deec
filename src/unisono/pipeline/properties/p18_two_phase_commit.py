"""P18 two-phase commit: one decision a transaction; commit only if all voted yes, or in recovery all survivors hold it;
delivered iff committed.

Rows of a transaction name it in `transaction`: CAST, RECEIVE, DELIVER and PLACE of its messages, VOTE (yes, no; to cast is to
vote yes) and DECIDE (commit, abort; `attributes.recovery` = ``true`` if it was reached in recovery, which begins with a BLOCK). A
message is of the transaction that its CAST names, whatever its DELIVER and PLACE rows say. A commit and an abort
contradict each other at one member, among members of one (V→V'), and anywhere if the commit was not reached in recovery.
Survivors are the transitional set of the decider's next view, or the decider alone. A member that delivers had committed;
a member that commits messages delivers or places them, unless it crashed or was cut off in that view. Where a life is not whole,
nothing is concluded from the absence of its rows. The plain checker says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.attributed_rows import ORIGIN
from unisono.pipeline.properties.attributes import entries, is_true, no_strings, whole_lives
from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import LIFE, name_of
from unisono.trace.checks.p18_two_phase_commit import TOLD_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P18"
TRANSACTION = ("run", "group", "transaction")


def violations(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    rows = tables.events.where(F.col("transaction").isNotNull()).withColumn(
        "who", name_of(F.col("member"), F.col("incarnation"))
    )
    decisions = _decisions(tables, rows)
    delivered = _delivered(tables, rows)
    return (
        _two_decisions(decisions)
        .unionByName(_unfounded(tables, rows, decisions))
        .unionByName(_undecided(tables, rows, delivered))
        .unionByName(_not_delivered(tables, rows, delivered, decisions))
    )


def _delivered(tables: TraceTables, rows: DataFrame) -> DataFrame:
    """DELIVER and PLACE rows with the transaction of their CAST (`transaction`), and the one that they name (`named`)."""
    from pyspark.sql import functions as F

    cast = rows.where(F.col("kind") == "CAST").select(
        "run",
        "group",
        F.col("member").alias("origin"),
        F.col("incarnation").alias("origin_incarnation"),
        F.col("local_index").alias("cast_local"),
        F.col("transaction").alias("of_cast"),
    )
    named = rows.select(*LIFE, "local_index", F.col("transaction").alias("named"))
    return (
        tables.parts.select(*LIFE, "who", "local_index", "kind", "view", *ORIGIN[2:], "cast_local")
        .join(cast, [*ORIGIN, "cast_local"], "left")
        .join(named, [*LIFE, "local_index"], "left")
        .withColumn("transaction", F.coalesce("of_cast", "named"))
        .where(F.col("transaction").isNotNull())
        .select(*LIFE, "who", "local_index", "kind", "view", "transaction", "named")
        .distinct()
    )


def _decisions(tables: TraceTables, rows: DataFrame) -> DataFrame:
    """Every DECIDE beside the stay in which it was made."""
    from pyspark.sql import functions as F

    made = rows.where((F.col("kind") == "DECIDE") & F.col("decision").isin("commit", "abort")).select(
        *LIFE, "who", "transaction", "view", "local_index", "decision", is_true("recovery").alias("is_recovering")
    )
    blocked = tables.stays.groupBy(*LIFE, "view").agg(
        F.min("block_index").alias("blocked_at"), F.max("holed").alias("stay_holed")
    )
    may_recover = F.coalesce("stay_holed", F.lit(True)) | F.coalesce(
        F.col("blocked_at") < F.col("local_index"), F.lit(False)
    )
    return (
        made.join(entries(tables).drop("who"), [*LIFE, "view"], "left")
        .join(blocked, [*LIFE, "view"], "left")
        .withColumn("recovery", F.col("is_recovering") & may_recover)
    )


def _two_decisions(decisions: DataFrame) -> DataFrame:
    """Commits and aborts that contradict each other: anywhere, at one life, or among members of one (V→V')."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    commits, aborts = (F.col("decision") == one for one in ("commit", "abort"))
    of_all = commits & ~F.col("recovery")  # all had voted for it

    def both(*key: str) -> Column:
        """Whether there are both kinds of decisions among those of one transaction with the same key."""
        alike = Window.partitionBy(*TRANSACTION, *key)
        return F.max(commits).over(alike) & F.max(aborts).over(alike)

    every = Window.partitionBy(*TRANSACTION)
    anywhere = both() & F.max(of_all).over(every) & (aborts | of_all)
    of_one_way = F.col("way").isNotNull() & both("view", "way")
    did = F.when(commits, F.lit(" committed it (local ")).otherwise(F.lit(" aborted it (local "))
    apart = (
        decisions.withColumn("is_apart", anywhere | both("member", "incarnation") | of_one_way)
        .withColumn("is_guilty", F.max("is_apart").over(Window.partitionBy(*TRANSACTION, "who")))
        .where(F.col("is_guilty"))
        .groupBy(*TRANSACTION)
        .agg(
            F.array_sort(F.collect_set("who")).alias("guilty"),
            F.array_sort(F.collect_set(F.concat("who", did, "local_index", F.lit(")")))).alias("told"),
            F.min(F.when(F.col("is_apart"), F.col("view"))).alias("view"),
        )
    )
    more = F.when(
        F.size("told") > TOLD_MAX,
        F.array(F.concat(F.lit("and "), (F.size("told") - TOLD_MAX).cast("string"), F.lit(" more"))),
    ).otherwise(no_strings())
    told = F.concat_ws(", ", F.concat(F.slice("told", 1, TOLD_MAX), more))
    return violation(apart, PROPERTY, F.col("guilty"), _witness("two decisions", told=told))


def _unfounded(tables: TraceTables, rows: DataFrame, decisions: DataFrame) -> DataFrame:
    """Commits for which a vote is missing, or in recovery a survivor that does not hold the transaction."""
    from pyspark.sql import functions as F

    voted = F.col("kind") == "VOTE"
    states = rows.groupBy(*TRANSACTION, F.col("who").alias("other")).agg(
        F.max(voted & (F.col("decision") == "yes")).alias("yes"),
        F.max(voted & (F.col("decision") == "no")).alias("no"),
        F.max(F.col("kind") == "CAST").alias("cast"),
        F.max(F.col("kind") == "RECEIVE").alias("received"),
    )
    survivors = F.when(F.size("next_transitional") > 0, F.col("next_transitional")).otherwise(F.array("who"))
    asked = F.when(F.col("recovery"), survivors).otherwise(F.col("members"))
    yes, no, cast, received = (F.coalesce(F.col(name), F.lit(False)) for name in ("yes", "no", "cast", "received"))
    is_whole = F.coalesce("whole", F.lit(False))
    lacks = F.when(F.col("recovery"), ~(yes | cast | received) & is_whole).otherwise(no | (~(yes | cast) & is_whole))
    found = (
        decisions.where((F.col("decision") == "commit") & F.col("stay").isNotNull())
        .withColumn("other", F.explode(asked))
        .join(states, [*TRANSACTION, "other"], "left")
        .join(whole_lives(tables).withColumnRenamed("who", "other"), ["run", "group", "other"], "left")
        .where(lacks)
        .groupBy(*TRANSACTION, "view", "who", "local_index", "recovery")
        .agg(F.array_sort(F.collect_set("other")).alias("lacking"))
    )
    witness = _witness(
        "",
        what=F.when(F.col("recovery"), F.lit("not held")).otherwise("votes"),
        local_index="local_index",
        lacking=F.concat_ws(", ", "lacking"),
    )
    return violation(found, PROPERTY, F.concat(F.array("who"), "lacking"), witness)


def _undecided(tables: TraceTables, rows: DataFrame, delivered: DataFrame) -> DataFrame:
    """Delivered without a commit before."""
    from pyspark.sql import functions as F

    commits = (F.col("kind") == "DECIDE") & (F.col("decision") == "commit")
    whose = (*LIFE, "who", "transaction")
    committed = rows.where(commits).groupBy(*whose).agg(F.min("local_index").alias("committed_at"))
    found = (
        delivered.where(F.col("kind") == "DELIVER")
        .withColumn("transaction", F.explode(F.array_distinct(F.array_compact(F.array("transaction", "named")))))
        .groupBy(*whose)
        .agg(F.min("local_index").alias("local_index"), F.min_by("view", "local_index").alias("view"))
        .join(committed, list(whose), "left")
        .where(F.col("committed_at").isNull() | (F.col("local_index") < F.col("committed_at")))
        .join(tables.lives.where(~F.col("holed")).select(*LIFE), list(LIFE), "inner")
    )
    return violation(found, PROPERTY, F.array("who"), _witness("undecided", local_index="local_index"))


def _not_delivered(tables: TraceTables, rows: DataFrame, delivered: DataFrame, decisions: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    with_messages = rows.where(F.col("kind") == "CAST").select(*TRANSACTION).distinct()
    had_its_turn = delivered.select(*LIFE, "transaction").distinct()
    lives = tables.lives.where(~F.col("holed")).select(*LIFE, "ending", "ending_reason")
    is_cut = F.coalesce(F.col("ending_reason") == "cut", F.lit(False))
    ended = (F.col("ending") == "LEAVE") | ((F.col("ending") == "END") & ~is_cut)
    found = (
        decisions.where((F.col("decision") == "commit") & F.col("stay").isNotNull())
        .join(with_messages, list(TRANSACTION), "left_semi")
        .join(had_its_turn, [*LIFE, "transaction"], "left_anti")
        .join(lives, list(LIFE), "inner")
        .where(F.col("next_view").isNotNull() | ended)
        .groupBy(*LIFE, "who", "transaction")
        .agg(F.min(F.struct("local_index", "view")).alias("at"))
        .select("*", F.col("at.view").alias("view"))
    )
    return violation(found, PROPERTY, F.array("who"), _witness("not delivered", local_index="at.local_index"))


def _witness(kind: str, **more: Column | str) -> dict[str, Column | str]:
    from pyspark.sql import functions as F

    return {"what": F.lit(kind), "transaction": "transaction", **more}
