"""Bronze: trace segments as they were recorded, Parquet or JSON lines, read by the workers into one DataFrame of events.

Spark only deals out files; a worker reads its own with pyarrow. What cannot be read is not dropped: a bad row, or a whole file
that is corrupt, truncated or of another schema, becomes a row with a `problem` that names file and place.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from unisono.pipeline.session import PipelineError
from unisono.trace.files import lines_of, open_regular
from unisono.trace.parquet import arrow_schema, batches_of, open_parquet
from unisono.trace.reader import segment_files
from unisono.trace.schema import COLUMNS, KINDS, NAMES, REQUIRED, SCHEMA_VERSION, TraceError, from_line, values_of
from unisono.trace.sinks import OPEN, stem_of

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

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
BRONZE_DDL = EVENT_DDL + ", `file` string, `problem` string"


def read_bronze(spark: SparkSession, paths: Iterable[str | Path], partitions: int | None = None) -> DataFrame:
    """All rows of these trace folders and files, with the file they came from, and a problem where one cannot be used."""
    files = list_segments(paths)
    count = partitions or min(len(files), max(2, spark.sparkContext.defaultParallelism * 4))
    listing = spark.createDataFrame([(str(file.resolve()),) for file in files], "path string").repartition(count)
    return listing.mapInArrow(_read_files, BRONZE_DDL)


def list_segments(paths: Iterable[str | Path]) -> list[Path]:
    """The segment files below these paths; an empty folder or something else than a trace is the caller's mistake."""
    files: list[Path] = []
    for path in paths:
        folder = Path(path)
        nested = (
            sorted({f.parent for f in folder.rglob("*") if f.name.endswith((".parquet", ".jsonl"))})
            if folder.is_dir()
            else []
        )
        try:
            files += segment_files(nested or [folder], [])
        except TraceError as error:
            raise PipelineError(str(error)) from None
    if not files:
        raise PipelineError("there is nothing to read: name a trace folder, such as one that `--trace` has written.")
    _refuse_copies(files)
    return files


def _refuse_copies(files: Iterable[Path]) -> None:
    """The same segment twice would look like messages delivered twice, and a verdict on that would be worth nothing."""
    named: dict[str, Path] = {}
    sized: dict[int, list[Path]] = {}
    for file in files:
        other = named.setdefault(_base(file), file)
        if other is not file:
            raise PipelineError(f"{file} has the name of {other}: remove the copy, or judge the two folders apart.")
        sized.setdefault(file.stat().st_size, []).append(file)
    for size, group in sized.items():
        # Only a file with a name of its own, or another segment of the same life, can be a copy under another name.
        lives = Counter(map(life_of, group))
        suspects = group if None in lives else [file for file in group if lives[life_of(file)] > 1]
        seen: dict[str, Path] = {}
        for file in suspects if size and len(suspects) > 1 else ():
            with open(file, "rb") as data:
                other = seen.setdefault(hashlib.file_digest(data, "sha256").hexdigest(), file)
            if other is not file:
                raise PipelineError(f"{file} is a copy of {other}: remove one of the two.")


def _base(file: Path) -> str:
    """A segment's name without the ending that tells its form."""
    return file.name.removesuffix(OPEN).removesuffix(".parquet").removesuffix(".jsonl")


def life_of(file: Path) -> str | None:
    """The part of a segment's name that says whose it is; None for a file with a name of its own."""
    parts = _base(file).split(".")
    return ".".join(parts[:3]) if len(parts) == 4 and parts[2].isdigit() else None


def run_of(file: Path) -> str | None:
    """The run that a segment's name tells of."""
    life = life_of(file)
    return None if life is None else unquote(life.split(".")[0])


class Segments:
    """The files of many runs, found by run. A file with a name of its own may hold rows of any, and so may a misnamed one."""

    def __init__(self, files: Iterable[Path], misnamed: Container[str] = ()) -> None:
        self._named: dict[str, list[Path]] = {}
        self.nameless: list[Path] = []
        for file in files:
            life = None if str(file.resolve()) in misnamed else life_of(file)
            (self.nameless if life is None else self._named.setdefault(life.split(".")[0], [])).append(file)

    def of_runs(self, runs: Iterable[str]) -> list[Path]:
        """The files that may hold rows of these runs."""
        heads = {stem_of(run, "x", 0).split(".")[0] for run in runs}
        return [file for head in sorted(heads) for file in self._named.get(head, ())] + self.nameless


