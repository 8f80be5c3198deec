"""Text of others, before a person sees it: nothing in it may move the cursor, colour anything, or fill the screen.

What a person does not see as a sign is written as its number: control characters (C0, DEL and C1), signs that turn the
direction of writing around (U+202A to U+202E, U+2066 to U+2069, U+200E, U+200F, U+061C), and all others without a shape.
`plain` does so for terminals, SVG and HTML, `json_text` for JSON, where the text stays the same to a program.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

SPACES = "\t\u00a0\u202f"
"""Spaces that stay as they are: figures stand with their unit behind a narrow one that does not break."""


def plain(text: str) -> str:
    """One line that only shows letters. What is no letter is written as its number; so are bytes that were no text."""
    return "".join(one if one.isprintable() or one in SPACES else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    is_byte = "\udc80" <= one <= "\udcff"
    return f"\\x{ord(one) & 0xFF:02x}" if is_byte else one.encode("unicode_escape").decode()


def plain_lines(text: str) -> str:
    """The same of text that may have several lines."""
    return "\n".join(map(plain, text.split("\n")))


def json_text(
    value: Any, *, ascii_only: bool = False, indent: int | None = None, default: Callable[[Any], Any] | None = None
) -> str:
    """The value as JSON that is safe to look at; read back, it is the same value."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, default=default)
    return text if text.isprintable() else "".join(map(_shown_in_json, text))


def _shown_in_json(one: str) -> str:
    if one.isprintable() or one == "\n":  # between the lines of a value; in a string it is escaped already
        return one
    return json.dumps(one)[1:-1]


def is_text(text: str) -> bool:
    """Whether it can be sent as it is; what came from a terminal or a command line may hold bytes that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def cut(text: str, letters_max: int = 500) -> str:
    """So much of it as a line has room for."""
    return text if len(text) <= letters_max else f"{text[:letters_max]}… ({len(text):,} letters)"
