"""P1 no creation: every DELIVER has its CAST, equal digest, receiver among the destinations.

The CAST comes first: a message delivered by its own caster before it was cast was created out of nothing, and so was one
in a circle of casts and deliveries that no order of events explains. If rows of the origin are missing, or it
stopped without an ending, the CAST is unknown and not asked for. The digest is that of a batch, so it is only
compared where the delivery is cut like the cast.
"""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Cast, Delivery, Life, Stay, message_name


class NoCreation(Checker):
    id = "P1"

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._uncast: list[tuple[Stay, Life, int, int, int]] = []

    def deliver(self, delivery: Delivery) -> None:
        cast, event, life = delivery.cast, delivery.event, delivery.stay.life
        if cast is None:
            self._uncast.append((delivery.stay, delivery.origin, delivery.first, delivery.end, event.local_index))
            return
        if cast.digest != event.digest and self._comparable(delivery, cast):
            self.report(
                [life.name, cast.origin.name],
                f"{life.name} delivered {delivery.name} (local {event.local_index}) with digest {event.digest}, "
                f"but {cast.origin.name} cast it (local {cast.local_index}) with digest {cast.digest}.",
                message=delivery.name,
                view=delivery.stay.id,
                local=event.local_index,
                cast_local=cast.local_index,
            )
        if cast.destinations is not None and life.name not in cast.destinations:
            self.report(
                [life.name, cast.origin.name],
                f"{life.name} delivered {delivery.name} (local {event.local_index}), which {cast.origin.name} "
                f"addressed to {', '.join(cast.destinations) or 'nobody'} only (local {cast.local_index}).",
                message=delivery.name,
                view=delivery.stay.id,
                local=event.local_index,
                cast_local=cast.local_index,
            )

    def _comparable(self, delivery: Delivery, cast: Cast) -> bool:
        event = delivery.event
        alike = cast.first == event.first and cast.end - cast.first == event.count
        return alike and cast.digest is not None and event.digest is not None

    def conclude(self) -> None:
        unknown = self.history.unknown()
        for stay, origin, first, end, local in self._uncast:
            for low, high, cast in origin.cast_of(first, end):
                hidden = origin.name in unknown or (stay.holed and not origin.rows)
                if cast is None and hidden:
                    continue
                name = message_name(origin, low, high)
                what = (
                    f"but {origin.name} never cast it"
                    if cast is None
                    else f"before {origin.name} can have cast it (local {cast.local_index})"
                )
                self.report(
                    [stay.life.name, origin.name],
                    f"{stay.life.name} delivered {name} (local {local}), {what}.",
                    message=name,
                    view=stay.id,
                    local=local,
                )
