"""How a mutant is caught: by a seed of a swarm, by an explorer, or by a test.

A seed counts only if the real thing passes on it, so that what is caught is the mutant.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from tests.stream_harness import planted
from unisono.core.member import member
from unisono.core.views.engine import ViewEngine
from unisono.orders.registry import ORDERS
from unisono.sim import group_world
from unisono.sim.explore.orders import Case, explore
from unisono.sim.explore.views import Scope, explore_views
from unisono.sim.group_run import GroupOutcome, OnTurn, try_group
from unisono.sim.group_scenario import GroupScenario
from unisono.sim.group_swarm import scenario_of as group_scenario_of
from unisono.sim.run import failure_of
from unisono.sim.swarm import scenario_of
from unisono.trace.checks import Result
from unisono.trace.sinks import Sink

ROOT = Path(__file__).resolve().parents[2]
VIEWS_STATES_MAX = 60_000
ORDER, PROCESS = "order", "SimulatedProcess"


class Way(Protocol):
    """A way to catch mutants."""

    @property
    def name(self) -> str:
        """Who catches it, as a person would say."""

    def catch(self, mutant: Any) -> int | None:
        """After how many seeds it was caught (1 where there are none); None: it survived."""


@dataclass(frozen=True)
class Swarm:
    """Random schedules of one order, below an oracle that changes views."""

    order: str
    tries: int = 500

    @property
    def name(self) -> str:
        return f"swarm of orders, {self.order}"

    def catch(self, mutant: Any) -> int | None:
        for seed in range(self.tries):
            scenario = scenario_of(self.order, seed)
            if failure_of(scenario, mutant) is not None and failure_of(scenario) is None:
                return seed + 1
        return None


@dataclass(frozen=True)
class Groups:
    """Random faults on whole groups, with the mutant in place of a `part`: of every member, its process, or the order."""

    order: str
    part: str
    tries: int = 40

    @property
    def name(self) -> str:
        return f"swarm of groups, {self.order}"

    def catch(self, mutant: Any) -> int | None:
        for seed in range(self.tries):
            scenario = group_scenario_of(self.order, seed)
            if self.run(scenario, mutant).sentence is not None and try_group(scenario).sentence is None:
                return seed + 1
        return None

    def run(self, scenario: GroupScenario, mutant: Any, *sinks: Sink, on_turn: OnTurn | None = None) -> GroupOutcome:
        """Play a scenario with the mutant planted."""
        if self.part == ORDER:
            orders = {**ORDERS, self.order: mutant}
            return try_group(scenario, orders=orders, sinks=lambda one: sinks, on_turn=on_turn)
        module = group_world if self.part == PROCESS else member
        with replaced(module, self.part, planted(mutant) if self.part == "Streams" else mutant):
            return try_group(scenario, sinks=lambda one: sinks, on_turn=on_turn)


@dataclass(frozen=True)
class Transfers:
    """Random faults on groups that transfer state."""

    order: str
    tries: int = 30

    @property
    def name(self) -> str:
        return f"swarm of transfers, {self.order}"

    def catch(self, mutant: Any) -> int | None:
        from unisono.services.transfer.transfer import Transfer

        for seed in range(self.tries):
            if self._fails(seed, mutant) and not self._fails(seed, Transfer):
                return seed + 1
        return None

    def _fails(self, seed: int, kind: Any) -> bool:
        from tests.transfer_swarm import run_transfer_seed

        try:
            return run_transfer_seed(self.order, seed, transfer_type=kind)[1].result is not Result.PASS
        except AssertionError:
            return True


@dataclass(frozen=True)
class Explorer:
    """Every interleaving of a small case, with a crash at every point."""

    counts: tuple[int, ...]
    crashes: int = 1

    @property
    def name(self) -> str:
        return "explorer"

    def catch(self, mutant: Any) -> int | None:
        return None if explore(Case.of(*self.counts), mutant, self.crashes).violation is None else 1


@dataclass(frozen=True)
class Views:
    """Every way in which a small group can change its view."""

    casts: int = 1
    crashes: int = 1
    joins: int = 0
    suspicions: int = 0
    ticks: int = 0
    cuts: int = 0
    greetings: int = 0
    leaves: int = 0
    switches: int = 0
    cut_off: str = ""
    order: str = "fifo"

    @property
    def name(self) -> str:
        return "explorer of views"

    def catch(self, mutant: Any) -> int | None:
        part = "engine" if issubclass(mutant, ViewEngine) else "kind"
        scope = Scope(**asdict(self), **{part: mutant})
        return None if explore_views(scope, VIEWS_STATES_MAX).violation is None else 1


@dataclass(frozen=True)
class Story:
    """A test that passes only if the mutant is caught."""

    node: str

    @property
    def name(self) -> str:
        return self.node.removeprefix("tests/")

    def catch(self, mutant: Any) -> int | None:
        command = [sys.executable, "-m", "pytest", "-q", self.node]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, check=False, env=os.environ | {"PYTEST_ADDOPTS": ""}
        )
        return 1 if done.returncode == 0 else None


def find(path: str) -> Any:
    """The mutant of a row, named by module and class."""
    module, name = path.split(".")
    return getattr(import_module(f"tests.mutants.{module}"), name)


@contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    real = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, real)
