"""Bronze: trace segments as they were recorded, Parquet or JSON lines, read by the workers into one DataFrame of events.

Spark only deals out files; a worker reads its own with pyarrow. What cannot be read is not dropped: a bad row, or a whole file
that is corrupt, truncated or of another schema, becomes a row with a `problem` that names file and place.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from unisono.pipeline.data_files import Chosen, read_data_file, with_columns
from unisono.pipeline.storage import Location, place, trouble
from unisono.trace.files import lines_of
from unisono.trace.parquet import arrow_schema, batches_of, fractions_in, open_parquet, sound_attributes
from unisono.trace.reader import differs, torn_line
from unisono.trace.schema import (
    CAST,
    CLOCKS,
    COLUMNS,
    COUNT_MAX,
    DECISIONS,
    INDEX_MAX,
    KINDS,
    NAMES,
    NOT_KNOWN,
    NOT_NEGATIVE,
    REQUIRED,
    SCHEMA_VERSION,
    VIEW_DIGITS_MAX,
    TraceError,
    from_line,
    not_a_name,
    values_of,
)
from unisono.trace.sinks import OPEN, base_of, segment_name

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

ROWS_A_BATCH = 65_536
SPARK_TYPES = {
    "string": "string",
    "long": "bigint",
    "list<string>": "array<string>",
    "list<long>": "array<bigint>",
    "map<string,string>": "map<string,string>",
}
EVENT_DDL = ", ".join(f"`{name}` {SPARK_TYPES[kind]}" for name, kind, _, _ in COLUMNS)
"""The columns of a trace for Spark."""
TAKEN_IN = b"unisono.taken_in"
"""In the metadata of data files of the table of events."""
BRONZE_DDL = EVENT_DDL + ", `file` string, `problem` string"


Where = str | os.PathLike[str] | Location
"""What names a folder or file: a path, or the URI of another storage."""


def read_paths(paths: DataFrame, tasks: int) -> DataFrame:
    """All rows of these segments (`path`), with the file they came from, and a problem where one cannot be used."""
    return paths.select("path").repartition(tasks).mapInArrow(_read_files, BRONZE_DDL)


def life_of(file: Location) -> str | None:
    """The part of a segment's name that says whose it is; None for a file with a name of its own."""
    return None if segment_name(file.name) is None else base_of(file.name).rpartition(".")[0]


def run_of(file: Location) -> str | None:
    """The run that a segment's name tells of."""
    name = segment_name(file.name)
    return None if name is None else name.run


# On the workers.


