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
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import CAST, DELIVER, PLACE, Event


class NoCreation(Checker):
    about = PropertyRecord(
        id="P1",
        name="no creation",
        says="Whatever is delivered was cast, with the same content, and to this receiver.",
        exact=__doc__,
        rows=(CAST, DELIVER, PLACE),
        roles=("who", "origin"),
        witness={
            "what": Kind.TEXT, "message": Kind.MESSAGES, "local": RowOf("who"), "kind": Kind.TEXT,
            "cast_local": RowOf("origin"), "digest": Kind.NUMBER, "cast_digest": Kind.NUMBER, "service": Kind.TEXT,
            "cast_service": Kind.TEXT, "destinations": Kind.MEMBERS, "cast_destinations": Kind.MEMBERS,
        },
        sentence={
            "never cast": "{who} {did} {message} (local {local}), but {origin} never cast it.",
            "not cast here": "{who} {did} {message} (local {local}), but {origin} did not cast it in view {view}.",
            "too early": "{who} {did} {message} (local {local}), before {origin} can have cast it (local {cast_local}).",
            "digest": "{who} {did} {message} (local {local}) with digest {digest}, but {origin} cast it (local {cast_local}) with "
            "digest {cast_digest}.",
            "not addressed": "{who} {did} {message} (local {local}), which {origin} addressed to {cast_destinations} only (local "
            "{cast_local}).",
            "withheld": "{who} {did} {message} (local {local}) without a void payload, but {origin} cast it (local "
            "{cast_local}) for {cast_destinations}.",
            "service": "{who} {did} {message} (local {local}) as {service}, but {origin} cast it (local {cast_local}) as "
            "{cast_service}.",
            "destinations": "{who} {did} {message} (local {local}) as a message for {destinations}, but {origin} cast it (local "
            "{cast_local}) for {cast_destinations}.",
        },
        example=Example(
            ("b", "a"), "1@a", {
                "what": "not addressed", "message": "a:0", "local": 1, "kind": "DELIVER", "cast_local": 1,
                "cast_destinations": "a, c",
            }
        ),
    )  # fmt: skip

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._uncast: list[tuple[Stay, Life, int, int, Event]] = []

    def deliver(self, delivery: DeliveredPart) -> None:
        cast, event, life = delivery.cast, delivery.event, delivery.stay.life
        if cast is None:
            self._note_uncast(delivery)
            return
        if cast.digest != event.digest and is_comparable(cast, event):
            self._report("digest", delivery, cast, digest=event.digest, cast_digest=cast.digest)
        if cast.destinations is not None and life.name not in cast.destinations:
            self._report("not addressed", delivery, cast, cast_destinations=_addressees(cast.destinations))
        self._judge_labels(delivery, cast)

    def place(self, delivery: DeliveredPart) -> None:
        cast = delivery.cast
        if cast is None:
            self._note_uncast(delivery)
            return
        if cast.addresses(delivery.stay.life) and not is_void(delivery.event):
            self._report("withheld", delivery, cast, cast_destinations=_addressees(cast.destinations))
        self._judge_labels(delivery, cast)

    def _note_uncast(self, delivery: DeliveredPart) -> None:
        self._uncast.append((delivery.stay, delivery.origin, delivery.first, delivery.end, delivery.event))

    def _judge_labels(self, delivery: DeliveredPart, cast: Cast) -> None:
        event = delivery.event
        if event.service != cast.service:
            self._report("service", delivery, cast, service=event.service, cast_service=cast.service)
        here, there = event.destinations, cast.destinations
        if here != there and (here is None or there is None or set(here) != set(there)):
            self._report(
                "destinations", delivery, cast, destinations=_addressees(here), cast_destinations=_addressees(there)
            )

    def _report(self, what: str, delivery: DeliveredPart, cast: Cast, **more: object) -> None:
        event, life = delivery.event, delivery.stay.life
        self.report(
            [life.name, cast.origin.name],
            delivery.stay.id,
            what=what,
            message=delivery.name,
            local=event.local_index,
            kind=event.kind,
            cast_local=cast.local_index,
            **more,
        )

    def conclude(self) -> None:
        unknown = self.history.unknown()
        for stay, origin, first, end, event in self._uncast:
            for low, high, cast in origin.cast_of(first, end):
                hidden = origin.name in unknown or (stay.holed and not origin.rows)
                if cast is None and hidden:
                    continue
                self.report(
                    [stay.life.name, origin.name],
                    stay.id,
                    what="never cast" if cast is None else "too early",
                    message=message_name(origin, low, high),
                    local=event.local_index,
                    kind=event.kind,
                    cast_local=None if cast is None else cast.local_index,
                )


def _addressees(destinations: tuple[str, ...] | None) -> str:
    return "everyone" if destinations is None else ", ".join(destinations) or "no member"
