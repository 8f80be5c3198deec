"""From rows of measures to what a report shows: runs of one protocol and size are put together.

A row is a plain mapping with the columns of the frames in `pipeline.measures`, of one run or of a whole cohort.
Further columns are welcome: `members` and `source` on any row. Rows that only a report needs: `latency_quantiles`, `sizes`
and `stays` (see `from_tables`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from unisono.pipeline.report.model import Latency, MessageCost, Tau, TimedStay, Timeline, Waits, cohort_key

Rows: TypeAlias = Sequence[Mapping[str, Any]]
Measured: TypeAlias = Mapping[str, Rows]
"""Rows by the name of their measure."""
Cohort: TypeAlias = tuple[str, int | None]


class Sizes:
    """How many members a run had, from whatever rows say so."""

    def __init__(self, measured: Measured) -> None:
        self._of: dict[tuple[str, str], int] = {}
        for row in (*measured.get("cost", ()), *measured.get("sizes", ())):
            self._note(row, row.get("members"))
        for row in measured.get("stays", ()):
            self._note(row, len(row.get("members") or ()))

    def _note(self, row: Mapping[str, Any], size: int | None) -> None:
        key = row.get("run", ""), row.get("group", "")
        if size:
            self._of[key] = max(size, self._of.get(key, 0))

    def of(self, run: str, group: str) -> int | None:
        return self._of.get((run, group))

    def cohort(self, row: Mapping[str, Any]) -> Cohort:
        named = row.get("members")
        size = named if isinstance(named, int) else self.of(row.get("run", ""), row.get("group", ""))
        return row["protocol"], size


def latencies(measured: Measured, sizes: Sizes) -> tuple[Latency, ...]:
    """Of each cohort, over all members where clocks allow it, and at the senders otherwise."""
    figures: dict[tuple[Cohort, str], list[Mapping[str, Any]]] = {}
    for row in measured.get("latency", ()):
        figures.setdefault((sizes.cohort(row), row["scope"]), []).append(row)
    curves = {(sizes.cohort(row), row["scope"]): row for row in measured.get("latency_quantiles", ())}
    found = []
    for (cohort, scope), rows in figures.items():
        if scope == "sender" and (cohort, "all") in figures:
            continue
        messages, mean = _mean(rows, "mean_ns")
        curve = curves.get((cohort, scope))
        quantiles = _curve(curve, rows)
        most = max(float(row["max_ns"]) for row in rows)
        found.append(Latency(*cohort, scope, messages, mean, quantiles, most))
    return tuple(sorted(found, key=lambda one: cohort_key(one.protocol, one.members)))


def waits(measured: Measured, sizes: Sizes) -> tuple[Waits, ...]:
    first, second = (_by_cohort(measured.get(name, ()), sizes) for name in ("t1", "t2"))
    found = []
    for cohort in first.keys() & second.keys():
        messages, t1_ns = _mean(first[cohort], "mean_ns")
        _, t2_ns = _mean(second[cohort], "mean_ns")
        found.append(Waits(*cohort, messages, t1_ns, t2_ns))
    return tuple(sorted(found, key=lambda one: cohort_key(one.protocol, one.members)))


def taus(measured: Measured, sizes: Sizes) -> tuple[Tau, ...]:
    counts: dict[tuple[Cohort, str], Counter[int]] = {}
    for row in measured.get("joint_distribution", ()):
        key = sizes.cohort(row), str(row.get("source") or "")
        counts.setdefault(key, Counter())[int(row["tau"])] += int(row["messages"])
    found = [Tau(*cohort, source, tuple(sorted(some.items()))) for (cohort, source), some in counts.items()]
    return tuple(sorted(found, key=lambda one: (*cohort_key(one.protocol, one.members), one.source)))


def costs(measured: Measured, sizes: Sizes) -> tuple[MessageCost, ...]:
    found = []
    for cohort, rows in _by_cohort(measured.get("cost", ()), sizes).items():
        messages, packets = _mean(rows, "packets_per_message")
        _, size = _mean(rows, "bytes_per_message")
        on_top = any(row.get("acknowledgements_on_top") for row in rows)
        found.append(MessageCost(*cohort, messages, packets, float(rows[0]["packets_theory"]), size, on_top))
    return tuple(sorted(found, key=lambda one: cohort_key(one.protocol, one.members)))


def timelines(rows: Iterable[Mapping[str, Any]]) -> tuple[Timeline, ...]:
    """One for each run and group."""
    stays: dict[tuple[str, str], list[TimedStay]] = {}
    real: set[tuple[str, str]] = set()
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    for row in rows:
        key = row["run"], row["group"]
        totals[key] = row.get("views", 0), row.get("lives", 0)
        members = tuple(row.get("members") or ())
        stays.setdefault(key, []).append(
            TimedStay(row["who"], row["view"], members, row["start_ns"], row.get("end_ns"), row.get("ended"))
        )
        if row.get("clock") != "simulated":
            real.add(key)
    found = []
    for key, some in sorted(stays.items()):
        views, lives = totals[key]
        more = max(0, views - len({stay.view for stay in some})), max(0, lives - len({stay.who for stay in some}))
        ranked = tuple(sorted(some, key=lambda stay: (stay.start_ns, stay.who)))
        found.append(Timeline(*key, key not in real, ranked, *more))
    return tuple(found)


def _by_cohort(rows: Rows, sizes: Sizes) -> dict[Cohort, list[Mapping[str, Any]]]:
    found: dict[Cohort, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(sizes.cohort(row), []).append(row)
    return found


def _mean(rows: Rows, column: str) -> tuple[int, float]:
    """How many messages, and the mean over all of them."""
    messages = sum(int(row["messages"]) for row in rows)
    return messages, sum(float(row[column]) * int(row["messages"]) for row in rows) / max(1, messages)


def _curve(curve: Mapping[str, Any] | None, rows: Rows) -> tuple[tuple[float, float], ...]:
    """The quantiles of the cohort; if they were not computed, the few that a single run has."""
    if curve is not None:
        return tuple((float(share), float(ns)) for share, ns in curve["quantiles"])
    if len(rows) > 1 or "p50_ns" not in rows[0]:
        return ()
    row = rows[0]
    return ((0.5, float(row["p50_ns"])), (0.99, float(row["p99_ns"])), (1.0, float(row["max_ns"])))
