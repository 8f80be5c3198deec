"""P19 state transfer: the hash chain over deliveries at (view, ordinal) is equal at donor, joiner and all.

SNAPSHOT_OUT at the donor and SNAPSHOT_IN at the joiner name a `view`, a `service` (null: total) and an `ordinal`: the state holds
all deliveries of that service up to the first `ordinal` ones (DELIVER and PLACE) of that view. For the service `total` they
carry `attributes.chain`, the hash chain over those deliveries; for others, whose order may differ, `attributes.digest`, an
order-free sum. Both run over a life's messages from its beginning; a SNAPSHOT_IN replaces them by its own value, from
its point on. `chained` and `summed` define one step; both begin with `START`. Payloads are the business of P1.

- A life had installed the view that its snapshot names, and a donor had delivered so far.
- The donor's value is the one that its own rows give.
- The joiner's value is that of a SNAPSHOT_OUT for the same point.
- All others have the donor's value there: members that came into the view with the donor, or took a snapshot in it before that
  point, who went the same way out of it, uncut, and take no snapshot at a later point (who does, did not hold
  the state yet). Where what applications are shown is recorded, they were shown that view: who waited for a state was not.
  Order-free sums are compared with others at the beginning of a view alone.

Nothing is computed from a life with a gap. A SNAPSHOT_IN for a point of which there is no SNAPSHOT_OUT at all is left
alone where a member of the view is not whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from unisono.trace.checks.attributes import value_of
from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Life, Stay
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import DELIVER, PLACE, SHOW, SNAPSHOT_IN, SNAPSHOT_OUT, TOTAL, VIEW, Event, member_name

START = "0" * 16
_MODULUS = 2**64


def chained(value: str, message: str) -> str:
    """The chain with one more message, which is written ``origin:index``."""
    return blake2b(f"{value} {message}".encode(), digest_size=8).hexdigest()


def summed(value: str, message: str) -> str:
    """The order-free sum with one more message."""
    one = int.from_bytes(blake2b(message.encode(), digest_size=8).digest(), "big")
    return f"{(int(value, 16) + one) % _MODULUS:016x}"


def is_value(text: str | None) -> bool:
    """Whether a snapshot's chain or sum is well-formed (16 hexadecimal digits), so that it can be continued."""
    return text is not None and len(text) == 16 and not set(text) - set("0123456789abcdef")


Point: TypeAlias = tuple[int, int]
"""Of a life: the number of its stay, from 1 on, and an ordinal."""


class DeliveredAt(NamedTuple):
    """A delivery."""

    point: Point
    local: int
    messages: tuple[str, ...]


class SnapshotTaken(NamedTuple):
    """A snapshot that a life took over."""

    point: Point
    local: int
    value: str | None


class StateAt(NamedTuple):
    """How far a life's rows give its state at a point."""

    reached_at: int | None
    """The local index of the delivery that brings it there; -1: it begins there; None: it was never there."""
    value: str | None
    """None: it goes on from a snapshot that cannot be read."""


def state_at(service: str, point: Point, deliveries: Iterable[DeliveredAt], taken: Iterable[SnapshotTaken]) -> StateAt:
    """What the rows of one life about one service give for a point."""
    last = (point[0], point[1] - 1)
    reached_at = min((row.local for row in deliveries if row.point == last), default=None) if point[1] else -1
    before = [one for one in taken if one.point <= point]
    base, _, value = max(before, key=lambda one: (one.point, one.local)) if before else SnapshotTaken((0, 0), 0, START)
    if value is None or not is_value(value):
        return StateAt(reached_at, None)
    step = chained if service == TOTAL else summed
    for row in deliveries:
        if base <= row.point < point:
            for message in row.messages:
                value = step(value, message)
    return StateAt(reached_at, value)


def delivered(event: Event, stay: int) -> DeliveredAt:
    """What a DELIVER or PLACE row adds in the stay of this number."""
    assert event.first is not None
    assert event.count is not None
    origin = member_name(event.origin or "", event.origin_incarnation or 0)
    messages = tuple(f"{origin}:{index}" for index in range(event.first, event.first + event.count))
    return DeliveredAt((stay, event.ordinal or 0), event.local_index, messages)


def value_in(event: Event) -> str | None:
    """The value of a snapshot."""
    return value_of(event, "chain" if (event.service or TOTAL) == TOTAL else "digest")


class _Snapshot(NamedTuple):
    life: Life
    view: str | None
    service: str
    ordinal: int
    value: str | None
    local: int
    stay: int | None  # null: a view that this life had not installed

    @property
    def key(self) -> tuple[str | None, str, int]:
        return self.view, self.service, self.ordinal


class _StateEntry(NamedTuple):
    """How a life came into a view first."""

    number: int
    stay: Stay
    previous: str | None
    along: tuple[str, ...]


