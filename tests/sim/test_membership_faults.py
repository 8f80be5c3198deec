"""Membership under faults: docs/scenarios.md, C and D, the lectures' four cases (003). Every story is told by star and by ring.

Every run ends with a heal and the judgement of the checkers P0–P16, P22 and, with primaries, P20.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.membership_harness import Node, World
from unisono.core.config import MILLISECOND
from unisono.core.membership.settings import MembershipSettings
from unisono.core.options import CastOptions
from unisono.core.types import Batch, MemberId, View
from unisono.core.wire.control import CUT, DECREE, ROLL, Chunk, Confirm, Control, Install, Propose
from unisono.trace.checks import Result

ORDERS = ("fifo", "causal", "sequencer", "abcast", "tomp", "toto", "all-ack")
order = pytest.mark.parametrize("order", ORDERS)
pytestmark = pytest.mark.usefixtures("collect")


def judged(world: World) -> None:
    verdict = world.finish()
    assert verdict.result is Result.PASS, f"{verdict}\n{world.story()}"


def settle(world: World, names: str, seconds: float = 15) -> None:
    assert world.run(seconds, lambda: world.is_one(names)), world.story()


def payloads(node: Node) -> list[bytes]:
    return [payload for batch in node.shown if isinstance(batch, Batch) for payload in batch.payloads or ()]


def losing(*rules: Callable[[MemberId, MemberId, Control], bool]) -> Callable[[MemberId, MemberId, Control], bool]:
    """Lose every control message that one of the rules names."""
    return lambda sender, to, message: not any(rule(sender, to, message) for rule in rules)


def is_cut(message: Control) -> bool:
    return isinstance(message, Chunk) and message.topic in (CUT, DECREE)


def is_proposal(message: Control) -> bool:
    return isinstance(message, Propose) or (isinstance(message, Chunk) and message.topic == ROLL)


# Crash and view change.


@order
def test_c1_a_sender_crashes_after_reaching_one(order: str) -> None:
    world = World(order)
    a, b, c, d = world.group("abcd")
    world.cut("a", "c")
    world.cut("a", "d")
    a.cast(b"m")
    world.run(0.02)
    world.crash("a")
    world.heal()
    world.cut("a", "c")
    world.cut("a", "d")
    settle(world, "bcd")
    assert payloads(b) == payloads(c) == payloads(d) == [b"m"]
    judged(world)


@order
def test_c2_one_lost_all_of_a_crashed_members_packets(order: str) -> None:
    world = World(order)
    a, b, c = world.group("abc")
    world.cut("c", "b")
    for number in range(5):
        c.cast(b"%d" % number)
        world.run(0.01)
    world.crash("c")
    settle(world, "ab")
    assert payloads(a) == payloads(b) == [b"0", b"1", b"2", b"3", b"4"]
    judged(world)


@order
def test_c3_the_coordinator_crashes_after_sending_one_cut(order: str) -> None:
    """b closes with the cut of a ballot that dies with its proposer; the next ballot must adopt that cut."""
    world = World(order)
    nodes = world.group("abcde")
    world.cut("e", "c")
    nodes[4].cast(b"unstable")
    nodes[0].cast(b"other")
    world.run(0.004)
    world.crash("e")
    world.filter = losing(lambda s, to, m: is_cut(m) and s.address == "a" and to.address in "cd")
    b = nodes[1].membership
    assert world.run(5, lambda: b.closed is not None)
    world.crash("a")
    cut = b.closed
    settle(world, "bcd")
    assert cut is not None
    assert all(node.membership.charter.parts[0].cut == cut.id for node in nodes[1:4])  # type: ignore[union-attr]
    judged(world)


@order
def test_c3_the_coordinator_forwards_to_one_member_and_crashes(order: str) -> None:
    """Only a holds what e cast; it hands it to b with the cut and dies. b has closed, so c and d must follow."""
    world = World(order)
    nodes = world.group("abcde")
    for name in "bcd":
        world.cut("e", name)
    nodes[4].cast(b"forwarded")
    world.run(0.02)
    world.crash("e")
    world.filter = losing(lambda s, to, m: is_cut(m) and s.address == "a" and to.address in "cd")
    assert world.run(5, lambda: nodes[1].membership.closed is not None)
    world.crash("a")
    settle(world, "bcd")
    assert payloads(nodes[1]) == payloads(nodes[2]) == payloads(nodes[3]) == [b"forwarded"]
    judged(world)


@order
def test_one_that_comes_back_in_mid_flush_keeps_what_the_others_cut_off(order: str) -> None:
    """a, b and c close without d, which they do not hear. Before they install, a dies and d is heard again: their cut does
    not count d's report, so d closes the view with a cut of its own, and comes along alone."""
    world = World(order)
    nodes = world.group("abcd")
    for name in "abc":
        world.cut("d", name, both=False)
    nodes[3].cast(b"only d has it")
    parts = [node.membership for node in nodes]
    world.filter = losing(lambda _, __, m: isinstance(m, Confirm))
    assert world.run(5, lambda: all(p.closed is not None for p in parts[:3]))
    assert not parts[3].is_engaged
    world.crash("a")
    world.heal()
    world.filter = None
    settle(world, "bcd")
    judged(world)
    first = next(view for view in nodes[3].views if len(view) == 3)
    assert first in nodes[1].views
    assert payloads(nodes[3]) == [b"only d has it", *payloads(nodes[1])]


