"""P6 FIFO: per (member, origin, origin's incarnation) the index increases, across views; placeholders count.

Where one stream carries two services, a message that is not `total` need not wait for an earlier `total` one of its origin (as in
P8); so that pair alone may come in the other order.
"""

from __future__ import annotations

from collections import defaultdict

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import DeliveredPart, Life, message_name
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import DELIVER, PLACE, TOTAL


class FifoOrder(Checker):
    about = PropertyRecord(
        id="P6",
        name="FIFO",
        says="Messages of one origin are delivered in the order in which it cast them.",
        exact=__doc__,
        rows=(DELIVER, PLACE),
        roles=("who",),
        witness={
            "message": Kind.MESSAGES, "local": RowOf("who"), "before": Kind.MESSAGES, "before_local": RowOf("who"),
        },
        sentence="{who} delivered {before} (local {before_local}) before {message} (local {local}).",
        example=Example(("b",), "1@a", {"message": "a:0", "local": 2, "before": "a:1", "before_local": 1}),
    )  # fmt: skip

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
            self._report(delivery, last[2:] if total else last[:2])
        if end > last[0]:
            last[0] = end
            last[1] = event.local_index
        if total and end > last[2]:
            last[2] = end
            last[3] = event.local_index

    place = deliver

    def _report(self, delivery: DeliveredPart, last: list[int]) -> None:
        self.report(
            [delivery.stay.life.name],
            delivery.stay.id,
            message=delivery.name,
            local=delivery.event.local_index,
            before=message_name(delivery.origin, last[0] - 1, last[0]),
            before_local=last[1],
        )
