"""P12 view monotony, incarnation: the numbers of a life's views increase; no view holds two incarnations of one address.

So a view's list names an address once. A list that names one member twice is broken too, even if all members have the same list:
a process has one rank in a view.
"""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.model import Stay
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import VIEW, Event, view_number


class ViewMonotony(Checker):
    about = PropertyRecord(
        id="P12",
        name="views go forward",
        says="View numbers only grow, and no view holds two lives of one address.",
        exact=__doc__,
        rows=(VIEW,),
        roles=("who",),
        witness={"what": Kind.TEXT, "local": RowOf("who"), "before": Kind.VIEW, "incarnations": Kind.MEMBERS},
        sentence={
            "backwards": "{who} installed view {view} (local {local}) after view {before}.",
            "incarnations": "View {view}, which {who} installed (local {local}), holds {incarnations}: one address more than "
            "once.",
        },
        example=Example(("b",), "1@b", {"what": "backwards", "local": 1, "before": "2@a"}),
    )

    def view(self, stay: Stay, event: Event) -> None:
        life, before = stay.life, stay.life.stay
        if before is not None and view_number(stay.id) <= view_number(before.id):
            self.report([life.name], stay.id, what="backwards", local=event.local_index, before=before.id)
        lives: dict[str, str] = {}
        for member in stay.view.members:
            address = member.partition("#")[0]
            other = lives.get(address)
            lives.setdefault(address, member)
            if other is not None:
                twins = [other, member]
                self.report([life.name], stay.id, what="incarnations", local=event.local_index, incarnations=twins)
