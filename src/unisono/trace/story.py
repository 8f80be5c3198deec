"""Traces written by hand, a line an event: for tests, examples and questions of the kind "would this be allowed?".

    a,b,c VIEW 1@a a b c          who comes first, then what happened
    a CAST x                      x is a's next message
    a CAST y to b,c               … addressed to some only
    a CAST z causal               … of another service than the story's
    a CAST w count 4              … a batch of four messages
    a CAST v vector 1,0,2         … with the vector that the protocol stamped
    b DELIVER x                   b DELIVER w[0:2] delivers the first two of the batch
    c PLACE y                     c PLACE y void
    a,b VIEW 2@a a b from a b     the transitional set after `from`
    c CRASH
    all END                       everyone who has not ended; END cut, LEAVE and the others may have a reason

A member of a later incarnation is written a#1. Empty lines, and lines that begin with a hyphen, say nothing. Local
indices, ordinals and frontiers are counted as a recorder counts them, and so is nothing else: a story may be as wrong
as its author likes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from unisono.trace import schema
from unisono.trace.schema import Event, TraceError, member_name


def tell(text: str, *, protocol: str = "causal-total", service: str = "total", run: str = "story") -> list[Event]:
    """The events of a story, in the order of its lines."""
    return Story(run, protocol, service).tell(text)


def renumber(events: Iterable[Event]) -> list[Event]:
    """The same events with local indices and ordinals counted anew, as if they had been recorded so."""
    rows: Counter[tuple[str, int]] = Counter()
    ordinals: Counter[tuple[object, ...]] = Counter()
    renumbered = []
    for event in events:
        life = (event.member, event.incarnation)
        changed = replace(event, local_index=rows[life])
        rows[life] += 1
        if event.kind in (schema.DELIVER, schema.PLACE):
            place = (life, event.view, event.service)
            changed.ordinal = ordinals[place]
            ordinals[place] += 1
        renumbered.append(changed)
    return renumbered


@dataclass
class _Teller:
    """One member of the story, and what a recorder would have counted for it."""

    rows: int = 0
    casts: int = 0
    view: str | None = None
    members: tuple[str, ...] = ()
    delivered: Counter[str] = field(default_factory=Counter)
    ordinals: Counter[str] = field(default_factory=Counter)
    ended: bool = False


class Story:
    """Makes events of lines. A subclass may know more words."""

    def __init__(self, run: str, protocol: str, service: str) -> None:
        self.run, self.protocol, self.service = run, protocol, service
        self.events: list[Event] = []
        self.tellers: dict[str, _Teller] = {}
        self.casts: dict[str, Event] = {}

    def tell(self, text: str) -> list[Event]:
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("-"):
                continue
            if len(words) < 2 or words[1] not in schema.KINDS:
                raise TraceError(f"line {number} of the story: {line.strip()!r} does not say who did what.")
            for name in self.who(words[0]):
                self.event(name, words[1], words[2:], f"line {number} of the story")
        return self.events

    def who(self, names: str) -> list[str]:
        if names == "all":
            return [name for name, teller in self.tellers.items() if not teller.ended]
        return names.split(",")

    def event(self, name: str, kind: str, words: list[str], where: str) -> None:
        teller = self.tellers.setdefault(name, _Teller())
        address, incarnation = _split(name)
        event = Event(
            self.run, "g", self.protocol, address, incarnation, teller.rows, len(self.events), "simulated", kind
        )
        event.view = teller.view
        if kind == schema.VIEW:
            self._view(teller, event, words)
        elif kind == schema.CAST:
            self._cast(teller, event, words)
        elif kind in (schema.RECEIVE, schema.ORDERED, schema.DELIVER, schema.PLACE):
            self.message(teller, event, words, where)
        elif words:
            event.reason = " ".join(words)
        teller.ended = teller.ended or kind in schema.ENDINGS
        teller.rows += 1
        self.events.append(event)

    def _view(self, teller: _Teller, event: Event, words: list[str]) -> None:
        members, transitional = words[1:], None
        if "from" in members:
            at = members.index("from")
            members, transitional = members[:at], tuple(members[at + 1 :])
        event.previous_view, event.view = teller.view, words[0]
        event.members, event.transitional = tuple(members), transitional
        teller.view, teller.members = event.view, event.members
        teller.delivered.clear()
        teller.ordinals.clear()

    def _cast(self, teller: _Teller, event: Event, words: list[str]) -> None:
        title, event.service, event.count = words[0], self.service, 1
        options = iter(words[1:])
        for option in options:
            if option == "to":
                event.destinations = tuple(next(options).split(","))
            elif option == "count":
                event.count = int(next(options))
            elif option == "vector":
                event.attributes = {"vector": f"[{next(options)}]"}
            else:
                event.service = option
        event.origin, event.origin_incarnation, event.first = event.member, event.incarnation, teller.casts
        event.digest = int.from_bytes(blake2b(title.encode(), digest_size=8).digest(), "big", signed=True)
        event.frontier = tuple(teller.delivered[name] for name in teller.members)
        teller.casts += event.count
        self.casts[title] = event

    def message(self, teller: _Teller, event: Event, words: list[str], where: str) -> None:
        found = re.fullmatch(r"(\w+)(?:\[(\d+):(\d+)\])?", words[0])
        cast = self.casts.get(found[1]) if found else None
        if found is None or cast is None:
            raise TraceError(f"{where}: {words[0]} was not cast before.")
        assert cast.first is not None
        assert cast.count is not None
        low, high = (int(found[2]), int(found[3])) if found[2] else (0, cast.count)
        event.origin, event.origin_incarnation = cast.origin, cast.origin_incarnation
        event.first, event.count, event.service = cast.first + low, high - low, cast.service
        event.destinations, event.attributes = cast.destinations, cast.attributes
        event.digest = cast.digest if event.count == cast.count else None
        if words[1:] == ["void"]:
            event.attributes = {**(event.attributes or {}), "void": "true"}
        if event.kind in (schema.DELIVER, schema.PLACE):
            service = event.service or ""
            event.ordinal = teller.ordinals[service]
            teller.ordinals[service] += 1
            teller.delivered[member_name(event.origin or "", event.origin_incarnation or 0)] += event.count


def _split(name: str) -> tuple[str, int]:
    address, _, incarnation = name.partition("#")
    return address, int(incarnation or 0)
