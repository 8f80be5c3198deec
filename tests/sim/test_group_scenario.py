"""Scenarios of whole groups as data: their files, what is refused, what a change in one leaves alone, and how they shrink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from unisono.core.config import MILLISECOND as MS
from unisono.core.errors import Misuse
from unisono.orders.registry import ORDERS
from unisono.sim.faults import FAULTS, Fault
from unisono.sim.group_network import DatagramNetwork
from unisono.sim.group_run import play
from unisono.sim.group_scenario import GroupScenario, PlannedCast, PlannedCheck
from unisono.sim.group_swarm import scenario_of
from unisono.sim.lots import MASK, STEP, number
from unisono.sim.replays import load_replay, save_replay
from unisono.sim.shrink import shrink

SMALL = GroupScenario("fifo", 1, {"a": 0, "b": 0, "c": 0}, 600 * MS)
ONE_OF_EACH = (
    Fault("drift", 300 * MS, ("a",), amount=0.05),
    Fault("narrow", 300 * MS, ("b",), amount=100_000.0),
    Fault("lossy", 310 * MS, ("a", "b"), amount=0.5),
    Fault("slow", 310 * MS, ("a", "b"), amount=5.0),
    Fault("clog", 310 * MS, ("b", "c"), 50 * MS),
    Fault("one way", 320 * MS, ("c", "a")),
    Fault("triangle", 330 * MS, ("a", "b")),
    Fault("join", 340 * MS, ("d",)),
    Fault("switch", 350 * MS, ("b",), order="sequencer"),
    Fault("partition", 360 * MS, (), 100 * MS, parts=(("a", "b"), ("c",))),
    Fault("pause", 400 * MS, ("b",), 50 * MS),
    Fault("restart", 500 * MS, ("b",), 20 * MS),
    Fault("leave", 540 * MS, ("c",)),
    Fault("crash", 560 * MS, ("a",)),
)


def test_a_drawn_scenario_survives_its_file(tmp_path: Path) -> None:
    for order in ORDERS:
        scenario = scenario_of(order, 3)
        save_replay(tmp_path / "s.json", scenario, "why")
        assert load_replay(tmp_path / "s.json") == scenario
        assert len((tmp_path / "s.json").read_text().splitlines()) > len(scenario.casts), "each cast has its line"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"order": "none"}, "none"),
        ({"seed": -1}, "seed = -1 is out of range"),
        ({"members": {}}, "the number of members = 0"),
        ({"members": {"a": "now"}}, "the start of a must be a whole number"),
        ({"delay": "soon"}, "there is no delay model"),
        ({"loss": 2.0}, "loss = 2 is out of range"),
        ({"is_primary": 1}, "is_primary must be true or false"),
        ({"collect": "tree"}, "star, ring"),
        ({"can_merge": True}, "can_merge needs has_state"),
        ({"casts": (PlannedCast(0, "z"),)}, "a cast names the member 'z'"),
        ({"casts": (PlannedCast(0, "a", to=("z",)),)}, "a cast names the member 'z'"),
        ({"casts": (PlannedCast(0, "a", is_causal=True),)}, "fifo does not carry causal messages"),
        ({"casts": (PlannedCast(0, "a", -1),)}, "size_bytes = -1"),
        ({"checks": (PlannedCheck(-1, "a"),)}, "at_ns of check = -1"),
        ({"faults": (Fault("echo", 0, ("a",)),)}, "there is no fault 'echo'"),
        ({"faults": (Fault("clog", 0, ("a",)),)}, "the fault clog names 2 members, not 1"),
        ({"faults": (Fault("crash", 0, ("z",)),)}, "a crash names the member 'z'"),
        ({"faults": (Fault("join", 0, ("a",)),)}, "a cannot join"),
        ({"faults": (Fault("lossy", 0, ("a", "b"), amount=1.5),)}, "amount of lossy = 1.5"),
        ({"faults": (Fault("crash", 0, ("a",), amount=5.0),)}, "the fault crash has an amount: only slow, lossy"),
        ({"faults": (Fault("crash", 0, ("a",), parts=(("b",),)),)}, "only a partition has parts"),
        ({"faults": (Fault("partition", 0),)}, "a partition needs parts"),
        ({"faults": (Fault("crash", 0, ("a",), order="fifo"),)}, "only a switch has one"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(Misuse, match=why):
        replace(SMALL, **change)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "a scenario must be an object"),
        ({"order": "fifo"}, "a scenario does not fit"),
        ({"order": "fifo", "seed": 1, "members": {"a": 0}, "colour": 3}, "has no field 'colour'"),
        ({"order": "fifo", "seed": 1, "members": {"a": 0}, "casts": [{"who": "a", "at": 3}]}, "a cast has no field"),
        ({"order": "fifo", "seed": 1, "members": {"a": 0}, "faults": [{"kind": "crash", "who": "a"}]}, "a list"),
    ],
)
def test_what_is_no_scenario_is_refused(data: Any, why: str) -> None:
    with pytest.raises(Misuse, match=why):
        GroupScenario.from_json(data)


def test_every_kind_of_fault_is_played() -> None:
    assert {fault.kind for fault in ONE_OF_EACH} == set(FAULTS)
    done = play(replace(SMALL, faults=ONE_OF_EACH)).faults
    assert done.keys() >= set(FAULTS)


def test_a_fault_whose_target_is_not_up_is_skipped() -> None:
    late = (Fault("restart", 400 * MS, ("a",)), Fault("lossy", 400 * MS, ("b", "a"), amount=0.5))
    done = play(replace(SMALL, faults=(Fault("crash", 300 * MS, ("a",)), *late))).faults
    assert done["crash"] == 1
    assert not {"restart", "lossy"} & done.keys()


# Draws that are keyed by what they decide.


def test_a_fault_that_is_taken_away_changes_nothing_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything on the wire, byte for byte, and what becomes of it."""
    sent: list[tuple[Any, ...]] = []
    fate = DatagramNetwork.fate

    def noted(self: DatagramNetwork, src: str, dst: str, datagram: bytes, now: int) -> list[tuple[int, bytes]]:
        arrivals = fate(self, src, dst, datagram, now)
        sent.append((now, src, dst, datagram, arrivals))
        return arrivals

    monkeypatch.setattr(DatagramNetwork, "fate", noted)
    whole = scenario_of("fifo", 4)
    last = max(whole.faults, key=lambda fault: fault.at_ns)
    runs = []
    for faults in (whole.faults, tuple(fault for fault in whole.faults if fault != last)):
        play(replace(whole, faults=faults))
        runs.append([row for row in sent if row[0] < last.at_ns])
        assert len(runs[-1]) < len(sent)
        sent.clear()
    assert runs[0] == runs[1]
    assert len(runs[0]) > 200


