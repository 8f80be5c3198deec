"""The judgements of the network benchmark, on plain figures: percentiles, order, disturbance, and how unisono compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

FOREIGN_CORES_MAX = 0.2
"""A round is disturbed if others on this machine use more than this share of one core."""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    if not values:
        raise ValueError("there is no percentile of nothing.")
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


class Load(NamedTuple):
    """Seconds of CPU since some time in the past: of the whole machine, and of our processes."""

    machine_s: float
    ours_s: float


def foreign_cores(before: Load, after: Load, seconds: float) -> float:
    """How many cores others kept busy meanwhile."""
    busy = after.machine_s - before.machine_s
    ours = after.ours_s - before.ours_s
    return max(0.0, (busy - ours) / seconds)


def is_disturbed(foreign: float) -> bool:
    return foreign > FOREIGN_CORES_MAX


def find_fault(reports: Sequence[Mapping[str, Any]], sent: int | None) -> str | None:
    """What is wrong with what the members took; None: all took the same in the same order, and everything that was sent.

    `sent` is None if that is not known, as after a crash: then they must agree with each other alone.
    """
    counts = [report["taken"] for report in reports]
    for report in reports:
        if sent is not None and report["taken"] != sent:
            missing = sent - report["taken"]
            what = f"lost {missing:,} of" if missing > 0 else f"took {-missing:,} more than"
            return f"member {report['rank']} {what} {sent:,} messages"
    if len(set(counts)) > 1:
        return f"the members took different numbers of messages: {', '.join(f'{count:,}' for count in counts)}"
    if len({report["chain"] for report in reports}) > 1:
        return "the members took the messages in different orders"
    return None


@dataclass(frozen=True)
class Sample:
    """One run of one case on one system."""

    per_s: float = 0.0  # delivered at the slowest member
    latencies_ns: list[int] = field(default_factory=list)
    cpu_us: float = 0.0  # of all processes, for each message
    memory_bytes: int = 0  # the largest process at its peak
    gap_ms: float = 0.0  # the longest without a delivery, at the worst member
    foreign: float = 0.0
    fault: str | None = None


def settle(samples: Sequence[Sample]) -> dict[str, Any]:
    """The figures of a case over its rounds: medians over those that went well."""
    good = [sample for sample in samples if sample.fault is None]
    figures: dict[str, Any] = {
        "rounds": len(good),
        "disturbed": sum(is_disturbed(sample.foreign) for sample in good),
        "faults": sorted({sample.fault for sample in samples if sample.fault is not None}),
    }
    if not good:
        return figures
    figures["per_s"] = median(sample.per_s for sample in good)
    figures["per_s_least"] = min(sample.per_s for sample in good)
    figures["per_s_most"] = max(sample.per_s for sample in good)
    figures["cpu_us"] = median(sample.cpu_us for sample in good)
    figures["memory_mb"] = max(sample.memory_bytes for sample in good) / 1e6
    timed = [sample.latencies_ns for sample in good if sample.latencies_ns]
    for name, share in (("p50_us", 0.5), ("p99_us", 0.99)):
        if timed:
            figures[name] = median(percentile(latencies, share) for latencies in timed) / 1e3
    gaps = [sample.gap_ms for sample in good if sample.gap_ms]
    if gaps:
        figures["gap_ms"] = median(gaps)
    return figures


Results = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""System → case → figures."""


class Verdict(NamedTuple):
    """How unisono stands in one column: the ratio, above 1 is better for unisono, and to whom."""

    ratio: float
    peer: str


def compare(results: Results, case: str, figure: str, peers: Sequence[str], own: str = "unisono") -> Verdict | None:
    """Against the best of these peers; None if one side has no figure. Rates: more is better; latencies: less is."""
    ours = results.get(own, {}).get(case, {}).get(figure)
    theirs = {peer: value for peer in peers if (value := results.get(peer, {}).get(case, {}).get(figure))}
    if not ours or not theirs:
        return None
    if figure == "per_s":
        best = max(theirs, key=lambda peer: theirs[peer])
        return Verdict(ours / theirs[best], best)
    best = min(theirs, key=lambda peer: theirs[peer])
    return Verdict(theirs[best] / ours, best)
