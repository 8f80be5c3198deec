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
from tests.chaos.schedule import PATIENCE, Plan, draw
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
    plan.actions = [
        {"at": 0.5, "do": "part", "kind": "partition in 2", "fault": 1, "parts": ["ab", "c"]},
        {"at": 2.0, "do": "undo", "kind": "partition in 2", "fault": 1},
    ]
    return plan


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
