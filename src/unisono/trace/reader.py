"""Reads traces back: a folder, a file, or several of either, Parquet and JSON lines, finished and open segments.

What a crash leaves behind is tolerated and reported: a torn last line of an open segment (a gap), and an open segment
whose finished twin exists. Everything else that is wrong is a `TraceError` that names file and line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

from unisono.trace.files import lines_of, open_regular, read_private
from unisono.trace.held import is_held
from unisono.trace.parquet import can_write_parquet, read_parquet
from unisono.trace.schema import (
    CRASH,
    ENDINGS,
    Event,
    TraceError,
    from_line,
    member_name,
)
from unisono.trace.sinks import GAP, LIFE, OPEN, finish_segment, stem_of


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


@dataclass
class Trace:
    """What was read: every life's rows in their order, and what a person should know about how they were found."""

    lives: dict[LifeKey, list[Event]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: dict[str, set[Path]] = field(default_factory=dict)
    """By run: the files that hold rows of it."""

    @property
    def runs(self) -> list[str]:
        return sorted({life.run for life in self.lives})

    def members(self, run: str) -> dict[LifeKey, list[Event]]:
        return {life: rows for life, rows in self.lives.items() if life.run == run}

    def events(self, run: str | None = None) -> Iterator[Event]:
        """All rows, life after life."""
        return chain.from_iterable(rows for life, rows in self.lives.items() if run is None or life.run == run)


Source = str | os.PathLike[str]


def read(source: Source | Iterable[Source]) -> Trace:
    """Read a trace. Lives are in order of run, member and incarnation, whatever the files are called."""
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    trace = Trace()
    pieces: dict[LifeKey, list[tuple[Path, list[Event]]]] = {}
    for path in segment_files(sources, trace.notes):
        segment = read_segment(path)
        if segment.torn:
            trace.notes.append(f"{path}: the last line is torn; its row is missing.")
        for life, rows in _by_life(segment.rows).items():
            pieces.setdefault(life, []).append((path, rows))
            trace.files.setdefault(life.run, set()).add(path)
    for life in sorted(pieces):
        trace.lives[life] = _joined(life, pieces[life])
    return trace


def read_segment(path: Path) -> Segment:
    """Read one file. Only the last line of an open segment may be torn."""
    try:
        if path.name.endswith(".parquet"):
            return Segment(path, list(read_parquet(path)), False)
        with open_regular(path) as file:
            return Segment(path, *_read_lines(path, file))
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}.") from error


def _read_lines(path: Path, file: BinaryIO) -> tuple[list[Event], bool]:
    """The rows of JSON lines, and whether the last one is torn."""
    rows: list[Event] = []
    for number, line in enumerate(lines_of(file), 1):
        where = f"{path}, line {number}"
        if not line.endswith(b"\n"):
            if not path.name.endswith(OPEN):
                raise TraceError(f"{where}: the file ends in the middle of a line.")
            return rows, True
        try:
            text = line[:-1].decode("utf-8")
        except UnicodeDecodeError:
            raise TraceError(f"{where}: this is not UTF-8.") from None
        rows.append(from_line(text, where))
    return rows, False


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
    """Append CRASH to every life in the folder that has no ending, or only to the ones named; which, is returned.

    For processes that were killed: they cannot write it themselves. The row takes the time of the life's last one. One local
    index is left out where rows are missing behind the last one, so that this stays visible as a gap: its line is torn, or
    the process could not write them and said so, or, with `power_cut`, nobody knows.

    Whoever is still writing its trace is left alone, and named in `notes`.
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
    numbers = [int(path.name[len(stem) + 1 :].partition(".")[0]) for path in paths if _is_segment(path)]
    opened = [path for path in paths if path.name.endswith(OPEN)]
    rows: list[Event] = []
    torn = False
    path = folder / f"{stem}.{max(numbers, default=-1) + 1:06d}{OPEN}"
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


def segment_files(sources: Sequence[Source], notes: list[str]) -> Iterator[Path]:
    """The segments of folders and files; an open one whose finished twin is there is left out, with a note."""
    for source in sources:
        path = Path(source)
        if not path.is_dir():
            if not path.exists():
                raise TraceError(f"there is no trace at {path}.")
            yield path
            continue
        found = sorted(child for child in path.iterdir() if _is_segment(child))
        if not found:
            raise TraceError(f"{path} holds no trace: neither Parquet nor JSON lines.")
        for child in found:
            twin = _twin(child)
            if twin is None:
                yield child
            else:
                notes.append(f"{child} is left out: {twin.name} is the same segment, finished.")


def _is_segment(path: Path) -> bool:
    return path.name.endswith((".parquet", ".jsonl"))


def _twin(path: Path) -> Path | None:
    """The finished form of an open segment, if its process was killed before it removed the open one."""
    if not path.name.endswith(OPEN):
        return None
    base = path.name.removesuffix(OPEN)
    twins = [path.with_name(base + ending) for ending in (".parquet", ".jsonl")]
    return next((twin for twin in twins if twin.exists()), None)


def _by_life(rows: Iterable[Event]) -> dict[LifeKey, list[Event]]:
    lives: dict[LifeKey, list[Event]] = {}
    for row in rows:
        lives.setdefault(LifeKey(row.run, row.member, row.incarnation), []).append(row)
    return lives


def _joined(life: LifeKey, pieces: list[tuple[Path, list[Event]]]) -> list[Event]:
    """A life's rows from several files, which must not repeat one another."""
    pieces.sort(key=lambda piece: piece[1][0].local_index)
    for (before, rows), (after, more) in pairwise(pieces):
        start, end = more[0].local_index, max(row.local_index for row in rows)
        if start <= end:
            raise TraceError(
                f"{after} repeats rows of {member_name(life.member, life.incarnation)} that {before} already holds "
                f"(from local_index {start} on): is it a copy?"
            )
    return list(chain.from_iterable(rows for _, rows in pieces))
