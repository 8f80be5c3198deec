"""Segments on their way into silver, one by one: each exactly once, whatever is killed, tried again or tried twice.

A folder of tables that grows has, beside what `gold` describes:

| path                                   | what it is                                                                |
|----------------------------------------|---------------------------------------------------------------------------|
| ``events/run=<run>/part-<id>.parquet``     | the usable rows of one segment                                            |
| ``quarantine/run=<run>/part-<id>.parquet`` | its rows that cannot be used, with the reason                             |
| ``_segments/<id>.json``                | the ledger: this segment is in, and what it says of its lives             |

The id comes from the segment's place below the watched folder, without the ending that tells its form. Whoever takes a segment in
writes the same bytes to the same names, puts them there by renames, and makes the entry in the ledger last. So a task that is
killed and tried again, or tried by two workers at once, changes nothing, and **a segment is in if the ledger says so**: there is no
other memory of it.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.pipeline.bronze import read_now
from unisono.pipeline.gold import NO_RUN, escape
from unisono.trace.files import read_json, write_whole
from unisono.trace.plain import json_text
from unisono.trace.schema import ENDINGS, member_name
from unisono.trace.sinks import OPEN

if TYPE_CHECKING:
    import pyarrow

FORMS = (".parquet", ".jsonl", OPEN)
"""The endings of a segment's file, the best one first."""


@dataclass(frozen=True)
class Entry:
    """What the ledger says of one segment."""

    key: str
    path: str
    runs: Mapping[str, Mapping[str, Any]]
    """By run: `lives`, by name whether the life ends in this segment; `listed`, who is a member of a view in it."""
    rows: int
    problems: tuple[str, ...]
    """What could not be used, the first few."""
    size_bytes: int | None = None
    """Of the file as it was read; None: an older program did not say."""

    @property
    def is_open(self) -> bool:
        return self.path.endswith(OPEN)


def find_segments(watched: Path, with_open: bool = False) -> dict[str, Path]:
    """The segments below a folder by key; of one that is there in two forms, the finished one."""
    found: dict[str, Path] = {}
    for folder, _, names in os.walk(watched):
        for name in names:
            form = next((form for form in reversed(FORMS) if name.endswith(form)), None)
            if form is None or (form == OPEN and not with_open):
                continue
            path = Path(folder, name)
            key = str(path.relative_to(watched)).removesuffix(form)
            if key not in found or FORMS.index(form) < _form(found[key]):
                found[key] = path
    return dict(sorted(found.items()))


def read_ledger(silver: Path) -> dict[str, Entry]:
    """All segments that are in."""
    entries = {}
    for path in sorted((silver / "_segments").glob("*.json")):
        entry = _load(path)
        entries[entry.key] = entry
    return dict(sorted(entries.items()))


def missing(found: Mapping[str, Path], ledger: Mapping[str, Entry]) -> dict[str, Path]:
    """The segments that are not in yet, or only as they were while they were being written or copied."""
    return {key: path for key, path in found.items() if key not in ledger or _has_changed(path, ledger[key])}


def _has_changed(path: Path, entry: Entry) -> bool:
    if entry.is_open and not path.name.endswith(OPEN):
        return True
    try:
        return entry.size_bytes is not None and path.stat().st_size != entry.size_bytes
    except OSError:  # it was taken away, and stays what it was
        return False


class Unreadable(Exception):
    """A segment cannot be read just now."""


def take_in(path: Path, key: str, silver: Path) -> Entry:
    """Bring one segment into silver. This is what a worker does. Raises `Unreadable`, and then has changed nothing."""
    name = segment_id(key)
    marker = silver / "_segments" / f"{name}.json"
    before = _load(marker) if marker.exists() else None
    size_bytes = _size(path)  # before it is read: one that grows meanwhile is read again
    temporary = f".{name}.{uuid.uuid4().hex}.tmp"
    content = _Content(silver, temporary)
    try:
        for batch in _read(path):
            content.take(batch)
        places = content.finish(f"part-{name}.parquet")
    except BaseException:
        content.discard()
        raise
    if before is not None:  # it was taken in while it was being written, and may have held what it no longer holds
        for run in before.runs:
            for table in ("events", "quarantine"):
                place = silver / table / f"run={escape(run)}" / f"part-{name}.parquet"
                if place not in places:
                    place.unlink(missing_ok=True)
    entry = Entry(key, str(path), content.runs, content.rows, tuple(content.problems[:5]), size_bytes)
    text = asdict(entry)
    write_whole(marker, json_text(text, indent=1))
    return entry


def sweep(silver: Path) -> None:
    """Remove what killed workers have left half-written. For whoever holds the lock."""
    for path in (*silver.glob("*/run=*/.*.tmp"), *silver.glob("_segments/.*.tmp")):
        path.unlink(missing_ok=True)


