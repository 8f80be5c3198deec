"""Data files of tables: Parquet files that workers write and read. A commit makes them part of a table.

What a file holds is told by its bounds, the least and greatest value of a few columns. They go into
the commit, so that readers pass over files, and inside a file over row groups, that cannot hold
what they look for. Nothing here needs deltalake: workers have pyarrow alone.
"""

from __future__ import annotations

import json
import uuid
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from unisono.pipeline.storage import Location, place

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

    Batches = Iterator[pyarrow.RecordBatch]

BOUNDED = ("run", "segment", "batch")
"""The columns whose bounds are told, where a table has them."""
ROWS_A_GROUP = 16_384
"""A row group is what a reader of one run must read at least."""
ROWS_A_BATCH = 65_536
BATCH_DIGITS_MAX = 18
FILE_DDL = "path string, size_bytes bigint, rows bigint, stats string"
FILE_COLUMNS = ["path", "size_bytes", "rows", "stats"]


class DataFile(NamedTuple):
    """A file as a commit adds it."""

    path: str
    """Its name below the table's folder."""
    size_bytes: int
    rows: int
    stats: str
    """Number of rows and bounds, as Delta writes them."""

    @property
    def low(self) -> dict[str, Any]:
        low: dict[str, Any] = json.loads(self.stats).get("minValues", {})
        return low

    @property
    def high(self) -> dict[str, Any]:
        high: dict[str, Any] = json.loads(self.stats).get("maxValues", {})
        return high


@dataclass(frozen=True)
class Chosen:
    """Which rows of a table are wanted; None: all."""

    runs: frozenset[str] | None = None
    after: int | None = None
    """Rows of later batches than this one."""
    until: int | None = None
    """Rows of this batch and earlier ones."""

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.runs or ())

    def may_be_in(self, low: dict[str, Any], high: dict[str, Any]) -> bool:
        """Whether a file or row group with these bounds can hold such rows."""
        first: Any = low.get("run")
        last: Any = high.get("run")
        if self.runs is not None and first is not None and last is not None:
            at = bisect_left(self._sorted, first)
            if at == len(self._sorted) or self._sorted[at] > last:
                return False
        first, last = low.get("batch"), high.get("batch")
        if first is None or last is None:
            return True
        return (self.until is None or first <= self.until) and (self.after is None or last > self.after)

    def of(self, table: pyarrow.Table) -> pyarrow.Table:
        """These rows of some."""
        import pyarrow
        import pyarrow.compute as pc

        if self.runs is not None:
            table = table.filter(pc.is_in(table.column("run"), value_set=pyarrow.array(self._sorted, pyarrow.string())))
        if self.after is not None:
            table = table.filter(pc.greater(table.column("batch"), self.after))
        if self.until is not None:
            table = table.filter(pc.less_equal(table.column("batch"), self.until))
        return table


ALL = Chosen()


def batch_of(path: str) -> int:
    """The batch of a file's youngest rows, as its name tells it; 0: another program has named it."""
    number = path.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() and len(number) <= BATCH_DIGITS_MAX else 0


class DataFileWriter:
    """Writes one new file of a table. The rows stay here, packed, until the file is written whole."""

    def __init__(self, folder: Location, batch: int, schema: pyarrow.Schema) -> None:
        import pyarrow
        import pyarrow.parquet

        # The batch is for a person. A task that is tried twice never meets a file of its own.
        self.name = f"{batch:010d}-{uuid.uuid4().hex}.parquet"
        self._folder, self._schema = folder, schema
        self._sink = pyarrow.BufferOutputStream()
        self._writer = pyarrow.parquet.ParquetWriter(self._sink, schema, compression="zstd")
        self._pending: list[pyarrow.Table] = []

    @property
    def size_bytes(self) -> int:
        """About how large it is by now."""
        return int(self._sink.tell())

    def take(self, table: pyarrow.Table) -> None:
        """Add rows. A row group ends with the rows of one call, if it is large enough."""
        self._pending.append(table.select(self._schema.names).cast(self._schema))
        if sum(map(len, self._pending)) >= ROWS_A_GROUP:
            self._flush()

    def close(self) -> DataFile:
        import pyarrow.parquet

        self._flush()
        self._writer.close()
        data = self._sink.getvalue()
        metadata = pyarrow.parquet.read_metadata(pyarrow.BufferReader(data))
        (self._folder / self.name).write_bytes(data.to_pybytes())
        return DataFile(self.name, data.size, metadata.num_rows, _stats(metadata))

    def _flush(self) -> None:
        import pyarrow

        if self._pending:
            self._writer.write_table(pyarrow.concat_tables(self._pending), row_group_size=ROWS_A_GROUP)
            self._pending = []


