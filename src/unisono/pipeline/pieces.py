"""What a task scans: the segments of a life, or of a piece of it, read column by column."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow
import pyarrow.compute as pc

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.bronze import read_file, require_known, rows_in, run_of
from unisono.pipeline.columns import Columns, by_life
from unisono.pipeline.scan import NEEDED, SCAN_DDL, Fact, LifeScan
from unisono.pipeline.storage import Location, place
from unisono.trace.parquet import arrow_schema, batches_of, open_parquet
from unisono.trace.schema import (
    CLOCKS,
    COLUMNS,
    COUNT_MAX,
    INDEX_MAX,
    KINDS,
    NOT_KNOWN,
    NOT_NEGATIVE,
    REQUIRED,
    view_number,
)

if TYPE_CHECKING:
    import pyarrow.parquet

KEPT_BYTES = 32 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Names of glibc's `mallopt`."""


def read_columns(path: Location) -> Iterator[pyarrow.Table]:
    """The columns of one segment that a scan needs, in large batches, words as codes."""
    if not path.name.endswith(".parquet"):
        for batch in read_file(path):
            table = pyarrow.Table.from_batches([batch])
            if table.column("problem").null_count < len(table):
                raise ValueError(next(text for text in table.column("problem").to_pylist() if text))
            yield table.select(list(NEEDED))
        return
    words = {field.name for field in arrow_schema() if pyarrow.types.is_string(field.type)}
    with open_parquet(path.open()) as file:
        require_known(file.schema_arrow)
        _require_types(file.schema_arrow)
        _require_rest(file)
        for batch in batches_of(file, [*NEEDED, "clock"], 1 << 20, words, threads=False):
            table = pyarrow.Table.from_batches([batch])
            _require_sound(table)
            yield table.select(list(NEEDED))


def _require_types(schema: pyarrow.Schema) -> None:
    """Refuse columns that only a cast makes those of a trace: it may fail, or change values."""
    for wanted in arrow_schema():
        for at in schema.get_all_field_indices(wanted.name):
            kind = schema.field(at).type
            value = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
            is_word = pyarrow.types.is_string(wanted.type) and pyarrow.types.is_large_string(value)
            is_number = pyarrow.types.is_int64(wanted.type) and pyarrow.types.is_signed_integer(value)
            if not (value == wanted.type or is_word or is_number):
                raise ValueError(f"the column {wanted.name} is of the type {kind}.")


def _require_sound(table: pyarrow.Table) -> None:
    """Refuse rows that a reader of all columns may refuse: it tells which, and they are not judged by digests.

    Dictionaries are looked at instead of words, so this costs little.
    """
    have = set(table.column_names)
    for name, _, nullable, _ in COLUMNS:
        if not nullable and name in have and table.column(name).null_count:
            raise ValueError(f"a row lacks a value for {name}.")
    for name, least, most in (*((name, 0, INDEX_MAX) for name in NOT_NEGATIVE), ("count", 1, COUNT_MAX)):
        found: dict[str, Any] = pc.min_max(table.column(name)).as_py() if name in have else {"min": None}
        if found["min"] is not None and not least <= found["min"] <= found["max"] <= most:
            raise ValueError(f"a row whose {name} is not between {least} and {most}.")
    for name, is_bad in _BAD_WORDS.items():
        if name in have and any(map(is_bad, _words(table.column(name)))):
            raise ValueError(f"a row with a {name} that there cannot be.")
    for name in ("members", "transitional", "destinations"):
        if name in have and pc.list_flatten(table.column(name)).null_count:
            raise ValueError(f"a row whose {name} lack a name.")
    columns = Columns(table)
    kinds, words = columns.codes("kind")
    for kind, required in REQUIRED.items():
        lacking = [name for name in required if name in have and table.column(name).null_count]
        if kind in words and lacking:
            of_kind = kinds == words.index(kind)
            for name in lacking:
                if columns.lacks(name, of_kind):
                    raise ValueError(f"a {kind} row without {name}.")


def _require_rest(file: pyarrow.parquet.ParquetFile) -> None:
    """Refuse what a reader of all columns may refuse in those that no digest needs. Most of them hold nothing but nulls."""
    used = _columns_used(file)
    rest = [name for name, kind, _, _ in COLUMNS if name in used and name not in (*NEEDED, "clock") and kind != "long"]
    for batch in batches_of(file, rest, threads=False) if rest else ():
        batch.validate(full=True)
        for name in ("parts", "frontier"):
            if name in rest and pc.list_flatten(batch.column(name)).null_count:
                raise ValueError(f"a row whose {name} lack an item.")


