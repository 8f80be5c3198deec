"""What of that which was found counts: a violation, if the order of its view owes it; and what keeps a life from passing.

The Spark form of `trace.promises.Orders`; `History.doubts` itself is asked of the rows that it rests on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.properties.few_rows import excerpt_in, given_rows, observe_rows
from unisono.pipeline.properties.row_picks import telling_rows
from unisono.pipeline.tables import FEW, WHOSE, order_said
from unisono.trace.checks.history import History
from unisono.trace.checks.model import KEPT
from unisono.trace.checks.shown_doubts import shown_doubts
from unisono.trace.checks.shown_rows import lives_of
from unisono.trace.evidence import EVIDENCE
from unisono.trace.promises import ALWAYS, LISTED, PROMISES, PROPERTIES, owed_by

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

UNTOLD_DDL = "run string, `group` string, who string, unknown string"
KINDS_THAT_TELL = FEW & KEPT.union(*(one.kinds for one in EVIDENCE))


def owed_only(violations: DataFrame, tables: TraceTables, also: Iterable[str] = ()) -> DataFrame:
    """The violations of what is owed in their view, and of `also`.

    Where members disagree about the order of a view, what any of the orders owes is owed in it. A violation without a view, or in
    one of which there is no VIEW row, counts if any order of the run owes it.
    """
    of_view = tables.views.groupBy(*WHOSE, "view").agg(F.collect_set("order").alias("of_view"))
    of_run = tables.events.groupBy(*WHOSE).agg(
        F.collect_set(F.when(F.col("kind") == "VIEW", order_said())).alias("of_views"),
        F.collect_set("protocol").alias("protocols"),
    )
    orders = F.coalesce(
        F.col("of_view"), F.when(F.size("of_views") > 0, F.col("of_views")).otherwise(F.col("protocols"))
    )
    owed = F.col("property").isin(*also) | F.exists(
        orders, lambda order: F.array_contains(owed_by_order(order), F.col("property"))
    )
    return (
        violations.join(of_view, [*WHOSE, "view"], "left")
        .join(of_run, list(WHOSE), "left")
        .where(owed)
        .select(*violations.columns)
    )


def owed_by_order(order: Column) -> Column:
    """The properties that an order owes (`promises.owed_by`)."""
    by_order = F.create_map(*(part for name in PROMISES for part in (F.lit(name), _array(owed_by(name)))))
    listed = F.array_intersect(_array(PROPERTIES), F.array_union(_array({"P0"}), _listed(order)))
    return F.when(is_list(order), listed).otherwise(F.coalesce(by_order[order], _array(ALWAYS)))


def is_list(order: Column) -> Column:
    """Whether an order is a list of properties."""
    return order.startswith(LISTED) & (order != LISTED)


def _listed(order: Column) -> Column:
    """What an order of another system lists (`promises.properties_listed`)."""
    return F.split(order.substr(F.lit(len(LISTED) + 1), F.length(order)), ",")


def _array(words: Iterable[str]) -> Column:
    return F.array(*(F.lit(one) for one in sorted(words))).cast("array<string>")


def carried_by(order: Column) -> Column:
    """The services that an order carries; null if it may carry any."""
    pairs = (
        part
        for name, services in PROMISES.items()
        for part in (F.lit(name), F.array(*(F.lit(service) for service in sorted(services))))
    )
    return F.create_map(*pairs)[order]


def untold(tables: TraceTables) -> DataFrame:
    """Lives whose rows are all there, but do not tell enough to pass: run, group, who, and why (`unknown`)."""
    rows = given_rows(tables, KINDS_THAT_TELL, telling_rows)
    return rows.groupBy(*WHOSE).applyInArrow(_untold, UNTOLD_DDL)


def _untold(table: pyarrow.Table) -> pyarrow.Table:
    excerpt = excerpt_in(table)
    history = History(excerpt)
    run, group = observe_rows(history, table)
    history.finish()
    found = history.doubts(of_orders=True)
    for doubt in shown_doubts(lives_of(history)) if excerpt is None else ():
        if doubt.property in history.orders.owed_in(doubt.view):
            found.setdefault(doubt.who, doubt.text)
    return as_table([(run, group, who, why) for who, why in found.items()], UNTOLD_DDL)
