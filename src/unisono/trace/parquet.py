"""Events as Parquet files. The only file of the trace package that needs pyarrow, and only when it is used."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from unisono.trace.files import open_regular
from unisono.trace.schema import COLUMNS, NAMES, SCHEMA_VERSION, BadRow, Event, TraceError, from_row

_VERSION = b"unisono.schema"

# A few kilobytes of Parquet can hold gigabytes. These limits are far beyond what any trace needs.
COLUMNS_MAX = 1_000
ROWS_FREE, ROWS_A_BYTE_MAX = 100_000, 2
"""A file may hold this many rows; a large one, this many for each of its bytes. Real traces have a tenth of a row a byte."""
CHUNK_BYTES_MAX = 512 << 20
"""What one column may unpack to, in one row group."""
UNPACKED_FREE, UNPACKED_A_BYTE_MAX = 1 << 30, 1_000
"""A file may unpack to this many bytes; a large one, to this many for each of its own."""
WORD_BYTES = 64
"""Strings up to this length need not be added up one by one to see that they do not fill the memory."""
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


def arrow_table(rows: Sequence[Event]) -> Any:
    """Events as a pyarrow table."""
    import pyarrow

    schema = arrow_schema()
    arrays = []
    for name in NAMES:
        column = [getattr(row, name) for row in rows]
        if name == "attributes":
            column = [None if value is None else list(value.items()) for value in column]
        arrays.append(pyarrow.array(column, schema.field(name).type))
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def write_parquet(target: Path | BinaryIO, rows: Sequence[Event]) -> None:
    """Write events as one Parquet file."""
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow_table(rows), target, compression="zstd")


def read_parquet(path: Path) -> Iterator[Event | BadRow]:
    """The events of one Parquet file, each checked like a line of JSON; for an unusable event, the reason.

    Columns that are not those of a trace are left out.
    """
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
            if twice := [name for name in NAMES if file.schema_arrow.names.count(name) > 1]:
                raise TraceError(f"{path} has the column {twice[0]} twice.")
            if (refused := fractions_in(file.schema_arrow)) is not None:
                raise TraceError(f"{path}: {refused}")
            wanted = [field for field in arrow_schema() if field.name in file.schema_arrow.names]
            for batch in batches_of(file, [field.name for field in wanted]):
                columns = [batch.column(field.name).cast(field.type) for field in wanted]
                columns = [
                    sound_attributes(column) if field.name == "attributes" else column
                    for field, column in zip(wanted, columns, strict=True)
                ]
                for row in pyarrow.Table.from_arrays(columns, [field.name for field in wanted]).to_pylist():
                    number += 1
                    if row.get("attributes") is not None:
                        row["attributes"] = dict(row["attributes"])
                    try:
                        yield from_row(row, f"{path}, row {number}")
                    except TraceError as error:
                        yield BadRow(str(error), row.get("run"), row.get("member"), row.get("incarnation") or 0)
    except Bomb as error:
        raise TraceError(f"{path} is refused: {error}.") from None
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        raise TraceError(f"{path} is not a Parquet file that can be read ({error}).") from error


def fractions_in(schema: Any) -> str | None:
    """Why a file with these columns is refused: numbers of floating point lose digits, so that two digests may look the same."""
    import pyarrow

    for name in NAMES:
        for at in schema.get_all_field_indices(name):
            kind = schema.field(at).type
            while hasattr(kind, "value_type"):  # of a list, or of words as codes
                kind = kind.value_type
            if pyarrow.types.is_floating(kind):
                return (
                    f"the column {name} is of the type {schema.field(at).type}, which loses digits: write it as int64."
                )
    return None


def sound_attributes(column: Any) -> Any:
    """A column of maps without pairs that lack a name or a value; of pairs with one name, the last counts.

    A file can hold such maps, and a Python dict, Spark and pyarrow would each make something else of them.
    """
    import numpy as np
    import pyarrow

    if isinstance(column, pyarrow.ChunkedArray):
        return pyarrow.chunked_array([sound_attributes(chunk) for chunk in column.chunks], column.type)
    offsets = column.offsets.to_numpy()
    start, stop = (int(offsets[0]), int(offsets[-1])) if len(column) else (0, 0)
    names, values = column.keys.slice(start, stop - start), column.items.slice(start, stop - start)
    if not names.null_count and not values.null_count:
        codes = names.dictionary_encode()
        row = np.repeat(np.arange(len(column)), np.diff(offsets)) if len(column) else offsets[:0]
        pairs = row * (len(codes.dictionary) + 1) + codes.indices.to_numpy()
        if len(np.unique(pairs)) == len(pairs):
            return column
    maps = [
        None if some is None else {name: value for name, value in some if name is not None and value is not None}
        for some in column.to_pylist()
    ]
    return pyarrow.array([None if one is None else list(one.items()) for one in maps], column.type)


class Bomb(ValueError):
    """A file that would unpack to far more than it weighs; the text says to what."""


@contextmanager
def open_parquet(source: Path | Any) -> Iterator[Any]:
    """A Parquet file whose columns of strings are read as codes: repeating a long one costs nothing.

    `source` is a path, or a file that pyarrow has opened, which is closed at the end. Raises `Bomb`.
    """
    import pyarrow.parquet

    if isinstance(source, Path):
        open_regular(source).close()
        source = pyarrow.OSFile(os.fspath(source))
    with source:
        metadata = pyarrow.parquet.ParquetFile(source).metadata
        _require_reasonable(metadata, source.size())
        leaves = (metadata.schema.column(i) for i in range(metadata.num_columns))
        words = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and not leaf.max_repetition_level]
        yield pyarrow.parquet.ParquetFile(source, metadata=metadata, read_dictionary=words)


def batches_of(
    file: Any,
    columns: Sequence[str] | None = None,
    rows: int = ROWS_A_BATCH,
    codes: Container[str] = (),
    threads: bool = True,
) -> Iterator[Any]:
    """The batches of such a file; the columns named in `codes` stay codes.

    Without `threads` one core reads: for a process that shares the machine with others of its kind.
    Raises `Bomb` before strings that fill the memory are unpacked.
    """
    import pyarrow

    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    packed = sum(group.column(place).total_compressed_size for group in groups for place in range(group.num_columns))
    unpacked, unpacked_max = 0, max(UNPACKED_FREE, packed * UNPACKED_A_BYTE_MAX)
    for number, group in enumerate(groups):
        in_threads = threads and group.num_rows >= ROWS_A_BATCH  # handing a small group over costs more than reading it
        for batch in file.iter_batches(min(rows, _rows_at_once(group)), [number], columns, use_threads=in_threads):
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
    """The size of a column, each string as often as it is there; of short strings, at most that."""
    import pyarrow
    import pyarrow.compute as pc

    if pyarrow.types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary)
        longest = pc.max(lengths).as_py() or 0
        if longest <= WORD_BYTES:
            return int(longest * len(column))
        return pc.sum(lengths.take(column.indices).cast(pyarrow.int64())).as_py() or 0
    return int(column.nbytes)
