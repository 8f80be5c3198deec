"""Writes the deliveries and views of one member to disk, in order, for readers that come later or follow (`reader`).

Segments (`deliveries.<number>.journal`) are append-only. A turn's frames are one write, and by default one sync, before the
application sees the deliveries. Unlike a record, a delivery that cannot be written does not stop the member. But it is never lost
silently:

1. The write fails half-way (disk full). Complete frames stay, because a reader may have seen them; the rest of the turn is a gap.
2. The gap is noted at once in the file `gap`, whose bytes were reserved when the journal was opened, so a full disk takes them.
3. With every later turn the writer tries again, and first writes a frame that says what is missing. Only when that frame is
   on stable storage is the note erased.
4. The process ends before that succeeded: the next one finds the note and writes the frame, without the number of messages.
5. A sync fails: what was written may not last. That is noted too, until rows are on stable storage in the next segment. From then
   on their numbers tell if the ones before them are gone.

A stream of deliveries also has a gap where the member was not with the group. The writer records it with the same frame:

- before the first view of a life, if an earlier life has written rows here: what the group delivered in between is missing,
  also if the application got it inside a state;
- before a view that this member enters from another view than other members do: the two sides delivered apart. A member that
  comes in from a view that it began alone, as newcomers do, has nothing that others miss;
- where state transfer does not show the application what the member delivered, because the state that it took over has it.

Retention removes whole segments, the oldest first, never the newest one that holds rows, which alone tells the next row's number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from unisono.core.member import Entered, Happening
from unisono.core.types import Batch, MemberId, ViewId
from unisono.core.wire import Charter, Part
from unisono.runtime.errors import JournalError
from unisono.runtime.journal.disk import Disk, why
from unisono.runtime.journal.format import (
    ABSENCE,
    BATCH,
    BEGINNING,
    DELIVERIES,
    FILE_BYTES,
    GAP,
    LOST,
    NO_VIEW,
    VIEW,
    Damage,
    Missing,
    check_file_head,
    context_of,
    decode,
    encode_batch,
    encode_gap,
    encode_view,
    end_of,
    file_head,
    frame,
    frames,
    rows_in,
)
from unisono.runtime.journal.segments import first_unread, segment_numbers, segment_path
from unisono.trace.files import read_private

NOTE_BYTES: Final = 1_024
PARTED_MAX: Final = 1_000
"""Members that are gone and may come back from elsewhere: of the latest ones it is known since when they are gone."""


@dataclass(frozen=True, slots=True)
class Retention:
    """When to remove old segments: beyond a total size, or an age. None: no limit."""

    bytes_max: int | None = None
    age_ns_max: int | None = None
    keep_unread: bool = True
    """Keep what a registered reader has not passed. A reader that never returns then keeps everything."""


class _Pending(NamedTuple):
    """A frame to be written."""

    kind: int
    data: bytes
    rows: int
    view: ViewId
    ordinal: int  # of its first delivery

    @property
    def messages(self) -> int:
        return self.rows if self.kind == BATCH else 0


def _pend_gap(gap: Missing) -> _Pending:
    return _Pending(GAP, frame(encode_gap(gap)), 1, gap.view, gap.ordinal)


class _End(NamedTuple):
    """Where the rows of some segments end: the position of the next row, and the last row's view and ordinal."""

    position: int = 0
    view: ViewId = NO_VIEW
    ordinal: int = 0  # of the next delivery in that view


def is_founding(part: Part, charter: Charter) -> bool:
    """Whether a part is a newcomer, from a view that it began alone: nothing of the group was delivered there.

    A first view may also have had members that are gone by now, so when any have departed this is not certain.
    """
    return part.view.number == 1 and part.members == (part.view.proposer,) and not charter.departures