def test_a_datagram_keeps_its_fate_whatever_happens_on_other_links() -> None:
    def fates(disturb: Callable[[DatagramNetwork, int], None]) -> list[list[tuple[int, bytes]]]:
        network = DatagramNetwork("seed", "exponential:1ms")
        network.loss = network.duplicate = network.reorder = network.replay = 0.3
        found = []
        for now in range(200):
            disturb(network, now)
            found.append(network.fate("a", "b", b"%d" % now, now))
        return found

    def crowd(network: DatagramNetwork, now: int) -> None:
        network.lose("c", "a", 0.9)
        for _ in range(now % 3):
            network.fate("c", "a", b"x", now)
            network.fate("b", "a", b"x", now)

    assert fates(lambda network, now: None) == fates(crowd)


@pytest.mark.parametrize("start", [0, 1, 2**63, 0x123456789ABCDEF])
def test_keyed_numbers_are_spread_evenly(start: int) -> None:
    drawn = [number(start + n * STEP & MASK) for n in range(20_000)]
    assert all(0 <= one < 1 for one in drawn)
    assert abs(sum(drawn) / len(drawn) - 1 / 2) < 0.01
    assert abs(sum(one * one for one in drawn) / len(drawn) - 1 / 3) < 0.01
    assert abs(sum(a * b for a, b in pairwise(drawn)) / len(drawn) - 1 / 4) < 0.01


# Shrinking.


def test_a_scenario_is_shrunk_to_what_matters() -> None:
    """What fails here is decided by the data alone: one cast of one member, and its crash afterwards."""

    def fails(scenario: GroupScenario) -> str | None:
        crashes = [fault for fault in scenario.faults if fault.kind == "crash" and fault.who == ("a",)]
        is_cast = any(
            cast.who == "a" and cast.to and cast.at_ns < crashes[0].at_ns for cast in scenario.casts if crashes
        )
        return "P1: it fails" if is_cast else None

    rng = Random(1)
    casts = tuple(PlannedCast(n * MS, rng.choice("abc"), 60, ("a", "b"), True) for n in range(500))
    whole = replace(SMALL, casts=casts, checks=(PlannedCheck(MS, "b"),), faults=ONE_OF_EACH, loss=0.3, has_state=True)
    smallest, sentence = shrink(whole, "P1: it fails", fails)
    assert sentence == "P1: it fails"
    assert set(smallest.members) == {"a"}
    assert [cast.to for cast in smallest.casts] == [("a",)]
    assert [fault.kind for fault in smallest.faults] == ["crash"]
    assert not smallest.checks
    assert not smallest.loss
    assert not smallest.has_state


def test_another_failure_is_no_smaller_version_of_this_one() -> None:
    whole = replace(SMALL, casts=(PlannedCast(MS, "a"),))
    smallest, _ = shrink(whole, "P1: a cast is lost", lambda s: "P1: lost" if s.casts else "P2: something else")
    assert smallest.casts
