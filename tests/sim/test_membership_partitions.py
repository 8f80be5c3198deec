"""Membership under false suspicion, partition and merge: docs/scenarios.md, D, and the primary policy."""

from __future__ import annotations

import pytest

from tests.membership_harness import Node, World
from tests.sim.test_membership_faults import ORDERS, is_proposal, judged, losing, payloads, settle
from unisono.core.config import SECOND
from unisono.core.membership.settings import MembershipSettings, Policy
from unisono.core.types import MemberId
from unisono.core.wire.control import ANSWER, Chunk, Control

order = pytest.mark.parametrize("order", ORDERS)
pytestmark = pytest.mark.usefixtures("collect")


def views_per_second(world: World, seconds: float) -> float:
    """How fast views change while nothing happens: not at all, if the members' beliefs have settled."""
    before = sum(len(node.views) for node in world.living)
    world.run(seconds)
    return (sum(len(node.views) for node in world.living) - before) / seconds


def talk(world: World, rounds: int = 5) -> None:
    for number in range(rounds):
        for node in world.living:
            node.cast(f"{node.id}:{number}:{world.now}".encode())
        world.run(0.01)


def is_split(world: World, *parts: str) -> bool:
    return all(world.is_one(part) for part in parts)


@order
def test_d1_only_b_suspects_a_healthy_member(order: str) -> None:
    """Nobody else suspects a; the group may change its views, but it ends whole, and nothing breaks on the way."""
    world = World(order)
    nodes = world.group("abcd")
    talk(world)
    world.suspect(nodes[1], nodes[0].id)
    talk(world)
    settle(world, "abcd")
    judged(world)


def test_d1_a_standing_suspicion_of_the_coordinator_settles_in_two_views_that_stay() -> None:
    world = World("causal")
    nodes = world.group("abcd")
    world._hears = lambda node, other: not (node.id.address == "b" and other.address == "a")  # type: ignore[method-assign]
    talk(world)
    world.run(10)
    assert views_per_second(world, 10) == 0, world.story()
    assert nodes[0].view != nodes[1].view
    del world._hears
    settle(world, "abcd")
    judged(world)


@order
@pytest.mark.parametrize("ends", ["ab", "ba", "bc", "cb"])
def test_d2_one_way_link(order: str, ends: str) -> None:
    world = World(order)
    world.group("abc")
    talk(world)
    world.cut(ends[0], ends[1], both=False)
    talk(world)
    world.run(8)
    assert views_per_second(world, 8) <= 0.5, world.story()
    world.heal()
    settle(world, "abc")
    judged(world)


@order
@pytest.mark.parametrize(("apart", "middle"), [("ac", "b"), ("bc", "a"), ("ab", "c")])
def test_d3_two_links_up_and_one_cut(order: str, apart: str, middle: str) -> None:
    """Who cannot reach each other are not in one view, and the one in the middle does not go back and forth."""
    world = World(order)
    world.group("abc")
    talk(world)
    world.cut(apart[0], apart[1])
    talk(world)
    world.run(10)
    first, second = (world.nodes[name] for name in apart)
    assert first.view != second.view, world.story()
    assert views_per_second(world, 10) <= 0.3, world.story()
    world.heal()
    settle(world, "abc")
    judged(world)


@order
def test_d4_two_halves_with_unstable_messages_and_a_merge(order: str) -> None:
    world = World(order)
    world.group("abcd")
    talk(world)
    world.partition("ab", "cd")
    talk(world, 20)
    assert world.run(10, lambda: is_split(world, "ab", "cd")), world.story()
    talk(world)
    world.heal()
    talk(world, 20)
    settle(world, "abcd")
    view = world.nodes["a"].membership.charter
    assert view is not None
    assert [part.members for part in view.parts] == [
        (MemberId("a"), MemberId("b")),
        (MemberId("c"), MemberId("d")),
    ]
    judged(world)


