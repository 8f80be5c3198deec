"""The guided swarm: runs of whole groups, drawn where runs before have met situations that no other run had.

    Search.next ── a fresh scenario, or one of the pool, varied ──▶ try_group, watched by Sightings ──▶ Search.note

A scenario whose run came to a new situation goes into the pool. Rare situations decide which one is varied next: each is worth
one divided by the number of runs that came to it, and a scenario is worth what its situations are, divided by what its run costs
and by how often it was varied. A share of all runs is drawn as those of the swarm are, or a search would see nothing but its
first finds.

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
from unisono.sim.vary import Source, vary

FRESH_FIRST = 8
FRESH_SHARE = 0.15
TURNS_BESIDE = 500
"""What a run costs beside its turns, in turns."""


class Guided(NamedTuple):
    """One run of a search. It travels between processes."""

    number: int
    scenario: GroupScenario
    outcome: GroupOutcome
    first: dict[str, int]
    """Its situations, and when it first came to each."""
    turns: int


@dataclass
class Entry:
    """A scenario of the pool."""

    scenario: GroupScenario
    new: dict[str, int]
    """The situations that no run before had come to, and when this one did."""
    turns: int
    varied: int = 0
    """How often another scenario was made of it since the search began or went on."""

    def save(self, path: Path) -> None:
        """Write it as a replay file, with what it was kept for beside the scenario."""
        sentence = f"{len(self.new)} situations that no run before had come to"
        save_replay(path, self.scenario, sentence, turns=self.turns, situations=self.new)

    @classmethod
    def load(cls, path: Path) -> Entry:
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


class Search:
    """What is known so far, and what is run next."""

    def __init__(self, orders: Sequence[str], first: int = 0) -> None:
        self.orders, self.first = orders, first
        self.runs = 0
        self.pool: list[Entry] = []
        self.hits: Counter[str] = Counter()
        """By situation: how many runs came to it."""

    def next(self, number: int) -> GroupScenario:
        """The scenario of the run with this number. A fresh one is that of the swarm which begins with the same seed."""
        rng = Random(f"guided swarm/{self.first}/{number}")
        if len(self.pool) < FRESH_FIRST or rng.random() < FRESH_SHARE:
            later, order = divmod(number, len(self.orders))
            return scenario_of(self.orders[order], self.first + later)
        entry, other = rng.choices(self.pool, [self._worth(entry) for entry in self.pool], k=2)
        entry.varied += 1
        return vary(Source(entry.scenario, sorted(entry.new.values()), other.scenario, self.orders), rng)

    def _worth(self, entry: Entry) -> float:
        rarity = sum(1 / self.hits[name] for name in entry.new)
        return rarity / (TURNS_BESIDE + entry.turns) / (1 + entry.varied)

    def note(self, run: Guided) -> Entry | None:
        """Take in what a run showed. Returns what it adds to the pool."""
        self.runs = max(self.runs, run.number + 1)
        new = {name: at for name, at in run.first.items() if name not in self.hits}
        self.hits.update(run.first.keys())
        if not new or run.outcome.sentence is not None:
            return None
        self.pool.append(Entry(run.scenario, new, run.turns))
        return self.pool[-1]

    def go_on(self, pool: Iterable[Entry], runs: int) -> None:
        """Take over what an earlier search has found."""
        self.pool, self.runs = list(pool), runs
        for entry in self.pool:
            self.hits.update(entry.new.keys())


def hunt(number: int, scenario: GroupScenario, folder: str) -> Guided:
    """Run and judge a scenario of a search; a failure is shrunk to a replay file. For worker processes."""
    sightings = Sightings()
    found = try_group(scenario, on_turn=sightings)
    found = keep(scenario, found, Path(folder) / f"{scenario.order}-guided-{number}.replay.json")
    return Guided(number, scenario, found, sightings.first, sightings.turns)
