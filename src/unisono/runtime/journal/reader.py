"""Reads a journal of deliveries while it is being written, from any place, and repeatably.

A reader's place is the last row it has read: the view and ordinal of a delivery, and where its frame begins. To resume, the
reader checks that frame. If it holds another view or ordinal, the journal was cut or replaced meanwhile, and the reader fails
instead of continuing at the wrong place. (View names never repeat.) Rows are numbered across all segments, so a missing
one is noticed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Final, NamedTuple, NoReturn

from unisono.core.errors import Misuse
from unisono.core.types import ViewId
from unisono.runtime.errors import JournalError
from unisono.runtime.journal.disk import Disk, why
from unisono.runtime.journal.format import (
    BATCH,
    DELIVERIES,
    FILE_BYTES,
    GAP,
    Damage,
    Missing,
    Row,
    check_file_head,
    decode,
    frame_length,
    frames,
    mark_of,
    rows_in,
)
from unisono.runtime.journal.format import BEGINNING as START
from unisono.runtime.journal.segments import READERS, require_segments, segment_path
from unisono.trace.files import make_private_folder, open_private

CHUNK_BYTES: Final = 4 << 20
LOOK_EVERY_S: Final = 0.05
_READER_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


class GapError(JournalError):
    """Deliveries are missing at this place of the journal."""


class Place(NamedTuple):
    """What was read last. `byte` is where its frame begins in its segment; 0: nothing of that segment was read.

    `rows` is how many rows of that frame were read; 0: all of them.
    """

    view: str = ""
    ordinal: int = -1
    segment: int = 0
    byte: int = 0
    rows: int = 0


BEGINNING: Final = Place()


class Stretch(NamedTuple):
    """Consecutive frames in one segment; of their rows, `rows` after the first `skip`."""

    segment: int
    first: int
    end: int
    rows: int
    skip: int = 0

    def takes(self, found: FoundFrame, bytes_max: int) -> bool:
        """Whether a frame follows these, and they are not too long yet."""
        is_next = (self.segment, self.end) == (found.segment, found.start)
        return is_next and self.end - self.first < bytes_max


class Limits(NamedTuple):
    """Limits for `Reader.stretches`. At least one frame is read, whatever its size."""

    rows: int | None = None
    bytes: int | None = None
    end: tuple[int, int] | None = None
    """The last segment to read, and the number of bytes to read of it."""


NO_LIMITS: Final = Limits()


class FoundFrame(NamedTuple):
    """A frame and its position in the files."""

    segment: int
    start: int
    end: int
    body: memoryview
    skip: int = 0
    """Number of its rows already read."""

    @property
    def place(self) -> Place:
        return Place(*mark_of(self.body), self.segment, self.start)

    def place_behind(self, rows: int) -> Place:
        """The place behind some of its rows."""
        view, ordinal = mark_of(self.body)
        return Place(view, ordinal - rows_in(self.body)[1] + rows, self.segment, self.start, rows)


class Reader:
    """Iterates over the frames of a journal. `frames` ends at the current end of the journal; call it again to continue.

    With `gaps="raise"`, reading past missing deliveries raises `GapError`, at every attempt. With `gaps="show"`, a `Missing`
    row stands for each gap that the writer knew of; rows lost later still raise.
    """

    def __init__(self, path: str | os.PathLike[str], after: Place = BEGINNING, gaps: str = "raise") -> None:
        if gaps not in ("raise", "show"):
            raise Misuse(f"gaps = {gaps!r} is unknown: choose raise or show.")
        self._folder = Path(path)
        self._shows_gaps = gaps == "show"
        self.place = after
        self._position: int | None = None  # of the next row; None: not known
        self._byte = 0  # where the next frame begins; 0: the segment was not looked at
        self._segment = 0
        self._skip = 0  # how many rows of the next frame were read
        self._damage: tuple[int, Damage] | None = None  # passed over; the next frame must say that something is missing
        numbers = require_segments(self._folder)
        if not numbers:
            raise JournalError(
                f"there are no deliveries in {self._folder}: give the folder of a member that journals its deliveries."
            )
        if after == BEGINNING:  # which is where it is now: once it is removed, what followed is not the same
            self.place = after = Place(segment=numbers[0])
        self._resume(after)

    def _resume(self, after: Place) -> None:
        """Position after the frame that was read last, if it still exists."""
        self._segment, self._byte = after.segment, 0
        if not after.byte:
            return
        if after.segment < require_segments(self._folder)[0]:
            self._raise_gone()
        found = None
        with contextlib.suppress(Damage, FileNotFoundError):
            found = next(frames(self._chunk(after.segment, after.byte), 0), None)
        if found is None or _place_in(found[2], after.rows) != (after.view, after.ordinal):
            raise JournalError(
                f"the journal {self._folder} does not hold ordinal {after.ordinal} of view {after.view} at the place where it was "
                "read: it was cut or replaced; start from the beginning, with a new checkpoint."
            )
        position, rows = rows_in(found[2])
        if after.rows:
            self._byte, self._position, self._skip = after.byte, position, after.rows
        else:
            self._byte, self._position = after.byte + found[1], position + rows

    # Going on.

    def frames(self) -> Iterator[FoundFrame]:
        """Yield the following frames, up to the current end."""
        while True:
            numbers = require_segments(self._folder)
            later = [number for number in numbers if number > self._segment]
            try:
                yield from self._frames_here(is_last=not later)
            except FileNotFoundError:
                if (
                    self._position is None or not later
                ):  # or else the next row's number tells whether all of it was read
                    self._raise_gone()
            if not later:
                return
            self._segment, self._byte = later[0], 0

    def _frames_here(self, is_last: bool) -> Iterator[FoundFrame]:
        """The rest of one segment. One that is not the last is complete, so anything torn there is damage."""
        segment = self._segment
        try:
            if not self._byte:
                if not check_file_head(self._read(segment, 0, FILE_BYTES), DELIVERIES, segment):
                    if not is_last:
                        raise Damage(0, "its head is torn")
                    return
                self._byte = FILE_BYTES
            while True:
                begin = self._byte
                data = self._chunk(segment, begin)
                for start, end, body in frames(data, 0, begin):
                    self._take(found := FoundFrame(segment, begin + start, begin + end, body, self._skip))
                    yield found
                if self._byte == begin:
                    break
            if data and not is_last:
                raise Damage(self._byte, "a frame is torn in the middle of the journal")
        except Damage as damage:
            if not self._shows_gaps or is_last:
                self._raise_damage(segment, damage)
            self._damage = segment, damage

    def _take(self, found: FoundFrame) -> None:
        position, rows = rows_in(found.body)
        if self._damage is not None:
            if found.body[0] != GAP:
                self._raise_damage(*self._damage)
            self._damage = None
        elif self._position is not None and position != self._position:
            raise GapError(
                f"the journal {self._folder} lacks rows before row {position}, in segment {found.segment} at byte {found.start}: "
                f"row {self._position} is expected there. Restore it from a copy, or start behind that place."
            )
        if found.body[0] == GAP and not self._shows_gaps and (row := gap_in(found.body)).kind != START:
            raise GapError(f"the journal {self._folder} has a gap: {row}. Read with gaps shown to go on behind it.")
        self._position = position + rows
        self._byte, self._skip, self.place = found.end, 0, found.place

    def rows(self) -> Iterator[Row]:
        """Yield the following rows, up to the current end."""
        for found in self.frames():
            yield from islice(decode(found.body), found.skip, None)

    def stretches(
        self, limits: Limits = NO_LIMITS, until: Place | None = None, bytes_max: int = CHUNK_BYTES
    ) -> Iterator[Stretch]:
        """Yield what follows as stretches of files, without decoding rows.

        Ends at `until`, a place that was reached before, or at the limits. No stretch is much longer than `bytes_max`.
        """
        open_stretch: Stretch | None = None
        total = size = 0
        before = self._state()
        for found in self._frames_before_a_gap():
            count = rows_in(found.body)[1] - found.skip
            if _is_beyond(limits, found, size):
                self._restore(before)
                break
            wanted = count if limits.rows is None else min(count, limits.rows - total)
            if until is not None and until.rows and (until.segment, until.byte) == (found.segment, found.start):
                wanted = min(wanted, until.rows - found.skip)
            if wanted <= 0:
                self._restore(before)
                break
            if open_stretch is None or not open_stretch.takes(found, bytes_max):
                if open_stretch is not None:
                    yield open_stretch
                open_stretch = Stretch(found.segment, found.start, found.start, 0, found.skip)
            open_stretch = open_stretch._replace(end=found.end, rows=open_stretch.rows + wanted)
            total, size = total + wanted, size + found.end - found.start
            if wanted < count:
                self._stay_inside(found, found.skip + wanted)
                break
            before = self._state()
            if self.place == until:
                break
        if open_stretch is not None:
            yield open_stretch

    def _frames_before_a_gap(self) -> Iterator[FoundFrame]:
        """Yield the following frames; a gap raises only if no frame precedes it."""
        has_some = False
        try:
            for found in self.frames():
                has_some = True
                yield found
        except GapError:
            if not has_some:
                raise

    def _stay_inside(self, found: FoundFrame, rows: int) -> None:
        """Mark only the first rows of a frame as read."""
        self.place = found.place_behind(rows)
        self._byte, self._skip, self._position = found.start, rows, rows_in(found.body)[0]
        self._segment = found.segment

    def _state(self) -> tuple[Place, int | None, int, int, int]:
        return self.place, self._position, self._byte, self._segment, self._skip

    def _restore(self, state: tuple[Place, int | None, int, int, int]) -> None:
        self.place, self._position, self._byte, self._segment, self._skip = state

    def register(self, name: str) -> None:
        """Record under a name that everything before this place was read, so that retention may remove it."""
        if not _READER_NAME.fullmatch(name):
            raise Misuse(f"{name!r} is not a name for a reader: use letters, digits, dots and dashes.")
        folder = self._folder / READERS
        try:
            make_private_folder(folder)
            Disk().write_whole(folder / name, str(self.place.segment).encode())
        except OSError as error:
            raise JournalError(f"the reader {name!r} cannot be registered in {folder}: {why(error)}.") from error

    # Files.

    def _chunk(self, segment: int, at: int) -> bytes:
        """Read bytes from a place on: at least one complete frame, if there is one."""
        data = self._read(segment, at, CHUNK_BYTES)
        length = frame_length(data, 0, at) or 0
        return self._read(segment, at, length) if length > len(data) == CHUNK_BYTES else data

    def _read(self, segment: int, at: int, length: int) -> bytes:
        try:
            with open(open_private(segment_path(self._folder, segment), os.O_RDONLY), "rb") as file:
                file.seek(at)
                return file.read(length)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise JournalError(
                f"segment {segment} of the journal {self._folder} cannot be read: {why(error)}."
            ) from error

    def _raise_gone(self) -> NoReturn:
        raise GapError(
            f"segment {self._segment} of the journal {self._folder} was removed before it was read: keep more (retention), "
            "register the reader, or start from the beginning with a new checkpoint."
        )

    def _raise_damage(self, segment: int, damage: Damage) -> NoReturn:
        raise GapError(
            f"segment {segment} of the journal {self._folder} is damaged at byte {damage.byte} ({damage.why}): restore it "
            "from a copy, or start behind it."
        ) from None


def gap_in(body: memoryview) -> Missing:
    """The gap that a frame records."""
    (row,) = decode(body)
    assert isinstance(row, Missing)
    return row


def _is_beyond(limits: Limits, found: FoundFrame, size: int) -> bool:
    """Whether a frame lies beyond the limits, after `size` bytes read."""
    if limits.end is not None and (found.segment, found.end) > limits.end:
        return True
    return limits.bytes is not None and size > 0 and size + found.end - found.start > limits.bytes


def _place_in(body: memoryview, rows: int) -> tuple[str, int]:
    """The view and the ordinal of the last of some rows of a frame (0: of all)."""
    view, ordinal = mark_of(body)
    return view, ordinal - rows_in(body)[1] + rows if rows else ordinal


def end_now(path: str | os.PathLike[str]) -> tuple[int, int]:
    """The current end of a journal: its last segment and that segment's size."""
    folder = Path(path)
    for number in reversed(require_segments(folder)):
        with contextlib.suppress(FileNotFoundError):
            return number, segment_path(folder, number).stat().st_size
    return 0, 0


