"""P20 primary component: primaries form one chain by previous primary.

A VIEW row of a primary has `attributes.primary` = ``true`` and, but for the first of all, `attributes.previous_primary`: the
views that it supersedes, the latest first, separated by commas. Its predecessor is the first of them that a member in the trace
installed as primary. All members that install a view say the same of it; at most one primary has no predecessor, because it
supersedes nothing or only what was confirmed and never installed (where a life of the run is not whole, the latter are not asked);
every other one's has a lower number; no two have the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.properties.attributes import is_true, whole_lives
from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import WHOSE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P20"


def violations(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F

    claim = F.coalesce(F.col("attributes")["previous_primary"], F.lit(""))
    views = (
        tables.views.withColumn("primary", is_true("primary"))
        .groupBy(*WHOSE, "view")
        .agg(
            F.array_sort(F.collect_set(F.when(F.col("primary"), claim))).alias("claims"),
            F.max(~F.col("primary")).alias("denied"),
            F.array_sort(F.collect_set("who")).alias("installers"),
        )
    )
    disagreed = views.where(F.size("claims") + F.col("denied").cast("int") > 1)
    primaries = views.where(F.size("claims") > 0).withColumn("claim", F.get("claims", F.lit(0)))
    chain = _chain(primaries)
    unclear = _unknown_runs(tables).withColumn("unclear", F.lit(True))
    begins = chain.where(F.col("predecessor").isNull()).join(unclear, list(WHOSE), "left")
    begins = begins.where((F.col("claim") == "") | F.col("unclear").isNull())
    firsts = _several(begins, WHOSE).withColumn("view", F.get("views", F.lit(0)))
    backwards = chain.where(_number("view") <= _number("predecessor"))
    forks = _several(chain.where(F.col("predecessor").isNotNull()), (*WHOSE, "predecessor")).withColumn(
        "view", F.col("predecessor")
    )
    return (
        violation(disagreed, PROPERTY, F.col("installers"), {"what": F.lit("disagree")})
        .unionByName(_told(firsts, "two firsts", views=F.concat_ws(", ", "views")))
        .unionByName(_told(forks, "fork", views=F.concat_ws(", ", "views"), predecessor="predecessor"))
        .unionByName(_told(backwards, "number", predecessor="predecessor"))
    )


def _chain(primaries: DataFrame) -> DataFrame:
    """Every primary with its predecessor: of the views that it claims to supersede, the first that is a primary."""
    from pyspark.sql import functions as F

    known = primaries.select(*WHOSE, F.col("view").alias("named"))
    claims = primaries.select(*WHOSE, "view", F.posexplode(F.split("claim", ",")).alias("place", "named"))
    predecessors = (
        claims.join(known, [*WHOSE, "named"], "inner")
        .groupBy(*WHOSE, "view")
        .agg(F.min_by("named", "place").alias("predecessor"))
    )
    return primaries.join(predecessors, [*WHOSE, "view"], "left")


def _several(primaries: DataFrame, by: tuple[str, ...]) -> DataFrame:
    from pyspark.sql import functions as F

    return (
        primaries.groupBy(*by)
        .agg(
            F.array_sort(F.collect_list("view")).alias("views"),
            F.array_sort(F.array_distinct(F.flatten(F.collect_list("installers")))).alias("installers"),
        )
        .where(F.size("views") > 1)
    )


def _unknown_runs(tables: TraceTables) -> DataFrame:
    """Runs with a life that is not whole, or of which there is no trace although a view lists it."""
    from pyspark.sql import functions as F

    listed = tables.views.select(*WHOSE, F.explode("members").alias("who"))
    lives = tables.lives.select(*WHOSE, "who")
    return listed.unionByName(lives).join(whole_lives(tables), [*WHOSE, "who"], "left_anti").select(*WHOSE).distinct()


def _told(found: DataFrame, what: str, **witness: Column | str) -> DataFrame:
    from pyspark.sql import functions as F

    return violation(found, PROPERTY, F.col("installers"), {"what": F.lit(what), **witness})


def _number(view: str) -> Column:
    """The number in a view's id; -1 if there is none."""
    from pyspark.sql import functions as F

    return F.coalesce(F.regexp_extract(view, "^([0-9]+)@", 1).try_cast("bigint"), F.lit(-1))
