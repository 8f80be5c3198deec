"""A file that one process holds, and that others can ask about. It is let go of with the process, however that ends.

A lock of this kind (`flock`) belongs to an open file, which a forked child has too. So a child closes its copy at once: else
the lock would outlive its process in the child.
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


class Held:
    """A file, open and locked. Raises `BlockingIOError` if another process has it.

    With `wait` it is a file of one's own, which others at most look at; where files cannot be locked it is open all the same.
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
            if error.errno == errno.EACCES:  # some systems' word for it
                raise BlockingIOError(error.errno, error.strerror) from None
            raise
        _of_this_process().add(self)

    def release(self) -> None:
        """Unlocked in so many words: closing would not do it while a child that was just forked has the file."""
        if self.file >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(self.file, fcntl.LOCK_UN)
            self.forget()

    def forget(self) -> None:
        """Close the file and leave the lock to whoever else has it open."""
        os.close(self.file)
        self.file = -1


def is_held(path: Path) -> bool:
    """Whether a process holds this file. One that is not there is not held."""
    try:
        file = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # files cannot be locked here
        return False
    finally:
        os.close(file)
    return False


@cache
def _of_this_process() -> WeakSet[Held]:
    """All that are held. Asked for with the first of them, it sees to it that forked children hold none."""
    held: WeakSet[Held] = WeakSet()

    def forget_all() -> None:
        for one in list(held):
            if one.file >= 0:
                one.forget()

    os.register_at_fork(after_in_child=forget_all)
    return held