def read_stretch(path: str | os.PathLike[str], stretch: Stretch) -> Iterator[Row]:
    """Read the rows of a stretch; they are the same every time."""
    try:
        with open(open_private(segment_path(Path(path), stretch.segment), os.O_RDONLY), "rb") as file:
            file.seek(stretch.first)
            data = file.read(stretch.end - stretch.first)
        end = 0
        skip, left = stretch.skip, stretch.rows
        for _, end, body in frames(data, 0):  # noqa: B007
            rows = rows_in(body)[1]
            for row in islice(decode(body), skip, skip + left):
                left -= 1
                yield row
            skip = max(0, skip - rows)
    except FileNotFoundError:
        raise GapError(
            f"segment {stretch.segment} of the journal {path} was removed while it was read: keep more."
        ) from None
    except (OSError, Damage) as error:
        raise JournalError(f"segment {stretch.segment} of the journal {path} cannot be read: {error}.") from error
    if end != stretch.end - stretch.first or left:
        raise JournalError(f"segment {stretch.segment} of the journal {path} was cut while it was read.")


def find(path: str | os.PathLike[str], view: ViewId | str, ordinal: int) -> Place:
    """Find a delivery (ordinal -1: the view itself) by reading through the journal."""
    name = str(view)
    reader = Reader(path, gaps="show")
    for found in reader.frames():
        mark = mark_of(found.body)
        if mark.view == name and found.body[0] != GAP:
            first = mark.ordinal - rows_in(found.body)[1] + 1 if found.body[0] == BATCH else -1
            if first <= ordinal < mark.ordinal:
                return found.place_behind(ordinal - first + 1)
            if ordinal == mark.ordinal:
                return found.place
    raise JournalError(f"ordinal {ordinal} of view {name} is not in the journal {path}: start from the beginning.")


def read(
    path: str | os.PathLike[str],
    after: tuple[ViewId | str, int] | None = None,
    *,
    follow: bool = False,
    gaps: str = "raise",
    wait: Callable[[], bool] | None = None,
) -> Iterator[Row]:
    """Yield everything journalled after a delivery (None: from the beginning); with `follow`, also what is still to come.

    `wait` is called at the end of the journal and returns whether to continue; without it, a follower polls.
    """
    if after is None:
        reader = Reader(path, gaps=gaps)
    else:
        reader = Reader(path, find(path, *after), gaps)
    while True:
        yield from reader.rows()
        if wait is not None:
            if not wait():
                return
        elif follow:
            sleep(LOOK_EVERY_S)
        else:
            return
