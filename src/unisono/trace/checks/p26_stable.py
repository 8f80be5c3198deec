"""P26 stable is kept: what a caster was told is stable is delivered by every member of its view.

Let `stable` be ``ok`` in a RECEIPT row of p for its message m, which it cast in V. Every member of V that m is addressed to
delivers m in V, or takes over a state after it entered V (STATE, SNAPSHOT_IN), unless it crashes.

Nothing is concluded about a member whose trace is not whole, nor of a view that was its last one when the run was cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from unisono.trace.checks.attributes import value_of
from unisono.trace.checks.model import Cast, named
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.shown_rows import Breach, LifeRows, Range, ShownChecker, SpansOf
from unisono.trace.schema import CAST, CRASH, DELIVER, OK, RECEIPT, SNAPSHOT_IN, STATE, Event


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
        for name in sorted(lives):
            for row in lives[name].rows:
                if row.kind == RECEIPT and value_of(row, "stage") == "stable" and value_of(row, "outcome") == OK:
                    yield from self._judge(lives, name, row)

    def _judge(self, lives: dict[str, LifeRows], name: str, row: Event) -> Iterator[Breach]:
        assert row.first is not None
        assert row.count is not None
        for low, high, cast in self.history.by_name[name].cast_of(row.first, row.first + row.count):
            entered = None if cast is None else lives[name].views.get(cast.view)
            if cast is None or entered is None:
                continue
            asked = [one for one in entered.members or () if cast.destinations is None or one in cast.destinations]
            missing = {
                one: self._missing(one, cast, low, high) for one in asked if not _is_excused(lives.get(one), cast)
            }
            lacking = [one for one in asked if missing.get(one)]
            if lacking:
                members = (name, *(one for one in lacking if one != name))
                more = {"message": named(name, *missing[lacking[0]][0]), "lacking": sorted(lacking)}
                yield Breach("lost", members, cast.view, row.local_index, more)

    def _missing(self, who: str, cast: Cast, first: int, end: int) -> list[Range]:
        """What one life did not deliver of a cast in its view."""
        key = (who, cast.view)
        spans = self._delivered.get(key)
        if spans is None:
            spans = self._delivered[key] = SpansOf()
            stay = self.history.by_name[who].stays.get(cast.view)
            for one in () if stay is None else self.delivered(stay):
                spans.add((one.origin,), one.first, one.end)
        return spans.outside((cast.origin.name,), first, end)


def _is_excused(life: LifeRows | None, cast: Cast) -> bool:
    if life is None or not life.is_whole or life.ending == CRASH or life.is_cut_in(cast.view):
        return True
    entered = life.views.get(cast.view)
    return life.replaced(-1 if entered is None else entered.local_index)
