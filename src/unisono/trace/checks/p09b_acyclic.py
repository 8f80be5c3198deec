"""P9b total, acyclic: the union of the delivery orders of one (V→V') has no cycle.

Stronger than P9a where members deliver different subsets: A delivers x before y, B y before z, C z before x, and no two of
them disagree. Judges the service `total`; placeholders count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import TypeAlias, TypeVar

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.deliveries import Ordered, aligned, are_prefixes, distinct, first_places, ordered
from unisono.trace.checks.model import Span, ViewPassage, message_name
from unisono.trace.checks.property import Each, Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import DELIVER, PLACE

Unit = TypeVar("Unit", bound=tuple[object, ...])
Speaker = TypeVar("Speaker")
Edges: TypeAlias = Mapping[Unit, Mapping[Unit, Speaker]]
"""By unit: the units that come right after it, each with who says so."""


class TotalAcyclic(Checker):
    about = PropertyRecord(
        id="P9b",
        name="total, acyclic",
        says="All members' orders of delivery together contain no circle.",
        exact=__doc__,
        rows=(DELIVER, PLACE),
        roles=("one",),
        witness={
            "circle": Each(
                {
                    "who": Kind.MEMBERS, "x": Kind.MESSAGES, "y": Kind.MESSAGES, "x_local": RowOf("who"),
                    "y_local": RowOf("who"),
                },
                "{who} delivered {x} (local {x_local}) before {y} (local {y_local})",
            ),
            "x": Kind.MESSAGES, "y": Kind.MESSAGES, "x_local": RowOf("one"), "y_local": RowOf("one"),
        },
        sentence="In view {view} [the orders go in a circle: {circle}|{one} delivered {x} (local {x_local}) before {y} (local "
        "{y_local}), but the orders of all members together put {y} before {x}].",
        example=Example(
            ("a", "b", "c"), "1@a", {"circle": [("a", "a:0", "b:0", 2, 3), ("b", "b:0", "c:0", 2, 3), ("c", "c:0", "a:0", 2, 3)]}
        ),
        implies=("P9a",),
    )  # fmt: skip

    # The edges are those between consecutive deliveries of one member, whose closure is the whole order. Taking away what
    # has no predecessor leaves the cycles; one of them is the witness, its edges joined where they are of the same member.

    def conclude(self) -> None:
        for transition in self.history.transitions():
            sequences = [ordered(stay) for stay in transition.stays]
            if not are_prefixes(sequences):
                self._judge(transition, distinct(aligned(sequences)))

    def _judge(self, transition: ViewPassage, sequences: list[Ordered]) -> None:
        edges: dict[Span, dict[Span, Ordered]] = {}
        for sequence in sequences:
            units = list(first_places(sequence.units))
            for one, other in pairwise(units):
                edges.setdefault(one, {}).setdefault(other, sequence)
        lives = self.history.numbered
        circle = []
        for said_by, one, other in circle_in(edges):
            places = first_places(said_by.units)
            x, y = (message_name(lives[unit[0]], *unit[1:]) for unit in (one, other))
            circle.append((said_by.name, x, y, said_by.locals[places[one]], said_by.locals[places[other]]))
        if circle:
            self.report(dict.fromkeys(who for who, *_ in circle), transition.view, circle=circle)


def circle_in(edges: Edges[Unit, Speaker]) -> list[tuple[Speaker, Unit, Unit]]:
    """A circle, if there is one: who says that one unit comes before another, consecutive edges of one speaker joined."""
    rest = _without_sources(edges)
    if not rest:
        return []
    cycle = _shortest_cycle(edges, rest)
    steps: list[tuple[Speaker, Unit, Unit]] = []
    for one, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        said_by = edges[one][other]
        if steps and steps[-1][0] == said_by:
            steps[-1] = (said_by, steps[-1][1], other)
        else:
            steps.append((said_by, one, other))
    if len(steps) > 1 and steps[0][0] == steps[-1][0]:
        steps[0] = (steps[0][0], steps.pop()[1], steps[0][2])
    return steps


def _without_sources(edges: Edges[Unit, Speaker]) -> set[Unit]:
    """What is left when units without a predecessor are taken away, again and again: empty if there is no cycle."""
    before: dict[Unit, int] = dict.fromkeys(edges, 0)
    for following in edges.values():
        for unit in following:
            before[unit] = before.get(unit, 0) + 1
    free = [unit for unit, count in before.items() if not count]
    while free:
        unit = free.pop()
        del before[unit]
        for other in edges.get(unit, ()):
            before[other] -= 1
            if not before[other]:
                free.append(other)
    return set(before)


def _shortest_cycle(edges: Edges[Unit, Speaker], rest: set[Unit]) -> list[Unit]:
    """A shortest cycle through the first unit that is on one (a unit of `rest` may also just follow a cycle)."""
    for start in sorted(rest):
        came_from: dict[Unit, Unit] = {}
        queue = deque([start])
        while queue:
            unit = queue.popleft()
            for other in edges.get(unit, ()):
                if other == start:
                    cycle = [unit]
                    while cycle[-1] != start:
                        cycle.append(came_from[cycle[-1]])
                    return cycle[::-1]
                if other in rest and other not in came_from:
                    came_from[other] = unit
                    queue.append(other)
    raise AssertionError("what remains without sources holds a cycle")
