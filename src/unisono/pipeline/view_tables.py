"""The rows of large views, judged on Spark property by property.

The question is that of `view_rows`, and so is the answer. Each excerpt becomes a run of its own, named by its number, so that
the excerpts of many views, also of one group, are judged in one pass:

- its lives begin at their VIEW rows of the view (`excerpt`, see `tables`); local indices stay those of the trace, so that a
  person finds the rows that a sentence names;
- the VIEW row that closes a stay tells where the life went, and nothing about the next view: its list of members is empty;
- a life that ended well or crashed after it had left the view gets its ending where that matters (`Said.endings`).

What is read and sorted are the rows of the views, however long their runs are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.owed import untold
from unisono.pipeline.parallelism import fit_shuffles
from unisono.pipeline.properties.registry import check
from unisono.pipeline.properties.scanning import computed_once
from unisono.pipeline.tables import LIFE, WHOSE, name_of, tables_of
from unisono.pipeline.view_judge import Said
from unisono.pipeline.view_rows import Excerpt, excerpt_of
from unisono.trace.checks.properties import PROPERTIES
from unisono.trace.checks.property import Violation
from unisono.trace.schema import NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Look = tuple[str, str, Said]
"""Run, group, and what the judge asks."""
ROW_BYTES = 256
"""What a row takes while it is sorted, about."""
_LIVES_DDL = "number string, run string, `group` string, who string, first bigint, last bigint, excerpt_view string, ending string"


@dataclass(frozen=True)
class Excerpts:
    """The rows of the views that are looked at."""

    looks: Sequence[Look]
    rows: DataFrame
    missing: Mapping[str, Sequence[str]]
    """By number of an excerpt: the lives of which rows are missing."""


def excerpts_of(events: DataFrame, looks: Sequence[Look]) -> Excerpts:
    """Choose the rows of these views among events of their runs."""
    fit_shuffles(events.sparkSession, sum(said.rows for _, _, said in looks) * ROW_BYTES)
    lives = _lives(events.sparkSession, looks)
    rows = computed_once(_excerpts(events, lives))
    missing: dict[str, list[str]] = {}
    for row in _missing(rows, lives).orderBy("number", "who").collect():
        missing.setdefault(row["number"], []).append(row["who"])
    if any(said.endings for _, _, said in looks):
        rows = computed_once(_with_endings(rows, lives))
    return Excerpts(looks, rows, missing)


def judge_views(excerpts: Excerpts, told: int) -> list[Excerpt]:
    """What the rows of each view show, at most `told` violations of each property."""
    looks = excerpts.looks
    tables = tables_of(excerpts.rows, None, computed_once)
    found: dict[str, list[Violation]] = {}
    for asked in sorted({one for _, _, said in looks for one in said.asked}):
        for row in _first_ones(check(tables, {asked}), looks, told).collect():
            violation = PROPERTIES[asked].violation(row["members"], row["view"], row["witness"])
            found.setdefault(row["run"], []).append(violation)
    doubts: dict[str, dict[str, str]] = {}
    for row in untold(tables).collect():
        doubts.setdefault(row["run"], {})[row["who"]] = row["unknown"]
    return [
        excerpt_of(said.view, found.get(number, ()), excerpts.missing.get(number, ()), doubts.get(number, {}))
        for number, (_, _, said) in _numbered(looks)
    ]


def _numbered(looks: Sequence[Look]) -> list[tuple[str, Look]]:
    return [(str(number), look) for number, look in enumerate(looks)]


def _lives(spark: SparkSession, looks: Sequence[Look]) -> DataFrame:
    """The lives of each excerpt, with the local indices of the first and last row; -1: it is still in the view."""
    lives = [
        (number, run, group, who, first, last, said.view, said.endings.get(who))
        for number, (run, group, said) in _numbered(looks)
        for who, (first, last) in said.spans.items()
    ]
    return F.broadcast(spark.createDataFrame(lives, _LIVES_DDL))


def _excerpts(events: DataFrame, lives: DataFrame) -> DataFrame:
    """The rows of each excerpt as those of a run whose name is the number of the excerpt."""
    inside = (F.col("local_index") >= F.col("begins")) & ((F.col("last") < 0) | (F.col("local_index") <= F.col("last")))
    closes = (F.col("kind") == "VIEW") & (F.col("view") != F.col("excerpt_view"))
    members = F.when(closes, F.array().cast("array<string>")).otherwise(F.col("members"))
    return (
        events.withColumn("who", name_of(F.col("member"), F.col("incarnation")))
        .join(lives.withColumnRenamed("first", "begins"), [*WHOSE, "who"], "inner")
        .where(inside)
        .withColumns({"run": F.col("number"), "members": members})
        .select(*NAMES, F.struct(F.col("excerpt_view").alias("view"), "begins").alias("excerpt"))
    )


def _missing(rows: DataFrame, lives: DataFrame) -> DataFrame:
    """The lives of which rows are missing between the VIEW row and the row that closes the stay."""
    there = rows.select(
        F.col("run").alias("number"), name_of(F.col("member"), F.col("incarnation")).alias("who"), "local_index"
    )
    is_inside = (F.col("last") < 0) | (F.col("local_index") < F.col("last"))
    counted = (
        there.join(lives, ["number", "who"], "inner")
        .groupBy("number", "who")
        .agg(
            F.countDistinct(F.when(is_inside, F.col("local_index"))).alias("indices"),
            F.max("local_index").alias("reached"),
        )
    )
    end = F.when(F.col("last") < 0, F.col("reached") + 1).otherwise(F.col("last"))
    is_whole = F.coalesce("indices", F.lit(0)) == end - F.col("first")
    return (
        lives.join(counted, ["number", "who"], "left")
        .where(~F.coalesce(is_whole, F.lit(False)))
        .select("number", "who")
    )


def _with_endings(rows: DataFrame, lives: DataFrame) -> DataFrame:
    """The rows, and an ending behind those of each life that ended after it had left the view."""
    ended = lives.where(F.col("ending").isNotNull()).select(
        F.col("number").alias("run"), "group", "who", F.col("ending").alias("kind")
    )
    last = F.max_by(F.struct("protocol", "time_ns", "clock", "excerpt"), "local_index")
    endings = (
        rows.withColumn("who", name_of(F.col("member"), F.col("incarnation")))
        .drop("kind")
        .join(F.broadcast(ended), [*WHOSE, "who"], "inner")
        .groupBy(*LIFE, "kind")
        .agg((F.max("local_index") + 1).alias("local_index"), last.alias("last"))
        .select(*LIFE, "kind", "local_index", "last.*")
    )
    return rows.unionByName(endings, allowMissingColumns=True)


def _first_ones(violations: DataFrame, looks: Sequence[Look], told: int) -> DataFrame:
    """A few violations of a property in each view that it is asked of."""
    views = [(number, said.view, list(said.asked)) for number, (_, _, said) in _numbered(looks)]
    asked = violations.sparkSession.createDataFrame(views, "run string, excerpt_view string, asked array<string>")
    here = F.col("view").isNull() | (F.col("view") == F.col("excerpt_view"))
    alike = Window.partitionBy("run").orderBy("members", F.col("witness").cast("string"))
    return (
        violations.join(F.broadcast(asked), "run", "inner")
        .where(here & F.array_contains("asked", F.col("property")))
        .withColumn("place", F.row_number().over(alike))
        .where(F.col("place") <= told)
        .select(*violations.columns)
    )
