"""From a violation to a picture of where it happened: which messages and events it speaks of, and what lies around them.

A sentence names messages (`a:3`) and rows (`b … (local 17)`). Both are looked up in the trace, so a name that merely looks
like one is never taken for one. A row belongs to the member that the sentence named last before it, if it is about one of the
messages there.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

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

Message = tuple[str, int]
Row = tuple[str, int]
AROUND = 5
"""Number of messages shown before and after the ones that matter."""
WIDE = 30
"""A picture with more messages is not stretched to show the end of a wait too."""
MEANT_MAX = 8
"""Maximum number of messages that are marked; a sentence about more needs no more to be understood."""
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
        self._members = {who for who, _ in self._rows} | self._batches.keys()

    def draw(self, sentence: str, members: Sequence[str], witness: Mapping[str, object] | None = None) -> str | None:
        """The picture, or None if the sentence names nothing that the trace holds."""
        messages, rows = self.meant(sentence, members, witness or {})
        if not messages and not rows:
            return None
        about = messages | {found for row in rows if (found := _message(self._rows[row])) is not None}
        window = self._window(about, rows) if self._by_time else None
        highlight = [f"{origin}:{first}" for origin, first in sorted(messages)] + sorted(rows)
        shown = self._cut(*window) if window else self._events
        low, high = window or (None, None)
        try:
            return render(shown, start_ns=low, end_ns=high, highlight=highlight)
        except TraceError:
            return None

    def meant(
        self, sentence: str, members: Sequence[str], witness: Mapping[str, object]
    ) -> tuple[set[Message], set[Row]]:
        """The messages, each by the first index of its batch, and the rows that a violation names."""
        text = f"{sentence} ; {' ; '.join(str(value) for value in witness.values())}"
        messages: set[Message] = set()
        for found in re.finditer(r"([^\s,;()]+):(\d+)", text):
            message = self._batch(found[1], int(found[2]))
            if message is not None and len(messages) < MEANT_MAX:
                messages.add(message)
        rows: set[Row] = set()
        for who, index in _named_rows(sentence, self._members):
            # A list of members may stand between a name and its row: then one of the violation's own members is meant.
            meant = [(who or "", index), *((one, index) for one in members if (one, index) not in rows)]
            rows |= set([row for row in meant if self._fits(row, messages)][:1])
        return messages, rows

    def _fits(self, row: Row, messages: set[Message]) -> bool:
        """There is such a row, and it is about one of the messages, if about any."""
        event = self._rows.get(row)
        message = None if event is None else _message(event)
        return event is not None and (message is None or not messages or self._batch(*message) in messages)

    def _batch(self, origin: str, index: int) -> Message | None:
        batches = self._batches.get(origin, [])
        at = bisect_right(batches, (index, 1 << 62)) - 1
        if at < 0 or index >= batches[at][0] + batches[at][1]:
            return None
        return origin, batches[at][0]

    def _window(self, messages: set[Message], rows: set[Row]) -> tuple[int, int]:
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

    def _why_given_up(self, messages: set[Message]) -> list[int]:
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
            elif message in messages and event.kind in (CAST, RECEIVE):
                waiting.add(message)
            elif message in messages and event.kind in (DELIVER, PLACE):
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


def _named_rows(sentence: str, members: Container[str]) -> Iterator[tuple[str | None, int]]:
    """Every row that a sentence names, with the member named last before it."""
    last: str | None = None
    for found in re.finditer(r"\blocal (?:index )?(\d+)|[^\s,;()]+", sentence):
        if found[1] is not None:
            yield last, int(found[1])
        else:
            name = found[0].rstrip(".:").removesuffix("'s")
            last = name if name in members else last
