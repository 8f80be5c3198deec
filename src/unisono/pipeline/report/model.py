"""What a report shows, as plain data: no Spark, no HTML.

`collect`, or an adapter of the simulator, fills these in; `page.build` draws them. Durations are
in ns. Measures are kept per **cohort**: the runs of one protocol with the same number of members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from unisono.trace.checks.properties import IMPLIES
from unisono.trace.promises import PROMISES

PASS, FAIL, UNKNOWN = "PASS", "FAIL", "UNKNOWN"
WORST_FIRST = {FAIL: 0, UNKNOWN: 1, PASS: 2}


@dataclass(frozen=True)
class ReportedViolation:
    """One violation: a sentence that a person can check by hand, and a picture of where it happened."""

    property: str
    sentence: str
    members: tuple[str, ...] = ()
    follows_from: str | None = None
    """A weaker property that is broken too: this violation says nothing new."""
    diagram: str | None = None
    """SVG, to be put into a page as it is."""


@dataclass(frozen=True)
class RunReport:
    """The verdict on one run of one group."""

    name: str
    group: str
    protocol: str
    result: str
    members: int | None = None
    owed: tuple[str, ...] = ()
    findings: tuple[ReportedViolation, ...] = ()
    """The first violations; `broken` counts all of them."""
    broken: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Members whose trace is not whole, and why."""

    @property
    def weakest(self) -> tuple[str, ...]:
        """The broken properties without those that imply another broken one."""
        return tuple(one for one in self.broken if weaker_broken(one, self.broken) is None)

    @property
    def rank(self) -> tuple[int, str, str]:
        return WORST_FIRST.get(self.result, 1), self.name, self.group


def weaker_broken(property: str, broken: Iterable[str]) -> str | None:
    """The weakest broken property that holds wherever this one holds, if there is one."""
    below = IMPLIES.get(property, frozenset()) & frozenset(broken)
    return min(below, key=lambda one: (len(IMPLIES.get(one, ())), one), default=None)


def state_of(run: RunReport, property: str) -> str:
    """How a property fared in a run."""
    if property in run.broken:
        return "fail"
    if property not in run.owed:
        return "none"
    return "unknown" if run.unknown or run.result == UNKNOWN else "pass"


@dataclass(frozen=True)
class ProtocolTally:
    """How all runs of a protocol fared, whether a page lists them or not."""

    protocol: str
    results: Mapping[str, int]
    """By result: the number of runs."""
    states: Mapping[str, Mapping[str, int]]
    """By property that is owed or broken, and by `state_of`: the number of runs."""
    weakest: Mapping[str, int] = field(default_factory=dict)
    """By property: the number of runs in which it is among the weakest broken ones."""
    gaps: int = 0
    """Runs with members whose trace is not whole."""
    protocols: int = 1
    """More than one: rare protocols, counted together."""

    @property
    def runs(self) -> int:
        return sum(self.results.values())


def tallies_of(runs: Iterable[RunReport]) -> tuple[ProtocolTally, ...]:
    """Count runs that are all at hand."""
    by_protocol: dict[str, list[RunReport]] = {}
    for run in runs:
        by_protocol.setdefault(run.protocol, []).append(run)
    return tuple(_tally(protocol, some) for protocol, some in by_protocol.items())


def _tally(protocol: str, runs: list[RunReport]) -> ProtocolTally:
    states: dict[str, Counter[str]] = {}
    for run in runs:
        for property in {*run.owed, *run.broken}:
            states.setdefault(property, Counter())[state_of(run, property)] += 1
    return ProtocolTally(
        protocol,
        Counter(run.result for run in runs),
        states,
        Counter(one for run in runs for one in run.weakest),
        sum(bool(run.unknown) for run in runs),
    )


