"""P13 sending-view delivery: a message is delivered in the view it was cast in."""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.model import DeliveredPart


class SendingView(Checker):
    id = "P13"

    def deliver(self, delivery: DeliveredPart) -> None:
        cast, stay = delivery.cast, delivery.stay
        if cast is None or cast.view == stay.id:
            return
        self.report(
            [stay.life.name, cast.origin.name],
            f"{stay.life.name} delivered {delivery.name} in view {stay.id} (local {delivery.event.local_index}), but "
            f"{cast.origin.name} cast it in view {cast.view} (local {cast.local_index}).",
            message=delivery.name,
            view=stay.id,
            cast_view=cast.view,
            local=delivery.event.local_index,
        )
