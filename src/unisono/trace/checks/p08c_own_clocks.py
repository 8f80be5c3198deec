"""P8c own clocks: the vector that `causal` stamped equals the frontier computed from the trace.

The vector (`attributes.vector` on CAST, DELIVER and PLACE rows) counts, by rank and in messages of this view, what the caster
had delivered or placed when it cast; its own entry counts what it had cast before this batch. Not asked where rows of the
caster's stay are missing. In a view with safe messages the order counts what still waits to become safe, too: an entry other than
its caster's own is at least the frontier, and at most what its origin cast in the view, if that origin's trace is whole. A CAST
without a vector breaks nothing, but keeps a life from passing where the order owes P8c (`History.doubts`).
"""

from __future__ import annotations

import json
from math import inf

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Cast, DeliveredPart, Stay, message_name
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.files import parse_json
from unisono.trace.schema import CAST, DELIVER, PLACE, Event, attribute


class OwnClocks(Checker):
    about = PropertyRecord(
        id="P8c",
        name="own clocks",
        says="The vectors that the protocol stamps say what the trace says.",
        exact=__doc__,
        rows=(CAST, DELIVER, PLACE),
        roles=("who",),
        witness={"message": Kind.MESSAGES, "local": RowOf("who"), "vector": Kind.TEXT, "frontier": Kind.TEXT},
        sentence="{who} cast {message} (local {local}) when it had delivered {frontier} in view {view}, but its vector says "
        "{vector}.",
        example=Example(("b",), "1@a", {"message": "b:0", "local": 2, "vector": "[0,0]", "frontier": "[1,0]"}),
    )

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._delivered: dict[Stay, list[int]] = {}  # by rank, in messages
        self._frontiers: dict[Cast, str] = {}  # as the attributes would hold it
        self._apart: dict[Cast, tuple[str, list[str]]] = {}  # the frontier and other vectors

    def cast(self, cast: Cast, event: Event) -> None:
        stay = cast.stay
        frontier = self._counts(stay).copy()
        if stay.rank is not None:
            frontier[stay.rank] = cast.first - cast.origin.starts.get(cast.view, cast.first)
        if not stay.holed:
            self._frontiers[cast] = attribute(frontier)
            self._compare(cast, event)

    def deliver(self, delivery: DeliveredPart) -> None:
        cast, rank = delivery.cast, delivery.rank
        if rank is not None and (cast is None or cast.view == delivery.stay.id):
            self._counts(delivery.stay)[rank] += delivery.end - delivery.first
        if cast is not None and cast.first == delivery.event.first:
            self._compare(cast, delivery.event)

    place = deliver

    def _counts(self, stay: Stay) -> list[int]:
        counts = self._delivered.get(stay)
        if counts is None:
            counts = self._delivered[stay] = [0] * len(stay.view.members)
        return counts

    def _compare(self, cast: Cast, event: Event) -> None:
        vector = None if event.attributes is None else event.attributes.get("vector")
        frontier = self._frontiers.get(cast)
        if vector is None or frontier is None or vector == frontier or _parsed(vector) == json.loads(frontier):
            return
        _, others = self._apart.setdefault(cast, (frontier, []))
        if vector not in others:
            others.append(vector)

    def conclude(self) -> None:
        for cast, (frontier, vectors) in self._apart.items():
            is_safe = cast.view in self.history.safe_views
            wrong = [
                one for one in vectors if not (is_safe and self._may_wait(cast, json.loads(frontier), _parsed(one)))
            ]
            if not wrong:
                continue
            self.report(
                [cast.origin.name],
                cast.view,
                message=message_name(cast.origin, cast.first, cast.end),
                local=cast.local_index,
                vector=wrong[0],  # told once
                frontier=frontier,
            )

    def _may_wait(self, cast: Cast, frontier: list[int], vector: object) -> bool:
        """Whether what a vector counts beyond the frontier may wait to become safe."""
        if not isinstance(vector, list) or len(vector) != len(frontier):
            return False
        for name, delivered, counted in zip(cast.stay.view.members, frontier, vector, strict=True):
            is_own = name == cast.origin.name
            if type(counted) is not int or counted < delivered or (is_own and counted > delivered):
                return False
            if not is_own and counted > self._cast_by(name, cast.view):
                return False
        return True

    def _cast_by(self, name: str, view: str) -> float:
        life = self.history.by_name.get(name)
        if life is None or life.unknown is not None:
            return inf
        return sum(cast.end - cast.first for cast in life.casts.values() if cast.view == view)


def _parsed(vector: str) -> object:
    try:
        return parse_json(vector)
    except ValueError:
        return None
