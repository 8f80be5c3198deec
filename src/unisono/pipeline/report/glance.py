"""The first screen of a report: one word, one sentence, and who kept which promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from unisono.pipeline.report.model import FAIL, PASS, UNKNOWN, ReportData, Run, cohort_key
from unisono.pipeline.report.wording import counted, describe, grouped, in_order

RUNS_OPEN, RUNS_MAX = 15, 1_000
"""So many runs are listed at once, and so many in all."""
SYMBOLS = {PASS: "✓", FAIL: "✗", UNKNOWN: "?"}


class Cell(NamedTuple):
    """One property of one run, or of all runs of a protocol."""

    css: str
    text: str
    told: str


class GridRow(NamedTuple):
    name: str
    note: str
    result: str
    broken: str
    cells: list[Cell]


class Glance:
    """What the template needs to say it all at once."""

    def __init__(self, data: ReportData) -> None:
        self._data = data
        self.result = data.result
        self.symbol = SYMBOLS.get(data.result, "?")
        self.count = Counter(run.result for run in data.runs)
        self.columns = sorted({p for run in data.runs for p in (*run.owed, *run.broken)}, key=in_order)
        self.protocols = sorted({run.protocol for run in data.runs}, key=lambda name: cohort_key(name, None))
        ranked = sorted(data.runs, key=lambda run: run.rank)
        self.open = [self._row(run) for run in ranked[:RUNS_OPEN]]
        self.folded = [self._row(run) for run in ranked[RUNS_OPEN:RUNS_MAX]]
        self.left_out = max(0, len(ranked) - RUNS_MAX)
        self.summary = [self._summary(name, [r for r in ranked if r.protocol == name]) for name in self.protocols]

    @property
    def shares(self) -> list[tuple[str, int, float]]:
        """Result, number of runs, and percentage of all runs: the parts of one bar."""
        whole = max(1, len(self._data.runs))
        return [(r, self.count[r], 100 * self.count[r] / whole) for r in (PASS, FAIL, UNKNOWN) if self.count[r]]

    @property
    def sentence(self) -> str:
        total, broken, dark = len(self._data.runs), self.count[FAIL], self.count[UNKNOWN]
        if not total:
            return "There was no run to judge."
        if broken:
            several = total > 1
            start = f"{broken} of {counted(total, 'run')} broke a promise" if several else "The run broke a promise"
            rest = f" {grouped(dark)} more cannot be judged." if dark else ""
            return f"{start}: {self._worst()}.{rest}"
        if dark:
            start = f"{dark} of {counted(total, 'run')} cannot" if total > 1 else "The run cannot"
            return f"No promise was seen broken, but {start} be judged: something is missing in the trace."
        kept = f"All {counted(total, 'run')} kept" if total > 1 else "The run kept"
        if self._data.quarantined:
            lost = counted(self._data.quarantined, "row")
            return f"{kept} every promise as far as can be seen, but {lost} could not be used."
        return f"{kept} every promise that {'its order makes' if total == 1 else 'their orders make'}."

    def _worst(self) -> str:
        """The weakest broken properties, by how many runs broke them."""
        runs = Counter(one for run in self._data.runs for one in run.weakest)
        where = {
            one: f" in {counted(number, 'run')}" if len(self._data.runs) > 1 else "" for one, number in runs.items()
        }
        named = [f"{one} ({describe(one).name}){where[one]}" for one, _ in runs.most_common(3)]
        rest = len(runs) - len(named)
        return ", ".join(named) + (f" and {counted(rest, 'other property', 'other properties')}" if rest else "")

    def _row(self, run: Run) -> GridRow:
        size = f", {counted(run.members, 'member')}" if run.members else ""
        name = f"{run.name} / {run.group}" if self._data.several_groups else run.name
        broken = ", ".join(run.weakest[:3]) + (" …" if len(run.weakest) > 3 else "")
        cells = [self._cell(run, one) for one in self.columns]
        return GridRow(name, f"{run.protocol}{size}", run.result, broken, cells)

    def _cell(self, run: Run, property: str) -> Cell:
        state = _state(run, property)
        number = run.broken.get(property, 0)
        text = {"pass": "✓", "fail": f"✗{number if number > 1 else ''}", "unknown": "?", "skipped": "–"}.get(state, "·")
        return Cell(state, text, f"{property}: {TOLD[state]}")

    def _summary(self, protocol: str, runs: list[Run]) -> GridRow:
        cells = []
        for property in self.columns:
            states = Counter(_state(run, property) for run in runs)
            state = next(s for s in ("fail", "unknown", "skipped", "pass", "none") if states[s])
            number = f"{states[state]}" if state in ("fail", "unknown") and len(runs) > 1 else ""
            text = {"pass": "✓", "fail": "✗", "unknown": "?", "skipped": "–"}.get(state, "·") + number
            of = f" in {states[state]} of {counted(len(runs), 'run')}" if len(runs) > 1 else ""
            cells.append(Cell(state, text, f"{property}: {TOLD[state]}{of}"))
        failed = sum(run.result == FAIL for run in runs)
        note = counted(len(runs), "run") + (f", {grouped(failed)} broken" if failed else "")
        return GridRow(protocol, note, worst(run.result for run in runs), "", cells)


TOLD = {
    "pass": "kept",
    "fail": "broken",
    "unknown": "cannot be judged",
    "skipped": "promised, but not checked",
    "none": "not promised",
}


def _state(run: Run, property: str) -> str:
    if property in run.broken:
        return "fail"
    if property not in run.owed:
        return "none"
    if property not in run.checked:
        return "skipped"
    return "unknown" if run.unknown or run.result == UNKNOWN else "pass"


def worst(results: Iterable[str]) -> str:
    seen = set(results)
    return next((result for result in (FAIL, UNKNOWN, PASS) if result in seen), UNKNOWN)