@order
def test_a_payload_is_void_for_all_who_close_with_a_cut_or_for_none(order: str) -> None:
    """d casts to a and b, b misses it, d dies. a's cut reaches a and c alone, and a delivers. b does not hear a and proposes to
    c, who has closed and holds a placeholder: with that cut b would take for void what a delivered, and meet a as its own."""
    world = World(order)
    nodes = world.group("abcd")
    a, b, c, d = nodes
    parts = [node.membership for node in nodes]
    world.cut("d", "b", both=False)
    d.cast(b"for a and b", CastOptions((a.id, b.id)))
    world.run(0.02)
    world.crash("d")
    world.filter = losing(lambda s, to, m: is_cut(m) and (s.address, to.address) == ("a", "b"))
    assert world.run(5, lambda: parts[0].closed is not None and parts[2].closed is not None)
    world.cut("a", "b", both=False)
    world.cut("a", "c", both=False)
    world.suspect(b, a.id)
    assert world.run(1, lambda: parts[1].closed is not None), world.story()
    assert a.view == b.view == c.view
    assert not payloads(b)
    world.heal()
    world.filter = losing(lambda s, to, m: (s.address, to.address) == ("c", "b"))
    settle(world, "abc")
    assert [payloads(node) for node in (a, b, c)] == [[b"for a and b"], [], []]
    first = next(view for view in a.views if len(view) == 3)
    assert first in b.views
    charter = parts[0].charter
    assert charter is not None
    assert sorted(tuple(member.address for member in part.members) for part in charter.parts) == [("a", "c"), ("b",)]
    judged(world)


@order
def test_what_is_void_for_one_who_closed_is_void_for_those_who_follow(order: str) -> None:
    """d casts to b and c, and dies before either has it; a has the placeholder. a's cut reaches b alone, and a dies. b is an
    addressee and knows that the payload is void, so c follows it, and they stay together."""
    world = World(order)
    nodes = world.group("abcd")
    world.cut("d", "b", both=False)
    world.cut("d", "c", both=False)
    nodes[3].cast(b"for b and c", CastOptions((nodes[1].id, nodes[2].id)))
    world.run(0.02)
    world.crash("d")
    world.filter = losing(lambda s, to, m: is_cut(m) and s.address == "a" and to.address == "c")
    b = nodes[1].membership
    assert world.run(5, lambda: b.closed is not None)
    world.crash("a")
    cut = b.closed
    settle(world, "bc")
    assert cut is not None
    assert b.charter is not None
    assert [(part.cut, part.members) for part in b.charter.parts] == [(cut.id, (nodes[1].id, nodes[2].id))]
    assert payloads(nodes[1]) == payloads(nodes[2]) == []
    judged(world)


def test_a_silent_participant_is_left_out_by_another_ballot() -> None:
    world = World("sequencer")
    nodes = world.group("abcd")
    nodes[1].cast(b"m")
    world.crash("d")
    world.filter = losing(lambda _, to, m: is_cut(m) and to.address == "c")
    settle(world, "ab", 4)
    world.filter = None
    settle(world, "abc")
    judged(world)


@order
def test_one_that_was_left_behind_finds_out(order: str) -> None:
    """a and b go on without c, which suspects nobody; a stranger's greeting makes it ask the others where they are."""
    world = World(order)
    nodes = world.group("abc")
    world._hears = lambda node, other: other.address != "c"  # type: ignore[method-assign]
    settle(world, "ab", 5)
    view = nodes[2].view
    assert view is not None
    assert world.run(10, lambda: nodes[2].view is not view), world.story()
    del world._hears
    settle(world, "abc")
    judged(world)


