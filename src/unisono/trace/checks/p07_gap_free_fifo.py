"""P7 FIFO without gaps: before a message, everything that its origin cast earlier in this view is delivered or placed.

The origin's first message of the view is included. A void payload is exempt: its placeholder may come anywhere. So is a datagram:
nothing waits for it. Where one stream carries two services, a message that is not `total` need not wait for an earlier `total`
one of its origin (as in P8).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History, is_void
from unisono.trace.checks.model import DeliveredPart, Life, Stay, message_name
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.spans import Spans
from unisono.trace.schema import CAST, DATAGRAM, DELIVER, PLACE, TOTAL


class _Gap(NamedTuple):
    stay: Stay
    origin: Life
    first: int
    end: int
    later: str
    local: int


class GapFreeFifo(Checker):
    about = PropertyRecord(
        id="P7",
        name="FIFO without gaps",
        says="Messages of one origin are delivered in its order, and none of them is left out within a view.",
        exact=__doc__,
        rows=(CAST, DELIVER, PLACE),
        roles=("who",),
        witness={"message": Kind.MESSAGES, "local": RowOf("who"), "missing": Kind.MESSAGES},
        sentence="{who} delivered {message} (local {local}) without {missing} before it in view {view}.",
        example=Example(("b",), "1@a", {"message": "a:1", "local": 1, "missing": "a:0"}),
    )

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._told: defaultdict[tuple[Stay, Life], Spans] = defaultdict(Spans)
        # Below it, everything that is not `total` was judged: many messages may overtake one `total` that is late.
        self._weak: dict[tuple[Stay, Life], int] = {}
        self._perhaps_void: list[_Gap] = []

    def deliver(self, delivery: DeliveredPart) -> None:
        stay, rank, cast = delivery.stay, delivery.rank, delivery.cast
        if rank is None or delivery.first <= stay.next[rank] or stay.holed:
            return
        if cast is not None and cast.view != stay.id:
            return
        weak = delivery.event.service != TOTAL
        start = self._weak.get((stay, delivery.origin), 0) if weak else 0
        for first, end in stay.missing(delivery.origin, rank, start, delivery.first):
            self._judge(delivery, first, end, weak)
        if weak:
            self._weak[stay, delivery.origin] = delivery.first

    def place(self, delivery: DeliveredPart) -> None:
        if not is_void(delivery.event):
            self.deliver(delivery)

    def _judge(self, delivery: DeliveredPart, first: int, end: int, weak: bool) -> None:
        stay, origin = delivery.stay, delivery.origin
        told = self._told[stay, origin]
        for low, high, cast in list(origin.cast_of(first, end)):
            if cast is not None and (cast.service == DATAGRAM or (weak and cast.service == TOTAL)):
                continue
            for one, other in told.outside(low, high):
                gap = _Gap(stay, origin, one, other, delivery.name, delivery.event.local_index)
                if cast is not None and cast.destinations is not None and cast.addresses(stay.life):
                    self._perhaps_void.append(gap)
                else:
                    self._report(gap)
            told.add(low, high)

    def conclude(self) -> None:
        for gap in self._perhaps_void:
            voids = gap.stay.voids.get(gap.origin.number, Spans())
            for first, end in voids.outside(gap.first, gap.end):
                self._report(gap._replace(first=first, end=end))

    def _report(self, gap: _Gap) -> None:
        missing = message_name(gap.origin, gap.first, gap.end)
        self.report([gap.stay.life.name], gap.stay.id, message=gap.later, local=gap.local, missing=missing)
