"""P14 virtual synchrony: the members of one (V→V') delivered the same set in V, placeholders counted.

Not asked of a last view that was cut, nor of the service `datagram`.
"""

from __future__ import annotations

from collections import Counter

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.model import Stay, ViewPassage, message_name
from unisono.trace.checks.sets import delivered_sets, same_sets
from unisono.trace.checks.spans import Spans


class VirtualSynchrony(Checker):
    id = "P14"

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
            one, other = wanted.get(number, Spans()), found.get(number, Spans())
            for holder, lacker, has, lacks in ((model, stay, one, other), (stay, model, other, one)):
                for first, end in zip(has.firsts, has.ends, strict=True):
                    for low, high in lacks.outside(first, end):
                        name = message_name(self.history.numbered[number], low, high)
                        self.report(
                            [holder.life.name, lacker.life.name],
                            f"In view {transition.view} {holder.life.name} delivered {name} and {lacker.life.name} did not, "
                            f"although both {transition.way}.",
                            message=name,
                            view=transition.view,
                            next_view=transition.next_view,
                            holder=holder.life.name,
                            lacks=lacker.life.name,
                        )


def _form(sets: dict[int, Spans]) -> frozenset[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    return frozenset((number, tuple(spans.firsts), tuple(spans.ends)) for number, spans in sets.items())
