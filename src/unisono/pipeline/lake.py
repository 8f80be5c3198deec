"""Tables with commits: Delta tables through deltalake, and batches that change several of them as one.

| table              | one row is                                                                         |
|--------------------|------------------------------------------------------------------------------------|
| ``segments``       | the ledger: an act on one segment, which was taken in, replaced or removed         |
| ``events``         | an event that can be used; its data files are trace segments themselves            |
| ``quarantine``     | a row or file that cannot be used, and why                                         |
| ``facts``          | what a scan says of a life (`scan`), with segment and batch                        |
| ``verdicts``       | the verdict on one run of one group                                                |
| ``violations``     | a violation with its witness                                                       |
| ``views``          | what was said of a view of a running group at one moment (`views_table`)           |
| ``measures/<name>``| a row of a measure                                                                 |

Workers write data files into the folders of the tables, where no reader sees them; the driver
commits them. Delta commits one table at a time, but taking in a segment changes four. So the changes
of **batch** n go like this:

1. Data files are written. A crash leaves files that no table knows; vacuuming removes them.
2. One commit to `segments` decides. It adds the ledger's rows, and its commit info lists the
   changes of the other tables.
3. Each of these is committed. A process that starts after a crash reads the list and commits what
   is missing (`roll forward`), before it does anything else.

Every commit of a batch carries the application transaction ``take-in`` with the number n. Delta refuses
a second commit of that application on a snapshot that does not know the first. So of two
processes that write to the same tables one fails, whatever it was about to commit, and says so: there is no
lock, and nothing to clean up behind a process that died.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import pyarrow

from unisono.pipeline.arrow_rows import schema_of
from unisono.pipeline.bronze import TAKEN_IN
from unisono.pipeline.data_files import ALL, Chosen, DataFile, read_data_file
from unisono.pipeline.scan import SCAN_DDL
from unisono.pipeline.session import PipelineError
from unisono.pipeline.storage import Location, place
from unisono.trace.parquet import arrow_schema

if TYPE_CHECKING:  # deltalake itself is loaded where it is used: workers import this file, and do not have it
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction
    from pyspark.sql import DataFrame, SparkSession

TAKE_IN = "take-in"
_CHANGES = "unisono.changes"
_LOG_KEPT = "delta.logRetentionDuration"
_SETTINGS = {"delta.checkpointInterval": "20", _LOG_KEPT: "interval 6 hours"}
_COMMITS_BACK = 100
"""How far back the decisive commit of the last batch can lie: others behind it are upkeep alone."""

FORMER_COLUMNS = frozenset({"note"})
"""Columns of facts before they were typed. What they hold would be read as nothing."""
_LIFE_DDL = (
    "run string, `group` string, member string, incarnation bigint, first_index bigint, next_index bigint, rows bigint, "
    "view string, members array<string>, `order` string, time_ns bigint, ended string, listed array<string>"
)
_SEGMENTS_DDL = (
    "batch bigint, key string, act string, path string, size_bytes bigint, modified_ns bigint, rows bigint, "
    "runs array<string>, problems array<string>"
)
_lives = pyarrow.field("lives", pyarrow.list_(pyarrow.struct(schema_of(_LIFE_DDL))))
SCHEMAS: dict[str, pyarrow.Schema] = {
    "segments": schema_of(_SEGMENTS_DDL)
    .append(_lives)
    .append(pyarrow.field("taken_in", pyarrow.timestamp("us", "UTC"))),
    "events": arrow_schema()
    .append(pyarrow.field("segment", pyarrow.string()))
    .with_metadata({**arrow_schema().metadata, TAKEN_IN: b"1"}),
    "quarantine": schema_of(
        "run string, `group` string, member string, incarnation bigint, local_index bigint, file string, problem string, "
        "segment string"
    ),
    "facts": schema_of(f"{SCAN_DDL}, segment string, batch bigint"),
    "verdicts": schema_of(
        "run string, `group` string, protocol string, result string, by string, owed array<string>, "
        "unknown map<string,string>, segments bigint, counts map<string,bigint>, batch bigint"
    ),
    "violations": schema_of(
        "run string, `group` string, property string, members array<string>, view string, witness map<string,string>, "
        "sentence string"
    ),
    "views": schema_of(
        "run string, `group` string, view string, number bigint, `order` string, result string, by string, why string, "
        "asked array<string>, property string, members array<string>, witness map<string,string>, sentence string, "
        "id string, batch bigint, said_ms bigint"
    ),
}
SILVER = ("events", "quarantine", "facts")
"""The tables that a batch changes beside the ledger."""


@dataclass(frozen=True)
class TableChange:
    """What a commit does to one table: data files that it gets, and names of those that it loses."""

    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.add or self.remove)


class LakeTable:
    """A Delta table as one writer knows it: with the commits that it has seen, and its own."""

    def __init__(
        self, folder: Location, delta: DeltaTable, wanted: pyarrow.Schema | None = None, log_s: float | None = None
    ) -> None:
        """`wanted`: columns that the table gets if it lacks them. `log_s`: as for `made`."""
        self.folder, self._delta = folder, delta
        if wanted is not None:
            self._add_missing(wanted)
        if log_s is not None:
            self._keep_log(f"interval {max(1, ceil(log_s))} seconds")

    @classmethod
    def open(cls, folder: Location, wanted: pyarrow.Schema | None = None, log_s: float | None = None) -> LakeTable:
        """A table that is there."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with _told(f"the table {folder} cannot be read"):
            try:
                return cls(folder, DeltaTable(folder.uri, storage_options=folder.delta_options()), wanted, log_s)
            except TableNotFoundError:
                raise PipelineError(f"there is no table at {folder}.") from None

    @classmethod
    def made(cls, folder: Location, schema: pyarrow.Schema, log_s: float | None = None) -> LakeTable:
        """A table with at least these columns. It is made if it is not there, and gets columns that it lacks.

        `log_s`: how long its log tells of commits that a checkpoint covers; None: as before, at first six hours.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        options = folder.delta_options()
        with _told(f"the table {folder} cannot be made"):
            if not is_table(folder):
                try:
                    if folder.is_local:
                        folder.local_path.mkdir(parents=True, exist_ok=True)
                    DeltaTable.create(folder.uri, schema, configuration=_SETTINGS, storage_options=options)
                except DeltaError:  # made by another process just now
                    if not is_table(folder):
                        raise
            return cls.open(folder, schema, log_s)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def version(self) -> int:
        return self._delta.version()

    @property
    def schema(self) -> pyarrow.Schema:
        return pyarrow.schema(self._delta.schema().to_arrow())

    def transaction(self, application: str) -> int:
        """The greatest number that the application has committed; 0: none."""
        return self._delta.transaction_version(application) or 0

    def refresh(self) -> None:
        """See what others have committed. For readers: a writer that does this loses its fence."""
        with _told(f"the table {self.folder} cannot be read"):
            self._delta.update_incremental()

    def files(self, chosen: Chosen = ALL) -> list[DataFile]:
        """The data files that may hold such rows."""
        actions = pyarrow.table(self._delta.get_add_actions())
        found = []
        for row in actions.to_pylist():
            low = {name: value for name, value in (row.get("min") or {}).items() if value is not None}
            high = {name: value for name, value in (row.get("max") or {}).items() if value is not None}
            if chosen.may_be_in(low, high):
                stats = {"numRecords": row["num_records"], "minValues": low, "maxValues": high}
                found.append(DataFile(row["path"], row["size_bytes"], row["num_records"] or 0, json.dumps(stats)))
        return sorted(found)

    def parts(self, files: Iterable[DataFile], chosen: Chosen = ALL) -> Iterator[pyarrow.Table]:
        """The rows of some of its data files, here, a part at a time."""
        schema = self.schema
        for file in files:
            with _told(f"{self.folder / file.path} cannot be read"):
                yield from read_data_file(self.folder / file.path, schema, chosen)

    def read(self, chosen: Chosen = ALL) -> pyarrow.Table:
        """The rows of a small table, here."""
        return pyarrow.concat_tables([self.schema.empty_table(), *self.parts(self.files(chosen), chosen)])

    def commit(self, change: TableChange, application: str, number: int, notes: str | None = None) -> None:
        """Change the table as number n of an application, once: with another writer's number n or later it fails."""
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, RemoveAction

        now_ms = int(time.time() * 1000)
        sizes = {file.path: file.size_bytes for file in self.files()} if change.remove else {}
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size_bytes, {}, now_ms, True, file.stats) for file in change.add
        ]
        actions += [RemoveAction(path, True, now_ms, sizes[path], {}) for path in change.remove if path in sizes]
        properties = CommitProperties(
            custom_metadata=None if notes is None else {_CHANGES: notes},
            app_transactions=[Transaction(application, number)],
        )
        if self.transaction(application) >= number:
            raise _another(self.folder)
        with _told(f"the commit to {self.folder} failed"):
            try:
                self._delta.create_write_transaction(
                    actions, "append", self._delta.schema(), commit_properties=properties
                )
            except DeltaError as error:
                if "oncurrent" in str(error) or "already exists" in str(error):
                    raise _another(self.folder) from None
                raise
            self._delta.update_incremental()
        if self.transaction(application) != number:
            raise _another(self.folder)

    def notes_of(self, number: int) -> str | None:
        """What was noted with a commit that is not far back."""
        for commit in self._delta.history(_COMMITS_BACK):
            said = commit.get(_CHANGES)
            if said is not None and json.loads(said)["batch"] == number:
                return str(said)
        return None

    def vacuum(self, hours: float) -> int:
        """Delete files that the table has not held for whole hours, and those that it never got; how many."""
        with _told(f"{self.folder} could not be vacuumed"):
            return len(self._delta.vacuum(ceil(hours), dry_run=False, enforce_retention_duration=False, full=True))

    def dead_files(self) -> list[str]:
        """Files in its folder that it does not hold: it held them once, or they are being written."""
        with _told(f"{self.folder} could not be listed"):
            return self._delta.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)

    def merge_small_files(self) -> None:
        """Rewrite small files as few large ones, where the order of rows does not matter."""
        with _told(f"{self.folder} could not be compacted"):
            self._delta.optimize.compact()
            self._delta.update_incremental()

    def _keep_log(self, interval: str) -> None:
        if self._delta.metadata().configuration.get(_LOG_KEPT) != interval:
            self._delta.alter.set_table_properties({_LOG_KEPT: interval})
            self._delta.update_incremental()

    def _add_missing(self, wanted: pyarrow.Schema) -> None:
        from deltalake import Schema

        have = {field.name: field for field in self._delta.schema().fields}
        if former := sorted(have.keys() & FORMER_COLUMNS):
            raise PipelineError(
                f"the column {former[0]} of {self.folder} is of an older release: choose another folder for the tables, and take "
                "the traces in again."
            )
        new = []
        for field in Schema.from_arrow(wanted).fields:
            known = have.get(field.name)
            if known is None:
                new.append(field)
            elif known.type.to_json() != field.type.to_json():
                raise PipelineError(
                    f"the column {field.name} of {self.folder} is {_type(known)}, and this program writes {_type(field)}: "
                    "choose another folder for the tables, and take the traces in again."
                )
        if new:
            self._delta.alter.add_columns(new)
            self._delta.update_incremental()


