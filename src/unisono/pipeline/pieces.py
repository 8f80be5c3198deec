"""What a task scans: the segments of a life, or of a piece of it, read column by column."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.compute as pc

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.bronze import read_file, require_known, rows_in, run_of
from unisono.pipeline.columns import Columns, by_life
from unisono.pipeline.scan import NEEDED, NOTHING, SCAN_DDL, Fact, InheritedState, LifeScan
from unisono.pipeline.storage import Location, place
from unisono.trace.parquet import arrow_schema, batches_of, open_parquet
from unisono.trace.schema import (
    CLOCKS,
    COLUMNS,
    COUNT_MAX,
    DATED_BACK,
    INDEX_MAX,
    KINDS,
    NOT_KNOWN,
    NOT_NEGATIVE,
    REQUIRED,
    VIEW,
    view_number,
)

if TYPE_CHECKING:
    import pyarrow.parquet

KEPT_BYTES = 32 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Names of glibc's `mallopt`."""


def read_columns(
    path: Location, columns: Sequence[str] = NEEDED, groups: Sequence[int] | None = None
) -> Iterator[pyarrow.Table]:
    """Some columns of one segment, in large batches, words as codes; of a Parquet file, perhaps only of some row groups."""
    if not path.name.endswith(".parquet"):
        for batch in read_file(path):
            table = pyarrow.Table.from_batches([batch])
            if table.column("problem").null_count < len(table):
                raise ValueError(next(text for text in table.column("problem").to_pylist() if text))
            yield table.select(list(columns))
        return
    words = {field.name for field in arrow_schema() if pyarrow.types.is_string(field.type)}
    with open_parquet(path.open()) as file:
        require_known(file.schema_arrow)
        _require_types(file.schema_arrow)
        if groups is None:
            _require_rest(file)
        for batch in batches_of(file, [*columns, "clock"], 1 << 20, words, threads=False, chosen=groups):
            table = pyarrow.Table.from_batches([batch])
            _require_sound(table)
            yield table.select(list(columns))


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
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    used = {name.partition(".")[0] for group in groups for name in _columns_used(group)}
    rest = [name for name, kind, _, _ in COLUMNS if name in used and name not in (*NEEDED, "clock") and kind != "long"]
    for batch in batches_of(file, rest, threads=False) if rest else ():
        batch.validate(full=True)
        for name in ("parts", "frontier"):
            if name in rest and pc.list_flatten(batch.column(name)).null_count:
                raise ValueError(f"a row whose {name} lack an item.")


def _columns_used(group: Any) -> Iterator[str]:
    """The leaves of a row group that hold anything but nulls, as its metadata tells."""
    for at in range(group.num_columns):
        column = group.column(at)
        told = column.statistics if column.is_stats_set else None
        if told is None or not told.has_null_count or told.null_count < column.num_values:
            yield column.path_in_schema


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
    """What one call scans: some segments of a life, and those before them."""

    paths: list[str]
    sizes: list[int]
    before: list[str]
    number: int
    is_last: bool


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

    def __init__(self, piece: LifePiece, inherited: InheritedState = NOTHING) -> None:
        self._piece, self._inherited = piece, inherited
        self.by_life: dict[tuple[Any, ...], LifeScan] = {}

    def take(self, table: pyarrow.Table) -> None:
        for life, rows in by_life(table):
            if life not in self.by_life:
                self.by_life[life] = LifeScan(self._piece.number, self._piece.is_last, self._inherited)
            self.by_life[life].take(rows)

    def tell_file(self, path: str, size_bytes: int) -> None:
        rows = sum(scan.rows_in_file for scan in self.by_life.values())
        for scan in self.by_life.values():
            scan.tell_file(path, size_bytes * scan.rows_in_file // max(1, rows))

    def finish(self) -> Iterator[Fact]:
        if len(self.by_life) > 1 and (self._piece.number or not self._piece.is_last):
            for scan in self.by_life.values():  # whose rows those before it are, is not known
                scan.suspect("mixed", "a piece of a life holds several lives")
        for scan in self.by_life.values():
            yield from scan.finish()


def _scan_columns(piece: LifePiece) -> Iterator[Fact]:
    scans = _Scans(piece, _look_back(piece.before))
    for path, size in zip(piece.paths, piece.sizes, strict=True):
        for table in read_columns(place(path)):
            scans.take(table)
        scans.tell_file(path, size)
    yield from scans.finish()


def _scan_usable_rows(piece: LifePiece, trouble: str) -> Iterator[Fact]:
    """What the usable rows say, all of it suspicious; and whose the others are, as far as they tell."""
    scans = _Scans(piece)
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


def _look_back(before: list[str]) -> InheritedState:
    """The view that was installed last before a piece, and the last time; little is read to find them."""
    time_ns = _last_time(before)
    for path in reversed(before):
        for table in _latest_first(place(path), ("kind", "view", "members", "reason", "protocol"), may_hold=VIEW):
            rows = np.flatnonzero(pc.equal(table.column("kind"), VIEW).to_numpy())
            if len(rows):
                row = table.slice(int(rows[-1]), 1).to_pylist()[0]
                return InheritedState(row["view"], row["members"] or [], row["reason"] or row["protocol"], time_ns)
    return InheritedState(time_ns=time_ns)


def _last_time(before: list[str]) -> int:
    """The time of the last row. A state is dated by the delivery that it reaches to, so its rows do not count."""
    dated_back = pyarrow.array(sorted(DATED_BACK))
    for path in reversed(before):
        for table in _latest_first(place(path), ("kind", "time_ns")):
            dated = table.filter(pc.invert(pc.is_in(table.column("kind"), dated_back)))
            if len(dated):
                return int(dated.column("time_ns")[-1].as_py())
    return NOTHING.time_ns


def _latest_first(path: Location, columns: Sequence[str], may_hold: str | None = None) -> Iterator[pyarrow.Table]:
    """The rows of a segment, group by group from its end; only of groups whose bounds leave room for rows of that kind."""
    if not path.name.endswith(".parquet"):
        yield from reversed(list(read_columns(path, columns)))
        return
    with open_parquet(path.open()) as file:
        groups = [
            number for number in range(file.num_row_groups) if may_hold is None or _may_hold(file, number, may_hold)
        ]
    for number in reversed(groups):
        yield from reversed(list(read_columns(path, columns, [number])))


def _may_hold(file: pyarrow.parquet.ParquetFile, group: int, kind: str) -> bool:
    """Whether the bounds of the kinds of rows, in the metadata of a file, leave room for this one."""
    at = next((i for i in range(file.metadata.num_columns) if file.schema.column(i).path == "kind"), -1)
    bounds = file.metadata.row_group(group).column(at).statistics if at >= 0 else None
    return bounds is None or not bounds.has_min_max or bool(bounds.min <= kind <= bounds.max)


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
