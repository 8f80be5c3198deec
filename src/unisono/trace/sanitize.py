"""Makes foreign text safe to show: nothing in it may move the cursor, change colours, or fill the screen.

Characters without a visible shape are replaced by their escape sequences: control characters (C0, DEL and C1), characters that
change the writing direction (U+202A to U+202E, U+2066 to U+2069, U+200E, U+200F, U+061C), and other unprintable ones.
`sanitize` does so for terminals, SVG and HTML; `json_text` does so for JSON, where programs still read the original text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

SPACES = "\t\u00a0\u202f"
"""Spaces that are kept: a narrow no-break space stands between a number and its unit."""


def sanitize(text: str) -> str:
    """Return one printable line; escape unprintable characters and undecodable bytes."""
    return "".join(one if one.isprintable() or one in SPACES else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    is_byte = "\udc80" <= one <= "\udcff"
    return f"\\x{ord(one) & 0xFF:02x}" if is_byte else one.encode("unicode_escape").decode()


def sanitize_lines(text: str) -> str:
    """Like `sanitize`, but keep line breaks."""
    return "\n".join(map(sanitize, text.split("\n")))


def json_text(
    value: Any, *, ascii_only: bool = False, indent: int | None = None, default: Callable[[Any], Any] | None = None
) -> str:
    """Return the value as JSON that is safe to print and parses to the same value."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, default=default)
    return text if text.isprintable() else "".join(map(_shown_in_json, text))


def _shown_in_json(one: str) -> str:
    if one.isprintable() or one == "\n":  # between the lines of a value; strings have theirs escaped already
        return one
    return json.dumps(one)[1:-1]


def is_text(text: str) -> bool:
    """Whether the text can be encoded; text from a terminal or command line may hold undecodable bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def cut(text: str, letters_max: int = 500) -> str:
    """Shorten the text to fit a line."""
    return text if len(text) <= letters_max else f"{text[:letters_max]}… ({len(text):,} letters)"
