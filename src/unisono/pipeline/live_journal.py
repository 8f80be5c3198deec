"""Reading one journal: as a stream whose offsets are places in it, or as it is now.

Plans are made on the driver's machine. `read` runs in tasks, and needs the journal's folder and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from unisono.pipeline.live_limits import SupportsTriggerAvailableNow, default_limit, limits_of
from unisono.pipeline.live_observer import ObservingMember
from unisono.pipeline.live_options import Options
from unisono.pipeline.live_plain import plain_rows, plainly
from unisono.pipeline.live_rows import fields_of, record_batches
from unisono.pipeline.session import PipelineError
from unisono.runtime.errors import JournalError
from unisono.runtime.journal import (
    BEGINNING,
    Delivered,
    Limits,
    Missing,
    Place,
    Reader,
    Row,
    Stretch,
    Viewed,
    end_now,
    read_stretch,
)

if TYPE_CHECKING:
    import pyarrow

JOURNAL = "the folder where a member journals its deliveries"


class StretchPartition(InputPartition):
    """What one task reads."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__(tuple(stretch))


def offset_of(place: Place) -> dict[str, Any]:
    """A place in the journal as Spark keeps it in a checkpoint."""
    return {
        "view": place.view,
        "ordinal": place.ordinal,
        "segment": place.segment,
        "byte": place.byte,
        "rows": place.rows,
    }


def gaps_wanted(options: Options) -> str:
    return options.choose("gaps", ("raise", "show"))


def shown_kinds(options: Options) -> tuple[type[Row], ...]:
    """Which rows become rows of the stream. Where an application began with a state is shown with the gaps, and stops nothing."""
    views = (Viewed,) if options.flag("views") else ()
    return Delivered, *views, *((Missing,) if gaps_wanted(options) == "show" else ())


def positions_wanted(options: Options) -> tuple[int, int | None]:
    """The first row of a batch read, and the row before which it ends (None: it does not)."""
    first, end = options.position("from") or 0, options.position("to")
    if end is not None and end < first:
        raise PipelineError(f"the option to is {end}, before from, {first}: swap them.")
    return first, end


def refuse_stream_options(options: Options) -> None:
    names = ("group", "start", "maxRowsPerBatch", "maxBytesPerBatch", "reader")
    options.refuse(names, "is for streams (spark.readStream): a batch read takes what the journal holds now")


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """For `spark.readStream` with the option `journal`."""

    @plainly
    def __init__(self, options: Options) -> None:
        options.refuse(("from", "to"), "is for batch reads (spark.read): a stream goes on from its checkpoint")
        self._options = options
        self._journal = options.require("journal", JOURNAL)
        self._gaps = gaps_wanted(options)
        self._stretch_bytes = options.stretch_bytes
        self._observer: ObservingMember | None = None
        self._reader: Reader | None = None
        self._planned: tuple[Place, Place, list[Stretch]] | None = None
        self._latest: Place | None = None
        self._end: tuple[int, int] | None = None

    # On the driver's machine.

    @plainly
    def initialOffset(self) -> dict[str, Any]:
        start = self._options.choose("start", ("earliest", "latest"))
        self._observe()
        reader = Reader(self._journal, gaps="show" if start == "latest" else self._gaps)
        if start == "latest":
            for _ in reader.frames():
                pass
        return offset_of(reader.place)

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        """What is written from now on is for the next run of the query."""
        self._observe()
        self._end = end_now(self._journal)

    @plainly
    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """The end of the journal, or as far as the limit allows. (Before Spark 4.2 there is neither start nor limit.)"""
        self._observe()
        before = Place(**start) if start is not None else self._latest or BEGINNING
        reader = self._reader
        if reader is None or reader.place != before:
            reader = self._reader = Reader(self._journal, before, self._gaps)
        limits = limits_of(self._options, limit, self._end)
        stretches = list(reader.stretches(limits, bytes_max=self._stretch_bytes))
        self._latest = reader.place
        self._planned = before, reader.place, stretches
        return offset_of(reader.place)

    @plainly
    def getDefaultReadLimit(self) -> Any:
        return default_limit(self._options)

    @plainly
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[StretchPartition]:
        first, last = Place(**start), Place(**end)
        if first == last:
            return []
        planned = self._planned
        if planned is not None and planned[:2] == (first, last):
            return [StretchPartition(stretch) for stretch in planned[2]]
        reader = Reader(self._journal, first, self._gaps)
        stretches = list(reader.stretches(until=last, bytes_max=self._stretch_bytes))
        if reader.place != last:
            raise JournalError(
                f"the journal {self._journal} does not reach ordinal {last.ordinal} of view {last.view} any more, which was read "
                "before: it was cut or replaced; start with a new checkpoint."
            )
        return [StretchPartition(stretch) for stretch in stretches]

    @plainly
    def commit(self, end: Mapping[str, Any]) -> None:
        name = self._options.text("reader")
        if name:
            Reader(self._journal, Place(**end), self._gaps).register(name)

    def stop(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer = None

    def _observe(self) -> None:
        """Have the group observed, if that is this query's business."""
        if self._options.text("group") is None:
            return
        if self._observer is None:
            self._observer = ObservingMember(self._options, self._journal)
        self._observer.check()

    # In tasks.

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, StretchPartition)
        return plain_rows(record_batches(rows_of(self._options, self._journal, Stretch(*partition.value))))


class JournalTable(DataSourceReader):
    """For `spark.read`: what the journal holds when the plan is made."""

    @plainly
    def __init__(self, options: Options) -> None:
        refuse_stream_options(options)
        self._options = options
        self._journal = options.require("journal", JOURNAL)
        self._first, self._end = positions_wanted(options)
        gaps_wanted(options)

    @plainly
    def partitions(self) -> list[StretchPartition]:
        reader = Reader(self._journal, gaps=gaps_wanted(self._options))
        limits, size = Limits(end=end_now(self._journal)), self._options.stretch_bytes
        stretches: list[Stretch] = []
        while some := list(reader.stretches(limits, bytes_max=size)):  # once more behind the last: a gap may be there
            stretches += some
        parts = []
        position: int | None = None
        for stretch in stretches:
            if position is None:
                position = next(read_stretch(self._journal, stretch)).position
            if (self._end is None or position < self._end) and position + stretch.rows > self._first:
                parts.append(StretchPartition(stretch))
            position += stretch.rows
        return parts or [StretchPartition(Stretch(0, 0, 0, 0))]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, StretchPartition)
        stretch = Stretch(*partition.value)
        rows = rows_of(self._options, self._journal, stretch) if stretch.rows else iter(())
        first, end = self._first, self._end
        wanted = (row for row in rows if row[1] >= first and (end is None or row[1] < end))
        return plain_rows(record_batches(wanted))


def rows_of(options: Options, journal: str, stretch: Stretch) -> Iterator[tuple[Any, ...]]:
    """A stretch in the columns of the source."""
    shown = shown_kinds(options)
    return (fields_of(row) for row in read_stretch(journal, stretch) if isinstance(row, shown))
