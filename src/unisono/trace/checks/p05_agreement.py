"""P5 agreement: in V, what one member delivers every addressee of the same (V→V') delivers.

This is the non-uniform form: what a crashed member alone delivered binds nobody. Placeholders do not count: an addressee
for whom the payload became void while another one delivered it has broken agreement. Not asked of a last view that was cut,
nor of the service `datagram`: whoever gets one gets it.
"""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import DATAGRAM, PLACED, Delivery, Span, Stay, Transition, message_name
from unisono.trace.checks.sets import delivered_sets, same_sets
from unisono.trace.checks.spans import Spans


class Agreement(Checker):
    id = "P5"

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._addressed: dict[Span, tuple[str, ...]] = {}  # of messages that are not for everyone
        self._void: set[Stay] = set()  # stays that placed something addressed to them

    def deliver(self, delivery: Delivery) -> None:
        destinations = delivery.event.destinations
        if destinations is not None:
            self._addressed[delivery.origin.number, delivery.first, delivery.end] = destinations

    def place(self, delivery: Delivery) -> None:
        destinations = delivery.event.destinations
        if destinations is None or delivery.stay.life.name in destinations:
            self._void.add(delivery.stay)

    def conclude(self) -> None:
        for transition in self.history.transitions():
            if not transition.cut and len(transition.stays) > 1:
                self._judge(transition)

    def _judge(self, transition: Transition) -> None:
        stays = transition.stays
        if same_sets(stays) and self._void.isdisjoint(stays):
            return  # all delivered or placed the same, and placed only what is not addressed to them
        delivered = {stay: delivered_sets(stay, placed=False) for stay in stays}
        told: set[tuple[Stay, Span]] = set()
        for stay in stays:
            for span, local, mark in zip(stay.spans, stay.locals, stay.marks, strict=True):
                if mark & (PLACED | DATAGRAM):
                    continue
                number, first, end = span
                addressed = self._addressed.get(span)
                for other in stays:
                    if addressed is not None and other.life.name not in addressed:
                        continue
                    if (other, span) in told:
                        continue
                    lacking = delivered[other].get(number, _EMPTY).outside(first, end)
                    if lacking:
                        told.add((other, span))
                        self._say(transition, stay, other, (number, *lacking[0]), local)

    def _say(self, transition: Transition, stay: Stay, other: Stay, span: Span, local: int) -> None:
        name = message_name(self.history.numbered[span[0]], span[1], span[2])
        self.report(
            [stay.life.name, other.life.name],
            f"{stay.life.name} delivered {name} (local {local}) in view {transition.view}; {other.life.name}, to whom it "
            f"is addressed and who also {transition.way}, did not.",
            message=name,
            view=transition.view,
            next_view=transition.next_view,
            local=local,
        )


_EMPTY = Spans()
