"""The files of journalled deliveries: segments, and how far registered readers have passed them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from unisono.runtime.errors import JournalError
from unisono.runtime.journal.disk import why
from unisono.trace.files import read_private

READERS: Final = "readers"
_NAME = re.compile(r"deliveries\.(\d{10})\.journal")


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"deliveries.{number:010d}.journal"


def segment_numbers(folder: Path) -> list[int]:
    """The segments in a folder, the oldest first."""
    return sorted(int(match[1]) for name in os.listdir(folder) if (match := _NAME.fullmatch(name)))


def require_segments(folder: Path) -> list[int]:
    """Like `segment_numbers`; raises `JournalError` if the folder cannot be listed."""
    try:
        return segment_numbers(folder)
    except FileNotFoundError:
        raise JournalError(
            f"there is no journal at {folder}: give the folder that a member writes its journal to."
        ) from None
    except OSError as error:
        raise JournalError(f"the journal {folder} cannot be read: {why(error)}.") from error


def first_unread(folder: Path) -> int | None:
    """The oldest segment that a registered reader has not passed; None without registered readers."""
    try:
        names = os.listdir(folder / READERS)
    except FileNotFoundError:
        return None
    passed = []
    for name in names:
        if name.startswith("."):
            continue
        text = read_private(folder / READERS / name).decode("ascii", "replace").strip()
        passed.append(int(text) if text.isdigit() else 0)
    return min(passed, default=None)
