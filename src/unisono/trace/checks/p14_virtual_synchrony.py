"""P14 virtual synchrony: the members of one (V→V') delivered the same set in V, placeholders counted.

Not asked of a last view that was cut, nor of the service `datagram`.
"""

from __future__ import annotations

from collections import Counter

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.deliveries import delivered_sets, same_sets
from unisono.trace.checks.model import Stay, ViewPassage, message_name
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.checks.spans import Spans
from unisono.trace.schema import DELIVER, PLACE


class VirtualSynchrony(Checker):
    about = PropertyRecord(
        id="P14",
        name="virtual synchrony",
        says="Members that go on together delivered the same messages before the change.",
        exact=__doc__,
        rows=(DELIVER, PLACE),
        roles=("holder", "lacking"),
        witness={
            "message": Kind.MESSAGES, "holder": Kind.MEMBERS, "lacking": Kind.MEMBERS, "local": RowOf("holder"),
            "next_view": Kind.VIEW,
        },
        sentence="In view {view} {holder} delivered or placed {message} (local {local}) and {lacking} did not, although all {way}.",
        example=Example(("a", "b"), "1@a", {"message": "a:0", "local": 2, "next_view": "2@a"}),
    )  # fmt: skip

    def conclude(self) -> None:
        for transition in self.history.transitions():
            if not transition.cut and len(transition.stays) > 1 and not same_sets(transition.stays):
                self._judge(transition)

    def _judge(self, transition: ViewPassage) -> None:
        """Compare everyone with a member whose set most others share, so that the sentence names the odd one."""
        sets = {stay: delivered_sets(stay, placed=True) for stay in transition.stays}
        forms = {stay: _form(sets[stay]) for stay in transition.stays}
        common = Counter(forms.values()).most_common(1)[0][0]
        model = next(stay for stay in transition.stays if forms[stay] == common)
        for stay in transition.stays:
            if forms[stay] != common:
                self._compare(transition, model, sets[model], stay, sets[stay])

    def _compare(
        self, transition: ViewPassage, model: Stay, wanted: dict[int, Spans], stay: Stay, found: dict[int, Spans]
    ) -> None:
        for number in sorted(wanted.keys() | found.keys(), key=lambda number: self.history.numbered[number].name):
            origin = self.history.numbered[number]
            one, other = wanted.get(number, Spans()), found.get(number, Spans())
            for holder, lacking, has, lacks in ((model, stay, one, other), (stay, model, other, one)):
                for first, end in zip(has.firsts, has.ends, strict=True):
                    for low, high in lacks.outside(first, end):
                        told = self.tells(transition.view)
                        self.report(
                            [holder.life.name, lacking.life.name],
                            transition.view,
                            message=message_name(origin, low, high),
                            local=holder.local_of(origin, low, high) if told else None,
                            next_view=transition.next_view,
                        )


def _form(sets: dict[int, Spans]) -> frozenset[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    return frozenset((number, tuple(spans.firsts), tuple(spans.ends)) for number, spans in sets.items())
