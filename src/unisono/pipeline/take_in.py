"""Taking in: a worker reads segments once, and writes their events, facts and what is unusable.

A task gets lives: all new segments of a life, in their order, because a scan must know in which view
the rows before had left the member. It writes few files, each with the rows of many runs, and
says what it did; the driver commits that (`lake`), or it never happened.

A segment that is being written (``….open.jsonl``) only grows at its end. Its whole lines are taken in as
parts, as they come. When the segment is finished, only the rows behind the last part are new.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unisono.pipeline.arrow_rows import as_table
from unisono.pipeline.bronze import against_open, read_lines, read_now
from unisono.pipeline.columns import by_life
from unisono.pipeline.data_files import DataFile, DataFileWriter, write_data_file
from unisono.pipeline.scan import NOTHING, Fact, InheritedState, LifeScan
from unisono.pipeline.storage import Location, place
from unisono.trace.schema import NAMES, NOT_KNOWN, VIEW, member_name
from unisono.trace.sinks import OPEN

if TYPE_CHECKING:
    import pyarrow

    Batches = Iterator[pyarrow.RecordBatch]

FILE_BYTES_MAX = 64 << 20
OPEN_BYTES_MAX = 32 << 20
"""Maximum bytes of a growing segment that one part holds. The rest is the next part."""
ADD, REPLACE, REMOVE = "add", "replace", "remove"
"""What an act does to a segment: rows come to those that are in, take their place, or all are gone."""
PROBLEMS_TOLD = 5
TASK_REPORT_DDL = "what string, text string"
"""What a task says, as JSON: an `entry` for the ledger, a `file` of a table, or a segment that is `unreadable`."""


class LifeId(NamedTuple):
    """Whose rows: one life of a member of a group in a run."""

    run: str
    group: str
    member: str
    incarnation: int


@dataclass
class Reached:
    """How far the rows of one life go, in one segment or in all until now."""

    run: str
    group: str
    member: str
    incarnation: int
    first_index: int
    next_index: int
    rows: int = 0
    view: str | None = None
    """The view installed last, with its members."""
    members: list[str] | None = None
    order: str | None = None
    time_ns: int | None = None
    """The time of the last row."""
    ended: str | None = None
    listed: list[str] = field(default_factory=list)
    """Every member that a view in these rows lists."""

    @property
    def key(self) -> LifeId:
        return LifeId(self.run, self.group, self.member, self.incarnation)

    @property
    def inherited(self) -> InheritedState:
        """What the rows behind these take over."""
        time_ns = NOTHING.time_ns if self.time_ns is None else self.time_ns
        return InheritedState(self.view, self.members, self.order, time_ns)

    @property
    def who(self) -> str:
        return member_name(self.member, self.incarnation)


@dataclass(frozen=True)
class Todo:
    """A segment, or what is new of one."""

    key: str
    path: str
    size_bytes: int
    modified_ns: int
    done_bytes: int = 0
    """Of a growing segment: where the last part ended."""
    done_rows: int = 0
    """Of a finished one: the rows that are in, because they were taken in while it grew."""
    replaces: bool = False
    """What is in of this segment is taken out: it holds something else now."""
    is_final: bool = False
    """No more will come: a torn last line stays torn."""

    @property
    def is_open(self) -> bool:
        return self.path.endswith(OPEN)


@dataclass
class LedgerEntry:
    """A row of the ledger: what one act did."""

    key: str
    act: str
    path: str
    size_bytes: int
    modified_ns: int
    rows: int
    runs: list[str]
    problems: list[str]
    lives: list[Reached]

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> LedgerEntry:
        fields = {name: row[name] for name in cls.__dataclass_fields__}
        return cls(**{**fields, "lives": [Reached(**life) for life in row["lives"] or ()]})


class Unreadable(Exception):
    """A segment cannot be read just now, which says nothing of what is in it."""


class Changed(Exception):
    """A finished segment does not begin with the rows that were taken in while it grew."""


def take_in_lives(out: str, batch: int, schemas: dict[str, pyarrow.Schema]) -> Any:
    """For `mapInArrow`: lives with what is to do in; what was done out, as `TASK_REPORT_DDL`."""

    def take_in_all(batches: Batches) -> Batches:
        files = TaskFiles(place(out), batch, schemas)
        said: list[tuple[str, Any]] = []
        for row in (row for some in batches for row in some.to_pylist()):
            reached = {life.key: life for life in (Reached(**one) for one in json.loads(row["reached"]))}
            for todo in (Todo(**one) for one in json.loads(row["todos"])):
                try:
                    entry = _Segment(todo, reached, files).take_in()
                    said += [("entry", asdict(entry))] if entry is not None else []
                except Unreadable as error:
                    said.append(("unreadable", {"key": todo.key, "why": str(error)}))
                except Changed:
                    said.append(("changed", {"key": todo.key}))
        said += [("file", {"table": table, "file": list(file)}) for table, file in files.close()]
        yield from reported(said)

    return take_in_all


def reported(said: Iterable[tuple[str, Any]]) -> Batches:
    """What a task says, as `TASK_REPORT_DDL`."""
    yield from as_table([(what, json.dumps(one)) for what, one in said], TASK_REPORT_DDL).to_batches()


class TaskFiles:
    """The data files that a task writes, few and large. Facts say of which runs a file of events holds rows, and how many."""

    def __init__(self, out: Location, batch: int, schemas: dict[str, pyarrow.Schema]) -> None:
        self._out, self._batch, self.schemas = out, batch, schemas
        self._written: list[tuple[str, DataFile]] = []
        self._events: DataFileWriter | None = None
        self._in_events: dict[tuple[str, str], int] = {}  # rows of each run and group in the open file
        self._facts: list[tuple[Any, ...]] = []
        self._bad: list[pyarrow.Table] = []

    def events(self, rows: pyarrow.Table) -> None:
        import pyarrow

        if self._events is None:
            self._events = DataFileWriter(self._out / "events", self._batch, self.schemas["events"])
        self._events.take(rows)
        counts = pyarrow.TableGroupBy(rows, ["run", "group"], use_threads=False).aggregate([([], "count_all")])
        for row in counts.to_pylist():
            whose = (row["run"], row["group"])
            self._in_events[whose] = self._in_events.get(whose, 0) + row["count_all"]
        if self._events.size_bytes >= FILE_BYTES_MAX:
            self._close_events()

    def facts(self, facts: Iterable[Fact], segment: str | None) -> None:
        self._facts += [(*fact, segment, self._batch) for fact in facts]

    def quarantine(self, rows: pyarrow.Table) -> None:
        self._bad.append(rows)

    def close(self) -> list[tuple[str, DataFile]]:
        self._close_events()
        if self._facts:
            self.write("facts", [as_table(self._facts, self.schemas["facts"])])
        if self._bad:
            self.write("quarantine", self._bad)
        return self._written

    def _close_events(self) -> None:
        if self._events is None:
            return
        file = self._events.close()
        self._written.append(("events", file))
        for (run, group), rows in sorted(self._in_events.items()):
            share = file.size_bytes * rows // file.rows
            self.facts([Fact(run, group, None, None, "file", path=file.path, rows=rows, size_bytes=share)], None)
        self._events, self._in_events = None, {}

    def write(self, table: str, tables: Iterable[pyarrow.Table]) -> None:
        self._written.append((table, write_data_file(self._out / table, self._batch, tables, self.schemas[table])))


class _Segment:
    """One segment on its way in."""

    def __init__(self, todo: Todo, reached: dict[LifeId, Reached], files: TaskFiles) -> None:
        self._todo, self._reached, self._files = todo, reached, files
        self._scans: dict[LifeId, LifeScan] = {}
        self._lives: dict[LifeId, Reached] = {}
        self._bad: list[dict[str, Any]] = []
        self._known_rows = 0
        self._end_bytes = todo.size_bytes

    def take_in(self) -> LedgerEntry | None:
        """Bring it in; None: there is nothing new. Raises `Unreadable` and `Changed`."""
        import pyarrow

        todo, tables = self._todo, []
        try:
            for batch in self._read():
                tables += self._sorted_out(pyarrow.Table.from_batches([batch]))
        except OSError as error:
            raise Unreadable(f"it cannot be read: {error.strerror or error}") from error
        if not todo.is_open and todo.done_rows and self._known_rows != todo.done_rows:
            raise Changed
        if todo.is_open and not tables and not self._bad:
            return None
        for rows in tables:
            self._files.events(rows.append_column("segment", pyarrow.array([todo.key] * len(rows), pyarrow.string())))
        for key, scan in self._scans.items():
            self._files.facts(scan.finish(), todo.key)
            self._end(key, scan)
        if self._bad:
            self._quarantine()
        rows = sum(map(len, tables))
        runs = sorted({key.run for key in self._lives} | {row["run"] or NOT_KNOWN for row in self._bad})
        problems = [row["problem"] for row in self._bad[:PROBLEMS_TOLD]]
        act = REPLACE if todo.replaces else ADD
        lives = [self._lives[key] for key in sorted(self._lives)]
        return LedgerEntry(todo.key, act, todo.path, self._end_bytes, todo.modified_ns, rows, runs, problems, lives)

    def _read(self) -> Batches:
        file = place(self._todo.path)
        return self._read_new_lines(file) if self._todo.is_open else chain(read_now(file), against_open(file))

    def _read_new_lines(self, file: Location) -> Batches:
        """The whole lines behind the last part."""
        start = self._todo.done_bytes
        with file.open() as source:
            source.seek(start)
            data = source.read(OPEN_BYTES_MAX)
        is_all = self._todo.is_final and len(data) < OPEN_BYTES_MAX
        whole = data if is_all else data[: data.rfind(b"\n") + 1]
        self._end_bytes = start + len(whole)
        return read_lines(file, io.BytesIO(whole), start)

    def _sorted_out(self, table: pyarrow.Table) -> list[pyarrow.Table]:
        """The new, usable rows, life by life; they are scanned on the way."""
        import pyarrow.compute as pc

        problem = table.column("problem")
        if problem.null_count < len(table):
            bad = table.filter(pc.is_valid(problem))
            wanted = ["run", "group", "member", "incarnation", "local_index", "file", "problem"]
            self._bad += bad.select(wanted).to_pylist()
            table = table.filter(pc.is_null(problem))
        found = []
        for life, rows in by_life(table.select(list(NAMES))):
            key = LifeId(*life)
            rows = self._without_known(key, rows)
            if len(rows):
                self._scan(key, rows)
                found.append(rows)
        return found

    def _without_known(self, key: LifeId, rows: pyarrow.Table) -> pyarrow.Table:
        """Rows of a finished segment that were not in one of its parts."""
        import pyarrow.compute as pc

        before = self._reached.get(key)
        if not self._todo.done_rows or before is None:
            return rows
        new = rows.filter(pc.greater_equal(rows.column("local_index"), before.next_index))
        self._known_rows += len(rows) - len(new)
        return new

    def _scan(self, key: LifeId, rows: pyarrow.Table) -> None:
        index = rows.column("local_index").to_numpy()
        life = self._lives.get(key)
        if life is None:
            first = int(index[0])
            before = self._reached.get(key)
            is_next = before is not None and before.next_index == first
            self._scans[key] = LifeScan(first, before.inherited if before is not None and is_next else NOTHING)
            life = self._lives[key] = Reached(*key, first, first)
        try:
            self._scans[key].take(rows)
        except ValueError as error:  # a row that its kind does not allow
            self._scans[key].suspect("unreadable", str(error))
        life.rows += len(rows)
        life.first_index = min(life.first_index, int(np.min(index)))
        life.next_index = max(life.next_index, int(np.max(index)) + 1)
        life.listed = sorted(_listed(rows).union(life.listed))

    def _end(self, key: LifeId, scan: LifeScan) -> None:
        life, before = self._lives[key], self._reached.get(key)
        life.view, life.members, life.order, life.time_ns = scan.bequest
        life.ended = scan.ended
        if before is None or before.next_index <= life.next_index:
            self._reached[key] = life

    def _quarantine(self) -> None:
        """Keep what cannot be used, and let every run that it may belong to be doubted."""
        import pyarrow

        groups = {key.run: key.group for key in self._lives}
        facts = []
        for row in self._bad:
            run = row["run"] or NOT_KNOWN
            who = member_name(row["member"], row["incarnation"] or 0) if row["member"] else place(self._todo.path).name
            group = row["group"] or groups.get(run, NOT_KNOWN)
            protocol = NOT_KNOWN if group == NOT_KNOWN else None
            facts.append(
                Fact(run, group, protocol, who, "suspect", suspicion="unreadable", rows=0, reason=row["problem"])
            )
        self._files.facts(dict.fromkeys(facts), self._todo.key)
        rows = [{**row, "run": row["run"] or NOT_KNOWN, "segment": self._todo.key} for row in self._bad]
        self._files.quarantine(pyarrow.Table.from_pylist(rows, self._files.schemas["quarantine"]))


def _listed(rows: pyarrow.Table) -> set[str]:
    import pyarrow.compute as pc

    views = rows.filter(pc.equal(rows.column("kind"), VIEW))
    return {who for members in views.column("members").to_pylist() for who in members or ()}