class Series:
    """Batches of changes to several tables: a commit to the first one decides, and carries what the others get."""

    def __init__(self, application: str, first: LakeTable, other: Callable[[str], LakeTable]) -> None:
        self._application, self._first, self._other = application, first, other
        self.number = first.transaction(application)
        """The last batch that was decided."""
        self._roll_forward()

    def publish(self, change: TableChange, others: Mapping[str, TableChange]) -> int:
        """Make one batch; its number."""
        number = self.number + 1
        wanted = {name: change for name, change in others.items() if change}
        notes = json.dumps({"batch": number, "changes": {name: _as_json(one) for name, one in wanted.items()}})
        self._first.commit(change, self._application, number, notes)
        self.number = number
        self._apply(number, wanted)
        return number

    def _roll_forward(self) -> None:
        """Commit what the last batch has decided and a crash has kept from the other tables."""
        notes = self._first.notes_of(self.number) if self.number else None
        if notes is not None:  # only upkeep that follows a whole batch can push it out of sight
            changes = {name: _from_json(one) for name, one in json.loads(notes)["changes"].items()}
            self._apply(self.number, changes)

    def _apply(self, number: int, changes: Mapping[str, TableChange]) -> None:
        for name, change in changes.items():
            table = self._other(name)
            if table.transaction(self._application) < number:
                table.commit(change, self._application, number)


