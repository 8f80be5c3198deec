"""P21 security: every accepted packet is of an authenticated member; injected attacks = counted DROPs.

The origin of a RECEIVE and, where it was forwarded, its sender (`attributes.sender`) are members of the view that it names, as
this life installed it; none says `attributes.authenticated` = ``false``. COUNTERS has `attributes.accepted_forged` = 0, and
its `attributes.injected`, the attacks on this life so far, equals the sum of `attributes.injected` over the DROP rows
before it. Not asked behind a gap.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from unisono.pipeline.attributed_rows import marked
from unisono.pipeline.properties.attributes import whole
from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import LIFE, name_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P21"


def violations(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    receipts = tables.events.where(F.col("kind") == "RECEIVE").select(
        *LIFE,
        "view",
        "local_index",
        name_of(F.col("member"), F.col("incarnation")).alias("who"),
        F.array_compact(
            F.array(name_of(F.col("origin"), F.col("origin_incarnation")), F.col("attributes")["sender"])
        ).alias("senders"),
        F.col("attributes")["authenticated"].alias("authenticated"),
    )
    lists = tables.views.groupBy(*LIFE, "view").agg(
        F.min("local_index").alias("installed_at"), F.min_by("members", "local_index").alias("members")
    )
    strangers = (
        receipts.join(lists, [*LIFE, "view"], "inner")
        .where(F.col("installed_at") < F.col("local_index"))
        .withColumn("strangers", F.array_sort(F.array_except("senders", "members")))
        .where(F.size("strangers") > 0)
    )
    unauthenticated = receipts.where(F.col("authenticated") == "false")
    counters = _counters(tables)
    forged = counters.where(F.col("forged").isNotNull() & ~whole(F.col("forged")).eqNullSafe(F.lit(0)))
    uncounted = counters.where(F.col("gap_at").isNull() & (F.col("injected") != F.col("dropped")))
    who = F.array("who")
    found = [
        _told(strangers, "stranger", F.concat(who, "strangers"), strangers=F.concat_ws(", ", "strangers")),
        _told(unauthenticated, "unauthenticated", who),
        _told(forged, "forged", who, forged="forged"),
        _told(uncounted, "uncounted", who, injected="injected", dropped="dropped"),
    ]
    return reduce(lambda one, other: one.unionByName(other), found)


def _counters(tables: TraceTables) -> DataFrame:
    """COUNTERS rows beside the number of injected packets that were dropped before."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    so_far = Window.partitionBy(*LIFE).orderBy("local_index").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    injected = whole(F.col("attributes")["injected"])
    dropped = F.when(F.col("kind") == "DROP", F.coalesce(injected, F.lit(0))).otherwise(0)
    rows = (
        tables.events.where(F.col("kind").isin("DROP", "COUNTERS"))
        .withColumn("dropped", F.sum(dropped).over(so_far))
        .where(F.col("kind") == "COUNTERS")
        .select(
            *LIFE,
            "local_index",
            "view",
            "dropped",
            injected.alias("injected"),
            F.col("attributes")["accepted_forged"].alias("forged"),
        )
    )
    return rows.join(
        marked(tables.events).select(*LIFE, "local_index", "who", "gap_at"), [*LIFE, "local_index"], "inner"
    )


def _told(found: DataFrame, what: str, members: Column, **witness: Column | str) -> DataFrame:
    from pyspark.sql import functions as F

    return violation(found, PROPERTY, members, {"what": F.lit(what), "local_index": "local_index", **witness})
