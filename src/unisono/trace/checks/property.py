"""What is said of one property, in one place: its statement, what breaks it, and how a violation is told and pointed at.

A checker reports a **witness**: names, rows and messages by key, and `what` is broken where a property can be broken in several
ways. A property's `witness` says what each key holds, so that a picture finds the rows and messages in it, and its `sentence`
makes words of it. A witness may also come from a table of Spark, where every value is a text (`texts_of`); it says the same.

The language of sentences: ``{key}`` stands for a value of the witness, the name of a role, the `view`, or a word that follows from
them (`_words`). Of ``[one|other]`` the first part counts whose values are all there; if none is, it says nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from unisono.trace.schema import DELIVER, PLACE

Witness: TypeAlias = Mapping[str, object]
Message: TypeAlias = tuple[str, int]
"""Its origin and index; of a batch, the first index."""
Row: TypeAlias = tuple[str, int]
"""A member and the local index of one of its rows."""


class Kind(StrEnum):
    """What a value of a witness is."""

    MESSAGES = "messages"
    """One or several, as in ``a:5``, or ``a:5-7`` for a batch."""
    VIEW = "view"
    MEMBERS = "members"
    NUMBER = "number"
    TEXT = "text"


@dataclass(frozen=True)
class RowOf:
    """The local index of a row of the member that has this role, or that this key names."""

    member: str

    def __str__(self) -> str:
        return f"row of {self.member}"


@dataclass(frozen=True)
class Each:
    """A list of things that are told one after the other: each a sequence of values, by `fields`."""

    fields: Mapping[str, Field]
    sentence: str

    def __str__(self) -> str:
        return f"list of ({', '.join(f'{name}: {kind}' for name, kind in self.fields.items())})"


Field: TypeAlias = Kind | RowOf | Each


class Pointed(NamedTuple):
    """The messages and rows that a witness names."""

    messages: frozenset[Message]
    rows: frozenset[Row]


@dataclass(frozen=True, slots=True)
class Violation:
    """A property was broken. The sentence says how, so that a person can check it by hand in the trace."""

    property: str
    members: tuple[str, ...]
    witness: Witness
    sentence: str
    view: str | None = None
    """In which view; None: in none in particular."""

    def __str__(self) -> str:
        return f"{self.property}: {self.sentence}"


class Example(NamedTuple):
    """A violation as the checker reports it."""

    members: tuple[str, ...]
    view: str | None
    witness: Witness


@dataclass(frozen=True, eq=False)
class PropertyRecord:
    """One promise that the judge checks."""

    id: str
    name: str
    says: str
    """In one plain sentence."""
    exact: str | None
    """The docstring of the checker's file: a title line, and what exactly must hold."""
    rows: tuple[str, ...]
    """The kinds of rows that decide, besides VIEW and endings, which every property needs; empty: all."""
    roles: tuple[str, ...]
    """What the first members of a violation are called in its sentence."""
    witness: Mapping[str, Field]
    sentence: str | Mapping[str, str]
    """One for each `what`, if there are several."""
    example: Example
    implies: tuple[str, ...] = ()
    """Properties that hold wherever this one holds."""

    @property
    def statement(self) -> str:
        """What exactly must hold."""
        text = (self.exact or "").partition(": ")[2].strip()
        return text[:1].upper() + text[1:] if re.match(r"[a-z]+[ ,]", text) else text

    def tell(self, members: Sequence[str], view: str | None, witness: Witness) -> str:
        """What a violation says, in words."""
        sentence = self.sentence if isinstance(self.sentence, str) else self.sentence[str(witness["what"])]
        return _fill(sentence, self._values(members, view, witness))

    def violation(self, members: Sequence[str], view: str | None, witness: Witness) -> Violation:
        return Violation(self.id, tuple(members), witness, self.tell(members, view, witness), view)

    def point(self, members: Sequence[str], witness: Witness) -> Pointed:
        """Which messages and rows a violation is about."""
        values = self._values(members, None, witness)
        found = list(_pointed(self.witness, witness, values))
        return Pointed(frozenset(m for m, _ in found if m is not None), frozenset(r for _, r in found if r is not None))

    def _values(self, members: Sequence[str], view: str | None, witness: Witness) -> dict[str, str]:
        values = dict(zip(self.roles, members, strict=False))
        if view is not None:
            values["view"] = view
        for key, value in witness.items():
            field = self.witness.get(key)
            text = _each(field, value) if isinstance(field, Each) else text_of(value)
            if text:
                values[key] = text
        return values | _words(values)


def texts_of(witness: Witness) -> dict[str, str]:
    """A witness as a table keeps it."""
    return {key: text for key, value in witness.items() if (text := text_of(value)) is not None}


def text_of(value: object) -> str | None:
    if isinstance(value, list | tuple):
        nested = any(isinstance(one, list | tuple) for one in value)
        return json.dumps(value, separators=(",", ":")) if nested else ", ".join(map(str, value))
    return None if value is None else str(value)


_CHOICE = re.compile(r"\[([^\]]*)\]")
_KEY = re.compile(r"\{(\w+)\}")


def _fill(sentence: str, values: Mapping[str, str]) -> str:
    """Put values into a sentence, and never look for keys in a value."""
    parts = _CHOICE.split(sentence)
    for at in range(1, len(parts), 2):
        choices = parts[at].split("|")
        parts[at] = next((one for one in choices if values.keys() >= set(_KEY.findall(one))), "")
    return "".join(_KEY.sub(lambda found: values.get(found[1], "?"), part) for part in parts)


def _words(values: Mapping[str, str]) -> dict[str, str]:
    """Words that follow from values: what was done with a message, and which way members went out of a view."""
    next_view = values.get("next_view")
    return {
        "did": {DELIVER: "delivered", PLACE: "placed"}.get(values.get("kind", DELIVER), "has"),
        "way": "stayed to the end" if next_view is None else f"went on to {next_view}",
    }


def _items(each: Each, value: object) -> Iterator[dict[str, object]]:
    items = json.loads(value or "[]") if isinstance(value, str) else value
    assert isinstance(items, list | tuple)
    for item in items:
        yield dict(zip(each.fields, item, strict=True))


def _each(each: Each, value: object) -> str:
    told = []
    for item in _items(each, value):
        values = {key: text for key, one in item.items() if (text := text_of(one))}
        told.append(_fill(each.sentence, values))
    return ", ".join(told)


def _pointed(
    fields: Mapping[str, Field], witness: Witness, values: Mapping[str, str]
) -> Iterator[tuple[Message | None, Row | None]]:
    for key, field in fields.items():
        value = witness.get(key)
        if value is None:
            continue
        if isinstance(field, Each):
            for item in _items(field, value):
                yield from _pointed(field.fields, item, {name: text_of(one) or "" for name, one in item.items()})
        elif isinstance(field, RowOf):
            if str(value).isdecimal():
                yield None, (values.get(field.member, ""), int(str(value)))
        elif field is Kind.MESSAGES:
            for name in (text_of(value) or "").split(", "):
                origin, _, index = name.rpartition(":")
                first = index.partition("-")[0]
                if first.isdecimal():
                    yield (origin, int(first)), None
