"""A mutant that the swarm of groups catches: from its seed to a small replay file, and from there to a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.mutants.catalogue import Row
from tests.mutants.ways import Groups, find
from unisono.core.errors import Misuse
from unisono.sim.files import write_whole
from unisono.sim.group_run import try_group
from unisono.sim.group_scenario import GroupScenario
from unisono.sim.group_swarm import scenario_of
from unisono.sim.replays import keep_smallest, load_replay
from unisono.trace.diagram import render
from unisono.trace.sinks import MemorySink


def shrink_row(row: Row, folder: Path) -> str:
    """Find the seed that catches the mutant, and write its scenario, shrunk, to a replay file. Returns a sentence."""
    way, mutant = _planted(row)
    seeds = way.catch(mutant)
    if seeds is None:
        raise Misuse(f"{row.name} survived {way.tries} seeds of the {way.name}.")
    scenario = scenario_of(way.order, seeds - 1)
    sentence = way.run(scenario, mutant).sentence
    assert sentence is not None
    path = folder / f"{row.name}.replay.json"
    keep_smallest(path, scenario, sentence, lambda smaller: way.run(smaller, mutant).sentence)
    smallest = _load(path)
    told = f"{path}: from {_size(scenario)} to {_size(smallest)}"
    return f"{told}\n  with {row.name}: {way.run(smallest, mutant).sentence}\n  without: {try_group(smallest).result}"


def draw_row(row: Row, replay: Path, picture: Path) -> str:
    """Draw a replay file with the mutant planted. Returns what is wrong in it."""
    way, mutant = _planted(row)
    scenario, memory = _load(replay), MemorySink()
    sentence = way.run(scenario, mutant, memory).sentence
    write_whole(picture, render(memory.events, title=f"{row.name}, {way.order}"))
    return f"{picture}: {sentence}"


def _planted(row: Row) -> tuple[Groups, Any]:
    """Mutants of membership go into the swarm here, whatever else catches them."""
    if isinstance(row.way, Groups):
        return row.way, find(row.mutant)
    if row.mutant.startswith("membership_mutants."):
        return Groups("fifo", "Membership"), find(row.mutant)
    raise Misuse(f"{row.name} is caught by {row.way.name}: only the swarm of groups makes replay files.")


def _load(path: Path) -> GroupScenario:
    scenario = load_replay(path)
    if not isinstance(scenario, GroupScenario):
        raise Misuse(f"{path} holds no scenario of a group.")
    return scenario


def _size(scenario: GroupScenario) -> str:
    joined = sum(fault.kind == "join" for fault in scenario.faults)
    return f"{len(scenario.members) + joined} members, {len(scenario.casts)} casts, {len(scenario.faults)} faults"
