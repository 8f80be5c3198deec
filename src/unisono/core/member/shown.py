"""What a member shows its application: the engine's events, and each view with all that is known about it."""

from __future__ import annotations

from collections.abc import Sequence

from unisono.core.markers import Marker
from unisono.core.member.comparison import Comparer
from unisono.core.member.events import Entered, Happening
from unisono.core.transition import Transition
from unisono.core.types import Batch, MemberId, View, ViewId
from unisono.core.wire import Charter


class EventCompleter:
    """Completes the engine's events. All of them are compared with what other members deliver."""

    def __init__(self, me: MemberId, comparer: Comparer, is_partitionable: bool) -> None:
        self._comparer = comparer
        self._is_partitionable = is_partitionable  # every view may cast
        self._charters: dict[ViewId, Charter] = {}  # of views that were installed and not yet shown
        self._last: View | None = None
        self._together: tuple[MemberId, ...] = (me,)  # who comes along into the next view, as its Transition said

    def learn(self, charter: Charter) -> None:
        """A view was installed; it is shown later in the same turn."""
        self._charters[charter.id] = charter

    def complete(self, events: Sequence[Batch | Marker | Transition | View]) -> list[Happening]:
        """The events for the application: without markers, and with the differences from the view before."""
        completed: list[Happening] = []
        comparer = self._comparer
        for event in events:
            if isinstance(event, Batch):
                comparer.waiting.append(event)
                completed.append(event)
            elif isinstance(event, Marker):
                comparer.pass_marker(event)
            elif isinstance(event, Transition):
                self._together = event.together
                comparer.end_view()
                completed.append(event)
            else:
                previous, self._last = self._last, event
                charter = self._charters.pop(event.id)
                is_primary = charter.primary or self._is_partitionable
                completed.append(Entered.of(event, charter, previous, self._together, is_primary))
                comparer.enter(event, self._together)
        return completed
