"""P12 view monotony, incarnation: the numbers of a life's views increase; no view holds two incarnations of one address.

So a view's list names an address once. A list that names one member twice is broken too, even if all members have the same list:
a process has one rank in a view.
"""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.model import Stay
from unisono.trace.schema import Event, view_number


class ViewMonotony(Checker):
    id = "P12"

    def view(self, stay: Stay, event: Event) -> None:
        life, before = stay.life, stay.life.stay
        if before is not None and view_number(stay.id) <= view_number(before.id):
            self.report(
                [life.name],
                f"{life.name} installed view {stay.id} (local {event.local_index}) after view {before.id}.",
                view=stay.id,
                before=before.id,
                local=event.local_index,
            )
        lives: dict[str, str] = {}
        for member in stay.view.members:
            address = member.partition("#")[0]
            other = lives.get(address)
            lives.setdefault(address, member)
            if other is not None:
                what = (
                    f"{member} twice" if other == member else f"{other} and {member}: two incarnations of one address"
                )
                self.report(
                    [life.name],
                    f"View {stay.id}, which {life.name} installed (local {event.local_index}), holds {what}.",
                    view=stay.id,
                    incarnations=[other, member],
                    local=event.local_index,
                )
