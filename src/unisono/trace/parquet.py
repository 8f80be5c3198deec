"""Events as Parquet files. The only file of the trace package that needs pyarrow, and only when it is used."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from unisono.trace.files import open_regular
from unisono.trace.schema import COLUMNS, NAMES, SCHEMA_VERSION, Event, TraceError, from_row

_VERSION = b"unisono.schema"

# A few kilobytes of Parquet can hold gigabytes. These limits are far beyond what any trace needs.
COLUMNS_MAX = 1_000
ROWS_FREE, ROWS_A_BYTE_MAX = 100_000, 2
"""A file may hold this many rows; a large one, this many for each of its bytes. Real traces have a tenth of a row a byte."""
CHUNK_BYTES_MAX = 512 << 20
"""What one column may unpack to, in one row group."""
UNPACKED_FREE, UNPACKED_A_BYTE_MAX = 1 << 30, 1_000
"""A file may unpack to this many bytes; a large one, to this many for each of its own."""
ROWS_A_BATCH = 65_536


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
        with open_parquet(path) as file:
            version = (file.schema_arrow.metadata or {}).get(_VERSION, b"").decode()
            if version not in ("", str(SCHEMA_VERSION)):
                raise TraceError(
                    f"{path} has version {version} of the trace schema; this program knows {SCHEMA_VERSION}."
                )
            number = 0
            for batch in batches_of(file):
                for row in batch.to_pylist():
                    number += 1
                    if row.get("attributes") is not None:
                        row["attributes"] = dict(row["attributes"])
                    yield from_row(row, f"{path}, row {number}")
    except Bomb as error:
        raise TraceError(f"{path} is refused: {error}.") from None
    except pyarrow.ArrowInvalid as error:
        raise TraceError(f"{path} is not a Parquet file that can be read ({error}).") from error


class Bomb(ValueError):
    """A file that would unpack to far more than it weighs; the text says to what."""


def open_parquet(path: Path) -> Any:
    """A Parquet file whose columns of strings are read as codes: repeating a long one costs nothing. Raises `Bomb`."""
    import pyarrow.parquet

    with open_regular(path) as opened:
        size = os.fstat(opened.fileno()).st_size
    with pyarrow.parquet.ParquetFile(path) as file:
        metadata = file.metadata
    _require_reasonable(metadata, size)
    leaves = (metadata.schema.column(i) for i in range(metadata.num_columns))
    words = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and not leaf.max_repetition_level]
    return pyarrow.parquet.ParquetFile(path, metadata=metadata, read_dictionary=words)


def batches_of(
    file: Any, columns: Sequence[str] | None = None, rows: int = ROWS_A_BATCH, codes: Container[str] = ()
) -> Iterator[Any]:
    """The batches of such a file; the columns named in `codes` stay codes.

    Raises `Bomb` before strings that fill the memory are unpacked.
    """
    import pyarrow

    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    packed = sum(group.column(place).total_compressed_size for group in groups for place in range(group.num_columns))
    unpacked, unpacked_max = 0, max(UNPACKED_FREE, packed * UNPACKED_A_BYTE_MAX)
    for number, group in enumerate(groups):
        for batch in file.iter_batches(min(rows, _rows_at_once(group)), [number], columns):
            unpacked += sum(map(_unpacked_bytes, batch.columns))
            if unpacked > unpacked_max:
                raise Bomb(f"{packed:,} bytes in it unpack to more than {unpacked_max >> 20:,} MiB")
            arrays = [
                column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) and name not in codes else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            yield pyarrow.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _rows_at_once(group: Any) -> int:
    """So few that lists of strings stay small even if each string is as long as its column, packed, allows.

    Lists cannot be read as codes: pyarrow refuses those whose codes change within a row group.
    """
    at_once = ROWS_A_BATCH
    for place in range(group.num_columns):
        column = group.column(place)
        if column.physical_type == "BYTE_ARRAY" and "." in column.path_in_schema and group.num_rows:
            longest = column.total_uncompressed_size * -(-column.num_values // group.num_rows)
            at_once = min(at_once, UNPACKED_FREE // max(1, longest))
    return max(1, at_once)


def _require_reasonable(metadata: Any, size: int) -> None:
    if metadata.num_columns > COLUMNS_MAX:
        raise Bomb(f"it has {metadata.num_columns:,} columns")
    if metadata.num_rows > max(ROWS_FREE, size * ROWS_A_BYTE_MAX):
        raise Bomb(f"it has {metadata.num_rows:,} rows in {size:,} bytes")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            unpacked = group.column(place).total_uncompressed_size
            if unpacked > CHUNK_BYTES_MAX:
                raise Bomb(f"its column {group.column(place).path_in_schema} unpacks to {unpacked >> 20:,} MiB at once")


def _unpacked_bytes(column: Any) -> int:
    """The size of a column, each string as often as it is there."""
    import pyarrow
    import pyarrow.compute as pc

    if pyarrow.types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary)
        return pc.sum(lengths.take(column.indices).cast(pyarrow.int64())).as_py() or 0
    return int(column.nbytes)
