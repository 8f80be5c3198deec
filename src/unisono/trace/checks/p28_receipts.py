"""P28 receipts: the stages of a receipt come in their order, and a doubt is final.

The RECEIPT rows of a life speak of its own messages, which it has cast before, each of a `stage` (delivered, applied, stable) and
its `outcome` (ok, uncertain). One that names others keeps its life from passing (`shown_doubts`).

- ``ok`` for `delivered` or `applied` comes after this life's own delivery of the message, or its turn if it is not addressed;
- where both are recorded, ``ok`` for `delivered` comes before ``ok`` for `applied`;
- after ``uncertain`` at a stage, no ``ok`` follows at that stage or a later one.

A life with missing rows is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from unisono.trace.checks.attributes import value_of
from unisono.trace.checks.model import named
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.shown_rows import Breach, DeliveredRange, LifeRows, Range, ShownChecker, SpansOf
from unisono.trace.schema import CAST, DELIVER, OK, PLACE, RECEIPT, STAGES, UNCERTAIN, Event, member_name

DELIVERED, APPLIED, _ = STAGES


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
        for name in sorted(lives):
            if not lives[name].is_holed:
                yield from self._judge(lives[name])

    def _judge(self, life: LifeRows) -> Iterator[Breach]:
        said = SpansOf()  # by stage and outcome
        own: list[DeliveredRange] | None = None
        for row in life.rows:
            stage, outcome = value_of(row, "stage"), value_of(row, "outcome")
            if row.kind != RECEIPT:
                continue
            assert row.first is not None
            assert row.count is not None
            span = (row.first, row.first + row.count)
            origin = member_name(row.origin or "", row.origin_incarnation or 0)
            if origin != life.name or (parts := self._uncast(life.name, span, row.local_index)):
                title = named(origin, *(span if origin != life.name else parts[0]))
                yield Breach("not cast", (life.name,), row.view, row.local_index, {"message": title})
                continue
            if stage not in STAGES:
                continue
            if outcome == UNCERTAIN:
                said.add((stage, UNCERTAIN), *span)
            if outcome != OK:
                continue
            if stage in (DELIVERED, APPLIED):
                own = self._own(life.name) if own is None else own
                if parts := _not_before(own, span, row.local_index):
                    yield _finding("too early", life, row, parts[0], stage=stage)
            if stage == DELIVERED and (parts := _inside(said, (APPLIED, OK), span)):
                yield _finding("order", life, row, parts[0])
            for earlier in STAGES[: STAGES.index(stage) + 1]:
                if parts := _inside(said, (earlier, UNCERTAIN), span):
                    yield _finding("after a doubt", life, row, parts[0], stage=stage, earlier=earlier)
                    break
            said.add((stage, OK), *span)

    def _uncast(self, name: str, span: Range, before: int) -> list[Range]:
        parts = self.history.by_name[name].cast_of(*span)
        return [(first, end) for first, end, cast in parts if cast is None or cast.local_index > before]

    def _own(self, name: str) -> list[DeliveredRange]:
        """Its own messages that a life delivered or placed."""
        stays = self.history.by_name[name].stays.values()
        return [one for stay in stays for one in self.delivered(stay, placed=True) if one.origin == name]


def _not_before(own: list[DeliveredRange], span: Range, before: int) -> list[Range]:
    """What of a range is not among the deliveries before a row."""
    spans = SpansOf()
    for one in own:
        if one.local < before and one.first < span[1] and one.end > span[0]:
            spans.add((), one.first, one.end)
    return spans.outside((), *span)


def _inside(said: SpansOf, key: tuple[object, ...], span: Range) -> list[Range]:
    spans = said.spans.get(key)
    return [] if spans is None else spans.inside(*span)


def _finding(what: str, life: LifeRows, row: Event, part: Range, **more: object) -> Breach:
    return Breach(what, (life.name,), row.view, row.local_index, {"message": named(life.name, *part), **more})
