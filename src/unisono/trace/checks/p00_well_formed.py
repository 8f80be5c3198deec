"""P0 well-formed: local_index = 0..k; ordinals contiguous; begins with JOIN or VIEW; nothing after CRASH, LEAVE or END.

Besides, a CAST, DELIVER or PLACE row names the view that its member installed last, because everything else is judged by view, and
a service that the view's order carries. `protocol` is the same in all rows of a life, and it joins once, at its beginning. And the
indices of its casts rise: two messages with one index could not be told apart, and one of them might be lost.

A hole in the local indices is no violation: it is how a failed write looks, and makes the verdict on that member
UNKNOWN. An index that comes twice, or goes back, is one. Behind a hole ordinals may have moved on, but not back.
"""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Life, Stay
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.promises import services_of
from unisono.trace.schema import CAST, DELIVER, JOIN, PLACE, VIEW, Event

ANY = frozenset({"any service"})
"""What an unknown order carries."""


class WellFormed(Checker):
    about = PropertyRecord(
        id="P0",
        name="well-formed",
        says="Each member's rows are numbered without gaps, begin with a view, and stop at its end.",
        exact=__doc__,
        rows=(JOIN, CAST, DELIVER, PLACE),
        roles=("who",),
        witness={
            "what": Kind.TEXT, "local": RowOf("who"), "kind": Kind.TEXT, "after": Kind.NUMBER, "ending": Kind.TEXT,
            "protocol": Kind.TEXT, "protocol_before": Kind.TEXT, "first": Kind.NUMBER, "cast_end": Kind.NUMBER,
            "installed": Kind.VIEW, "service": Kind.TEXT, "order": Kind.TEXT, "ordinal": Kind.NUMBER,
            "expected": Kind.NUMBER,
        },
        sentence={
            "twice": "{who}: its row {local} comes after its row {after}.",
            "after the end": "{who}: it goes on with {kind} (local {local}) after its {ending}.",
            "protocol": "{who}: its row {local} says protocol {protocol}, the row before {protocol_before}.",
            "joins again": "{who}: it joins (local {local}) in the middle of its life.",
            "begin": "{who}: its trace begins with {kind}, not with JOIN or VIEW.",
            "cast again": "{who}: its CAST (local {local}) casts message {first}, but it has cast messages below {cast_end} "
            "before.",
            "view": "{who}: its {kind} (local {local}) names view {view}, but it [installed {installed} last|has installed none].",
            "service": "{who}: its {kind} (local {local}) is of service {service}, which the order {order} of view {view} does "
            "not carry.",
            "ordinal": "{who}: its {kind} (local {local}) has ordinal {ordinal} of service {service} in view {view}, not "
            "{expected}.",
        },
        example=Example(("b",), "1@a", {"what": "after the end", "local": 3, "kind": "DELIVER", "ending": "END"}),
    )  # fmt: skip

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._ordinals: dict[Stay, dict[str, int]] = {}
        self._carried: dict[Stay, frozenset[str]] = {}  # the services of its order

    def row(self, life: Life, event: Event) -> None:
        index, kind = event.local_index, event.kind
        if index < life.next_index:
            self._report("twice", life, event, after=life.next_index - 1)
        if life.ending is not None:
            self._report("after the end", life, event, ending=life.ending)
        if life.rows and event.protocol != life.protocol:
            self._report("protocol", life, event, protocol=event.protocol, protocol_before=life.protocol)
        if kind == JOIN and life.rows:
            self._report("joins again", life, event)
        if kind in (DELIVER, PLACE):
            self._judge_view(life, event)
            self._judge_service(life, event)
            self._judge_ordinal(life, event)
        elif kind == CAST:
            self._judge_view(life, event)
            self._judge_service(life, event)
            if event.first is not None and event.first < life.cast_end:
                self._report("cast again", life, event, first=event.first, cast_end=life.cast_end)
        elif not life.rows and kind != JOIN and kind != VIEW and life.hole is None:
            self._report("begin", life, event)

    def _judge_view(self, life: Life, event: Event) -> None:
        stay = life.stay
        if stay is not None and stay.id == event.view:
            return
        if life.hole is None or (stay is not None and not stay.holed):
            self._report("view", life, event, installed=None if stay is None else stay.id)

    def _judge_service(self, life: Life, event: Event) -> None:
        stay = life.stay
        if stay is None or stay.id != event.view:
            return
        carried = self._carried.get(stay)
        if carried is None:
            carried = self._carried[stay] = services_of([stay.order or ""]) or ANY
        if carried is not ANY and event.service not in carried:
            self._report("service", life, event, service=event.service, order=stay.order)

    def _judge_ordinal(self, life: Life, event: Event) -> None:
        stay = life.stay
        if stay is None or stay.id != event.view:
            return
        ordinals = self._ordinals.get(stay)
        if ordinals is None:
            ordinals = self._ordinals[stay] = {}
        service, ordinal = event.service, event.ordinal
        assert service is not None
        assert ordinal is not None
        expected = ordinals.get(service, 0)
        if ordinal != expected and not (stay.holed and ordinal > expected):
            self._report("ordinal", life, event, service=service, ordinal=ordinal, expected=expected)
        ordinals[service] = ordinal + 1

    def _report(self, what: str, life: Life, event: Event, **more: object) -> None:
        self.report([life.name], event.view, what=what, local=event.local_index, kind=event.kind, **more)
