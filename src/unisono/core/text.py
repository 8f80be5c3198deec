"""Text for people: incarnations in short form, and nothing that moves the cursor.

An incarnation is a clock's nanoseconds, nineteen digits that a person cannot compare. Its short form is the first three hex
digits of its BLAKE2b hash: `127.0.0.1:7400#a3f`. They tell the lives of one address apart (two lives share them once in 4,096
cases), and name nothing by themselves: data, traces and JSON keep the whole number. An incarnation of at most three digits, as in
simulations, is its own short form.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from unisono.core.errors import Misuse

SHORT_DIGITS = 3
_LIFE = re.compile(rf"(?<=[\w\]])#([0-9]{{{SHORT_DIGITS + 1},20}})(?!\w)")
"""A whole incarnation behind an address."""
_INCARNATION = re.compile("[0-9]{1,20}|0x[0-9a-fA-F]{1,16}")


def short_life(incarnation: int) -> str:
    """A few digits for people."""
    text = str(incarnation)
    return text if len(text) <= SHORT_DIGITS else blake2b(text.encode(), digest_size=2).hexdigest()[:SHORT_DIGITS]


def read_name(text: str) -> tuple[str, int]:
    """The address and incarnation of a member, from its long form."""
    address, _, life = text.rpartition("#") if "#" in text else (text, "", "0")
    is_number = _INCARNATION.fullmatch(life) is not None
    incarnation = int(life, 16 if life.startswith("0x") else 10) if is_number else -1
    if not address or not 0 <= incarnation < 2**64:
        raise Misuse(
            f"{text!r} names no member: give ADDRESS#INCARNATION with the whole incarnation, as in 127.0.0.1:7400#1763317223."
        )
    return address, incarnation


def shorten(text: str) -> str:
    """The same text, with every member's incarnation in short form."""
    return _LIFE.sub(lambda match: f"#{short_life(int(match[1]))}", text)


def one_line(text: str, letters_max: int = 500) -> str:
    """Text of others as one line: what is not printable is escaped, and a long text is cut."""
    shown = text if len(text) <= letters_max else f"{text[:letters_max]}…"
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in shown)
