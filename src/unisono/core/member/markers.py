"""Casts the markers at which members compare what they have delivered, for own checks and for those of others."""

from __future__ import annotations

from collections.abc import Sequence

from unisono.core.member.comparison import Checking, Comparer
from unisono.core.member.state import MemberState
from unisono.core.types import Service
from unisono.core.views import Phase, ViewEngine


class Markers:
    """One member's markers. They are own messages, so a caller that counts own messages counts them too."""

    def __init__(self, engine: ViewEngine, comparer: Comparer, state: MemberState) -> None:
        self._engine = engine
        self._comparer = comparer
        self._state = state

    @property
    def have_room(self) -> bool:
        """Whether there is room for the markers of a check, and no view change under way."""
        if self._engine.phase is not Phase.RUNNING or not self._state.is_writable:
            return False
        return self._engine.casting.room_messages >= len(self._services())

    @property
    def are_owed(self) -> bool:
        """Whether another member's check waits for markers: call `cast_owed` when no own message is on its way here."""
        return self._comparer.owes_markers

    def begin_check(self) -> Checking | None:
        """Begin to compare what the members of the view have delivered. None: not now, for `have_room` is false."""
        view = self._state.view
        if view is None or not self.have_room:
            return None
        self._state.demand_primary()
        services = self._services()
        check = self._comparer.begin(view, services)
        self._cast(True, services)
        return check

    def cast_owed(self) -> None:
        """Cast the markers that another member's check waits for, if there is room for them."""
        if self.have_room and self._state.is_primary:
            self._comparer.markers_cast()
            self._cast(False, [service for service in self._services() if service is not Service.TOTAL])

    def _services(self) -> list[Service]:
        """What is compared in the view."""
        return sorted(self._engine.ordering.services - {Service.DATAGRAM})

    def _cast(self, asks: bool, services: Sequence[Service]) -> None:
        for service in services:
            self._engine.casting.accept_marker(asks, service)
