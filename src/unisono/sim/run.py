"""One scenario from beginning to verdict: simulate, record, judge, measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unisono.core.ordering import AnyOrdering
from unisono.core.types import MemberId
from unisono.orders.registry import make_codec
from unisono.sim.checked import blame
from unisono.sim.measure import Measures, Meter
from unisono.sim.scenario import Scenario
from unisono.sim.world import World
from unisono.trace.checks.judge import Observer, Verdict
from unisono.trace.digest import TraceDigest
from unisono.trace.promises import promises
from unisono.trace.recorder import Recorder
from unisono.trace.schema import Event
from unisono.trace.sinks import FolderSink, MemorySink, Sink, TeeSink


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run showed."""

    world: World
    verdict: Verdict
    measures: Measures
    meter: Meter
    """What the measures are made of: every latency, and the joint distribution of index and concurrency."""
    digest: str
    events: Sequence[Event]
    """The trace, if it was kept."""
    gaps: int
    """Rows that could not be written to the trace folder."""


def simulate(
    scenario: Scenario,
    *,
    order: type[AnyOrdering] | None = None,
    folder: Path | None = None,
    keep: bool = False,
    progress: Callable[[World], None] | None = None,
    run: str | None = None,
) -> Outcome:
    """Run a scenario and judge what it owes. With `folder`, the trace is written there; with `keep`, it is returned.

    `run` names it where its order, size and seed do not tell it from others.
    """
    run = run or f"{scenario.order}-{scenario.members}-{scenario.seed}"
    observer, digest, memory, meter = Observer(promises(scenario.order)), TraceDigest(), MemorySink(), Meter()
    sinks: list[Sink] = [observer, digest]
    if keep:
        sinks.append(memory)

    recorders: list[Recorder] = []

    def recorder_of(member: MemberId) -> Recorder:
        folders = [] if folder is None else [FolderSink(folder, run, member.address, member.incarnation)]
        sink = TeeSink(*sinks, *folders)
        recorders.append(Recorder(run, "simulated", scenario.order, member, "simulated", sink))
        return recorders[-1]

    world = World(scenario, order, recorder_of, meter.turn, make_codec(scenario.settings).size)
    try:
        world.play(progress)
    finally:
        for recorder in recorders:
            recorder.sink.close()
    verdict, measures = observer.finish(), meter.measures(world)
    return Outcome(
        world, verdict, measures, meter, digest.hexdigest(), memory.events, sum(recorder.gaps for recorder in recorders)
    )


def failure_of(scenario: Scenario, order: type[AnyOrdering] | None = None) -> str | None:
    """The first thing that is wrong with a run, as a sentence; None: it kept its promises.

    An exception inside the run, a broken invariant above all, is a failure like any other: that is what the swarm looks for.
    """
    try:
        outcome = simulate(scenario, order=order)
    except Exception as error:
        return blame(error)
    if outcome.verdict.violations:
        first = outcome.verdict.violations[0]
        return f"{first.property}: {first.sentence}"
    return None if outcome.verdict.result == "PASS" else f"the verdict is {outcome.verdict.result}"
