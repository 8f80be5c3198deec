"""Files, read and written so that neither their content nor their place can do harm.

Written: whole or not at all, even after a power cut. What a process keeps for itself (journals, traces, locks) is for its
owner alone, and is never reached through a symbolic link. Read: only regular files, and of each at most a given number of
bytes, so that neither a device, a FIFO nor a line without an end holds the reader up or fills its memory.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tomllib
import uuid
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

TEXT_BYTES_MAX = 64 << 20
"""Maximum size of a file that is read whole: replays, members, grids, mappings, manifests."""
LINE_BYTES_MAX = 16 << 20
"""Maximum length of a line in files that are read line by line."""
_OTHER_STORAGE = re.compile(r"(?i:s3|s3a|s3n|gs|abfss?|wasbs?|hdfs|dbfs|file|https?|ftp):")
NESTING_MAX = 100
"""Maximum depth of lists and tables in each other."""


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all; the same content again touches nothing."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        with open_regular(path) as known:
            if known.read(len(data) + 1) == data:
                return
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


# What a process keeps for itself.


def make_private_folder(path: Path) -> None:
    """Make a folder that only its owner can enter. An existing folder keeps its permissions."""
    if path.parts and _OTHER_STORAGE.fullmatch(path.parts[0]):  # `Path` has eaten a slash of the URI
        raise OSError(errno.EINVAL, "this is written to local folders only; copy it to other storage later", str(path))
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_private(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a regular file; if it is made, for its owner alone. A symbolic link in its place is refused."""
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, f"{path.name} is a symbolic link, which is not followed", str(path)) from None
        raise
    return _regular(file, path)


def read_private(path: Path, bytes_max: int | None = TEXT_BYTES_MAX) -> bytes:
    """The content of a private file. None: read it all, without a limit."""
    with open(open_private(path, os.O_RDONLY), "rb") as file:
        return _read(file, bytes_max)


# What comes from elsewhere. What is refused is an `OSError` without a number: trying again would not help.


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read. A device, a FIFO or a socket is refused, without waiting for it."""
    return open(_regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path), "rb")


def read_text(path: Path, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """The text of a small file in UTF-8."""
    with open_regular(path) as file:
        return _read(file, bytes_max).decode("utf-8")


def read_json(path: Path) -> Any:
    """The value in a small JSON file. Raises `ValueError` if it is not JSON."""
    return parse_json(read_text(path))


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises `ValueError` for everything that is wrong with it, deep nesting too."""
    return _shallow(json.loads, text)


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text. Raises `ValueError` likewise."""
    table: dict[str, Any] = _shallow(tomllib.loads, text)
    return table


def lines_of(file: BinaryIO, bytes_max: int = LINE_BYTES_MAX) -> Iterator[bytes]:
    """The lines of a file, each with its newline; a longer one is refused before it is read whole."""
    number = 0
    while line := file.readline(bytes_max + 1):
        number += 1
        if len(line) > bytes_max:
            raise OSError(f"line {number} has more than {_size(bytes_max)}")
        yield line


def _shallow(parse: Callable[..., Any], text: str | bytes) -> Any:
    """A value that later code can go through without running out of stack."""
    try:
        value = parse(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [value]
    for _ in range(NESTING_MAX):
        level = [child for one in level for child in _children(one)]
        if not level:
            return value
    raise ValueError("it is nested too deeply")


def _children(value: object) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _regular(file: int, path: Path) -> int:
    kind = os.fstat(file).st_mode
    if stat.S_ISREG(kind):
        return file
    os.close(file)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError("it is not a regular file")


def _read(file: BinaryIO, bytes_max: int | None) -> bytes:
    if bytes_max is None:
        return file.read()
    data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(f"it has more than {_size(bytes_max)}")
    return data


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count} bytes"
