"""What one member's application is shown, with the simplest state transfer there is.

Without a state, it is shown what its member shows. With one, it is shown a primary only if it comes there with the state that the
primary begins with; else it **waits**, is shown nothing, and takes the state over in one step (`adopt`), from any member of
the view that has it. That is the contract of `services.transfer` under the primary policy, without snapshots, their content and
their packets. Who waits in a view that is not primary goes on waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from unisono.core.markers import Marker
from unisono.core.member import Entered
from unisono.core.membership import carry, is_carried
from unisono.core.transition import Transition
from unisono.core.types import Batch, MemberId, View, ViewId
from unisono.core.wire import Charter, HeldState


class ShownView(NamedTuple):
    view: View
    together: tuple[MemberId, ...]
    joined: tuple[MemberId, ...]
    left: tuple[MemberId, ...]
    is_primary: bool


class TookState(NamedTuple):
    """The application's state is replaced, or it gets its first one."""

    source: ViewId | None


ShownAct: TypeAlias = Batch | Transition | ShownView | TookState


class ModelApplication:
    """One application of the model: what it is shown, and which state it holds."""

    def __init__(self, member: MemberId, has_state: bool, is_partitionable: bool) -> None:
        self._id = member
        self._has_state = has_state
        self._is_partitionable = is_partitionable
        self.is_waiting = has_state
        self.holds: HeldState | None = None
        """The state of a primary that it has."""
        self._shown: View | None = None
        self._along: tuple[MemberId, ...] = ()
        self._awaited: tuple[View, Charter] | None = None

    def take(self, events: Sequence[Batch | Marker | Transition | View], charters: Sequence[Charter]) -> list[ShownAct]:
        """What the application is shown of the events of a turn."""
        told: list[ShownAct] = []
        for event in events:
            if isinstance(event, View):
                charter = next(one for one in charters if one.id == event.id)
                if self._comes_with_state(charter):
                    told.append(self._enter(event, charter))
                else:
                    self.is_waiting, self.holds = True, None
                    self._awaited = (event, charter)
            elif self.is_waiting or isinstance(event, Marker):
                continue  # it is in the state that is taken over, or shown to no application
            else:
                if isinstance(event, Transition):
                    self._along = event.together
                told.append(event)
        return told

    def adopt(self) -> list[ShownAct]:
        """Take over the state of the view that is waited for."""
        assert self._awaited is not None
        (view, charter), self._awaited = self._awaited, None
        source = None if self._shown is None or charter.state is None else charter.state.view
        return [TookState(source), self._enter(view, charter)]

    def _comes_with_state(self, charter: Charter) -> bool:
        if not self._has_state:
            return True
        if not charter.primary:
            return not self.is_waiting
        if not charter.holders:
            return self._id == min(charter.members)  # the first primary of all: one begins
        return is_carried(charter, self._id, self.holds)

    def _enter(self, view: View, charter: Charter) -> ShownView:
        along = () if self._shown is None else self._along
        together = tuple(member for member in view.members if member == self._id or member in along)
        is_primary = charter.primary or self._is_partitionable
        entered = Entered.of(view, charter, self._shown, together, is_primary)
        self.is_waiting, self._shown = False, view
        if self._has_state:
            self.holds = carry(charter, self._id, self.holds)
        return ShownView(view, together, tuple(entered.joined), tuple(entered.left), is_primary)
