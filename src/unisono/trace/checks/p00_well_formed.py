"""P0 well-formed: local_index = 0..k; ordinals contiguous; begins with JOIN or VIEW; nothing after CRASH, LEAVE or END.

Besides, a CAST, DELIVER or PLACE row names the view that its member installed last: everything else is judged by view.

A hole in the local indices is no violation: it is how a failed write looks, and makes the verdict on that member
UNKNOWN. An index that comes twice, or goes back, is one. Behind a hole ordinals may have moved on, but not back.
"""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Life, Stay
from unisono.trace.schema import CAST, DELIVER, JOIN, PLACE, VIEW, Event


class WellFormed(Checker):
    id = "P0"

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._ordinals: dict[Stay, dict[str, int]] = {}

    def row(self, life: Life, event: Event) -> None:
        index, kind = event.local_index, event.kind
        if index < life.next_index:
            self._say(life, event, f"its row {index} comes after its row {life.next_index - 1}")
        if life.ending is not None:
            self._say(life, event, f"it goes on with {kind} (local {index}) after its {life.ending}")
        if kind in (DELIVER, PLACE):
            self._judge_view(life, event)
            self._judge_ordinal(life, event)
        elif kind == CAST:
            self._judge_view(life, event)
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
        self.report([life.name], f"{life.name}: {what}.", local=event.local_index, kind=event.kind)