@order
def test_d4_a_partition_in_mid_flush_closes_one_view_twice(order: str) -> None:
    """e crashes; a proposes, and the partition falls when some have closed; both halves close the same view."""
    world = World(order)
    nodes = world.group("abcde")
    talk(world, 3)
    world.cut("e", "c")
    nodes[4].cast(b"unstable")
    world.run(0.003)
    world.crash("e")
    assert world.run(5, lambda: nodes[0].membership.closed is not None)
    world.partition("ab", "cd")
    world.run(0.7)
    world.heal()
    settle(world, "abcd")
    judged(world)


@order
def test_d6_the_merge_leader_crashes(order: str) -> None:
    world = World(order)
    world.group("abcd")
    world.partition("ab", "cd")
    assert world.run(10, lambda: is_split(world, "ab", "cd"))
    talk(world)
    c = world.nodes["c"].membership
    world.heal()
    assert world.run(10, lambda: c.promised.proposer.address == "a" and c.is_engaged)
    world.crash("a")
    settle(world, "bcd")
    judged(world)


@order
def test_d7_the_merge_answer_is_lost(order: str) -> None:
    world = World(order)
    world.group("abcd")
    world.partition("ab", "cd")
    assert world.run(10, lambda: is_split(world, "ab", "cd"))
    world.heal()
    world.filter = losing(lambda s, _, m: isinstance(m, Chunk) and m.topic == ANSWER and s.address in "cd")
    talk(world)
    world.run(3)
    world.filter = None
    settle(world, "abcd")
    judged(world)


