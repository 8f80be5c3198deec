"""Commands as forms, such as ``MEMBERS pause TIME``, each with the function that carries it out. README.md explains them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.stories.text import StoryError
from unisono.sim.units import parse_duration, parse_size

Names = Callable[[Sequence[str]], list[Any]]
READERS: dict[str, Callable[[str, Names], Any]] = {
    "MEMBERS": lambda text, names: names(text.split()),
    "MEMBER": lambda text, names: names([text])[0],
    "PARTS": lambda text, names: [part.split() for part in text.split("|")],
    "TIME": lambda text, names: parse_duration(text),
    "SIZE": lambda text, names: parse_size(text),
    "NUMBER": lambda text, names: float(text),
    "WORDS": lambda text, names: text.split(),
    "WORD": lambda text, names: text,
    "RULE": lambda text, names: text,
}
"""How each argument of a form is read. Those that end with S take several words."""
SEVERAL = ("MEMBERS", "PARTS", "WORDS", "RULE")


class Form(NamedTuple):
    text: str
    pattern: re.Pattern[str]
    key: re.Pattern[str]
    """The word by which a line is known to mean this form."""
    kinds: list[str]
    action: Callable[..., Any]


class Forms:
    """The commands that one kind of story knows. An earlier form goes before a later one."""

    def __init__(self) -> None:
        self.table: list[Form] = []

    def __call__(self, *texts: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def add(action: Callable[..., Any]) -> Callable[..., Any]:
            for text in texts:
                tokens = text.split()
                # Of several members a verb has no s: `a pauses 2s`, `a b pause 2s`.
                parts = [
                    (r"(.+?)" if token in SEVERAL else r"(\S+)") if token in READERS
                    else re.escape(token) + (r"(?:e?s)?" if before in ("MEMBERS", "MEMBER") else "")
                    for before, token in zip(["", *tokens], tokens, strict=False)
                ]  # fmt: skip
                key = next(part for part, token in zip(parts, tokens, strict=True) if token not in READERS)
                kinds = [token for token in tokens if token in READERS]
                self.table.append(Form(text, re.compile(" ".join(parts)), re.compile(key), kinds, action))
            return action

        return add

    def act(self, stage: Any, line: str, names: Names) -> Any:
        """Carry one line out."""
        for form in self.table:
            if match := form.pattern.fullmatch(line):
                found = zip(form.kinds, match.groups(), strict=True)
                return form.action(stage, *(READERS[kind](text, names) for kind, text in found))
        near = [form.text for form in self.table if any(map(form.key.fullmatch, line.split()))]
        raise StoryError(f"write: {', or: '.join(near)}." if near else "there is no such command: README.md lists all.")
