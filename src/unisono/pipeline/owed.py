"""What of that which was found counts: a violation, if the order of its view owes it; and what keeps a life from passing.

The Spark form of `trace.promises.Orders` and of `History.doubts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING

from unisono.pipeline.tables import LIFE, WHOSE, order_said
from unisono.trace.evidence import EVIDENCE, MESSAGES, WITH_EVIDENCE, Evidence
from unisono.trace.promises import ALWAYS, LISTED, PROMISES, PROPERTIES, SERVICES, UNIFORM, is_committed, owed_by
from unisono.trace.schema import DATAGRAM

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables


def owed_only(violations: DataFrame, tables: TraceTables, also: Iterable[str] = ()) -> DataFrame:
    """The violations of what is owed in their view, and of `also`.

    Where members disagree about the order of a view, what any of the orders owes is owed in it. A violation without a view, or in
    one of which there is no VIEW row, counts if any order of the run owes it.
    """
    from pyspark.sql import functions as F

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
    from pyspark.sql import functions as F

    by_order = F.create_map(*(part for name in PROMISES for part in (F.lit(name), _array(owed_by(name)))))
    listed = F.array_intersect(_array(PROPERTIES), F.array_union(_array({"P0"}), _listed(order)))
    return F.when(is_list(order), listed).otherwise(F.coalesce(by_order[order], _array(ALWAYS)))


def is_list(order: Column) -> Column:
    """Whether an order is a list of properties."""
    return order.startswith(LISTED) & (order != LISTED)


def _listed(order: Column) -> Column:
    """What an order of another system lists (`promises.properties_listed`)."""
    from pyspark.sql import functions as F

    return F.split(order.substr(F.lit(len(LISTED) + 1), F.length(order)), ",")


def _array(words: Iterable[str]) -> Column:
    from pyspark.sql import functions as F

    return F.array(*(F.lit(one) for one in sorted(words))).cast("array<string>")


def carried_by(order: Column) -> Column:
    """The services that an order carries; null if it may carry any."""
    from pyspark.sql import functions as F

    pairs = (
        part
        for name, services in PROMISES.items()
        for part in (F.lit(name), F.array(*(F.lit(service) for service in sorted(services))))
    )
    return F.create_map(*pairs)[order]


def untold(tables: TraceTables) -> DataFrame:
    """Lives whose rows are all there, but do not tell enough to pass: run, group, who, and why (`unknown`)."""
    from pyspark.sql import functions as F

    from unisono.pipeline.properties.shown_doubts import doubts

    unlisted = F.array_min(F.array_except(_listed(F.col("order")), _array(PROPERTIES)))
    is_strange = F.when(is_list(F.col("order")), unlisted.isNotNull()).otherwise(~F.col("order").isin(*PROMISES))
    strange_order = F.format_string("nothing is known of the order '%s' of view %s", "order", "view")
    strange_property = F.format_string(
        "there is no property '%s', which the order of view %s owes", unlisted, F.col("view")
    )
    strange = (
        tables.views.where(is_strange)
        .withColumn("unknown", F.when(is_list(F.col("order")), strange_property).otherwise(strange_order))
        .groupBy(*LIFE, "who")
        .agg(F.min_by("unknown", "local_index").alias("unknown"))
        .select(*WHOSE, "who", "unknown")
    )
    shown = owed_only(doubts(tables), tables).select(*WHOSE, "who", "unknown")
    found = (strange, *_unrecorded(tables), shown, incomparable(tables))
    return reduce(lambda one, other: one.unionByName(other), found)


def _unrecorded(tables: TraceTables) -> Iterator[DataFrame]:
    """Lives in views whose order owes what their rows do not tell (`History._untold`)."""
    from pyspark.sql import functions as F

    orders = tables.views.select(*LIFE, "who", "view", "order").distinct()
    listed = F.array_intersect(_listed(F.col("order")), _array(WITH_EVIDENCE))
    recorded = tables.events.groupBy(*WHOSE).agg(
        F.array_distinct(F.flatten(F.collect_set(_recorded()))).alias("recorded"),
        F.max(F.col("kind").isin(*MESSAGES)).alias("has_messages"),
    )
    needed = F.when(F.col("has_messages"), listed).otherwise(F.array_except(listed, _array(UNIFORM)))
    missing = F.array_sort(F.array_except(needed, F.col("recorded")))
    not_judged = (
        orders.where(is_list(F.col("order")))
        .join(recorded, list(WHOSE), "inner")
        .withColumn("missing", missing)
        .where(F.size("missing") > 0)
    )
    text = F.format_string("%s not judged: nothing is recorded by which it could be", F.array_join("missing", ", "))
    yield _first_of(not_judged.withColumn("unknown", text))

    committed = F.create_map(*_pairs({one: _committed_by(one) for one in PROMISES}))[F.col("order")]
    is_asked = F.when(
        is_list(F.col("order")),
        F.array_contains(_listed(F.col("order")), "P18") & (F.col("service") != DATAGRAM),
    ).otherwise(F.array_contains(committed, F.col("service")))
    uncommitted = (
        tables.events.where((F.col("kind") == "CAST") & F.col("transaction").isNull())
        .join(orders, [*LIFE, "view"], "inner")
        .where(is_asked)
    )
    yield _first_of(
        uncommitted.withColumn(
            "unknown",
            F.format_string(
                "its CAST (local %d) names no transaction, although the order of view %s commits in two phases",
                "local_index",
                "view",
            ),
        )
    )

    owes_an_order = is_list(F.col("order")) & F.arrays_overlap(_listed(F.col("order")), _array(UNIFORM))
    unordered = (
        tables.events.where(F.col("kind").isin(*MESSAGES) & ~F.col("service").isin(*SERVICES))
        .join(orders, [*LIFE, "view"], "inner")
        .where(owes_an_order)
    )
    yield _first_of(
        unordered.withColumn(
            "unknown",
            F.format_string(
                "its row %d is of the service '%s', and P9 and P10 judge the service 'total' alone",
                "local_index",
                "service",
            ),
        )
    )


def _first_of(found: DataFrame) -> DataFrame:
    """One reason a life."""
    from pyspark.sql import functions as F

    return found.groupBy(*LIFE, "who").agg(F.min("unknown").alias("unknown")).select(*WHOSE, "who", "unknown")


def _recorded() -> Column:
    """The properties that a row lets one judge (`Evidence.shows`), or null."""
    from pyspark.sql import functions as F

    return F.flatten(F.array_compact(F.array(*(F.when(_shows(one), _array(one.properties)) for one in EVIDENCE))))


def _shows(one: Evidence) -> Column:
    from pyspark.sql import functions as F

    found = F.col("kind").isin(*sorted(one.kinds))
    if one.service is not None:
        found &= F.col("service") == one.service
    if one.attribute is None:
        return found
    if one.attribute.startswith("_"):
        return found & F.exists(F.map_keys("attributes"), lambda name: name.endswith(F.lit(one.attribute)))
    value = F.col("attributes")[one.attribute]
    return found & (value.isNotNull() if one.value is None else value == one.value)


def _committed_by(order: str) -> list[str]:
    return sorted(service for service in PROMISES[order] if is_committed(order, service))


def _pairs(lists: Mapping[str, Iterable[str]]) -> Iterator[Column]:
    from pyspark.sql import functions as F

    for name, words in lists.items():
        yield from (F.lit(name), _array(words))


def incomparable(tables: TraceTables) -> DataFrame:
    """Lives with casts without a vector where one is owed, or with deliveries whose digest cannot be compared."""
    from pyspark.sql import functions as F

    owes_clocks = F.array_contains(owed_by_order(F.col("order")), "P8c")
    clocked = tables.views.where(owes_clocks).select(*WHOSE, "view").distinct()
    unstamped = (
        tables.casts.where(F.col("attributes")["vector"].isNull())
        .join(clocked, [*WHOSE, "view"], "left_semi")
        .groupBy(*LIFE, "who")
        .agg(F.min("local_index").alias("local"))
        .select(
            *WHOSE,
            "who",
            F.format_string(
                "its CAST (local %d) has no vector that could be compared with what it had delivered", "local"
            ).alias("unknown"),
        )
    )
    is_alike = (F.col("cast_first") == F.col("row_first")) & (F.col("cast_count") == F.col("row_count"))
    is_comparable = is_alike & F.col("digest").isNotNull() & F.col("cast_digest").isNotNull()
    undigested = (
        tables.parts.where((F.col("kind") == "DELIVER") & F.col("cast_local").isNotNull() & ~is_comparable)
        .groupBy(*LIFE, "who")
        .agg(F.min("local_index").alias("local"))
        .select(
            *WHOSE,
            "who",
            F.concat(
                F.lit("its DELIVER (local "),
                "local",
                F.lit(") has no digest that could be compared with its CAST's"),
            ).alias("unknown"),
        )
    )
    return unstamped.unionByName(undigested)