@order
def test_d7_a_member_is_already_in_another_merge(order: str) -> None:
    """Three parts; a and b both want c: one of them is outbid, and all end in one view."""
    world = World(order, settings=MembershipSettings(merge_wait_ns=SECOND // 1000))  # nobody waits for the lowest
    world.group("abc")
    world.partition("a", "b", "c")
    assert world.run(10, lambda: is_split(world, "a", "b", "c"))
    talk(world)
    world.heal()
    settle(world, "abc")
    judged(world)


@order
def test_d8_a_side_that_knows_no_coordinator(order: str) -> None:
    """The lowest of one side dies in the partition, so whom the other side remembers cannot answer."""
    world = World(order)
    world.group("abcd")
    world.partition("ab", "cd")
    assert world.run(10, lambda: is_split(world, "ab", "cd"))
    world.crash("a")
    world.crash("c")
    world.heal()
    settle(world, "bd")
    judged(world)


@order
def test_d9_a_join_during_a_partition_and_one_during_the_merge(order: str) -> None:
    world = World(order)
    world.group("abcd")
    world.partition("abe", "cdf")
    world.start("e", seeds=("a", "c"))
    world.start("f", seeds=("a", "c"))
    assert world.run(15, lambda: is_split(world, "abe", "cdf")), world.story()
    talk(world)
    world.heal()
    world.run(0.5)
    world.start("g", seeds=("d",))
    settle(world, "abcdefg")
    judged(world)


def test_d11_both_sides_gave_each_other_up_and_merge_without_an_operator() -> None:
    world = World("sequencer")
    world.group("abcd")
    world.partition("ab", "cd")
    world.run(600)
    assert is_split(world, "ab", "cd")
    world.heal()
    settle(world, "abcd", 10)
    judged(world)


@order
def test_d12_clog_members_one_by_one_and_unclog_in_another_order(order: str) -> None:
    world = World(order)
    world.group("abcdef")
    for name in "bed":
        for other in "abcdef":
            if other != name:
                world.cut(name, other)
        talk(world)
        world.run(0.2)
    for name in "ebd":
        world.cuts = {cut for cut in world.cuts if name not in cut}
        talk(world)
        world.run(0.3)
    world.heal()
    settle(world, "abcdef")
    judged(world)


# Primaries.


def primary_of(world: World) -> list[str]:
    return sorted(node.id.address for node in world.living if node.membership.is_primary)


def primary_world(names: str, order: str = "sequencer") -> World:
    settings = MembershipSettings(policy=Policy.PRIMARY, peers=tuple(names))
    world = World(order, settings=settings, owed={"P20"})
    world.group(names)
    assert world.run(5, lambda: primary_of(world) == sorted(names))
    return world


@pytest.mark.parametrize("order", ["sequencer", "causal", "abcast"])
def test_d16_five_three_two_one(order: str) -> None:
    """5 → {3, 2} → {2, 1, 2} → heal: the primary shrinks with its own majorities, and never are there two."""
    world = primary_world("abcde", order)
    world.partition("abc", "de")
    assert world.run(10, lambda: is_split(world, "abc", "de"))
    assert primary_of(world) == ["a", "b", "c"]
    talk(world)
    world.partition("ab", "c", "de")
    assert world.run(10, lambda: is_split(world, "ab", "c", "de"))
    assert primary_of(world) == ["a", "b"]
    world.partition("a", "b", "cde")
    assert world.run(10, lambda: is_split(world, "a", "b", "cde"))
    assert primary_of(world) == [], "three of five are not a majority of the last primary"
    world.heal()
    settle(world, "abcde")
    assert primary_of(world) == list("abcde")
    judged(world)


def test_a_primary_that_was_only_confirmed_counts() -> None:
    """c confirms the primary {a, b, c} and hears nothing more. With d and e it must not become primary without a and b."""
    world = primary_world("abcde")
    world.partition("abc", "de")
    c = world.nodes["c"]

    def confirms(_: MemberId, to: MemberId, message: Control) -> bool:
        return not (to.address == "c" and type(message).__name__ == "Install")

    world.filter = confirms
    assert world.run(10, lambda: c.membership.uninstalled is not None)
    world.run(0.05)
    world.partition("ab", "cde")
    world.filter = None
    assert world.run(15, lambda: is_split(world, "ab", "cde")), world.story()
    assert primary_of(world) == ["a", "b"]
    judged(world)


def test_what_is_confirmed_is_persisted_before_the_confirmation_leaves() -> None:
    world = primary_world("abc")
    for node in world.living:
        assert node.records, "a primary was confirmed without a record"


def test_a_restarted_group_is_primary_again_by_its_records() -> None:
    world = primary_world("abc")
    records = {name: node.records[-1] for name, node in world.nodes.items()}
    world.crash("a", "b", "c")
    for name in "ab":
        world.start(name, seeds=("a", "b", "c"), record=records[name])
    settle(world, "ab")
    assert world.run(5, lambda: primary_of(world) == ["a", "b"])
    judged(world)


def test_a_record_outlives_lives_that_wrote_none() -> None:
    """{a, b} is the last primary. The lives of a that follow are cut off with c and confirm no primary; none may forget it."""
    world = primary_world("abc")
    world.partition("ab", "c")
    assert world.run(10, lambda: is_split(world, "ab", "c"))
    assert primary_of(world) == ["a", "b"]
    world.partition("ac", "b")
    for _ in range(3):
        records = world.nodes["a"].records
        world.crash("a")
        world.start("a", seeds=("a", "b", "c"), record=records[-1])
        assert world.run(10, lambda: is_split(world, "ac", "b")), world.story()
        assert primary_of(world) == [], "one of two is no majority of the last primary"
    world.heal()
    settle(world, "abc")
    assert world.run(5, lambda: primary_of(world) == list("abc"))
    judged(world)


def test_a_minority_of_the_peers_is_never_the_first_primary() -> None:
    settings = MembershipSettings(policy=Policy.PRIMARY, peers=tuple("abcde"))
    world = World("fifo", settings=settings, owed={"P20"})
    world.group("ab")
    world.run(3)
    assert primary_of(world) == []
    world.start("c", seeds=("a",))
    settle(world, "abc")
    assert primary_of(world) == ["a", "b", "c"]
    judged(world)


def test_nothing_is_proposed_while_nothing_is_wrong() -> None:
    world = World("fifo")
    world.group("abc")
    seen: list[Control] = []

    def watch(_: MemberId, __: MemberId, message: Control) -> bool:
        if is_proposal(message):
            seen.append(message)
        return True

    world.filter = watch
    world.run(30)
    assert not seen
    node: Node = world.nodes["a"]
    assert payloads(node) == []
