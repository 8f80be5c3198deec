"""What every property's file returns, and a few columns that several need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VIOLATION_DDL = (
    "run string, `group` string, property string, members array<string>, view string, witness map<string,string>"
)
COLUMNS = ("run", "group", "property", "members", "view", "witness")


def violation(found: DataFrame, property: str, members: Column, witness: dict[str, Column | str]) -> DataFrame:
    """Bring what a property found into the common form. The witness has the keys of the plain checker's."""
    pairs = [part for name, value in witness.items() for part in (F.lit(name), _text(value))]
    known = F.map_filter(F.create_map(*pairs), lambda name, text: text.isNotNull())
    return found.select(
        "run",
        "group",
        F.lit(property).alias("property"),
        members.cast("array<string>").alias("members"),
        (F.col("view") if "view" in found.columns else F.lit(None).cast("string")).alias("view"),
        known.alias("witness"),
    )


def _text(value: Column | str) -> Column:
    column = F.col(value) if isinstance(value, str) else value
    return column.cast("string")
