"""The guided swarm: runs of whole groups, drawn where runs before have met situations that no other run had.

    GuidedSearch.next ── a fresh scenario, or one of the pool, varied ──▶ try_group, watched by Sightings ──▶ GuidedSearch.note

A scenario whose run came to a new situation goes into the pool. It is varied the more often, the rarer what it was kept for (a
situation is worth one divided by the number of runs that came to it), and the less a run costs. A share of the runs is fresh, that
is, drawn as the swarm draws them.

With one worker a search is the same whenever it begins with the same seed and the same pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from unisono.core.errors import Misuse
from unisono.sim.checked import check_whole, mapping
from unisono.sim.files import load_json
from unisono.sim.group_run import GroupOutcome, try_group
from unisono.sim.group_scenario import GroupScenario
from unisono.sim.group_situations import Sightings
from unisono.sim.group_swarm import keep, scenario_of
from unisono.sim.replays import read_replay, save_replay
from unisono.sim.vary import vary

FRESH_FIRST = 8
FRESH_SHARE = 0.25
TURNS_BESIDE = 1_000
"""What a run costs beside its turns, in turns."""


class Guided(NamedTuple):
    """One run of a search. It travels between processes."""

    number: int
    scenario: GroupScenario
    outcome: GroupOutcome
    first: dict[str, int]
    """Its situations, and when it first came to each."""
    turns: int


@dataclass(frozen=True)
class PoolEntry:
    """A scenario of the pool."""

    scenario: GroupScenario
    new: dict[str, int]
    """The situations that no run before had come to, and when this one did."""
    turns: int

    def save(self, path: Path) -> None:
        """Write it as a replay file, with what it was kept for beside the scenario."""
        sentence = f"{len(self.new)} situations that no run before had come to"
        save_replay(path, self.scenario, sentence, turns=self.turns, situations=self.new)

    @classmethod
    def load(cls, path: Path) -> PoolEntry:
        try:
            data = mapping(load_json(path), "a file of the pool")
            scenario = read_replay(path, data)
            if not isinstance(scenario, GroupScenario):
                raise Misuse("it holds no scenario of a group.")
            entry = cls(scenario, dict(mapping(data.get("situations"), "situations")), data.get("turns", 0))
            for number in (entry.turns, *entry.new.values()):
                check_whole("a count or time", number, 0, 2**63)
        except Misuse as error:
            raise Misuse(f"{path} cannot be gone on from: {error} Remove it, or begin anew with --fresh.") from None
        return entry


class GuidedSearch:
    """What is known so far, and what is run next."""

    def __init__(self, orders: Sequence[str], first: int = 0, pool: Iterable[PoolEntry] = ()) -> None:
        self.orders, self.first = orders, first
        self.pool = list(pool)
        self.hits = Counter(name for entry in self.pool for name in entry.new)
        """By situation: how many runs came to it."""

    def next(self, number: int) -> GroupScenario:
        """The scenario of the run with this number. A fresh one is that of the swarm which begins with the same seed."""
        rng = Random(f"guided swarm/{self.first}/{number}")
        if len(self.pool) < FRESH_FIRST or rng.random() < FRESH_SHARE:
            later, order = divmod(number, len(self.orders))
            return scenario_of(self.orders[order], self.first + later)
        (parent,) = rng.choices(self.pool, list(map(self._worth, self.pool)))
        return vary(parent.scenario, sorted(parent.new.values()), rng)

    def _worth(self, entry: PoolEntry) -> float:
        return sum(1 / self.hits[name] for name in entry.new) / (entry.turns + TURNS_BESIDE)

    def note(self, run: Guided) -> PoolEntry | None:
        """Take in what a run showed. Returns what it adds to the pool."""
        new = {name: at for name, at in run.first.items() if name not in self.hits}
        self.hits.update(run.first.keys())
        if not new or run.outcome.sentence is not None:
            return None
        self.pool.append(PoolEntry(run.scenario, new, run.turns))
        return self.pool[-1]


def hunt(number: int, scenario: GroupScenario, folder: str) -> Guided:
    """Run and judge a scenario of a search; a failure is shrunk to a replay file. For worker processes."""
    sightings = Sightings()
    found = try_group(scenario, on_turn=sightings)
    found = keep(scenario, found, Path(folder) / f"{scenario.order}-guided-{number}.replay.json")
    return Guided(number, scenario, found, sightings.first, sightings.turns)
