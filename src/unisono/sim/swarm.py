"""The swarm: many random scenarios, each a seed, each judged. A seed that fails is shrunk and kept as a replay file.

A seed decides everything about its scenario: size, load, delays, which faults and when. Two faults at once are the rule, not the
exception, because most bugs of view changes need the second one.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from unisono.core.config import MILLISECOND
from unisono.orders.registry import ORDERS
from unisono.sim.faults import Fault
from unisono.sim.pool import fan_out
from unisono.sim.replays import keep_smallest
from unisono.sim.run import failure_of
from unisono.sim.scenario import Scenario, Source, name_of

DELAYS = (
    "constant:1ms",
    "uniform:0.1ms:3ms",
    "uniform:1ms:1.2ms",
    "exponential:1ms",
    "lognormal:1ms:1.0",
    "bimodal:0.5ms:20ms:0.1",
    "wan:3",
)


@dataclass(frozen=True, slots=True)
class SwarmFailure:
    """What one seed showed: nothing, or a sentence and where its replay file lies."""

    order: str
    seed: int
    faults: tuple[str, ...]
    sentence: str | None = None
    replay: str | None = None


def scenario_of(order: str, seed: int) -> Scenario:
    """The scenario of a seed. Changing this function changes what old seeds mean; regressions are kept as replay files too."""
    rng = Random(f"swarm/{order}/{seed}")
    members = rng.randint(2, 8)
    messages = rng.choice((5, 12, 30, 80))
    rate = rng.choice((200, 1_000, 4_000, 20_000))
    size = rng.choice((0, 16, 200))
    source = Source(
        kind=rng.choice(("periodic", "poisson", "bursts", "saturating")),
        rate=rate,
        messages=messages,
        burst=rng.randint(2, 8),
        depth=rng.randint(1, 4),
        size_bytes_min=size,
        size_bytes_max=size * 2,
        causal_share=rng.choice((0.0, 0.3, 0.7)) if order in ("toto", "all-ack") else 0.0,
        fifo_share=rng.choice((0.0, 0.0, 0.4)) if order == "rmp" else 0.0,
        subset_share=rng.choice((0.0, 0.0, 0.3)),
    )
    config: dict[str, Any] = {"ack_delay_ns": rng.choice((1, 2, 10)) * MILLISECOND}
    if order == "toto" and rng.random() < 0.5:
        config["phi"] = members / 2 + rng.random() * (members / 2 - 0.01)
    if order == "rmp":
        config["hold_batches_max"] = rng.choice((1, 2, 64))
    if rng.random() < 0.3:
        config["batch_messages_max"] = rng.randint(1, 3)
    span_ns = max(20 * MILLISECOND, round(messages / rate * 1e9))
    return Scenario(
        order=order,
        members=members,
        seed=seed,
        source=source,
        delay=rng.choice(DELAYS),
        loss=rng.choice((0.0, 0.0, 0.05, 0.3)),
        duplicate=rng.choice((0.0, 0.1)),
        reorder=rng.choice((0.0, 0.1, 0.3)),
        turn_ns=rng.choice((0, 0, MILLISECOND // 2, 3 * MILLISECOND)),
        detect_ns=rng.choice((1, 5, 40)) * MILLISECOND,
        flush_ns=rng.choice((0, 2, 10)) * MILLISECOND,
        faults=tuple(_faults(rng, members, span_ns)),
        config=config,
    )


def _faults(rng: Random, members: int, span_ns: int) -> Iterator[Fault]:
    crashes = rng.sample(range(members), rng.randint(0, members - 1) if rng.random() < 0.7 else 0)
    start = rng.randrange(span_ns)
    for number in crashes:
        # Crashes come close together more often than not: the second one hits the view change of the first.
        at = start + rng.randrange(8 * MILLISECOND) if rng.random() < 0.6 else rng.randrange(2 * span_ns)
        yield Fault("crash", at, (name_of(number),))
    for _ in range(rng.choice((0, 1, 2, 2, 4))):
        kind = rng.choice(("pause", "drift", "partition", "clog", "slow", "lossy"))
        at, duration = rng.randrange(span_ns), rng.randrange(1, 60) * MILLISECOND
        one, other = map(name_of, rng.sample(range(members), 2))
        match kind:
            case "pause":
                yield Fault(kind, at, (one,), duration)
            case "drift":
                yield Fault(kind, at, (one,), 0, rng.uniform(-0.1, 0.1))
            case "partition":
                side = rng.sample(range(members), rng.randint(1, members - 1))
                rest = (number for number in range(members) if number not in side)
                yield Fault(kind, at, (), duration, parts=(tuple(map(name_of, side)), tuple(map(name_of, rest))))
            case "slow":
                yield Fault(kind, at, (one, other), duration, rng.uniform(2, 30))
            case "lossy":
                yield Fault(kind, at, (one, other), duration, rng.uniform(0.1, 0.9))
            case _:
                yield Fault(kind, at, (one, other), duration)


def run_seed(order: str, seed: int, folder: str | None) -> SwarmFailure:
    """Run and judge one seed; shrink it if it fails. Runs in a worker process, so it never raises."""
    scenario = scenario_of(order, seed)
    faults = tuple(fault.kind for fault in scenario.faults)
    try:
        sentence = failure_of(scenario)
        if sentence is None:
            return SwarmFailure(order, seed, faults)
        replay = None
        if folder is not None:
            replay = str(Path(folder) / f"{order}-{seed}.replay.json")
            sentence = keep_smallest(Path(replay), scenario, sentence, failure_of)
        return SwarmFailure(order, seed, faults, sentence, replay)
    except Exception:
        return SwarmFailure(order, seed, faults, "the swarm itself failed: " + traceback.format_exc(limit=3))


def swarm(
    orders: Sequence[str] = tuple(ORDERS),
    seeds: int | None = None,
    first: int = 0,
    workers: int | None = None,
    folder: Path | None = None,
    seen: Callable[[SwarmFailure], bool] = lambda finding: True,
) -> None:
    """Run seeds first, first+1, ... of every order until `seeds` each are done, or `seen` returns False.

    `seen` is called for every finding as it comes, in no particular order.
    """
    last = None if seeds is None else first + seeds
    work = ((order, seed) for seed in (count(first) if last is None else range(first, last)) for order in orders)
    target = None if folder is None else str(folder)
    fan_out(run_seed, ((order, seed, target) for order, seed in work), seen, workers)
