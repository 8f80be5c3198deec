"""P9a total, pairwise: two members of one (V→V') that deliver m and m' agree on their order.

Judges the service `total`; placeholders count. Members with the same sequence, or one a prefix of the other, agree; only the
distinct sequences of a (V→V') are compared, each with each.
"""

from __future__ import annotations

from itertools import combinations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.deliveries import Ordered, aligned, are_prefixes, distinct, first_places, ordered
from unisono.trace.checks.model import ViewPassage, message_name
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import DELIVER, PLACE


class TotalPairwise(Checker):
    about = PropertyRecord(
        id="P9a",
        name="total, pairwise",
        says="Two members that deliver the same two messages agree which comes first.",
        exact=__doc__,
        rows=(DELIVER, PLACE),
        roles=("one", "two"),
        witness={
            "x": Kind.MESSAGES, "y": Kind.MESSAGES, "x_local": RowOf("one"), "y_local": RowOf("one"),
            "other_x_local": RowOf("two"), "other_y_local": RowOf("two"),
        },
        sentence="{one} delivered {x} (local {x_local}) before {y} (local {y_local}), {two} delivered {y} (local {other_y_local}) "
        "before {x} (local {other_x_local}), in view {view}.",
        example=Example(
            ("a", "b"), "1@a", {"x": "a:0", "y": "b:0", "x_local": 2, "y_local": 3, "other_x_local": 3, "other_y_local": 2}
        ),
    )  # fmt: skip

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
                self._report(transition, (one, highest_at, at), (other, highest, place))
                return
            highest, highest_at = place, at

    def _report(self, transition: ViewPassage, one: tuple[Ordered, int, int], two: tuple[Ordered, int, int]) -> None:
        """Two sequences, each with the places of x and y in it."""
        (mine, x_at, y_at), (theirs, their_x_at, their_y_at) = one, two
        lives = self.history.numbered
        x, y = (message_name(lives[unit[0]], *unit[1:]) for unit in (mine.units[x_at], mine.units[y_at]))
        self.report(
            [mine.name, theirs.name],
            transition.view,
            x=x,
            y=y,
            x_local=mine.locals[x_at],
            y_local=mine.locals[y_at],
            other_x_local=theirs.locals[their_x_at],
            other_y_local=theirs.locals[their_y_at],
        )