# On the workers.


def _read_files(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        for path in batch.column(0).to_pylist():
            yield from read_file(Path(path))


def read_file(path: Path) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a file; whatever it does to a reader ends as a row that says so."""
    try:
        yield from read_now(path)
    except OSError as error:
        yield _problem(path, f"{path}: {str(error).strip() or type(error).__name__}")


def read_now(path: Path) -> Iterator[pyarrow.RecordBatch]:
    """Likewise, but `OSError` says that it cannot be read now, which says nothing of what is in it."""
    try:
        yield from (_read_parquet if path.name.endswith(".parquet") else _read_lines)(path)
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # pyarrow has some without, for damage
            raise
        yield _problem(path, f"{path}: {str(error).strip() or type(error).__name__}")


def _read_parquet(path: Path) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    wanted = arrow_schema()
    with open_parquet(path) as file:
        have = require_known(file.schema_arrow)
        for batch in batches_of(file, [name for name in NAMES if name in have], ROWS_A_BATCH):
            table = pyarrow.Table.from_batches([batch])
            columns = [
                table.column(field.name).cast(field.type)
                if field.name in have
                else pyarrow.nulls(len(table), field.type)
                for field in wanted
            ]
            yield from _with_problems(path, pyarrow.Table.from_arrays(columns, names=list(NAMES)))


def require_known(schema: pyarrow.Schema) -> set[str]:
    """The columns of a Parquet file, if it is a trace in a form that this program knows; else the reason why not."""
    version = (schema.metadata or {}).get(b"unisono.schema", b"").decode()
    if version not in ("", str(SCHEMA_VERSION)):
        raise TraceError(f"version {version} of the trace schema; this program knows {SCHEMA_VERSION}.")
    have = set(schema.names)
    missing = [name for name, _, nullable, _ in COLUMNS if name not in have and not nullable]
    if missing:
        raise TraceError(f"this is not a trace: the column {missing[0]} is missing.")
    return have


def rows_in(path: Path) -> int:
    """How many rows a segment says that it holds; 0 if it does not say."""
    import pyarrow.parquet

    try:
        return int(pyarrow.parquet.read_metadata(path).num_rows) if path.name.endswith(".parquet") else 0
    except Exception:  # it may be the damaged one
        return 0


def _with_problems(path: Path, table: pyarrow.Table) -> Iterator[pyarrow.RecordBatch]:
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
    mark(pc.less(table.column("count"), 1), "a batch holds at least one message.")
    yield from _finish(path, table, problem)


def _read_lines(path: Path) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

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
    with open_regular(path) as file:
        for number, line in enumerate(lines_of(file), 1):
            torn = not line.endswith(b"\n")
            if torn:
                break
            try:
                rows.append(values_of(from_line(line[:-1].decode("utf-8"), f"{path}, line {number}")))
            except (TraceError, UnicodeDecodeError) as error:
                yield _problem(path, str(error))
            if len(rows) >= ROWS_A_BATCH:
                yield from _finish(path, table(), pyarrow.nulls(len(rows), pyarrow.string()))
                rows = []
    if rows:
        yield from _finish(path, table(), pyarrow.nulls(len(rows), pyarrow.string()))
    if torn:
        yield _problem(path, f"{path}: the last line is torn, its row is missing.")


def _finish(path: Path, table: pyarrow.Table, problem: Any) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    table = table.append_column("file", pyarrow.array([str(path)] * len(table), pyarrow.string()))
    yield from table.append_column("problem", problem).combine_chunks().to_batches()


def _problem(path: Path, text: str) -> pyarrow.RecordBatch:
    """A row that stands for what could not be read, with the life that the file's name tells of."""
    import pyarrow

    parts = [unquote(part) for part in path.name.split(".")]
    known: dict[str, Any] = {"file": str(path), "problem": text}
    if len(parts) >= 4 and parts[2].isdigit():
        known |= {"run": parts[0], "member": parts[1], "incarnation": int(parts[2])}
    fields = [*arrow_schema(), pyarrow.field("file", pyarrow.string()), pyarrow.field("problem", pyarrow.string())]
    arrays = [pyarrow.array([known.get(field.name)], field.type) for field in fields]
    return pyarrow.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])
