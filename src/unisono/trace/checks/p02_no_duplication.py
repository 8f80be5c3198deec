"""P2 no duplication: at most one DELIVER per (member, incarnation, message), across all views of that life."""

from __future__ import annotations

from collections import defaultdict

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import DeliveredPart, Life, message_name
from unisono.trace.checks.spans import Spans


class NoDuplication(Checker):
    id = "P2"

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._delivered: defaultdict[Life, defaultdict[Life, Spans]] = defaultdict(lambda: defaultdict(Spans))

    def deliver(self, delivery: DeliveredPart) -> None:
        first, end = delivery.first, delivery.end
        spans = self._delivered[delivery.stay.life][delivery.origin]
        if spans.ends and first < spans.ends[-1]:
            for low, high in spans.inside(first, end):
                self._say(delivery, message_name(delivery.origin, low, high))
        spans.add(first, end)

    def _say(self, delivery: DeliveredPart, name: str) -> None:
        life, local = delivery.stay.life, delivery.event.local_index
        self.report(
            [life.name],
            f"{life.name} delivered {name} again (local {local}, view {delivery.stay.id}).",
            message=name,
            view=delivery.stay.id,
            local=local,
        )
