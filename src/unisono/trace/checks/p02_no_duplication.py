"""P2 no duplication: at most one DELIVER per (member, incarnation, message), across all views of that life."""

from __future__ import annotations

from collections import defaultdict

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import DeliveredPart, Life, message_name
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.spans import Spans
from unisono.trace.schema import DELIVER


class NoDuplication(Checker):
    about = PropertyRecord(
        id="P2",
        name="no duplication",
        says="No member delivers a message twice.",
        exact=__doc__,
        rows=(DELIVER,),
        roles=("who",),
        witness={"message": Kind.MESSAGES, "local": RowOf("who"), "again_local": RowOf("who")},
        sentence="{who} delivered {message} twice (local {local} and local {again_local}).",
        example=Example(("b",), "1@a", {"message": "a:0", "local": 1, "again_local": 2}),
    )

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._delivered: defaultdict[Life, defaultdict[Life, Spans]] = defaultdict(lambda: defaultdict(Spans))

    def deliver(self, delivery: DeliveredPart) -> None:
        first, end = delivery.first, delivery.end
        spans = self._delivered[delivery.stay.life][delivery.origin]
        if spans.ends and first < spans.ends[-1]:
            for low, high in spans.inside(first, end):
                self._report(delivery, low, high)
        spans.add(first, end)

    def _report(self, delivery: DeliveredPart, first: int, end: int) -> None:
        life, origin, view = delivery.stay.life, delivery.origin, delivery.stay.id
        before = life.local_of(origin, first, end) if self.tells(view) else None
        self.report(
            [life.name],
            view,
            message=message_name(origin, first, end),
            local=before,
            again_local=delivery.event.local_index,
        )
