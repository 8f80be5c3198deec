"""Two minutes of `./dev chaos`: real processes in network namespaces, real faults, judged by what the applications saw."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from tests.chaos.__main__ import run_all
from tests.chaos.checker import check, load
from tests.chaos.faults import PLANTS, NoPlace
from tests.chaos.faulty import FAULTS
from tests.chaos.nemesis import ROOT
from tests.chaos.schedule import PATIENCE, TIMEOUT_S, Action, Plan, draw
from tests.net.namespaces import missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
SECONDS = 90.0
"""After this no run is begun, and those under way take some more."""
KEPT = ROOT / ".cache" / "chaos"
"""Where failures keep their plans and logs."""


def quiet_plan(number: int, policy: str = "partitionable") -> Plan:
    """Three members, one of which is cut off once."""
    plan = Plan(
        seed=number, order="causal-total", policy=policy, hooks="restore", safe=False, safe_share=0.0, key=True,
        names="abc", founders="abc", min_members=3, rate=40.0, payload_bytes=60, length_s=3.0,
    )  # fmt: skip
    plan.actions = cut_off("c", "ab", 0.5, 2.0)
    return plan


def cut_off(name: str, others: str, begins_at: float, ends_at: float) -> list[Action]:
    """One member hears nobody for a while."""
    fault = {"kind": "partition in 2", "fault": round(begins_at * 1_000)}
    return [
        {"at": begins_at, "do": "part", "parts": [others, name], **fault},
        {"at": ends_at, "do": "undo", **fault},
    ]


def test_every_fault_of_a_real_program_is_found(folder: Path) -> None:
    plans = []
    for number, fault in enumerate(FAULTS):
        plan = quiet_plan(number)
        plan.faulty = {"b": fault}
        plans.append(plan)
    summary = run_all(iter(plans), folder, None, 4, PATIENCE, keep_all=True, quiet=True)
    for outcome in summary.outcomes:
        ((_, fault),) = outcome.plan.faulty.items()
        assert FAULTS[fault] in outcome.report.broken, f"{fault}: {outcome.report}"
    assert len(summary.outcomes) == len(FAULTS)


def test_faults_planted_into_the_logs_of_a_real_run_are_found(folder: Path) -> None:
    plan = quiet_plan(0, policy="primary")
    (outcome,) = run_all(iter([plan]), folder, None, 1, PATIENCE, keep_all=True, quiet=True).outcomes
    before, found = outcome.report.broken, []
    for plant in PLANTS:
        logs = load(outcome.folder)
        if (plant.policy, plant.hooks) == (plan.policy, plan.hooks):
            try:
                plant.alter(logs)
            except NoPlace:
                continue
            after = check(logs).broken
            assert all(after[name] > before[name] for name in plant.raises), plant.name
            found.append(plant.name)
    assert len(found) > len(PLANTS) // 2


def test_two_minutes_of_chaos_break_no_promise() -> None:
    summary = run_all(map(draw, count(0)), KEPT, SECONDS, 3, PATIENCE, keep_all=False)
    print(summary)
    assert {outcome.plan.order for outcome in summary.outcomes} == {draw(seed).order for seed in range(10)}
    assert not summary.failed, "\n".join(outcome.line() for outcome in summary.failed)


def test_g1_g3_g4_g6_what_a_cut_means_to_real_programs(folder: Path) -> None:
    """One member is cut off again and again for about the failure timeout, and at last for longer than any silence is forgiven;
    likewise under the primary policy, where all messages are safe; and while a member that has the state is cut off, the others
    restart without one."""
    short, safe, empty = quiet_plan(1), quiet_plan(2, policy="primary"), quiet_plan(3, policy="primary")
    cuts = [
        (round(1.2 * number, 2), TIMEOUT_S * length) for number, length in enumerate((0.9, 1.1, 1.3, 1.6, 2.5, 8.0), 1)
    ]
    for plan in (short, safe):
        plan.hooks, plan.length_s = "none", 11.0
        plan.actions = sorted(
            (action for at, length in cuts for action in cut_off("c", "ab", at, at + length)), key=lambda one: one["at"]
        )
    safe.safe, safe.order = True, "sequencer"
    empty.length_s = 5.0
    part, heal = cut_off("c", "ab", 0.5, 4.0)
    empty.actions = [
        part,
        *({"at": 0.6, "do": "kill", "kind": "crash", "fault": 2, "name": name} for name in "ab"),
        *({"at": 2.0, "do": "start", "kind": "restart", "fault": 2, "name": name} for name in "ab"),
        heal,
    ]
    summary = run_all(iter([short, safe, empty]), folder, None, 3, PATIENCE, keep_all=True, quiet=True)
    assert not summary.failed, "\n".join(outcome.line() for outcome in summary.failed)
    lines = {
        outcome.plan.seed: [line for life in load(outcome.folder).lives.values() for line in life]
        for outcome in summary.outcomes
    }
    for seed in (1, 2):  # the faults had the effect that they are for
        assert any(line["is"] == "receipt" and line["outcome"] == "uncertain" for line in lines[seed])
    views = [line for line in lines[1] if line["is"] == "view" and len(line["together"]) < len(line["members"]) == 3]
    assert len(views) >= 3, "c came back, and is told apart"
    assert any(not line["primary"] for line in lines[2] if line["is"] == "transition")
    assert any(not line["primary"] and len(line["members"]) == 2 for line in lines[3] if line["is"] == "view")
