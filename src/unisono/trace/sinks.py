"""Where a recorder's events go: into memory, or into a folder of segment files.

A folder holds, for each life of a member, segments ``run.member.incarnation.000000.…``:

| file | what it is |
|---|---|
| ``….open.jsonl`` | the segment being written: one JSON line a row, appended and handed to the system once a turn |
| ``….parquet`` | a finished segment, if pyarrow is installed |
| ``….jsonl`` | a finished segment without pyarrow |
| ``….tmp`` | a finished segment in the making; it is renamed when complete, so no reader sees half of it |
| ``….life`` | one a life, without a number: held by the process that writes, and gone when it has closed its trace |

1. A turn's rows are appended by one write. If it fails half-way (disk full), the half is cut off again, and ``….life`` says
   "gap" until a later write succeeds: its bytes were there before, so a full disk takes them. If none does, nothing else
   would tell that rows are missing behind the last one.
2. A process killed in the middle of a write leaves a torn last line. The reader tolerates it and reports a gap.
3. Full segments are finished in a thread, one after the other, because that takes longer than a turn may. Until then, or if that
   fails, the open one is there, and readers read it.
4. A process killed between the rename of a finished segment and the removal of the open one leaves both. The reader
   takes the finished one.
5. The folder, if it is made here, and all files are for their owner alone: a trace tells who spoke with whom. No symbolic
   link is followed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol
from urllib.parse import quote, unquote

from unisono.trace.files import make_private_folder, open_private
from unisono.trace.lockfile import Lockfile
from unisono.trace.parquet import can_write_parquet, load, write_parquet
from unisono.trace.schema import Event, TraceError, to_line

OPEN = ".open.jsonl"
LIFE = ".life"
_NUMBER = r"(?:[0-9]{1,18}|[1-8][0-9]{18}|9(?:[01][0-9]{2}|2[01][0-9]|22[0-2])[0-9]{15})"
"""A number that 64 bits hold with a sign. An incarnation, which is a time in nanoseconds, has 19 digits."""
SEGMENT_NAME = rf"[^.]*\.[^.]*\.{_NUMBER}\.{_NUMBER}"
"""The name of a segment without its ending, as a pattern for Python and Spark."""
WHOLE, GAP = b"whole\n", b"gap  \n"
"""What a life's file says. One takes the place of the other, so they have the same length."""
UNFINISHED_MAX = 4
"""With more unfinished segments than this, a writer waits for the oldest, which bounds memory."""


class Sink(Protocol):
    """Takes the events of one turn; raises OSError if they could not be kept, and then keeps none of them."""

    def write(self, events: Sequence[Event]) -> None: ...

    def close(self) -> None: ...


