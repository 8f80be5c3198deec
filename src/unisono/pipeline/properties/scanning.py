"""For properties that scan rows with Arrow, or in rounds: tables that are computed once, and findings in the common form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

Found: TypeAlias = tuple[str, str, str, Sequence[str], str | None, Mapping[str, object]]
"""run, group, property, members, view, witness."""


def found_table(found: Sequence[Found]) -> pyarrow.Table:
    """The findings with the columns of `base.VIOLATION_DDL`."""
    import pyarrow

    text = pyarrow.string()
    schema = pyarrow.schema(
        [
            ("run", text),
            ("group", text),
            ("property", text),
            ("members", pyarrow.list_(text)),
            ("view", text),
            ("witness", pyarrow.map_(text, text)),
        ]
    )
    rows = [
        (
            *one[:3],
            list(one[3]),
            one[4],
            [(name, None if value is None else str(value)) for name, value in one[5].items()],
        )
        for one in found
    ]
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pyarrow.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


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
