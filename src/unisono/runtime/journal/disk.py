"""What a journal needs from the operating system. Tests substitute a disk that records calls or fails."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from unisono.runtime.errors import JournalError
from unisono.trace.files import open_private, read_private
from unisono.trace.lockfile import Lockfile


class Disk:
    """Files as a journal uses them. Every method may raise `OSError`."""

    def open(self, path: Path) -> int:
        """A file to read, append to and overwrite; made if it is not there, for its owner alone. No link is followed."""
        return open_private(path)

    def write(self, file: int, data: bytes | memoryview, at: int) -> int:
        """Write at a place; how many bytes were written, which may be fewer."""
        return os.pwrite(file, data, at)

    def sync(self, file: int) -> None:
        """Return when everything that was written is on stable storage."""
        os.fdatasync(file)

    def cut(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def close(self, file: int) -> None:
        os.close(file)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in a folder are on stable storage."""
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def write_all(self, file: int, data: bytes, at: int) -> None:
        """Write everything, or raise."""
        view = memoryview(data)
        while view:
            written = self.write(file, view, at)
            view, at = view[written:], at + written

    def write_whole(self, path: Path, data: bytes) -> None:
        """Put a file in the place of another so that after any failure one of the two is there, whole."""
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            file = self.open(temporary)
            try:
                self.cut(file, 0)
                self.write_all(file, data, 0)
                self.sync(file)
            finally:
                self.close(file)
            self.replace(temporary, path)
            self.sync_folder(path.parent)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


class Lock:
    """Ensures that one process at a time writes a journal. Ends with the process; a forked child does not inherit it."""

    def __init__(self, path: Path) -> None:
        try:
            self._lockfile = Lockfile(path)
        except BlockingIOError:
            holder = ""
            with contextlib.suppress(OSError):
                holder = read_private(path)[:20].decode("ascii", "replace").strip()
            raise Locked(
                f"the journal {path.parent} is in use by process {holder or 'unknown'}: give each member a journal of its own, "
                "or end that process."
            ) from None
        with contextlib.suppress(OSError):  # only for the sentence above; a full disk is no reason to refuse
            os.ftruncate(self._lockfile.file, 0)
            os.pwrite(self._lockfile.file, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        self._lockfile.release()


class Locked(JournalError):
    """Another process writes this journal."""


def why(error: OSError) -> str:
    return error.strerror or str(error)
