"""The first screen of a report: one word, one sentence, and who kept which promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from unisono.pipeline.report.model import (
    FAIL,
    PASS,
    UNKNOWN,
    ProtocolTally,
    ReportData,
    RunReport,
    cohort_key,
    state_of,
    tallies_of,
)
from unisono.pipeline.report.wording import counted, describe, grouped
from unisono.trace.checks.properties import place_of

RUNS_OPEN, RUNS_MAX = 15, 500
"""Runs that are listed at once, and in all."""
SYMBOLS = {PASS: "✓", FAIL: "✗", UNKNOWN: "?"}


class GlanceCell(NamedTuple):
    """One property of one run, or of all runs of a protocol."""

    css: str
    text: str
    told: str


class GridRow(NamedTuple):
    name: str
    note: str
    result: str
    broken: str
    cells: list[GlanceCell]


class Glance:
    """What the template needs to say it all at once. Totals are of all runs, listed or not."""

    def __init__(self, data: ReportData) -> None:
        self._data = data
        self.result = data.result
        self.symbol = SYMBOLS.get(data.result, "?")
        tallies = sorted(data.tallies or tallies_of(data.runs), key=_place)
        self.count: Counter[str] = Counter()
        self._weakest: Counter[str] = Counter()
        for one in tallies:
            self.count.update(one.results)
            self._weakest.update(one.weakest)
        self.total = self.count.total()
        self.gaps = sum(one.gaps for one in tallies)
        self.columns = sorted({property for one in tallies for property in one.states}, key=place_of)
        self.protocols = sum(one.protocols for one in tallies)
        ranked = sorted(data.runs, key=lambda run: run.rank)[:RUNS_MAX]
        self.open = [self._row(run) for run in ranked[:RUNS_OPEN]]
        self.folded = [self._row(run) for run in ranked[RUNS_OPEN:]]
        self.summary = [self._summary(one) for one in tallies]

    @property
    def listed(self) -> str:
        """How many runs are listed, unless all are."""
        shown = len(self.open) + len(self.folded)
        return f"{grouped(shown)} of {counted(self.total, 'run')} are shown" if shown < self.total else ""

    @property
    def shares(self) -> list[tuple[str, int, float]]:
        """Result, number of runs, and percentage of all runs: the parts of one bar."""
        whole = max(1, self.total)
        return [(r, self.count[r], 100 * self.count[r] / whole) for r in (PASS, FAIL, UNKNOWN) if self.count[r]]

    @property
    def sentence(self) -> str:
        total, broken, dark = self.total, self.count[FAIL], self.count[UNKNOWN]
        if not total:
            return "There was no run to judge."
        if broken:
            start = "The run broke a promise"
            if total > 1:
                start = f"{grouped(broken)} of {counted(total, 'run')} broke a promise"
            rest = f" {grouped(dark)} more cannot be judged." if dark else ""
            return f"{start}: {self._worst()}.{rest}"
        if dark:
            start = f"{grouped(dark)} of {counted(total, 'run')} cannot" if total > 1 else "The run cannot"
            return f"No promise was seen broken, but {start} be judged: something is missing in the trace."
        kept = f"All {counted(total, 'run')} kept" if total > 1 else "The run kept"
        if self._data.quarantined:
            lost = counted(self._data.quarantined, "row")
            return f"{kept} every promise as far as can be seen, but {lost} could not be used."
        return f"{kept} every promise that {'its order makes' if total == 1 else 'their orders make'}."

    def _worst(self) -> str:
        """The weakest broken properties, by how many runs broke them."""
        several = self.total > 1
        ranked = sorted(self._weakest.items(), key=lambda pair: (-pair[1], place_of(pair[0])))
        named = [
            f"{one} ({describe(one).name})" + (f" in {counted(number, 'run')}" if several else "")
            for one, number in ranked[:3]
        ]
        rest = len(ranked) - len(named)
        return ", ".join(named) + (f" and {counted(rest, 'other property', 'other properties')}" if rest else "")

    def _row(self, run: RunReport) -> GridRow:
        size = f", {counted(run.members, 'member')}" if run.members else ""
        name = f"{run.name} / {run.group}" if self._data.several_groups else run.name
        broken = ", ".join(run.weakest[:3]) + (" …" if len(run.weakest) > 3 else "")
        cells = [self._cell(run, one) for one in self.columns]
        return GridRow(name, f"{run.protocol}{size}", run.result, broken, cells)

    def _cell(self, run: RunReport, property: str) -> GlanceCell:
        state = state_of(run, property)
        number = run.broken.get(property, 0)
        text = SIGNS[state] + (grouped(number) if number > 1 else "")
        return GlanceCell(state, text, f"{property}: {TOLD[state]}")

    def _summary(self, tally: ProtocolTally) -> GridRow:
        cells = []
        for property in self.columns:
            states = Counter(tally.states.get(property, {}))
            state = next((s for s in ("fail", "unknown", "pass") if states[s]), "none")
            runs = states[state] if state != "none" else tally.runs
            number = grouped(runs) if state in ("fail", "unknown") and tally.runs > 1 else ""
            of = f" in {grouped(runs)} of {counted(tally.runs, 'run')}" if tally.runs > 1 else ""
            cells.append(GlanceCell(state, SIGNS[state] + number, f"{property}: {TOLD[state]}{of}"))
        failed = tally.results.get(FAIL, 0)
        note = counted(tally.runs, "run") + (f", {grouped(failed)} broken" if failed else "")
        name = tally.protocol if tally.protocols == 1 else f"{grouped(tally.protocols)} other protocols"
        return GridRow(name, note, worst(r for r, number in tally.results.items() if number), "", cells)


SIGNS = {"pass": "✓", "fail": "✗", "unknown": "?", "none": "·"}
TOLD = {
    "pass": "kept",
    "fail": "broken",
    "unknown": "cannot be judged",
    "none": "not promised",
}


def _place(tally: ProtocolTally) -> tuple[bool, tuple[int, str, int]]:
    return tally.protocols > 1, cohort_key(tally.protocol, None)


def worst(results: Iterable[str]) -> str:
    seen = set(results)
    return next((result for result in (FAIL, UNKNOWN, PASS) if result in seen), UNKNOWN)
