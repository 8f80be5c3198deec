"""P6 FIFO, P7 gap-free FIFO.

P6: per (member, origin, origin's incarnation) the index increases, across views; placeholders count.
P7: … without gaps inside a view: before a message, everything that its origin cast earlier in this view is delivered
or placed, its first message of the view included. A void payload is exempt: its placeholder may come anywhere. So is a
datagram: nothing waits for it.

Where one stream carries two services, a message that is not `total` need not wait for an earlier `total` one of its origin (as in
P8); so that pair alone may come in the other order.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History, is_void
from unisono.trace.checks.model import DeliveredPart, Life, Stay, message_name
from unisono.trace.checks.spans import Spans
from unisono.trace.schema import DATAGRAM, TOTAL


class FifoOrder(Checker):
    id = "P6"

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        # By life and origin: the end of the highest delivered so far, of any service and of `total`, with local indices.
        self._last: defaultdict[Life, dict[Life, list[int]]] = defaultdict(dict)

    def deliver(self, delivery: DeliveredPart) -> None:
        lasts = self._last[delivery.stay.life]
        last = lasts.get(delivery.origin)
        if last is None:
            last = lasts[delivery.origin] = [0, 0, 0, 0]
        first, end, event = delivery.first, delivery.end, delivery.event
        total = event.service == TOTAL
        if first < (last[2] if total else last[0]):
            self._say(delivery, last[2:] if total else last[:2])
        if end > last[0]:
            last[0] = end
            last[1] = event.local_index
        if total and end > last[2]:
            last[2] = end
            last[3] = event.local_index

    place = deliver

    def _say(self, delivery: DeliveredPart, last: list[int]) -> None:
        life, local = delivery.stay.life, delivery.event.local_index
        before = message_name(delivery.origin, last[0] - 1, last[0])
        self.report(
            [life.name],
            f"{life.name} delivered {before} (local {last[1]}) before {delivery.name} (local {local}).",
            message=delivery.name,
            before=before,
            view=delivery.stay.id,
            local=local,
            before_local=last[1],
        )


class _Gap(NamedTuple):
    stay: Stay
    origin: Life
    first: int
    end: int
    later: str
    local: int


class GapFreeFifo(Checker):
    id = "P7"

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
                    self._say(gap)
            told.add(low, high)

    def conclude(self) -> None:
        for gap in self._perhaps_void:
            voids = gap.stay.voids.get(gap.origin.number, Spans())
            for first, end in voids.outside(gap.first, gap.end):
                self._say(gap._replace(first=first, end=end))

    def _say(self, gap: _Gap) -> None:
        life, name = gap.stay.life, message_name(gap.origin, gap.first, gap.end)
        self.report(
            [life.name],
            f"{life.name} delivered {gap.later} (local {gap.local}) without {name} before it in view {gap.stay.id}.",
            message=gap.later,
            missing=name,
            view=gap.stay.id,
            local=gap.local,
        )
