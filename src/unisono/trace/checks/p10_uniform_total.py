"""P10 uniform total: P9 over all members of V up to each one's BLOCK, crashed ones too: theirs is a prefix.

What any member of V, crashed or not, had delivered of the service `total` in V before it blocked is a prefix of the whole
sequence of everyone who got through V (went on to another view, or reached the END uncut). Of two members who did not get
through, one's sequence up to BLOCK is a prefix of the other's. Stays with missing rows are left out.
"""

from __future__ import annotations

from collections import defaultdict

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.deliveries import Ordered, aligned, are_prefixes, is_prefix, ordered
from unisono.trace.checks.model import Span, Stay, message_name
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import BLOCK, DELIVER, PLACE


class UniformTotal(Checker):
    about = PropertyRecord(
        id="P10",
        name="uniform total",
        says="Even what a member delivered that then crashed is the beginning of everyone's sequence.",
        exact=__doc__,
        rows=(DELIVER, PLACE, BLOCK),
        roles=("one", "two"),
        witness={
            "number": Kind.NUMBER, "message": Kind.MESSAGES, "local": RowOf("one"), "ended": Kind.TEXT,
            "other": Kind.MESSAGES, "other_local": RowOf("two"),
        },
        sentence="In view {view} {one}[ (which ended with {ended})] delivered {message} as ordered message number {number} (local "
        "{local}) before it blocked; {two} has [{other} (local {other_local})|nothing there].",
        example=Example(
            ("a", "b"), "1@a", {"number": 0, "message": "a:0", "local": 2, "ended": "CRASH", "other": "b:0", "other_local": 3}
        ),
    )  # fmt: skip

    def conclude(self) -> None:
        through = {stay for way in self.history.transitions() if not way.cut for stay in way.stays}
        views: defaultdict[str, list[Stay]] = defaultdict(list)
        for life in self.history.numbered:
            for stay in life.stays.values():
                if stay.rank is not None and not stay.holed:
                    views[stay.id].append(stay)
        for view in sorted(views):
            self._judge(view, sorted(views[view], key=lambda stay: stay.life.name), through)

    def _judge(self, view: str, stays: list[Stay], through: set[Stay]) -> None:
        early = [ordered(stay, before_block=True) for stay in stays]
        whole = [ordered(stay) for stay in stays if stay in through]
        shortest = min((len(sequence.units) for sequence in whole), default=None)
        longest = max(len(sequence.units) for sequence in early)
        if are_prefixes(early + whole) and (shortest is None or longest <= shortest):
            return
        both = aligned(early + whole)
        early, whole = both[: len(early)], both[len(early) :]
        reference = max(early, key=lambda sequence: len(sequence.units))
        for one in early:
            broken = [other for other in whole if other.stay is not one.stay and not is_prefix(one.units, other.units)]
            if not broken and not is_prefix(one.units, reference.units):
                broken = [reference]
            for other in broken[:1]:
                self._report(view, one, other)

    def _report(self, view: str, one: Ordered, two: Ordered) -> None:
        pairs = zip(one.units, two.units, strict=False)
        at = next((at for at, (x, y) in enumerate(pairs) if x != y), len(two.units))
        differs = at < len(two.units)
        self.report(
            [one.name, two.name],
            view,
            number=sum(end - first for _, first, end in one.units[:at]),
            message=self._first_of(one.units[at]),
            local=one.locals[at],
            ended=one.stay.life.ending if one.stay is one.stay.life.stay else None,
            other=self._first_of(two.units[at]) if differs else None,
            other_local=two.locals[at] if differs else None,
        )

    def _first_of(self, unit: Span) -> str:
        number, first, _ = unit
        return message_name(self.history.numbered[number], first, first + 1)
