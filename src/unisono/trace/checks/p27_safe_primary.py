"""P27 safe and primary: once a safe message is delivered in a primary view, every later primary has it.

A message is safe if its CAST has `attributes.safe` = ``true``. Let a life deliver the safe message m in the primary view V before
it blocks for the end of V. For every later primary V' (of a higher number):

- A member that installed V and later V' delivered m in V, if it is addressed to it, or its state was replaced after it
  entered V.
- Where V' names the part that carries its state (`attributes.state` = ``view/cut``: the members that came from that view with
  that cut) and m goes to all, some member of that part has m: it delivered m, or took over the state of a primary whose part
  has it.

Nothing is asked of a run whose applications were not recorded, and nothing is concluded from a life that is not whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from unisono.trace.checks.attributes import is_true, value_of
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Cast, named
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.shown_rows import (
    Breach,
    DeliveredRange,
    LifeRows,
    Lives,
    Range,
    ShownChecker,
    SpansOf,
)
from unisono.trace.checks.spans import Spans
from unisono.trace.schema import BLOCK, CAST, DELIVER, SHOW, SNAPSHOT_IN, STATE, VIEW, Event, view_number


def primaries(lives: Lives) -> dict[str, dict[str, Event]]:
    """By view: the VIEW rows of the lives that installed it as primary."""
    found: defaultdict[str, dict[str, Event]] = defaultdict(dict)
    for name, life in lives.items():
        for view, row in life.views.items():
            if is_true(row, "primary"):
                found[view][name] = row
    return dict(sorted(found.items(), key=lambda item: (view_number(item[0]), item[0])))


def part_of(view: dict[str, Event], state: str) -> dict[str, Event]:
    """Those of a view who came with the part that `state` names."""
    return {name: row for name, row in view.items() if came_with(row, state)}


def came_with(row: Event, state: str) -> bool:
    """Whether a member came into a view with the part that `state` names."""
    view, _, cut = state.partition("/")
    return row.previous_view == view and (value_of(row, "cut") or "") == cut


def state_named(view: dict[str, Event]) -> str | None:
    """The part that carries the state, as the first of those names it who name one."""
    return next((state for name in sorted(view) if (state := value_of(view[name], "state")) is not None), None)


class CastRange(NamedTuple):
    """(A part of) a safe batch as it was cast."""

    origin: str
    first: int
    end: int
    view: str
    destinations: tuple[str, ...] | None


def _place(message: CastRange) -> tuple[object, ...]:
    """In which order messages are judged. One index may have been cast twice, to everyone and to some (P0)."""
    to = message.destinations
    return message.origin, message.first, message.end, message.view, to is not None, to or ()


def _judge_members(
    lives: Lives, chain: dict[str, dict[str, Event]], message: CastRange, has: SpansOf
) -> Iterator[Breach]:
    for name in sorted(lives):
        life = lives[name]
        entered = life.views.get(message.view)
        if entered is None or life.is_holed or not (message.destinations is None or name in message.destinations):
            continue
        later = next((row for view, row in _later(life, chain, entered)), None)
        if later is None or life.replaced(entered.local_index):
            continue
        for part in has.outside((name, message.view, message.origin), message.first, message.end):
            yield _finding(
                "came without",
                (name,),
                later.view,
                later.local_index,
                message,
                part,
            )


def _later(life: LifeRows, chain: dict[str, dict[str, Event]], entered: Event) -> Iterator[tuple[str, Event]]:
    for view, row in life.views.items():
        if row.local_index > entered.local_index and life.name in chain.get(view, ()):
            yield view, row


class _Lineage:
    """Whether the states of later primaries have one message. None: that cannot be known."""

    def __init__(self, lives: Lives, chain: dict[str, dict[str, Event]], message: CastRange, has: SpansOf) -> None:
        self._lives, self._chain, self._message = lives, chain, message
        self._lacks = {
            name: bool(has.outside((name, message.view, message.origin), message.first, message.end)) for name in lives
        }
        self._known: dict[str, bool | None] = {}

    def judge(self) -> Iterator[Breach]:
        number = view_number(self._message.view)
        for view, rows in self._chain.items():
            state = state_named(rows)
            if view_number(view) > number and state is not None and self._carried(view) is False:
                members = sorted(part_of(rows, state))
                yield _finding(
                    "not in the state",
                    tuple(members),
                    view,
                    None,
                    self._message,
                    (self._message.first, self._message.end),
                    state=state,
                    part=members,
                )
                return  # those that follow inherit it

    def _carried(self, view: str) -> bool | None:
        if view not in self._known:
            self._known[view] = None  # a trace that goes in a circle tells nothing
            self._known[view] = self._ask(view)
        return self._known[view]

    def _ask(self, view: str) -> bool | None:
        rows = self._chain[view]
        state = state_named(rows)
        if state is None:
            return None
        part = part_of(rows, state)
        answers = {self._has(name, row) for name, row in part.items()}
        if True in answers:
            return True
        listed_ones = {name for row in rows.values() for name in row.members or ()}
        if not part or None in answers or listed_ones - rows.keys():
            return None  # someone of the part did not live to install the view
        return False

    def _has(self, name: str, until: Event) -> bool | None:
        life = self._lives[name]
        if life.is_holed:
            return None
        entered = life.views.get(self._message.view)
        answer: bool | None = False
        current: Event | None = None
        for row in life.rows:
            if row.local_index >= until.local_index:
                break
            if row.kind == VIEW:
                current = row
                if row is entered:
                    answer = answer or not self._lacks[name]
            elif row.kind == STATE:
                view = None if current is None else current.view
                if view == self._message.view:
                    continue  # what is delivered in a view is in the state that is taken over there, or comes after it
                answer = self._carried(view) if view is not None and name in self._chain.get(view, ()) else None
        return answer


def _finding(
    what: str,
    members: tuple[str, ...],
    view: str | None,
    local: int | None,
    message: CastRange,
    span: Range,
    **more: object,
) -> Breach:
    about = {"message": named(message.origin, *span), "primary": message.view}
    return Breach(what, members, view, local, {**about, **more})


class SafePrimary(ShownChecker):
    about = PropertyRecord(
        id="P27",
        name="safe and primary",
        says="A safe message, once delivered in a primary view, is in every later one.",
        exact=__doc__,
        rows=(SHOW, CAST, DELIVER, BLOCK, STATE, SNAPSHOT_IN),
        roles=("who",),
        witness={
            "what": Kind.TEXT, "local": RowOf("who"), "message": Kind.MESSAGES, "primary": Kind.VIEW, "state": Kind.TEXT,
            "part": Kind.MEMBERS,
        },
        sentence={
            what: f"The safe message {{message}} was delivered in primary {{primary}} before that ended, but {how}."
            for what, how in (
                ("came without", "{who} came from there into primary {view} (local {local}) without it"),
                (
                    "not in the state",
                    "the state of primary {view} comes from {state} with [{part}|no member], and none of them has it",
                ),
            )
        },
        example=Example(("b",), "2@a", {"what": "came without", "local": 3, "message": "a:0", "primary": "1@a"}),
    )  # fmt: skip

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._safe: list[Cast] = []

    def cast(self, cast: Cast, event: Event) -> None:
        if is_true(event, "safe"):
            self._safe.append(cast)

    def decide(self, lives: dict[str, LifeRows]) -> Iterator[Breach]:
        if not any(life.is_shown for life in lives.values()):
            return
        chain = primaries(lives)
        safe = [
            CastRange(cast.origin.name, cast.first, cast.end, cast.view, cast.destinations)
            for cast in self._safe
            if cast.view in chain
        ]
        has, early = SpansOf(), SpansOf()
        for one in self._delivered_in({message.view for message in safe}):
            has.add((one.who, one.view, one.origin), one.first, one.end)
            if one.early:
                early.add((one.view, one.origin), one.first, one.end)
        for message in sorted(safe, key=_place):
            certain = early.spans.get((message.view, message.origin), Spans()).inside(message.first, message.end)
            for first, end in certain:
                known = message._replace(first=first, end=end)
                yield from _judge_members(lives, chain, known, has)
                if message.destinations is None:
                    yield from _Lineage(lives, chain, known, has).judge()

    def _delivered_in(self, views: set[str]) -> Iterator[DeliveredRange]:
        for life in self.history.numbered:
            for view in views & life.stays.keys():
                yield from self.delivered(life.stays[view])
