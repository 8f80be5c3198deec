"""Scenarios C with whole members, and the lectures' four cases (003): crashes and view changes, two faults at a time.

Membership alone is tried in `tests/sim/test_membership_faults.py`, and with a fault at every point in
`test_membership_every_point.py`. Here the same stories run on real datagrams, and every run ends healed and judged.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.group_tools import is_cut, load, lose_casts, lose_control, membership, passes, settles, texts
from tests.mutants.explore_mutants import FirstReportWins
from unisono.core.config import MILLISECOND, SECOND
from unisono.core.errors import PeerFault
from unisono.core.events import Entered
from unisono.core.incarnation import begin_life
from unisono.core.member import member as member_module
from unisono.core.options import CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.types import Batch, MemberId, View
from unisono.core.views.engine import ViewEngine
from unisono.core.wire.control import Install, Propose
from unisono.orders.registry import ORDERS
from unisono.sim.group_world import GroupWorld, Process

orders = pytest.mark.parametrize("order", ["fifo", "causal-total", "tomp", "toto", "rmp"])
some_orders = pytest.mark.parametrize("order", ["causal", "sequencer", "rmp"])


def agree(*processes: Process) -> list[bytes]:
    """What all of these were shown; they must have been shown the same, in whatever order theirs allows."""
    shown = [sorted(texts(process)) for process in processes]
    assert all(one == shown[0] for one in shown), shown
    return shown[0]


@orders
def test_c1_a_sender_crashes_after_its_cast_reached_one(order: str) -> None:
    world = GroupWorld(order, seed=1)
    a, b, c, d = world.gather("abcd")
    for name in "cd":
        world.network.cut("a", name)
    a.cast(b"m", CastOptions())
    world.run(0.004)  # less than b needs to answer c and d for it
    world.crash("a")
    world.network.lose("b", "c", 0.5)
    settles(world, "bcd")
    said = agree(b, c, d)
    assert said in ([b"m"], []), "by all or by none"
    if order != "rmp":  # which discards what some survivors lack once its transmitter is gone
        assert said == [b"m"]
    passes(world)


@orders
def test_c2_one_lost_all_of_a_crashed_members_packets_and_another_has_them(order: str) -> None:
    world = GroupWorld(order, seed=2)
    a, b, c, d = world.gather("abcd")
    lose_casts(world, "c", "bd")
    for number in range(5):
        c.cast(b"%d" % number)
        world.run(0.005)
    world.crash("c")
    world.pause("d", 200 * MILLISECOND)
    settles(world, "abd")
    said = agree(a, b, d)
    if order != "rmp":
        assert said == [b"0", b"1", b"2", b"3", b"4"]
    passes(world)


@orders
def test_c3_the_coordinator_crashes_after_its_cut_reached_one(order: str) -> None:
    """b closes with the cut of a ballot that dies with its proposer: whoever comes next must adopt it."""
    world = GroupWorld(order, seed=3)
    _, b, c, d, e = world.gather("abcde")
    lose_casts(world, "e", "cd")
    e.cast(b"unstable")
    world.run(0.01)
    world.crash("e")
    lose_control(world, lambda src, dst, message: src == "a" and dst in "cd" and is_cut(message))
    assert world.run(5, lambda: membership(b).closed is not None), world.story()
    world.crash("a")
    settles(world, "bcd")
    agree(b, c, d)
    passes(world)


@orders
def test_c4_the_proposal_reached_a_majority_and_its_proposer_crashes(order: str) -> None:
    world = GroupWorld(order, seed=4)
    _, b, c, _, _ = world.gather("abcde")
    load(world, 5, 0.002)
    world.crash("e")
    lose_control(world, lambda src, dst, message: src == "a" and dst == "d" and isinstance(message, Propose))
    assert world.run(5, lambda: membership(b).is_engaged and membership(c).is_engaged), world.story()
    world.crash("a")
    settles(world, "bcd")
    passes(world)


@some_orders
@pytest.mark.parametrize("victims", ["c", "cd"])
def test_c5_one_then_two_participants_crash_during_the_flush(order: str, victims: str) -> None:
    world = GroupWorld(order, seed=5)
    processes = world.gather("abcdef")
    load(world, 5, 0.002)
    world.crash("f")
    assert world.run(5, lambda: membership(processes[2]).is_engaged), world.story()
    for victim in victims:
        world.crash(victim)
        world.run(0.002)
    settles(world, sorted(set("abcde") - set(victims)))
    passes(world)


@orders
def test_c6_two_members_start_a_view_change_at_once(order: str) -> None:
    """a crashes. c does not hear b either, so both believe that it is theirs to propose."""
    world = GroupWorld(order, seed=6)
    world.gather("abcd")
    load(world, 5, 0.002)
    world.crash("a")
    world.network.cut("b", "c")
    proposers: set[str] = set()

    def watch(src: str, dst: str, message: object) -> bool:
        ballot = getattr(message, "ballot", None)
        if ballot is not None and ballot.proposer.address == src:
            proposers.add(src)
        return False

    lose_control(world, watch)
    load(world, 100)
    assert {"b", "c"} <= proposers
    world.network.heal()
    settles(world, "bcd")
    passes(world)


@some_orders
@pytest.mark.parametrize("how", ["crash", "leave"])
def test_c7_the_install_is_lost_at_one_member_and_the_coordinator_goes(order: str, how: str) -> None:
    """b waits for a view that c has, and in which c has already cast: b installs it late, before anything else."""
    world = GroupWorld(order, seed=7)
    _, b, c, _ = world.gather("abcd")
    load(world, 3, 0.002)
    world.crash("d")
    lose_control(world, lambda src, dst, message: src == "a" and dst == "b" and isinstance(message, Install))
    assert world.run(5, lambda: len(c.views[-1]) == 3), world.story()
    missed = c.views[-1]
    c.cast(b"in the view that b has not installed")
    world.run(0.002)
    if how == "crash":
        world.crash("a")
    else:
        world.leave("a")
    settles(world, "bc")
    agree(b, c)
    assert missed in b.views
    passes(world)


@orders
def test_c8_the_coordinator_leaves_while_a_join_is_under_way(order: str) -> None:
    world = GroupWorld(order, seed=8)
    a, b, c = world.gather("abc")
    world.start("d", seeds="a")
    world.run(0.01)
    a.cast(b"m")
    world.leave("a")
    settles(world, "bcd")
    assert b"m" in texts(b)
    assert b"m" in texts(c)
    assert a.ended
    passes(world)


def test_c9_eight_of_ten_leave_at_once_under_load() -> None:
    names = "abcdefghij"
    world = GroupWorld("sequencer", seed=9)
    world.gather(names)
    load(world, 5)
    taken = sum(world.processes[name].cast(b"last of %s" % name.encode()) for name in names[:8])
    for name in names[:8]:
        world.leave(name)
    settles(world, "ij")
    assert taken == 8
    assert sum(text.startswith(b"last of") for text in texts(world.processes["i"])) == 8
    assert len(world.processes["i"].views) <= 6, "few views, not one a leaver"
    passes(world)


@orders
def test_c10_two_crashes_a_few_milliseconds_apart(order: str) -> None:
    world = GroupWorld(order, seed=10)
    world.gather("abcde")
    load(world, 10, 0.002)
    world.crash("a")
    world.run(0.003)
    world.crash("c")
    load(world, 60)
    settles(world, "bde")
    passes(world)


@orders
def test_c11_c13_casts_around_a_flush_belong_to_exactly_one_view_and_none_is_lost(order: str) -> None:
    """The application casts before, between and after; what is queued while blocked goes into the next view."""
    world = GroupWorld(order, seed=11)
    _, b, _, _ = world.gather("abcd")
    world.network.loss = 0.05
    sent: list[bytes] = []
    while_blocked = 0
    for number in range(120):
        if number == 20:
            world.crash("d")
        for process in world.up:
            text = f"{process.id}/{number}".encode()
            was_blocked = process.member.is_blocked
            if process.cast(text):
                while_blocked += was_blocked
                if process.id.address != "d":
                    sent.append(text)
        world.run(0.005)
    settles(world, "abc")
    world.run(2)
    assert while_blocked, "no cast fell into the change"
    shown = [text for text in texts(b) if not text.startswith(b"d/")]
    assert sorted(shown) == sorted(sent), "each in exactly one view, none lost"
    passes(world)


@orders
def test_c14_stopped_for_longer_than_the_failure_timeout_with_casts_queued(order: str) -> None:
    """c casts and is stopped at once. Woken, it learns that it was excluded, and rejoins as itself; then a crashes."""
    world = GroupWorld(order, seed=14)
    a, _b, c = world.gather("abc")
    load(world, 5)
    for number in range(20):
        c.member.cast(b"queued %d" % number)
    world.pause("c", 2 * SECOND)
    load(world, 100)
    assert len(a.views[-1]) == 2
    assert len(c.views) == 1
    settles(world, "abc")
    assert c.id == MemberId("c", 0)
    assert len(c.views) > 1, "it has learnt that it was excluded"
    world.crash("a")
    settles(world, "bc")
    assert sum(text.startswith(b"queued") for text in texts(c)) == 20, "its own word stands"
    passes(world)


def test_c17_duplicate_and_late_join_answers_in_a_whole_group() -> None:
    """Greetings come twice, late, and again long after: a member joins once, and nothing moves afterwards."""
    world = GroupWorld("causal", seed=17, delay="uniform:1ms:60ms")
    world.network.duplicate, world.network.loss, world.network.reorder = 1.0, 0.2, 0.3
    world.gather("abc")
    greetings: list[tuple[str, bytes]] = []

    def listen(src: str, dst: str, datagram: bytes) -> bool:
        greetings.append((dst, datagram))
        return False

    world.network.drops = listen
    world.start("d", seeds="ab")
    settles(world, "abcd")
    views = [len(process.views) for process in world.up]
    for dst, datagram in greetings:
        world.processes[dst].take(datagram)
    load(world, 20)
    assert [len(process.views) for process in world.up] == views
    passes(world)


@pytest.mark.parametrize("count", [8, 16])
def test_c18_many_start_at_once_and_form_one_group_within_a_bound(count: int) -> None:
    names = [f"m{number:02}" for number in range(count)]
    world = GroupWorld("fifo", seed=18)
    world.network.loss = 0.05
    world.gather(names, seconds=5)
    assert max(len(process.views) for process in world.up) <= 5
    passes(world)


@orders
def test_c19_restart_at_the_same_address_before_exclusion(order: str) -> None:
    world = GroupWorld(order, seed=19)
    _, b, _ = world.gather("abc")
    load(world, 5, 0.002)
    world.restart("a", "bc")  # nobody suspects the old one yet
    world.run(0.004)
    world.pause("b", 100 * MILLISECOND)
    settles(world, "abc")
    assert b.views[-1].members[0] == MemberId("a", 1)
    assert all(len({member.address for member in view.members}) == len(view) for view in b.views)
    passes(world)


# C20: incarnations. The rule itself is tried in tests/unit/test_incarnation.py.

NOON = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("record", "wall_ns"),
    [("kept", NOON + SECOND), ("kept", NOON - 3_600 * SECOND), ("truncated", NOON + SECOND), (None, NOON + SECOND)],
    ids=["both good", "clock set back", "file truncated", "file gone"],
)
def test_c20_a_new_life_is_known_as_new_if_file_or_clock_is_good(record: str | None, wall_ns: int) -> None:
    world = GroupWorld("sequencer", seed=20)
    first = begin_life(None, NOON)
    world.start("a", "b", seeds="ab")
    world.start("c", seeds="ab", incarnation=first.incarnation)
    settles(world, "abc")
    load(world, 10)
    kept = {"kept": first.record, "truncated": first.record[:-3], None: None}[record]
    second = begin_life(kept, wall_ns)
    world.crash("c")
    world.start("c", seeds="ab", incarnation=second.incarnation)
    settles(world, "abc", 3)
    load(world, 10)
    world.crash("a")
    settles(world, "bc")
    assert world.processes["b"].views[-1].members[-1] == MemberId("c", second.incarnation)
    passes(world)


def test_c20_if_both_fail_the_new_life_is_refused_as_an_old_one_and_the_group_is_safe() -> None:
    world = GroupWorld("sequencer", seed=20)
    first = begin_life(None, NOON)
    world.start("a", "b", seeds="ab")
    world.start("c", seeds="ab", incarnation=first.incarnation)
    settles(world, "abc")
    world.crash("c")
    world.start("c", seeds="ab", incarnation=begin_life(first.record[:5], NOON - SECOND).incarnation)
    load(world, 200)
    settles(world, "ab")
    world.crash("c")
    passes(world)


@pytest.mark.parametrize("order", ["abcast", "all-ack", "rmp"])
def test_c21_stability_counts_neither_who_left_nor_who_has_not_yet_joined(order: str) -> None:
    """Safe messages wait for exactly the members of the view."""
    world = GroupWorld(order, seed=21)
    a, b, _ = world.gather("abc")
    world.leave("c")
    settles(world, "ab")
    world.start("d", seeds="x")  # knocks at a wrong address: it is no member
    a.cast(b"without c", CastOptions(safe=True))
    assert world.run(0.5, lambda: texts(b) == [b"without c"]), "nobody waits for one who left, or has not joined"
    world.crash("d")
    (e,) = world.start("e", seeds="ab")
    settles(world, "abe")
    world.network.cut("e", "a")
    world.network.cut("e", "b")
    a.cast(b"with e", CastOptions(safe=True))
    world.run(0.15)
    assert b"with e" not in texts(b), "e has not said that it has it"
    world.network.heal()
    world.run(1)
    assert texts(b)[-1] == texts(e)[-1] == b"with e"
    passes(world)


# The lectures (003): p casts m and crashes; q and r go on.

Shown = dict[str, list[str]]


def crash_of_p(order: str, reached: str, kind: type[AnyOrdering] | None = None) -> tuple[GroupWorld, Shown]:
    """Also returns what q and r were shown, of m and the view (q,r), in that order."""
    world = GroupWorld(order, seed=36, orders={**ORDERS, order: kind or ORDERS[order]})
    p, q, r = world.gather("pqr")
    shown: Shown = {"q": [], "r": []}

    def note(process: Process, event: object) -> None:
        if isinstance(event, Batch | Entered):
            shown[process.id.address].append("m" if isinstance(event, Batch) else "view")

    q.on_event = r.on_event = note
    for name in "qr":
        if name not in reached:
            lose_casts(world, "p", name)
    p.cast(b"m")
    world.run(0.01)
    world.crash("p")
    settles(world, "qr")
    return world, shown


four_orders = pytest.mark.parametrize("order", ["fifo", "causal", "sequencer", "abcast"])


@four_orders
def test_lectures_a_nobody_delivers_m_and_then_the_view(order: str) -> None:
    world, shown = crash_of_p(order, reached="")
    assert shown == {"q": ["view"], "r": ["view"]}
    passes(world)


@pytest.mark.parametrize("reached", ["q", "r", "qr"])
@four_orders
def test_lectures_b_both_deliver_m_and_then_the_view(order: str, reached: str) -> None:
    world, shown = crash_of_p(order, reached)
    assert shown == {"q": ["m", "view"], "r": ["m", "view"]}
    passes(world)


class ViewFirst(ViewEngine):
    """Shows the next view, and then the rest of the old one."""

    def install(self, view: View, *rest: Any, **more: Any) -> None:
        events, notes = len(self.showing.events), len(self._out.notes)
        super().install(view, *rest, **more)
        for shown, before in ((self.showing.events, events), (self._out.notes, notes)):
            shown.insert(before, shown.pop())  # type: ignore[arg-type]


def test_lectures_c_the_view_and_then_m_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours never shows it (b); one that does is caught."""
    monkeypatch.setattr(member_module, "ViewEngine", ViewFirst)
    world, shown = crash_of_p("fifo", reached="q")
    assert shown["r"] == ["view", "m"]
    assert world.finish().result == "FAIL"


def test_lectures_d_m_at_one_and_not_at_the_other_is_not_allowed() -> None:
    """Ours never shows it (b). A flush that takes one report for the whole truth would: r does not close with such a cut."""
    with pytest.raises(PeerFault, match="r takes another member for a liar"):
        crash_of_p("fifo", "r", FirstReportWins)


def test_views_have_names_that_never_repeat() -> None:
    world = GroupWorld("fifo", seed=37)
    world.gather("abc")
    world.partition("ab", "c")
    world.run(3)
    world.network.partition(())
    settles(world, "abc")
    for process in world.up:
        assert len({view.id for view in process.views}) == len(process.views)
    assert len({view.id for process in world.up for view in process.views}) >= 4
    passes(world)
