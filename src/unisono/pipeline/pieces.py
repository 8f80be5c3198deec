"""What a task scans: the segments of a life, or of a piece of it, read column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unisono.pipeline.bronze import read_file, require_known, rows_in, run_of
from unisono.pipeline.scan import NEEDED, SCAN_DDL, LifeScan
from unisono.trace.parquet import batches_of, open_parquet

if TYPE_CHECKING:
    import pyarrow


def read_columns(path: Path, columns: Sequence[str] = NEEDED) -> Iterator[pyarrow.Table]:
    """Some columns of one segment, in large batches, words as codes."""
    import pyarrow

    if not path.name.endswith(".parquet"):
        for batch in read_file(path):
            table = pyarrow.Table.from_batches([batch])
            if table.column("problem").null_count < len(table):
                raise ValueError(next(text for text in table.column("problem").to_pylist() if text))
            yield table.select(list(columns))
        return
    words = {"kind", "view", "origin", "service", "run", "group", "protocol", "member"}
    with open_parquet(path) as file:
        require_known(file.schema_arrow)
        for batch in batches_of(file, list(columns), 1 << 20, words):
            yield pyarrow.Table.from_batches([batch])


class Piece(NamedTuple):
    """What one call scans: some segments of a life, and those before them."""

    paths: list[str]
    before: list[str]
    number: int
    is_last: bool


def scan_piece(piece: Piece) -> Iterator[tuple[Any, ...]]:
    """The facts of a life, or of a piece of it. A segment that cannot be read is a suspicion, never silence."""
    trouble: str | None = None
    inherited = None
    try:
        inherited = _look_back(piece.before)
    except Exception as error:  # a damaged file may raise anything
        trouble = f"{piece.before[0]} or a later segment: {str(error).strip() or type(error).__name__}"
    scan = LifeScan(piece.number, piece.is_last, inherited)
    unread = list(piece.paths)
    for path in piece.paths if trouble is None else ():
        try:
            for table in read_columns(Path(path)):
                scan.take(table)
        except Exception as error:  # likewise
            trouble = f"{path}: {str(error).strip() or type(error).__name__}"
            break
        finally:
            if (named := run_of(Path(path))) is not None and scan.runs - {named}:
                scan.misnamed(path)
            scan.runs.clear()
        unread.remove(path)
    if trouble is not None:
        if scan.identity is None:
            first = Path(piece.paths[0])
            scan.identity = (run_of(first) or "?", "?", "?", first.name)
        scan.suspect("unreadable", trouble)
        scan.unread_rows = sum(rows_in(Path(path)) for path in unread)
    yield from scan.finish()


def _look_back(before: list[str]) -> tuple[str, list[str]] | None:
    """The view that was installed last before a piece; only the kinds of rows are read to find it."""
    import pyarrow.compute as pc

    for path in reversed(before):
        found: tuple[str, list[str]] | None = None
        for table in read_columns(Path(path), ("kind", "view", "members")):
            rows = np.flatnonzero(pc.equal(table.column("kind"), "VIEW").to_numpy())
            if len(rows):
                at = int(rows[-1])
                found = table.column("view")[at].as_py(), table.column("members")[at].as_py() or []
        if found is not None:
            return found
    return None


def scan_batches(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """For `mapInArrow`: pieces in, facts out."""
    import pyarrow

    names = [part.strip().split(" ")[0].strip("`") for part in SCAN_DDL.split(",")]
    types = [pyarrow.int64() if part.strip().endswith("bigint") else pyarrow.string() for part in SCAN_DDL.split(",")]
    for batch in batches:
        for row in batch.to_pylist():
            rows = list(scan_piece(Piece(**row)))
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
            arrays = [pyarrow.array(list(column), kind) for column, kind in zip(columns, types, strict=True)]
            yield pyarrow.RecordBatch.from_arrays(arrays, names=names)