def _columns_used(file: pyarrow.parquet.ParquetFile) -> set[str]:
    """The columns that hold anything but nulls, as the metadata of the row groups tells."""
    used = set()
    for group in map(file.metadata.row_group, range(file.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            told = column.statistics if column.is_stats_set else None
            if told is None or not told.has_null_count or told.null_count < column.num_values:
                used.add(column.path_in_schema.partition(".")[0])
    return used


_BAD_WORDS: dict[str, Callable[[str], bool]] = {
    "run": lambda word: word == NOT_KNOWN,
    "group": lambda word: word == NOT_KNOWN,
    "kind": lambda word: word not in KINDS,
    "clock": lambda word: word not in CLOCKS,
    "view": lambda word: view_number(word) < 0,
    "member": lambda word: "#" in word,
    "origin": lambda word: "#" in word,
}


def _words(column: pyarrow.ChunkedArray) -> Iterator[str]:
    """The words of a column, each at least once, and perhaps some that its rows do not use."""
    for chunk in column.chunks:
        words = chunk.dictionary if pyarrow.types.is_dictionary(chunk.type) else chunk.unique()
        yield from (word for word in words.to_pylist() if word is not None)


class LifePiece(NamedTuple):
    """What one call scans: the segments of a life, or some of them."""

    paths: list[str]
    sizes: list[int]
    is_whole: bool


def scan_piece(piece: LifePiece) -> Iterator[Fact]:
    """The facts of a life, or of a piece of it; of a file with several lives, those of each.

    A segment that cannot be read is a suspicion, never silence. Then the rows of all segments of the piece are looked at one by
    one, so that the usable ones tell whose they are and in which order.
    """
    try:
        yield from list(_scan_columns(piece))
    except Exception as error:  # a damaged file may raise anything
        yield from _scan_usable_rows(piece, str(error).strip() or type(error).__name__)


class _Scans:
    """The scans of all lives in the segments of one piece."""

    def __init__(self, is_whole: bool) -> None:
        self._is_whole = is_whole
        self.by_life: dict[tuple[Any, ...], LifeScan] = {}

    def take(self, table: pyarrow.Table) -> None:
        for life, rows in by_life(table):
            if life not in self.by_life:
                self.by_life[life] = LifeScan(None if self._is_whole else rows.column("local_index")[0].as_py())
            self.by_life[life].take(rows)

    def tell_file(self, path: str, size_bytes: int) -> None:
        rows = sum(scan.rows_in_file for scan in self.by_life.values())
        for scan in self.by_life.values():
            scan.tell_file(path, size_bytes * scan.rows_in_file // max(1, rows))

    def finish(self) -> Iterator[Fact]:
        for scan in self.by_life.values():
            yield from scan.finish()


def _scan_columns(piece: LifePiece) -> Iterator[Fact]:
    scans = _Scans(piece.is_whole)
    for path, size in zip(piece.paths, piece.sizes, strict=True):
        for table in read_columns(place(path)):
            scans.take(table)
        scans.tell_file(path, size)
    yield from scans.finish()


def _scan_usable_rows(piece: LifePiece, trouble: str) -> Iterator[Fact]:
    """What the usable rows say, all of it suspicious; and whose the others are, as far as they tell."""
    scans = _Scans(piece.is_whole)
    named = run_of(place(piece.paths[0])) or NOT_KNOWN
    unread = 0
    strays: dict[tuple[str, str], tuple[int, str]] = {}  # by run and path: bytes, and the first problem
    for path, size in zip(piece.paths, piece.sizes, strict=True):
        usable = 0
        for batch in read_file(place(path)):
            table = pyarrow.Table.from_batches([batch])
            is_usable = pc.is_null(table.column("problem"))
            for row in table.filter(pc.invert(is_usable)).select(["run", "problem"]).to_pylist():
                strays.setdefault((named if row["run"] is None else row["run"], path), (size, row["problem"]))
            table = table.filter(is_usable)
            usable += len(table)
            try:
                scans.take(table.select(list(NEEDED)))
            except Exception as error:  # such rows would be told above, but a scan may be stricter
                trouble = f"{path}: {str(error).strip() or type(error).__name__}"
        unread += max(0, rows_in(place(path)) - usable)
        scans.tell_file(path, size)
    for scan in scans.by_life.values():
        scan.suspect("unreadable", trouble)
        scan.unread_rows, unread = unread, 0
    who = place(piece.paths[0]).name
    for (run, path), (size, problem) in strays.items():
        yield Fact(run, NOT_KNOWN, NOT_KNOWN, who, "suspect", suspicion="unreadable", rows=unread, reason=problem)
        yield Fact(run, NOT_KNOWN, NOT_KNOWN, who, "file", path=path, size_bytes=size)
        unread = 0
    yield from scans.finish()


def _keep_freed_memory() -> None:
    """Let the C library keep freed arrays for the next batch of rows.

    By default it returns them to the kernel, and the page faults of taking them anew cost as much as the arithmetic.
    """
    with suppress(OSError, AttributeError):  # another C library has no such setting
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def scan_batches(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """For `mapInArrow`: pieces in, facts out."""
    _keep_freed_memory()
    for batch in batches:
        for row in batch.to_pylist():
            yield from as_table(scan_piece(LifePiece(**row)), SCAN_DDL).to_batches()
