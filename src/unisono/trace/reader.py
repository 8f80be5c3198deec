"""Reads traces back: folders with all below them, or files, Parquet and JSON lines, finished and open segments.

What a crash leaves behind is tolerated and reported: a torn last line of an open segment (a gap), and an open segment
whose finished twin exists and holds its rows. Everything else that is wrong is a `TraceError` that names file and line, or,
for a judge, a `Problem`, as a torn line is then, too: what it concerns cannot pass, and the rest is judged. The order of rows
in files says nothing: a life's rows come in the order of their local indices.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from unisono.trace.files import lines_of, open_regular, read_private
from unisono.trace.lockfile import is_held
from unisono.trace.parquet import can_write_parquet, read_parquet
from unisono.trace.schema import (
    CRASH,
    ENDINGS,
    BadRow,
    Event,
    TraceError,
    from_line,
    member_name,
    to_line,
)
from unisono.trace.sinks import GAP, LIFE, OPEN, base_of, finish_segment, segment_name, stem_of

DELTA_LOG = "_delta_log"
"""The folder of a Delta table's commits. Its checkpoints are Parquet files, but no data."""


class LifeKey(NamedTuple):
    """Whose rows: one life of a member in one run."""

    run: str
    member: str
    incarnation: int


class Segment(NamedTuple):
    """One file of a trace."""

    path: Path
    rows: list[Event]
    torn: bool


class Problem(NamedTuple):
    """An unusable row or file, with the run and member that it belongs to, if known."""

    run: str | None
    who: str | None
    text: str


@dataclass
class Trace:
    """What was read: every life's rows in their order, and what a person should know about how they were found."""

    lives: dict[LifeKey, list[Event]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: dict[str, set[Path]] = field(default_factory=dict)
    """By run: the files that hold rows of it."""
    problems: list[Problem] = field(default_factory=list)

    @property
    def troubled(self) -> dict[str, dict[str, str]]:
        """By run and member: the first problem with its rows."""
        troubled: dict[str, dict[str, str]] = {}
        for run, who, text in self.problems:
            if run is not None and who is not None:
                troubled.setdefault(run, {}).setdefault(who, text)
        return troubled

    @property
    def runs(self) -> list[str]:
        return sorted({life.run for life in self.lives})

    def members(self, run: str) -> dict[LifeKey, list[Event]]:
        return {life: rows for life, rows in self.lives.items() if life.run == run}

    def events(self, run: str | None = None) -> Iterator[Event]:
        """All rows, life after life."""
        return chain.from_iterable(rows for life, rows in self.lives.items() if run is None or life.run == run)


Source = str | os.PathLike[str]


def read(source: Source | Iterable[Source], *, tolerant: bool = False) -> Trace:
    """Read a trace. Lives are in order of run, member and incarnation, independent of file names.

    `tolerant`: what is wrong with a row or a file is one of the trace's `problems` instead of a `TraceError`.
    """
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    trace = Trace()
    lives: dict[LifeKey, list[Event]] = {}
    paths, spare = segment_files(sources, trace.notes)
    _refuse_copies(paths)
    for path, twin in spare:
        if holds_all(twin, path):
            trace.notes.append(left_out(str(path), twin.name))
        elif tolerant:
            trace.problems.append(_placed(BadRow(differs(str(path), twin.name)), path))
        else:
            raise TraceError(differs(str(path), twin.name))
    for path in paths:
        segment = read_segment(path, trace.problems if tolerant else None)
        if segment.torn and tolerant:
            trace.problems.append(_placed(BadRow(torn_line(str(path))), path))
        elif segment.torn:
            trace.notes.append(torn_line(str(path)))
        for row in segment.rows:
            life = LifeKey(row.run, row.member, row.incarnation)
            lives.setdefault(life, []).append(row)
            trace.files.setdefault(life.run, set()).add(path)
    for life in sorted(lives):
        trace.lives[life] = sorted(lives[life], key=lambda row: (row.local_index, row.time_ns))
    return trace


def read_segment(path: Path, problems: list[Problem] | None = None) -> Segment:
    """Read one file. Only the last line of an open segment may be torn.

    What cannot be used is added to `problems`; without such a list it is a `TraceError`.
    """
    rows: list[Event] = []
    torn = False
    try:
        if path.name.endswith(".parquet"):
            found = read_parquet(path)
        else:
            found = _read_lines(path)
        for row in found:
            if isinstance(row, Event):
                rows.append(row)
            elif row.text == TORN:
                torn = True
            elif problems is None:
                raise TraceError(row.text)
            else:
                problems.append(_placed(row, path))
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror or error}."
        if problems is None:
            raise TraceError(text) from error
        problems.append(_placed(BadRow(text), path))
    except TraceError as error:
        if problems is None:
            raise
        problems.append(_placed(BadRow(str(error)), path))
    return Segment(path, rows, torn)


