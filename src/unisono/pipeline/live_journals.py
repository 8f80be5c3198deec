"""Reading several journals of one group as one stream (`unisono.runtime.journal.merge`).

An offset says how far the stream and each journal are, what was given of the latest views, and by `plan` from which pieces of
which journals the rows before it came. So a micro-batch that is run again reads the same bytes. If a journal is gone by
then, the rows are read from the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from unisono.pipeline.live_journal import (
    gaps_wanted,
    positions_wanted,
    refuse_stream_options,
    shown_kinds,
)
from unisono.pipeline.live_limits import SupportsTriggerAvailableNow, default_limit, limits_of
from unisono.pipeline.live_options import Options
from unisono.pipeline.live_plain import plain_rows, plainly
from unisono.pipeline.live_rows import fields_of, record_batches
from unisono.runtime.errors import JournalError
from unisono.runtime.journal import (
    Ends,
    JournalMerge,
    JournalPiece,
    Limits,
    Place,
    Reader,
    Stretch,
    ends_now,
    read_piece,
    segment_path,
)

if TYPE_CHECKING:
    import pyarrow

LOOK_EVERY_S = 0.05
NOTHING = JournalPiece("", Stretch(0, 0, 0, 0), 0)


class PiecePartition(InputPartition):
    """What one task reads."""

    def __init__(self, piece: JournalPiece) -> None:
        super().__init__(piece.to_json())


def merge_of(options: Options, state: Mapping[str, Any] | None = None, gaps: str | None = None) -> JournalMerge:
    return JournalMerge(
        journals_wanted(options),
        state,
        gaps=gaps or gaps_wanted(options),
        wait_s=options.number("gapWait", 10.0) or 10.0,
        piece_bytes=options.stretch_bytes,
    )


def journals_wanted(options: Options) -> list[str]:
    text = options.require(
        "journals", "folders where members journal their deliveries, with commas between, or patterns"
    )
    return [name.strip() for name in text.split(",") if name.strip()]


class JournalsStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """For `spark.readStream` with the option `journals`."""

    @plainly
    def __init__(self, options: Options) -> None:
        options.refuse(("from", "to"), "is for batch reads (spark.read): a stream goes on from its checkpoint")
        options.refuse(("group", "journal"), "goes with one journal, and journals with several: choose")
        self._options = options
        self._journals = journals_wanted(options)
        self._ends: Ends | None = None
        self._merge: JournalMerge | None = None
        self._offset: Mapping[str, Any] | None = None  # where the merge is, as Spark knows it
        gaps_wanted(options)

    # On the driver's machine.

    @plainly
    def initialOffset(self) -> dict[str, Any]:
        if self._options.choose("start", ("earliest", "latest")) == "earliest":
            return {"position": 0, "plan": []}
        merge = merge_of(self._options, gaps="show")
        while merge.advance():
            pass
        return {**merge.state(), "plan": []}

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        """What is written from now on is for the next run of the query."""
        self._ends = ends_now(self._journals)

    @plainly
    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        before = start if start is not None else self._offset or self.initialOffset()
        merge = self._merge
        if merge is None or self._offset != before:
            merge = merge_of(self._options, before)
        limits = limits_of(self._options, limit)
        pieces = merge.advance(limits, self._ends)
        while not pieces and self._ends is not None and merge.is_held(self._ends):  # wait here: there is no later
            time.sleep(LOOK_EVERY_S)
            self._ends = ends_now(self._journals)
            pieces = merge.advance(limits, self._ends)
        self._merge = merge
        offset = {**merge.state(), "plan": [piece.to_json() for piece in pieces]} if pieces else dict(before)
        self._offset = offset
        return offset

    @plainly
    def getDefaultReadLimit(self) -> Any:
        return default_limit(self._options)

    @plainly
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[PiecePartition]:
        pieces = [JournalPiece.from_json(piece) for piece in end["plan"]]
        if start["position"] == end["position"] or not pieces:
            return []
        if pieces[0].position != start["position"]:
            raise JournalError("the offsets do not follow each other: start with a new checkpoint.")
        gone = {piece.journal for piece in pieces if not is_there(piece)}
        if gone:
            pieces = merge_of(self._options, start).repeat(end, pieces, gone)
        return [PiecePartition(piece) for piece in pieces]

    @plainly
    def commit(self, end: Mapping[str, Any]) -> None:
        name = self._options.text("reader")
        for path, mark in end.get("journals", {}).items() if name else ():
            try:
                Reader(path, Place(*mark["place"]), "show").register(name or "")
            except JournalError:  # a journal that is gone keeps nothing for this reader
                continue

    # In tasks.

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return plain_rows(record_batches(fields_in(self._options, JournalPiece.from_json(partition.value))))


class JournalsTable(DataSourceReader):
    """For `spark.read`: what the journals hold when the plan is made."""

    @plainly
    def __init__(self, options: Options) -> None:
        refuse_stream_options(options)
        options.refuse(("journal",), "goes with one journal, and journals with several: choose")
        self._options = options
        self._journals = journals_wanted(options)
        self._first, self._end = positions_wanted(options)
        gaps_wanted(options)

    @plainly
    def partitions(self) -> list[PiecePartition]:
        merge = merge_of(self._options)
        ends = ends_now(self._journals)
        pieces = merge.advance(Limits(), ends)
        while merge.is_held(ends):
            time.sleep(LOOK_EVERY_S)
            ends = ends_now(self._journals)
            pieces += merge.advance(Limits(), ends)
        wanted = [
            PiecePartition(piece)
            for piece in pieces
            if piece.position + max(1, piece.stretch.rows) > self._first
            and (self._end is None or piece.position < self._end)
        ]
        return wanted or [PiecePartition(NOTHING)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        piece = JournalPiece.from_json(partition.value)
        rows = fields_in(self._options, piece) if piece != NOTHING else iter(())
        first, end = self._first, self._end
        return plain_rows(record_batches(row for row in rows if row[1] >= first and (end is None or row[1] < end)))


def is_there(piece: JournalPiece) -> bool:
    """Whether the bytes of a piece can still be read."""
    if piece.note:
        return True
    try:
        return segment_path(Path(piece.journal), piece.stretch.segment).stat().st_size >= piece.stretch.end
    except OSError:
        return False


def fields_in(options: Options, piece: JournalPiece) -> Iterator[tuple[Any, ...]]:
    """A piece in the columns of the source."""
    shown = shown_kinds(options)
    return (fields_of(row) for row in read_piece(piece) if isinstance(row, shown))
