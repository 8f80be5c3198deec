"""The guided swarm: what counts as new, how scenarios vary, how a search goes on, and that looking on changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from tests.mutants.membership_mutants import InstallsEarly
from tests.mutants.ways import Groups
from unisono.cli.app import app
from unisono.core.config import MILLISECOND as MS
from unisono.core.errors import Misuse
from unisono.sim.faults import Fault
from unisono.sim.group_run import GroupOutcome, play, try_group
from unisono.sim.group_scenario import GroupScenario, PlannedCast
from unisono.sim.group_situations import Sightings
from unisono.sim.group_swarm import scenario_of
from unisono.sim.group_twins import first_difference
from unisono.sim.guided import Guided, GuidedSearch, PoolEntry
from unisono.sim.replays import load_replay
from unisono.sim.vary import FAULTS_MAX, vary

SMALL = GroupScenario(
    "fifo",
    1,
    {"a": 0, "b": 0, "c": 0},
    900 * MS,
    casts=tuple(PlannedCast(at * MS, "a") for at in range(400, 900, 20)),
    faults=(Fault("crash", 600 * MS, ("b",)),),
)


def look(number: int, scenario: GroupScenario) -> Guided:
    sightings = Sightings()
    return Guided(number, scenario, try_group(scenario, on_turn=sightings), sightings.first, sightings.turns)


def test_a_run_repeated_comes_to_nothing_new() -> None:
    search = GuidedSearch(["fifo"])
    entry = search.note(look(0, SMALL))
    assert entry is not None
    assert len(entry.new) > 10
    assert search.note(look(1, SMALL)) is None
    assert len(search.hits) == len(entry.new)


def test_times_numbers_and_names_make_no_situation_new() -> None:
    """The same crash, of the same rank in the same group under other names, and a second after everything else."""
    other = GroupScenario(
        "fifo",
        1,
        {"d": 0, "e": 0, "f": 0},
        1_900 * MS,
        "constant:1ms",
        faults=(Fault("crash", 1_600 * MS, ("e",)),),
    )
    one = GroupScenario(
        "fifo", 1, {"a": 0, "b": 0, "c": 0}, 900 * MS, "constant:1ms", faults=(Fault("crash", 600 * MS, ("b",)),)
    )
    first, second = (look(0, scenario).first for scenario in (one, other))
    assert first.keys() == second.keys()


def test_another_fault_comes_to_situations_that_are_new() -> None:
    search = GuidedSearch(["fifo"])
    search.note(look(0, SMALL))
    parted = GroupScenario(
        "fifo",
        1,
        SMALL.members,
        900 * MS,
        faults=(Fault("partition", 500 * MS, (), 300 * MS, parts=(("a",), ("b", "c"))),),
    )
    assert search.note(look(1, parted)) is not None


@pytest.mark.parametrize(("order", "seed"), [("abcast", 0), ("fifo", 2)])
def test_looking_on_does_not_change_what_runs(order: str, seed: int) -> None:
    watched, alone = (
        play(scenario_of(order, seed), on_turn=Sightings()),
        play(scenario_of(order, seed), is_recorded=False),
    )
    assert first_difference(watched, alone) is None
    assert watched.network.sent_bytes == alone.network.sent_bytes


def test_a_variation_is_valid_data_and_another_scenario() -> None:
    rng, scenario, changed = Random("variations"), scenario_of("toto", 5), 0
    for _ in range(300):
        varied = vary(scenario, [300 * MS, 900 * MS], rng)
        assert GroupScenario.from_json(json.loads(json.dumps(varied.to_json()))) == varied
        assert len(varied.faults) <= FAULTS_MAX
        assert [fault.at_ns for fault in varied.faults] == sorted(fault.at_ns for fault in varied.faults)
        changed += varied != scenario
        scenario = varied
    assert changed > 290


def test_a_variation_plays_the_same_each_time() -> None:
    one, again = (vary(SMALL, [650 * MS], Random("once")) for _ in range(2))
    assert one == again != SMALL
    assert look(0, one) == look(0, again)


def test_a_search_with_one_seed_is_one_search() -> None:
    def scenarios() -> list[GroupScenario]:
        search, found = GuidedSearch(["fifo"], 3), []
        for number in range(60):
            found.append(search.next(number))
            name = str(len(found[-1].faults))  # stands for a run
            search.note(
                Guided(number, found[-1], GroupOutcome("fifo", 0, "PASS"), {name: 500 * MS, f"{number}": 0}, 1_000)
            )
        return found

    assert scenarios() == scenarios()


def test_what_came_to_rare_situations_for_less_is_varied_more() -> None:
    orders = ("fifo", "causal", "toto", "rmp")
    kept = [
        PoolEntry(scenario_of(order, 1), {order: 0}, 1_000_000 if order == "rmp" else 1_000) for order in orders * 2
    ]
    search = GuidedSearch(["fifo"], 0, kept)
    search.hits.update({"fifo": 100})
    scenarios = [search.next(number) for number in range(200)]
    fresh = sum(one == scenario_of("fifo", number) for number, one in enumerate(scenarios))
    assert 30 < fresh < 70
    drawn = Counter(one.order for one in scenarios)
    assert drawn["causal"] > 50 < drawn["toto"]
    assert drawn["rmp"] < 5
    assert drawn["fifo"] - fresh < 10


def test_a_planted_mutant_is_found() -> None:
    way, search = Groups("fifo", "Membership"), GuidedSearch(["fifo"])
    for number in range(60):
        sightings, scenario = Sightings(), search.next(number)
        outcome = way.run(scenario, InstallsEarly, on_turn=sightings)
        search.note(Guided(number, scenario, outcome, sightings.first, sightings.turns))
        if outcome.sentence is not None:
            assert try_group(scenario).sentence is None
            return
    raise AssertionError("it survived 60 runs")


def command(folder: Path, runs: int) -> dict[str, object]:
    arguments = ["sim", "swarm", "--guided", "-o", "fifo", "--workers", "1", "--json"]
    done = CliRunner().invoke(app, [*arguments, "--seeds", str(runs), "--out", str(folder)])
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_search_is_resumed_from_its_folder(tmp_path: Path) -> None:
    first = command(tmp_path, 3)
    again = command(tmp_path, 3)
    assert (first["new"], again["new"]) == (3, 0)
    assert (first["situations"], first["pool"]) == (again["situations"], again["pool"])
    assert command(tmp_path, 4)["new"] == 1
    kept = sorted((tmp_path / "pool").iterdir())
    assert isinstance(load_replay(kept[0]), GroupScenario), "what is kept is a replay file"


def test_a_search_that_goes_on_overwrites_nothing(tmp_path: Path) -> None:
    """It was stopped while one worker was still at run 0, and another had ended run 1."""
    kept = tmp_path / "pool" / "00000001.json"
    kept.parent.mkdir()
    PoolEntry(SMALL, {"00ff": 5}, 100).save(kept)
    before = kept.read_bytes()
    assert command(tmp_path, 2)["new"] == 2
    assert kept.read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"turns": ', '"turns": -'),
        lambda text: text.replace('"fifo"', '"none"'),
        lambda text: text.replace('"situations": {', '"situations": [], "more": {'),
        lambda text: "[]",
    ],
)
def test_a_damaged_file_of_the_pool_gets_one_sentence(damage: object, tmp_path: Path) -> None:
    path = tmp_path / "0.json"
    PoolEntry(SMALL, {"00ff": 5}, 100).save(path)
    assert PoolEntry.load(path) == PoolEntry(SMALL, {"00ff": 5}, 100)
    path.write_text(damage(path.read_text("utf-8")), "utf-8")  # type: ignore[operator]
    with pytest.raises(Misuse, match=r"0\.json.* Remove it, or begin anew with --fresh\.$") as refused:
        PoolEntry.load(path)
    assert "\n" not in str(refused.value)
