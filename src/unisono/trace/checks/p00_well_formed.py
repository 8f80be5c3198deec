"""P0 well-formed: local_index = 0..k; ordinals contiguous; begins with JOIN or VIEW; nothing after CRASH, LEAVE or END.

Besides, a CAST, DELIVER or PLACE row names the view that its member installed last, because everything else is judged by view, and
a service that the view's order carries. `protocol` is the same in all rows of a life, and it joins once, at its beginning. And the
indices of its casts rise: two messages with one index could not be told apart, and one of them might be lost.

A hole in the local indices is no violation: it is how a failed write looks, and makes the verdict on that member
UNKNOWN. An index that comes twice, or goes back, is one. Behind a hole ordinals may have moved on, but not back.
"""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Life, Stay
from unisono.trace.promises import services_of
from unisono.trace.schema import CAST, DELIVER, JOIN, PLACE, VIEW, Event

ANY = frozenset({"any service"})
"""What an unknown order carries."""


class WellFormed(Checker):
    id = "P0"

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._ordinals: dict[Stay, dict[str, int]] = {}
        self._carried: dict[Stay, frozenset[str]] = {}  # the services of its order

    def row(self, life: Life, event: Event) -> None:
        index, kind = event.local_index, event.kind
        if index < life.next_index:
            self._say(life, event, f"its row {index} comes after its row {life.next_index - 1}")
        if life.ending is not None:
            self._say(life, event, f"it goes on with {kind} (local {index}) after its {life.ending}")
        if life.rows and event.protocol != life.protocol:
            self._say(life, event, f"its row {index} says protocol {event.protocol}, the row before {life.protocol}")
        if kind == JOIN and life.rows:
            self._say(life, event, f"it joins (local {index}) in the middle of its life")
        if kind in (DELIVER, PLACE):
            self._judge_view(life, event)
            self._judge_service(life, event)
            self._judge_ordinal(life, event)
        elif kind == CAST:
            self._judge_view(life, event)
            self._judge_service(life, event)
            if event.first is not None and event.first < life.cast_end:
                again = f"casts message {event.first}, but it has cast up to {life.cast_end - 1}"
                self._say(life, event, f"its CAST (local {index}) {again}")
        elif not life.rows and kind != JOIN and kind != VIEW and life.hole is None:
            self._say(life, event, f"its trace begins with {kind}, not with JOIN or VIEW")

    def _judge_view(self, life: Life, event: Event) -> None:
        stay = life.stay
        if stay is not None and stay.id == event.view:
            return
        if life.hole is None or (stay is not None and not stay.holed):
            installed = "it has installed none" if stay is None else f"it installed {stay.id} last"
            self._say(
                life, event, f"its {event.kind} (local {event.local_index}) names view {event.view}, but {installed}"
            )

    def _judge_service(self, life: Life, event: Event) -> None:
        stay = life.stay
        if stay is None or stay.id != event.view:
            return
        carried = self._carried.get(stay)
        if carried is None:
            carried = self._carried[stay] = services_of([stay.order or ""]) or ANY
        if carried is not ANY and event.service not in carried:
            self._say(
                life,
                event,
                f"its {event.kind} (local {event.local_index}) is of service {event.service}, which the order {stay.order} of "
                f"view {stay.id} does not carry",
            )

    def _judge_ordinal(self, life: Life, event: Event) -> None:
        stay = life.stay
        if stay is None or stay.id != event.view:
            return
        ordinals = self._ordinals.get(stay)
        if ordinals is None:
            ordinals = self._ordinals[stay] = {}
        service, ordinal = event.service, event.ordinal
        assert service is not None
        assert ordinal is not None
        expected = ordinals.get(service, 0)
        if ordinal != expected and not (stay.holed and ordinal > expected):
            self._say(
                life,
                event,
                f"its {event.kind} (local {event.local_index}) has ordinal {ordinal} "
                f"of service {service} in view {event.view}, not {expected}",
            )
        ordinals[service] = ordinal + 1

    def _say(self, life: Life, event: Event, what: str) -> None:
        self.report([life.name], f"{life.name}: {what}.", view=event.view, local=event.local_index, kind=event.kind)
