"""P0 on Spark: each row is looked at beside those before it in its life.

The order of a table's rows says nothing, so rows that lie in a file out of order are sorted here and not held against anyone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from unisono.pipeline.attributed_rows import marked
from unisono.pipeline.owed import carried_by
from unisono.pipeline.properties.base import violation
from unisono.pipeline.tables import LIFE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from unisono.pipeline.tables import TraceTables


def violations(tables: TraceTables) -> DataFrame:
    life = Window.partitionBy(*LIFE).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    stay = Window.partitionBy(*LIFE, "installed_at", "in_time", "numbered", "service").orderBy("local_index")
    before = Window.partitionBy(*LIFE).orderBy("local_index").rowsBetween(Window.unboundedPreceding, -1)
    cast_end = F.when(F.col("kind") == "CAST", F.col("first") + F.col("count"))
    ending = F.when(F.col("kind").isin("END", "LEAVE", "CRASH"), F.struct("local_index", "kind"))
    rows = (
        marked(tables.events)
        .withColumn("end", F.min(ending).over(life))
        .withColumn("in_time", F.col("view").eqNullSafe(F.col("installed")))
        .withColumn("numbered", F.col("kind").isin("DELIVER", "PLACE"))
        .withColumn("holed", F.coalesce(F.col("gap_at") > F.col("installed_at"), F.lit(False)))
        .withColumn("cast_end", F.max(cast_end).over(before))
        .withColumn("expected", F.coalesce(F.lag("ordinal").over(stay) + 1, F.lit(0)))
    )
    found = rows.select(
        "run", "group", "who", "view", "local_index", "previous", "kind", "service", "ordinal", "expected", "installed", "order",
        "protocol", "protocol_before", "first", "cast_end", F.col("end.kind").alias("ending"),
        F.explode(F.array_compact(F.array(*_faults()))).alias("what"),
    )  # fmt: skip
    names = (
        "what", "kind", "service", "ordinal", "expected", "installed", "ending", "order", "protocol", "protocol_before", "first",
        "cast_end",
    )  # fmt: skip
    witness: dict[str, Column | str] = {name: name for name in names}
    return violation(found, "P0", F.array("who"), {**witness, "local": "local_index", "after": "previous"})


def _faults() -> list[Column]:
    """What may be wrong with a row, each a name or null."""
    of_view = F.col("kind").isin("CAST", "DELIVER", "PLACE")
    excused = F.col("gap_at").isNotNull() & (F.col("installed_at").isNull() | F.col("holed"))
    moved_on = F.col("holed") & (F.col("ordinal") > F.col("expected"))
    begins = F.col("previous").isNull() & (F.col("local_index") == 0)
    carried = carried_by(F.col("order"))
    return [
        F.when(F.col("local_index") == F.col("previous"), F.lit("twice")),
        F.when(F.col("protocol") != F.col("protocol_before"), F.lit("protocol")),
        F.when(of_view & F.col("in_time") & ~F.array_contains(carried, F.col("service")), F.lit("service")),
        F.when((F.col("kind") == "CAST") & (F.col("first") < F.col("cast_end")), F.lit("cast again")),
        F.when(F.col("local_index") > F.col("end.local_index"), F.lit("after the end")),
        F.when(of_view & ~F.col("in_time") & ~excused, F.lit("view")),
        F.when(
            F.col("numbered") & F.col("in_time") & (F.col("ordinal") != F.col("expected")) & ~moved_on, F.lit("ordinal")
        ),
        F.when((F.col("kind") == "JOIN") & F.col("previous").isNotNull(), F.lit("joins again")),
        F.when(begins & ~of_view & ~F.col("kind").isin("JOIN", "VIEW"), F.lit("begin")),
    ]
