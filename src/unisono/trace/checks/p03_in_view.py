"""P3 in-view: the deliverer and the origin of a message are members of the view in which it is delivered or placed."""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.model import DeliveredPart
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import DELIVER, PLACE


class InView(Checker):
    about = PropertyRecord(
        id="P3",
        name="in view",
        says="Deliverer and origin are both members of the view in which a message is delivered.",
        exact=__doc__,
        rows=(DELIVER, PLACE),
        roles=("who", "origin"),
        witness={
            "message": Kind.MESSAGES, "local": RowOf("who"), "kind": Kind.TEXT, "stranger": Kind.MEMBERS, "list": Kind.MEMBERS,
        },
        sentence="{who} {did} {message} (local {local}) in view {view}, of which {stranger} is no member ({list}).",
        example=Example(
            ("c", "a"), "1@a", {"message": "a:0", "local": 1, "kind": "DELIVER", "stranger": "c", "list": ["a", "b"]}
        ),
    )  # fmt: skip

    def deliver(self, delivery: DeliveredPart) -> None:
        stay = delivery.stay
        if (delivery.rank is not None and stay.rank is not None) or not stay.installed:
            return  # where there is no VIEW row, P0 has said so, or the row is missing
        stranger = stay.life if stay.rank is None else delivery.origin
        self.report(
            [stay.life.name, delivery.origin.name],
            stay.id,
            message=delivery.name,
            local=delivery.event.local_index,
            kind=delivery.event.kind,
            stranger=stranger.name,
            list=list(stay.view.members),
        )

    place = deliver
