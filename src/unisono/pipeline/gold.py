"""Tables on disk: silver and gold as Parquet, one partition a run, written so that a crash is harmless and twice is like once.

A folder of tables looks like this; any tool that reads Hive partitions can read it:

| path                                 | what it is                                                                   |
|--------------------------------------|------------------------------------------------------------------------------|
| ``<table>/run=<run>/part-0.parquet`` | the rows of one run, sorted by all columns; none: the run has no rows        |
| ``<table>/_schema.json``             | the columns, so that a table without rows has them too                       |
| ``_runs/<…>.json``                   | the manifest of one run: rows and hash of each of its partitions             |
| ``.staging``                         | what is being written                                                        |

1. Workers write the new partitions into the staging folder. A crash here leaves the old tables as they were.
2. A run whose new partitions are those that it has is left alone: writing the same again changes no file.
3. Otherwise its manifest is removed, its partitions take their places by renames, and a new manifest is written last. So every
   partition is the old one or the new one at any moment, and a manifest says that they belong together. `read_gold` shows runs
   with a manifest alone.

All machines of the cluster must see the folder under the same path. One writer works at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unisono.pipeline.session import PipelineError, plain_errors
from unisono.pipeline.tables import Tables
from unisono.trace.files import open_private, read_json, write_whole
from unisono.trace.plain import json_text

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession

    from unisono.pipeline.verify import RunVerdict

ROWS_A_GROUP = 65_536
NO_RUN = "?"
"""The partition of rows that could not be told to belong to any run."""
VERDICT_DDL = (
    "run string, `group` string, protocol string, result string, by string, owed array<string>, "
    "unknown map<string,string>, segments bigint, counts map<string,bigint>"
)
VIOLATION_DDL = (
    "run string, `group` string, property string, members array<string>, view string, witness map<string,string>, "
    "sentence string"
)


class Part(NamedTuple):
    """A partition as a worker has written it."""

    run: str
    rows: int
    sha256: str
    staged: str


# What people call.


def write_silver(tables: Tables, folder: Path, runs: Iterable[str] | None = None) -> None:
    """Write all silver tables of these runs; without `runs`, of all that they hold."""
    frames = {field.name: getattr(tables, field.name) for field in fields(tables)}
    if runs is None:
        with plain_errors("reading the trace"):
            found = tables.events.select("run").union(tables.quarantine.select("run")).distinct().collect()
        runs = sorted(row["run"] or NO_RUN for row in found)
    write_tables(frames, folder, runs)


def write_gold(
    spark: SparkSession,
    folder: Path,
    verdicts: Iterable[RunVerdict],
    measures: Mapping[str, DataFrame] | None = None,
    inputs: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write verdicts, violations with their witnesses, and measures. `inputs`, by run, is noted in the manifests."""
    judged = list(verdicts)
    known = inputs or {}
    rows = [
        (
            v.run,
            v.group,
            v.protocol,
            v.result,
            v.by,
            sorted(v.owed),
            dict(v.unknown),
            known.get(v.run, {}).get("segments"),
            dict(v.counts),
        )
        for v in judged
    ]
    broken = [
        (v.run, v.group, b.property, list(b.members), b.view, dict(b.witness), b.explain())
        for v in judged
        for b in v.violations
    ]
    frames = {
        "verdicts": spark.createDataFrame(rows, VERDICT_DDL),
        "violations": spark.createDataFrame(broken, VIOLATION_DDL),
        **(measures or {}),
    }
    runs = sorted({v.run for v in judged})
    results = {run: {v.group: v.result for v in judged if v.run == run} for run in runs}
    notes = {run: {"results": results[run], "inputs": dict(known.get(run, {}))} for run in runs}
    write_tables(frames, folder, runs, notes)


def read_gold(spark: SparkSession, folder: Path, table: str) -> DataFrame:
    """One table of the runs that were written wholly."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromJson(read_json(folder / table / "_schema.json"))
    except OSError:
        known = ", ".join(sorted(path.parent.name for path in folder.glob("*/_schema.json"))) or "none"
        raise PipelineError(f"{folder} holds no table {table!r}: there is {known}.") from None
    here = {unescape(path.name.removeprefix("run=")) for path in (folder / table).glob("run=*")}
    half = sorted(here - set(manifests(folder)))
    with plain_errors(f"reading {folder / table}"):
        frame = spark.read.schema(schema).parquet(str(folder / table)).select(*schema.names)
    return frame.where(~F.col("run").isin(half)) if half else frame


def manifests(folder: Path) -> dict[str, dict[str, Any]]:
    """The manifest of every run that was written wholly."""
    found = (read_json(path) for path in sorted((folder / "_runs").glob("*.json")))
    return {manifest["run"]: manifest for manifest in found}


def write_tables(
    frames: Mapping[str, DataFrame],
    folder: Path,
    runs: Iterable[str],
    notes: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write the partitions of these runs, and of no others. The first column of every frame must be `run`."""
    wanted = sorted(set(runs))
    with writing(folder), plain_errors(f"writing tables to {folder}"):
        staging = folder / ".staging" / uuid.uuid4().hex
        shutil.rmtree(staging.parent, ignore_errors=True)  # whoever left it there is dead: we hold the lock
        try:
            parts = {name: _stage(frame, staging / name, wanted) for name, frame in frames.items()}
            for name, frame in frames.items():
                write_whole(folder / name / "_schema.json", frame.schema.json())
            for run in wanted:
                _publish(
                    folder, run, {name: found.get(run) for name, found in parts.items()}, (notes or {}).get(run, {})
                )
        finally:
            shutil.rmtree(staging.parent, ignore_errors=True)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Only one process writes into a folder at a time. The lock dies with its process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open_private(folder / ".lock")
    except OSError as error:
        raise PipelineError(f"{folder} cannot be written: {error.strerror or error}.") from None
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(
                f"another process is writing to {folder}: wait for it, or choose another folder."
            ) from None
        yield
    finally:
        os.close(file)


