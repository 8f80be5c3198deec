"""P26 stable is kept: what a caster was told is stable is delivered by every member of its view.

Let `stable` be ``ok`` in a RECEIPT row of p for its message m, which it cast in V. Every member of V that m is addressed to
delivers m in V, or takes over a state after it entered V (STATE, SNAPSHOT_IN), unless it crashes.

Nothing is concluded about a member whose trace is not whole, nor of a view that was its last one when the run was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from unisono.trace.checks.attributes import value_of
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.shown_rows import (
    Breach,
    CastRange,
    LifeRows,
    Lives,
    Range,
    ShownChecker,
    SpansOf,
    delivered_in,
    named,
)
from unisono.trace.schema import CAST, CRASH, DELIVER, OK, RECEIPT, SNAPSHOT_IN, STATE, Event


def decide(
    lives: Lives, cast: Callable[[str, int, int], list[CastRange]], missing: Callable[[str, CastRange], list[Range]]
) -> Iterator[Breach]:
    """`cast` tells what an origin cast of a range of messages; `missing` what one life did not deliver of them in their view."""
    for name in sorted(lives):
        for row in stable_receipts(lives[name]):
            assert row.first is not None
            assert row.count is not None
            for message in cast(name, row.first, row.first + row.count):
                entered = lives[name].views.get(message.view)
                members = () if entered is None else entered.members or ()
                asked = [one for one in members if message.destinations is None or one in message.destinations]
                lacking = [one for one in asked if not _is_excused(lives.get(one), message) and missing(one, message)]
                if lacking:
                    yield _finding(name, row, message, missing(lacking[0], message)[0], lacking)


def stable_receipts(life: LifeRows) -> Iterator[Event]:
    for row in life.rows:
        if row.kind == RECEIPT and value_of(row, "stage") == "stable" and value_of(row, "outcome") == OK:
            yield row


def _is_excused(life: LifeRows | None, message: CastRange) -> bool:
    if life is None or not life.is_whole or life.ending == CRASH or life.is_cut_in(message.view):
        return True
    entered = life.views.get(message.view)
    return life.replaced(-1 if entered is None else entered.local_index)


def _finding(name: str, row: Event, message: CastRange, part: Range, lacking: list[str]) -> Breach:
    members = (name, *(one for one in lacking if one != name))
    more = {"message": named(name, *part), "lacking": sorted(lacking)}
    return Breach("lost", members, message.view, row.local_index, more)


class Stable(ShownChecker):
    about = PropertyRecord(
        id="P26",
        name="stable is kept",
        says="A message that its caster was told is stable is delivered by everyone.",
        exact=__doc__,
        rows=(RECEIPT, CAST, DELIVER, STATE, SNAPSHOT_IN),
        roles=("who",),
        witness={"what": Kind.TEXT, "local": RowOf("who"), "message": Kind.MESSAGES, "lacking": Kind.MEMBERS},
        sentence="{who} was told that {message} is stable (local {local}), but {lacking} never delivered it in view {view}.",
        example=Example(("a", "b"), "1@a", {"what": "lost", "local": 3, "message": "a:0", "lacking": ["b"]}),
    )

    def decide(self, lives: dict[str, LifeRows]) -> Iterator[Breach]:
        self._delivered: dict[tuple[str, str], SpansOf] = {}  # by life and view
        return decide(lives, self._cast, self._missing)

    def _cast(self, name: str, first: int, end: int) -> list[CastRange]:
        parts = self.history.by_name[name].cast_of(first, end)
        return [
            CastRange(name, low, high, cast.view, cast.destinations) for low, high, cast in parts if cast is not None
        ]

    def _missing(self, who: str, message: CastRange) -> list[Range]:
        key = (who, message.view)
        spans = self._delivered.get(key)
        if spans is None:
            spans = self._delivered[key] = SpansOf()
            stay = self.history.by_name[who].stays.get(message.view)
            if stay is not None:
                for one in delivered_in(stay, lambda number: self.history.numbered[number].name):
                    spans.add((one.origin,), one.first, one.end)
        return spans.outside((message.origin,), message.first, message.end)
