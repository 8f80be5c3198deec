"""What a member must not forget: which life it lives, what it confirmed, and what it voted for.

One small file. A life begins by replacing it whole; what that life must remember is appended, each on stable storage before the
call returns, and so before anything leaves that depends on it. Of each kind the last one counts.

- A **record** is what membership confirmed (`core.membership.primary`), a **life** its number (`core.incarnation`).
- A **vote watermark** (`core.outbox`) says how far votes and decisions of the two-phase commit have come in one view. It is
  synced if it says that this member has voted for more than was known, and that this is open. A decision alone is written and
  not synced: nothing waits for it, the next vote brings it to the disk, and after a power cut before that it counts as open,
  which is safe. The process may be killed: what is written is there.

No member asks for a watermark of an earlier life: recovery asks the survivors alone, and a member that comes back is a new one
that voted for nothing. But if all have failed, nothing else tells what each had promised; so the next life says it (`undecided`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from unisono.core.incarnation import begin_life, read_record
from unisono.core.outbox import VoteWatermark
from unisono.core.types import ViewId
from unisono.runtime.errors import JournalError
from unisono.runtime.journal.disk import Disk, why
from unisono.runtime.journal.format import (
    FILE_BYTES,
    RECORDS,
    Damage,
    check_file_head,
    decode_watermark,
    encode_watermark,
    file_head,
    frame,
    frames,
)
from unisono.trace.files import read_private

LIFE: Final = 1
RECORD: Final = 2
GROUP: Final = 3
VOTES: Final = 4
FILE_BYTES_MAX: Final = 1 << 20
"""A file that has grown beyond is replaced by one with the last of each kind alone."""


class Undecided(NamedTuple):
    """A life voted for these positions of a view, the first to the last, and did not write down what became of them."""

    view: ViewId
    first: int
    last: int

    def __str__(self) -> str:
        return f"positions {self.first} to {self.last} of view {self.view}"


class Records:
    """See the module's text."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._file: int | None = None
        self._size = 0
        self.life: bytes | None = None
        """The record of the last life …"""
        self.record: bytes | None = None
        """… and what it, or one before, persisted last."""
        self.group = ""
        """Whose member it is."""
        self._watermark: VoteWatermark | None = None
        self.torn_bytes = 0
        self._read()
        left = self._watermark
        self.undecided = (
            Undecided(left.view, left.decided, left.voted - 1) if left is not None and left.is_open else None
        )
        """What an earlier life had voted for and whose decision it did not write down."""

    def _read(self) -> None:
        try:
            data = read_private(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise JournalError(f"the journal's file {self._path} cannot be read: {why(error)}.") from error
        try:
            whole = FILE_BYTES if check_file_head(data, RECORDS) else 0
            for _, end, body in frames(data, whole) if whole else ():
                self._take(body[0], bytes(body[1:]))
                whole = end
        except Damage as damage:
            raise JournalError(
                f"the journal's file {self._path} cannot be trusted at byte {damage.byte} ({damage.why}): restore it from a copy, "
                "or move the journal away and start under a new address."
            ) from None
        self.torn_bytes = len(data) - whole

    def _take(self, kind: int, data: bytes) -> None:
        if kind == LIFE:
            if read_record(data) is None:
                raise Damage(0, "the record of a life is not one")
            self.life = data
        elif kind == RECORD:
            self.record = data
        elif kind == GROUP:
            self.group = data.decode(errors="replace")
        elif kind == VOTES:
            self._watermark = decode_watermark(data)
        else:
            raise Damage(0, f"a record is of the unknown kind {kind}")

    def begin_life(self, wall_ns: int, group: str = "") -> int:
        """The number of the new life; it is on stable storage when this returns."""
        if self.group and group and group != self.group:
            raise JournalError(
                f"the journal {self._path.parent} belongs to a member of the group {self.group!r}: give the member of {group!r} "
                "a journal of its own."
            )
        life = begin_life(self.life, wall_ns)
        self.life, self.group = life.record, group or self.group
        self._replace()
        return life.incarnation

    def keep(self, records: Sequence[bytes]) -> None:
        """Return when the records are on stable storage. Raises `JournalError` if they may not be; then none is kept after it."""
        data = b"".join(frame(bytes((RECORD,)) + record) for record in records)
        self.record = records[-1] if records else self.record
        self._append(data, is_synced=True)

    def keep_votes(self, watermark: VoteWatermark) -> None:
        """Write down how far votes and decisions have come. A vote that is news is on stable storage when this returns."""
        is_new_vote = self._watermark is None or watermark[:2] != self._watermark[:2]
        self._watermark = watermark
        self._append(frame(bytes((VOTES,)) + encode_watermark(watermark)), is_synced=is_new_vote and watermark.is_open)

    def _append(self, data: bytes, is_synced: bool) -> None:
        if self._file is None:
            raise JournalError(
                f"the journal {self._path.parent} is closed, or its last write failed: start the member again."
            )
        if not data:
            return
        if self._size + len(data) > FILE_BYTES_MAX:
            self._replace()
            return
        try:
            self._disk.write_all(self._file, data, self._size)
            if is_synced:
                self._disk.sync(self._file)
        except OSError as error:
            self._fail(error)
        self._size += len(data)

    def _replace(self) -> None:
        watermark = (
            encode_watermark(self._watermark) if self._watermark is not None and self._watermark.is_open else None
        )
        known = ((GROUP, self.group.encode()), (LIFE, self.life), (RECORD, self.record), (VOTES, watermark))
        data = file_head(RECORDS, 0) + b"".join(frame(bytes((kind,)) + some) for kind, some in known if some)
        try:
            self.close()
            self._disk.write_whole(self._path, data)
            self._file = self._disk.open(self._path)
        except OSError as error:
            self._fail(error)
        self._size = len(data)

    def _fail(self, error: OSError) -> None:
        """Stop writing: the state of the disk is unknown."""
        self.close()
        raise JournalError(
            f"the journal {self._path.parent} cannot be written ({why(error)}), and the member must not go on without it: "
            "make room, then start the member again."
        ) from error

    def close(self) -> None:
        if self._file is not None:
            self._disk.close(self._file)
            self._file = None
