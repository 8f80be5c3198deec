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
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
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
    about = PropertyRecord(
        id="P16",
        name="merge",
        says="A merged view names its parts, and nothing of the old view comes after the new one.",
        exact=__doc__,
        rows=tuple(sorted(TRAFFIC)),
        roles=("who",),
        witness={
            "what": Kind.TEXT, "local": RowOf("who"), "kind": Kind.TEXT, "installed": Kind.VIEW, "extra": Kind.TEXT,
            "lacking": Kind.TEXT,
        },
        sentence={
            "row": "{who} has a {kind} of view {view} (local {local}) after it installed view {installed}.",
            "message": "{who} has the {kind} of a message cast in view {view} (local {local}) after it installed view "
            "{installed}.",
            "parts": "{who} installed view {view} (local {local}) with wrong parts[; no member came from {extra}, which it names]"
            "[; some came from {lacking}, which it does not name].",
        },
        example=Example(("b",), "1@a", {"what": "row", "local": 2, "kind": "RECEIVE", "installed": "2@a"}),
    )  # fmt: skip

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
            self._report_late("row", life, event, view)

    def deliver(self, delivery: DeliveredPart) -> None:
        life, event, cast = delivery.stay.life, delivery.event, delivery.cast
        current = life.stay
        if cast is None or current is None or event.view != current.id or cast.view == current.id:
            return
        if cast.view in self._installed[life] and self._told != (life, event.local_index):
            self._told = (life, event.local_index)
            self._report_late("message", life, event, cast.view)

    place = deliver

    def _report_late(self, what: str, life: Life, event: Event, view: str) -> None:
        assert life.stay is not None
        self.report([life.name], view, what=what, local=event.local_index, kind=event.kind, installed=life.stay.id)

    def conclude(self) -> None:
        for view, arrivals in self._arrivals.items():
            came = {row.previous for row in arrivals if row.previous is not None}
            seen = {row.who for row in arrivals}
            for row in arrivals:
                if row.parts is None:
                    if len(came) > 1:
                        self._report_parts(view, row, [], sorted(came))
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
            self._report_parts(view, row, sorted(extra), sorted(came - parts))

    def _report_parts(self, view: str, row: _Arrival, extra: list[str], lacking: list[str]) -> None:
        self.report([row.who], view, what="parts", local=row.local, extra=extra, lacking=lacking)