class Lake:
    """The ledger and the silver tables of one folder, for the one process that writes to them."""

    def __init__(self, out: str | Location, log_s: float | None = None) -> None:
        """`log_s`: how long the tables' logs are kept (`LakeTable.made`)."""
        self.out = place(out)
        require_folder_of_tables(self.out)
        self.segments = LakeTable.made(self.out / "segments", SCHEMAS["segments"], log_s)
        if batches := self.segments.transaction(TAKE_IN):
            self._require_silver(batches)
        self.silver = {name: LakeTable.made(self.out / name, SCHEMAS[name], log_s) for name in SILVER}
        self._series = Series(TAKE_IN, self.segments, self.silver.__getitem__)

    @property
    def batch(self) -> int:
        """The last batch that was decided."""
        return self._series.number

    def _require_silver(self, batches: int) -> None:
        """Refuse to go on without these tables: an empty one in place of a deleted one would look as if it never had rows."""
        for name in SILVER:
            if not is_table(self.out / name):
                raise PipelineError(
                    f"the table {self.out / name} is missing, and {self.out / 'segments'} tells of batches up to {batches}: "
                    "bring it back, or take the traces in again with another --out."
                )

    def publish(self, change: TableChange, others: Mapping[str, TableChange]) -> int:
        """Make one batch of changes to the ledger and the silver tables; its number."""
        return self._series.publish(change, others)


