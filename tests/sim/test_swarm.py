"""The swarm of orders: seeds within the time box, and proof that it can fail. What once failed is in `test_group_swarm`."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic

import pytest

from tests.mutants import agreed_mutants, causal_mutants, sequencer_mutants, stamped_mutants, tomp_mutants
from unisono.core.ordering import AnyOrdering
from unisono.orders.registry import ORDERS
from unisono.sim.files import load_json
from unisono.sim.run import failure_of
from unisono.sim.scenario import Scenario
from unisono.sim.shrink import shrink
from unisono.sim.swarm import SwarmFailure, run_seed, scenario_of, swarm

SECONDS_AN_ORDER = 10.0
SEEDS_AT_LEAST = 100


@pytest.mark.parametrize("order", list(ORDERS))
def test_every_seed_keeps_the_promises(order: str) -> None:
    begun = monotonic()
    seed = 0
    while seed < SEEDS_AT_LEAST or monotonic() - begun < SECONDS_AN_ORDER:
        sentence = failure_of(scenario_of(order, seed))
        assert sentence is None, f"{order} seed {seed}: {sentence}"
        seed += 1


CAUGHT: list[tuple[str, type[AnyOrdering], int, str]] = [
    ("abcast", stamped_mutants.AbcastCounterStays, 12, "P9a"),
    ("tomp", stamped_mutants.TompCounterStays, 1, "P9a"),
    ("abcast", stamped_mutants.AbcastByCounter, 0, "P9a"),
    ("tomp", stamped_mutants.TompByCounter, 2, "P9a"),
    ("abcast", stamped_mutants.AbcastHoldersAlone, 69, "P9a"),
    ("tomp", stamped_mutants.TompHoldersAlone, 101, "P9a"),
    ("abcast", stamped_mutants.AbcastNoFloor, 1, "P6"),
    ("tomp", stamped_mutants.TompFinalsFirst, 324, "P6"),
    ("tomp", stamped_mutants.TompOriginalProposals, 114, "PeerFault in stamps.py"),
    ("tomp", tomp_mutants.TompMaximum, 1, "PeerFault in world.py"),
    ("toto", agreed_mutants.StarCompared, 26, "P9a"),
    ("toto", agreed_mutants.InfinityForStrangers, 26, "P9a"),
    ("toto", agreed_mutants.NothingAnew, 0, "P9a"),
    ("toto", agreed_mutants.TotoAcksNotHandedOver, 152, "P9a"),
    ("causal", causal_mutants.OwnEntryTicks, 0, "PeerFault in world.py"),
    ("causal", causal_mutants.NotClosed, 82, "P8"),
    ("causal-total", sequencer_mutants.WithoutSeen, 238, "P8"),
    ("causal-total", sequencer_mutants.ForgetsLeftovers, 0, "P4"),
]


@pytest.mark.parametrize(
    ("order", "mutant", "seed", "broken"), CAUGHT, ids=[mutant.__name__ for _, mutant, _, _ in CAUGHT]
)
def test_the_swarm_catches_a_broken_protocol(order: str, mutant: type[AnyOrdering], seed: int, broken: str) -> None:
    sentence = failure_of(scenario_of(order, seed), mutant)
    assert sentence is not None
    assert sentence.startswith(broken + ":")
    assert failure_of(scenario_of(order, seed)) is None, "the real one passes on the same scenario"


def test_a_failure_is_shrunk_to_its_core() -> None:
    def fails(scenario: Scenario) -> str | None:
        return failure_of(scenario, stamped_mutants.AbcastCounterStays)

    scenario = scenario_of("abcast", 62)
    sentence = fails(scenario)
    assert sentence is not None
    smallest, still = shrink(scenario, sentence, fails)
    assert fails(smallest) == still
    assert smallest.members == 2
    assert smallest.source.messages < scenario.source.messages / 2
    assert scenario.faults
    assert not smallest.faults
    assert smallest.loss == smallest.reorder == smallest.duplicate == 0


def test_a_failing_seed_leaves_a_replay_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ORDERS, "abcast", stamped_mutants.AbcastCounterStays)
    finding = run_seed("abcast", 12, str(tmp_path))
    assert finding.sentence is not None
    assert finding.replay is not None
    data = load_json(Path(finding.replay))
    assert data["kind"] == "scenario"
    again = Scenario.from_json(json.loads(json.dumps(data["scenario"])))
    assert failure_of(again) == data["sentence"], "the file alone reproduces the failure"


def test_the_swarm_itself_counts_and_stops_when_told(tmp_path: Path) -> None:
    seen: list[SwarmFailure] = []

    def look(finding: SwarmFailure) -> bool:
        seen.append(finding)
        return len(seen) < 3

    swarm(("fifo", "causal"), seeds=5, workers=1, folder=tmp_path, seen=look)
    assert [(f.order, f.seed) for f in seen] == [("fifo", 0), ("causal", 0), ("fifo", 1)]


def test_the_swarm_uses_processes_and_loses_no_seed(tmp_path: Path) -> None:
    seen: list[SwarmFailure] = []

    def look(finding: SwarmFailure) -> bool:
        seen.append(finding)
        return True

    swarm(("fifo",), seeds=12, workers=2, folder=tmp_path, seen=look)
    assert sorted(finding.seed for finding in seen) == list(range(12))
    assert not [finding.sentence for finding in seen if finding.sentence]
