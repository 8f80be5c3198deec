"""The columns of the format `unisono`, and rows of a journal in them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from unisono.runtime.journal import Delivered, Row, Viewed

if TYPE_CHECKING:
    import pyarrow

SCHEMA = (
    "kind string, position bigint, view string, ordinal bigint, sender string, incarnation bigint, index bigint, payload binary, "
    "members array<string>, note string"
)
"""`kind` is `delivery`, and on demand `view` or `missing`; `position` numbers the rows."""
ARROW_ROWS = 8_192

Fields = tuple[Any, ...]


def fields_of(row: Row) -> Fields:
    """A row of a journal in the columns of `SCHEMA`."""
    view = str(row.view)
    if isinstance(row, Delivered):
        address, life = row.sender
        return "delivery", row.position, view, row.ordinal, address, life, row.index, row.payload, None, None
    if isinstance(row, Viewed):
        members = [str(member) for member in row.members]
        return "view", row.position, view, None, None, row.incarnation, None, None, members, row.order
    return "missing", row.position, view, row.ordinal, None, None, None, None, None, str(row)


def record_batches(rows: Iterator[Fields]) -> Iterator[pyarrow.RecordBatch]:
    """Rows in the form that Spark takes them in fastest."""
    from unisono.pipeline.arrow_rows import as_table

    while some := list(islice(rows, ARROW_ROWS)):
        yield from as_table(some, SCHEMA).to_batches()
