"""D13 and D15, as far as two runs are compared: a wall clock that lies, a line that collapses. Stories tell the rest of D."""

from __future__ import annotations

import ast
from pathlib import Path

import unisono.core
from tests.group_tools import (
    load,
    passes,
    texts,
)
from unisono.core.config import SECOND
from unisono.sim.group_world import ALSO_OWED, GroupWorld, SimulatedProcess
from unisono.trace.checks.judge import Observer
from unisono.trace.promises import promises

# D13: wall clocks. Members never see one; only a recorder does, and nothing of a run depends on it.

HOUR = 3_600 * SECOND


def run_with_jumps(jumps: bool) -> GroupWorld:
    world = GroupWorld("abcast", seed=13)
    world.observer = Observer((promises("abcast") | ALSO_OWED) - {"P22"})  # which compares clocks
    world.gather("abc")
    for process, leap in zip(world.up, (HOUR, -HOUR, 0), strict=True):
        if jumps:
            set_wall_clock(process, leap)
    load(world, 30)
    world.crash("b")
    load(world, 60)
    assert world.finish().result == "PASS"
    return world


def set_wall_clock(process: SimulatedProcess, leap: int) -> None:
    """The recorder's clock jumps, as if somebody had set it."""
    turn = process.recorder.turn
    process.recorder.turn = lambda now_ns, notes: turn(max(now_ns + leap, 0), notes)  # type: ignore[method-assign]


def test_d13_a_wall_clock_that_jumps_an_hour_changes_nothing() -> None:
    calm, jumping = run_with_jumps(False), run_with_jumps(True)
    for one, other in zip(calm.lives, jumping.lives, strict=True):
        assert one.views == other.views
        assert one.delivered == other.delivered
    assert calm.network.sent == jumping.network.sent


def clocks_in(source: str) -> list[str]:
    """Imports through which a file could see a clock."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return [name for name in names if name.partition(".")[0] in ("time", "datetime", "calendar", "sched")]


def test_d13_nothing_below_a_driver_can_see_a_clock() -> None:
    """Members, orders and services are handed the time: nanoseconds of a clock that only runs forward."""
    product = Path(unisono.core.__file__).resolve().parents[1]
    files = [file for part in ("core", "orders", "services") for file in sorted((product / part).rglob("*.py"))]
    assert len(files) > 40
    assert {file.name: found for file in files if (found := clocks_in(file.read_text("utf-8")))} == {}
    for planted in ("import time", "def f():\n    from datetime import datetime", "import time as t, os"):
        assert clocks_in(planted)


def test_d15_a_collapse_does_not_make_resending_worse() -> None:
    """What is sent does not explode when the line collapses: the timeouts follow the round trip."""
    sent = {}
    for rate in (None, 20_000):
        world = GroupWorld("fifo", seed=16)
        world.gather("ab")
        if rate is not None:
            world.network.bytes_per_s["a"] = rate
        before = world.network.sent_bytes
        for number in range(100):
            world.processes["a"].cast(bytes(100) + b"%d" % number)
            world.run(0.02)
        world.run(2)
        sent[rate] = world.network.sent_bytes - before
        assert len(texts(world.processes["b"])) == 100
        passes(world)
    assert sent[20_000] < 3 * sent[None]
