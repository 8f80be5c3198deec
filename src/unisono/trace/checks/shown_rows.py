"""What the checkers of P25–P29 have in common: each decides in the end, on a few rows of every life and some of its deliveries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

from unisono.trace.checks.attributes import value_of
from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import PLACED, Life, Stay
from unisono.trace.checks.spans import Spans
from unisono.trace.files import parse_json
from unisono.trace.schema import CUT, SHOW, SNAPSHOT_IN, STATE, VIEW, Event

Range: TypeAlias = tuple[int, int]
"""The messages ``first … end-1`` of an origin."""


@dataclass
class LifeRows:
    """The rows of one life that P25–P29 look at, in their order."""

    name: str
    rows: Sequence[Event]
    is_holed: bool = False
    """Rows are missing in the middle: nothing follows from the absence of one."""
    is_whole: bool = True
    """Nothing is missing, at the end neither."""
    ending: str | None = None
    ending_reason: str | None = None

    @cached_property
    def views(self) -> dict[str, Event]:
        """By view: the VIEW row with which this life installed it first."""
        views: dict[str, Event] = {}
        for row in self.rows:
            if row.kind == VIEW and row.view is not None:
                views.setdefault(row.view, row)
        return views

    @cached_property
    def replacements(self) -> list[int]:
        """The local indices at which the state was replaced."""
        return [row.local_index for row in self.rows if row.kind in (STATE, SNAPSHOT_IN)]

    @property
    def is_shown(self) -> bool:
        """Whether anything was recorded of what its application saw."""
        return any(row.kind == SHOW for row in self.rows)

    def replaced(self, after: int, before: int | None = None) -> bool:
        """Whether the state was replaced between two rows."""
        return any(after < at and (before is None or at < before) for at in self.replacements)

    def is_cut_in(self, view: str) -> bool:
        """Whether the run was stopped in this view with messages still under way."""
        last = next(reversed(self.views), None)
        return self.ending_reason == CUT and last == view


Lives: TypeAlias = Mapping[str, LifeRows]


class DeliveredRange(NamedTuple):
    """(A part of) a batch as one life delivered it. `early`: before the life blocked for a view change."""

    who: str
    view: str
    origin: str
    first: int
    end: int
    local: int
    early: bool


class Breach(NamedTuple):
    """A violation as a function of the lives' rows finds it."""

    what: str
    members: tuple[str, ...]
    view: str | None
    local: int | None
    more: Mapping[str, object] = {}

    @property
    def witness(self) -> dict[str, object]:
        known = {"what": self.what, "local": self.local, **self.more}
        return {name: value for name, value in known.items() if value is not None}


@dataclass
class SpansOf:
    """Ranges of messages by any key."""

    spans: dict[tuple[object, ...], Spans] = field(default_factory=dict)

    def add(self, key: tuple[object, ...], first: int, end: int) -> None:
        self.spans.setdefault(key, Spans()).add(first, end)

    def outside(self, key: tuple[object, ...], first: int, end: int) -> list[Range]:
        spans = self.spans.get(key)
        return [(first, end)] if spans is None else spans.outside(first, end)


def names_in(event: Event, attribute: str) -> tuple[str, ...]:
    """A list of names in an attribute; empty if there is none, or if it cannot be read."""
    try:
        names = parse_json(value_of(event, attribute) or "[]")
    except ValueError:
        return ()
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


class ShownChecker(Checker):
    """A plain checker whose property is a function of the lives' rows."""

    def conclude(self) -> None:
        for finding in self.decide(lives_of(self.history)):
            self.report(finding.members, finding.view, **finding.witness)

    def decide(self, lives: dict[str, LifeRows]) -> Iterator[Breach]:
        raise NotImplementedError

    def delivered(self, stay: Stay, *, placed: bool = False) -> Iterator[DeliveredRange]:
        """What one stay delivered, and placed if that is asked."""
        block = len(stay.spans) if stay.block is None else stay.block
        for at, ((number, first, end), mark) in enumerate(zip(stay.spans, stay.marks, strict=True)):
            if placed or not mark & PLACED:
                origin = self.history.numbered[number].name
                yield DeliveredRange(stay.life.name, stay.id, origin, first, end, stay.locals[at], at < block)


def lives_of(history: History) -> dict[str, LifeRows]:
    return {life.name: rows_of(life) for life in history.numbered if life.rows}


def rows_of(life: Life) -> LifeRows:
    is_holed = life.hole is not None
    return LifeRows(life.name, life.kept, is_holed, life.unknown is None, life.ending, life.ending_reason)
