"""P17 safe: a safe message is delivered only after this member's STABLE for it, and when all members have it.

A message is safe if its CAST row has `attributes.safe` = ``true``. Where p delivers it in V,

- p's STABLE rows before cover it: each names a range of one origin's messages, cut in any way;
- p received it before (its RECEIVE, or its CAST if it is the origin), and every other member of V has its RECEIVE somewhere.

A message that p delivers while it is blocked for a view change is delivered in a cut: then the members of the transitional
set of p's next view are asked instead of all of V, and p alone if it never got there. Placeholders are not asked about, but
members that hold only a placeholder must have received its header like all others. Nothing is concluded from the absence
of rows of a life that is not whole. Clocks are not compared, so the times of other members' RECEIVE rows do not count.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from unisono.trace.checks.attributes import is_true
from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Cast, DeliveredPart, Life, Stay, message_name
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.spans import Spans
from unisono.trace.schema import BLOCK, CAST, DELIVER, RECEIVE, STABLE, UNBLOCK, VIEW, Event, member_name

_Sets = defaultdict[str, defaultdict[str, Spans]]  # by life and by origin


@dataclass
class _SafeDelivery:
    """A DELIVER row with safe messages in it."""

    stay: Stay
    local: int
    blocked: bool
    messages: list[tuple[Life, int, int]] = field(default_factory=list)
    unstable: bool = False
    unreceived: bool = False


class Safe(Checker):
    about = PropertyRecord(
        id="P17",
        name="safe",
        says="A safe message is delivered only when every member is known to have it.",
        exact=__doc__,
        rows=(CAST, RECEIVE, STABLE, DELIVER, BLOCK, UNBLOCK),
        roles=("who",),
        witness={"what": Kind.TEXT, "local": RowOf("who"), "messages": Kind.MESSAGES, "lacking": Kind.MEMBERS},
        sentence={
            "unstable": "{who} delivered the safe {messages} in view {view} (local {local}) before its STABLE for it.",
            "not held": "{who} delivered the safe {messages} in view {view} (local {local}) although {lacking} did not receive it.",
        },
        example=Example(("a", "c"), "1@a", {"what": "not held", "local": 3, "messages": ["a:0"], "lacking": ["c"]}),
    )

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._safe: set[Cast] = set()
        self._blocked: set[Life] = set()
        self._stable: _Sets = defaultdict(lambda: defaultdict(Spans))
        self._held: _Sets = defaultdict(lambda: defaultdict(Spans))
        self._rows: dict[tuple[Life, int], _SafeDelivery] = {}

    def row(self, life: Life, event: Event) -> None:
        kind = event.kind
        if kind == BLOCK:
            self._blocked.add(life)
        elif kind in (UNBLOCK, VIEW):
            self._blocked.discard(life)
        elif kind in (RECEIVE, STABLE) and event.count:
            book = self._held if kind == RECEIVE else self._stable
            origin = member_name(event.origin or "", event.origin_incarnation or 0)
            book[life.name][origin].add(event.first or 0, (event.first or 0) + event.count)

    def cast(self, cast: Cast, event: Event) -> None:
        self._held[cast.origin.name][cast.origin.name].add(cast.first, cast.end)
        if is_true(event, "safe"):
            self._safe.add(cast)

    def deliver(self, delivery: DeliveredPart) -> None:
        life, origin = delivery.stay.life, delivery.origin
        if delivery.cast not in self._safe or life.stay is not delivery.stay:
            return
        local = delivery.event.local_index
        row = self._rows.setdefault((life, local), _SafeDelivery(delivery.stay, local, life in self._blocked))
        row.messages.append((origin, delivery.first, delivery.end))
        row.unstable |= bool(self._stable[life.name][origin.name].outside(delivery.first, delivery.end))
        row.unreceived |= bool(self._held[life.name][origin.name].outside(delivery.first, delivery.end))

    def conclude(self) -> None:
        for (life, _), row in self._rows.items():
            if life.hole is not None:
                row.unstable = row.unreceived = False
            if row.unstable:
                self._report("unstable", life, row, [])
            lacking = [life.name] if row.unreceived else []
            lacking += [name for name in self._asked(row) if name != life.name and self._lacks(name, row)]
            if lacking:
                self._report("not held", life, row, sorted(lacking))

    def _asked(self, row: _SafeDelivery) -> tuple[str, ...]:
        if not row.blocked:
            return row.stay.view.members
        return row.stay.transitional or ()

    def _lacks(self, name: str, row: _SafeDelivery) -> bool:
        life = self.history.by_name.get(name)
        if life is None or life.unknown is not None:
            return False
        held = self._held[name]
        return any(held[origin.name].outside(first, end) for origin, first, end in row.messages)

    def _report(self, what: str, life: Life, row: _SafeDelivery, lacking: list[str]) -> None:
        self.report(
            [life.name, *(name for name in lacking if name != life.name)],
            row.stay.id,
            what=what,
            local=row.local,
            messages=[message_name(*message) for message in row.messages],
            lacking=lacking,
        )
