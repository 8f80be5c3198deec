"""P13 sending-view delivery: a message is delivered in the view it was cast in."""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.model import DeliveredPart
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import CAST, DELIVER


class SendingView(Checker):
    about = PropertyRecord(
        id="P13",
        name="sending view",
        says="A message is delivered in the view in which it was cast.",
        exact=__doc__,
        rows=(CAST, DELIVER),
        roles=("who", "origin"),
        witness={
            "message": Kind.MESSAGES, "local": RowOf("who"), "cast_view": Kind.VIEW, "cast_local": RowOf("origin"),
        },
        sentence="{who} delivered {message} in view {view} (local {local}), but {origin} cast it in view {cast_view} (local "
        "{cast_local}).",
        example=Example(("b", "a"), "2@a", {"message": "a:0", "local": 2, "cast_view": "1@a", "cast_local": 1}),
    )  # fmt: skip

    def deliver(self, delivery: DeliveredPart) -> None:
        cast, stay = delivery.cast, delivery.stay
        if cast is None or cast.view == stay.id:
            return
        self.report(
            [stay.life.name, cast.origin.name],
            stay.id,
            message=delivery.name,
            local=delivery.event.local_index,
            cast_view=cast.view,
            cast_local=cast.local_index,
        )
