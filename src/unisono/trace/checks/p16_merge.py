"""P16 merge: `parts` are the previous views of the members; nothing of the old view comes after the new one.

The parts of a VIEW row for V' are the set of all views from which members of V' came (the `previous_view` of every VIEW row
for V'). They may be left out (null) where at most one view led to V'. A part from which no member is seen to have come is
allowed if some member of V' without a VIEW row for it may have come from there: it had installed that view, or its trace
is not whole.

After a life installed a new view, none of its rows (CAST, RECEIVE, ORDERED, DELIVER, PLACE, STABLE, VOTE, DECIDE) names a view
that it had installed before, and it delivers and places no message that was cast in such a view.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import DeliveredPart, Life, Stay
from unisono.trace.schema import CAST, DECIDE, DELIVER, ORDERED, PLACE, RECEIVE, STABLE, VOTE, Event

TRAFFIC = frozenset({CAST, RECEIVE, ORDERED, DELIVER, PLACE, STABLE, VOTE, DECIDE})
"""Kinds of rows that belong to the view that they name."""


class _Arrival(NamedTuple):
    who: str
    members: tuple[str, ...]
    previous: str | None
    parts: frozenset[str] | None
    local: int


class MergedViews(Checker):
    id = "P16"

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._installed: defaultdict[Life, set[str]] = defaultdict(set)
        self._arrivals: defaultdict[str, list[_Arrival]] = defaultdict(list)  # by view
        self._told: tuple[Life, int] | None = None  # a row in several parts is told once

    def view(self, stay: Stay, event: Event) -> None:
        self._installed[stay.life].add(stay.id)
        parts = None if event.parts is None else frozenset(event.parts)
        row = _Arrival(stay.life.name, stay.view.members, event.previous_view, parts, event.local_index)
        self._arrivals[stay.id].append(row)

    def row(self, life: Life, event: Event) -> None:
        view, current = event.view, life.stay
        if event.kind not in TRAFFIC or view is None or current is None or view == current.id:
            return
        if view in self._installed[life]:
            self._say_late(life, event, view, "row")

    def deliver(self, delivery: DeliveredPart) -> None:
        life, event, cast = delivery.stay.life, delivery.event, delivery.cast
        current = life.stay
        if cast is None or current is None or event.view != current.id or cast.view == current.id:
            return
        if cast.view in self._installed[life] and self._told != (life, event.local_index):
            self._told = (life, event.local_index)
            self._say_late(life, event, cast.view, "message")

    place = deliver

    def _say_late(self, life: Life, event: Event, view: str, what: str) -> None:
        assert life.stay is not None
        thing = (
            f"a {event.kind} of view {view}" if what == "row" else f"the {event.kind} of a message cast in view {view}"
        )
        self.report(
            [life.name],
            f"{life.name} has {thing} (local {event.local_index}) after it installed view {life.stay.id}.",
            what=what,
            view=view,
            installed=life.stay.id,
            local=event.local_index,
        )

    def conclude(self) -> None:
        for view, arrivals in self._arrivals.items():
            came = {row.previous for row in arrivals if row.previous is not None}
            seen = {row.who for row in arrivals}
            for row in arrivals:
                if row.parts is None:
                    if len(came) > 1:
                        self._say_parts(view, row, [], sorted(came))
                elif row.parts != came:
                    self._judge(view, row, row.parts, came, seen)

    def _judge(self, view: str, row: _Arrival, parts: frozenset[str], came: set[str], seen: set[str]) -> None:
        extra = parts - came
        for name in row.members:
            if name in seen:
                continue
            life = self.history.by_name.get(name)
            if life is None or life.unknown is not None:
                extra = frozenset()
            else:
                extra -= self._installed[life]
        if extra or came - parts:
            self._say_parts(view, row, sorted(extra), sorted(came - parts))

    def _say_parts(self, view: str, row: _Arrival, extra: list[str], lacking: list[str]) -> None:
        wrongs = [f"names {', '.join(extra)}, from which no member came"] if extra else []
        wrongs += [f"does not name {', '.join(lacking)}, from which some came"] if lacking else []
        self.report(
            [row.who],
            f"{row.who} installed view {view} (local {row.local}) with parts in which it {' and '.join(wrongs)}.",
            what="parts",
            view=view,
            extra=extra,
            lacking=lacking,
            local=row.local,
        )
