"""From a violation to a picture of where it happened: the messages and rows of its witness, and what lies around them.

Both are looked up in the trace, so what is not there is left out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable

from unisono.trace.checks.property import Message, Pointed, Row
from unisono.trace.diagram import render
from unisono.trace.schema import (
    CAST,
    CRASH,
    DELIVER,
    ENDINGS,
    ORDERED,
    PLACE,
    RECEIVE,
    VIEW,
    Event,
    TraceError,
    member_name,
)

AROUND = 5
"""Number of messages shown before and after the ones that matter."""
WIDE = 30
"""A picture with more messages is not stretched to show the end of a wait too."""
MEANT_MAX = 8
"""Maximum number of messages that are marked; a violation of more needs no more to be understood."""
ABOUT = frozenset({CAST, RECEIVE, ORDERED, DELIVER, PLACE})


class Neighbourhoods:
    """Draws the surroundings of violations of one run."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = sorted(events, key=lambda e: (e.member, e.incarnation, e.local_index))
        self._rows: dict[Row, Event] = {}
        self._batches: dict[
            str, list[tuple[int, int]]
        ] = {}  # by origin: (first, count) of what it cast or others delivered
        self._by_time = all(event.clock == "simulated" for event in self._events)
        seen: dict[str, set[tuple[int, int]]] = {}
        for event in self._events:
            self._rows[member_name(event.member, event.incarnation), event.local_index] = event
            message = _message(event)
            if message is not None:
                seen.setdefault(message[0], set()).add((message[1], event.count or 1))
        self._batches = {origin: sorted(batches) for origin, batches in seen.items()}

    def found(self, pointed: Pointed) -> Pointed:
        """What there is in the trace of the messages (each by the first index of its batch) and rows."""
        batches = [self._batch(origin, index) for origin, index in sorted(pointed.messages)]
        messages = [batch for batch in dict.fromkeys(batches) if batch is not None]
        return Pointed(frozenset(messages[:MEANT_MAX]), pointed.rows & self._rows.keys())

    def draw(self, found: Pointed) -> str | None:
        """The picture, or None if there is nothing to point at."""
        messages, rows = found
        if not messages and not rows:
            return None
        about = messages | {message for row in rows if (message := _message(self._rows[row])) is not None}
        window = self._window(about, rows) if self._by_time else None
        highlight = [f"{origin}:{first}" for origin, first in sorted(messages)] + sorted(rows)
        shown = self._cut(*window) if window else self._events
        low, high = window or (None, None)
        try:
            return render(shown, start_ns=low, end_ns=high, highlight=highlight)
        except TraceError:
            return None

    def _batch(self, origin: str, index: int) -> Message | None:
        batches = self._batches.get(origin, [])
        at = bisect_right(batches, (index, 1 << 62)) - 1
        if at < 0 or index >= batches[at][0] + batches[at][1]:
            return None
        return origin, batches[at][0]

    def _window(self, messages: Collection[Message], rows: Collection[Row]) -> tuple[int, int]:
        """From before the first thing that matters to after the last, with some neighbours."""
        near = [self._rows[row].time_ns for row in rows]
        near += [event.time_ns for event in self._events if event.kind in ABOUT and _message(event) in messages]
        casts = sorted(event.time_ns for event in self._events if event.kind == CAST)
        low, high = min(near), max(near)
        before, after = bisect_left(casts, low), bisect_right(casts, high)
        if before:
            low = min(low, casts[max(0, before - AROUND)])
        if after < len(casts):
            high = max(high, casts[min(len(casts) - 1, after + AROUND - 1)])
        for at in self._why_given_up(messages):
            if bisect_right(casts, max(at, high)) - bisect_left(casts, min(at, low)) <= WIDE:
                low, high = min(at, low), max(at, high)
        pad = max(1, (high - low) // 20)
        return max(0, low - pad), high + pad

    def _why_given_up(self, messages: Collection[Message]) -> list[int]:
        """When a wait for one of these messages ended without delivery: at the next view, and the crash that led to it."""
        waiting: set[Message] = set()
        who: tuple[str, int] | None = None
        views = []
        for event in self._events:
            if who != (event.member, event.incarnation):
                who, waiting = (event.member, event.incarnation), set()
            message = _message(event)
            if event.kind == VIEW and waiting:
                views.append(event.time_ns)
                waiting = set()
            elif message is None or message not in messages:
                continue
            elif event.kind in (CAST, RECEIVE):
                waiting.add(message)
            elif event.kind in (DELIVER, PLACE):
                waiting.discard(message)
        crashes = [e.time_ns for e in self._events if e.kind == CRASH and views and e.time_ns <= min(views)]
        return [*views, max(crashes)] if crashes else views

    def _cut(self, low: int, high: int) -> list[Event]:
        """What a picture of this time needs: everything about messages then under way, the views, and how each life ended."""
        inside = [event for event in self._events if low <= event.time_ns <= high]
        messages = {_message(event) for event in inside} - {None}

        def wanted(event: Event) -> bool:
            if event.kind == VIEW or event.kind in ENDINGS or low <= event.time_ns <= high:
                return True
            return event.kind in ABOUT and _message(event) in messages

        return [event for event in self._events if wanted(event)]


def _message(event: Event) -> Message | None:
    if event.origin is None or event.first is None:
        return None
    return member_name(event.origin, event.origin_incarnation or 0), event.first
