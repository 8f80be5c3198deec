"""P15 transitional set: the transitional set of a VIEW row names exactly the members that came along.

Let p install V' with `previous_view` V. Its transitional set is the set of all members q of V' whose own VIEW row for V' has
the same `previous_view` and the same `attributes.cut`, or the same set; a member that came from nowhere has none, or itself alone.
A member of V' without a VIEW row for it may be in the set if V held it, unless it came to its END in peace in a view before V'.
Besides, `previous_view` is the view that p installed
last, where no row since then is missing. Nothing is asked of a run that records neither previous views nor transitional sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.attributed_rows import marked
from unisono.pipeline.properties.attributes import no_strings
from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P15"


def violations(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    recorded = tables.views.where(F.col("previous_view").isNotNull() | F.col("transitional").isNotNull())
    runs = recorded.select("run", "group").distinct()
    return _wrong_sets(tables).unionByName(_wrong_origins(tables).join(runs, ["run", "group"], "left_semi"))


def _wrong_sets(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    view = ("run", "group", "view")
    rows = tables.views.withColumn("cut", F.col("attributes")["cut"])
    along = F.array_sort(F.array_distinct("transitional")).alias("along")
    rows = rows.withColumn("along", along)
    came_from = F.struct("who", "previous_view", "cut", "along")
    arrivals = (
        rows.groupBy(*view, "who")
        .agg(F.min_by(came_from, "local_index").alias("arrival"))
        .groupBy(*view)
        .agg(F.collect_list("arrival").alias("arrivals"))
    )
    lists = rows.groupBy(*view).agg(F.array_distinct(F.flatten(F.collect_list("members"))).alias("old_list"))
    old = lists.withColumnRenamed("view", "previous_view")
    listed = F.array_distinct("members")
    same_way = F.filter(
        "arrivals",
        lambda one: (
            one["previous_view"].eqNullSafe(F.col("previous_view"))
            & (one["cut"].eqNullSafe(F.col("cut")) | one["along"].eqNullSafe(F.col("along")))
        ),
    )
    seen = F.transform("arrivals", lambda one: one["who"])
    came = F.array_intersect(listed, F.transform(same_way, lambda one: one["who"]))
    number = F.split_part(F.col("view"), F.lit("@"), F.lit(1)).cast("bigint")

    def stayed_behind(one: Column) -> Column:
        return F.exists("waiting", lambda life: (life["who"] == one) & (life["number"] < number))

    unseen = F.filter(
        F.array_except(listed, seen),
        lambda one: (F.col("old_list").isNull() | F.array_contains(F.col("old_list"), one)) & ~stayed_behind(one),
    )
    said = F.coalesce("transitional", no_strings())
    from_nowhere = F.col("previous_view").isNull()
    found = (
        rows.join(arrivals, list(view), "inner")
        .join(old, ["run", "group", "previous_view"], "left")
        .join(_waiting(tables), ["run", "group"], "left")
        .withColumn("waiting", F.coalesce("waiting", F.array().cast("array<struct<who:string,number:bigint>>")))
        .withColumn("may", F.when(from_nowhere, F.array("who")).otherwise(F.array_union(came, unseen)))
        .withColumn("lacking", F.array_sort(F.when(from_nowhere, no_strings()).otherwise(F.array_except(came, said))))
        .withColumn("extra", F.array_sort(F.array_except(said, "may")))
        .where((F.size("extra") > 0) | (F.size("lacking") > 0))
    )
    names: dict[str, Column | str] = {
        "what": F.lit("set"),
        "local_index": "local_index",
        "previous_view": "previous_view",
        "extra": F.concat_ws(", ", "extra"),
        "lacking": F.concat_ws(", ", "lacking"),
    }
    guilty = F.concat(F.array("who"), F.array_sort(F.array_union("extra", "lacking")))
    return violation(found, PROPERTY, guilty, names)


def _waiting(tables: TraceTables) -> DataFrame:
    """By run: the lives that came to their END in peace, each with the number of its last view; -1: it had installed none."""
    from pyspark.sql import functions as F

    last = tables.views.groupBy(*LIFE).agg(F.max_by("view", "local_index").alias("last"))
    is_cut = F.coalesce(F.col("ending_reason") == "cut", F.lit(False))
    number = F.coalesce(F.split_part(F.col("last"), F.lit("@"), F.lit(1)).cast("bigint"), F.lit(-1))
    return (
        tables.lives.where(F.col("unknown").isNull() & (F.col("ending") == "END") & ~is_cut)
        .join(last, list(LIFE), "left")
        .groupBy("run", "group")
        .agg(F.collect_list(F.struct("who", number.cast("bigint").alias("number"))).alias("waiting"))
    )


def _wrong_origins(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    said = tables.views.select(*LIFE, "local_index", "previous_view")
    rows = marked(tables.events).where(F.col("kind") == "VIEW").join(said, [*LIFE, "local_index"], "inner")
    is_known = F.col("gap_at").isNull() | F.coalesce(F.col("gap_at") <= F.col("installed_at"), F.lit(False))
    found = rows.where(is_known & ~F.col("installed").eqNullSafe(F.col("previous_view")))
    return violation(
        found,
        PROPERTY,
        F.array("who"),
        {
            "what": F.lit("came from"),
            "local_index": "local_index",
            "previous_view": "previous_view",
            "installed": "installed",
        },
    )