def _read_files(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        for path in batch.column(0).to_pylist():
            yield from read_file(place(path))


def read_file(path: Location, runs: Iterable[str] | None = None) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a file; whatever it does to a reader ends as a row that says so.

    `runs`: only rows of these, and those that cannot be used.
    """
    try:
        yield from read_now(path) if runs is None else read_runs(path, frozenset(runs))
    except OSError as error:
        yield _problem(path, f"{path}: {error.strerror or error}")


def read_now(path: Location) -> Iterator[pyarrow.RecordBatch]:
    """Likewise, but `OSError` says that it cannot be read now, which says nothing of what is in it."""
    try:
        yield from (_read_parquet if path.name.endswith(".parquet") else _read_lines)(path)
    except MemoryError:
        raise
    except Exception as error:
        if (known := trouble(error)) is not None:
            raise known from None
        yield _problem(path, f"{path}: {str(error).strip() or type(error).__name__}")


def read_runs(path: Location, runs: frozenset[str]) -> Iterator[pyarrow.RecordBatch]:
    """As `read_now`, but only rows of these runs, and those that cannot be used."""
    import pyarrow
    import pyarrow.compute as pc

    if _is_taken_in(path):
        for table in read_data_file(path, arrow_schema(), Chosen(runs)):
            yield from _finish(path, table, pyarrow.nulls(len(table), pyarrow.string()))
        return
    wanted = pyarrow.array(sorted(runs), pyarrow.string())
    for batch in read_now(path):
        chosen = pc.or_(pc.is_in(batch.column("run"), value_set=wanted), pc.is_valid(batch.column("problem")))
        yield batch.filter(chosen)


def _is_taken_in(path: Location) -> bool:
    """Whether this is a data file of the table of events: its rows were looked at before, and are of many runs."""
    import pyarrow.parquet

    if not path.name.endswith(".parquet"):
        return False
    try:
        with path.open() as source:
            return TAKEN_IN in (pyarrow.parquet.read_schema(source).metadata or {})
    except (OSError, pyarrow.ArrowException):
        return False


def _read_parquet(path: Location) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    wanted = arrow_schema()
    with open_parquet(path.open()) as file:
        have = require_known(file.schema_arrow)
        for batch in batches_of(file, [name for name in NAMES if name in have], ROWS_A_BATCH):
            table = pyarrow.Table.from_batches([batch])
            table = with_columns(table, wanted)
            table.validate(full=True)  # words that are not UTF-8 would crash their reader
            columns = {name: table.column(name) for name in NAMES}
            columns["attributes"] = sound_attributes(columns["attributes"])
            yield from _with_problems(path, pyarrow.table(columns))


def require_known(schema: pyarrow.Schema) -> set[str]:
    """The columns of a Parquet file, if it is a trace in a form that this program knows; else the reason why not."""
    version = (schema.metadata or {}).get(b"unisono.schema", b"").decode()
    if version not in ("", str(SCHEMA_VERSION)):
        raise TraceError(f"version {version} of the trace schema; this program knows {SCHEMA_VERSION}.")
    have = set(schema.names)
    missing = [name for name, _, nullable, _ in COLUMNS if name not in have and not nullable]
    if missing:
        raise TraceError(f"this is not a trace: the column {missing[0]} is missing.")
    if (refused := fractions_in(schema)) is not None:
        raise TraceError(refused)
    return have


def rows_in(path: Location) -> int:
    """How many rows a segment says that it holds; 0 if it does not say."""
    import pyarrow.parquet

    try:
        if not path.name.endswith(".parquet"):
            return 0
        with path.open() as file:
            return int(pyarrow.parquet.read_metadata(file).num_rows)
    except Exception:  # it may be the damaged one
        return 0


def _with_problems(path: Location, table: pyarrow.Table) -> Iterator[pyarrow.RecordBatch]:
    """Say of each row what a line of JSON would be told: an unknown kind, a column that its kind needs."""
    import pyarrow
    import pyarrow.compute as pc

    problem = pyarrow.nulls(len(table), pyarrow.string())

    def mark(bad: Any, text: str) -> None:
        nonlocal problem
        problem = pc.if_else(pc.fill_null(bad, False), pyarrow.scalar(f"{path}: {text}"), problem)

    kind = table.column("kind")
    mark(pc.invert(pc.is_in(kind, value_set=pyarrow.array(sorted(KINDS)))), "there is no such kind of row.")
    for name, needed in REQUIRED.items():
        of_kind = pc.equal(kind, name)
        for column in needed:
            mark(pc.and_(of_kind, pc.is_null(table.column(column))), f"a {name} row without {column}.")
    for name, _, nullable, _ in COLUMNS:
        if not nullable:
            mark(pc.is_null(table.column(name)), f"a row without {name}.")
        if pyarrow.types.is_list(table.column(name).type):
            mark(_lacks_items(table.column(name)), f"a row whose {name} lack an item.")
    for name, words in DECISIONS.items():
        is_known = pc.is_in(table.column("decision"), value_set=pyarrow.array(sorted(words)))
        mark(pc.and_(pc.equal(kind, name), pc.invert(is_known)), f"a {name} row with a decision that there cannot be.")
    mark(pc.less(table.column("count"), 1), "a batch holds at least one message.")
    mark(pc.greater(table.column("count"), COUNT_MAX), f"a batch holds at most {COUNT_MAX:,} messages.")
    for name in NOT_NEGATIVE:
        mark(pc.less(table.column(name), 0), f"{name} must not be negative.")
        mark(pc.greater(table.column(name), INDEX_MAX), f"{name} must be at most {INDEX_MAX}.")
    for name in ("run", "group"):
        mark(pc.equal(table.column(name), NOT_KNOWN), not_a_name(name))
    for name in ("member", "origin"):
        mark(pc.match_substring(table.column(name), "#"), f"an address ({name}) has no '#'.")
    mark(
        pc.invert(pc.match_substring_regex(table.column("view"), f"^[0-9]{{1,{VIEW_DIGITS_MAX}}}@")),
        "a view must be number@proposer.",
    )
    mark(pc.invert(pc.is_in(table.column("clock"), value_set=pyarrow.array(sorted(CLOCKS)))), "there is no such clock.")
    same = pc.and_(
        pc.equal(table.column("origin"), table.column("member")),
        pc.equal(table.column("origin_incarnation"), table.column("incarnation")),
    )
    mark(pc.and_(pc.equal(kind, CAST), pc.invert(same)), "a CAST of another member's message.")
    yield from _finish(path, table, problem)


def _lacks_items(column: pyarrow.ChunkedArray) -> Any:
    """Of each row: whether its list holds a null."""
    import pyarrow
    import pyarrow.compute as pc

    lists = column.combine_chunks()
    items = pc.list_flatten(lists)
    if not items.null_count:
        return pyarrow.scalar(False)
    rows = pc.list_parent_indices(lists).filter(pc.is_null(items)).unique()
    return pc.is_in(pyarrow.array(range(len(lists)), rows.type), value_set=rows)


def _read_lines(path: Location) -> Iterator[pyarrow.RecordBatch]:
    if (twin := twin_of(path)) is not None and not holds_all(twin, path):
        yield _problem(path, differs(str(path), twin.name))
        return
    with path.stream() as file:
        yield from read_lines(path, file)


def twin_of(path: Location) -> Location | None:
    """The finished form of an open segment, if it is there, too."""
    if not path.name.endswith(OPEN) or segment_name(path.name) is None:
        return None
    twins = [path.parent / f"{base_of(path.name)}{ending}" for ending in (".parquet", ".jsonl")]
    return next((twin for twin in twins if twin.exists()), None)


def against_open(finished: Location) -> Iterator[pyarrow.RecordBatch]:
    """The problem with the open form of a finished segment, if it is there and tells another story."""
    if finished.name.endswith(OPEN) or segment_name(finished.name) is None:
        return
    opened = finished.parent / f"{base_of(finished.name)}{OPEN}"
    if opened.exists() and not holds_all(finished, opened):
        yield _problem(opened, differs(str(opened), finished.name))


def holds_all(finished: Location, opened: Location) -> bool:
    """As `reader.holds_all`, wherever the two lie."""
    there, problems = _texts(read_now(finished))
    if problems:
        return True
    try:
        with opened.stream() as file:
            wanted, problems = _texts(read_lines(opened, file))
    except FileNotFoundError:
        return True
    return problems <= {torn_line(str(opened))} and not wanted - there


def _texts(batches: Iterator[pyarrow.RecordBatch]) -> tuple[Counter[str], set[str]]:
    """The usable rows as texts that can be compared, and what is wrong with the others."""
    usable: Counter[str] = Counter()
    problems = set()
    for batch in batches:
        for row in batch.to_pylist():
            if row["problem"] is not None:
                problems.add(row["problem"])
            else:
                row["attributes"] = sorted(row["attributes"] or ())
                usable[str([row[name] for name in NAMES])] += 1
    return usable, problems


def read_lines(path: Location, file: BinaryIO, after_bytes: int = 0) -> Iterator[pyarrow.RecordBatch]:
    """The rows of JSON lines; `after_bytes` of the file were read before."""
    import pyarrow

    behind = f" after byte {after_bytes}" if after_bytes else ""
    wanted = arrow_schema()
    rows: list[tuple[Any, ...]] = []

    def table() -> pyarrow.Table:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(NAMES)
        arrays = []
        for field, column in zip(wanted, columns, strict=True):
            values = [list(v.items()) if v else None for v in column] if field.name == "attributes" else list(column)
            arrays.append(pyarrow.array(values, field.type))
        return pyarrow.Table.from_arrays(arrays, names=list(NAMES))

    torn = False
    for number, line in enumerate(lines_of(file), 1):
        torn = not line.endswith(b"\n")
        if torn:
            break
        try:
            rows.append(values_of(from_line(line[:-1].decode("utf-8"), f"{path}, line {number}{behind}")))
        except (TraceError, UnicodeDecodeError) as error:
            yield _problem(path, str(error))
        if len(rows) >= ROWS_A_BATCH:
            yield from _finish(path, table(), pyarrow.nulls(len(rows), pyarrow.string()))
            rows = []
    if rows:
        yield from _finish(path, table(), pyarrow.nulls(len(rows), pyarrow.string()))
    if torn:
        yield _problem(path, torn_line(str(path)))


def _finish(path: Location, table: pyarrow.Table, problem: Any) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    table = table.append_column("file", pyarrow.array([path.uri] * len(table), pyarrow.string()))
    yield from table.append_column("problem", problem).combine_chunks().to_batches()


def _problem(path: Location, text: str) -> pyarrow.RecordBatch:
    """A row that stands for what could not be read, with the life that the file's name tells of."""
    import pyarrow

    name = segment_name(path.name)
    known: dict[str, Any] = {"file": path.uri, "problem": text}
    if name is not None:
        known |= {"run": name.run, "member": name.member, "incarnation": name.incarnation}
    fields = [*arrow_schema(), pyarrow.field("file", pyarrow.string()), pyarrow.field("problem", pyarrow.string())]
    arrays = [pyarrow.array([known.get(field.name)], field.type) for field in fields]
    return pyarrow.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])