def segment_id(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


@dataclass
class RunState:
    """What the ledger says of one run."""

    entries: list[Entry] = field(default_factory=list)
    waits_for: str | None = None
    """Why the run is not finished; None: every life has ended and nothing is missing."""

    @property
    def digest(self) -> str:
        """Changes whenever the run gets another segment, or one in another form."""
        text = "\n".join(f"{entry.key} {entry.is_open} {entry.rows} {entry.size_bytes}" for entry in self.entries)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def run_states(ledger: Iterable[Entry], still_open: Iterable[str] = ()) -> dict[str, RunState]:
    """Every run with its segments. `still_open`: keys of segments that are being written."""
    states: dict[str, RunState] = {}
    for entry in ledger:
        for run in entry.runs:
            states.setdefault(run, RunState()).entries.append(entry)
    unfinished = {key.rpartition("/")[2].rsplit(".", 1)[0]: key for key in still_open}
    for run, state in states.items():
        state.waits_for = _waits_for(run, state.entries, unfinished)
    return dict(sorted(states.items()))


def _waits_for(run: str, entries: Sequence[Entry], unfinished: Mapping[str, str]) -> str | None:
    ended: dict[str, bool] = {}
    listed: set[str] = set()
    numbers: dict[str, list[int]] = {}
    for entry in entries:
        facts = entry.runs[run]
        for who, ends in facts["lives"].items():
            ended[who] = ended.get(who, False) or ends
        listed.update(facts["listed"])
        stem, _, number = entry.key.rpartition(".")
        if number.isdigit():
            numbers.setdefault(stem, []).append(int(number))
    for stem, some in numbers.items():
        if stem.rpartition("/")[2] in unfinished:
            return f"{unfinished[stem.rpartition('/')[2]]} is still being written"
        if len(some) <= max(some):
            return f"segment {min(set(range(max(some))) - set(some)):06d} of {stem} is missing"
    if absent := sorted(listed - ended.keys()):
        return f"there is no trace of {absent[0]}"
    if alive := sorted(who for who, ends in ended.items() if not ends):
        return f"the trace of {alive[0]} has no ending"
    return None if ended else "there is no life in it"


# Inside.


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error}") from error


def _read(path: Path) -> Iterator[pyarrow.RecordBatch]:
    try:
        yield from read_now(path)
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error}") from error


def _form(path: Path) -> int:
    return next(number for number, form in reversed(list(enumerate(FORMS))) if path.name.endswith(form))


def _load(path: Path) -> Entry:
    said = read_json(path)
    return Entry(said["key"], said["path"], said["runs"], said["rows"], tuple(said["problems"]), said.get("size_bytes"))


class _Content:
    """A segment's rows, sorted out by run and by whether they can be used, on their way to files."""

    def __init__(self, silver: Path, temporary: str) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.rows = 0
        self.problems: list[str] = []
        self._silver, self._temporary = silver, temporary
        self._writers: dict[tuple[str, str], tuple[Path, Any]] = {}

    def take(self, batch: pyarrow.RecordBatch) -> None:
        import pyarrow
        import pyarrow.compute as pc

        table = pyarrow.Table.from_batches([batch])
        table = table.set_column(0, "run", pc.fill_null(table.column("run"), NO_RUN))
        for run in table.column("run").unique().to_pylist():
            some = table.filter(pc.equal(table.column("run"), run)).drop_columns("run")
            usable = some.filter(pc.is_null(some.column("problem")))
            bad = some.filter(pc.is_valid(some.column("problem")))
            facts = self.runs.setdefault(run, {"lives": {}, "listed": []})
            if len(usable):
                self.rows += len(usable)
                self._note(facts, usable)
                self._write("events", run, usable.drop_columns(["file", "problem"]))
            if len(bad):
                self.problems += bad.column("problem").to_pylist()
                columns = ["group", "member", "incarnation", "local_index", "file", "problem"]
                self._write("quarantine", run, bad.select(columns))

    def finish(self, name: str) -> list[Path]:
        """Close the files and give them their names; quarantine first, so that no usable row is there without the bad ones."""
        for _, writer in self._writers.values():
            writer.close()
        places = []
        for (_, _), (path, _) in sorted(self._writers.items(), reverse=True):
            os.replace(path, path.with_name(name))
            places.append(path.with_name(name))
        return places

    def discard(self) -> None:
        for path, writer in self._writers.values():
            writer.close()
            path.unlink(missing_ok=True)

    def _write(self, table: str, run: str, rows: Any) -> None:
        import pyarrow.parquet

        if (table, run) not in self._writers:
            folder = self._silver / table / f"run={escape(run)}"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / self._temporary
            self._writers[table, run] = path, pyarrow.parquet.ParquetWriter(path, rows.schema, compression="zstd")
        self._writers[table, run][1].write_table(rows)

    def _note(self, facts: dict[str, Any], rows: Any) -> None:
        import pyarrow
        import pyarrow.compute as pc

        lives = rows.group_by(["member", "incarnation"], use_threads=False).aggregate([("kind", "distinct")])
        for row in lives.to_pylist():
            who = member_name(row["member"], row["incarnation"])
            ends = bool(ENDINGS & set(row["kind_distinct"]))
            facts["lives"][who] = facts["lives"].get(who, False) or ends
        views = rows.filter(pc.equal(rows.column("kind"), pyarrow.scalar("VIEW")))
        listed = {who for members in views.column("members").to_pylist() for who in members or ()}
        facts["listed"] = sorted(listed.union(facts["listed"]))


def take_in_all(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """For `mapInArrow`: path, key and folder in; key out, and why the segment could not be read, if so."""
    import pyarrow

    for batch in batches:
        keys: list[str] = []
        whys: list[str | None] = []
        for row in batch.to_pylist():
            keys.append(row["key"])
            try:
                take_in(Path(row["path"]), row["key"], Path(row["silver"]))
                whys.append(None)
            except Unreadable as error:
                whys.append(str(error))
        arrays = [pyarrow.array(keys, pyarrow.string()), pyarrow.array(whys, pyarrow.string())]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=["key", "unreadable"])
