"""P24 determinism: same seed, same code ⇒ same digest of the trace.

Runs that must be equal say so: the first row of each life (local index 0) has `attributes.twin`, a label made of whatever
decides the run (a digest of scenario, seed and version of the code). Runs of one group with equal labels are **twins**: all
their columns but `run` are equal, row by row, life by life. The least run in the order of names stands for all, and
every other one is compared with it.

This is the one property that is not of a single run, so it has no place among the checkers of a history: `judge_twins` takes the
rows of many runs. Lives that are not whole in both are left out; so is a life that one run lacks although a view of
that run lists it, for then its trace is lost. Where everything is whole, twins are equal exactly if `digest_of_trace` is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from unisono.trace.checks.attributes import value_of
from unisono.trace.checks.property import Example, Kind, PropertyRecord, RowOf, Violation
from unisono.trace.digest import digest_of_trace
from unisono.trace.schema import ENDINGS, Event, member_name

DETERMINISM = PropertyRecord(
    id="P24",
    name="determinism",
    says="The same seed and the same code make the same trace.",
    exact=__doc__,
    rows=(),
    roles=("who",),
    witness={"what": Kind.TEXT, "run": Kind.TEXT, "twin": Kind.TEXT, "label": Kind.TEXT, "local": RowOf("who")},
    sentence="[Runs {twin} and {run} are twins|The run is a twin of {twin}], but {who} differs from its row {local} on.",
    example=Example(("a",), None, {"what": "differs", "run": "two", "twin": "one", "label": "same", "local": 2}),
)


class TwinRun:
    """The rows of one run of one group, by life."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.twin: str | None = None  # the least label, should the lives disagree
        self.lives: defaultdict[str, list[Event]] = defaultdict(list)
        self.listed: set[str] = set()

    def add(self, event: Event) -> None:
        self.lives[member_name(event.member, event.incarnation)].append(event)
        self.listed.update(event.members or ())
        label = value_of(event, "twin")
        if event.local_index == 0 and label is not None:
            self.twin = label if self.twin is None else min(label, self.twin)

    def may_be_lost(self, who: str) -> bool:
        """Whether the rows of this life, as they are here, may not be all."""
        rows = self.lives.get(who)
        if rows is None:
            return who in self.listed
        is_gapless = [row.local_index for row in rows] == list(range(len(rows)))
        return not is_gapless or not any(row.kind in ENDINGS for row in rows)


def judge_twins(events: Iterable[Event]) -> list[Violation]:
    """Every life in which a run differs from its twin."""
    runs: dict[tuple[str, str], TwinRun] = {}
    for event in events:
        key = (event.group, event.run)
        if key not in runs:
            runs[key] = TwinRun(event.run)
        runs[key].add(event)
    twins: defaultdict[tuple[str, str], list[TwinRun]] = defaultdict(list)
    for (group, _), run in sorted(runs.items()):
        if run.twin is not None:
            twins[group, run.twin].append(run)
    return [found for same in twins.values() for other in same[1:] for found in _compare(same[0], other)]


def _compare(one: TwinRun, other: TwinRun) -> list[Violation]:
    found = []
    for who in sorted(one.lives.keys() | other.lives.keys()):
        if one.may_be_lost(who) or other.may_be_lost(who):
            continue
        rows, others = one.lives.get(who, []), other.lives.get(who, [])
        if digest_of_trace(rows) != digest_of_trace(others):
            found.append(_violation(one, other, who, _first_difference(rows, others)))
    return found


def _first_difference(rows: list[Event], others: list[Event]) -> int:
    for at, (row, other) in enumerate(zip(rows, others, strict=False)):
        if digest_of_trace([row]) != digest_of_trace([other]):
            return at
    return min(len(rows), len(others))


def _violation(one: TwinRun, other: TwinRun, who: str, local: int) -> Violation:
    witness = {"what": "differs", "run": other.name, "twin": one.name, "label": one.twin, "local": local}
    return DETERMINISM.violation((who,), None, witness)
