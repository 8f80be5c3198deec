"""Makes standard input, output and error safe to use: open, and able to encode any text.

If a program starts with a closed stream (`<&-`, some supervisors), the next file or socket that it opens takes that descriptor,
and an event loop refuses to watch it. Foreign text may also contain characters that the terminal's encoding lacks.
"""

from __future__ import annotations

import io
import os
import sys


def prepare_streams() -> None:
    """Open nothing in the place of each stream that is closed; from then on no text is refused, neither in nor out."""
    for number in (0, 1, 2):
        _open_if_closed(number)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as the process
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape" if mode == "r" else "backslashreplace")


def _open_if_closed(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)  # child processes need it just as much


# Lines are text here and bytes on their way. What is no text survives the way through both.


def to_bytes(line: str) -> bytes:
    return line.encode(errors="surrogateescape")


def to_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def takes_all_letters() -> bool:
    """Whether standard output can encode every character. If not, JSON is written in ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
