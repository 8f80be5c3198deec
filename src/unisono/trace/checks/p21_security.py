"""P21 security: every accepted packet is of an authenticated member; injected attacks = counted DROPs.

What is accepted shows as RECEIVE. Its origin and, where it was forwarded, its sender (`attributes.sender`, a member's name)
are members of the view that it names, as this life installed it; and no RECEIVE says `attributes.authenticated` = ``false``,
which a driver writes if it lets a packet pass whose seal it could not check.

Attacks are packets that a fault layer puts before a member: forged, altered, replayed, of strangers. It counts them: COUNTERS
has `attributes.injected`, how many so far in this life, and `attributes.accepted_forged`, how many of them were taken
for real, which is 0. Each refusal is a DROP, in which `attributes.injected` says how many of the refused packets were
injected (a DROP without it refused other things: stale views, duplicates of the network). So at every COUNTERS row
that has `injected`, it equals the sum over this life's DROP rows before it. Not asked behind a gap.
"""

from __future__ import annotations

from collections import defaultdict

from unisono.trace.checks.attributes import value_of, whole
from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Life, Stay
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import COUNTERS, DROP, RECEIVE, Event, member_name


class Security(Checker):
    about = PropertyRecord(
        id="P21",
        name="security",
        says="Only authenticated members are listened to, and every attack is counted.",
        exact=__doc__,
        rows=(RECEIVE, DROP, COUNTERS),
        roles=("who",),
        witness={
            "what": Kind.TEXT, "local": RowOf("who"), "strangers": Kind.MEMBERS, "forged": Kind.TEXT,
            "injected": Kind.NUMBER, "dropped": Kind.NUMBER,
        },
        sentence={
            "stranger": "{who} accepted a packet of {strangers}, no member of view {view} (local {local}).",
            "unauthenticated": "{who} accepted a packet whose sender it could not authenticate (local {local}).",
            "forged": "{who} accepted {forged} forged packets (local {local}).",
            "uncounted": "{who} was attacked with {injected} packets, and dropped {dropped} of them (local {local}).",
        },
        example=Example(("a",), "1@a", {"what": "uncounted", "local": 4, "injected": 3, "dropped": 2}),
    )  # fmt: skip

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._members: dict[tuple[Life, str | None], frozenset[str]] = {}  # by life and view
        self._dropped: defaultdict[Life, int] = defaultdict(int)

    def view(self, stay: Stay, event: Event) -> None:
        self._members.setdefault((stay.life, stay.id), frozenset(stay.view.members))

    def row(self, life: Life, event: Event) -> None:
        if event.kind == RECEIVE:
            self._judge_receipt(life, event)
        elif event.kind == DROP:
            self._dropped[life] += whole(value_of(event, "injected")) or 0
        elif event.kind == COUNTERS:
            self._judge_counters(life, event)

    def _judge_receipt(self, life: Life, event: Event) -> None:
        members = self._members.get((life, event.view))
        origin, sender = member_name(event.origin or "", event.origin_incarnation or 0), value_of(event, "sender")
        strangers = sorted({name for name in (origin, sender) if name is not None} - (members or frozenset()))
        if members is not None and strangers:
            self._report("stranger", life, event, *strangers, strangers=strangers)
        if value_of(event, "authenticated") == "false":
            self._report("unauthenticated", life, event)

    def _judge_counters(self, life: Life, event: Event) -> None:
        forged = value_of(event, "accepted_forged")
        if forged is not None and whole(forged) != 0:
            self._report("forged", life, event, forged=forged)
        injected = whole(value_of(event, "injected"))
        if injected is not None and injected != self._dropped[life] and life.hole is None:
            self._report("uncounted", life, event, injected=injected, dropped=self._dropped[life])

    def _report(self, what: str, life: Life, event: Event, *strangers: str, **more: object) -> None:
        self.report([life.name, *strangers], event.view, what=what, local=event.local_index, **more)
