"""P9c total, same sequence: in V the k-th ordered delivery is the same message at all members of one (V→V').

Judges the service `total`; placeholders count. Compared as far as both sequences go: that one of them is longer is the
business of P5 and P14. Implies P9b and P9a.
"""

from __future__ import annotations

from collections import Counter

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.model import ViewPassage, message_name
from unisono.trace.checks.sequences import Ordered, aligned, are_prefixes, distinct, ordered


class TotalSameSequence(Checker):
    id = "P9c"

    def conclude(self) -> None:
        for transition in self.history.transitions():
            sequences = [ordered(stay) for stay in transition.stays]
            if not are_prefixes(sequences):
                self._judge(transition, aligned(sequences))

    def _judge(self, transition: ViewPassage, sequences: list[Ordered]) -> None:
        """Compare everyone with a sequence that most members share, so that the sentence names the odd one."""
        common = Counter(tuple(sequence.units) for sequence in sequences).most_common(1)[0][0]
        model = next(sequence for sequence in sequences if tuple(sequence.units) == common)
        if self._compare(transition, model, sequences):
            return
        longest = distinct(sequences)  # the common one is the beginning of several that differ later
        for number, one in enumerate(longest):
            self._compare(transition, one, longest[number + 1 :])

    def _compare(self, transition: ViewPassage, model: Ordered, sequences: list[Ordered]) -> bool:
        differs = False
        for sequence in sequences:
            pairs = zip(model.units, sequence.units, strict=False)
            at = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
            if at is not None:
                self._say(transition, model, sequence, at)
                differs = True
        return differs

    def _say(self, transition: ViewPassage, one: Ordered, other: Ordered, at: int) -> None:
        number = sum(end - first for _, first, end in one.units[:at])
        lives = self.history.numbered
        x, y = (message_name(lives[unit[0]], unit[1], unit[1] + 1) for unit in (one.units[at], other.units[at]))
        self.report(
            [one.name, other.name],
            f"In view {transition.view} ordered message number {number} is {x} at {one.name} (local {one.locals[at]}) and "
            f"{y} at {other.name} (local {other.locals[at]}).",
            view=transition.view,
            number=number,
            messages={one.name: x, other.name: y},
            locals={one.name: one.locals[at], other.name: other.locals[at]},
        )
