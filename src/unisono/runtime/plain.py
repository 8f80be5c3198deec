"""Text of others, before a person sees it: nothing in it may move the cursor, colour anything, or fill the screen."""

from __future__ import annotations


def plain(text: str) -> str:
    """One line that only shows letters. What is no letter is written as its number; so are bytes that were no text."""
    return "".join(one if one.isprintable() or one == "\t" else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    is_byte = "\udc80" <= one <= "\udcff"
    return f"\\x{ord(one) & 0xFF:02x}" if is_byte else one.encode("unicode_escape").decode()


def plain_lines(text: str) -> str:
    """The same of text that may have several lines."""
    return "\n".join(map(plain, text.split("\n")))


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
