"""P22 bounded liveness: after the last HEAL one view a component, and everything delivered, within the bound;
no member is BLOCKed longer.

When the network is whole again, HEAL is written at every member that lives, with `attributes.bound_ns` and, if the group
stays in several parts, `attributes.component`, the name of this member's part. The last such row of a life counts. The
latest HEAL of a component and the largest bound are the component's; its **start** is that HEAL, or the last CRASH, LEAVE, JOIN
or PAUSE in the run if one came later. Clocks of several members are compared only where they are simulated: with real ones,
each member is judged alone, and for BLOCK alone.

- **one view**: at start + bound all members of the component have the same view installed, without members that
  crashed, left, or belong to another component. Asked of lives without a gap that ended with END; of those that were cut (the
  run was stopped with messages still under way) only if they got so far. A life that ended uncut has no more to come,
  so what it lacks it will always lack.
- **everything delivered**: what one of these members casts at time t, itself delivers (or places) by max(t, start) + bound, and so
  do all who have the view of that cast installed at start + bound. Again a life that was cut is asked only as far as it got.
  Messages of a transaction that any member aborted are not required.
- **blocked**: from the first BLOCK (or start, if that is later) to the next UNBLOCK, VIEW or ending it is no longer than the
  bound; and no life that ended uncut is still blocked. Asked of all lives with a HEAL and without a gap.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from unisono.trace import schema
from unisono.trace.checks.attributes import value_of, whole
from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Life
from unisono.trace.checks.property import Each, Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import CRASH, CUT, END, JOIN, LEAVE, PAUSE, Event, member_name

DISTURBANCES = frozenset({CRASH, LEAVE, JOIN, PAUSE})
SIMULATED = "simulated"


class _Heal(NamedTuple):
    time: int
    bound: int
    component: tuple[str, str]  # its name; and with a real clock, whose


class _Block(NamedTuple):
    begin: int
    end: int
    local: int
    by: str


@dataclass
class _Book:
    """What one life did, and when."""

    life: Life
    heal: _Heal | None = None
    views: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    casts: list[Event] = field(default_factory=list)
    delivered: defaultdict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))  # first times
    blocked_at: Event | None = None
    blocks: list[_Block] = field(default_factory=list)
    end_time: int = 0

    def reached(self, time: int) -> bool:
        """Whether what had not happened by this time was late."""
        return self.life.ending_reason != CUT or self.end_time >= time

    def view_at(self, time: int) -> tuple[str | None, tuple[str, ...]]:
        seen = [(view, members) for when, view, members in self.views if when <= time]
        return seen[-1] if seen else (None, ())


class BoundedLiveness(Checker):
    about = PropertyRecord(
        id="P22",
        name="bounded liveness",
        says="After the last fault, everything is delivered within the bound.",
        exact=__doc__,
        rows=(
            schema.HEAL, schema.CAST, schema.DELIVER, schema.PLACE, schema.BLOCK, schema.UNBLOCK, schema.DECIDE,
            *sorted(DISTURBANCES),
        ),
        roles=("who", "origin"),
        witness={
            "what": Kind.TEXT, "bound": Kind.NUMBER,
            "views": Each({"who": Kind.MEMBERS, "seen": Kind.VIEW}, "[{seen}|none] at {who}"),
            "outsiders": Kind.MEMBERS, "message": Kind.MESSAGES, "cast_local": RowOf("origin"), "due": Kind.NUMBER,
            "local": RowOf("who"), "length": Kind.NUMBER,
        },
        sentence={
            "views": "{bound} ns after the last disturbance there are several views: {views}.",
            "outsiders": "{bound} ns after the last disturbance view {view} still holds {outsiders}.",
            "late": "{who} had not delivered {message} (cast at {origin}, local {cast_local}) at {due} ns.",
            "blocked": "{who} [was blocked (local {local}) for {length} ns of {bound}|blocked (local {local}) and never went on].",
        },
        example=Example(("b", "a"), "1@a", {"what": "late", "message": "a:0", "cast_local": 2, "due": 151}),
    )  # fmt: skip

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._books: dict[Life, _Book] = {}
        self._disturbed: int | None = None
        self._aborted: set[str] = set()  # transactions

    def row(self, life: Life, event: Event) -> None:
        book = self._books.get(life)
        if book is None:
            book = self._books[life] = _Book(life)
        kind, time = event.kind, event.time_ns
        if kind == schema.HEAL:
            bound = whole(value_of(event, "bound_ns"))
            if bound is not None:
                alone = "" if event.clock == SIMULATED else life.name
                book.heal = _Heal(time, bound, (value_of(event, "component") or "", alone))
        elif kind == schema.CAST:
            book.casts.append(event)
        elif kind == schema.DELIVER or kind == schema.PLACE:
            times = book.delivered[member_name(event.origin or "", event.origin_incarnation or 0)]
            for index in range(event.first or 0, (event.first or 0) + (event.count or 0)):
                times[index] = min(time, times.get(index, time))
        elif kind == schema.BLOCK:
            book.blocked_at = book.blocked_at or event
        elif kind == schema.DECIDE and event.decision == "abort" and event.transaction is not None:
            self._aborted.add(event.transaction)
        elif kind == schema.VIEW:
            book.views.append((time, event.view or "", event.members or ()))
        if kind in DISTURBANCES and event.clock == SIMULATED:
            self._disturbed = time if self._disturbed is None else max(time, self._disturbed)
        if kind in schema.ENDINGS and life.ending is None:
            book.end_time = time
        if book.blocked_at is not None and (kind in schema.ENDINGS or kind in (schema.UNBLOCK, schema.VIEW)):
            book.blocks.append(_Block(book.blocked_at.time_ns, time, book.blocked_at.local_index, kind))
            book.blocked_at = None

    def conclude(self) -> None:
        components: defaultdict[tuple[str, str], list[tuple[_Book, _Heal]]] = defaultdict(list)
        for book in self._books.values():
            if book.heal is not None:
                components[book.heal.component].append((book, book.heal))
        for component in sorted(components):
            books = [book for book, _ in components[component]]
            start = max(heal.time for _, heal in components[component])
            bound = max(heal.bound for _, heal in components[component])
            if not component[1]:
                start = max(start, start if self._disturbed is None else self._disturbed)
                self._judge_component(component, books, start, bound)
            for book in books:
                if book.life.hole is None:
                    self._judge_blocks(book, start, bound)

    def _judge_component(self, component: tuple[str, str], books: list[_Book], start: int, bound: int) -> None:
        deadline = start + bound
        asked = [book for book in books if book.life.hole is None and book.life.ending == END]
        there = {book.life: book.view_at(deadline) for book in asked}
        settled = [book for book in asked if book.reached(deadline)]
        views = {there[book.life][0] for book in settled}
        if len(views) > 1:
            seen = sorted((book.life.name, there[book.life][0]) for book in settled)
            self.report([name for name, _ in seen], None, what="views", bound=bound, views=seen)
        for view in sorted(view for view in views if view is not None):
            listed = {name for book in settled if there[book.life][0] == view for name in there[book.life][1]}
            outsiders = sorted(name for name in listed if self._is_outside(name, component))
            if outsiders:
                self.report(outsiders, view, what="outsiders", bound=bound, outsiders=outsiders)
        for caster in asked:
            for cast in caster.casts:
                if cast.transaction in self._aborted:
                    continue
                due = max(cast.time_ns, start) + bound
                for book in asked:
                    if book is caster or there[book.life][0] == cast.view:
                        self._judge_delivery(book, caster, cast, due)

    def _is_outside(self, name: str, component: tuple[str, str]) -> bool:
        life = self.history.by_name.get(name)
        if life is None:
            return False
        book = self._books.get(life)
        elsewhere = book is not None and book.heal is not None and book.heal.component != component
        return life.ending in (CRASH, LEAVE) or elsewhere

    def _judge_delivery(self, book: _Book, caster: _Book, cast: Event, due: int) -> None:
        assert cast.first is not None
        assert cast.count is not None
        if not book.reached(due):
            return
        times = book.delivered[caster.life.name]
        if all(times.get(index, due + 1) <= due for index in range(cast.first, cast.first + cast.count)):
            return
        who, origin = book.life.name, caster.life.name
        self.report(
            [who, origin],
            cast.view,
            what="late",
            message=f"{origin}:{cast.first}",
            cast_local=cast.local_index,
            due=due,
        )

    def _judge_blocks(self, book: _Book, start: int, bound: int) -> None:
        who = book.life.name
        for block in book.blocks:
            length = block.end - max(block.begin, start)
            if block.by == END and book.life.ending_reason != CUT:
                self.report([who], None, what="blocked", local=block.local)
            elif length > bound:
                self.report([who], None, what="blocked", local=block.local, length=length, bound=bound)