class MemorySink:
    """Keeps events in a list. Several recorders may share one: the list is then in the order of the turns."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, events: Sequence[Event]) -> None:
        self.events += events

    def close(self) -> None:
        """The events stay."""


class TeeSink:
    """Hands events to several sinks, for example to memory and to an observer that judges while the run goes on."""

    def __init__(self, *sinks: Sink) -> None:
        self.sinks = sinks

    def write(self, events: Sequence[Event]) -> None:
        for sink in self.sinks:
            sink.write(events)

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


class FolderSink:
    """Writes one life of one member into a folder. Making one fails with a clear sentence if the folder is of no use."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        run: str,
        member: str,
        incarnation: int,
        *,
        segment_rows_max: int = 20_000,
        segment_bytes_max: int = 64 * 1024 * 1024,
        parquet: bool | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.stem = stem_of(run, member, incarnation)
        self.segment_rows_max, self.segment_bytes_max = segment_rows_max, segment_bytes_max
        self.parquet = can_write_parquet() if parquet is None else parquet
        if self.parquet:
            load()
        self._segment = 0
        self._file = -1
        self._bytes = 0
        self._rows: list[Event] = []  # of the open segment, so that rotating it need not read it back
        self._finisher: ThreadPoolExecutor | None = None
        self._finishing: deque[Future[None]] = deque()
        self._unfinished: deque[tuple[Path, list[Event]]] = deque()  # belongs to the finisher, as long as there is one
        self._has_gap = False  # the latest write failed
        if self.folder.exists() and not self.folder.is_dir():
            raise TraceError(f"a trace cannot be written to {self.folder}: it is a file, not a folder.")
        try:
            make_private_folder(self.folder)
            if any(self.folder.glob(f"{self.stem}.*")):
                raise TraceError(
                    f"{self.folder} already holds a trace of {member} (incarnation {incarnation}) in run {run}: "
                    "choose another folder or another run."
                )
            self._begin()
        except OSError as error:
            raise TraceError(f"a trace cannot be written to {self.folder}: {error.strerror or error}.") from error

    @property
    def path(self) -> Path:
        """The open segment."""
        return self.folder / f"{self.stem}.{self._segment:06d}{OPEN}"

    @property
    def life(self) -> Path:
        """The file that is held as long as this life is written."""
        return self.folder / f"{self.stem}{LIFE}"

    def _begin(self) -> None:
        self._life = Lockfile(self.life, wait=True)
        try:
            self._tell(WHOLE)
            self._open()
        except OSError:
            self.life.unlink()
            self._life.release()
            raise

    def _tell(self, how: bytes) -> None:
        os.pwrite(self._life.file, how, 0)
        self._has_gap = how == GAP

    def write(self, events: Sequence[Event]) -> None:
        try:
            self._append(events)
        except OSError:
            if not self._has_gap:
                with contextlib.suppress(OSError):
                    self._tell(GAP)
            raise
        if self._has_gap:  # what is missing shows in the rows' indices now
            with contextlib.suppress(OSError):
                self._tell(WHOLE)
        if len(self._rows) >= self.segment_rows_max or self._bytes >= self.segment_bytes_max:
            self._rotate()

    def _append(self, events: Sequence[Event]) -> None:
        if self._file < 0:
            self._open()
        text = "".join(map(to_line, events)).encode("ascii")
        try:
            written = os.write(self._file, text)
            if written < len(text):
                # A short write is how a disk fills up; the second call brings the reason.
                written += os.write(self._file, memoryview(text)[written:])
            if written < len(text):
                raise OSError(f"only {written} of {len(text)} bytes could be written")
        except OSError:
            self._undo()
            raise
        self._bytes += len(text)
        self._rows += events

    def _undo(self) -> None:
        """Cut off half a write. Where even that fails the segment ends here, torn, and the next write opens another."""
        try:
            os.ftruncate(self._file, self._bytes)
        except OSError:
            self._leave()

    def _rotate(self) -> None:
        """Go on in another segment. This one's rows are safe as they are."""
        if self._finisher is None:
            self._finisher = ThreadPoolExecutor(1, "unisono trace")
        path, rows = self.path, self._rows
        self._leave()
        self._finishing.append(self._finisher.submit(self._finish, path, rows))
        while self._finishing and (self._finishing[0].done() or len(self._finishing) > UNFINISHED_MAX):
            self._finishing.popleft().result()

    def _finish(self, path: Path, rows: list[Event]) -> None:
        """Finish this segment, and first those before it that could not be."""
        self._unfinished.append((path, rows))
        with contextlib.suppress(OSError):  # it is tried again with the next one
            while self._unfinished:
                finish_segment(*self._unfinished[0], self.parquet)
                self._unfinished.popleft()

    def close(self) -> None:
        """Finish what is not. Where that fails, the open segment stays, and readers read it."""
        if self._life.file < 0:
            return
        if self._finisher is not None:
            self._finisher.shutdown()
        try:
            if self._file >= 0:
                path, rows = self.path, self._rows
                self._leave()
                if rows:
                    self._finish(path, rows)
                else:
                    path.unlink()
            while self._finishing:
                self._finishing.popleft().result()
            if not self._has_gap:
                self.life.unlink(missing_ok=True)
        except OSError:
            pass
        finally:
            self._life.release()

    def _open(self) -> None:
        self._file = open_private(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        self._bytes = 0
        self._rows = []

    def _leave(self) -> None:
        os.close(self._file)
        self._file = -1
        self._segment += 1


def finish_segment(path: Path, rows: Sequence[Event], parquet: bool) -> Path:
    """Replace the open segment at `path` by a finished one that holds `rows`."""
    base = path.name.removesuffix(OPEN)
    temporary = path.with_name(f"{base}.tmp")
    finished = path.with_name(f"{base}.parquet" if parquet else f"{base}.jsonl")
    try:
        temporary.unlink(missing_ok=True)  # a killed process may have left one
        with open(open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            if parquet:
                write_parquet(file, rows)
            else:
                file.write("".join(map(to_line, rows)).encode("ascii"))
            _sync(file)
        os.replace(temporary, finished)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)
    return finished


def stem_of(run: str, member: str, incarnation: int) -> str:
    """How the files of one life begin. Signs that a file name cannot hold, and dots, are quoted."""
    return ".".join(quote(part, safe=":@").replace(".", "%2E") for part in (run, member, str(incarnation)))


class SegmentName(NamedTuple):
    """What the name of a segment tells: whose life it is of, and which of the life's segments it is."""

    run: str
    member: str
    incarnation: int
    number: int


def segment_name(name: str) -> SegmentName | None:
    """What the name of this file tells, if it is a segment's; None for a file with a name of its own."""
    base = base_of(name)
    if re.fullmatch(SEGMENT_NAME, base) is None:
        return None
    run, member, incarnation, number = base.split(".")
    return SegmentName(unquote(run), unquote(member), int(incarnation), int(number))


def base_of(name: str) -> str:
    """A file's name without the ending that tells its form; two forms of one segment have the same.

    Only a segment has an open form: `log.open.jsonl` is not the open form of `log.parquet`.
    """
    base = name.removesuffix(OPEN)
    if base != name and re.fullmatch(SEGMENT_NAME, base) is not None:
        return base
    return name.removesuffix(".parquet").removesuffix(".jsonl")


def _sync(file: BinaryIO) -> None:
    """Bring a file to the disk before it gets its final name, or a power failure could leave the name without content."""
    file.flush()
    os.fsync(file.fileno())
