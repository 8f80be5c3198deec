"""What a member must not forget: which life it lives, and what it confirmed (`core.incarnation`, `core.membership_primary`).

One small file. A life begins by replacing it whole; records of that life are appended, each on stable storage before `keep`
returns, and so before anything leaves that depends on it. Only the last record counts.

Votes of the two-phase commit in `rmp` are not here, and need not be: a vote says what one life holds in one view, and both end with
the process. Recovery asks the survivors alone, and who comes back is a new member that voted for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from unisono.core.incarnation import begin_life, read_record
from unisono.runtime.errors import JournalError
from unisono.runtime.journal_disk import Disk, why
from unisono.runtime.journal_format import FILE_BYTES, RECORDS, Damage, check_file_head, file_head, frame, frames

LIFE: Final = 1
RECORD: Final = 2
GROUP: Final = 3
FILE_BYTES_MAX: Final = 1 << 20
"""A file that has grown beyond is replaced by one with the last record alone."""


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
        self.torn_bytes = 0
        self._read()

    def _read(self) -> None:
        try:
            data = self._path.read_bytes()
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
        if self._file is None:
            raise JournalError(
                f"the journal {self._path.parent} is closed, or its last write failed: start the member again."
            )
        data = b"".join(frame(bytes((RECORD,)) + record) for record in records)
        if not data:
            return
        try:
            if self._size + len(data) > FILE_BYTES_MAX:
                self.record = records[-1]
                self._replace()
                return
            self._disk.write_all(self._file, data, self._size)
            self._disk.sync(self._file)
        except OSError as error:
            self._fail(error)
        self._size += len(data)
        self.record = records[-1]

    def _replace(self) -> None:
        known = ((GROUP, self.group.encode()), (LIFE, self.life), (RECORD, self.record))
        data = file_head(RECORDS, 0) + b"".join(frame(bytes((kind,)) + some) for kind, some in known if some)
        try:
            self.close()
            self._disk.write_whole(self._path, data)
            self._file = self._disk.open(self._path)
        except OSError as error:
            self._fail(error)
        self._size = len(data)

    def _fail(self, error: OSError) -> None:
        """Nobody knows what is on the disk now, so nothing more is written behind it."""
        self.close()
        raise JournalError(
            f"the journal {self._path.parent} cannot be written ({why(error)}), and the member must not go on without it: "
            "make room, then start the member again."
        ) from error

    def close(self) -> None:
        if self._file is not None:
            self._disk.close(self._file)
            self._file = None