def write_data_file(folder: Location, batch: int, tables: Iterable[pyarrow.Table], schema: pyarrow.Schema) -> DataFile:
    """Write rows into a new file of a table."""
    writer = DataFileWriter(folder, batch, schema)
    for table in tables:
        writer.take(table)
    return writer.close()


def _stats(metadata: Any) -> str:
    """The number of rows and the bounds of a Parquet file, as its own metadata tells of its row groups."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: Counter[str] = Counter()
    unbounded = set()
    for number in range(metadata.num_row_groups):
        for name, column in _bounded_columns(metadata.row_group(number)):
            told = column.statistics if column.is_stats_set else None
            nulls[name] += told.null_count if told is not None else 0
            if told is not None and told.has_min_max:
                low[name], high[name] = min(told.min, low.get(name, told.min)), max(told.max, high.get(name, told.max))
            elif told is None or told.null_count < column.num_values:
                unbounded.add(name)
    for name in unbounded:  # of words that are too long
        low.pop(name, None)
        high.pop(name, None)
    said = {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(said, separators=(",", ":"))


def read_data_file(file: Location, schema: pyarrow.Schema, chosen: Chosen = ALL) -> Iterator[pyarrow.Table]:
    """The chosen rows of a file in the columns of its table; a column that is younger than the file is null."""
    import pyarrow
    import pyarrow.parquet

    with file.open() as source, pyarrow.parquet.ParquetFile(source) as opened:
        have = set(opened.schema_arrow.names)
        groups = [number for number in range(opened.num_row_groups) if chosen.may_be_in(*_group_bounds(opened, number))]
        names = [name for name in schema.names if name in have]
        for batch in opened.iter_batches(ROWS_A_BATCH, groups, names, use_threads=False):
            table = pyarrow.Table.from_batches([batch])
            table = chosen.of(with_columns(table, schema))
            if len(table):
                yield table


def with_columns(table: pyarrow.Table, schema: pyarrow.Schema) -> pyarrow.Table:
    """The table in the columns of a schema; those that it lacks are null."""
    import pyarrow

    have = set(table.column_names)
    columns = [
        table.column(field.name).cast(field.type) if field.name in have else pyarrow.nulls(len(table), field.type)
        for field in schema
    ]
    return pyarrow.Table.from_arrays(columns, schema=schema)


def _group_bounds(file: Any, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    columns = dict(_bounded_columns(file.metadata.row_group(number)))
    told = {name: column.statistics for name, column in columns.items() if column.is_stats_set}
    told = {name: one for name, one in told.items() if one.has_min_max}
    return {name: one.min for name, one in told.items()}, {name: one.max for name, one in told.items()}


def _bounded_columns(group: Any) -> Iterator[tuple[str, Any]]:
    columns = map(group.column, range(group.num_columns))
    return ((one.path_in_schema, one) for one in columns if one.path_in_schema in BOUNDED)


# With Spark.


def write_frame(frame: DataFrame, folder: Location, schema: pyarrow.Schema, batch: int) -> list[DataFile]:
    """Let the workers write a frame, a file a partition. What they wrote is in no table yet."""
    written = frame.mapInArrow(_writer(folder.uri, schema, batch), FILE_DDL).collect()
    return [DataFile(**row.asDict()) for row in written]


def _writer(folder: str, schema: pyarrow.Schema, batch: int) -> Callable[[Batches], Batches]:
    def write(batches: Batches) -> Batches:
        import pyarrow

        tables = [pyarrow.Table.from_batches([some]) for some in batches if len(some)]
        if tables:
            yield files_as_batch([write_data_file(place(folder), batch, tables, schema)])

    return write


def files_as_batch(files: Iterable[DataFile]) -> pyarrow.RecordBatch:
    """Files as rows of `FILE_DDL`."""
    import pyarrow

    columns = list(zip(*files, strict=True)) or [()] * len(FILE_COLUMNS)
    types = (pyarrow.string(), pyarrow.int64(), pyarrow.int64(), pyarrow.string())
    arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, names=FILE_COLUMNS)
