"""The catalogue of mutants is whole, and what catches them catches them."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalogue import NOT_ALONE, ROWS
from tests.mutants.caught import draw_row, shrink_row
from tests.mutants.trial import try_row
from tests.mutants.ways import ROOT, Explorer, Groups, Story, Swarm, find
from unisono.core.membership.membership import Membership
from unisono.core.streams.streams import Streams
from unisono.orders.abcast import Abcast
from unisono.orders.fifo import Fifo
from unisono.sim.group_scenario import GroupScenario
from unisono.sim.replays import load_replay

FOLDER = Path(__file__).resolve().parents[1] / "mutants"
QUICK = (  # seconds each at most; `./dev mutants` runs all
    "LeakyEngine",
    "CountsDepartedAsStable",
    "AbcastCounterStays",
    "NothingAnew",
    "NeverAcknowledges",
    "KeepsOnlyCommitted",
    "OwnEntryTicks",
    "NamesEverybody",
    "StableOnReceipt",
    "AltersAView",
    "KeepsOverMerge",
)


def classes_of(path: Path) -> list[str]:
    """The classes that a module of mutants defines, without those that it keeps for itself."""
    tree = ast.parse(path.read_text("utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    return [f"{path.stem}.{name}" for name in names if not name.startswith("_")]


def test_every_mutant_has_a_row_or_a_reason() -> None:
    known = [row.mutant for row in ROWS] + list(NOT_ALONE)
    assert [name for name, times in Counter(known).items() if times > 1] == []
    assert sorted(known) == sorted(name for path in FOLDER.glob("*_mutants.py") for name in classes_of(path))


def test_every_row_says_what_is_broken_and_names_a_test_that_exists() -> None:
    for row in ROWS:
        assert row.breaks, row.mutant
        assert isinstance(find(row.mutant), type)
        if isinstance(row.way, Story):
            file, test = row.way.node.partition("[")[0].split("::")
            assert f"def {test}(" in (ROOT / file).read_text("utf-8"), row.way.node


def test_swarms_and_explorers_catch_what_is_worst() -> None:
    ways = {row.name: row.way for row in ROWS if not isinstance(row.way, Story)}
    assert len(ways) >= 25
    worst = {"NeverAcknowledges", "AbcastCounterStays", "InstallsEarly", "ForgetsAdoptedCut", "CountsDepartedAsStable"}
    assert ways.keys() >= worst
    [stale] = [row.way for row in ROWS if row.name == "TrustsStaleIncarnations"]
    assert isinstance(stale, Story), "a second life at the wrong moment is rare in a swarm: a scenario brings it about"


@pytest.mark.parametrize("name", QUICK)
def test_the_mutant_is_caught(name: str) -> None:
    [place] = [place for place, row in enumerate(ROWS) if row.name == name]
    caught = try_row(place)
    assert caught.fault is None
    assert caught.seeds is not None, f"{name} survived {ROWS[place].way.name}"


@pytest.mark.slow
def test_a_mutant_of_membership_becomes_a_small_replay_file_and_a_picture(tmp_path: Path) -> None:
    [row] = [row for row in ROWS if row.name == "InstallsEarly"]
    told = shrink_row(row, tmp_path)
    assert "with InstallsEarly: P17: " in told
    assert told.endswith("without: PASS")
    replay, picture = tmp_path / "InstallsEarly.replay.json", tmp_path / "picture.svg"
    scenario = load_replay(replay)
    assert isinstance(scenario, GroupScenario)
    assert len(scenario.casts) < 20
    assert len(scenario.faults) < 3
    assert "P17: " in draw_row(row, replay, picture)
    assert picture.read_text("utf-8").startswith("<svg")


def test_what_breaks_nothing_survives() -> None:
    """A way that caught everything would prove nothing."""
    assert Swarm("abcast", 15).catch(Abcast) is None
    assert Groups("fifo", "Streams", 2).catch(Streams) is None
    assert Groups("fifo", "Membership", 2).catch(Membership) is None
    assert Explorer((1, 1)).catch(Fifo) is None


def test_a_test_that_fails_is_no_catch() -> None:
    assert Story("tests/sim/test_mutants_catalogue.py::there_is_no_such_test").catch(None) is None
