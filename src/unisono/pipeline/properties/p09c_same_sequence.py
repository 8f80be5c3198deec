"""P9c total, same sequence: in V the k-th ordered delivery is the same message at all members of one (V→V').

Judges the service `total`; placeholders count. Compared as far as sequences go: that one of them is longer is the
business of P5 and P14. Implies P9b and P9a. The first place where two members differ is told for each (V→V').
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.pipeline.properties.base import violation
from unisono.pipeline.properties.relations import STAY, WAY, message_name, sequences, transitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unisono.pipeline.tables import TraceTables

PROPERTY = "P9c"


def violations(tables: TraceTables) -> DataFrame:
    said = F.struct("message", "who", "local_index")
    found = (
        sequences(tables)
        .join(transitions(tables), list(STAY), "inner")
        .groupBy(*WAY, "place")
        .agg(F.min(said).alias("one"), F.max(said).alias("other"))
        .where(F.col("one.message") != F.col("other.message"))
        .groupBy(*WAY)
        .agg(F.min(F.struct("place", "one", "other")).alias("at"))
    )
    return violation(
        found,
        PROPERTY,
        F.array("at.one.who", "at.other.who"),
        {
            "number": "at.place",
            "message": message_name("at.one.message"),
            "local": "at.one.local_index",
            "other": message_name("at.other.message"),
            "other_local": "at.other.local_index",
        },
    )
