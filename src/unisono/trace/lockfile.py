"""Lock files: a process holds the lock until it releases it or ends, and other processes can ask whether it is held.

The lock (`flock`) belongs to the open file, which a forked child inherits. A child therefore closes its copy at once;
otherwise the lock would outlive its process in the child.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from functools import cache
from pathlib import Path
from weakref import WeakSet

from unisono.trace.files import open_private


class Lockfile:
    """An open, locked file. Raises `BlockingIOError` if another process holds the lock.

    With `wait`, wait for the lock instead: for a file that only its owner locks for long. If the file system does not support
    locks, the file is opened all the same.
    """

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        self.file = open_private(path)
        try:
            if wait:
                with contextlib.suppress(OSError):
                    fcntl.flock(self.file, fcntl.LOCK_EX)
            else:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self.file)
            if error.errno == errno.EACCES:  # what some systems raise for a held lock
                raise BlockingIOError(error.errno, error.strerror) from None
            raise
        _of_this_process().add(self)

    def release(self) -> None:
        """Unlock explicitly and close: closing alone does not unlock while a just forked child has the file open."""
        if self.file >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(self.file, fcntl.LOCK_UN)
            self.forget()

    def forget(self) -> None:
        """Close the file without unlocking it: another process that inherited it keeps the lock."""
        os.close(self.file)
        self.file = -1


def is_held(path: Path) -> bool:
    """Whether a process holds this file's lock. A missing file is not held."""
    try:
        file = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the file system does not support locks
        return False
    finally:
        os.close(file)
    return False


@cache
def _of_this_process() -> WeakSet[Lockfile]:
    """All lock files of this process. The first call registers a hook that closes them in forked children."""
    held: WeakSet[Lockfile] = WeakSet()

    def forget_all() -> None:
        for one in list(held):
            if one.file >= 0:
                one.forget()

    os.register_at_fork(after_in_child=forget_all)
    return held
