"""Tables for Spark: their data files dealt out to workers, as a frame or as a stream of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from unisono.pipeline.data_files import Chosen, read_data_file
from unisono.pipeline.storage import place

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    Batches = Iterator[pyarrow.RecordBatch]

BYTES_A_TASK = 64 << 20
ROWS_A_TURN = 500_000
"""Approximate number of rows that a lagging stream takes at once: the driver holds the results of one turn."""


def read_files(
    spark: SparkSession, files: Sequence[tuple[str, int]], schema: pyarrow.Schema, chosen: Chosen
) -> DataFrame:
    """The chosen rows of data files, given with their sizes."""
    import pyarrow

    total = sum(size for _, size in files)
    tasks = max(1, min(len(files), max(-(-total // BYTES_A_TASK), spark.sparkContext.defaultParallelism)))
    dealt = [path for i in range(tasks) for path, _ in files[i::tasks]]
    listing = spark.createDataFrame(pyarrow.table({"path": pyarrow.array(dealt, pyarrow.string())}), "path string")
    return listing.repartition(tasks).mapInArrow(_reader(schema, chosen), from_arrow_schema(schema))


def _reader(schema: pyarrow.Schema, chosen: Chosen) -> Callable[[Batches], Batches]:
    def read(batches: Batches) -> Batches:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                for table in read_data_file(place(path), schema, chosen):
                    yield from table.to_batches()

    return read


class FilePartition(InputPartition):
    """What one task reads: a data file, and which batches in it."""

    def __init__(self, path: str, after: int, until: int) -> None:
        super().__init__((path, after, until))


class BatchesSource(DataSource):
    """A table with a column `batch`; the option `path` is its folder."""

    @classmethod
    def name(cls) -> str:
        return "unisono-batches"

    def schema(self) -> StructType:
        return from_arrow_schema(_table(self.options).schema)

    def streamReader(self, schema: StructType) -> BatchesStream:
        return BatchesStream(self.options)


class BatchesStream(DataSourceStreamReader):
    """Batch after batch. What was committed is all that exists: there is nothing to remember."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        table = _table(options)
        self._folder, self._schema = table.folder.uri, table.schema
        self._known: Any = table

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": None}  # workers read files

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(ROWS_A_TURN)

    def latestOffset(self, start: Mapping[str, int] | None = None, limit: ReadLimit | None = None) -> dict[str, int]:
        """The last batch of the next turn. A stream that only wants what is there now gets all of it at once."""
        from unisono.pipeline.lake import TAKE_IN

        first, last = 0 if start is None else start["batch"], int(self._table().transaction(TAKE_IN))
        if first >= last or limit is None or isinstance(limit, ReadAllAvailable):
            return {"batch": max(first, last)}
        return {"batch": self._turn(first, last)}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[FilePartition]:
        """One for each file that holds rows of these batches. After compaction, a file holds those of many."""
        after, until = start["batch"], end["batch"]
        files = self._table().files(Chosen(after=after, until=until)) if after < until else ()
        return [FilePartition(file.path, after, until) for file in files]

    def read(self, partition: InputPartition) -> Batches:
        path, after, until = partition.value
        for table in read_data_file(place(self._folder) / path, self._schema, Chosen(after=after, until=until)):
            yield from table.to_batches()

    def commit(self, end: Mapping[str, int]) -> None:
        """The table keeps its rows."""

    def _turn(self, after: int, last: int) -> int:
        """The last batch of a turn: as many as have about `ROWS_A_TURN` rows, and at least one."""
        rows, until = 0, after
        files = self._table().files(Chosen(after=after, until=last))
        for end, count in sorted((min(last, file.high.get("batch", last)), file.rows) for file in files):
            rows += count
            if rows > ROWS_A_TURN and until > after:
                return until
            until = end
        return last

    def _table(self) -> Any:
        """The table as it is now. Only commits that are new are read: a stream asks every second."""
        if self._known is None:
            self._known = _table(self._options)
        else:
            self._known.refresh()
        return self._known


def _table(options: Mapping[str, str]) -> Any:
    """The table, on the driver. Workers have no deltalake."""
    from unisono.pipeline.lake import LakeTable

    return LakeTable.open(place(options["path"]))
