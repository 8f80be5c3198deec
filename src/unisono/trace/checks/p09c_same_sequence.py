"""P9c total, same sequence: in V the k-th ordered delivery is the same message at all members of one (V→V').

Judges the service `total`; placeholders count. Compared as far as both sequences go: that one of them is longer is the
business of P5 and P14.
"""

from __future__ import annotations

from collections import Counter

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.deliveries import Ordered, aligned, are_prefixes, distinct, ordered
from unisono.trace.checks.model import ViewPassage, message_name
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import DELIVER, PLACE


class TotalSameSequence(Checker):
    about = PropertyRecord(
        id="P9c",
        name="total, same sequence",
        says="In a view, the k-th ordered message is the same one everywhere.",
        exact=__doc__,
        rows=(DELIVER, PLACE),
        roles=("one", "two"),
        witness={
            "number": Kind.NUMBER, "message": Kind.MESSAGES, "local": RowOf("one"), "other": Kind.MESSAGES,
            "other_local": RowOf("two"),
        },
        sentence="In view {view} ordered message number {number} is {message} at {one} (local {local}) and {other} at {two} (local "
        "{other_local}).",
        example=Example(
            ("a", "b"), "1@a", {"number": 0, "message": "a:0", "local": 2, "other": "b:0", "other_local": 2}
        ),
        implies=("P9b",),
    )  # fmt: skip

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
                self._report(transition, model, sequence, at)
                differs = True
        return differs

    def _report(self, transition: ViewPassage, one: Ordered, two: Ordered, at: int) -> None:
        lives = self.history.numbered
        x, y = (message_name(lives[unit[0]], unit[1], unit[1] + 1) for unit in (one.units[at], two.units[at]))
        self.report(
            [one.name, two.name],
            transition.view,
            number=sum(end - first for _, first, end in one.units[:at]),
            message=x,
            local=one.locals[at],
            other=y,
            other_local=two.locals[at],
        )