class Deliveries:
    """The writer. `write` never raises because of the disk: see the module's text."""

    def __init__(
        self,
        folder: Path,
        incarnation: int,
        retention: Retention | None,
        fsync: str,
        segment_bytes_max: int,
        disk: Disk,
        wall: Callable[[], int],
    ) -> None:
        self._folder = folder
        self._incarnation = incarnation
        self._retention = retention
        self._fsync = fsync
        self._segment_bytes_max = segment_bytes_max
        self._disk = disk
        self._wall = wall
        self._file: int | None = None
        self._number = 0  # of the open segment
        self._size = 0
        self._position = 0  # rows written so far, over all segments and lives
        self._last: _End | None = None  # of an earlier life
        self._entered: Entered | None = None
        self._has_company = False  # the member was with others, in this life or an earlier one
        self._views = 0  # entered in this life
        self._parted: dict[MemberId, tuple[ViewId, int]] = {}  # gone: the last view with it, and the next delivery then
        self._is_view_written = True
        self._ordinal = 0  # of the next delivery in the view
        self._contexts: dict[int, bytes] = {}  # by rank, in this view
        self._gap: Missing | None = None
        self._note: int | None = None  # the file `gap`
        self._is_noted = False  # it says something
        self._is_in_doubt = False  # it says that rows may not have lasted
        self.torn_bytes = 0
        """Of a frame that a killed process had begun: cut off when the journal was opened."""
        self.missing_messages = 0
        """Delivered in this life, and not in the journal."""
        self._open()

    # Opening.

    def _open(self) -> None:
        try:
            self._open_note()
            numbers = segment_numbers(self._folder)
            if numbers:
                self._take_up(numbers)
            else:
                self._begin_segment(1)
            self._retain()
        except BaseException as error:
            self.abandon()
            if isinstance(error, OSError):
                raise JournalError(f"the journal {self._folder} cannot be opened ({why(error)}).") from error
            raise

    def _open_note(self) -> None:
        """Reserve the bytes of the note, and read the note of an earlier life, if any."""
        path = self._folder / "gap"
        self._note = self._disk.open(path)
        known = read_private(path)
        if len(known) != NOTE_BYTES:
            self._disk.write_all(self._note, bytes(NOTE_BYTES), 0)
            self._disk.cut(self._note, NOTE_BYTES)
            self._disk.sync(self._note)
            self._disk.sync_folder(self._folder)
            return
        try:
            for _, _, body in frames(known, 0):
                (row,) = decode(body)
                assert isinstance(row, Missing)
                self._gap = row._replace(messages=-1)
                self._is_noted = True
        except (Damage, AssertionError, ValueError):
            self._is_noted = True
            self._gap = Missing(0, NO_VIEW, 0, -1, "an earlier gap whose note cannot be read")

    def _take_up(self, numbers: list[int]) -> None:
        """Continue after the last complete frame. A torn tail is cut off; after damage, start a new segment with a gap."""
        number = numbers[-1]
        path = segment_path(self._folder, number)
        data = read_private(path, None)
        whole, last = FILE_BYTES, None
        try:
            if not check_file_head(data, DELIVERIES, number):
                self.torn_bytes = len(data)
                path.unlink()
                self._go_on_behind(self._end(numbers[:-1]))
                self._begin_segment(number)
                return
            for _, end, body in frames(data, FILE_BYTES):
                whole, last = end, body
        except Damage as damage:
            self._gap = self._gap or Missing(0, NO_VIEW, 0, -1, f"segment {number} is damaged: {damage.why}")
            self._go_on_behind(self._end(numbers))
            self._begin_segment(number + 1)
            return
        self._go_on_behind(self._end(numbers[:-1]) if last is None else _End(sum(rows_in(last)), *end_of(last)))
        self._file = self._disk.open(path)
        self._number, self._size = number, whole
        if whole < len(data):
            self.torn_bytes = len(data) - whole
            self._disk.cut(self._file, whole)
            self._disk.sync(self._file)

    def _go_on_behind(self, end: _End) -> None:
        self._position = end.position
        if end.position:
            self._last, self._has_company = end, True

    def _end(self, numbers: Iterable[int]) -> _End:
        """Where the rows of these segments end, as far as they can be read."""
        for number in sorted(numbers, reverse=True):
            last = None
            with contextlib.suppress(Damage):
                for _, _, body in frames(read_private(segment_path(self._folder, number), None), FILE_BYTES):
                    last = body
            if last is not None:
                return _End(sum(rows_in(last)), *end_of(last))
        return _End()

    def _begin_segment(self, number: int) -> None:
        path = segment_path(self._folder, number)
        file = self._disk.open(path)
        try:
            self._disk.write_all(file, file_head(DELIVERIES, number), 0)
            self._sync(file)
            if self._fsync != "never":
                self._disk.sync_folder(self._folder)
        except OSError:
            self._disk.close(file)
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        if self._file is not None:
            self._disk.close(self._file)
        self._file, self._number, self._size = file, number, FILE_BYTES

    # Writing.

    def write(self, events: Sequence[Happening]) -> None:
        """Journal the events of a turn. On return they are on disk, as the policy says, or noted as missing."""
        pending: list[_Pending] = []
        position = self._position
        if self._gap is not None:
            pending.append(_pend_gap(self._gap._replace(position=position)))
            position += 1
            if not self._is_view_written:
                pending.append(self._pend_view(position))
                position += 1
        least = len(pending)
        for event in events:
            if isinstance(event, Batch):
                if event.payloads:
                    pending.append(self._pend_batch(position, event))
                    position += event.count
            elif isinstance(event, Entered):
                absence = self._absence_before(event, position)
                if absence is not None and not (pending and pending[-1].kind == GAP):
                    pending.append(_pend_gap(absence))
                    position += 1
                self._enter(event)
                pending.append(self._pend_view(position))
                position += 1
        if len(pending) == least:
            return
        if self._fsync == "always":
            for one in range(len(pending)):
                if not self._append(pending[one : one + 1]):
                    self._miss(pending[one + 1 :], "the disk failed just before")
                    return
        else:
            self._append(pending)

    def skip(self, batch: Batch) -> None:
        """Note a gap for a batch that is delivered but not shown, because the transferred state contains it.

        In the first view of a life the application, and with it the journal, begins behind that state.
        """
        if self._entered is None or not batch.payloads:
            return
        kind = BEGINNING if self._views == 1 and not self._ordinal else LOST
        reason = "they are in a state that was taken over"
        gap = self._gap or Missing(0, self._entered.view.id, self._ordinal, 0, reason, kind)
        self._gap = gap._replace(messages=gap.messages + batch.count if gap.messages >= 0 else -1)

    def _absence_before(self, entered: Entered, position: int) -> Missing | None:
        """What the group may have delivered without this member, before it enters a view."""
        if self._entered is None:
            last = self._last
            if last is None:
                return None
            reason = f"this member was away until view {entered.view.id}"
            return Missing(position, last.view, last.ordinal, -1, reason, ABSENCE)
        if not self._has_company:
            return None
        before, along = self._entered.view.id, set(entered.together)
        apart = sorted(
            str(part.view)
            for part in entered.charter.parts
            if (part.view != before if along & set(part.members) else not is_founding(part, entered.charter))
        )
        if not apart:
            return None
        gone = [self._parted.get(member, (before, self._ordinal)) for member in entered.view.members]
        view, ordinal = min(gone, key=lambda last: last[0].number)
        reason = f"until view {entered.view.id}, others delivered without this member since they parted, in view {', '.join(apart)}"
        return Missing(position, view, ordinal, -1, reason, ABSENCE)

    def _enter(self, entered: Entered) -> None:
        for member in entered.view.members:
            self._parted.pop(member, None)
        if self._entered is not None:
            end = self._entered.view.id, self._ordinal
            self._parted.update(
                (member, end) for member in self._entered.view.members if member not in entered.view.members
            )
            for member in list(self._parted)[:-PARTED_MAX]:
                del self._parted[member]
        self._entered = entered
        self._views += 1
        self._has_company = self._has_company or len(entered.view) > 1
        self._ordinal = 0
        self._contexts.clear()
        self._is_view_written = False

    def _pend_view(self, position: int) -> _Pending:
        assert self._entered is not None
        view = self._entered.view
        charter = self._entered.charter
        origins = [part.view for part in charter.parts if not is_founding(part, charter)]
        data = frame(encode_view(position, view, self._incarnation, charter.order, origins))
        return _Pending(VIEW, data, 1, view.id, 0)

    def _pend_batch(self, position: int, batch: Batch) -> _Pending:
        assert self._entered is not None, "a view comes before its deliveries"
        view = self._entered.view
        context = self._contexts.get(batch.origin)
        if context is None:
            context = self._contexts[batch.origin] = context_of(view.id, view.members[batch.origin])
        ordinal = self._ordinal
        self._ordinal += batch.count
        return _Pending(BATCH, frame(encode_batch(position, ordinal, batch, context)), batch.count, view.id, ordinal)

    def _append(self, pending: Sequence[_Pending]) -> bool:
        """Write frames and sync. Frames that cannot be written are noted as missing; complete ones stay."""
        try:
            if self._file is None or self._size >= self._segment_bytes_max:
                self._begin_segment(self._number + 1)
                self._retain()
        except OSError as error:
            self._miss(pending, why(error))
            return False
        assert self._file is not None
        file, size = self._file, self._size
        data = pending[0].data if len(pending) == 1 else b"".join([one.data for one in pending])
        done, failure = 0, None
        try:
            while done < len(data):
                done += self._disk.write(file, memoryview(data)[done:], size + done)
        except OSError as error:
            failure = error
        written = self._count_written(pending, done)
        is_told = (
            self._is_noted and self._gap is None
        )  # what the note says is in the file, or shows by the rows' numbers
        try:
            if failure is not None:
                self._disk.cut(file, self._size)
            self._sync(file, is_certain=is_told)
            self._is_in_doubt = self._is_in_doubt and not written
        except OSError as error:  # what is in this segment may not last: nothing goes behind it
            self._disk.close(file)
            self._file = None
            failure = failure or error
            self._doubt(pending[0], why(error))
        if failure is not None:
            self._miss(pending[written:], why(failure))
            return False
        if is_told:
            self._write_note(b"")
        if size == FILE_BYTES:
            self._retain()
        return True

    def _count_written(self, pending: Sequence[_Pending], done: int) -> int:
        """Count the complete frames in the file, and update the state accordingly."""
        for number, one in enumerate(pending):
            if done < len(one.data):
                return number
            done -= len(one.data)
            self._size += len(one.data)
            self._position += one.rows
            if one.kind == GAP:
                self._gap = None
            elif one.kind == VIEW:
                self._is_view_written = True
        return len(pending)

    def _miss(self, pending: Sequence[_Pending], reason: str = "") -> None:
        messages = sum(one.messages for one in pending)
        self.missing_messages += messages
        gap = self._gap
        if gap is not None:
            self._gap = gap._replace(messages=gap.messages + messages if gap.messages >= 0 else -1)
        elif pending:
            first = pending[0]
            self._gap = Missing(0, first.view, first.ordinal, messages, reason)
            if not self._is_in_doubt:  # which began before
                self._write_note(frame(encode_gap(self._gap)))

    def _doubt(self, first: _Pending, reason: str) -> None:
        """After a failed sync: note that rows from here on may not last, unless an earlier note covers them."""
        self._is_in_doubt = True
        if not self._is_noted:
            reason = f"they may not have lasted: {reason}"
            self._write_note(frame(encode_gap(Missing(0, first.view, first.ordinal, -1, reason))))

    def _write_note(self, note: bytes) -> None:
        """Overwrite the note in place, which needs no free space."""
        assert self._note is not None
        with contextlib.suppress(OSError):
            self._disk.write_all(self._note, note.ljust(NOTE_BYTES, b"\0"), 0)
            self._disk.sync(self._note)
            self._is_noted = bool(note)

    def _sync(self, file: int, *, is_certain: bool = False) -> None:
        """Sync as the policy says; with `is_certain`, always."""
        if self._fsync != "never":
            self._disk.sync(file)
        elif is_certain:
            self._disk.sync(file)
            self._disk.sync_folder(self._folder)

    # Retention.

    def _retain(self) -> None:
        """Remove the oldest segments that no rule keeps."""
        retention = self._retention
        if retention is None or (retention.bytes_max is None and retention.age_ns_max is None):
            return
        with contextlib.suppress(OSError):  # retried later
            numbers = segment_numbers(self._folder)
            sizes = {number: segment_path(self._folder, number).stat() for number in numbers}
            total = sum(stat.st_size for stat in sizes.values())
            newest = max((number for number in numbers if sizes[number].st_size > FILE_BYTES), default=0)
            unread = first_unread(self._folder) if retention.keep_unread else None
            for number in numbers:
                if number >= newest or (unread is not None and number >= unread):
                    return
                too_many = retention.bytes_max is not None and total > retention.bytes_max
                too_old = (
                    retention.age_ns_max is not None and self._wall() - sizes[number].st_mtime_ns > retention.age_ns_max
                )
                if not too_many and not too_old:
                    return
                segment_path(self._folder, number).unlink()
                total -= sizes[number].st_size

    def close(self) -> None:
        """Try once more to record what is missing, and close the files."""
        if self._note is None:
            return
        if self._gap is not None:
            self._append([_pend_gap(self._gap._replace(position=self._position))])
        self.abandon()

    def abandon(self) -> None:
        """Close the files without writing anything more."""
        for file in (self._file, self._note):
            if file is not None:
                with contextlib.suppress(OSError):
                    self._disk.close(file)
        self._file = self._note = None
