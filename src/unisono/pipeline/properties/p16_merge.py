"""P16 merge: `parts` are the previous views of the members; nothing of the old view comes after the new one.

The parts of a VIEW row for V' are the set of all views from which members of V' came (the `previous_view` of every VIEW row
for V'). They may be left out (null) where at most one view led to V'. A part from which no member is seen to have come is
allowed if some member of V' without a VIEW row for it may have come from there: it had installed that view, or its trace
is not whole.

After a life installed a new view, none of its rows (CAST, RECEIVE, ORDERED, DELIVER, PLACE, STABLE, VOTE, DECIDE) names a view
that it had installed before, and it delivers and places no message that was cast in such a view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.attributed_rows import marked
from unisono.pipeline.properties.attributes import no_strings, whole_lives
from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P16"
TRAFFIC = ("CAST", "RECEIVE", "ORDERED", "DELIVER", "PLACE", "STABLE", "VOTE", "DECIDE")


def violations(tables: TraceTables) -> DataFrame:
    return _wrong_parts(tables).unionByName(_late_rows(tables)).unionByName(_late_messages(tables))


def _wrong_parts(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    view, row = ("run", "group", "view"), ("run", "group", "view", "who", "local_index")
    arrivals = tables.views.groupBy(*view).agg(
        F.collect_set("previous_view").alias("came"), F.collect_set("who").alias("seen")
    )
    suspects = (
        tables.views.join(arrivals, list(view), "inner")
        .withColumn("missing", F.col("parts").isNull())
        .where(~F.col("missing") | (F.size("came") > 1))
        .withColumn("named", F.array_distinct(F.coalesce("parts", no_strings())))
        .withColumn("lacking", F.array_sort(F.array_except("came", "named")))
        .withColumn("strange", F.array_except("named", "came"))
        .where((F.size("lacking") > 0) | (F.size("strange") > 0))
    )
    # Views that a member of whom nothing is seen in the new view may have come from.
    installed = tables.views.groupBy("run", "group", F.col("who").alias("absent")).agg(
        F.collect_set("view").alias("installed")
    )
    absent = (
        suspects.select(*row, F.explode(F.array_except("members", "seen")).alias("absent"))
        .join(whole_lives(tables).withColumnRenamed("who", "absent"), ["run", "group", "absent"], "left")
        .join(installed, ["run", "group", "absent"], "left")
        .groupBy(*row)
        .agg(
            F.max(F.col("whole").isNull()).alias("lost"),
            F.flatten(F.collect_list(F.coalesce("installed", no_strings()))).alias("perhaps"),
        )
    )
    extra = F.array_except("strange", F.coalesce("perhaps", no_strings()))
    found = (
        suspects.join(absent, list(row), "left")
        .withColumn("extra", F.array_sort(F.when(F.coalesce("lost", F.lit(False)), no_strings()).otherwise(extra)))
        .where((F.size("lacking") > 0) | (F.size("extra") > 0))
    )
    return violation(
        found,
        PROPERTY,
        F.array("who"),
        {
            "what": F.lit("parts"),
            "local_index": "local_index",
            "extra": F.concat_ws(", ", "extra"),
            "lacking": F.concat_ws(", ", "lacking"),
        },
    )


def _installs(tables: TraceTables) -> DataFrame:
    """Where each life installed each view first."""
    from pyspark.sql import functions as F

    return tables.views.groupBy(*LIFE, F.col("view").alias("old")).agg(F.min("local_index").alias("old_index"))


def _late_rows(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    rows = marked(tables.events).where(F.col("kind").isin(*TRAFFIC) & (F.col("view") != F.col("installed")))
    found = (
        rows.withColumn("old", F.col("view"))
        .join(_installs(tables), [*LIFE, "old"], "inner")
        .where(F.col("old_index") < F.col("local_index"))
    )
    return violation(
        found,
        PROPERTY,
        F.array("who"),
        {"what": F.lit("row"), "local_index": "local_index", "kind": "kind", "old": "old", "installed": "installed"},
    )


def _late_messages(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    own_before = (F.col("origin_who") != F.col("who")) | (F.col("cast_local") < F.col("local_index"))
    current = marked(tables.events).select(*LIFE, "local_index", "installed")
    found = (
        tables.parts.where((F.col("cast_view") != F.col("view")) & own_before)
        .join(current, [*LIFE, "local_index"], "inner")
        .where(F.col("view") == F.col("installed"))
        .withColumn("old", F.col("cast_view"))
        .join(_installs(tables), [*LIFE, "old"], "inner")
        .where(F.col("old_index") < F.col("local_index"))
        .groupBy("run", "group", "who", "local_index", "kind", "installed")
        .agg(F.min("old").alias("old"))
        .withColumn("view", F.col("old"))
    )
    return violation(
        found,
        PROPERTY,
        F.array("who"),
        {
            "what": F.lit("message"),
            "local_index": "local_index",
            "kind": "kind",
            "old": "old",
            "installed": "installed",
        },
    )