# Names.

_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(32)}


def escape(run: str) -> str:
    """A run as the name of a folder, as Hive and Spark write it: a few signs as %XX, anything else as it is."""
    return "".join(f"%{ord(sign):02X}" if sign in _ESCAPED else sign for sign in run)


def unescape(name: str) -> str:
    head, *rest = name.split("%")
    return head + "".join(chr(int(part[:2], 16)) + part[2:] for part in rest)


# Inside.


def _stage(frame: DataFrame, staging: Path, runs: list[str]) -> dict[str, Part]:
    """Let the workers write the partitions of one table, each by one task, sorted."""
    from pyspark.sql import functions as F

    assert frame.columns[0] == "run", frame.columns
    run = F.coalesce(F.col("run"), F.lit(NO_RUN))
    chosen = frame.withColumn("run", run).where(F.col("run").isin(runs))
    tasks = max(1, min(len(runs), frame.sparkSession.sparkContext.defaultParallelism * 4))
    ordered = chosen.repartition(tasks, "run").sortWithinPartitions(*_sort_keys(frame))
    written = ordered.mapInArrow(
        _writer(str(staging)), "run string, rows bigint, sha256 string, staged string"
    ).collect()
    parts = {row["run"]: Part(row["run"], row["rows"], row["sha256"], row["staged"]) for row in written}
    assert len(parts) == len(written), "one run in two tasks"
    return parts


def _sort_keys(frame: DataFrame) -> list[Column]:
    """All columns; Spark has no order of maps, but one of their entries."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType

    keys = []
    for field in frame.schema.fields:
        column = F.col(f"`{field.name}`")
        keys.append(F.map_entries(column) if isinstance(field.dataType, MapType) else column)
    return keys


Batches = Iterator["pyarrow.RecordBatch"]


def _writer(staging: str) -> Callable[[Batches], Batches]:
    """What a task does: sorted rows in, one file a run, and a line about each out."""

    def write(batches: Batches) -> Batches:
        import pyarrow

        parts = list(write_parts(batches, Path(staging)))
        columns = list(zip(*parts, strict=True)) if parts else [()] * len(Part._fields)
        kinds = [pyarrow.string(), pyarrow.int64(), pyarrow.string(), pyarrow.string()]
        arrays = [pyarrow.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=list(Part._fields))

    return write


def write_parts(batches: Batches, staging: Path) -> Iterator[Part]:
    """Write rows that are sorted by run. Row groups are cut by count alone, so equal rows give equal bytes."""
    import pyarrow

    pending: list[Any] = []
    run: str | None = None
    file: _PartFile | None = None
    for batch in batches:
        table = pyarrow.Table.from_batches([batch])
        start = 0
        for entry in table.column("run").value_counts().to_pylist():
            rows = table.slice(start, entry["counts"]).drop_columns("run")
            start += entry["counts"]
            if entry["values"] != run:
                if file is not None:
                    yield file.close(pending)
                run, pending = entry["values"], []
                file = _PartFile(str(run), staging, rows.schema)
            assert file is not None
            pending = file.take([*pending, rows])
    if file is not None:
        yield file.close(pending)


class _PartFile:
    """One partition being written."""

    def __init__(self, run: str, staging: Path, schema: Any) -> None:
        import pyarrow.parquet

        staging.mkdir(parents=True, exist_ok=True)
        self.run, self.rows = run, 0
        self.path = staging / f"{uuid.uuid4().hex}.parquet"  # a task may be tried twice, even at the same time
        self._writer = pyarrow.parquet.ParquetWriter(self.path, schema.remove_metadata(), compression="zstd")

    def take(self, tables: list[Any]) -> list[Any]:
        """Write whole row groups; what is left over comes back."""
        import pyarrow

        if sum(len(table) for table in tables) < ROWS_A_GROUP:
            return tables
        joined = pyarrow.concat_tables(tables)
        whole = len(joined) // ROWS_A_GROUP * ROWS_A_GROUP
        self._write(joined.slice(0, whole))
        return [joined.slice(whole)]

    def close(self, tables: list[Any]) -> Part:
        import pyarrow

        self._write(pyarrow.concat_tables(tables))
        self._writer.close()
        with open(self.path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Part(self.run, self.rows, digest, str(self.path))

    def _write(self, table: Any) -> None:
        if len(table):
            self._writer.write_table(table.combine_chunks(), row_group_size=ROWS_A_GROUP)
            self.rows += len(table)


def _publish(folder: Path, run: str, parts: Mapping[str, Part | None], notes: Mapping[str, Any]) -> None:
    """Put the partitions of one run into their places: all that the manifest names, or no manifest."""
    path = folder / "_runs" / f"run={escape(run)}.json"
    old = read_json(path) if path.exists() else {}
    said = {name: {"rows": part.rows, "sha256": part.sha256} for name, part in parts.items() if part is not None}
    others = {name: part for name, part in old.get("tables", {}).items() if name not in parts}
    manifest = {"run": run, **notes, "tables": dict(sorted((others | said).items()))}
    places = {name: folder / name / f"run={escape(run)}" / "part-0.parquet" for name in parts}
    if manifest == old and all(places[name].exists() == (name in said) for name in parts):
        return
    path.unlink(missing_ok=True)
    for name, part in parts.items():
        if part is None:
            shutil.rmtree(places[name].parent, ignore_errors=True)
        else:
            places[name].parent.mkdir(parents=True, exist_ok=True)
            os.replace(part.staged, places[name])
    write_whole(path, json_text(manifest, indent=1))
