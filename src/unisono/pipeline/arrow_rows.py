"""Rows as Arrow tables, in the columns that Spark was told of: for functions that run on the workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow

_TYPES = {
    "string": pyarrow.string(),
    "bigint": pyarrow.int64(),
    "int": pyarrow.int32(),
    "boolean": pyarrow.bool_(),
    "array<string>": pyarrow.list_(pyarrow.string()),
    "array<bigint>": pyarrow.list_(pyarrow.int64()),
    "binary": pyarrow.binary(),
    "map<string,bigint>": pyarrow.map_(pyarrow.string(), pyarrow.int64()),
    "map<string,string>": pyarrow.map_(pyarrow.string(), pyarrow.string()),
}


def schema_of(ddl: str) -> pyarrow.Schema:
    """The columns that Spark reads as `name type, name type, …`."""
    columns = (column.split(" ") for column in ddl.split(", "))
    return pyarrow.schema([(name.strip("`"), _TYPES[kind]) for name, kind in columns])


def as_table(rows: Iterable[Sequence[Any]], schema: str | pyarrow.Schema) -> pyarrow.Table:
    """The rows with these columns."""
    schema = schema_of(schema) if isinstance(schema, str) else schema
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pyarrow.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pyarrow.Table.from_arrays(arrays, schema=schema)
