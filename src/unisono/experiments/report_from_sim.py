"""A report straight from simulated runs, without Spark: verdicts of the observer, distributions of the meter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from unisono.pipeline.report.collect import choose, findings, timelines_of
from unisono.pipeline.report.model import Latency, MessageCost, ReportData, RunReport, Tau, Waits, cohort_key, overall
from unisono.sim.run import Outcome
from unisono.trace.checks.properties import place_of

SHARES = (0.0, 0.001, 0.005, *(i / 100 for i in range(1, 100)), 0.995, 0.999, 1.0)
BEYOND = ("all-ack", "toto")

Cohort = tuple[str, int]


def collect_simulated(outcomes: Iterable[Outcome], title: str = "") -> ReportData:
    """Runs that kept their events (`simulate(…, keep=True)`) get pictures of violations and of their views too."""
    kept = list(outcomes)
    cohorts: dict[Cohort, list[Outcome]] = {}
    for one in kept:
        cohorts.setdefault((one.measures.order, one.measures.members), []).append(one)
    groups = sorted(cohorts.items(), key=lambda pair: cohort_key(*pair[0]))
    runs = tuple(sorted((_run(number, one) for number, one in enumerate(kept)), key=lambda run: run.rank))
    lines = [line for one in kept for line in timelines_of(one.events)]
    return ReportData(
        result=overall((run.result for run in runs), sum(one.gaps for one in kept)),
        runs=runs,
        title=title or "unisono report on simulated runs",
        latency=tuple(_latency(cohort, some) for cohort, some in groups if any(o.measures.latency.count for o in some)),
        waits=tuple(_waits(cohort, some) for cohort, some in groups if any(o.measures.t1.count for o in some)),
        tau=_taus(groups),
        cost=tuple(_cost(cohort, some) for cohort, some in groups if any(o.measures.delivered for o in some)),
        timelines=choose(lines, runs),
        quarantined=sum(one.gaps for one in kept),
        problems=("rows of a trace could not be written",) if any(one.gaps for one in kept) else (),
        notes=("Times are virtual: the simulator's clock, the same for all members.",),
    )


def _run(number: int, outcome: Outcome) -> RunReport:
    verdict, measures = outcome.verdict, outcome.measures
    named = outcome.events[0].run if outcome.events else f"{measures.order}-{measures.members}-{measures.seed}"
    owed = tuple(sorted(verdict.owed, key=place_of))
    return RunReport(
        name=named,
        group=outcome.events[0].group if outcome.events else "simulated",
        protocol=measures.order,
        result=str(verdict.result),
        members=measures.members,
        owed=owed,
        findings=findings(verdict.violations, verdict.counts, outcome.events),
        broken=dict(sorted(verdict.counts.items(), key=lambda pair: place_of(pair[0]))),
        unknown=dict(verdict.unknown),
    )


def _latency(cohort: Cohort, outcomes: Sequence[Outcome]) -> Latency:
    ranked = sorted(value for one in outcomes for value in one.meter.latency)
    curve = tuple((share, _quantile(ranked, share)) for share in SHARES)
    mean = sum(ranked) / len(ranked)
    return Latency(*cohort, "all", len(ranked), mean, curve, float(ranked[-1]))


def _waits(cohort: Cohort, outcomes: Sequence[Outcome]) -> Waits:
    messages = sum(one.measures.t1.count for one in outcomes)
    t1, t2 = (
        sum(spread.mean * spread.count for spread in spreads) / messages
        for spreads in ([one.measures.t1 for one in outcomes], [one.measures.t2 for one in outcomes])
    )
    return Waits(*cohort, messages, t1, t2)


def _taus(groups: Sequence[tuple[Cohort, Sequence[Outcome]]]) -> tuple[Tau, ...]:
    found = []
    for cohort, outcomes in groups:
        counts: dict[str, Counter[int]] = {}
        for one in outcomes:
            counts.setdefault(one.world.scenario.source.kind, Counter()).update(one.meter.index)
        found += [Tau(*cohort, source, tuple(sorted(c.items()))) for source, c in sorted(counts.items()) if c]
    return tuple(found)


def _cost(cohort: Cohort, outcomes: Sequence[Outcome]) -> MessageCost:
    messages = sum(one.measures.delivered for one in outcomes)
    packets, size = sum(one.world.packets for one in outcomes), sum(one.world.bytes for one in outcomes)
    theory = outcomes[0].measures.packets_theory
    return MessageCost(*cohort, messages, packets / messages, theory, size / messages, cohort[0] in BEYOND)


def _quantile(ranked: Sequence[int], share: float) -> float:
    place = share * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)
