"""For properties that scan rows with Arrow, or in rounds: tables that are computed once, and findings in the common form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.properties.base import VIOLATION_DDL

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

UNTOLD = "untold"
"""In the witness of the last violation that a checker tells of a view: how many more there are."""
Found: TypeAlias = tuple[str, str, str, Sequence[str], str | None, Mapping[str, object]]
"""run, group, property, members, view, witness."""


def found_table(found: Iterable[Found]) -> pyarrow.Table:
    """The findings with the columns of `VIOLATION_DDL`."""
    rows = [
        (*one[:3], list(one[3]), one[4], [(name, None if text is None else str(text)) for name, text in one[5].items()])
        for one in found
    ]
    return as_table(rows, VIOLATION_DDL)


def computed_once(table: DataFrame) -> DataFrame:
    """The table, computed once, without the plan that made it: table upon table, a plan would double and double.

    It outlives an executor: with `spark.checkpoint.dir` in that place, otherwise by a second copy.
    """
    from pyspark import StorageLevel

    context = table.sparkSession.sparkContext
    if context.getCheckpointDir():
        return table.checkpoint()
    is_local = (context.master or "").startswith("local")
    return table.localCheckpoint(
        storageLevel=StorageLevel.MEMORY_AND_DISK if is_local else StorageLevel.MEMORY_AND_DISK_2
    )
