"""P12 view monotony, incarnation: the numbers of a life's views increase; no view holds two incarnations of one address.

So a view's list names an address once; one that names a member twice is broken too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P12"


def violations(tables: TraceTables) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    order = Window.partitionBy(*LIFE).orderBy("local_index")
    back = (
        tables.views.withColumn("before", F.lag("view").over(order))
        .where(F.col("before").isNotNull() & (_number("view") <= _number("before")))
    )  # fmt: skip
    backwards = violation(
        back,
        PROPERTY,
        F.array("who"),
        {"what": F.lit("backwards"), "local_index": "local_index", "before": "before"},
    )
    addresses = F.transform("members", lambda name: F.substring_index(name, "#", 1))
    shared = F.filter(
        "members",
        lambda name: F.size(F.filter(addresses, lambda other: other == F.substring_index(name, "#", 1))) > 1,
    )
    twins = violation(
        tables.views.withColumn("twins", shared).where(F.size("twins") > 0),
        PROPERTY,
        F.array("who"),
        {"what": F.lit("incarnations"), "local_index": "local_index", "incarnations": F.concat_ws(", ", "twins")},
    )
    return backwards.unionByName(twins)


def _number(view: str) -> Column:
    """The number in a view's id; -1 if there is none."""
    from pyspark.sql import functions as F

    return F.coalesce(F.regexp_extract(view, "^([0-9]+)@", 1).try_cast("bigint"), F.lit(-1))
