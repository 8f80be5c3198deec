"""Joins and leaves between two messages: under `rmp` whoever proposes a view that no failure forces has the lock.

Paper 002, section 3. Whole groups are watched when they report: what each holds, and who has the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.group_tools import passes, settles, texts
from tests.harness import UNICAST, A, B, Group
from tests.mutants.rmp_mutants import ProposesUnlocked
from unisono.core.config import MILLISECOND, Config
from unisono.core.outbox import Outbox
from unisono.core.types import MemberId, Rank, View, ViewId
from unisono.orders.registry import ORDERS
from unisono.orders.rmp import Data, Rmp
from unisono.orders.rmp_recovery import RmpReport
from unisono.sim.group_world import QUICK, GroupWorld


class Reported(NamedTuple):
    """How a member stood when its view ended."""

    member: MemberId
    report: RmpReport
    has_lock: bool

    @property
    def placed(self) -> int:
        """How many positions of the order it holds."""
        return self.report.committed + len(self.report.withheld)


class Ends:
    """A world whose members tell how they stood at the end of each view."""

    def __init__(self, kind: type[Rmp], seed: int, names: str = "abc") -> None:
        ends: dict[ViewId, list[Reported]] = {}

        class Watched(kind):  # type: ignore[valid-type, misc]
            def __init__(self, view: View, rank: Rank, config: Config) -> None:
                super().__init__(view, rank, config)
                self.view = view

            def report(self) -> RmpReport:
                report: RmpReport = super().report()
                mine = Reported(self.view.members[self._rank], report, self._lock.held)
                ends.setdefault(self.view.id, []).append(mine)
                return report

        self.ends = ends
        self.world = GroupWorld("rmp", seed, orders={**ORDERS, "rmp": Watched})
        self.world.gather(names)
        self.world.run(0.3)
        self.ends.clear()

    def cast(self, caster: str, rounds: int, until: Callable[[], bool] | None = None) -> None:
        """One member casts and casts, so that at almost every moment one of its messages is on its way."""
        for _ in range(rounds):
            self.world.processes[caster].cast(b"%d" % self.world.now)
            self.world.run(0.0005)
            if until is not None and until():
                return
        assert until is None, "it took too long"

    def last(self) -> list[Reported]:
        """The reports of the only view that has ended."""
        (reports,) = self.ends.values()
        return reports


def stand(ends: Ends, proposer: str) -> tuple[bool, bool]:
    """Whether the proposer had the lock, and whether all held the same messages."""
    (has_lock,) = [one.has_lock for one in ends.last() if one.member.address == proposer]
    return has_lock, len({one.placed for one in ends.last()}) == 1


class Change(NamedTuple):
    """A view change that no failure forces: how it begins, and when it is over."""

    begin: Callable[[GroupWorld], object]
    is_over: Callable[[GroupWorld], bool]

    def run(self, kind: type[Rmp], seed: int) -> tuple[bool, bool]:
        ends = Ends(kind, seed)
        world = ends.world
        ends.cast("b", 40)
        self.begin(world)
        ends.cast("b", 4_000, lambda: self.is_over(world))
        stood = stand(ends, "a")
        passes(world)
        return stood


CHANGES = {
    "join": Change(lambda world: world.start("d", seeds="abc"), lambda world: world.is_one("abcd")),
    "leave": Change(lambda world: world.leave("c"), lambda world: world.is_one("ab")),
    "switch": Change(
        lambda world: world.processes["c"].member.switch("sequencer"),
        lambda world: all(process.member.state.order == "sequencer" for process in world.up),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_that_nothing_forces_comes_between_two_messages(change: Change) -> None:
    assert [change.run(Rmp, seed) for seed in range(6)] == [(True, True)] * 6


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_proposer_without_the_lock_is_found(change: Change) -> None:
    assert [change.run(ProposesUnlocked, seed) for seed in range(3)] == [(False, False)] * 3


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_change_begins_as_soon_as_the_lock_is_there(is_busy: bool) -> None:
    """Accepts come on the streams, of which membership hears nothing: the member sees to it."""
    ends = Ends(Rmp, 4)
    world = ends.world
    membership = world.processes["a"].member._membership
    ends.cast("b", 40)
    world.start("d", seeds="a")
    if is_busy:
        ends.cast("b", 4_000, lambda: membership.is_approaching)
    assert world.run(1, lambda: membership.is_approaching)
    began = world.now
    assert world.run(1, lambda: bool(ends.ends))
    assert world.now - began < 12 * MILLISECOND, "the wait for what is in flight, and a round trip"


def test_the_lock_of_a_sleeper_is_not_waited_for() -> None:
    """c sleeps, too short a time to be suspected, and accepts nobody. The wait for the lock has its bound."""
    ends = Ends(Rmp, 1)
    world = ends.world
    world.pause("c", 240 * MILLISECOND)
    began = world.now
    world.start("d", seeds="a")
    assert world.run(2, lambda: bool(ends.ends)), world.story()
    (first,) = ends.last()
    assert (first.member.address, first.has_lock) == ("a", False)
    waited = world.now - began
    membership = QUICK.membership
    assert membership.takeover_ns < waited < membership.takeover_ns + membership.gather_ns + 40 * MILLISECOND
    settles(world, "abcd")
    passes(world)


def test_a_holder_that_crashed_is_not_waited_for() -> None:
    """The lock is c's for ever, as far as the lock knows."""
    ends = Ends(Rmp, 2)
    world = ends.world
    ends.cast("c", 20)
    world.crash("c")
    world.start("d", seeds="a")
    settles(world, "abd", 3)
    passes(world)