TORN = "torn"


def _placed(row: BadRow, path: Path) -> Problem:
    """Attribute a bad row: to the run and member that it names, else to those that its file's name says."""
    if row.run is not None and row.member is not None:
        return Problem(row.run, member_name(row.member, row.incarnation), row.text)
    name = segment_name(path.name)
    if name is None:
        return Problem(None, None, row.text)
    return Problem(name.run, member_name(name.member, name.incarnation), row.text)


def torn_line(path: str) -> str:
    """The note about a segment that ends in the middle of a line, or the problem that it is for a judge."""
    return f"{path}: the last line is torn; its row is missing."


def _read_lines(path: Path) -> Iterator[Event | BadRow]:
    """The rows of JSON lines; for an unusable line, the reason."""
    with open_regular(path) as file:
        for number, line in enumerate(lines_of(file), 1):
            where = f"{path}, line {number}"
            if not line.endswith(b"\n"):
                is_open = path.name.endswith(OPEN)
                yield BadRow(TORN if is_open else f"{where}: the file ends in the middle of a line.")
                return
            try:
                yield from_line(line[:-1].decode("utf-8"), where)
            except UnicodeDecodeError:
                yield BadRow(f"{where}: this is not UTF-8.")
            except TraceError as error:
                yield BadRow(str(error))


def close_killed(
    source: Source,
    run: str | None = None,
    member: str | None = None,
    incarnation: int | None = None,
    *,
    reason: str = "killed",
    power_cut: bool = False,
    notes: list[str] | None = None,
) -> list[LifeKey]:
    """Append CRASH to the lives in a folder that have no ending, or to the named ones alone; return these lives.

    For processes that were killed: they cannot write it themselves. The row takes the time of the life's last one. One local
    index is left out where rows are missing behind the last one, so that this stays visible as a gap: its line is torn, or
    the process reported that it could not write them, or, with `power_cut`, that is unknown.

    Traces that are still being written are left alone, and named in `notes`.
    """
    folder = Path(source)
    alive = _held_in(folder)
    trace = read(folder)
    alive |= _held_in(folder)  # who ended meanwhile may have written it after it was read, and who began is alive
    closed = []
    for life, rows in trace.lives.items():
        wanted = run in (None, life.run) and member in (None, life.member)
        if not wanted or incarnation not in (None, life.incarnation) or any(row.kind in ENDINGS for row in rows):
            continue
        if stem_of(*life) in alive:
            if notes is not None:
                notes.append(
                    f"{life.run}: {member_name(life.member, life.incarnation)} is left as it is, because its process is "
                    "alive: end it first."
                )
            continue
        _append_crash(folder, life, rows[-1], reason, power_cut)
        closed.append(life)
    return closed


def _held_in(folder: Path) -> set[str]:
    """The stems of the lives that a process is writing now."""
    try:
        return {path.name.removesuffix(LIFE) for path in folder.glob(f"*{LIFE}") if is_held(path)}
    except OSError as error:
        raise TraceError(f"{folder} cannot be read: {error.strerror or error}.") from error


def _append_crash(folder: Path, life: LifeKey, last: Event, reason: str, power_cut: bool) -> None:
    stem = stem_of(*life)
    paths = sorted(path for path in folder.iterdir() if path.name.startswith(f"{stem}."))
    names = {path: name for path in paths if _is_segment(path) and (name := segment_name(path.name)) is not None}
    numbers = [name.number for name in names.values()]
    opened = [path for path in names if path.name.endswith(OPEN)]
    rows: list[Event] = []
    torn = False
    path = folder / f"{stem}.{max(numbers, default=-1) + 1:06d}{OPEN}"
    if any(other.name.startswith(f"{base_of(path.name)}.") for other in paths):  # finishing it would replace that file
        raise TraceError(f"{folder} holds {path.name} or a form of it, which is no segment's name: rename that file.")
    if opened and not _twin(opened[-1]):
        path, rows, torn = read_segment(opened[-1])
    mark = folder / f"{stem}{LIFE}"
    try:
        is_whole = not (torn or power_cut or (mark.exists() and read_private(mark) == GAP))
        crash = Event(
            last.run,
            last.group,
            last.protocol,
            last.member,
            last.incarnation,
            last.local_index + (1 if is_whole else 2),
            last.time_ns,
            last.clock,
            CRASH,
            last.view,
            reason=reason,
        )
        finish_segment(path, [*rows, crash], can_write_parquet())
        mark.unlink(missing_ok=True)
    except OSError as error:
        raise TraceError(f"{folder} cannot be written: {error.strerror or error}.") from error


