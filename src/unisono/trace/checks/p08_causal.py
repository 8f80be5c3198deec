"""P8 causal: if m → m' and both are addressed to p, p delivers m first.

past(m) is the union of the pasts of everything that m's caster had cast or delivered before, in this view, and of those messages
themselves; a placeholder counts as delivered there, so that the past is transitive through messages not addressed to p. A message
that is not `total` need not wait for a `total` one of its past. A void payload is exempt.

The past is computed from the trace, never from the protocol's own clocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from operator import gt
from typing import NamedTuple

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Cast, DeliveredPart, Life, Stay, message_name
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.spans import Spans
from unisono.trace.schema import CAST, DELIVER, PLACE, TOTAL, Event


class _Late(NamedTuple):
    """`stay` delivered something (local_index `local`) without ``first … end-1`` of its past."""

    stay: Stay
    cast: Cast
    first: int
    end: int
    later: str
    local: int


class CausalOrder(Checker):
    about = PropertyRecord(
        id="P8",
        name="causal",
        says="No answer is delivered before its question: all of a message's past comes first.",
        exact=__doc__,
        rows=(CAST, DELIVER, PLACE),
        roles=("who",),
        witness={
            "message": Kind.MESSAGES, "local": RowOf("who"), "past": Kind.MESSAGES, "past_caster": Kind.MEMBERS,
            "past_local": RowOf("past_caster"),
        },
        sentence="{who} delivered {message} (local {local}) in view {view} before {past}, which is in its past ({past_caster} "
        "cast it at local {past_local}).",
        example=Example(
            ("c",), "1@a", {"message": "b:0", "local": 1, "past": "a:0", "past_caster": "a", "past_local": 1}
        ),
    )  # fmt: skip

    # Keeps the past as a **frontier**: by rank, up to which index the origin's messages are in it. That loses nothing,
    # because what an origin cast earlier is in the past of what it cast later. So each CAST copies its caster's frontier,
    # each delivery raises it, and judging a delivery compares two lists: O(N·n) in all. Why a clean delivery need not raise
    # the frontier by the message's past: everything in that past was delivered here before, so it is in the frontier
    # already. Only where the comparison fails must the two be merged.

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._known: dict[Stay, list[int]] = {}  # by rank: the frontier of all that this stay has cast and delivered
        self._past: dict[Cast, list[int]] = {}
        self._told: defaultdict[tuple[Stay, Life], Spans] = defaultdict(Spans)
        # By rank: below it, everything that is not `total` was judged; many may overtake one `total` that is late.
        self._weak: dict[Stay, list[int]] = {}
        self._perhaps_void: list[_Late] = []

    def cast(self, cast: Cast, event: Event) -> None:
        known = self._frontier(cast.stay)
        self._past[cast] = known.copy()
        if cast.stay.rank is not None:
            known[cast.stay.rank] = cast.end

    def deliver(self, delivery: DeliveredPart) -> None:
        self._take(delivery, True)

    def place(self, delivery: DeliveredPart) -> None:
        self._take(delivery, False)

    def _take(self, delivery: DeliveredPart, judged: bool) -> None:
        stay, rank, cast = delivery.stay, delivery.rank, delivery.cast
        if rank is None or (cast is not None and cast.view != stay.id):
            return
        known = self._known.get(stay)
        if known is None:
            known = self._frontier(stay)
        if cast is not None:
            past = self._past[cast]
            if cast.stay.view is not stay.view:
                past = _translated(past, cast.stay, stay)
            if stay.next[rank] < delivery.first or True in map(gt, past, stay.next):
                if judged and not stay.holed:
                    self._judge(delivery, cast, past)
                known[:] = map(max, known, past)
        if known[rank] < delivery.end:
            known[rank] = delivery.end

    def _frontier(self, stay: Stay) -> list[int]:
        return self._known.setdefault(stay, [-1] * len(stay.view.members))

    def _judge(self, delivery: DeliveredPart, cast: Cast, past: list[int]) -> None:
        stay = delivery.stay
        for missed, first, end in list(self._missed(delivery, past, cast.service != TOTAL)):
            if not missed.addresses(stay.life) or (missed.service == TOTAL and cast.service != TOTAL):
                continue
            told = self._told[stay, missed.origin]
            for low, high in told.outside(first, end):
                late = _Late(stay, missed, low, high, delivery.name, delivery.event.local_index)
                if missed.destinations is None:
                    self._report(late)
                else:
                    self._perhaps_void.append(late)
            told.add(first, end)

    def _missed(self, delivery: DeliveredPart, past: list[int], weak: bool) -> Iterator[tuple[Cast, int, int]]:
        """What of the past was not delivered here before: parts of casts of this view."""
        stay = delivery.stay
        judged = self._weak.setdefault(stay, [0] * len(past)) if weak else None
        for rank, bound in enumerate(past):
            if rank == delivery.rank:
                bound = delivery.first
            start = 0
            if judged is not None:
                start, judged[rank] = judged[rank], max(judged[rank], bound)
            if bound <= stay.next[rank] or bound <= start:
                continue
            origin = self.history.by_name[stay.view.members[rank]]
            for first, end in stay.missing(origin, rank, start, bound):
                for low, high, missed in origin.cast_of(first, end):
                    if missed is not None and missed.view == stay.id:
                        yield missed, low, high

    def conclude(self) -> None:
        for late in self._perhaps_void:
            voids = late.stay.voids.get(late.cast.origin.number, Spans())
            for first, end in voids.outside(late.first, late.end):
                self._report(late._replace(first=first, end=end))

    def _report(self, late: _Late) -> None:
        self.report(
            [late.stay.life.name],
            late.stay.id,
            message=late.later,
            local=late.local,
            past=message_name(late.cast.origin, late.first, late.end),
            past_caster=late.cast.origin.name,
            past_local=late.cast.local_index,
        )


def _translated(past: list[int], caster: Stay, stay: Stay) -> list[int]:
    """A frontier by the ranks of another member's list, for two members that disagree about the list."""
    ranks = caster.view.ranks
    return [past[ranks[name]] if name in ranks else -1 for name in stay.view.members]
