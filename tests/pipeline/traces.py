"""Traces for tests of the pipeline: simulated runs, random stories, damage done to both, and stories written by hand.

Each trace is a list of events under a run id of its own, so that all of them can be judged at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from tests.pipeline.damage import DAMAGES, Trace
from tests.unit.test_checks_planted import STORY, TABLE
from tests.unit.test_checks_random import Generator
from unisono.orders.registry import ORDERS
from unisono.sim.run import simulate
from unisono.sim.swarm import scenario_of
from unisono.trace.checks.properties import PROPERTIES
from unisono.trace.parquet import arrow_table
from unisono.trace.schema import CAST, DELIVER, Event
from unisono.trace.story import renumber, tell

if TYPE_CHECKING:
    from pyspark.sql import Row

MEMBERS_MAX, MESSAGES_MAX = 5, 30


def named(run: str, events: Iterable[Event]) -> Trace:
    return [replace(event, run=run) for event in events]


def as_arrow(traces: Mapping[str, Trace]) -> Any:
    """All events as one Arrow table."""
    return arrow_table([event for trace in traces.values() for event in trace])


def sentence(row: Row) -> str:
    """What a violation in a table says."""
    return PROPERTIES[row["property"]].tell(row["members"], row["view"], row["witness"])


def simulated(an_order: int, first_seed: int = 0) -> Iterator[tuple[str, Trace]]:
    """Small runs of the swarm, so many of every order, with its crashes, losses and pauses."""
    for order in ORDERS:
        seed, found = first_seed, 0
        while found < an_order:
            scenario = scenario_of(order, seed)
            seed += 1
            if scenario.members <= MEMBERS_MAX and scenario.source.messages <= MESSAGES_MAX:
                found += 1
                run = f"simulated-{order}-{seed - 1}"
                yield run, named(run, simulate(scenario, keep=True).events)


def told(count: int) -> Iterator[tuple[str, Trace]]:
    """Random stories with recipients, several services, batches that members cut differently, and vectors that nobody checked."""
    for seed in range(count):
        random = Random(f"told/{seed}")
        services = random.choice((("total",), ("causal",), ("total", "causal")))
        run = f"told-{seed}"
        yield run, named(run, tell(Generator(random, services=services).story(), protocol="toto"))


def damaged(sources: list[tuple[str, Trace]], count: int) -> Iterator[tuple[str, Trace]]:
    """Each kind of damage in turn, to one trace after another; now and then two kinds at once."""
    kinds = list(DAMAGES.items())
    for number in range(count):
        random = Random(f"damaged/{number}")
        name, damage = kinds[number % len(kinds)]
        run, events = sources[random.randrange(len(sources))]
        changed = damage(list(events), random)
        if changed is not None and random.random() < 0.25:
            again, second = random.choice(kinds)
            changed, name = second(list(changed), random) or changed, f"{name}+{again}"
        if changed is not None:
            label = f"{name} {number} of {run}"
            yield label, named(label, changed)


# Written by hand.

STORIES: dict[str, str] = {
    "a merge": """
        a,b VIEW 1@a a b
        c,d VIEW 1@c c d
        a CAST x
        c CAST y
        a,b DELIVER x
        c,d DELIVER y
        a,b,c,d BLOCK
        a,b VIEW 2@a a b c d from a b
        c,d VIEW 2@a a b c d from c d
        d CAST z
        a,b,c,d DELIVER z
        all END
    """,
    "a merge in which one part lost a message": """
        a,b VIEW 1@a a b
        c,d VIEW 1@c c d
        a CAST x
        c CAST y
        a DELIVER x
        c,d DELIVER y
        a,b VIEW 2@a a b c d from a b
        c,d VIEW 2@a a b c d from c d
        all END
    """,
    "a partition in which the parts differ": """
        a,b,c,d VIEW 1@a a b c d
        a CAST x
        c CAST y
        a,b DELIVER x
        c,d DELIVER y
        a,b VIEW 2@a a b from a b
        c,d VIEW 2@c c d from c d
        all END
    """,
    "a partition in which one part disagrees with itself": """
        a,b,c,d VIEW 1@a a b c d
        a CAST x
        c CAST y
        a DELIVER x
        a DELIVER y
        b DELIVER y
        b DELIVER x
        c,d DELIVER x
        c,d DELIVER y
        a,b VIEW 2@a a b from a b
        c,d VIEW 2@c c d from c d
        all END
    """,
    "a join": """
        a,b VIEW 1@a a b
        a CAST x
        a,b DELIVER x
        a,b VIEW 2@a a b c from a b
        c JOIN
        c VIEW 2@a a b c from c
        a CAST y
        a,b,c DELIVER y
        all END
    """,
    "a restart": """
        a,b VIEW 1@a a b
        a CAST x
        b CAST y
        a,b DELIVER x
        a DELIVER y
        b CRASH
        a VIEW 2@a a from a
        a VIEW 3@a a b#1 from a
        b#1 JOIN
        b#1 VIEW 3@a a b#1 from b#1
        b#1 CAST z
        a,b#1 DELIVER z
        all END
    """,
    "a restart too early": """
        a,b VIEW 1@a a b
        b CRASH
        a VIEW 2@a a b b#1 from a
        b#1 VIEW 2@a a b b#1
        b#1 CAST x
        a,b#1 DELIVER x
        all END
    """,
    "a leaver": """
        a,b VIEW 1@a a b
        b CAST x
        a DELIVER x
        b LEAVE
        a VIEW 2@a a from a
        a END
    """,
    "a circle that no two members see": """
        a,b,c VIEW 1@a a b c
        a CAST x
        b CAST y
        c CAST z
        a DELIVER x
        a DELIVER y
        b DELIVER y
        b DELIVER z
        c DELIVER z
        c DELIVER x
        all END
    """,
    "a crashed member that was ahead": """
        a,b,c VIEW 1@a a b c
        a CAST x
        b CAST y
        c DELIVER y
        c CRASH
        a,b BLOCK
        a,b DELIVER x
        a,b DELIVER y
        a,b VIEW 2@a a b from a b
        all END
    """,
    "transitive through one that is not addressed": """
        a,b,c,d VIEW 1@a a b c d
        a CAST x causal
        b DELIVER x
        b CAST y to b,c causal
        c PLACE x
        c DELIVER y
        c CAST z causal
        d PLACE y
        d DELIVER z
        d DELIVER x
        all END
    """,
    "a causal one overtakes a total one": """
        a,b VIEW 1@a a b
        a CAST x total
        a CAST y causal
        a DELIVER y
        b DELIVER y
        a,b DELIVER x
        all END
    """,
    "a total one overtakes a causal one": """
        a,b VIEW 1@a a b
        a CAST x causal
        a CAST y total
        a DELIVER x
        a DELIVER y
        b DELIVER y
        b DELIVER x
        all END
    """,
    "a void payload comes later": """
        a,b,c VIEW 1@a a b c
        a CAST x to b,c
        a CAST y
        a PLACE x
        a,b,c DELIVER y
        b PLACE x void
        c PLACE x void
        all END
    """,
    "cut": "a,b VIEW 1@a a b\na CAST x\na DELIVER x\na END cut\nb END",
    "the cut of an earlier view": "a,b VIEW 1@a a b\na CAST x\nb DELIVER x\na,b VIEW 2@a a b from a b\nall END cut",
    "no trace of one": "a,b VIEW 1@a a b\na CAST x\na DELIVER x\na END",
    "datagrams that not everyone gets": """
        a,b,c VIEW 1@a a b c
        a CAST x datagram
        a CAST y fifo
        a CAST z datagram
        a DELIVER x
        a,b,c DELIVER y
        a,b DELIVER z
        c CRASH
        a,b VIEW 2@a a b from a b
        all END
    """,
    "something lost beside datagrams": """
        a,b VIEW 1@a a b
        a CAST x datagram
        a CAST y fifo
        a CAST z datagram
        a DELIVER x
        a DELIVER y
        a,b DELIVER z
        all END
    """,
    "nothing happens": "a,b VIEW 1@a a b\nall END",
}


def written() -> Iterator[tuple[str, Trace]]:
    for name, text in STORIES.items():
        run = f"written: {name}"
        yield run, tell(text, run=run)


def circle() -> Iterator[tuple[str, Trace]]:
    """Two members deliver each other's message before casting their own: no order of events explains that."""
    run = "written: a circle of casts"
    events = tell("a,b VIEW 1@a a b\na CAST x\nb CAST y\na,b DELIVER x\na,b DELIVER y\nall END", run=run)
    at = {(event.member, event.kind, event.origin): event for event in events}
    order = [
        *events[:2],
        at["a", DELIVER, "b"], at["a", CAST, "a"], at["a", DELIVER, "a"],
        at["b", DELIVER, "a"], at["b", CAST, "b"], at["b", DELIVER, "b"],
        *events[-2:],
    ]  # fmt: skip
    yield run, renumber(order)


def planted() -> Iterator[tuple[str, Trace, str, set[str]]]:
    """The faults of the table beside the oracle's own test: run, trace, order, and exactly what it must raise."""
    for fault, (change, in_causal, in_total) in TABLE.items():
        for order, service, expected in (("causal", "causal", in_causal), ("causal-total", "total", in_total)):
            run = f"planted: {fault} in {order}"
            yield run, named(run, change(tell(STORY, protocol=order, service=service))), order, expected
