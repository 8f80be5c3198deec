"""P28 receipts: the stages of a receipt come in their order, and a doubt is final.

The RECEIPT rows of a life speak of its own messages, which it has cast before, each of a `stage` (delivered, applied, stable) and
its `outcome` (ok, uncertain). One that names others keeps its life from passing (`shown_doubts`).

- ``ok`` for `delivered` or `applied` comes after this life's own delivery of the message, or its turn if it is not addressed;
- where both are recorded, ``ok`` for `delivered` comes before ``ok`` for `applied`;
- after ``uncertain`` at a stage, no ``ok`` follows at that stage or a later one.

A life with missing rows is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from unisono.trace.checks.attributes import value_of
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.shown_rows import Breach, LifeRows, Lives, Range, ShownChecker, SpansOf, delivered_in, named
from unisono.trace.schema import CAST, DELIVER, OK, PLACE, RECEIPT, STAGES, UNCERTAIN, Event, member_name

DELIVERED, APPLIED, _ = STAGES


Before: TypeAlias = Callable[[str, Range, int], list[Range]]


def decide(lives: Lives, missing: Before, uncast: Before) -> Iterator[Breach]:
    """Which of its own messages a life had not delivered or placed before a row, or not cast."""
    for name in sorted(lives):
        if not lives[name].is_holed:
            yield from _judge(lives[name], missing, uncast)


def _judge(life: LifeRows, missing: Before, uncast: Before) -> Iterator[Breach]:
    said = SpansOf()  # by stage and outcome
    for row in life.rows:
        stage, outcome = value_of(row, "stage"), value_of(row, "outcome")
        if row.kind != RECEIPT:
            continue
        assert row.first is not None
        assert row.count is not None
        span = (row.first, row.first + row.count)
        origin = member_name(row.origin or "", row.origin_incarnation or 0)
        if origin != life.name or (parts := uncast(life.name, span, row.local_index)):
            title = named(origin, *(span if origin != life.name else parts[0]))
            yield Breach("not cast", (life.name,), row.view, row.local_index, {"message": title})
            continue
        if stage not in STAGES:
            continue
        if outcome == UNCERTAIN:
            said.add((stage, UNCERTAIN), *span)
        if outcome != OK:
            continue
        if stage in (DELIVERED, APPLIED) and (parts := missing(life.name, span, row.local_index)):
            yield _finding("too early", life, row, parts[0], stage=stage)
        if stage == DELIVERED and (parts := _inside(said, (APPLIED, OK), span)):
            yield _finding("order", life, row, parts[0])
        for earlier in STAGES[: STAGES.index(stage) + 1]:
            if parts := _inside(said, (earlier, UNCERTAIN), span):
                yield _finding("after a doubt", life, row, parts[0], stage=stage, earlier=earlier)
                break
        said.add((stage, OK), *span)


def _inside(said: SpansOf, key: tuple[object, ...], span: Range) -> list[Range]:
    spans = said.spans.get(key)
    return [] if spans is None else spans.inside(*span)


def _finding(what: str, life: LifeRows, row: Event, part: Range, **more: object) -> Breach:
    return Breach(what, (life.name,), row.view, row.local_index, {"message": named(life.name, *part), **more})


class KeptReceipts(ShownChecker):
    about = PropertyRecord(
        id="P28",
        name="receipts",
        says="The stages of a receipt come in their order, and after a doubt none follows.",
        exact=__doc__,
        rows=(RECEIPT, CAST, DELIVER, PLACE),
        roles=("who",),
        witness={
            "what": Kind.TEXT, "local": RowOf("who"), "message": Kind.MESSAGES, "stage": Kind.TEXT, "earlier": Kind.TEXT,
        },
        sentence={
            "not cast": "{who} was told of the fate of {message} (local {local}), which it had not cast before.",
            "too early": "{who} was told that {message} is {stage} before it had delivered it itself (local {local}).",
            "order": "{who} was told that {message} is delivered after it was told that it is applied (local {local}).",
            "after a doubt": "{who} was told that {message} is {stage} after `{earlier}` had been uncertain (local {local}).",
        },
        example=Example(("a",), "1@a", {"what": "too early", "local": 2, "message": "a:0", "stage": "delivered"}),
    )  # fmt: skip

    def decide(self, lives: dict[str, LifeRows]) -> Iterator[Breach]:
        self._own: dict[str, list[tuple[int, int, int]]] = {}  # by life: local, first, end
        return decide(lives, self._missing, self._uncast)

    def _uncast(self, name: str, span: Range, before: int) -> list[Range]:
        parts = self.history.by_name[name].cast_of(*span)
        return [(first, end) for first, end, cast in parts if cast is None or cast.local_index > before]

    def _missing(self, name: str, span: Range, before: int) -> list[Range]:
        own = self._own.get(name)
        if own is None:
            life = self.history.by_name[name]
            own = self._own[name] = [
                (one.local, one.first, one.end)
                for stay in life.stays.values()
                for one in delivered_in(stay, lambda number: self.history.numbered[number].name, placed=True)
                if one.origin == name
            ]
        return missing_of(own, span, before)


def missing_of(own: list[tuple[int, int, int]], span: Range, before: int) -> list[Range]:
    """What of a range is not among the deliveries (local index, first, end) before a row."""
    spans = SpansOf()
    for local, first, end in own:
        if local < before and first < span[1] and end > span[0]:
            spans.add((), first, end)
    return spans.outside((), *span)
