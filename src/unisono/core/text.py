"""Text for people: incarnations in short form, and nothing that moves the cursor.

An incarnation is a clock's nanoseconds, nineteen digits that a person cannot compare. Its short form is the first three hex
digits of its BLAKE2b hash: `127.0.0.1:7400#a3f`. They tell the lives of one address apart (two lives share them once in 4,096
cases), and name nothing by themselves: data, traces and JSON keep the whole number. An incarnation of at most three digits, as in
simulations, is its own short form.
"""

from __future__ import annotations

import re
from hashlib import blake2b

SHORT_DIGITS = 3
_LIFE = re.compile(rf"(?<=[\w\]])#([0-9]{{{SHORT_DIGITS + 1},20}})(?!\w)")
"""A whole incarnation behind an address."""


def short_life(incarnation: int) -> str:
    """A few digits for people."""
    text = str(incarnation)
    return text if len(text) <= SHORT_DIGITS else blake2b(text.encode(), digest_size=2).hexdigest()[:SHORT_DIGITS]


def shorten(text: str) -> str:
    """The same text, with every member's incarnation in short form."""
    return _LIFE.sub(lambda match: f"#{short_life(int(match[1]))}", text)


def one_line(text: str, letters_max: int = 500) -> str:
    """Text of others as one line: what is not printable is escaped, and a long text is cut."""
    shown = text if len(text) <= letters_max else f"{text[:letters_max]}…"
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in shown)
