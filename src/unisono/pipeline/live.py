"""A live group as a Spark stream, and rows of a stream as messages to a group (docs/live.md).

    live.register(spark)
    spark.readStream.format("unisono").option("journal", folder).load()
    rows.writeStream.format("unisono").option("group", "chat").option("peers", "10.0.0.1:7400").start()

Reading: some member of the group writes its deliveries to a journal, and the source reads that by places. A place is a view and an
ordinal in it, and never means anything else later, so Spark's checkpoint makes it exactly once: after a kill the query asks again
for the same stretch of the same file. With `group` and `peers` the member that observes runs beside the query's driver. With
`journals` several members' journals are one stream.

Writing: each task joins the group, casts its rows, waits until they are stable, and leaves. Spark may run a task again, so a row is
cast at least once; each message says which row it is, and receivers drop repeats (`live_repeats`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from unisono.pipeline.live_cast import BatchCaster, StreamCaster
from unisono.pipeline.live_journal import JournalStream, JournalTable
from unisono.pipeline.live_journals import JournalsStream, JournalsTable
from unisono.pipeline.live_options import Options
from unisono.pipeline.live_plain import plainly
from unisono.pipeline.live_repeats import LINE
from unisono.pipeline.live_rows import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def register(spark: SparkSession) -> None:
    """Make the format `unisono` known to a session."""
    spark.dataSource.register(UnisonoSource)


def with_row_ids(rows: DataFrame) -> DataFrame:
    """Rows of this source with the columns `query`, `batch`, `partition` and `row` of the sink, and without that line in `payload`.

    Of a message that the sink did not cast they are null.
    """
    text = F.decode("payload", "ISO-8859-1")  # a character for each byte
    found = [F.regexp_extract(text, LINE, group) for group in range(5)]
    is_row = found[0] != ""
    kept = F.expr("octet_length(payload)") - F.length(found[0])
    return rows.select(
        *(name for name in rows.columns if name != "payload"),
        F.when(is_row, F.col("payload").substr(F.length(found[0]) + 1, kept))
        .otherwise(F.col("payload"))
        .alias("payload"),
        F.when(is_row, found[1]).alias("query"),
        *(
            F.when(is_row, found[2 + number].cast("bigint")).alias(name)
            for number, name in enumerate(("batch", "partition", "row"))
        ),
    )


class UnisonoSource(DataSource):
    """The format `unisono`."""

    @classmethod
    def name(cls) -> str:
        return "unisono"

    def schema(self) -> str:
        return SCHEMA

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        options = Options(self.options)
        return JournalsTable(options) if options.text("journals") else JournalTable(options)

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = Options(self.options)
        return JournalsStream(options) if options.text("journals") else JournalStream(options)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamCaster:
        return StreamCaster(Options(self.options), schema)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> BatchCaster:
        return BatchCaster(Options(self.options), schema)


__all__ = ["SCHEMA", "UnisonoSource", "register", "with_row_ids"]
