"""The checker of `./dev chaos`: clean logs pass, and every planted fault is found by the check that it is meant for."""

from __future__ import annotations

import ast
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.chaos import checker
from tests.chaos.checker import check, load
from tests.chaos.faults import PLANTS, Plant
from tests.chaos.schedule import ORDERS, Plan, draw
from tests.chaos.story import tell

STORIES = [
    ("primary", "none"),
    ("primary", "restore"),
    ("partitionable", "none"),
    ("partitionable", "restore"),
    ("partitionable", "merge"),
]
CHECKS = {
    "well-formed", "creation", "duplication", "in-view", "sending-view", "fifo", "causal", "total", "uniform", "together", "sets",
    "transition", "views", "safe", "stable", "receipts", "primary-safe", "chain", "lineage", "liveness", "failure",
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("policy", "hooks"), STORIES)
def test_clean_logs_raise_no_alarm(policy: str, hooks: str, order: str) -> None:
    report = check(tell(policy, hooks, order))
    assert report.is_clean, str(report)
    assert report.counts["pairs"] > 5
    assert report.counts["deliveries"] > 30


@pytest.mark.parametrize("fault", PLANTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_by_its_check(fault: Plant) -> None:
    logs = tell(fault.policy, fault.hooks, fault.order)
    fault.alter(logs)
    report = check(logs)
    found = set(report.broken)
    assert fault.raises <= found, str(report)
    assert found <= fault.raises | fault.may_raise, str(report)


def test_every_check_has_a_planted_fault() -> None:
    assert set().union(*(fault.raises for fault in PLANTS)) == CHECKS


def test_no_check_is_unknown_to_this_test() -> None:
    text = Path(checker.__file__).read_text()
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    named = {
        node.args[0].value
        for node in calls
        if (isinstance(node.func, ast.Name) and node.func.id == "Violation")
        or (isinstance(node.func, ast.Attribute) and node.func.attr == "_fault")
        if node.args and isinstance(node.args[0], ast.Constant)
    }
    assert named | {"total", "uniform"} == CHECKS  # those two are given to `compare_orders` by name


def test_the_checker_knows_nothing_of_the_code_that_it_judges() -> None:
    tree = ast.parse(Path(checker.__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in imported if name.split(".")[0] in ("unisono", "tests")]


def test_logs_survive_the_way_through_files_and_half_a_line_at_the_end(tmp_path: Path) -> None:
    logs = tell()
    (tmp_path / "plan.json").write_text(json.dumps(logs.plan))
    for name, lines in {**logs.lives, "nemesis.jsonl": logs.nemesis}.items():
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with (tmp_path / "b-1.jsonl").open("a") as file:
        file.write('{"t": 1, "is": "deliv')
    assert load(tmp_path) == logs


def test_a_view_that_nobody_may_make_primary_may_refuse_probes() -> None:
    """With state hooks, and when nobody that lives has seen the last primary."""
    logs = tell("primary", "restore")
    for lines in logs.lives.values():
        for line in lines:
            if line["is"] == "cast" and line["probe"]:
                refused = {"t": 0, "is": "refused_cast", "m": line["m"], "error": "NotPrimary", "text": "read-only"}
                lines[:] = [one for one in lines if one.get("m") != line["m"] or one is line]
                lines.insert(lines.index(line) + 1, refused)
                break
    for lines in logs.lives.values():
        lines[:] = [
            one for one in lines if one["is"] != "delivery" or any(
                other["is"] == "accepted" and other["m"] == one["m"] for life in logs.lives.values() for other in life
            )
        ]  # fmt: skip
    assert set(check(logs).broken) == {"liveness"}  # all that live were in the last primary
    for lines in logs.lives.values():
        for line in lines:
            if line["is"] == "view" and line["number"] >= 3:
                line["primary"] = False
            if line["is"] == "transition" and int(line["view"].partition("@")[0]) >= 2:
                line["primary"] = False
    logs.lives["a-1.jsonl"] = [one for one in logs.lives["a-1.jsonl"] if one["is"] != "end"]
    assert "refused" not in str(check(logs))


@pytest.mark.seconds
def test_a_seed_is_a_plan_and_ten_seeds_have_all_orders(tmp_path: Path) -> None:
    plans = [draw(seed) for seed in range(200)]
    assert plans == [draw(seed) for seed in range(200)]
    assert {plan.order for plan in plans[:10]} == set(ORDERS)
    assert {(plan.policy, plan.hooks, plan.safe) for plan in plans} == {
        (policy, hooks, safe)
        for policy in ("partitionable", "primary")
        for hooks in ("none", "restore", "merge")
        for safe in (False, True)
    }
    kinds = {action["kind"] for plan in plans for action in plan.actions}
    assert kinds == {
        "crash", "restart", "total restart", "pause", "partition in 2", "partition in 3", "one-way link", "loss", "narrow link",
        "slow reader", "leave", "burst", "switch", "join",
    }  # fmt: skip
    for plan in plans:
        plan.write(tmp_path / "plan.json")
        assert asdict(Plan.read(tmp_path / "plan.json")) == asdict(plan)