def segment_files(sources: Sequence[Source], notes: list[str]) -> tuple[list[Path], list[tuple[Path, Path]]]:
    """The segments of folders, of all below them, and of files; and apart the open ones that have a finished twin, with it."""
    files: list[Path] = []
    spare: list[tuple[Path, Path]] = []
    for source in sources:
        path = Path(source)
        if not path.is_dir():
            if not path.exists():
                raise TraceError(f"there is no trace at {path}.")
            files.append(path)
            continue
        found = sorted(_files_below(path, notes))
        if not found:
            raise TraceError(f"{path} holds no trace: neither Parquet nor JSON lines.")
        for child in found:
            twin = _twin(child)
            if twin is None:
                files.append(child)
            else:
                spare.append((child, twin))
    return files, spare


def _files_below(folder: Path, notes: list[str]) -> Iterator[Path]:
    """The files with the ending of a segment. Folders are passed over, also if they have it."""
    if (folder / DELTA_LOG).is_dir():
        raise TraceError(
            f"{folder} is a Delta table, and some of its files may be out of use: judge it with "
            f"`unisono trace verify {folder}`, which asks the table's log."
        )
    for child in folder.rglob("*"):
        if not _is_segment(child) or child.is_dir() or DELTA_LOG in child.relative_to(folder).parts:
            continue
        if not is_utf8(str(child.relative_to(folder))):
            notes.append(f"{child} is passed over: its name is not UTF-8. Rename it, so that it is read.")
        elif child.is_file():
            yield child
        elif child.is_symlink() or child.exists():  # else it was removed meanwhile
            notes.append(f"{child} is passed over: it is neither a file nor a link to one.")


def is_utf8(name: str) -> bool:
    """Whether the name of a file is a text; on most systems it may be any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_segment(path: Path) -> bool:
    return path.name.endswith((".parquet", ".jsonl"))


def _twin(path: Path) -> Path | None:
    """The finished form of an open segment, if its process was killed before it removed the open one."""
    if not path.name.endswith(OPEN) or segment_name(path.name) is None:
        return None
    base = base_of(path.name)
    twins = [path.with_name(base + ending) for ending in (".parquet", ".jsonl")]
    return next((twin for twin in twins if twin.exists()), None)


def holds_all(finished: Path, opened: Path) -> bool:
    """Whether a finished segment holds all rows of its open form.

    A finished form that cannot be read says so where it is judged, and an open one may be removed meanwhile.
    """
    problems: list[Problem] = []
    there = Counter(map(to_line, read_segment(finished, problems).rows))
    if problems:
        return True
    wanted = Counter(map(to_line, read_segment(opened, problems).rows))
    return not opened.exists() if problems else not wanted - there


def left_out(path: str, twin: str) -> str:
    """The note about an open segment that is not read."""
    return f"{path} is left out: {twin} is the same segment, finished."


def differs(path: str, twin: str) -> str:
    """The problem with an open segment whose finished form tells another story."""
    return f"{path} holds rows that {twin}, the same segment finished, does not hold: which of the two is right?"


def _refuse_copies(paths: Iterable[Path]) -> None:
    """The same segment twice would look like messages delivered twice, and a verdict on that would be worth nothing.

    Only a file with a name of its own, or another segment of the same life, can be a copy under another name.
    """
    named: dict[str, Path] = {}
    sized: dict[int, list[Path]] = {}
    for path in paths:
        other = named.setdefault(base_of(path.name), path)
        if other is not path:
            raise TraceError(f"{path} has the name of {other}: remove the copy, or judge the two folders apart.")
        if path.is_file():
            sized.setdefault(path.stat().st_size, []).append(path)
    for size, group in sized.items():
        lives = Counter(_life_in_name(path) for path in group)
        suspects = group if None in lives else [path for path in group if lives[_life_in_name(path)] > 1]
        seen: dict[bytes, Path] = {}
        for path in suspects if size and len(suspects) > 1 else ():
            with open_regular(path) as file:
                other = seen.setdefault(hashlib.file_digest(file, "sha256").digest(), path)
            if other is not path:
                raise TraceError(f"{path} is a copy of {other}: remove one of the two.")


def _life_in_name(path: Path) -> tuple[str, str, int] | None:
    name = segment_name(path.name)
    return None if name is None else name[:3]
