"""From rows to a verdict on a run: PASS, FAIL or UNKNOWN.

A violation of what is owed makes it FAIL. Otherwise a member whose trace has a gap, or stops without END, LEAVE or CRASH, or is
not there at all, makes it UNKNOWN: what is missing might have shown one. So does a delivery without a digest, a CAST without the
vector or transaction that its order owes, and a view whose order is not known, lists a property that there is not, or one of which
nothing is recorded. Only a whole trace can PASS.

What is owed is taken from the rows, view by view (`promises.Orders`): a violation counts if the order of its view owes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from unisono.trace.checks.checker import VIOLATIONS_MAX, Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.properties import CHECKERS, IMPLIES
from unisono.trace.checks.property import Violation
from unisono.trace.checks.shown_doubts import shown_doubts
from unisono.trace.checks.shown_rows import lives_of
from unisono.trace.promises import PROMISES, Orders, owed_by_all
from unisono.trace.schema import NOT_KNOWN, Event, TraceError


class Result(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Verdict:
    """What was found in one run."""

    result: Result
    owed: frozenset[str]
    """What is owed in any view."""
    violations: list[Violation] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """How many violations of each broken property there were; `violations` tells only the first ones."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Members whose trace is not whole, each with the reason."""
    members: dict[str, Result] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a reader should know besides; it changes no result."""

    @property
    def broken(self) -> frozenset[str]:
        return frozenset(self.counts)

    @property
    def weakest(self) -> tuple[str, ...]:
        """The broken properties without those that imply another broken one: what a report should name first."""
        return tuple(one for one in CHECKERS if one in self.counts and not IMPLIES.get(one, frozenset()) & self.broken)

    def __str__(self) -> str:
        lines = [f"{self.result}: {len(self.owed)} properties owed, {len(self.members)} members."]
        lines += [f"broken: {', '.join(self.weakest)}"] if self.counts else []
        lines += [str(violation) for violation in self.violations if violation.property in self.weakest]
        lines += [f"unknown: {member}, because {reason}." for member, reason in self.unknown.items()]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


class Observer:
    """Judges one run of one group while it goes on. It is a sink too, so a recorder can write into it.

    In each view is asked what its order owes, and `also`. With `owed`, that alone is asked, of every view, whatever its order.
    `orders` are those that may come: the fewer, the less it costs.
    """

    def __init__(
        self, owed: Iterable[str] | None = None, *, also: Iterable[str] = (), orders: Iterable[str] = PROMISES
    ) -> None:
        self._asked = None if owed is None else frozenset(owed)
        self._also = frozenset(also)
        wanted = self._also | (owed_by_all(orders) if self._asked is None else self._asked)
        unjudged = wanted - CHECKERS.keys()
        if unjudged:
            raise TraceError(f"there is no checker for {', '.join(sorted(unjudged))}.")
        self.history = History()
        self.checkers = [CHECKERS[one](self.history) for one in CHECKERS if one in wanted]
        self.observe: Callable[[Event], None] = self.history.observe
        """Take in one row, in any interleaving that keeps each member's own order."""

    def write(self, events: Iterable[Event]) -> None:
        for event in events:
            self.history.observe(event)

    def close(self) -> None:
        """So that it can stand where a sink stands; the verdict is asked with `finish`."""

    @property
    def owed(self) -> frozenset[str]:
        """What is owed in any of the views so far."""
        return self._also | (self.history.orders.owed if self._asked is None else self._asked)

    def _owed_in(self, view: str | None) -> frozenset[str]:
        return self._also | (self.history.orders.owed_in(view) if self._asked is None else self._asked)

    @property
    def violations(self) -> list[Violation]:
        """What is certain so far. Some properties can only be judged at the end."""
        found: list[Violation] = []
        for checker in self.checkers:
            owed = [one for one in checker.violations if checker.about.id in self._owed_in(one.view)]
            found += owed[:VIOLATIONS_MAX]
        return found

    def finish(self, troubled: Mapping[str, str] | None = None) -> Verdict:
        """No more rows will come. `troubled`: members with rows or files that could not be used, each with the reason."""
        for checker in self.checkers:
            checker.finish()
        violations = self.violations
        counts = {checker.about.id: self._count(checker) for checker in self.checkers if self._count(checker)}
        unknown = self.history.unknown()
        for name, reason in self.history.doubts(self._asked is None).items():
            unknown.setdefault(name, reason)
        for doubt in shown_doubts(lives_of(self.history)) if self._asked is None else ():
            if doubt.property in self._owed_in(doubt.view):
                unknown.setdefault(doubt.who, doubt.text)
        unknown |= troubled or {}
        guilty = Counter(member for violation in violations for member in violation.members)
        names = {life.name for life in self.history.numbered if life.rows} | unknown.keys()
        members = {
            name: Result.FAIL if name in guilty else Result.UNKNOWN if name in unknown else Result.PASS
            for name in sorted(names)
        }
        result = Result.FAIL if counts else Result.UNKNOWN if unknown or not members else Result.PASS
        return Verdict(result, self.owed, violations, counts, unknown, members, tuple(self.history.notes()))

    def _count(self, checker: Checker) -> int:
        return sum(count for view, count in checker.counts.items() if checker.about.id in self._owed_in(view))


def judge(
    events: Iterable[Event],
    owed: Iterable[str] | None = None,
    *,
    also: Iterable[str] = (),
    troubled: Mapping[str, str] | None = None,
) -> Verdict:
    """The verdict on one run of one group: on what its orders owe, and `also`; or on `owed` alone, in every view.

    `troubled`: members with rows or files that could not be used, each with the reason.
    """
    rows = list(events)
    runs = {(event.run, event.group) for event in rows}
    if len(runs) > 1:
        (one, other), *_ = pairwise(sorted(runs))
        raise TraceError(
            f"these rows are of two runs or groups, {'/'.join(one)} and {'/'.join(other)}: judge each alone."
        )
    orders = Orders()
    for event in rows:
        orders.add(event)
    observer = Observer(owed, also=also, orders=orders.all)
    observer.write(rows)
    return observer.finish(troubled)


def judge_all(
    events: Iterable[Event],
    owed: Iterable[str] | None = None,
    *,
    also: Iterable[str] = (),
    troubled: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[tuple[str, str], Verdict]:
    """The verdict on every (run, group) in the rows, likewise; `troubled` is by run, and a run may have nothing else."""
    runs: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        runs.setdefault((event.run, event.group), []).append(event)
    owed = None if owed is None else frozenset(owed)
    bad = troubled or {}
    told = {run for run, _ in runs}
    for run in bad.keys() - told:
        runs[run, NOT_KNOWN] = []
    return {whose: judge(runs[whose], owed, also=also, troubled=bad.get(whose[0])) for whose in sorted(runs)}
