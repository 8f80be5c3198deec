"""For P25–P29: brings the few rows that they look at to one task a run, which asks the same function as the plain checker.

Every row of the table that is made here is one fact of a run, and says in `fact` which:

- `row`: an event of the kinds that are kept whole (`model.KEPT`), in runs that recorded what applications were shown;
- `life`: how a life ended, and whether rows of it are missing;
- `cast` and `delivered`: (a part of) a batch, where the property asks for it;
- `totals`: what a life delivered in a view, as digests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from unisono.pipeline.properties.base import VIOLATION_DDL
from unisono.pipeline.properties.scanning import found_table
from unisono.pipeline.tables import LIFE, name_of
from unisono.trace.checks.model import KEPT
from unisono.trace.checks.property import texts_of
from unisono.trace.checks.shown_rows import Breach, CastRange, DeliveredRange, LifeRows
from unisono.trace.schema import SHOWN, Event

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

RUN = ("run", "group")


@dataclass
class ShownFacts:
    """What one task knows of one run."""

    lives: dict[str, LifeRows] = field(default_factory=dict)
    casts: list[CastRange] = field(default_factory=list)
    delivered: list[DeliveredRange] = field(default_factory=list)
    totals: list[Mapping[str, Any]] = field(default_factory=list)


Decide: TypeAlias = Callable[[ShownFacts], Iterator[Breach]]


def decided(tables: TraceTables, property: str, decide: Decide, *more: DataFrame) -> DataFrame:
    """The violations that `decide` finds in each run; `more` are facts beside the rows and lives."""
    facts = reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True),
        (kept_rows(tables), life_facts(tables), *more),
    )

    def judge(table: pyarrow.Table) -> pyarrow.Table:
        rows = table.to_pylist()
        found = [
            (
                rows[0]["run"],
                rows[0]["group"],
                property,
                one.members,
                one.view,
                texts_of(one.witness),
            )
            for one in decide(facts_of(rows))
        ]
        return found_table(found)

    return facts.groupBy(*RUN).applyInArrow(judge, VIOLATION_DDL)


def recorded_runs(tables: TraceTables) -> DataFrame:
    """The runs in which anything was recorded of what applications were shown."""
    from pyspark.sql import functions as F

    return tables.events.where(F.col("kind").isin(*sorted(SHOWN))).select(*RUN).distinct()


def life_facts(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    return tables.lives.join(recorded_runs(tables), list(RUN), "left_semi").select(
        *RUN,
        F.lit("life").alias("fact"),
        "who",
        F.col("holed").alias("is_holed"),
        F.col("unknown").isNull().alias("is_whole"),
        "ending",
        "ending_reason",
    )


def kept_rows(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    return (
        tables.events.where(F.col("kind").isin(*sorted(KEPT)))
        .join(recorded_runs(tables), list(RUN), "left_semi")
        .select(
            *RUN,
            F.lit("row").alias("fact"),
            name_of(F.col("member"), F.col("incarnation")).alias("who"),
            "local_index",
            "kind",
            "view",
            "members",
            "previous_view",
            "transitional",
            "origin",
            "origin_incarnation",
            "first",
            "count",
            "attributes",
        )
    )


def receipts(tables: TraceTables, condition: Column) -> DataFrame:
    """RECEIPT rows that meet a condition on their attributes."""
    from pyspark.sql import functions as F

    return tables.events.where((F.col("kind") == "RECEIPT") & condition).select(
        *LIFE, F.col("first").alias("asked_first"), (F.col("first") + F.col("count")).alias("asked_end")
    )


def overlaps() -> Column:
    """Whether a batch holds messages between `asked_first` and `asked_end`."""
    from pyspark.sql import functions as F

    return (F.col("first") < F.col("asked_end")) & (F.col("first") + F.col("count") > F.col("asked_first"))


def blocks(tables: TraceTables) -> DataFrame:
    """When each life blocked first in each view."""
    from pyspark.sql import functions as F

    return tables.stays.groupBy(*LIFE, "view").agg(F.min("block_index").alias("block_index"))


def delivered_facts(deliveries: DataFrame) -> DataFrame:
    """Rows of deliveries (with `early`) as facts."""
    from pyspark.sql import functions as F

    columns = ("who", "view", "origin_who", "first", "count", "local_index", "early")
    return deliveries.select(*RUN, F.lit("delivered").alias("fact"), *columns)


# On the workers.


def facts_of(rows: list[dict[str, Any]]) -> ShownFacts:
    """The facts of one run, put in order."""
    facts = ShownFacts()
    kept: dict[str, list[Event]] = {}
    for row in sorted(rows, key=lambda row: (row["who"] or "", row["local_index"] or 0)):
        if row["fact"] == "row":
            kept.setdefault(row["who"], []).append(_event(row))
        elif row["fact"] == "totals":
            facts.totals.append(row)
        elif row["fact"] in ("cast", "delivered"):
            first, end = row["first"], row["first"] + row["count"]
            if row["fact"] == "cast":
                destinations = None if row["destinations"] is None else tuple(row["destinations"])
                local = -1 if row["local_index"] is None else row["local_index"]
                facts.casts.append(CastRange(row["who"], first, end, row["view"], destinations, local))
            else:
                place = (row["view"], row["origin_who"], first, end, row["local_index"])
                facts.delivered.append(DeliveredRange(row["who"], *place, bool(row["early"])))
    for row in rows:
        if row["fact"] == "life":
            ended = (row["ending"], row["ending_reason"])
            flags = (row["is_holed"], row["is_whole"])
            facts.lives[row["who"]] = LifeRows(row["who"], kept.get(row["who"], ()), *flags, *ended)
    return facts


def _event(row: Mapping[str, Any]) -> Event:
    event = Event(row["run"], row["group"], "", row["who"], 0, row["local_index"], 0, "", row["kind"], row["view"])
    event.members = None if row["members"] is None else tuple(row["members"])
    event.transitional = None if row["transitional"] is None else tuple(row["transitional"])
    event.origin, event.origin_incarnation = row["origin"], row["origin_incarnation"]
    event.previous_view, event.first, event.count = row["previous_view"], row["first"], row["count"]
    event.attributes = None if row["attributes"] is None else dict(row["attributes"])
    return event
