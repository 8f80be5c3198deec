"""The ledger: which segments are in, how far each of them, and what every run still waits for.

The table `segments` is a log: one row is one act on one segment. A process reads it once when it starts,
and then knows what it commits itself. So a look at the watched folder costs what is listed there,
and what is new; nothing that is in is read again.

What is known lies in a private SQLite database on the local disk, with a cache of fixed size: the
memory of the driver does not grow with segments or runs. The database has no name and no second
user. It is gone with the process, however that ends, and is made again from the tables.
"""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from unisono.pipeline.bronze import life_of
from unisono.pipeline.data_files import ALL, Chosen, DataFile
from unisono.pipeline.lake import LakeTable
from unisono.pipeline.storage import FileEntry, Location, place
from unisono.pipeline.take_in import ADD, OPEN_BYTES_MAX, REMOVE, LedgerEntry, LifeId, Reached, Todo
from unisono.trace.sinks import OPEN

FORMS = (".parquet", ".jsonl", OPEN)
"""The endings of a segment's file, the best one first."""
CACHE_KB = 32_768
PAGE = 1_000
"""How many rows are in memory at once."""
WORST = ("FAIL", "UNKNOWN", "PASS")

_SCHEMA = """
create table segments (key text primary key, path text, is_open int, size_bytes int, modified_ns int, rows int,
    has_problems int, taken_in text) without rowid;
create table runs (run text primary key, first_batch int, last_batch int, rows int, waits_for text, problem text,
    copied text, state text) without rowid;
create table holds (run text, key text, primary key (run, key)) without rowid;
create index holds_by_key on holds (key);
create table judged (run text primary key, batch int, result text) without rowid;
create index judged_by_result on judged (result, run);
create table reached (stem text, life text, next_index int, body text, primary key (stem, life)) without rowid;
create table undone (key text primary key, batch int) without rowid;
create table lost (run text primary key, batch int) without rowid;
create table found (stem text, key text, form int, path text, size_bytes int, modified_ns int,
    primary key (stem, key)) without rowid;
create table to_replace (key text primary key) without rowid;
create table looked_at (key text primary key, size_bytes int) without rowid;
create table unreadable (key text primary key, why text) without rowid;
"""


def find_segments(watched: Location) -> Iterator[tuple[str, FileEntry]]:
    """The files of segments below a folder with their keys, in any order. A segment may be there in several forms."""
    for file in watched.files():
        form = _form(file.place)
        if form is not None:
            yield file.place.uri[len(watched.uri) :].lstrip("/").removesuffix(FORMS[form]), file


def _form(file: Location) -> int | None:
    return next((number for number in (2, 0, 1) if file.name.endswith(FORMS[number])), None)


class Known(NamedTuple):
    """What is in of one segment."""

    is_open: bool
    size_bytes: int
    modified_ns: int
    rows: int
    has_problems: bool


class LifeTodo(NamedTuple):
    """What one task does, in this order: the new segments of a life, and how far its rows go."""

    todos: list[Todo]
    reached: list[Reached]

    @property
    def size_bytes(self) -> int:
        return sum(todo.size_bytes - todo.done_bytes for todo in self.todos)


class Due(NamedTuple):
    """A run to judge."""

    run: str
    first_batch: int
    last_batch: int
    """The last batch that changed its rows."""
    rows: int
    segments: int
    problem: str | None
    """Something of it that could not be used."""
    copied: str | None
    """Rows that are there twice: no verdict on them is worth anything."""
    is_judged: bool
    """Whether it has a verdict, which a new one replaces."""


