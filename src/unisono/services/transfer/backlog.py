"""What state transfer holds back: the events between the application's position and the end of the member's stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

from unisono.core.member import Entered, Happening
from unisono.core.types import Batch, ViewId
from unisono.services.transfer.messages import Frontier
from unisono.services.transfer.settings import TransferSettings

MESSAGE_BYTES = 64
"""Approximate cost of a message that is held back, besides its payload."""

Reach: TypeAlias = dict[tuple[int, int], tuple[int, int]]
"""By origin and service: the index of the next message, and of the next after the last one that was for all."""


class Backlog:
    """Holds events in order and counts their size. It never refuses one: `room` tells the others in time what still fits."""

    def __init__(self, settings: TransferSettings) -> None:
        self._settings = settings
        self._events: deque[Happening] = deque()
        self._largest = (1, 1)  # batch held back so far: bytes, messages
        self.bytes = self.messages = 0
        self.seen: Reach = {}
        """How far the messages of the latest view go."""

    def __len__(self) -> int:
        return len(self._events)

    @property
    def first(self) -> Happening:
        return self._events[0]

    def append(self, event: Happening) -> None:
        self._events.append(event)
        if isinstance(event, Entered):
            self.seen = {}
        elif isinstance(event, Batch):
            raise_reach(self.seen, event)
            size, count = _size(event), event.count
            self.bytes += size
            self.messages += count
            self._largest = (max(self._largest[0], size), max(self._largest[1], count))

    def pop(self) -> Happening:
        event = self._events.popleft()
        if isinstance(event, Batch):
            self.bytes -= _size(event)
            self.messages -= event.count
        return event

    def views(self) -> Iterator[Entered]:
        """The views that are held back, in order."""
        return (event for event in self._events if isinstance(event, Entered))

    def is_still_until(self, entered: Entered) -> bool:
        """Whether no message is held back before that view."""
        for event in self._events:
            if event is entered:
                break
            if isinstance(event, Batch):
                return False
        return True

    def place_of(self, view: ViewId) -> int | None:
        """Where that view is among the events; None: it is not held back."""
        places = (i for i, e in enumerate(self._events) if isinstance(e, Entered) and e.view.id == view)
        return next(places, None)

    def covers(self, place: int | None, frontier: Frontier) -> bool:
        """Whether the messages to all of the view at that place (None: of the latest) go as far as a state's frontier."""
        reach: Reach = self.seen if place is None else {}
        for event in () if place is None else islice(self._events, place + 1, None):
            if isinstance(event, Entered):
                break
            if isinstance(event, Batch):
                raise_reach(reach, event)
        return all(reach.get((origin, service), (0, 0))[0] >= for_all for origin, service, _, for_all in frontier)

    def drop_below(self, reach: Reach) -> list[Batch]:
        """Drop messages of the position's view that a state with this reach includes; later views stay. Returns them."""
        held, self._events = self._events, deque()
        self.bytes = self.messages = 0
        seen, beyond = self.seen, False
        dropped: list[Batch] = []
        for event in held:
            beyond = beyond or isinstance(event, Entered)
            if beyond or not isinstance(event, Batch) or not _is_below(event, reach):
                self.append(event)
            else:
                dropped.append(event)
        self.seen = seen
        return dropped

    def room(self, origins: int) -> int | None:
        """How many packets of each origin still fit; None: enough."""
        settings = self._settings
        if 2 * self.bytes <= settings.buffer_bytes_max and 2 * self.messages <= settings.buffer_messages_max:
            return None
        return min(
            max(settings.buffer_bytes_max - self.bytes, 0) // (self._largest[0] * origins),
            max(settings.buffer_messages_max - self.messages, 0) // (self._largest[1] * origins),
        )


def raise_reach(reach: Reach, batch: Batch) -> None:
    """Add a batch to a reach."""
    key, end = (batch.origin, batch.service), batch.first + batch.count
    reach[key] = (end, end if batch.to is None else reach.get(key, (0, 0))[1])


def _size(batch: Batch) -> int:
    return sum(map(len, batch.payloads or ())) + MESSAGE_BYTES * batch.count


def _is_below(batch: Batch, reach: Reach) -> bool:
    return batch.first < reach.get((batch.origin, batch.service), (0, 0))[0]
