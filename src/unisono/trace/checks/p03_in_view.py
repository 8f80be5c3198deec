"""P3 in-view: the deliverer and the origin of a message are members of the view in which it is delivered or placed."""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.model import DeliveredPart
from unisono.trace.schema import DELIVER


class InView(Checker):
    id = "P3"

    def deliver(self, delivery: DeliveredPart) -> None:
        stay = delivery.stay
        if (delivery.rank is not None and stay.rank is not None) or not stay.installed:
            return  # where there is no VIEW row, P0 has said so, or the row is missing
        life, local = stay.life, delivery.event.local_index
        did = "delivered" if delivery.event.kind == DELIVER else "placed"
        stranger = life if stay.rank is None else delivery.origin
        self.report(
            [life.name, delivery.origin.name],
            f"{life.name} {did} {delivery.name} (local {local}) in view {stay.id}, of which {stranger.name} "
            f"is no member ({', '.join(stay.view.members)}).",
            message=delivery.name,
            view=stay.id,
            local=local,
            stranger=stranger.name,
        )

    place = deliver
