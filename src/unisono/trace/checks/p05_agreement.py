"""P5 agreement: in V, what one member delivers every addressee of the same (V→V') delivers.

What a crashed member alone delivered does not bind the others, unless it was **safe** (`attributes.safe` of its CAST is ``true``)
and delivered before that member blocked: then every addressee that got through V, whichever way, delivers it too (uniform
agreement).

Placeholders do not count: an addressee for whom the payload became void while another one delivered it has broken
agreement. So has one for whom it became void although its caster, which holds it, went the same (V→V'), or before the member
blocked: what a cut closes a view with may be void, and nothing before. Not asked of a last view that was cut, nor of the service
`datagram`, which promises no delivery.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from unisono.trace.checks.attributes import is_true
from unisono.trace.checks.checker import Checker
from unisono.trace.checks.deliveries import delivered_sets, same_sets
from unisono.trace.checks.history import History
from unisono.trace.checks.model import DATAGRAM, PLACED, Cast, DeliveredPart, Span, Stay, ViewPassage, message_name
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.spans import Spans
from unisono.trace.schema import BLOCK, CAST, DELIVER, PLACE, Event


class _Void(NamedTuple):
    """A PLACE of messages that are addressed to the member itself."""

    cast: Cast | None
    first: int
    end: int
    local: int
    is_early: bool
    """The member had not blocked for the end of the view."""


class DeliveryAgreement(Checker):
    about = PropertyRecord(
        id="P5",
        name="agreement",
        says="What one member delivers, every member delivers that goes on with it into the same next view.",
        exact=__doc__,
        rows=(CAST, DELIVER, PLACE, BLOCK),
        roles=("holder", "lacking"),
        witness={
            "what": Kind.TEXT, "message": Kind.MESSAGES, "holder": Kind.MEMBERS, "lacking": Kind.MEMBERS,
            "local": RowOf("holder"), "placed_local": RowOf("lacking"), "cast_local": RowOf("holder"),
            "next_view": Kind.VIEW,
        },
        sentence={
            "lacking": "{holder} delivered {message} (local {local}) in view {view}; {lacking}, to whom it is addressed and who "
            "also {way}, did not.",
            "safe": "{holder} delivered the safe {message} (local {local}) in view {view}; {lacking}, to whom it is addressed and "
            "who {way}, did not.",
            "void": "{lacking} placed {message} (local {placed_local}), which is addressed to it, as void in view {view}; "
            "{holder}, who cast it (local {cast_local}), also {way}.",
            "void early": "{lacking} placed {message} (local {placed_local}), which is addressed to it, as void in view {view}; "
            "{lacking} had not blocked for the end of the view.",
        },
        example=Example(("a", "c"), "1@a", {"what": "lacking", "message": "a:0", "local": 2, "next_view": "2@a"}),
    )  # fmt: skip

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._addressed: dict[Span, tuple[str, ...]] = {}  # of messages that are not for everyone
        self._void: defaultdict[Stay, list[_Void]] = defaultdict(list)  # by stay: what it placed, addressed to it
        self._safe: dict[int, Spans] = {}  # by origin

    def cast(self, cast: Cast, event: Event) -> None:
        if is_true(event, "safe"):
            self._safe.setdefault(cast.origin.number, Spans()).add(cast.first, cast.end)

    def deliver(self, delivery: DeliveredPart) -> None:
        destinations = delivery.event.destinations
        if destinations is not None:
            self._addressed[delivery.origin.number, delivery.first, delivery.end] = destinations

    def place(self, delivery: DeliveredPart) -> None:
        destinations = delivery.event.destinations
        if destinations is None or delivery.stay.life.name in destinations:
            local = delivery.event.local_index
            is_early = delivery.stay.block is None
            self._void[delivery.stay].append(_Void(delivery.cast, delivery.first, delivery.end, local, is_early))

    def conclude(self) -> None:
        for transition in self.history.transitions():
            if not transition.cut:
                self._judge(transition)
        if self._safe:
            self._conclude_safe()

    def _conclude_safe(self) -> None:
        """Each life that left the view must have delivered all that any member delivered safely before it blocked."""
        delivered: dict[str, list[tuple[Stay, Span, int]]] = {}
        for life in self.history.numbered:
            for stay in life.stays.values():
                if stay.rank is not None and stay.installed and not stay.holed:
                    delivered.setdefault(stay.id, []).extend(self._safely_delivered(stay))
        for transition in self.history.transitions():
            if not transition.cut and delivered.get(transition.view):
                self._judge_safe(transition, delivered[transition.view])

    def _safely_delivered(self, stay: Stay) -> Iterator[tuple[Stay, Span, int]]:
        for span, local, mark in list(zip(stay.spans, stay.locals, stay.marks, strict=True))[: stay.block]:
            if not mark & (PLACED | DATAGRAM) and self._safe.get(span[0], _EMPTY).inside(span[1], span[2]):
                yield stay, span, local

    def _judge_safe(self, transition: ViewPassage, delivered: Iterable[tuple[Stay, Span, int]]) -> None:
        """Safe messages that no life of this way delivered; the others are covered by plain agreement."""
        sets = [delivered_sets(stay, placed=False) for stay in transition.stays]
        told: set[Span] = set()
        for holder, span, local in delivered:
            number, first, end = span
            lacking = [one.get(number, _EMPTY).outside(first, end) for one in sets]
            if span in told or not all(lacking):
                continue
            told.add(span)
            addressed = self._addressed.get(span)
            for stay, some in zip(transition.stays, lacking, strict=True):
                if addressed is None or stay.life.name in addressed:
                    self._report("safe", transition, holder, stay, (number, *some[0]), local)

    def _judge(self, transition: ViewPassage) -> None:
        stays = transition.stays
        if same_sets(stays) and self._void.keys().isdisjoint(stays):
            return  # all delivered or placed the same, and placed only what is not addressed to them
        delivered = {stay: delivered_sets(stay, placed=False) for stay in stays}
        told: set[tuple[Stay, Span]] = set()
        for stay in stays:
            for span, local, mark in zip(stay.spans, stay.locals, stay.marks, strict=True):
                if mark & (PLACED | DATAGRAM):
                    continue
                number, first, end = span
                addressed = self._addressed.get(span)
                for other in stays:
                    if addressed is not None and other.life.name not in addressed:
                        continue
                    if (other, span) in told:
                        continue
                    lacking = delivered[other].get(number, _EMPTY).outside(first, end)
                    if lacking:
                        told.add((other, span))
                        self._report("lacking", transition, stay, other, (number, *lacking[0]), local)
        self._judge_voids(transition)

    def _judge_voids(self, transition: ViewPassage) -> None:
        """What is void at an addressee, although no cut had closed the view, or the caster went the same way."""
        for stay in transition.stays:
            for one in self._void.get(stay, ()):
                cast = one.cast
                if cast is None or cast.view != transition.view:
                    continue
                is_with_caster = cast.stay in transition.stays
                if is_with_caster or one.is_early:
                    self.report(
                        [cast.origin.name, stay.life.name],
                        transition.view,
                        what="void" if is_with_caster else "void early",
                        message=message_name(cast.origin, one.first, one.end),
                        placed_local=one.local,
                        cast_local=cast.local_index if is_with_caster else None,
                        next_view=transition.next_view,
                    )

    def _report(self, what: str, transition: ViewPassage, holder: Stay, lacking: Stay, span: Span, local: int) -> None:
        self.report(
            [holder.life.name, lacking.life.name],
            transition.view,
            what=what,
            message=message_name(self.history.numbered[span[0]], span[1], span[2]),
            local=local,
            next_view=transition.next_view,
        )


_EMPTY = Spans()
