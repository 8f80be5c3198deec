"""A member's position: how far its application is in the member's stream of events, and which state it has there."""

from __future__ import annotations

from unisono.core.events import Entered, Happening, Replaced
from unisono.core.membership import carry, is_carried
from unisono.core.transition import Transition
from unisono.core.types import Batch, MemberId, View, ViewId
from unisono.core.wire import Charter, Held, part_of
from unisono.services.transfer.backlog import Reach, raise_reach
from unisono.services.transfer.merge import has_primary_policy
from unisono.services.transfer.messages import Frontier
from unisono.services.transfer.settings import Application


class Position:
    """Shows events to the application, and keeps what follows from having shown them."""

    def __init__(self, me: MemberId, application: Application) -> None:
        self._me = me
        self._application = application
        self.frontier: Reach = {}
        """How far the messages of the view at this point go."""
        self.view: View | None = None
        """The last view that was shown."""
        self.holds: Held | None = None
        """Primary policy: the state of a primary that the application has."""
        self.is_original = True
        """Primary policy: the application has nothing but what it began with."""
        self.has_shown_batch = False
        self._along: tuple[MemberId, ...] = ()  # who comes along from that view, as its Transition said
        self._is_ending = False  # that Transition was shown, and no view since

    def show(self, event: Happening) -> None:
        """Show the next event, a view with the differences from the last one that was shown."""
        if isinstance(event, Batch):
            self.has_shown_batch = True
            raise_reach(self.frontier, event)
        elif isinstance(event, Transition):
            self._along, self._is_ending = event.together, True
        elif isinstance(event, Entered):
            self.frontier, self._is_ending = {}, False
            self.holds = carry(event.charter, self._me, self.holds)
            self.is_original = self.is_original and self.holds is None and has_primary_policy(event)
            if event.previous != self.view:
                event = self._seen_from_here(event)
            self.view = event.view
        self._application.show(event)

    def show_transition(self, entered: Entered) -> None:
        """Show that the last view leads into this one, with the same `together`; not if that was shown already."""
        if self.view is not None and not self._is_ending:
            seen = entered if entered.previous == self.view else self._seen_from_here(entered)
            self.show(Transition(seen.together, seen.is_primary, self.view.id))

    def leads_into(self, entered: Entered) -> bool:
        """Whether the application takes its state along into a view."""
        return is_carried(entered.charter, self._me, self.holds)

    def keep_apart(self, transition: Transition) -> None:
        """The last view ends with this Transition, which is not shown yet: another state may be taken over."""
        self._along = transition.together

    def replace(self, entered: Entered, state: bytes, frontier: Frontier, holds: Held | None, is_merged: bool) -> None:
        """Restore a state at a point of a view, and show that view. `is_merged`: the state includes what the application had."""
        self.show_transition(entered)
        if self.view is not None and not is_merged and not self.is_original:
            self._tell_whose(entered.charter)
        self._application.restore(state)
        self.holds = holds
        self.show(entered)
        self.frontier = {(origin, service): (index, for_all) for origin, service, index, for_all in frontier}

    def tell_replaced(self, view: ViewId, members: tuple[MemberId, ...]) -> None:
        """Tell the application that its state gives way to the one that these members had since this view."""
        if self.view is not None:
            self._application.show(Replaced(self.view.id, self._along or (self._me,), view, members))

    def _tell_whose(self, charter: Charter) -> None:
        """Tell the application whose state it gets when it enters this view."""
        source = charter.id, charter.members
        if charter.holders:
            part = part_of(charter, charter.holders[0])
            assert part is not None, "a holder comes from a view"
            source = part.view, part.members
        self.tell_replaced(*source)

    def _seen_from_here(self, entered: Entered) -> Entered:
        """A view as an application sees it to which the one before was not shown."""
        along = () if self.view is None else self._along
        together = tuple(one for one in entered.view.members if one == self._me or one in along)
        return Entered.of(entered.view, entered.charter, self.view, together, entered.is_primary)
