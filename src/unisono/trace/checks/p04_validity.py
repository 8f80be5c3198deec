"""P4 validity: a correct member delivers what it cast, or places it if it did not address itself.

Correct: it ends with END or LEAVE. Not asked of a life with missing rows, nor, if it ended with the reason `cut`, of what it
cast in its last view.
"""

from __future__ import annotations

from collections import defaultdict

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import DeliveredPart, Life, message_name
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.spans import Spans
from unisono.trace.schema import CAST, CUT, DELIVER, END, LEAVE, PLACE


class Validity(Checker):
    about = PropertyRecord(
        id="P4",
        name="validity",
        says="A member that does not crash delivers what it cast itself.",
        exact=__doc__,
        rows=(CAST, DELIVER, PLACE),
        roles=("who",),
        witness={"message": Kind.MESSAGES, "local": RowOf("who"), "ending": Kind.TEXT},
        sentence="{who} cast {message} (local {local}, view {view}) and never delivered it, although it ended with {ending}.",
        example=Example(("a",), "1@a", {"message": "a:0", "local": 1, "ending": "END"}),
    )

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._own: defaultdict[Life, Spans] = defaultdict(Spans)

    def deliver(self, delivery: DeliveredPart) -> None:
        origin = delivery.origin
        if origin is delivery.stay.life:
            self._own[origin].add(delivery.first, delivery.end)

    def place(self, delivery: DeliveredPart) -> None:
        if delivery.cast is not None and not delivery.cast.addresses(delivery.stay.life):
            self.deliver(delivery)

    def conclude(self) -> None:
        for life in self.history.numbered:
            if life.ending not in (END, LEAVE) or life.hole is not None:
                continue
            exempt = life.stay.id if life.ending_reason == CUT and life.stay is not None else None
            own = self._own[life]
            for first in life.firsts:
                cast = life.casts[first]
                if cast.view == exempt:
                    continue
                for low, high in own.outside(cast.first, cast.end):
                    self.report(
                        [life.name],
                        cast.view,
                        message=message_name(life, low, high),
                        local=cast.local_index,
                        ending=life.ending,
                    )
