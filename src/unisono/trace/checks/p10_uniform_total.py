"""P10 uniform total: P9 over all members of V up to each one's BLOCK, crashed ones too: theirs is a prefix.

What any member of V, crashed or not, had delivered of the service `total` in V before it blocked is a prefix of the whole
sequence of everyone who got through V (went on to another view, or reached the END uncut). Of two members who did not get
through, one's sequence up to BLOCK is a prefix of the other's. Stays with missing rows are left out.
"""

from __future__ import annotations

from collections import defaultdict

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.model import Stay, message_name
from unisono.trace.checks.sequences import Ordered, aligned, are_prefixes, is_prefix, ordered


class UniformTotal(Checker):
    id = "P10"

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
                self._say(view, one, other)

    def _say(self, view: str, one: Ordered, other: Ordered) -> None:
        pairs = zip(one.units, other.units, strict=False)
        at = next((at for at, (x, y) in enumerate(pairs) if x != y), len(other.units))
        lives = self.history.numbered
        x = message_name(lives[one.units[at][0]], one.units[at][1], one.units[at][1] + 1)
        theirs = "nothing there"
        if at < len(other.units):
            y = other.units[at]
            theirs = f"{message_name(lives[y[0]], y[1], y[1] + 1)} (local {other.locals[at]})"
        number = sum(end - first for _, first, end in one.units[:at])
        ending = one.stay.life.ending if one.stay is one.stay.life.stay else None
        self.report(
            [one.name, other.name],
            f"In view {view} {one.name}{' (which crashed)' if ending == 'CRASH' else ''} delivered {x} as ordered message "
            f"number {number} (local {one.locals[at]}) before it blocked; {other.name} has {theirs}.",
            view=view,
            number=number,
            message=x,
            local=one.locals[at],
        )
