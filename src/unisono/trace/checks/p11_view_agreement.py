"""P11 view agreement, self-inclusion: one member list and one order a view; a member is in every view that it installs.

The order of a view is what its VIEW rows say: their `reason`, else their `protocol`. What is owed in the view follows from it, so
members that disagree about it did not run one protocol, or a row is not what it was.
"""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import MemberList, Stay
from unisono.trace.schema import Event


class ViewAgreement(Checker):
    id = "P11"

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._lists: dict[str, tuple[Stay, int]] = {}  # by view: who said so first, and in which row
        self._told: set[MemberList] = set()  # a list that many members share is one violation
        self._told_orders: set[tuple[str, str | None]] = set()

    def view(self, stay: Stay, event: Event) -> None:
        name = stay.life.name
        if stay.rank is None:
            self.report(
                [name],
                f"{name} installed view {stay.id} (local {event.local_index}) without being in it: "
                f"{', '.join(stay.view.members)}.",
                view=stay.id,
                local=event.local_index,
            )
        other, local = self._lists.setdefault(stay.id, (stay, event.local_index))
        if other.order != stay.order and (stay.id, stay.order) not in self._told_orders:
            self._told_orders.add((stay.id, stay.order))
            self.report(
                [other.life.name, name],
                f"View {stay.id} has the order {other.order} at {other.life.name} (local {local}), but {stay.order} at {name} "
                f"(local {event.local_index}).",
                view=stay.id,
                orders={other.life.name: other.order, name: stay.order},
            )
        if other.view is not stay.view and stay.view not in self._told:
            self._told.add(stay.view)
            self.report(
                [other.life.name, name],
                f"View {stay.id} has the members {', '.join(other.view.members)} at {other.life.name} (local {local}), but "
                f"{', '.join(stay.view.members)} at {name} (local {event.local_index}).",
                view=stay.id,
                lists={other.life.name: list(other.view.members), name: list(stay.view.members)},
            )
