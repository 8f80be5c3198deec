"""P1 no creation: every DELIVER and PLACE has its CAST, equal digest and service, receiver among the destinations.

A PLACE has the service and the destinations of its CAST too, and a DELIVER the destinations: other properties look at the row at
hand. Only a member that the CAST does not address places it, unless the payload is void.

The CAST comes first: a message delivered by its own caster before it was cast was created out of nothing, and so was one
in a circle of casts and deliveries that no order of events explains. If rows of the origin are missing, or it
stopped without an ending, the CAST is unknown and not asked for. The digest is that of a batch, so it is only
compared where the delivery is cut like the cast.
"""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History, is_comparable, is_void
from unisono.trace.checks.model import Cast, DeliveredPart, Life, Stay, message_name
from unisono.trace.schema import DELIVER, Event


class NoCreation(Checker):
    id = "P1"

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._uncast: list[tuple[Stay, Life, int, int, Event]] = []

    def deliver(self, delivery: DeliveredPart) -> None:
        cast, event, life = delivery.cast, delivery.event, delivery.stay.life
        if cast is None:
            self._note_uncast(delivery)
            return
        if cast.digest != event.digest and is_comparable(cast, event):
            self._say(delivery, cast, f" with digest {event.digest}", f"with digest {cast.digest}")
        if cast.destinations is not None and life.name not in cast.destinations:
            self._say(delivery, cast, f", which {cast.origin.name} addressed to {_addressees(cast.destinations)} only")
        self._judge_labels(delivery, cast)

    def place(self, delivery: DeliveredPart) -> None:
        cast = delivery.cast
        if cast is None:
            self._note_uncast(delivery)
            return
        if cast.addresses(delivery.stay.life) and not is_void(delivery.event):
            self._say(delivery, cast, " without a void payload", f"for {_addressees(cast.destinations)}")
        self._judge_labels(delivery, cast)

    def _note_uncast(self, delivery: DeliveredPart) -> None:
        self._uncast.append((delivery.stay, delivery.origin, delivery.first, delivery.end, delivery.event))

    def _judge_labels(self, delivery: DeliveredPart, cast: Cast) -> None:
        event = delivery.event
        if event.service != cast.service:
            self._say(delivery, cast, f" as {event.service}", f"as {cast.service}")
        here, there = event.destinations, cast.destinations
        if here != there and (here is None or there is None or set(here) != set(there)):
            self._say(delivery, cast, f" as a message for {_addressees(here)}", f"for {_addressees(there)}")

    def _say(self, delivery: DeliveredPart, cast: Cast, how: str, instead: str | None = None) -> None:
        event, life = delivery.event, delivery.stay.life
        did = _did(event)
        cast_it = "" if instead is None else f", but {cast.origin.name} cast it"
        instead = "" if instead is None else f" {instead}"
        self.report(
            [life.name, cast.origin.name],
            f"{life.name} {did} {delivery.name} (local {event.local_index}){how}{cast_it} "
            f"(local {cast.local_index}){instead}.",
            message=delivery.name,
            view=delivery.stay.id,
            local=event.local_index,
            cast_local=cast.local_index,
        )

    def conclude(self) -> None:
        unknown = self.history.unknown()
        for stay, origin, first, end, event in self._uncast:
            local = event.local_index
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
                    f"{stay.life.name} {_did(event)} {name} (local {local}), {what}.",
                    message=name,
                    view=stay.id,
                    local=local,
                )


def _did(event: Event) -> str:
    return "delivered" if event.kind == DELIVER else "placed"


def _addressees(destinations: tuple[str, ...] | None) -> str:
    return "everyone" if destinations is None else ", ".join(destinations) or "no member"
