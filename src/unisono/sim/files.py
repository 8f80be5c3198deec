"""Reading and writing the files of a run: whole or not at all, and what is wrong is said in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unisono.core.errors import Misuse
from unisono.trace import files


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader finds all of it or nothing."""
    try:
        files.write_whole(path, text)
    except OSError as error:
        raise Misuse(f"{path} cannot be written: {error.strerror or error}.") from None


def load_json(path: Path) -> Any:
    """Read a JSON file."""
    try:
        return files.read_json(path)
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise Misuse(f"{path} is not a replay file: {error}.") from None
