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
from unisono.trace.schema import COUNTERS, DROP, RECEIVE, Event, member_name


class Security(Checker):
    id = "P21"

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
            verb = "is no member" if len(strangers) == 1 else "are no members"
            how = f"accepted a packet of {' and '.join(strangers)}, which {verb} of view {event.view}"
            self._say("stranger", life, event, strangers, how)
        if value_of(event, "authenticated") == "false":
            self._say("unauthenticated", life, event, [], "accepted a packet whose sender it could not authenticate")

    def _judge_counters(self, life: Life, event: Event) -> None:
        forged = value_of(event, "accepted_forged")
        if forged is not None and whole(forged) != 0:
            self._say("forged", life, event, [], f"accepted {forged} forged packets")
        injected = whole(value_of(event, "injected"))
        if injected is not None and injected != self._dropped[life] and life.hole is None:
            how = f"was attacked with {injected} packets, and dropped {self._dropped[life]} of them"
            self._say("uncounted", life, event, [], how)

    def _say(self, what: str, life: Life, event: Event, strangers: list[str], how: str) -> None:
        self.report(
            [life.name, *strangers],
            f"{life.name} {how} (local {event.local_index}).",
            what=what,
            view=event.view,
            local=event.local_index,
        )