@order
def test_c4_the_proposal_reached_a_majority_and_its_proposer_crashes(order: str) -> None:
    world = World(order)
    nodes = world.group("abcde")
    nodes[1].cast(b"m")
    world.crash("e")
    world.filter = losing(lambda s, to, m: is_proposal(m) and s.address == "a" and to.address == "d")
    engaged = [nodes[n].membership for n in (1, 2)]
    assert world.run(5, lambda: all(p.is_engaged for p in engaged))
    world.crash("a")
    settle(world, "bcd")
    judged(world)


@order
@pytest.mark.parametrize("victims", ["c", "cd"])
def test_c5_participants_crash_during_the_flush(order: str, victims: str) -> None:
    world = World(order)
    nodes = world.group("abcdef")
    for node in nodes:
        node.cast(b"m")
    world.run(0.003)
    world.crash("f")
    assert world.run(5, lambda: nodes[2].membership.is_engaged)
    world.crash(*victims)
    settle(world, "".join(sorted(set("abcde") - set(victims))))
    judged(world)


@order
def test_c6_two_members_start_a_view_change_at_once(order: str) -> None:
    world = World(order)
    nodes = world.group("abcd")
    nodes[3].cast(b"m")
    world.crash("a")
    world.suspect(nodes[1], nodes[0].id)
    world.suspect(nodes[2], nodes[0].id)
    world.suspect(nodes[2], nodes[1].id)  # so c believes that it is the lowest
    settle(world, "bcd")
    judged(world)


@pytest.mark.parametrize("how", ["crash", "leave"])
@order
def test_c7_the_install_is_lost_at_one_member_and_the_coordinator_goes(order: str, how: str) -> None:
    """b waits for a view that c has, and in which c has already cast: b installs it late, before anything else."""
    world = World(order)
    nodes = world.group("abcd")
    world.crash("d")
    world.filter = losing(lambda s, to, m: isinstance(m, Install) and to.address == "b")
    b, c = nodes[1], nodes[2]
    assert world.run(5, lambda: c.view is not None and len(c.view) == 3)
    missed = c.view
    c.cast(b"in the view that b has not installed")
    world.run(0.002)
    if how == "crash":
        world.crash("a")
    else:
        nodes[0].turn(nodes[0].membership.leave)
    world.run(0.2)
    world.filter = None
    settle(world, "bc")
    assert missed in b.views
    assert payloads(b) == payloads(c)
    judged(world)


@order
def test_c8_the_coordinator_leaves_while_a_join_is_under_way(order: str) -> None:
    world = World(order)
    nodes = world.group("abc")
    world.start("d", seeds=("a",))
    world.run(0.01)
    nodes[0].cast(b"m")
    nodes[0].turn(nodes[0].membership.leave)
    settle(world, "bcd")
    assert b"m" in payloads(nodes[1])
    judged(world)


@pytest.mark.parametrize("leaver", ["a", "b"])
def test_c8_one_that_leaves_before_it_has_a_view_installs_none(leaver: str) -> None:
    """C8: it has confirmed its first view, a as the proposer. The others' confirmations come when it is gone."""
    world = World("fifo")
    world.start("a", "b", seeds=("a", "b"))
    node = world.nodes[leaver]
    assert world.run(5, lambda: node.membership.uninstalled is not None), world.story()
    node.turn(node.membership.leave)
    assert node.ended
    settle(world, "b" if leaver == "a" else "a")
    assert node.view is None
    assert node.membership.explain() is None
    judged(world)


@order
def test_c9_coordinator_and_next_in_line_leave_at_once(order: str) -> None:
    world = World(order)
    nodes = world.group("abcd")
    for node in nodes[:2]:
        node.cast(b"last words")
        node.turn(node.membership.leave)
    settle(world, "cd")
    assert payloads(nodes[2]).count(b"last words") == 2
    judged(world)


def test_c9_eight_of_ten_leave_at_once() -> None:
    world = World("sequencer")
    nodes = world.group("abcdefghij")
    for node in nodes[:8]:
        node.cast(b"m")
        node.turn(node.membership.leave)
    settle(world, "ij")
    assert len(payloads(nodes[8])) == 8
    assert len(nodes[9].views) - len(world.nodes["a"].views) <= 4  # few views, not one a leaver
    judged(world)


@order
def test_everyone_leaves(order: str) -> None:
    world = World(order)
    nodes = world.group("abc")
    for node in nodes:
        node.cast(b"m")
    for node in nodes:
        node.turn(node.membership.leave)
    assert world.run(15, lambda: all(node.ended for node in nodes)), world.story()
    judged(world)


