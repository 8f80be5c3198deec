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
from unisono.trace.checks.history import History
from unisono.trace.checks.model import DATAGRAM, PLACED, Cast, DeliveredPart, Span, Stay, ViewPassage, message_name
from unisono.trace.checks.sets import delivered_sets, same_sets
from unisono.trace.checks.spans import Spans
from unisono.trace.schema import Event


class _Void(NamedTuple):
    """A PLACE of messages that are addressed to the member itself."""

    cast: Cast | None
    first: int
    end: int
    local: int
    is_early: bool
    """The member had not blocked for the end of the view."""


class DeliveryAgreement(Checker):
    id = "P5"

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
                    self._say(transition, holder, stay, (number, *some[0]), local, "the safe ")

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
                        self._say(transition, stay, other, (number, *lacking[0]), local)
        self._judge_voids(transition)

    def _judge_voids(self, transition: ViewPassage) -> None:
        """What is void at an addressee, although no cut had closed the view, or the caster went the same way."""
        for stay in transition.stays:
            for one in self._void.get(stay, ()):
                cast = one.cast
                if cast is None or cast.view != transition.view:
                    continue
                if cast.stay in transition.stays:
                    how = f"{cast.origin.name}, who cast it (local {cast.local_index}), also {transition.way}"
                    self._say_void(transition, cast, stay, one, how)
                elif one.is_early:
                    self._say_void(
                        transition, cast, stay, one, f"{stay.life.name} had not blocked for the end of the view"
                    )

    def _say_void(self, transition: ViewPassage, cast: Cast, stay: Stay, one: _Void, how: str) -> None:
        name, local = message_name(cast.origin, one.first, one.end), one.local
        self.report(
            [cast.origin.name, stay.life.name],
            f"{stay.life.name} placed {name} (local {local}), which is addressed to it, as void in view {transition.view}; {how}.",
            message=name,
            view=transition.view,
            next_view=transition.next_view,
            local=local,
        )

    def _say(self, transition: ViewPassage, stay: Stay, other: Stay, span: Span, local: int, kind: str = "") -> None:
        name = message_name(self.history.numbered[span[0]], span[1], span[2])
        also = "" if kind else "also "
        self.report(
            [stay.life.name, other.life.name],
            f"{stay.life.name} delivered {kind}{name} (local {local}) in view {transition.view}; {other.life.name}, to whom it "
            f"is addressed and who {also}{transition.way}, did not.",
            message=name,
            view=transition.view,
            next_view=transition.next_view,
            local=local,
        )


_EMPTY = Spans()
