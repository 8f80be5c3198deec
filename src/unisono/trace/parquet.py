"""Events as Parquet files. The only file of the trace package that needs pyarrow, and only when it is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from unisono.trace.schema import COLUMNS, NAMES, SCHEMA_VERSION, Event, TraceError, from_row

_VERSION = b"unisono.schema"


def can_write_parquet() -> bool:
    """Whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


def load() -> None:
    """Load pyarrow now. It takes a second, which a running group should not lose when its first segment is full."""
    import pyarrow.parquet

    pyarrow.array([""])  # the first array loads more, pandas among it


def arrow_schema() -> Any:
    """The columns of a trace as a pyarrow schema, the version in its metadata."""
    import pyarrow

    types = {
        "string": pyarrow.string(),
        "long": pyarrow.int64(),
        "list<string>": pyarrow.list_(pyarrow.string()),
        "list<long>": pyarrow.list_(pyarrow.int64()),
        "map<string,string>": pyarrow.map_(pyarrow.string(), pyarrow.string()),
    }
    columns = [pyarrow.field(name, types[kind], nullable) for name, kind, nullable, _ in COLUMNS]
    return pyarrow.schema(columns, metadata={_VERSION: str(SCHEMA_VERSION)})


def write_parquet(target: Path | BinaryIO, rows: Sequence[Event]) -> None:
    """Write events as one Parquet file."""
    import pyarrow
    import pyarrow.parquet

    schema = arrow_schema()
    arrays = []
    for name in NAMES:
        column = [getattr(row, name) for row in rows]
        if name == "attributes":
            column = [None if value is None else list(value.items()) for value in column]
        arrays.append(pyarrow.array(column, schema.field(name).type))
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), target, compression="zstd")


def read_parquet(path: Path) -> Iterator[Event]:
    """The events of one Parquet file, each checked like a line of JSON."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise TraceError(f"{path} is Parquet: please install pyarrow (pip install 'unisono[trace]').") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            version = (file.schema_arrow.metadata or {}).get(_VERSION, b"").decode()
            if version not in ("", str(SCHEMA_VERSION)):
                raise TraceError(
                    f"{path} has version {version} of the trace schema; this program knows {SCHEMA_VERSION}."
                )
            number = 0
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    if row.get("attributes") is not None:
                        row["attributes"] = dict(row["attributes"])
                    yield from_row(row, f"{path}, row {number}")
    except pyarrow.ArrowInvalid as error:
        raise TraceError(f"{path} is not a Parquet file that can be read ({error}).") from error
