"""The swarm of whole groups: what once failed, then fresh seeds within the time box; and proof that it can fail."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest

from tests.mutants.recording_mutants import NotesTickTheClock
from unisono.orders.registry import ORDERS
from unisono.sim.group_run import failure_of as failure_of_group
from unisono.sim.group_run import play
from unisono.sim.group_scenario import GroupScenario
from unisono.sim.group_state import StatefulWorld
from unisono.sim.group_swarm import run_group_seed, scenario_of, try_group_seed
from unisono.sim.group_twins import SHARE, first_difference, has_twin
from unisono.sim.group_world import GroupWorld
from unisono.sim.replays import load_replay
from unisono.sim.run import failure_of

SECONDS_AN_ORDER = 8.0
SEEDS_AT_LEAST = 6
REPLAYS = sorted((Path(__file__).parent / "replays").iterdir())


@pytest.mark.parametrize("path", REPLAYS, ids=[path.stem for path in REPLAYS])
def test_what_once_failed_keeps_the_promises(path: Path) -> None:
    """What the members of a failing seed did and suffered, and when; the sentence in the file says what was wrong."""
    scenario = load_replay(path)
    failed = failure_of_group(scenario) if isinstance(scenario, GroupScenario) else failure_of(scenario)
    assert failed is None


@pytest.mark.parametrize("order", list(ORDERS))
def test_every_seed_keeps_the_promises_and_comes_to_rest(order: str) -> None:
    begun = monotonic()
    seed = 100
    while seed < 100 + SEEDS_AT_LEAST or monotonic() - begun < SECONDS_AN_ORDER:
        run = try_group_seed(order, seed)
        assert run.sentence is None, f"{order} seed {seed}: {run.sentence}"
        seed += 1


def test_a_seed_is_one_run() -> None:
    assert try_group_seed("abcast", 7) == try_group_seed("abcast", 7)


def pair(order: str, seed: int) -> tuple[GroupWorld, GroupWorld]:
    recorded, unrecorded = (play(scenario_of(order, seed), is_recorded=is_recorded) for is_recorded in (True, False))
    return recorded, unrecorded


@pytest.mark.parametrize(("order", "seed"), [("abcast", 0), ("fifo", 0), ("causal", 1)])
def test_a_run_that_is_not_recorded_shows_its_applications_the_same(order: str, seed: int) -> None:
    recorded, unrecorded = pair(order, seed)
    assert first_difference(recorded, unrecorded) is None
    assert recorded.network.sent_bytes == unrecorded.network.sent_bytes, "nor does it send anything else"
    assert sum(len(life.shown) for life in recorded.lives) > 100


def test_transfer_of_states_is_the_same_when_it_is_not_recorded() -> None:
    recorded, unrecorded = pair("fifo", 2)
    assert isinstance(recorded, StatefulWorld)
    assert first_difference(recorded, unrecorded) is None
    assert recorded.network.sent_bytes == unrecorded.network.sent_bytes


def test_a_run_in_eight_has_a_twin() -> None:
    twins = sum(has_twin(order, seed) for order in ORDERS for seed in range(200))
    assert abs(twins - SHARE * 200 * len(ORDERS)) < 50


def test_an_order_that_runs_otherwise_when_it_is_recorded_is_found_by_its_twin() -> None:
    """It keeps every promise, so nothing but the twin tells; the sentence names run, member and first difference."""
    found: dict[int, str | None] = {}
    for seed in filter(lambda seed: has_twin("abcast", seed), range(10, 100)):
        found[seed] = run_group_seed("abcast", seed, orders={**ORDERS, "abcast": NotesTickTheClock}).sentence
        if found[seed] is not None:
            break
    seed, sentence = found.popitem()
    assert sentence is not None
    assert f"recording changes what runs: in swarm-abcast-{seed}, " in sentence
    assert " if it is recorded, and " in sentence
    assert try_group_seed("abcast", seed).sentence is None
