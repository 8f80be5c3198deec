"""From rows to a verdict on a run: PASS, FAIL or UNKNOWN.

A violation makes it FAIL. Otherwise a member whose trace has a gap, or stops without END, LEAVE or CRASH, or is not there
at all, makes it UNKNOWN: what is missing might have shown one. Only a whole trace can PASS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from unisono.trace.checks.checker import Checker, Violation
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Stay
from unisono.trace.checks.p00_well_formed import WellFormed
from unisono.trace.checks.p01_no_creation import NoCreation
from unisono.trace.checks.p02_no_duplication import NoDuplication
from unisono.trace.checks.p03_in_view import InView
from unisono.trace.checks.p04_validity import Validity
from unisono.trace.checks.p05_agreement import Agreement
from unisono.trace.checks.p06_fifo import Fifo, GapFreeFifo
from unisono.trace.checks.p08_causal import Causal
from unisono.trace.checks.p08c_own_clocks import OwnClocks
from unisono.trace.checks.p09a_pairwise import TotalPairwise
from unisono.trace.checks.p09b_acyclic import TotalAcyclic
from unisono.trace.checks.p09c_same_sequence import TotalSameSequence
from unisono.trace.checks.p10_uniform_total import UniformTotal
from unisono.trace.checks.p11_view_agreement import ViewAgreement
from unisono.trace.checks.p12_view_monotony import ViewMonotony
from unisono.trace.checks.p13_sending_view import SendingView
from unisono.trace.checks.p14_virtual_synchrony import VirtualSynchrony
from unisono.trace.checks.p15_transitional_set import TransitionalSet
from unisono.trace.checks.p16_merge import Merge
from unisono.trace.checks.p17_safe import Safe
from unisono.trace.checks.p18_two_phase_commit import TwoPhaseCommit
from unisono.trace.checks.p19_state_transfer import StateTransfer
from unisono.trace.checks.p20_primary_component import PrimaryComponent
from unisono.trace.checks.p21_security import Security
from unisono.trace.checks.p22_bounded_liveness import BoundedLiveness
from unisono.trace.checks.p23_resources import Resources
from unisono.trace.checks.p25_together import Together
from unisono.trace.checks.p26_stable import Stable
from unisono.trace.checks.p27_safe_primary import SafePrimary
from unisono.trace.checks.p28_receipts import Receipts
from unisono.trace.checks.p29_state_lineage import StateLineage
from unisono.trace.promises import excused, owed_by
from unisono.trace.schema import Event, TraceError

CHECKERS: dict[str, type[Checker]] = {
    checker.id: checker
    for checker in (
        WellFormed,
        NoCreation,
        NoDuplication,
        InView,
        Validity,
        Agreement,
        Fifo,
        GapFreeFifo,
        Causal,
        OwnClocks,
        TotalPairwise,
        TotalAcyclic,
        TotalSameSequence,
        UniformTotal,
        ViewAgreement,
        ViewMonotony,
        SendingView,
        VirtualSynchrony,
        TransitionalSet,
        Merge,
        Safe,
        TwoPhaseCommit,
        StateTransfer,
        PrimaryComponent,
        Security,
        BoundedLiveness,
        Resources,
        Together,
        Stable,
        SafePrimary,
        Receipts,
        StateLineage,
    )
}
"""By property id, in the order in which a report lists them."""

IMPLIES: dict[str, frozenset[str]] = {"P9c": frozenset({"P9b", "P9a"}), "P9b": frozenset({"P9a"})}
"""A property, and those that hold wherever it holds."""


class Result(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Verdict:
    """What was found in one run."""

    result: Result
    owed: frozenset[str]
    violations: list[Violation] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """How many violations of each broken property there were; `violations` tells only the first ones."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Members whose trace is not whole, each with the reason."""
    members: dict[str, Result] = field(default_factory=dict)

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
        return "\n".join(lines)


class Observer:
    """Judges one run of one group while it goes on. It is a sink too, so a recorder can write into it."""

    def __init__(self, owed: Iterable[str]) -> None:
        self.owed = frozenset(owed)
        unjudged = self.owed - CHECKERS.keys()
        if unjudged:
            raise TraceError(f"there is no checker for {', '.join(sorted(unjudged))}.")
        self.history = History()
        self.checkers = [CHECKERS[one](self.history) for one in CHECKERS if one in self.owed]
        self.history.listen("view", self._excuse)
        self.observe: Callable[[Event], None] = self.history.observe
        """Take in one row, in any interleaving that keeps each member's own order."""

    def write(self, events: Iterable[Event]) -> None:
        for event in events:
            self.history.observe(event)

    def close(self) -> None:
        """So that it can stand where a sink stands; the verdict is asked with `finish`."""

    def _excuse(self, stay: Stay, event: Event) -> None:
        """A view of another order than the run began with: what that does not promise is not owed by the run."""
        if event.reason is not None and event.reason != event.protocol:
            self.excuse(excused(event.protocol, event.reason))

    def excuse(self, properties: Iterable[str]) -> None:
        """Do not ask for these properties any more."""
        self.owed -= frozenset(properties)
        self.checkers = [checker for checker in self.checkers if checker.id in self.owed]

    @property
    def violations(self) -> list[Violation]:
        """What is certain so far. Some properties can only be judged at the end."""
        return [violation for checker in self.checkers for violation in checker.violations]

    def finish(self) -> Verdict:
        """No more rows will come."""
        for checker in self.checkers:
            checker.finish()
        violations = self.violations
        counts = {checker.id: checker.count for checker in self.checkers if checker.count}
        unknown = self.history.unknown()
        guilty = Counter(member for violation in violations for member in violation.members)
        names = {life.name for life in self.history.numbered if life.rows} | unknown.keys()
        members = {
            name: Result.FAIL if name in guilty else Result.UNKNOWN if name in unknown else Result.PASS
            for name in sorted(names)
        }
        result = Result.FAIL if counts else Result.UNKNOWN if unknown or not members else Result.PASS
        return Verdict(result, self.owed, violations, counts, unknown, members)


def judge(events: Iterable[Event], owed: Iterable[str]) -> Verdict:
    """The verdict on one run of one group."""
    observer = Observer(owed)
    whose: tuple[str, str] | None = None
    for event in events:
        if whose is None:
            whose = (event.run, event.group)
        elif event.run != whose[0] or event.group != whose[1]:
            raise TraceError(
                f"these rows are of two runs or groups, {'/'.join(whose)} and {event.run}/{event.group}: judge each alone."
            )
        observer.history.observe(event)
    return observer.finish()


def judge_all(events: Iterable[Event], owed: Iterable[str] | None = None) -> dict[tuple[str, str], Verdict]:
    """The verdict on every (run, group) in the rows; what is owed is what the order in `protocol` promises, or all do."""
    owed = None if owed is None else frozenset(owed)
    observers: dict[tuple[str, str], Observer] = {}
    for event in events:
        observer = observers.get((event.run, event.group))
        if observer is None:
            owes = owed_by(event.protocol) if owed is None else owed
            observer = observers[event.run, event.group] = Observer(owes)
        observer.history.observe(event)
    return {whose: observers[whose].finish() for whose in sorted(observers)}