def require_folder_of_tables(out: Location) -> None:
    """Refuse a file, and tables of the release before: folders of Parquet files by run, without commits."""
    try:
        if out.exists() and not out.is_folder():
            raise PipelineError(f"{out} is a file: name a folder for the tables with --out.")
    except OSError as error:
        raise PipelineError(f"{out} cannot be read: {error.strerror or error}.") from None
    if (out / "silver").exists() or (out / "gold").exists():
        raise PipelineError(
            f"{out} holds tables of an older release (silver and gold): choose another folder with --out, and take the "
            "traces in again."
        )


def is_table(folder: Location) -> bool:
    """Whether there is a table in a folder."""
    from deltalake import DeltaTable

    return DeltaTable.is_deltatable(folder.uri, folder.delta_options())


def table_names(out: str | Location) -> list[str]:
    """The tables that a folder holds."""
    here = place(out)
    require_folder_of_tables(here)
    found = []
    for folder in here.children()[1] if here.is_folder() else ():
        inside = folder.children()[1] if folder.name == "measures" else [folder]
        found += [one.uri[len(here.uri) :].strip("/") for one in inside if is_table(one)]
    return sorted(found)


def open_table(out: str | Location, name: str) -> LakeTable:
    """One table, to read it."""
    here = place(out)
    require_folder_of_tables(here)
    folder = table_folder(here, name)
    if not is_table(folder):
        known = ", ".join(table_names(here))
        there = f"there are {known}" if known else "there are no tables; `unisono pipeline run --out` writes them"
        raise PipelineError(f"{here} holds no table {name!r}: {there}.")
    return LakeTable.open(folder)


def read_table(spark: SparkSession, out: str | Location, name: str, chosen: Chosen = ALL) -> DataFrame:
    """A table as it is now, read by the workers without any jar."""
    from unisono.pipeline.lake_source import read_files

    table = open_table(out, name)
    files = [((table.folder / file.path).uri, file.size_bytes) for file in table.files(chosen)]
    frame = read_files(spark, files, table.schema, chosen)
    return with_places(frame, place(out)) if name == "facts" else frame


def facts_stream(spark: SparkSession, out: str | Location) -> DataFrame:
    """The facts of every batch from the first on, as a stream. Offsets are numbers of batches."""
    from unisono.pipeline.lake_source import BatchesSource

    spark.dataSource.register(BatchesSource)
    table = open_table(out, "facts")
    frame = spark.readStream.format(BatchesSource.name()).option("path", table.folder.uri).load()
    return with_places(frame, place(out))


def with_places(facts: DataFrame, out: Location) -> DataFrame:
    """Facts of `file` name it below the folder of events, so that tables can be moved; here, as a place."""
    from pyspark.sql import functions as F

    events = F.lit((out / "events").uri + "/")
    return facts.withColumn("path", F.concat(events, F.col("path")))


def table_folder(out: Location, name: str) -> Location:
    """Where a table of this name is."""
    here = out
    for part in name.split("/"):
        here = here / part
    return here


def _as_json(change: TableChange) -> dict[str, Any]:
    return {"add": [list(file) for file in change.add], "remove": list(change.remove)}


def _from_json(said: Mapping[str, Iterable[Any]]) -> TableChange:
    return TableChange(tuple(DataFile(*file) for file in said["add"]), tuple(said["remove"]))


@contextmanager
def _told(what: str) -> Iterator[None]:
    """What goes wrong in a table or on the way to it becomes one sentence."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, pyarrow.ArrowException) as error:
        raise PipelineError(f"{what}: {_line(error)}.") from None


def _another(folder: Location) -> PipelineError:
    return PipelineError(f"another process is writing to {folder.parent}: stop one of the two, and start again.")


def _line(error: BaseException) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__).rstrip(".")


def _type(field: Any) -> str:
    said = json.loads(field.type.to_json())
    return said if isinstance(said, str) else str(said.get("type", said))