@order
def test_c10_two_crashes_a_few_milliseconds_apart(order: str) -> None:
    world = World(order)
    nodes = world.group("abcde")
    for node in nodes:
        node.cast(b"m")
    world.run(0.002)
    world.crash("a")
    world.run(0.003)
    world.crash("c")
    settle(world, "bde")
    judged(world)


@order
def test_c11_c13_casts_during_a_change_belong_to_exactly_one_view(order: str) -> None:
    world = World(order)
    nodes = world.group("abcd")
    world.crash("d")
    b = nodes[1]
    sent = []
    blocked_casts = 0
    for number in range(120):
        for node in nodes[:3]:
            payload = f"{node.id}/{number}".encode()
            sent.append(payload)
            blocked_casts += node.membership.is_engaged
            node.cast(payload)
        world.run(0.005)
    settle(world, "abc")
    world.run(1)
    assert blocked_casts, "no cast fell into the change"
    assert sorted(payloads(b)) == sorted(sent)
    judged(world)


def test_c17_duplicate_and_late_join_answers() -> None:
    world = World("causal", loss=0.2, duplication=1.0)
    world.delay_ns = (MILLISECOND, 400 * MILLISECOND)
    world.start(*"abc", seeds=tuple("abc"))
    world.run(20)
    world.delay_ns = (MILLISECOND, 5 * MILLISECOND)
    judged(world)


@pytest.mark.parametrize("count", [8, 32])
def test_c18_many_start_at_once_and_few_views_are_enough(count: int) -> None:
    names = [f"m{number:02}" for number in range(count)]
    world = World("fifo")
    world.start(*names, seeds=tuple(names[:3]))
    assert world.run(5, lambda: world.is_one(names)), world.story()
    assert max(len(node.views) for node in world.living) <= 4
    judged(world)


def test_members_wait_for_each_other_if_they_are_told_to() -> None:
    world = World("fifo", settings=MembershipSettings(members_min=3))
    a, b = world.start("a", "b", seeds=("a", "b", "c"))
    world.run(5)
    assert a.view is None
    assert b.view is None
    world.start("c", seeds=("a",))
    settle(world, "abc")
    assert len(a.views) == 1
    judged(world)


@order
def test_c19_restart_at_the_same_address_before_exclusion(order: str) -> None:
    world = World(order)
    nodes = world.group("abc")
    nodes[0].cast(b"m")
    world.run(0.003)
    world.crash("a")
    world.start("a", seeds=("b", "c"))  # at once: nobody suspects the old one yet
    settle(world, "abc")
    view = nodes[1].view
    assert view is not None
    assert MemberId("a", 1) in view.members
    judged(world)


def test_c19_a_new_life_proves_that_the_old_one_is_over() -> None:
    """A detector that listens to addresses never suspects the old life; the greeting of the new one is enough, at once."""
    world = World("causal")
    world.group("abc")
    world._hears = lambda node, other: True  # type: ignore[method-assign]
    world.crash("a")
    world.start("a", seeds=("b", "c"))
    settle(world, "abc", 0.9)
    del world._hears
    judged(world)


def test_c21_an_order_that_needs_everyone_waits_for_joiners_and_not_for_those_who_left() -> None:
    world = World("abcast")
    nodes = world.group("abc")
    nodes[2].turn(nodes[2].membership.leave)
    settle(world, "ab")
    nodes[0].cast(b"without c")
    world.run(0.1)
    assert payloads(nodes[1]) == [b"without c"]
    (d,) = world.start("d", seeds=("a",))
    settle(world, "abd")
    world.cut("d", "a")
    nodes[0].cast(b"with d")
    world.run(0.1)
    assert payloads(nodes[1]) == [b"without c"]
    world.heal()
    world.run(0.1)
    assert payloads(nodes[1])[-1] == payloads(d)[-1] == b"with d"
    judged(world)


# The lecture's four cases: p casts m and crashes; q and r go on.


@pytest.mark.parametrize("order", ["fifo", "causal", "sequencer"])
@pytest.mark.parametrize("reached", ["", "q", "qr"])
def test_lectures_m_is_delivered_by_both_before_the_view_or_by_none(order: str, reached: str) -> None:
    """(a) nobody delivers m, or (b) both deliver it before the view; never (c) after it, never (d) only one."""
    world = World(order)
    p, q, r = world.group("pqr")
    for name in "qr":
        if name not in reached:
            world.cut("p", name)
    p.cast(b"m")
    world.run(0.02)
    world.crash("p")
    settle(world, "qr")
    for node in (q, r):
        assert payloads(node) == ([b"m"] if reached else [])
        events = [event if isinstance(event, View) else "m" for event in node.shown]
        assert isinstance(events[-1], View), "the view comes after m"
    judged(world)
