"""The measures of a report from Spark's tables, aggregated there: what is fetched does not grow with runs or rows.

Every measure has one row a cohort (protocol and size of group).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from unisono.pipeline.measures import cost, joint_distribution
from unisono.pipeline.measures.journeys import journeys_of
from unisono.pipeline.report.lanes import BOXES_MAX, timelines
from unisono.pipeline.report.model import WORST_FIRST, Latency, Measured, MessageCost, Tau, Waits, cohort_key
from unisono.pipeline.tables import LIFE, WHOSE, keeping

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

SHARES = (0.0, 0.001, 0.005, *(i / 100 for i in range(1, 100)), 0.995, 0.999, 1.0)
APPROXIMATE = 2_000
"""A curve is a picture: a rank that is off by a two-thousandth cannot be seen."""
COHORTS_MAX, TAUS_MAX, LIVES_MAX = 60, 1_000, 100
"""Cohorts of a measure, values of τ of a cohort, and members of a timeline that are fetched."""
COHORT = ("protocol", "members")

Rows = list[dict[str, Any]]
Ranked = tuple[str, str, int]
"""A run, its group, and how bad it is: 0 is the worst."""


def measured(
    tables: TraceTables, shown: Sequence[Ranked], timelines_max: int, cohorts_max: int = COHORTS_MAX
) -> Measured:
    with keeping() as keep:
        kept = tables.cached(keep)
        sizes = keep(_sizes(kept))
        journeys = keep(journeys_of(kept).join(sizes, list(WHOSE), "left"))
        frames = {
            "latency": _latencies(journeys),
            "waits": _waits(journeys),
            "tau": _taus(kept, sizes),
            "cost": _costs(cost(kept)),
        }
        fetched = {name: _first(frame, cohorts_max + 1) for name, frame in frames.items()}
        notes: tuple[str, ...] = ()
        if any(len(rows) > cohorts_max for rows in fetched.values()):
            notes = (
                f"Each measure is shown for the {cohorts_max} combinations of protocol and number of members"
                " with the most messages; there are more.",
            )
        found = {name: sorted(rows[:cohorts_max], key=_cohort) for name, rows in fetched.items()}
        sizes_told = _fetch(_only(sizes, _listed(tables, shown))) if shown else []
        return Measured(
            latency=tuple(
                Latency(
                    *_cohort_of(row), row["scope"], row["messages"], row["mean_ns"], _curve(row), float(row["max_ns"])
                )
                for row in found["latency"]
            ),
            waits=tuple(Waits(*_cohort_of(row), row["messages"], row["t1_ns"], row["t2_ns"]) for row in found["waits"]),
            tau=tuple(
                Tau(*_cohort_of(row), "", tuple(sorted((pair["tau"], pair["messages"]) for pair in row["taus"])))
                for row in found["tau"]
            ),
            cost=tuple(
                MessageCost(
                    *_cohort_of(row),
                    row["messages"],
                    row["packets_per_message"],
                    row["packets_theory"],
                    row["bytes_per_message"],
                    bool(row["acknowledgements_on_top"]),
                )
                for row in found["cost"]
            ),
            sizes={(row["run"], row["group"]): row["members"] for row in sizes_told if row["members"]},
            timelines=timelines(_stays(kept, shown, timelines_max)),
            notes=notes,
        )


def _cohort_of(row: dict[str, Any]) -> tuple[str, int | None]:
    return row["protocol"], row["members"]


def _cohort(row: dict[str, Any]) -> tuple[int, str, int]:
    return cohort_key(*_cohort_of(row))


def _curve(row: dict[str, Any]) -> tuple[tuple[float, float], ...]:
    return tuple((float(share), float(ns)) for share, ns in row["quantiles"])


def _fetch(frame: DataFrame) -> Rows:
    return [row.asDict(recursive=True) for row in frame.collect()]


def _first(cohorts: DataFrame, most: int) -> Rows:
    return _fetch(cohorts.orderBy(F.desc("messages"), *COHORT).limit(most))


def _only(frame: DataFrame, runs: DataFrame) -> DataFrame:
    return frame.join(F.broadcast(runs), list(WHOSE), "left_semi")


def _listed(tables: TraceTables, runs: Sequence[Ranked]) -> DataFrame:
    return tables.events.sparkSession.createDataFrame(list(runs), "run string, `group` string, rank int")


def _sizes(tables: TraceTables) -> DataFrame:
    return tables.views.groupBy(*WHOSE).agg(F.max(F.size("members")).alias("members"))


def _mean(value: Column) -> Column:
    """The mean over all messages of batches, each with its `count`; in decimals, for a bigint might overflow."""
    total = F.sum(value.cast("decimal(38,0)") * F.col("count")).cast("double")
    return total / F.sum(F.when(value.isNotNull(), F.col("count")))


def _latencies(journeys: DataFrame) -> DataFrame:
    """One row a cohort, over all members where clocks allow it, and at the senders otherwise (`scope`)."""
    scopes = F.when(F.col("at_sender"), F.array(F.lit("sender"), F.lit("all"))).otherwise(F.array(F.lit("all")))
    comparable = (
        journeys.where(F.col("cast_ns").isNotNull())
        .withColumn("duration_ns", F.col("delivered_ns") - F.col("cast_ns"))
        .withColumn("scope", F.explode(scopes))
        .where((F.col("scope") == "sender") | (F.col("clock") == "simulated"))
        .withColumn("one", F.explode(F.sequence(F.lit(1), "count")))  # every message of a batch counts
        .withColumn("count", F.lit(1))
    )
    shares = F.array(*(F.lit(share) for share in SHARES))
    figures = comparable.groupBy(*COHORT, "scope").agg(
        F.count("*").alias("messages"),
        _mean(F.col("duration_ns")).alias("mean_ns"),
        F.max("duration_ns").alias("max_ns"),
        F.percentile_approx("duration_ns", list(SHARES), APPROXIMATE).cast("array<double>").alias("curve"),
    )
    quantiles = F.zip_with(shares, "curve", lambda share, ns: F.array(share, ns)).alias("quantiles")
    told = F.struct("scope", "messages", "mean_ns", "max_ns", quantiles)
    # The scope `all` sorts before `sender`, and tells more.
    return figures.groupBy(*COHORT).agg(F.min(told).alias("told")).select(*COHORT, "told.*")


def _waits(journeys: DataFrame) -> DataFrame:
    """Means of t1 and t2, one row a cohort."""
    known = journeys.where(F.col("ordered_ns").isNotNull())
    return known.groupBy(*COHORT).agg(
        F.sum("count").alias("messages"),
        _mean(F.col("ordered_ns") - F.col("start_ns")).alias("t1_ns"),
        _mean(F.col("delivered_ns") - F.col("ordered_ns")).alias("t2_ns"),
    )


def _taus(tables: TraceTables, sizes: DataFrame) -> DataFrame:
    """One row a cohort: `taus` is a list of τ and how many messages had it, the most frequent ones."""
    counted = (
        joint_distribution(tables)
        .join(sizes, list(WHOSE), "left")
        .groupBy(*COHORT, "tau")
        .agg(F.sum("messages").alias("messages"))
    )
    by_number = Window.partitionBy(*COHORT).orderBy(F.desc("messages"), "tau")
    frequent = counted.withColumn("place", F.row_number().over(by_number)).where(F.col("place") <= TAUS_MAX)
    return frequent.groupBy(*COHORT).agg(
        F.sum("messages").alias("messages"), F.collect_list(F.struct("tau", "messages")).alias("taus")
    )


def _costs(by_run: DataFrame) -> DataFrame:
    """One row a cohort: means over all messages."""

    def mean(column: str) -> Column:
        return (F.sum(F.col(column) * F.col("messages")) / F.sum("messages")).alias(column)

    return by_run.groupBy(*COHORT).agg(
        mean("packets_per_message"),
        mean("bytes_per_message"),
        F.max("packets_theory").alias("packets_theory"),
        F.max("acknowledgements_on_top").alias("acknowledgements_on_top"),
        F.sum("messages").alias("messages"),
    )


def _stays(tables: TraceTables, shown: Sequence[Ranked], most: int) -> Rows:
    """The first stays of each life of the runs that are worth a look (`collect.choose`): bad ones, and many views."""
    rank = F.coalesce("rank", F.lit(max(WORST_FIRST.values())))
    worth = (
        tables.stays.groupBy(*WHOSE)
        .agg(F.count_distinct("view").alias("views"), F.count_distinct("who").alias("lives"))
        .join(F.broadcast(_listed(tables, shown)), list(WHOSE), "left")
        .orderBy(rank, F.desc("views"), *WHOSE)
        .select(*WHOSE, "views", "lives")
        .limit(most)
        .collect()
    )
    if not worth:
        return []
    ddl = "run string, `group` string, views bigint, lives bigint"
    chosen = F.broadcast(tables.events.sparkSession.createDataFrame(worth, ddl))
    of_run = Window.partitionBy(*WHOSE).orderBy("who")
    of_life = Window.partitionBy(*LIFE).orderBy("from_index")
    stays = (
        _only(tables.stays, chosen)
        .withColumn("life", F.dense_rank().over(of_run))
        .withColumn("place", F.row_number().over(of_life))
        .where((F.col("life") <= LIVES_MAX) & (F.col("place") <= BOXES_MAX))
    )
    views, events = _only(tables.views, chosen), _only(tables.events, chosen)
    return _fetch(stays_in_time(stays, views, events).join(chosen, list(WHOSE), "inner"))


def stays_in_time(stays: DataFrame, views: DataFrame, events: DataFrame) -> DataFrame:
    """The stays with their times: from the installation of a view to that of the next, or to the life's last row."""
    installs = views.select(
        *LIFE, F.col("local_index").alias("from_index"), F.col("time_ns").alias("start_ns"), "clock"
    )
    nexts = views.select(*LIFE, F.col("local_index").alias("to_index"), F.col("time_ns").alias("next_ns"))
    lasts = events.groupBy(*LIFE).agg(F.max("time_ns").alias("last_ns"))
    return (
        stays.join(installs, [*LIFE, "from_index"], "inner")
        .join(nexts, [*LIFE, "to_index"], "left")
        .join(lasts, list(LIFE), "left")
        .select(
            *WHOSE,
            "who",
            "view",
            "members",
            "clock",
            "start_ns",
            F.coalesce("next_ns", "last_ns").alias("end_ns"),
            "ended",
        )
    )
