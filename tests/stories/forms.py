"""Commands as forms, such as ``MEMBERS pause TIME``, each with the function that carries it out. README.md explains them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from tests.stories.text import StoryError
from unisono.core.options import CastOptions
from unisono.core.types import MemberId, Service
from unisono.sim.units import parse_duration, parse_size

Names = Callable[[Sequence[str]], list[Any]]
Reader = Callable[[str, Names], Any]
WORD, WORDS = r"(\S+)", r"(.+?)"
KINDS: dict[str, tuple[str, Reader]] = {
    "MEMBERS": (WORDS, lambda text, names: names(text.split())),
    "MEMBER": (WORD, lambda text, names: names([text])[0]),
    "PARTS": (WORDS, lambda text, names: [part.split() for part in text.split("|")]),
    "TIME": (WORD, lambda text, names: parse_duration(text)),
    "SIZE": (WORD, lambda text, names: parse_size(text)),
    "NUMBER": (WORD, lambda text, names: float(text)),
    "WAY": (r"([-~]>>?)", lambda text, names: text),
    "RULE": (WORDS, lambda text, names: text),
    "WORDS": (WORDS, lambda text, names: text.split()),
    "WORD": (WORD, lambda text, names: text),
}
"""What an argument of a form looks like, and how it is read."""
RANGE = re.compile(r"(.*?)(\d+)\.\.\1(\d+)")


class Form(NamedTuple):
    text: str
    pattern: re.Pattern[str]
    kinds: list[str]
    is_each: bool
    """Of several members, each does it by itself."""
    action: Callable[..., Any]

    @property
    def key(self) -> str:
        """The word by which a line is known to mean this form."""
        return next((token for token in self.text.split() if token not in KINDS), "->")


class Forms:
    """The commands that one kind of story knows. Those that begin with a word of their own are tried first."""

    def __init__(self) -> None:
        self.table: list[Form] = []

    def __call__(self, *texts: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorates what is done once for a whole line."""

        def add(action: Callable[..., Any]) -> Callable[..., Any]:
            self._add(dict.fromkeys(texts, action), is_each=False)
            return action

        return add

    def add_each(self, actions: Mapping[str, Callable[..., Any]]) -> None:
        """Add what each of several members does by itself."""
        self._add(actions, is_each=True)

    def _add(self, actions: Mapping[str, Callable[..., Any]], is_each: bool) -> None:
        self.table += [_form(text, action, is_each) for text, action in actions.items()]
        self.table.sort(key=lambda form: form.text.split()[0] in KINDS)  # no member is called `show` or `until`

    def act(self, stage: Any, line: str, names: Names) -> list[Any]:
        """Carry one line out. Returns what the actions returned."""
        for form in self.table:
            if match := form.pattern.fullmatch(line):
                given = [KINDS[kind][1](text, names) for kind, text in zip(form.kinds, match.groups(), strict=True)]
                if not form.is_each:
                    return [form.action(stage, *given)]
                return [form.action(stage, one, *given[1:]) for one in given[0]]
        near = [form.text for form in self.table if re.search(rf"(^| ){form.key}(e?s)?( |$)", line)]
        raise StoryError(f"write: {', or: '.join(near)}." if near else "there is no such command: README.md lists all.")


def _form(text: str, action: Callable[..., Any], is_each: bool) -> Form:
    tokens = text.split()
    # Of several members a verb has no s: `a pauses 2s`, `a b pause 2s`.
    parts = [
        KINDS[token][0] if token in KINDS
        else re.escape(token) + (r"(?:e?s)?" if before == "MEMBERS" else "")
        for before, token in zip(["", *tokens], tokens, strict=False)
    ]  # fmt: skip
    return Form(text, re.compile(" ".join(parts)), [token for token in tokens if token in KINDS], is_each, action)


def demand(holds: bool, message: str) -> None:
    if not holds:
        raise StoryError(message)


def said(found: Iterable[Any]) -> Iterator[str]:
    """What actions said, of all that they returned."""
    for one in found:
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            yield from one


def numbered(word: str) -> list[str]:
    """`x1..x5` is five words."""
    match = RANGE.fullmatch(word)
    return [word] if match is None else [f"{match[1]}{n}" for n in range(int(match[2]), int(match[3]) + 1)]


class Casting(NamedTuple):
    """The words of a cast: messages, and how they are cast."""

    texts: list[str]
    to: list[str] | None
    service: Service | None
    is_safe: bool
    is_awaited: bool
    each: int
    """How many messages each member casts that are called by its name; 0: those of `texts`."""
    gap_ns: int

    @classmethod
    def read(cls, words: Sequence[str]) -> Casting:
        texts: list[str] = []
        found: dict[str, Any] = {"to": None, "service": None, "is_safe": False, "is_awaited": False}
        each = gap_ns = 0
        rest = iter(words)
        for word in rest:
            match word.partition("="):
                case "every", _, _:
                    gap_ns = parse_duration(next(rest))
                case "each", _, _:
                    each = int(texts.pop())
                case "safe" | "awaited", _, _:
                    found[f"is_{word}"] = True
                case "service", "=", value:
                    found["service"] = Service[value.upper()]
                case "to", _, _:
                    found["to"] = [*rest]
                case _:
                    texts += numbered(word)
        return cls(texts, each=each, gap_ns=gap_ns, **found)

    def options(self, known: Callable[[list[str]], Iterable[MemberId]]) -> CastOptions:
        to = None if self.to is None else tuple(known(self.to))
        return CastOptions(to, self.service, self.is_safe or None)


def read_setting(old: object, text: str) -> Any:
    """The value of a setting, read as the one that it replaces."""
    if isinstance(old, tuple):
        return tuple(text.split(","))
    if isinstance(old, Enum):
        return type(old)(text)
    return None if text == "none" else int(text) if text.isdecimal() else parse_duration(text)
