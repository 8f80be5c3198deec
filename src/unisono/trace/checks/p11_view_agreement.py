"""P11 view agreement, self-inclusion: one member list and one order a view; a member is in every view that it installs.

The order of a view is what its VIEW rows say: their `reason`, else their `protocol`. What is owed in the view follows from it, so
members that disagree about it did not run one protocol, or a row is not what it was.
"""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import MemberList, Stay
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import VIEW, Event


class ViewAgreement(Checker):
    about = PropertyRecord(
        id="P11",
        name="view agreement",
        says="A view has one list of members, the same for all, and each member that installs it is on it.",
        exact=__doc__,
        rows=(VIEW,),
        roles=("one", "two"),
        witness={
            "what": Kind.TEXT, "local": RowOf("one"), "other_local": RowOf("two"), "list": Kind.MEMBERS,
            "other_list": Kind.MEMBERS, "order": Kind.TEXT, "other_order": Kind.TEXT,
        },
        sentence={
            "outside": "{one} installed view {view} (local {local}) without being in it: {list}.",
            "two orders": "View {view} has the order {order} at {one} (local {local}), but {other_order} at {two} (local "
            "{other_local}).",
            "two lists": "View {view} has the members {list} at {one} (local {local}), but {other_list} at {two} (local "
            "{other_local}).",
        },
        example=Example(
            ("a", "c"), "1@a", {
                "what": "two lists", "local": 0, "other_local": 0, "list": ["a", "b", "c"], "other_list": ["a", "c"],
            }
        ),
    )  # fmt: skip

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._lists: dict[str, tuple[Stay, int]] = {}  # by view: who said so first, and in which row
        self._told: set[MemberList] = set()  # a list that many members share is one violation
        self._told_orders: set[tuple[str, str | None]] = set()

    def view(self, stay: Stay, event: Event) -> None:
        view, local, members = stay.id, event.local_index, list(stay.view.members)
        if stay.rank is None:
            self.report([stay.life.name], view, what="outside", local=local, list=members)
        first, first_local = self._lists.setdefault(view, (stay, local))
        both = (first.life.name, stay.life.name)
        if first.order != stay.order and (view, stay.order) not in self._told_orders:
            self._told_orders.add((view, stay.order))
            self.report(
                both,
                view,
                what="two orders",
                local=first_local,
                other_local=local,
                order=first.order,
                other_order=stay.order,
            )
        if first.view is not stay.view and stay.view not in self._told:
            self._told.add(stay.view)
            self.report(
                both,
                view,
                what="two lists",
                local=first_local,
                other_local=local,
                list=list(first.view.members),
                other_list=members,
            )
