"""The guided swarm: runs of whole groups, drawn where runs before have met situations that no other run had.

    Search.next ── a fresh scenario, or one of the pool, varied ──▶ try_group, watched by Sightings ──▶ Search.note

A scenario whose run came to a new situation goes into the pool. What has led to more that is new, for less, is done more often:
an entry of the pool is worth what is rare among its situations (each is worth one divided by the number of runs that came to it)
and what its variations found, divided by what all of these runs cost. In the same way the search decides how many of its runs
are fresh, that is, drawn as the swarm draws them.

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
from unisono.sim.vary import Ancestry, vary

FRESH_FIRST = 8
FRESH_SHARES = (0.1, 0.9)
MEMORY = 0.9
"""How much a run counts, of what it counted one run before, where fresh and varied runs are compared."""
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


@dataclass
class Entry:
    """A scenario of the pool."""

    scenario: GroupScenario
    new: dict[str, int]
    """The situations that no run before had come to, and when this one did."""
    turns: int
    found: int = 0
    """How many new situations its variations came to since the search began or went on."""
    spent: int = 0
    """The turns that these took."""

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
        self._parents: dict[int, Entry] = {}  # of the runs under way that are varied
        self._yields = {
            True: [0.0, 0.0],
            False: [0.0, 0.0],
        }  # of fresh and of varied runs lately: new situations, and turns

    def next(self, number: int) -> GroupScenario:
        """The scenario of the run with this number. A fresh one is that of the swarm which begins with the same seed."""
        rng = Random(f"guided swarm/{self.first}/{number}")
        if len(self.pool) < FRESH_FIRST or rng.random() < self._fresh_share():
            later, order = divmod(number, len(self.orders))
            return scenario_of(self.orders[order], self.first + later)
        parent, other = rng.choices(self.pool, list(map(self._worth, self.pool)), k=2)
        self._parents[number] = parent
        return vary(Ancestry(parent.scenario, sorted(parent.new.values()), other.scenario, self.orders), rng)

    def _fresh_share(self) -> float:
        fresh, varied = ((new + 1) / (turns + TURNS_BESIDE) for new, turns in self._yields.values())
        least, most = FRESH_SHARES
        return min(max(fresh / (fresh + varied), least), most)

    def _worth(self, entry: Entry) -> float:
        rarity = sum(1 / self.hits[name] for name in entry.new)
        return (rarity + entry.found) / (entry.turns + TURNS_BESIDE + entry.spent)

    def note(self, run: Guided) -> Entry | None:
        """Take in what a run showed. Returns what it adds to the pool."""
        self.runs = max(self.runs, run.number + 1)
        new = {name: at for name, at in run.first.items() if name not in self.hits}
        self.hits.update(run.first.keys())
        parent, cost = self._parents.pop(run.number, None), run.turns + TURNS_BESIDE
        if parent is not None:
            parent.found, parent.spent = parent.found + len(new), parent.spent + cost
        lately = self._yields[parent is None]
        lately[:] = (MEMORY * lately[0] + len(new), MEMORY * lately[1] + cost)
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