def test_a_change_that_is_given_up_leaves_no_trace() -> None:
    """a has the lock for the sake of d, which vanishes; c sleeps, so the way is long. Then all goes on as if d had never come."""
    ends = Ends(Rmp, 3)
    world = ends.world
    membership = world.processes["a"].member._membership
    ordering = world.processes["a"].member.engine.ordering
    assert isinstance(ordering, Rmp)
    ends.cast("a", 10)
    world.run(0.05)
    world.processes["b"].cast(b"of b")
    assert world.run(1, lambda: not ordering._lock.held)
    world.pause("c", 90 * MILLISECOND)
    world.start("d", seeds="a")
    assert world.run(1, lambda: membership.is_approaching), world.story()
    assert ordering._is_wanted
    world.crash("d")
    membership._contacts.forget(world.processes["d"].id)
    world.processes["a"].cast(b"of a")
    world.processes["b"].cast(b"of b again")
    world.run(0.001)
    assert not membership.is_approaching
    assert not ordering._is_wanted
    assert world.run(1, lambda: all(len(texts(world.processes[name])) == 13 for name in "abc")), world.story()
    assert ends.ends == {}
    passes(world)


def test_what_waited_for_a_change_is_transmitted_when_it_is_given_up() -> None:
    """a has the lock, and plans a view; what it casts meanwhile waits, and so does b for the lock."""
    group = Group(Rmp, 2)
    group.cast(A, "w")
    group.settle()
    ordering = group.orderings[A]
    assert isinstance(ordering, Rmp)
    assert ordering.approach(True), "it has the lock, and all is committed"
    group.cast(A, "x")
    group.cast(B, "y")
    group.settle()
    assert group.names(B) == ["w"]
    assert {wait.reason for wait in ordering.waits()} == {"a view change is about to begin"}
    assert ordering.approach(True)
    ordering.approach(False)
    out = Outbox()
    ordering.end_turn(out)
    (data,) = out.to_all
    assert isinstance(data, Data)
    assert data.batch == group.sent[1].batch
    assert out.to_one == [], "b gets the lock when all have voted for x"


def test_a_hold_ends_with_the_batch_that_is_on_its_way() -> None:
    group = Group(Rmp, 2)
    group.cast(A, "w")
    group.settle()
    ordering = group.orderings[A]
    group.cast(A, "x")
    assert not ordering.approach(True)
    group.cast(A, "y")
    group.carry(A, B)
    group.carry(B, A, UNICAST)
    assert ordering.approach(True), "x is committed, and y waits"
    assert group.names(A) == ["w", "x"]


@pytest.mark.parametrize("order", [name for name in ORDERS if name != "rmp"])
def test_an_order_without_boundaries_lets_a_change_begin_at_once(order: str) -> None:
    world = GroupWorld(order, 5)
    world.gather("ab")
    engine = world.processes["a"].member.engine
    world.processes["b"].cast(b"on its way")
    assert engine.approach(True)
