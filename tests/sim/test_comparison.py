"""Members compare what they delivered: planted faults are found, and told with view, members and interval; no false alarm."""

from __future__ import annotations

from typing import Any

import pytest

from tests.group_tools import load, passes, settles
from tests.mutants.delivery_mutants import MUTANTS, DropsADelivery, plant
from unisono.core.member import Diverged
from unisono.core.member.comparison import Checking
from unisono.core.options import CastOptions
from unisono.core.types import MemberId, Service, ViewId
from unisono.orders.registry import ORDERS
from unisono.sim.group_state import StatefulWorld
from unisono.sim.group_swarm import try_group_seed
from unisono.sim.group_world import GroupWorld

A, B, C = (MemberId(name) for name in "abc")


def begin(order: str, mutant: type[Any] | None = None, seed: object = 1, tampers_from: int = 20) -> GroupWorld:
    """A group of three whose third member is the mutant."""
    world = GroupWorld(order, seed)
    world.gather(["a", "b", "c"])
    if mutant is not None:
        plant(world.processes["c"].member, mutant, tampers_from)
    return world


def answered(world: GroupWorld, name: str = "a") -> Checking:
    """A check, with its answer."""
    check = world.processes[name].check()
    assert check is not None
    assert world.run(5, lambda: check.is_over), world.story()
    assert check.is_answered
    return check


def one_each(world: GroupWorld, *names: str) -> Diverged:
    """What each of these was told, once and alike."""
    told = [world.processes[name].diverged for name in names]
    assert all(len(events) == 1 and events == told[0] for events in told), told
    assert all(world.processes[name].member.counters.divergences == 1 for name in names)
    return told[0][0]


def test_a_clean_group_has_nothing_to_tell() -> None:
    world = begin("sequencer")
    load(world, 30)
    assert answered(world).differences == ()
    world.start("d", seeds=["a"])
    settles(world, "abcd")
    load(world, 5)
    passes(world)
    assert world.diverged == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
@pytest.mark.parametrize("order", ["fifo", "causal", "sequencer", "toto", "rmp"])
def test_the_next_view_finds_what_one_member_showed_otherwise(order: str, mutant: type[Any]) -> None:
    world = begin(order, mutant)
    view = world.processes["a"].view
    assert view is not None
    load(world, 30)
    assert world.diverged == []
    world.start("d", seeds=["a"])
    settles(world, "abcd")
    world.run(1)
    event = one_each(world, "a", "b", "c")
    assert event.view == view.id
    assert event.parts == ((A, B), (C,))
    assert (event.origin is None) == (ORDERS[order].service is Service.TOTAL)
    assert event.alike < event.differs_by <= 91
    assert world.processes["d"].diverged == []  # it was in no view that differed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
@pytest.mark.parametrize("order", ["fifo", "causal", "sequencer", "all-ack", "rmp"])
def test_a_check_finds_it_while_the_view_lasts(order: str, mutant: type[Any]) -> None:
    world = begin(order, mutant)
    assert answered(world).differences == ()
    load(world, 30)
    check = answered(world, "b")
    world.run(0.1)  # the others are told
    event = one_each(world, "a", "b", "c")
    assert check.differences == (event,)
    assert event.parts == ((A, B), (C,))
    assert answered(world).differences != ()  # as often as one asks
    world.start("d", seeds=["a"])
    settles(world, "abcd")
    world.run(1)
    one_each(world, "a", "b", "c")  # though the view change finds it too


def test_the_last_delivery_counts_too() -> None:
    world = begin("sequencer", DropsADelivery, tampers_from=90)
    load(world, 30)
    event = answered(world).differences[0]
    assert (event.alike < 90, event.differs_by) == (True, 90)


@pytest.mark.parametrize("at", [3, 300, 850])
def test_the_interval_holds_the_fault_and_is_narrow(at: int) -> None:
    """A fault is located within a quarter of what came after it, or within some batches."""
    world = begin("sequencer", DropsADelivery, tampers_from=at)
    load(world, 300, 0.004)
    event = answered(world).differences[0]
    assert event.alike < at <= event.differs_by
    assert event.differs_by - event.alike <= 16 + (900 - at) // 4


def test_the_one_that_compares_may_be_the_one_that_differs() -> None:
    world = begin("fifo")
    plant(world.processes["a"].member, DropsADelivery)
    load(world, 20)
    world.leave("b")
    settles(world, "ac")
    world.run(1)
    assert one_each(world, "a", "c").parts in (((A,), (C,)), ((C,), (A,)))


def test_a_partition_compares_only_those_that_came_along() -> None:
    world = begin("causal")
    load(world, 10)
    world.partition(["a", "b"], ["c"])
    load(world, 40, 0.05)
    world.network.heal()
    settles(world, "abc")
    load(world, 10)
    assert answered(world).differences == ()
    passes(world)
    assert world.diverged == []


def test_a_member_that_joins_compares_from_its_first_view_on() -> None:
    world = begin("sequencer")
    load(world, 20)
    world.start("d", seeds=["a"])
    settles(world, "abcd")
    load(world, 20)
    check = answered(world, "d")
    assert {str(member) for member in check.view.members} == set("abcd")
    assert check.differences == ()


def test_a_state_that_is_restored_is_no_difference() -> None:
    """What came inside the state was delivered to the joiner's member, too, and is compared; its application got it once."""
    world = StatefulWorld("sequencer", 3)
    world.gather(["a", "b"])
    load(world, 20)
    world.start("c", seeds=["a"])
    load(world, 20)
    settles(world, "abc")
    load(world, 20)
    assert answered(world, "c").differences == ()
    world.leave("b")
    settles(world, "ac")
    passes(world)
    assert world.diverged == []


@pytest.mark.parametrize("options", [CastOptions(to=(A, B)), CastOptions(safe=True)], ids=["recipients", "safe"])
def test_recipients_and_safe_messages_are_no_difference(options: CastOptions) -> None:
    world = begin("abcast")
    load(world, 20, options=options)
    load(world, 5)
    assert answered(world).differences == ()
    world.crash("a")
    settles(world, "bc")
    passes(world)
    assert world.diverged == []


def test_datagrams_are_not_compared() -> None:
    world = begin("rmp")
    world.network.loss = 0.3
    load(world, 10, options=CastOptions(service=Service.FIFO))
    load(world, 20, options=CastOptions(service=Service.DATAGRAM))
    world.crash("c")
    settles(world, "ab")
    assert answered(world).differences == ()
    assert world.diverged == []


def test_members_check_all_at_once() -> None:
    world = begin("fifo", DropsADelivery)
    load(world, 20)
    checks = [process.check() for process in world.up]
    assert world.run(5, lambda: all(check is not None and check.is_over for check in checks))
    assert all(check is not None and len(check.differences) == 1 for check in checks)
    world.run(0.1)
    one_each(world, "a", "b", "c")


def test_a_check_that_a_view_change_overtakes_is_over_without_an_answer() -> None:
    world = begin("fifo")
    load(world, 5)
    world.network.cut("c", "a")
    check = world.processes["a"].check()
    assert check is not None
    assert world.run(10, lambda: check.is_over)
    assert not check.is_answered


def test_a_difference_fails_a_run_of_the_swarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The swarm compares, too, and knows no excuse."""
    clean = try_group_seed("sequencer", 1)
    assert clean.sentence is None
    assert clean.faults["check"] > 0
    found = Diverged(ViewId(1, A), ((A,), (B,)), None, 0, 8)
    monkeypatch.setattr(GroupWorld, "diverged", [found])
    assert try_group_seed("sequencer", 1).sentence == f"members compared: {found}"
