"""Scenarios D with whole members: false suspicions, partitions, merges, and clocks that lie.

Membership alone is tried in `tests/sim/test_membership_partitions.py`. Every run here ends healed and judged.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import unisono.core
from tests.group_tools import (
    cut_both,
    load,
    lose_control,
    membership,
    passes,
    settles,
    texts,
    with_membership,
)
from unisono.core.config import MILLISECOND, SECOND
from unisono.core.membership.settings import Policy
from unisono.core.types import MemberId
from unisono.sim.group_world import ALSO_OWED, GroupWorld, SimulatedProcess
from unisono.trace.checks.judge import Observer
from unisono.trace.promises import promises

pytestmark = pytest.mark.seconds

orders = pytest.mark.parametrize("order", ["fifo", "causal-total", "tomp", "toto", "rmp"])
some_orders = pytest.mark.parametrize("order", ["causal", "sequencer", "rmp"])


def is_split(world: GroupWorld, *parts: str) -> bool:
    return all(world.is_one(part) for part in parts)


def split(world: GroupWorld, *parts: str) -> None:
    """A partition, under load, until each part has a view of its own."""
    load(world, 5, 0.001)
    world.partition(*parts)
    load(world, 20)
    assert world.run(10, lambda: is_split(world, *parts)), world.story()


@orders
def test_d1_only_b_suspects_a_healthy_member(order: str) -> None:
    """b does not hear a for a while, everyone else does. Views may change; the group ends whole, and then one crashes."""
    world = GroupWorld(order, seed=1)
    world.gather("abcd")
    world.network.cut("a", "b")
    load(world, 60)
    world.network.heal()
    settles(world, "abcd")
    world.crash("d")
    load(world, 20)
    settles(world, "abc")
    passes(world)


@some_orders
@pytest.mark.parametrize("ends", ["ab", "bc", "ca"])
def test_d2_one_way_link(order: str, ends: str) -> None:
    world = GroupWorld(order, seed=2)
    world.gather("abc")
    world.network.cut(*ends)
    load(world, 120, 0.03)
    changes = [len(process.views) for process in world.up]
    load(world, 80, 0.03)
    after = [len(process.views) for process in world.up]
    assert sum(after) - sum(changes) <= 3, "views do not flap"
    world.network.heal()
    settles(world, "abc")
    passes(world)


@some_orders
@pytest.mark.parametrize("apart", ["ac", "bc", "ab"])
def test_d3_two_links_up_and_one_cut(order: str, apart: str) -> None:
    """Who cannot reach each other end in different views, and the one in the middle does not go back and forth."""
    world = GroupWorld(order, seed=3)
    world.gather("abc")
    cut_both(world, *apart)
    load(world, 120, 0.03)
    first, second = (world.processes[name] for name in apart)
    assert first.view != second.view, world.story()
    changes = [len(process.views) for process in world.up]
    load(world, 60, 0.03)
    assert [len(process.views) for process in world.up] == changes
    world.network.heal()
    settles(world, "abc")
    passes(world)


@orders
def test_d4_two_halves_with_unstable_messages_merge(order: str) -> None:
    world = GroupWorld(order, seed=4)
    world.network.loss = 0.05
    world.gather("abcd")
    split(world, "ab", "cd")
    load(world, 10)
    world.network.partition(())
    load(world, 20)
    settles(world, "abcd")
    passes(world)


@orders
def test_d6_the_merge_leader_crashes(order: str) -> None:
    world = GroupWorld(order, seed=6)
    world.gather("abcd")
    split(world, "ab", "cd")
    c = world.processes["c"]
    world.network.partition(())
    assert world.run(10, lambda: membership(c).promised.proposer.address == "a" and membership(c).is_engaged)
    world.crash("a")
    settles(world, "bcd")
    passes(world)


@orders
def test_d7_the_merge_answer_is_lost(order: str) -> None:
    world = GroupWorld(order, seed=7)
    world.gather("abcd")
    split(world, "ab", "cd")
    world.network.partition(())

    def is_answer(src: str, dst: str, message: object) -> bool:
        """Whatever one side says to a ballot of the other."""
        ballot = getattr(message, "ballot", None)
        return ballot is not None and ballot.proposer.address != src and (src in "ab") != (dst in "ab")

    lose_control(world, is_answer)
    load(world, 100)
    assert not world.is_one("abcd"), "no merge without answers"
    world.network.drops = None
    settles(world, "abcd")
    passes(world)


@some_orders
def test_d7_a_member_is_already_in_another_merge(order: str) -> None:
    """Three parts, and nobody waits for the lowest: a and b both want c; one of them is outbid."""
    world = GroupWorld(order, seed=8, settings=with_membership(merge_wait_ns=MILLISECOND))
    world.gather("abc")
    split(world, "a", "b", "c")
    world.network.partition(())
    load(world, 20)
    settles(world, "abc")
    passes(world)


@orders
def test_d8_a_side_that_knows_no_coordinator(order: str) -> None:
    """The lowest of each side dies in the partition: whom the other side remembers cannot answer."""
    world = GroupWorld(order, seed=9)
    world.gather("abcd")
    split(world, "ab", "cd")
    world.crash("a")
    world.crash("c")
    world.network.partition(())
    load(world, 20)
    settles(world, "bd")
    passes(world)


@some_orders
def test_d9_joins_during_a_partition_and_during_the_merge(order: str) -> None:
    world = GroupWorld(order, seed=10)
    world.gather("abcd")
    world.partition("abe", "cdf")
    world.start("e", seeds="ac")
    world.start("f", seeds="ac")
    load(world, 50)
    assert world.run(10, lambda: is_split(world, "abe", "cdf")), world.story()
    world.network.partition(())
    world.run(0.2)
    world.start("g", seeds="d")
    load(world, 20)
    settles(world, "abcdefg")
    passes(world)


def test_d11_both_sides_gave_each_other_up_and_merge_without_an_operator() -> None:
    """Half a minute is fifty times as long as a contact is remembered; and the new process knows no seed at all."""
    world = GroupWorld("sequencer", seed=11)
    world.gather("abcd")
    split(world, "ab", "cd")
    world.run(30)
    assert is_split(world, "ab", "cd")
    world.network.partition(())
    settles(world, "abcd", 5)
    passes(world)


@pytest.mark.parametrize("order", ["fifo", "sequencer", "toto"])
def test_d12_clog_members_one_by_one_and_unclog_in_another_order(order: str) -> None:
    world = GroupWorld(order, seed=12)
    names = "abcdef"
    world.gather(names)
    until = {"b": 2_600, "e": 1_400, "d": 2_000}
    for name, end in until.items():
        for other in names:
            world.network.clog(name, other, world.now + end * MILLISECOND)
            world.network.clog(other, name, world.now + end * MILLISECOND)
        load(world, 10, 0.03)
    load(world, 60, 0.03)
    settles(world, names)
    passes(world)


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


@some_orders
def test_d14_monotonic_clocks_that_drift_by_ten_per_cent(order: str) -> None:
    world = GroupWorld(order, seed=14)
    world.gather("abc")
    world.processes["a"].drift(1.1)
    world.processes["b"].drift(0.9)
    load(world, 150)
    assert [len(process.views) for process in world.up] == [1, 1, 1]
    world.crash("c")
    load(world, 60)
    settles(world, "ab")
    passes(world)


@some_orders
@pytest.mark.parametrize("bytes_per_s", [6_000, 30_000])
def test_d15_bandwidth_collapses_instead_of_loss(order: str, bytes_per_s: int) -> None:
    """b's line carries next to nothing for a while, with a queue of half a second before it. Then a crashes."""
    world = GroupWorld(order, seed=15)
    world.gather("abc")
    world.network.bytes_per_s["b"] = bytes_per_s
    load(world, 80, 0.02)
    world.network.bytes_per_s.clear()
    settles(world, "abc")
    world.crash("a")
    load(world, 30)
    settles(world, "bc")
    passes(world)


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


@pytest.mark.parametrize("order", ["sequencer", "causal", "abcast"])
def test_d16_primaries_five_three_two_heal(order: str) -> None:
    """5 → {3,2} → {2,1,2} → heal, under load: the primary shrinks by its own majorities, and never are there two."""
    settings = with_membership(policy=Policy.PRIMARY, peers=tuple("abcde"))
    world = GroupWorld(order, seed=17, settings=settings, owed=("P20",))
    world.gather("abcde")

    def primaries() -> str:
        return "".join(process.id.address for process in world.up if process.member.state.is_primary)

    assert primaries() == "abcde"
    split(world, "abc", "de")
    assert primaries() == "abc"
    split(world, "ab", "c", "de")
    assert primaries() == "ab"
    world.network.partition(())
    load(world, 20)
    settles(world, "abcde")
    assert primaries() == "abcde"
    passes(world)


def test_members_keep_their_identity_through_a_merge() -> None:
    world = GroupWorld("fifo", seed=18)
    world.gather("ab")
    split(world, "a", "b")
    world.network.partition(())
    settles(world, "ab")
    view = world.processes["a"].view
    assert view is not None
    assert view.members == (MemberId("a"), MemberId("b"))
    passes(world)
