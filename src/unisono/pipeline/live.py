"""A live group as a Spark stream, and rows of a stream as messages to a group (docs/live.md).

    live.register(spark)
    spark.readStream.format("unisono").option("journal", folder).load()
    rows.writeStream.format("unisono").option("group", "chat").option("peers", "10.0.0.1:7400").start()

Reading: some member of the group writes its deliveries to a journal, and the source reads that by places. A place is a view and an
ordinal in it, and never means anything else later, so Spark's checkpoint makes it exactly once: after a kill the query asks again
for the same stretch of the same file. With `group` and `peers` the member that observes runs beside the query's driver.

Writing: each task joins the group, casts its rows, waits until they are stable, and leaves. Spark may run a task again, so a row is
cast at least once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from unisono.pipeline.live_cast import BatchCaster, StreamCaster
from unisono.pipeline.live_observer import Observer
from unisono.pipeline.live_options import Options
from unisono.pipeline.session import PipelineError
from unisono.runtime.errors import JournalError
from unisono.runtime.journal_format import Delivered, Row, Viewed
from unisono.runtime.journal_reader import BEGINNING, Place, Reader, Stretch, read_stretch

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SCHEMA = (
    "kind string, position bigint, view string, ordinal bigint, sender string, incarnation bigint, index bigint, payload binary, "
    "members array<string>, note string"
)
"""`kind` is `delivery`, and on demand `view` or `missing`; `position` numbers the rows of the journal."""
ARROW_ROWS = 8_192


def register(spark: SparkSession) -> None:
    """Make the format `unisono` known to a session."""
    spark.dataSource.register(UnisonoSource)


class UnisonoSource(DataSource):
    """The format `unisono`."""

    @classmethod
    def name(cls) -> str:
        return "unisono"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> GroupReader:
        return GroupReader(Options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamCaster:
        return StreamCaster(Options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchCaster:
        return BatchCaster(Options(self.options), schema)


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__(tuple(stretch))


class GroupReader(DataSourceStreamReader):
    """Plans on the driver's machine; `read` runs in tasks, and needs the journal's folder and nothing else."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._journal = options.require("journal", "the folder where a member journals its deliveries")
        self._observer: Observer | None = None
        self._reader: Reader | None = None
        self._planned: tuple[Place, Place, list[Stretch]] | None = None
        self._latest: Place | None = None

    # On the driver's machine.

    def initialOffset(self) -> dict[str, Any]:
        start = self._options.choose("start", ("earliest", "latest"))
        self._observe()
        reader = Reader(self._journal, gaps=self._gaps)
        if start == "latest":
            for _ in reader.frames():
                pass
        return reader.place._asdict()

    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """The end of the journal, or as far as the limit allows. (Before Spark 4.2 there is neither start nor limit.)"""
        self._observe()
        before = Place(**start) if start is not None else self._latest or BEGINNING
        reader = self._reader
        if reader is None or reader.place != before:
            reader = self._reader = Reader(self._journal, before, self._gaps)
        stretches = list(reader.stretches(getattr(limit, "max_rows", None), bytes_max=self._options.stretch_bytes))
        self._latest = reader.place
        self._planned = before, reader.place, stretches
        return reader.place._asdict()

    def getDefaultReadLimit(self) -> Any:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        rows = self._options.rows_max
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Part]:
        first, last = Place(**start), Place(**end)
        if first == last:
            return []
        planned = self._planned
        if planned is not None and planned[:2] == (first, last):
            return [Part(stretch) for stretch in planned[2]]
        reader = Reader(self._journal, first, self._gaps)
        stretches = list(reader.stretches(until=last, bytes_max=self._options.stretch_bytes))
        if reader.place != last:
            raise JournalError(
                f"the journal {self._journal} does not reach ordinal {last.ordinal} of view {last.view} any more, which was read "
                "before: it was cut or replaced; start with a new checkpoint."
            )
        return [Part(stretch) for stretch in stretches]

    def commit(self, end: Mapping[str, Any]) -> None:
        name = self._options.text("reader")
        if name:
            Reader(self._journal, Place(**end), self._gaps).register(name)

    def stop(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer = None

    def _observe(self) -> None:
        """See to it that someone writes the journal, if that is our business."""
        if self._options.text("group") is None:
            return
        if self._observer is None:
            self._observer = Observer(self._options, self._journal)
        self._observer.check()

    @property
    def _gaps(self) -> str:
        return self._options.choose("gaps", ("raise", "show"))

    # In tasks.

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        assert isinstance(partition, Part)
        shows_views = self._options.flag("views")
        rows = (
            fields_of(row)
            for row in read_stretch(self._journal, Stretch(*partition.value))
            if shows_views or not isinstance(row, Viewed)
        )
        schema = arrow_schema()
        while some := list(islice(rows, ARROW_ROWS)):
            columns = [
                pyarrow.array(column, field.type) for column, field in zip(zip(*some, strict=True), schema, strict=True)
            ]
            yield pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def fields_of(row: Row) -> tuple[Any, ...]:
    """A row of the journal in the columns of `SCHEMA`."""
    view = str(row.view)
    if isinstance(row, Delivered):
        sender = row.sender
        return (
            "delivery",
            row.position,
            view,
            row.ordinal,
            sender.address,
            sender.incarnation,
            row.index,
            row.payload,
            None,
            None,
        )
    if isinstance(row, Viewed):
        members = [str(member) for member in row.members]
        return "view", row.position, view, None, None, row.incarnation, None, None, members, row.order
    return "missing", row.position, view, row.ordinal, None, None, None, None, None, str(row)


def arrow_schema() -> pyarrow.Schema:
    import pyarrow

    text, number = pyarrow.string(), pyarrow.int64()
    types = [text, number, text, number, text, number, number, pyarrow.binary(), pyarrow.list_(text), text]
    names = [column.split()[0] for column in SCHEMA.split(", ")]
    return pyarrow.schema(list(zip(names, types, strict=True)))


__all__ = ["SCHEMA", "PipelineError", "UnisonoSource", "register"]
