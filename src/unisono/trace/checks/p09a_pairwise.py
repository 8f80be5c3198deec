"""P9a total, pairwise: two members of one (V→V') that deliver m and m' agree on their order.

Judges the service `total`; placeholders count. Members with the same sequence, or one a prefix of the other, agree; only the
distinct sequences of a (V→V') are compared, each with each.
"""

from __future__ import annotations

from itertools import combinations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.model import ViewPassage, message_name
from unisono.trace.checks.sequences import Ordered, aligned, are_prefixes, distinct, first_places, ordered


class TotalPairwise(Checker):
    id = "P9a"

    def conclude(self) -> None:
        for transition in self.history.transitions():
            sequences = [ordered(stay) for stay in transition.stays]
            if not are_prefixes(sequences):
                for one, other in combinations(distinct(aligned(sequences)), 2):
                    self._compare(transition, one, other)

    def _compare(self, transition: ViewPassage, one: Ordered, other: Ordered) -> None:
        """Walk along `one`: the places of its units in `other` must rise. The first fall is the witness."""
        places = first_places(other.units)
        highest, highest_at = -1, -1
        for at in first_places(one.units).values():
            place = places.get(one.units[at])
            if place is None:
                continue
            if place < highest:
                self._say(transition, one, highest_at, at, other, place, highest)
                return
            highest, highest_at = place, at

    def _say(
        self,
        transition: ViewPassage,
        one: Ordered,
        x_at: int,
        y_at: int,
        other: Ordered,
        other_y_at: int,
        other_x_at: int,
    ) -> None:
        lives = self.history.numbered
        x, y = (message_name(lives[unit[0]], *unit[1:]) for unit in (one.units[x_at], one.units[y_at]))
        self.report(
            [one.name, other.name],
            f"{one.name} delivered {x} (local {one.locals[x_at]}) before {y} (local {one.locals[y_at]}), {other.name} "
            f"delivered {y} (local {other.locals[other_y_at]}) before {x} (local {other.locals[other_x_at]}), "
            f"in view {transition.view}.",
            view=transition.view,
            messages=[x, y],
            locals={
                one.name: [one.locals[x_at], one.locals[y_at]],
                other.name: [other.locals[other_x_at], other.locals[other_y_at]],
            },
        )
