"""Reading attributes. What they mean is in docs/trace-conventions.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def is_true(name: str) -> Column:
    return F.coalesce(F.col("attributes")[name] == "true", F.lit(False))


def whole(text: Column) -> Column:
    """A whole number of at most 18 digits; null if it is not written as one."""
    return F.when(text.rlike(r"^-?[0-9]{1,18}\z"), text.try_cast("bigint"))