class StateTransfer(Checker):
    about = PropertyRecord(
        id="P19",
        name="state transfer",
        says="A member that joins gets the state that all the others have at that moment.",
        exact=__doc__,
        rows=(DELIVER, PLACE, SNAPSHOT_OUT, SNAPSHOT_IN, SHOW),
        roles=("who", "whom"),
        witness={
            "what": Kind.TEXT, "local": RowOf("who"), "ordinal": Kind.NUMBER, "service": Kind.TEXT, "value": Kind.TEXT,
            "given": Kind.TEXT, "computed": Kind.TEXT, "theirs": Kind.TEXT,
        },
        sentence={
            what: f"{{who}} {how} (local {{local}}: view {{view}}, ordinal {{ordinal}}, {{service}})."
            for what, how in (
                ("foreign view", "took a snapshot of view {view}, which it had not installed"),
                ("joiner", "took the state [{value}|none], but [{given}|none] was given away"),
                ("not reached", "gave away more than it had delivered"),
                ("donor", "gave away the state [{value}|none], but its rows give {computed}"),
                ("other", "has the state {computed} there, but {whom} has {theirs}"),
            )
        },
        example=Example(
            ("a", "b"), "2@a", {
                "what": "other", "local": 5, "ordinal": 1, "service": "total", "value": "d6378dbf4b6e7d11",
                "computed": "d6378dbf4b6e7d11", "theirs": "cfc8b365cde86e5a",
            }
        ),
    )  # fmt: skip

    def __init__(
        self, history: History | None = None, states: Mapping[tuple[str, str, Point], StateAt] | None = None
    ) -> None:
        """`states`: what was computed elsewhere of deliveries that are not given, by life, service and point."""
        super().__init__(history)
        self._states = states
        self._views: defaultdict[Life, int] = defaultdict(int)
        self._entries: dict[tuple[Life, str | None], _StateEntry] = {}
        self._rows: defaultdict[tuple[Life, str], list[DeliveredAt]] = defaultdict(list)
        self._ins: list[_Snapshot] = []
        self._outs: list[_Snapshot] = []
        self._shown: set[tuple[Life, str | None]] = set()  # which application was shown which view

    def view(self, stay: Stay, event: Event) -> None:
        life = stay.life
        entry = _StateEntry(self._views[life], stay, event.previous_view, event.transitional or ())
        self._entries.setdefault((life, stay.id), entry)

    def row(self, life: Life, event: Event) -> None:
        kind = event.kind
        if kind == VIEW:
            self._views[life] += 1
        elif kind in (DELIVER, PLACE):
            self._rows[life, event.service or TOTAL].append(delivered(event, self._views[life]))
        elif kind == SHOW:
            self._shown.add((life, event.view))
        elif kind in (SNAPSHOT_IN, SNAPSHOT_OUT):
            entry = self._entries.get((life, event.view))
            stay = None if entry is None else entry.number
            place = (event.view, event.service or TOTAL, event.ordinal or 0)
            one = _Snapshot(life, *place, value_in(event), event.local_index, stay)
            (self._ins if kind == SNAPSHOT_IN else self._outs).append(one)

    def conclude(self) -> None:
        ways = {
            stay: number
            for number, transition in enumerate(self.history.transitions())
            if not transition.cut
            for stay in transition.stays
        }
        for one in self._ins + self._outs:
            if one.stay is None and one.life.hole is None:
                self._report("foreign view", one)
        for one in self._ins:
            if one.stay is not None:
                self._judge_joiner(one)
        for one in self._outs:
            if one.stay is not None and one.life.hole is None:
                self._judge_donor(one, one.stay, ways)

    def _judge_joiner(self, one: _Snapshot) -> None:
        given = [out.value for out in self._outs if out.key == one.key]
        if one.value is not None and one.value in given:
            return
        members = self._entries[one.life, one.view].stay.view.members
        if given or all(self._is_whole(name) for name in members):
            self._report("joiner", one, given=sorted({value for value in given if value is not None}))

    def _judge_donor(self, one: _Snapshot, stay: int, ways: dict[Stay, int]) -> None:
        reached_at, value = self._state(one.life, one.service, (stay, one.ordinal))
        if reached_at is None or reached_at >= one.local:
            self._report("not reached", one)
            return
        if value is None:
            return
        if value != one.value:
            self._report("donor", one, computed=value)
        if one.service != TOTAL and one.ordinal:
            return
        mine = self._entries[one.life, one.view]
        for (life, view), entry in self._entries.items():
            if view != one.view or life is one.life or life.hole is not None:
                continue
            way = ways.get(entry.stay)
            if way is not None and way == ways.get(mine.stay):
                reached_at, theirs = self._state(life, one.service, (entry.number, one.ordinal))
                is_held = reached_at is not None and self._holds_state(one, mine, life, entry)
                if is_held and theirs is not None and theirs != value:
                    self._report("other", one, life.name, computed=value, theirs=theirs)

    def _holds_state(self, one: _Snapshot, mine: _StateEntry, life: Life, entry: _StateEntry) -> bool:
        if self._shown and (life, one.view) not in self._shown:
            return False
        taken = [other.point for other in self._taken(life, one.service)]
        if any(other > (entry.number, one.ordinal) for other in taken):
            return False
        came_along = entry.previous == mine.previous and (mine.previous is None or life.name in mine.along)
        return came_along or any(number == entry.number for number, _ in taken)

    def _taken(self, life: Life, service: str) -> list[SnapshotTaken]:
        return [
            SnapshotTaken((one.stay, one.ordinal), one.local, one.value)
            for one in self._ins
            if one.life is life and one.service == service and one.stay is not None
        ]

    def _state(self, life: Life, service: str, point: Point) -> StateAt:
        if self._states is not None:
            return self._states[life.name, service, point]
        return state_at(service, point, self._rows[life, service], self._taken(life, service))

    def _is_whole(self, name: str) -> bool:
        life = self.history.by_name.get(name)
        return life is not None and life.unknown is None

    def _report(self, what: str, one: _Snapshot, *others: str, **more: object) -> None:
        self.report(
            [one.life.name, *others],
            one.view,
            what=what,
            local=one.local,
            ordinal=one.ordinal,
            service=one.service,
            value=one.value,
            **more,
        )