@dataclass
class RunState:
    """What the ledger says of one run."""

    first_batch: int
    last_batch: int
    problem: str | None = None
    copied: str | None = None
    lives: dict[LifeId, list[tuple[int, int, str]]] = field(default_factory=dict)
    """By life the stretches of its rows, as few as there are gaps, with the last segment of each."""
    ended: set[LifeId] = field(default_factory=set)
    listed: set[tuple[str, str]] = field(default_factory=set)
    """Group and name of every member that a view lists."""
    numbers: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By life, as files are named, the numbers of its segments, as ranges."""

    @classmethod
    def from_text(cls, text: str) -> RunState:
        said = json.loads(text)
        return cls(
            said["first_batch"],
            said["last_batch"],
            said["problem"],
            said["copied"],
            {LifeId(*life): [(first, end, key) for first, end, key in some] for life, some in said["lives"]},
            {LifeId(*life) for life in said["ended"]},
            {(group, who) for group, who in said["listed"]},
            {stem: [(first, end) for first, end in some] for stem, some in said["numbers"].items()},
        )

    def to_text(self) -> str:
        return json.dumps(
            {
                "first_batch": self.first_batch,
                "last_batch": self.last_batch,
                "problem": self.problem,
                "copied": self.copied,
                "lives": list(self.lives.items()),
                "ended": list(self.ended),
                "listed": list(self.listed),
                "numbers": self.numbers,
            }
        )

    @property
    def rows(self) -> int:
        return sum(end - first for stretches in self.lives.values() for first, end, _ in stretches)

    @property
    def waits_for(self) -> str | None:
        """Why the run is not finished; None: every life has ended and nothing is missing."""
        for stem, ranges in sorted(self.numbers.items()):
            if len(ranges) > 1 or ranges[0][0]:
                missing = 0 if ranges[0][0] else ranges[0][1]
                return f"segment {missing:06d} of {stem} is missing"
        there = {(life.group, _who(life)) for life in self.lives}
        if absent := sorted(self.listed - there):
            return f"there is no trace of {absent[0][1]}"
        if alive := sorted(_who(life) for life in self.lives if life not in self.ended):
            return f"the trace of {alive[0]} has no ending"
        return None if self.lives else "there is no life in it"

    def take(self, entry: LedgerEntry, run: str, batch: int) -> None:
        lives = [life for life in entry.lives if life.run == run]
        if entry.rows or entry.problems or entry.act != ADD:
            self.last_batch = batch
        if entry.problems and self.problem is None:
            self.problem = entry.problems[0]
        stem, _, number = entry.key.rpartition(".")
        if number.isdigit() and number.isascii():
            self.numbers[stem] = _with(self.numbers.get(stem, []), int(number))
        for life in lives:
            self._extend(life, entry.key)
            self.listed.update((life.group, who) for who in life.listed)
            if life.ended is not None:
                self.ended.add(life.key)

    def _extend(self, life: Reached, key: str) -> None:
        stretches = self.lives.setdefault(life.key, [])
        if not life.rows:
            return
        first, end = life.first_index, life.next_index
        for start, stop, other in stretches:
            if start < end and first < stop and self.copied is None:
                self.copied = (
                    f"{key} repeats rows of {life.who} that {other} already holds (from local_index {max(start, first)} "
                    "on): is it a copy? Take it out with `unisono pipeline remove --segment`."
                )
        joined: list[tuple[int, int, str]] = []
        for one in sorted([*stretches, (first, end, key)]):
            if joined and joined[-1][1] >= one[0]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], one[1]), one[2])
            else:
                joined.append(one)
        self.lives[life.key] = joined


class SegmentLedger:
    """All that is known of segments and runs. Only the process that writes to the tables has one."""

    def __init__(self, segments: LakeTable, verdicts: LakeTable | None = None) -> None:
        self._table = segments
        self._base = sqlite3.connect("", isolation_level=None)
        self._base.execute(f"pragma cache_size = -{CACHE_KB}")
        self._base.execute("pragma journal_mode = off")  # there are no rollbacks and no other readers
        self._base.executescript(_SCHEMA)
        with self._changing():
            self._load()
            for run, result, batch in _verdicts_in(verdicts) if verdicts is not None else ():
                self._note(run, result, batch)

    def close(self) -> None:
        self._base.close()

    # What was committed.

    def take(self, entries: Sequence[LedgerEntry], batch: int) -> None:
        """What was committed as a batch."""
        undone = {run for entry in entries if entry.act != ADD for run in entry.runs}
        with self._changing():
            for entry in entries:
                self._know(entry, None)
            self._add(((batch, entry) for entry in entries if undone.isdisjoint(entry.runs)), None)
            if undone:
                self._rebuild(undone, batch)

    def judged(self, results: Iterable[tuple[str, str, int]]) -> None:
        """Verdicts that were committed: of each group of a run, the run, its result, and the last batch it knows."""
        told = list(results)
        with self._changing():
            self._base.executemany("delete from judged where run = ?", {(run,) for run, _, _ in told})
            for run, result, batch in told:
                self._note(run, result, batch)

    # What there is to take in.

    def see(self, files: Iterable[tuple[str, FileEntry]]) -> None:
        """What the watched folder holds now; of two forms of a segment, the finished one counts."""
        with self._changing():
            self._base.execute("delete from found")
            for key, file in files:
                self._base.execute(
                    "insert into found values (?, ?, ?, ?, ?, ?) on conflict (stem, key) do update set form = "
                    "excluded.form, path = excluded.path, size_bytes = excluded.size_bytes, modified_ns = "
                    "excluded.modified_ns where excluded.form < form",
                    (_stem(key), key, _form(file.place) or 0, file.place.uri, file.size_bytes, file.modified_ns),
                )

    def todo(self, final: bool = False) -> Iterator[LifeTodo]:
        """What is new of what was seen, life by life."""
        stem, life = "", LifeTodo([], [])
        for its, todo in self._todos(final):
            if its != stem and life.todos:
                yield life
            if its != stem:
                stem, life = its, LifeTodo([], list(self._reached(its)))
            life.todos.append(todo)
        if life.todos:
            yield life

    def changed(self, key: str) -> None:
        """A segment does not hold what was taken in of it: next time it is replaced."""
        self._base.execute("insert or ignore into to_replace values (?)", (key,))

    def looked_at(self, key: str, size_bytes: int) -> None:
        """A growing segment of this size had nothing new."""
        self._base.execute("insert or replace into looked_at values (?, ?)", (key, size_bytes))

    def unreadable(self, key: str, why: str) -> None:
        """A segment cannot be read in this look."""
        self._base.execute("insert or replace into unreadable values (?, ?)", (key, why))

    def begin_look(self) -> None:
        """What could not be read before is tried again."""
        self._base.execute("delete from unreadable")

    # Asking.

    @property
    def segments(self) -> int:
        """How many segments are known."""
        return self._count("select count(*) from segments")

    def known(self) -> Iterator[tuple[str, Known]]:
        query = "select key, is_open, size_bytes, modified_ns, rows, has_problems from segments where key > ?"
        for key, is_open, size_bytes, modified_ns, rows, bad in self._pages(query, "key"):
            yield key, Known(bool(is_open), size_bytes, modified_ns, rows, bool(bad))

    def states(self) -> Iterator[tuple[str, RunState]]:
        for run, text in self._pages("select run, state from runs where run > ?", "run"):
            yield run, RunState.from_text(text)

    def due(self, final: bool = False) -> Iterator[Due]:
        """Runs that have changed since they were judged, if ever, and have ended; `final`: or have not."""
        return self._changed("" if final else "and waits_for is null")

    def still_open(self) -> Iterator[Due]:
        """Runs that have changed since they were judged, and have not ended."""
        return self._changed("and waits_for is not null")

    def waiting(self) -> Iterator[tuple[str, str]]:
        """Runs without a verdict, and what each waits for."""
        query = (
            "select run, waits_for from runs where waits_for is not null and run not in (select run from judged) "
            "and run > ?"
        )
        yield from self._pages(query, "run")

    def count_waiting(self) -> int:
        return self._count(
            "select count(*) from runs where waits_for is not null and run not in (select run from judged)"
        )

    def results(self, most: int) -> dict[str, str]:
        """The results of the first runs, those that do not pass before the others."""
        found: dict[str, str] = {}
        for result in WORST:
            query = "select run, result from judged where result = ? order by run limit ?"
            found |= dict(self._base.execute(query, (result, most - len(found))))
        return dict(sorted(found.items()))

    def count_results(self) -> dict[str, int]:
        return dict(self._base.execute("select result, count(*) from judged group by result"))

    def count_unusable(self) -> int:
        """How many finished segments hold nothing that can be used."""
        return self._count("select count(*) from segments where has_problems and not rows and not is_open")

    def unread(self, most: int) -> dict[str, str]:
        return dict(self._base.execute("select key, why from unreadable order by key limit ?", (most,)))

    def is_judged(self, run: str) -> bool:
        return bool(self._count("select count(*) from judged where run = ?", run))

    def is_retired(self, run: str) -> bool:
        """Whether a run has a verdict, and no rows any more."""
        return self.is_judged(run) and not self._count("select count(*) from holds where run = ?", run)

    def segment(self, key: str) -> LedgerEntry | None:
        """A segment with rows in the tables, as an act that takes it out."""
        row = self._base.execute("select path, size_bytes, modified_ns from segments where key = ?", (key,)).fetchone()
        runs = self.runs_of([key])[key]
        if row is None or not runs:
            return None
        path, size_bytes, modified_ns = row
        return LedgerEntry(key, REMOVE, path, size_bytes, modified_ns, 0, runs, [], [])

    def segments_of(self, run: str) -> Iterator[LedgerEntry]:
        for (key,) in self._pages("select key from holds where run = :run and key > ?", "key", run=run):
            if (entry := self.segment(key)) is not None:
                yield entry

    def old_segments(self, before: datetime) -> Iterator[LedgerEntry]:
        """Segments all of whose runs were judged and got nothing since then."""
        query = """
            select distinct key from holds where key > ? and not exists (
                select 1 from holds mine where mine.key = holds.key and (
                    mine.run not in (select run from judged) or exists (
                        select 1 from holds other join segments on segments.key = other.key
                        where other.run = mine.run and segments.taken_in > :before)))
        """
        for (key,) in self._pages(query, "key", before=before.isoformat()):
            if (entry := self.segment(key)) is not None:
                yield entry

    def runs_of(self, keys: Iterable[str]) -> dict[str, list[str]]:
        """By segment, the runs that it holds rows of."""
        query = "select run from holds where key = ? order by run"
        return {key: [run for (run,) in self._base.execute(query, (key,))] for key in keys}

    def _changed(self, condition: str) -> Iterator[Due]:
        query = f"""
            select runs.run, first_batch, last_batch, rows,
                (select count(*) from holds where holds.run = runs.run), problem, copied, judged.run is not null
            from runs left join judged using (run)
            where last_batch > coalesce(judged.batch, 0) {condition} and runs.run > ?
        """
        for run, first, last, rows, segments, problem, copied, is_judged in self._pages(query, "runs.run"):
            yield Due(run, first, last, rows, segments, problem, copied, bool(is_judged))

    def _count(self, query: str, *values: str) -> int:
        return int(self._base.execute(query, values).fetchone()[0])

    def _pages(self, query: str, column: str, **named: str) -> Iterator[tuple[Any, ...]]:
        """Rows by page in the order of their first column: what is read may be changed between two pages."""
        last = ""
        query = f"{query.replace('?', ':last')} order by {column} limit {PAGE}"
        while True:
            page = self._base.execute(query, {**named, "last": last}).fetchall()
            yield from page
            if len(page) < PAGE:
                return
            last = page[-1][0]

    # Inside.

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Many changes as one, which is quicker."""
        self._base.execute("begin")
        try:
            yield
        finally:
            self._base.execute("commit")

    def _todos(self, final: bool) -> Iterator[tuple[str, Todo]]:
        query = f"""
            select stem, key, form, found.path, found.size_bytes, found.modified_ns, key in to_replace,
                (select size_bytes from looked_at where looked_at.key = found.key),
                segments.is_open, segments.size_bytes, segments.modified_ns, segments.rows, has_problems
            from found left join segments using (key)
            where (stem, key) > (?, ?) and key not in (select key from unreadable)
                and (segments.key is null or segments.is_open or key in to_replace
                    or (found.size_bytes, found.modified_ns) != (segments.size_bytes, segments.modified_ns))
            order by stem, key limit {PAGE}
        """
        last = ("", "")
        while True:
            page = self._base.execute(query, last).fetchall()
            for stem, key, form, path, size_bytes, modified_ns, must_replace, looked_at, *known in page:
                new = Todo(key, path, size_bytes, modified_ns, replaces=bool(must_replace), is_final=final)
                in_already = None if known[0] is None else Known(*known)
                if (todo := _todo(new, FORMS[form] == OPEN, in_already, looked_at)) is not None:
                    yield stem, todo
            if len(page) < PAGE:
                return
            last = page[-1][:2]

    def _reached(self, stem: str) -> Iterator[Reached]:
        for (body,) in self._base.execute("select body from reached where stem = ? order by life", (stem,)):
            yield Reached(**json.loads(body))

    def _load(self, wanted: frozenset[str] | None = None, chosen: Chosen = ALL) -> None:
        """Take the log's rows, but for those that later ones undo; `wanted`: of these runs alone."""
        self._base.execute("delete from undone")
        self._base.execute("delete from lost")
        for row in _rows(self._table, chosen, undoing=True):
            if wanted is None or not wanted.isdisjoint(row["runs"]):
                self._base.execute("insert or replace into undone values (?, ?)", (row["key"], row["batch"]))
                for run in row["runs"] if wanted is None else wanted.intersection(row["runs"]):
                    self._base.execute("insert or replace into lost values (?, ?)", (run, row["batch"]))
        self._add(self._standing(wanted, chosen), wanted)
        self._base.execute(
            "update runs set last_batch = max(last_batch, (select batch from lost where lost.run = runs.run)) "
            "where run in (select run from lost)"
        )

    def _standing(self, wanted: frozenset[str] | None, chosen: Chosen) -> Iterator[tuple[int, LedgerEntry]]:
        """The log without what later rows undo."""
        undone = "select batch from undone where key = ?"
        for row in _rows(self._table, chosen):
            if wanted is not None and wanted.isdisjoint(row["runs"]):
                continue
            later = self._base.execute(undone, (row["key"],)).fetchone()
            if later is None or row["batch"] >= later[0]:
                entry = LedgerEntry.from_row(row)
                if wanted is None:
                    self._know(entry, row["taken_in"])
                yield row["batch"], entry

    def _know(self, entry: LedgerEntry, taken_in: datetime | None) -> None:
        """Note what is in of a segment, and how far its lives go."""
        about = {
            "key": entry.key,
            "path": entry.path,
            "is_open": entry.path.endswith(OPEN),
            "size_bytes": entry.size_bytes,
            "modified_ns": entry.modified_ns,
            "rows": entry.rows,
            "bad": bool(entry.problems),
            "taken_in": (taken_in or datetime.now(UTC)).isoformat(),
            "adds": entry.act == ADD,
        }
        self._base.execute(
            "insert into segments values (:key, :path, :is_open, :size_bytes, :modified_ns, :rows, :bad, :taken_in) "
            "on conflict (key) do update set path = :path, is_open = :is_open, size_bytes = :size_bytes, modified_ns = "
            ":modified_ns, rows = :rows + :adds * rows, has_problems = :bad or (:adds and has_problems), "
            "taken_in = :taken_in",
            about,
        )
        self._base.execute("delete from to_replace where key = ?", (entry.key,))
        self._base.execute("delete from looked_at where key = ?", (entry.key,))
        stem = _stem(entry.key)
        for life in entry.lives:
            name = json.dumps(life.key)
            if life.ended is not None:
                self._base.execute("delete from reached where stem = ? and life = ?", (stem, name))
            else:
                self._base.execute(
                    "insert into reached values (?, ?, ?, ?) on conflict (stem, life) do update set next_index = "
                    "excluded.next_index, body = excluded.body where next_index <= excluded.next_index",
                    (stem, name, life.next_index, json.dumps(asdict(life))),
                )

    def _add(self, acts: Iterable[tuple[int, LedgerEntry]], wanted: frozenset[str] | None) -> None:
        """Add acts to the states of their runs; `wanted`: of these alone, the others know it already."""
        states: dict[str, RunState] = {}
        for batch, entry in acts:
            held = {life.run for life in entry.lives}
            for run in entry.runs if wanted is None else wanted.intersection(entry.runs):
                if run in held or entry.problems:  # and not only a run that has lost something
                    state = states.get(run) or self.state(run) or RunState(batch, batch)
                    state.take(entry, run, batch)
                    states[run] = state
                    self._base.execute("insert or ignore into holds values (?, ?)", (run, entry.key))
            if len(states) >= PAGE:
                self._keep(states)
        self._keep(states)

    def state(self, run: str) -> RunState | None:
        """What is known of one run."""
        row = self._base.execute("select state from runs where run = ?", (run,)).fetchone()
        return None if row is None else RunState.from_text(row[0])

    def _keep(self, states: dict[str, RunState]) -> None:
        rows = (
            (run, one.first_batch, one.last_batch, one.rows, one.waits_for, one.problem, one.copied, one.to_text())
            for run, one in states.items()
        )
        self._base.executemany("insert or replace into runs values (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        states.clear()

    def _rebuild(self, runs: set[str], batch: int) -> None:
        """Read the log again for runs of which something was taken out, which is rare."""
        first = batch
        for run in runs:
            if (state := self.state(run)) is not None:
                first = min(first, state.first_batch)
            self._base.execute("delete from runs where run = ?", (run,))
            self._base.execute("delete from holds where run = ?", (run,))
        self._load(frozenset(runs), Chosen(after=first - 1))

    def _note(self, run: str, result: str, batch: int) -> None:
        """A run has the worst of the results of its groups."""
        row = self._base.execute("select batch, result from judged where run = ?", (run,)).fetchone()
        if row is not None:
            batch, result = max(batch, row[0]), min(result, row[1], key=_badness)
        self._base.execute("insert or replace into judged values (?, ?, ?)", (run, batch, result))


def _todo(new: Todo, is_open: bool, known: Known | None, looked_at: int | None) -> Todo | None:
    """What is to do for a segment that was seen; None: nothing."""
    if new.replaces:
        return new
    if is_open and not new.is_final and looked_at == new.size_bytes:
        return None
    if known is None:
        return new
    if is_open:
        if not known.is_open or new.size_bytes == known.size_bytes:
            return None  # its finished twin is in, or there is nothing new
        # A line that could not be used may have been torn, and be whole now. A replacement reads one part at the most, so
        # of a larger segment it would never see the end, and be due again and again.
        may_heal = known.has_problems and new.size_bytes <= OPEN_BYTES_MAX
        if new.size_bytes < known.size_bytes or may_heal:
            return replace(new, replaces=True)
        return replace(new, done_bytes=known.size_bytes)
    if known.is_open:
        is_unusable = known.has_problems or not known.rows
        return replace(new, replaces=True) if is_unusable else replace(new, done_rows=known.rows)
    return replace(new, replaces=True)  # another size or time than what is in


def _rows(table: LakeTable, chosen: Chosen = ALL, undoing: bool = False) -> Iterator[dict[str, Any]]:
    """The log in the order of its batches; `undoing`: only acts that take out what was there."""
    for files in _overlapping(table.files(chosen)):
        yield from heapq.merge(
            *(_rows_of(table, file, chosen, undoing) for file in files), key=lambda row: row["batch"]
        )


def _rows_of(table: LakeTable, file: DataFile, chosen: Chosen, undoing: bool) -> Iterator[dict[str, Any]]:
    import pyarrow.compute as pc

    for part in table.parts([file], chosen):
        rows = part.filter(pc.not_equal(part.column("act"), ADD)) if undoing else part
        for start in range(0, len(rows), PAGE):
            for row in rows.slice(start, PAGE).to_pylist():
                yield {**row, "runs": row["runs"] or (), "problems": row["problems"] or []}


def _overlapping(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Files in the order of their batches; those that share some, together."""
    some: list[DataFile] = []
    end = 0
    for low, high, file in sorted((file.low.get("batch", 0), file.high.get("batch", 1 << 62), file) for file in files):
        if some and low > end:
            yield some
            some, end = [], 0
        some.append(file)
        end = max(end, high)
    if some:
        yield some


def _verdicts_in(verdicts: LakeTable) -> Iterator[tuple[str, str, int]]:
    for part in verdicts.parts(verdicts.files()):
        for row in part.select(["run", "result", "batch"]).to_pylist():
            yield row["run"], row["result"], row["batch"]


def _badness(result: str) -> int:
    return WORST.index(result) if result in WORST else 1


def _with(ranges: list[tuple[int, int]], number: int) -> list[tuple[int, int]]:
    """A number added to ranges, as few as there are gaps."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted([*ranges, (number, number + 1)]):
        if joined and joined[-1][1] >= first:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((first, end))
    return joined


def _stem(key: str) -> str:
    """The life that a segment's name tells of, else the segment itself."""
    folder, _, name = key.rpartition("/")
    life = life_of(place("/") / f"{name}.parquet")
    return f"{folder}/{life}" if life is not None else key


def _who(life: LifeId) -> str:
    return Reached(*life, 0, 0).who