@dataclass(frozen=True)
class Latency:
    """Cast to delivery in a cohort. `quantiles` are (share of messages, ns), ascending in both; empty if they are not known."""

    protocol: str
    members: int | None
    scope: str
    """`all`: at every member; `sender`: at the caster alone, by its own clock."""
    messages: int
    mean_ns: float
    quantiles: tuple[tuple[float, float], ...] = ()
    max_ns: float | None = None

    def quantile(self, share: float) -> float | None:
        """Interpolated between the known ones."""
        below = [pair for pair in self.quantiles if pair[0] <= share]
        above = [pair for pair in self.quantiles if pair[0] >= share]
        if not below or not above:
            return None
        (p0, x0), (p1, x1) = below[-1], above[0]
        return x0 if p1 == p0 else x0 + (x1 - x0) * (share - p0) / (p1 - p0)


@dataclass(frozen=True)
class Waits:
    """Where a receiver's time goes, on average: t1 until a message's place is known, t2 from then until it is delivered."""

    protocol: str
    members: int | None
    messages: int
    t1_ns: float
    t2_ns: float


@dataclass(frozen=True)
class Tau:
    """How many messages had which index of latency: of how many members something had to be heard."""

    protocol: str
    members: int | None
    source: str
    counts: tuple[tuple[int, int], ...]

    @property
    def messages(self) -> int:
        return sum(count for _, count in self.counts)

    @property
    def mean(self) -> float:
        return sum(tau * count for tau, count in self.counts) / max(1, self.messages)


@dataclass(frozen=True)
class MessageCost:
    """What a message costs on the wire, beside what theory says without batching."""

    protocol: str
    members: int | None
    messages: int
    packets: float
    packets_theory: float
    bytes: float
    acks_on_top: bool = False
    """Explicit acknowledgements come on top of the theory."""


Measure: TypeAlias = Latency | Waits | Tau | MessageCost


@dataclass(frozen=True)
class TimedStay:
    """One member in one view: from when to when, in ns of the run's clock; `end` is None while nothing says that it was over."""

    who: str
    view: str
    members: tuple[str, ...]
    start_ns: int
    end_ns: int | None
    ended: str | None = None
    """END, LEAVE or CRASH, if it was its last."""


@dataclass(frozen=True)
class Timeline:
    """Who was in which view when. Times of different members are compared only if `simulated`."""

    run: str
    group: str
    simulated: bool
    stays: tuple[TimedStay, ...]
    more_views: int = 0
    """Views beyond those of `stays`."""
    more_members: int = 0

    @property
    def views(self) -> int:
        return len({stay.view for stay in self.stays}) + self.more_views


@dataclass(frozen=True)
class Measured:
    """What a report shows besides verdicts."""

    latency: tuple[Latency, ...] = ()
    waits: tuple[Waits, ...] = ()
    tau: tuple[Tau, ...] = ()
    cost: tuple[MessageCost, ...] = ()
    sizes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By run and group that is listed: its members."""
    timelines: tuple[Timeline, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out, a sentence each."""


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows."""

    result: str
    runs: tuple[RunReport, ...]
    """The runs to list."""
    title: str = "unisono report"
    latency: tuple[Latency, ...] = ()
    waits: tuple[Waits, ...] = ()
    tau: tuple[Tau, ...] = ()
    cost: tuple[MessageCost, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    quarantined: int = 0
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader should know about how this was made, a sentence each."""
    tallies: tuple[ProtocolTally, ...] = ()
    """How all runs fared; empty if `runs` are all of them."""

    @property
    def several_sizes(self) -> bool:
        """Groups of different sizes were measured, so that a protocol's name alone does not name a cohort."""
        return len({one.members for one in self.measures}) > 1

    @property
    def several_groups(self) -> bool:
        return len({run.group for run in self.runs} | {line.group for line in self.timelines}) > 1

    @property
    def measures(self) -> tuple[Measure, ...]:
        return (*self.latency, *self.waits, *self.tau, *self.cost)


def cohort_key(protocol: str, members: int | None) -> tuple[int, str, int]:
    """Weaker orders before stronger ones, as everywhere in unisono; strangers at the end."""
    known = list(PROMISES)
    return known.index(protocol) if protocol in PROMISES else len(known), protocol, members or 0


def overall(results: Iterable[str], quarantined: int = 0) -> str:
    """The verdict on all runs together: one failure fails it, and nothing passes that was not seen whole."""
    seen = set(results)
    if FAIL in seen:
        return FAIL
    return PASS if seen == {PASS} and not quarantined else UNKNOWN
