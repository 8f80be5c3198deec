"""P18 two-phase commit: one decision a transaction; commit only if all voted yes, or in recovery all survivors hold it;
delivered iff committed.

Rows of a transaction name it in `transaction`: CAST, RECEIVE, DELIVER and PLACE of its messages, VOTE (yes, no; to cast is to
vote yes) and DECIDE (commit, abort; `attributes.recovery` = ``true`` if it was reached in recovery). A commit and an abort
contradict each other at one member, among members of one (V→V'), and anywhere if the commit was not reached in recovery.
Survivors are the transitional set of the decider's next view, or the decider alone. A member that delivers had committed;
a member that commits messages delivers or places them, unless it crashed or was cut off in that view. Where a life is not whole,
nothing is concluded from the absence of its rows. The plain checker says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.properties.attributes import entries, is_true, whole_lives
from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import LIFE, name_of

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
    return (
        _two_decisions(decisions)
        .unionByName(_unfounded(tables, rows, decisions))
        .unionByName(_undecided(tables, rows))
        .unionByName(_not_delivered(tables, rows, decisions))
    )


def _decisions(tables: TraceTables, rows: DataFrame) -> DataFrame:
    """Every DECIDE beside the stay in which it was made."""
    from pyspark.sql import functions as F

    made = rows.where((F.col("kind") == "DECIDE") & F.col("decision").isin("commit", "abort")).select(
        *LIFE, "who", "transaction", "view", "local_index", "decision", is_true("recovery").alias("recovery")
    )
    return made.join(entries(tables).drop("who"), [*LIFE, "view"], "left")


def _two_decisions(decisions: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    told = ("who", "view", "way", "local_index")
    commits = decisions.where(F.col("decision") == "commit").select(
        *TRANSACTION, "recovery", *(F.col(name).alias(f"commit_{name}") for name in told)
    )
    aborts = decisions.where(F.col("decision") == "abort").select(
        *TRANSACTION, *(F.col(name).alias(f"abort_{name}") for name in told)
    )
    together = (F.col("commit_view") == F.col("abort_view")) & (F.col("commit_way") == F.col("abort_way"))
    contradicts = ~F.col("recovery") | (F.col("commit_who") == F.col("abort_who")) | F.coalesce(together, F.lit(False))
    found = (
        commits.join(aborts, list(TRANSACTION), "inner")
        .where(contradicts)
        .withColumn("commit", F.concat("commit_who", F.lit(" committed"), _at("commit_local_index")))
        .withColumn("abort", F.concat("abort_who", F.lit(" aborted"), _at("abort_local_index")))
        .groupBy(*TRANSACTION)
        .agg(
            F.array_sort(F.array_union(F.collect_set("commit_who"), F.collect_set("abort_who"))).alias("guilty"),
            F.array_sort(F.array_union(F.collect_set("commit"), F.collect_set("abort"))).alias("told"),
            F.least(F.min("commit_view"), F.min("abort_view")).alias("view"),
        )
    )
    return violation(found, PROPERTY, F.col("guilty"), _witness("two decisions", told=F.concat_ws(", ", "told")))


def _at(local: str) -> Column:
    from pyspark.sql import functions as F

    return F.concat(F.lit(" it (local "), F.col(local), F.lit(")"))


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


def _undecided(tables: TraceTables, rows: DataFrame) -> DataFrame:
    """Delivered without a commit before."""
    from pyspark.sql import functions as F

    commits = (F.col("kind") == "DECIDE") & (F.col("decision") == "commit")
    whose = (*LIFE, "who", "transaction")
    committed = rows.where(commits).groupBy(*whose).agg(F.min("local_index").alias("committed_at"))
    found = (
        rows.where(F.col("kind") == "DELIVER")
        .groupBy(*whose)
        .agg(F.min("local_index").alias("local_index"), F.min_by("view", "local_index").alias("view"))
        .join(committed, list(whose), "left")
        .where(F.col("committed_at").isNull() | (F.col("local_index") < F.col("committed_at")))
        .join(tables.lives.where(~F.col("holed")).select(*LIFE), list(LIFE), "inner")
    )
    return violation(found, PROPERTY, F.array("who"), _witness("undecided", local_index="local_index"))


def _not_delivered(tables: TraceTables, rows: DataFrame, decisions: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    with_messages = rows.where(F.col("kind") == "CAST").select(*TRANSACTION).distinct()
    had_its_turn = rows.where(F.col("kind").isin("DELIVER", "PLACE")).select(*LIFE, "transaction").distinct()
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
