"""Which runs are compared, and what is taken from each: one digest of its trace, one of what its applications were shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from unisono.orders.registry import ORDERS
from unisono.sim.group_swarm import run_group_seed
from unisono.sim.run import simulate
from unisono.sim.swarm import scenario_of
from unisono.trace.digest import TraceDigest
from unisono.trace.schema import Event

RECORDED = Path(__file__).with_name("recorded.json")
KINDS = ("order", "group")
ORDER_SEEDS = 24
GROUP_SEEDS = 32
SHOWN = frozenset({"VIEW", "DELIVER", "PLACE", "SHOW", "TRANSITION"})


class Run(NamedTuple):
    name: str
    trace: str
    shown: str


class ShownDigest:
    """A sink: a hash of the views and deliveries of every life, each in its local order."""

    def __init__(self) -> None:
        self._lives: dict[str, list[str]] = {}

    def write(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind in SHOWN:
                row = (event.kind, event.view, event.members, event.origin, event.origin_incarnation)
                numbers = (event.first, event.count, event.ordinal, event.digest)
                self._lives.setdefault(f"{event.member}/{event.incarnation}", []).append(repr(row + numbers))

    def close(self) -> None:
        """There is nothing to close."""

    def hexdigest(self) -> str:
        return blake2b(repr(sorted(self._lives.items())).encode(), digest_size=16).hexdigest()


def select(kind: str | None = None, order: str | None = None, seeds: int | None = None) -> list[tuple[str, str, int]]:
    """The runs to compute, as arguments of `compute`."""
    counts = {"order": ORDER_SEEDS, "group": GROUP_SEEDS}
    return [
        (one, name, seed)
        for one in KINDS
        if kind in (None, one)
        for seed in range(counts[one])
        if seeds is None or seed < seeds
        for name in ORDERS
        if order in (None, name)
    ]


def compute(kind: str, order: str, seed: int) -> Run:
    """Run one seed and take its digests."""
    name = f"{kind}/{order}/{seed}"
    shown = ShownDigest()
    if kind == "order":
        outcome = simulate(scenario_of(order, seed), keep=True)
        shown.write(outcome.events)
        return Run(name, outcome.digest, shown.hexdigest())
    trace = TraceDigest()
    run_group_seed(order, seed, sinks=lambda member: (trace, shown))
    return Run(name, trace.hexdigest(), shown.hexdigest())


def differences(runs: Iterable[Run], recorded: Mapping[str, tuple[str, str]]) -> list[str]:
    """Which runs are not what was recorded, and what of them has changed: a sentence each."""
    found = []
    for run in sorted(runs):
        trace, shown = recorded.get(run.name, (None, None))
        if trace is None:
            found.append(f"{run.name}: not recorded")
        elif run.shown != shown:
            found.append(f"{run.name}: views or deliveries changed")
        elif run.trace != trace:
            found.append(f"{run.name}: the trace changed; views and deliveries are the same")
    return found


def load() -> dict[str, tuple[str, str]]:
    if not RECORDED.exists():
        return {}
    return {name: (trace, shown) for name, (trace, shown) in json.loads(RECORDED.read_text()).items()}


def save(digests: dict[str, tuple[str, str]]) -> None:
    rows = [f"{json.dumps(name)}: {json.dumps(list(digests[name]))}" for name in sorted(digests)]
    RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n")
