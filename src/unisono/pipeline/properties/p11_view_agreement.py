"""P11 view agreement, self-inclusion: a view's id stands for one member list; a member is in every view that it installs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.properties.base import violation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import Tables

PROPERTY = "P11"


def violations(tables: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    said = F.struct("members", "who", "local_index")
    lists = (
        tables.views.groupBy("run", "group", "view")
        .agg(F.min(said).alias("one"), F.max(said).alias("other"))
        .where(F.col("one.members") != F.col("other.members"))
    )
    two_lists = violation(
        lists,
        PROPERTY,
        F.array("one.who", "other.who"),
        {
            "what": F.lit("two lists"),
            "list": F.concat_ws(", ", "one.members"),
            "local_index": "one.local_index",
            "other_list": F.concat_ws(", ", "other.members"),
            "other_local": "other.local_index",
        },
    )
    outside = violation(
        tables.views.where(~F.array_contains("members", F.col("who"))),
        PROPERTY,
        F.array("who"),
        {"what": F.lit("outside"), "list": F.concat_ws(", ", "members"), "local_index": "local_index"},
    )
    return two_lists.unionByName(outside)
