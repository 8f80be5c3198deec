"""Scenarios B with whole members: on one script the naive variant of an order fails, and ours passes.

The same traps on single schedules and in every schedule are in `tests/unit/test_traps.py` and `tests/sim/test_explore.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.group_tools import body_in, load, lose_casts, lose_control, passes, settles, texts, with_membership
from tests.mutants import causal_mutants, explore_mutants, rmp_mutants, stamped_mutants
from unisono.core.config import MILLISECOND, SECOND, Config
from unisono.core.errors import PeerFault
from unisono.core.events import Entered
from unisono.core.member import member as member_module
from unisono.core.options import CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.outbox import EngineEffects
from unisono.core.types import Batch, Packet, Rank, Service, View
from unisono.core.views.engine import Phase, ViewEngine
from unisono.core.wire.control import Notice
from unisono.orders.fifo import Fifo
from unisono.orders.holdback import longest_held
from unisono.orders.registry import ORDERS
from unisono.orders.sequencer import Sequencer, SequencerCut, SequencerReport
from unisono.sim.group_world import GroupWorld, Process

Script = Callable[[GroupWorld], None]
ASSERTION = "an assertion"


def broken(order: str, kind: type[AnyOrdering], script: Script, seed: int = 0) -> set[str]:
    """What a group with this variant of an order breaks in a script: properties, or an assertion inside of it."""
    world = GroupWorld(order, seed, orders={**ORDERS, order: kind})
    world.has_liars = True  # what such a member sends may be refused, and that is no mistake here
    try:
        script(world)
        return set(world.finish().broken)
    except AssertionError:
        return {ASSERTION}


def keeps(order: str, script: Script, seed: int = 0) -> None:
    world = GroupWorld(order, seed)
    script(world)
    passes(world)


# B1: the counter must follow the final stamps.


def a_proposal_overtakes_a_message(world: GroupWorld) -> None:
    """x and y cross. y is lost on its way to a, the proposal for x is not; then the final stamp of x is lost on its way
    to b, and a's proposal for y is not: b decides y before it knows that x is decided."""
    a, b = world.gather("ab")
    seen: set[tuple[str, int]] = set()

    def drops(src: str, dst: str, datagram: bytes) -> bool:
        body = body_in(datagram)
        if body is None or not body.is_cast or (src, body.seq) in seen:
            return False
        seen.add((src, body.seq))
        return (src, body.seq) in (("b", 0), ("a", 1))

    world.network.drops = drops
    a.cast(b"x")
    b.cast(b"y")
    world.run(0.5)
    assert len(texts(a)) == len(texts(b)) == 2


@pytest.mark.parametrize(
    ("order", "naive"),
    [("abcast", stamped_mutants.AbcastCounterStays), ("tomp", stamped_mutants.TompCounterStays)],
)
def test_b1_the_counter_follows_the_final_stamps(order: str, naive: type[AnyOrdering]) -> None:
    assert "P9a" in broken(order, naive, a_proposal_overtakes_a_message)
    keeps(order, a_proposal_overtakes_a_message)


# B2: equal counters of several proposers are told apart by their ranks.


def many_cross(world: GroupWorld) -> None:
    world.network.loss = 0.3
    world.gather("abc")
    load(world, 40, 0.002)


@pytest.mark.parametrize(
    ("order", "naive"), [("abcast", stamped_mutants.AbcastByCounter), ("tomp", stamped_mutants.TompByCounter)]
)
def test_b2_equal_final_counters_of_several_proposers(order: str, naive: type[AnyOrdering]) -> None:
    assert "P9a" in broken(order, naive, many_cross)
    keeps(order, many_cross)


# B3: somebody joins, leaves or crashes between proposal and final stamp.


def between_proposal_and_final(event: str) -> Script:
    """x of a reaches c and never b. b casts y, which a and c propose for, and delivers it. Then the view changes."""

    def script(world: GroupWorld) -> None:
        a, b, c = world.gather("abc")
        lose_casts(world, "a", "b")
        a.cast(b"x")
        world.run(0.02)
        b.cast(b"y")
        assert world.run(0.2, lambda: b"y" in texts(b))
        world.run(0.01)
        assert texts(c) == [], "y waits there for the stamp of x"
        match event:
            case "crash":
                world.crash("a")
            case "leave":
                world.leave("a")
            case "join":
                world.start("d", seeds="abc")
        world.run(3)
        assert texts(c) == texts(b) == [b"y", b"x"]

    return script


@pytest.mark.parametrize("event", ["crash", "leave", "join"])
@pytest.mark.parametrize("order", ["abcast", "tomp"])
def test_b3_the_view_changes_between_proposal_and_final(order: str, event: str) -> None:
    keeps(order, between_proposal_and_final(event))


@pytest.mark.parametrize(
    ("order", "naive"), [("abcast", stamped_mutants.AbcastHoldersAlone), ("tomp", stamped_mutants.TompHoldersAlone)]
)
def test_b3_a_merge_of_the_holders_stamps_alone_splits_the_order(order: str, naive: type[AnyOrdering]) -> None:
    assert broken(order, naive, between_proposal_and_final("crash"))


# B4: an acknowledgement overtakes data. (The variant that sends them apart fails in `test_traps`.)


@pytest.mark.parametrize("order", ["all-ack", "toto"])
def test_b4_an_acknowledgement_overtakes_data(order: str) -> None:
    """x of a is lost on its way to c, b's acknowledgement of it is not: c waits for x, and delivers it before y."""
    world = GroupWorld(order, seed=4)
    a, b, c = world.gather("abc")
    lose_casts(world, "a", "c")
    a.cast(b"x")
    world.run(0.05)
    b.cast(b"y")
    world.run(0.1)
    assert texts(c) == [], "everything acknowledges x, which is not here"
    world.crash("b")  # and the second fault
    world.network.drops = None
    world.run(2)
    assert texts(a) == texts(c)
    assert texts(c)[:1] == [b"x"]
    passes(world)


# B5: one member has nothing to say.


def one_alone_speaks(world: GroupWorld) -> None:
    a, b, _c = world.gather("abc")
    for number in range(20):
        a.cast(b"%d" % number)
        world.run(0.02)
    world.pause("c", 100 * MILLISECOND)
    a.cast(b"while c stands still")
    world.run(0.5)
    assert len(texts(b)) == 21


@pytest.mark.parametrize("order", ["abcast", "tomp", "toto", "all-ack"])
def test_b5_a_silent_member_does_not_hold_the_others_up(order: str) -> None:
    keeps(order, one_alone_speaks)


@pytest.mark.parametrize("order", ["abcast", "tomp", "toto", "all-ack"])
def test_b5_a_member_that_is_silent_for_ever_is_left_out(order: str) -> None:
    world = GroupWorld(order, seed=5)
    a, b, _c = world.gather("abc")
    for name in "ab":
        world.network.cut("c", name)
    a.cast(b"x")
    assert world.run(5, lambda: texts(b) == [b"x"] and world.is_one("ab")), world.story()
    passes(world)


def test_b5_without_explicit_acknowledgements_everyone_waits_for_ever() -> None:
    assert broken("all-ack", explore_mutants.NeverAcknowledges, one_alone_speaks)


# B6: one sender's messages come out of order. (On a channel that does not mend that, a sequencer is not FIFO: papers, 003.)


@pytest.mark.parametrize("order", ["sequencer", "fifo-total", "causal-total"])
def test_b6_one_senders_messages_reach_the_sequencer_out_of_order(order: str) -> None:
    world = GroupWorld(order, seed=6, owed=("P6", "P7"))
    world.gather("abc")
    world.network.reorder = 0.6
    world.network.lose("b", "a", 0.4)
    for number in range(60):
        world.processes["b"].cast(b"%d" % number)
        world.run(0.001)
    world.crash("a")  # the second fault: the sequencer goes while messages are out of order
    world.run(3)
    assert texts(world.processes["c"]) == [b"%d" % number for number in range(60)]
    passes(world)


# B7: the sequencer numbers for some, and crashes.


def numbered_for_a_subset(world: GroupWorld) -> None:
    """a numbers d's y before b's x and tells b alone; b delivers both."""
    _a, b, c, d = world.gather("abcd")
    lose_casts(world, "a", "cd")
    d.cast(b"y")
    world.run(0.02)
    b.cast(b"x")
    world.run(0.05)
    assert texts(b) == [b"y", b"x"]
    assert texts(c) == texts(d) == []
    world.crash("a")
    world.run(0.003)
    world.pause("c", 30 * MILLISECOND)  # the second fault
    world.run(3)


class ForgetsNumbers(Sequencer):
    """After the sequencer's end everything goes by name, whatever was numbered."""

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, SequencerReport]) -> SequencerCut:
        held = longest_held(reports)
        order = [(origin, number) for origin in range(len(view)) for number in range(1, held[origin] + 1)]
        return SequencerCut(held, tuple(order))


@pytest.mark.parametrize("order", ["sequencer", "fifo-total", "causal-total"])
def test_b7_the_sequencer_crashes_after_numbering_to_a_subset(order: str) -> None:
    world = GroupWorld(order, seed=7)
    numbered_for_a_subset(world)
    assert texts(world.processes["c"]) == texts(world.processes["d"]) == [b"y", b"x"]
    passes(world)


def test_b7_a_successor_that_forgets_the_numbers_splits_the_order() -> None:
    assert broken("sequencer", ForgetsNumbers, numbered_for_a_subset, seed=7)


# B8: failover while what the old sequencer did not acknowledge is sent again.


def failover(sends_again: bool) -> GroupWorld:
    """b's messages reached the sequencer, whose answers are lost; it crashes. The streams send again by themselves; a
    naive member also hands the new sequencer everything that it has no number for."""
    world = GroupWorld("sequencer", seed=8)
    _a, b, _c = world.gather("abc")
    world.network.cut("a", "b")
    for number in range(10):
        b.cast(b"%d" % number)
        world.run(0.005)
    world.crash("a")
    unnumbered = [b"%d" % number for number in range(10)][len(texts(b)) :]
    assert unnumbered
    world.network.loss = 0.2  # the second fault: what is sent again gets lost again
    settles(world, "bc")
    if sends_again:
        for text in unnumbered:
            b.cast(text)
    world.run(2)
    return world


def test_b8_failover_while_unacknowledged_forwards_are_sent_again() -> None:
    world = failover(sends_again=False)
    for name in "bc":
        assert texts(world.processes[name]) == [b"%d" % number for number in range(10)], "each once"
    passes(world)
    twice = failover(sends_again=True)
    assert len(set(texts(twice.processes["c"]))) < len(texts(twice.processes["c"])), "the naive way doubles them"


# B9: a suspicion that no view confirms changes nothing.


def suspicion_without_a_view(actor: Callable[[Process], None]) -> GroupWorld:
    """c does not hear b, but gets b's casts from a; nobody hears of the suspicion, and then the link is back."""
    world = GroupWorld("abcast", seed=9, settings=with_membership(takeover_ns=2 * SECOND))
    world.gather("abc")
    c = world.processes["c"]
    actor(c)
    lose_control(world, lambda src, dst, message: src == "c" and isinstance(message, Notice))
    world.network.cut("b", "c")
    for _ in range(100):
        load(world, 1, 0.02)
        if c.member.suspects:
            break
    assert c.member.suspects == (world.processes["b"].id,)
    load(world, 20, 0.02)
    world.network.heal()
    load(world, 20)
    world.run(1)
    return world


def test_b9_a_suspicion_that_no_view_confirms_changes_nothing() -> None:
    world = suspicion_without_a_view(lambda process: None)
    assert [len(process.views) for process in world.up] == [1, 1, 1]
    a, b, c = (texts(process) for process in world.up)
    assert a == b == c
    assert len(a) > 150
    passes(world)


def test_b9_whoever_acts_on_a_suspicion_alone_is_caught() -> None:
    def deaf(process: Process) -> None:
        engine = process.member.engine
        take = engine.receive

        def receive(sender: Rank, packet: Packet) -> None:
            if engine.view.members[sender] not in process.member.suspects:
                take(sender, packet)

        engine.receive = receive  # type: ignore[method-assign]

    with pytest.raises((AssertionError, PeerFault)):
        passes(suspicion_without_a_view(deaf))


# B10: the application casts from inside a delivery.


def casts_inside_deliveries(order: str) -> tuple[GroupWorld, set[bytes]]:
    """Everyone answers what b says, from inside the delivery, also while the view changes; all answers must arrive once."""
    world = GroupWorld(order, seed=10)
    answers: set[bytes] = set()
    blocked = 0

    def answer(process: Process, event: object) -> None:
        nonlocal blocked
        if not isinstance(event, Batch | Entered):
            return
        for payload in event.payloads or () if isinstance(event, Batch) else (b"q",):
            if payload.startswith(b"q"):
                text = f"{process.id}/{len(answers)}".encode()
                if process.member.cast(text) is not None:
                    answers.add(text)
                    blocked += process.member.is_blocked or bool(process.member.suspects)

    for process in world.gather("abcd"):
        process.on_event = answer
    for number in range(80):
        world.processes["b"].cast(b"q%d" % number)
        world.run(0.01)
        if number == 20:
            world.crash("d")
        if number == 21:
            world.leave("a")
    world.run(2)
    assert blocked, "no cast fell into a view change"
    return world, answers


@pytest.mark.parametrize("order", ["fifo", "causal-total", "tomp", "toto", "rmp"])
def test_b10_casts_from_inside_a_delivery_while_a_view_change_waits(order: str) -> None:
    world, answers = casts_inside_deliveries(order)
    passes(world)
    survivors = [process for process in world.lives if process.id.address in "bc"]
    owed = {text for text in answers if text.startswith((b"b/", b"c/"))}
    assert len(owed) > 80
    for process in survivors:
        shown = texts(process)
        assert owed <= set(shown)
        assert len(shown) == len(set(shown))


class SubmitsWhileBlocked(ViewEngine):
    """Hands casts to an ordering that has given its report."""

    def drain(self, now: int) -> EngineEffects:
        phase, self.phase = self.phase, Phase.RUNNING
        effects = super().drain(now)
        self.phase = phase
        return effects


def test_b10_casts_into_a_view_that_is_being_closed_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "ViewEngine", SubmitsWhileBlocked)
    with pytest.raises((AssertionError, PeerFault)):
        passes(casts_inside_deliveries("sequencer")[0])


# B11, B12, B14.


def one_message_is_ten_seconds_late(world: GroupWorld) -> None:
    """c gets nothing of what a casts for ten seconds, not even from others. b answers; c must wait, and nobody suspects a."""
    a, b, c = world.gather("abc")
    lose_casts(world, "a", "c")
    a.cast(b"cause")
    world.run(0.1)
    b.cast(b"effect")
    world.run(10)
    world.network.drops = None
    world.run(2)
    assert sorted(texts(c)) == [b"cause", b"effect"]
    assert len(c.views) == 1


@pytest.mark.parametrize("order", ["causal", "causal-total", "toto", "all-ack"])
def test_b11_causal_order_with_one_message_ten_seconds_late(order: str) -> None:
    keeps(order, one_message_is_ten_seconds_late)
    if order == "causal":
        # P0: `fifo` in the place of `causal` carries a service that `causal` does not.
        assert broken(order, Fifo, one_message_is_ten_seconds_late) == {"P0", "P8"}


def subsets(world: GroupWorld) -> None:
    """Each message goes to its caster and half of the others, so that causes reach some members through others alone."""
    world.network.loss = 0.1
    world.gather("abcd")
    for number in range(40):
        for process in world.up:
            to = [other.id for other in world.up if other is process or (number + ord(other.id.address)) % 2]
            process.cast(b"%d" % number, CastOptions(to=tuple(to)))
        world.run(0.003)
        if number == 25:
            world.crash("b")


def test_b12_destination_subsets_in_causal_order() -> None:
    assert broken("causal", causal_mutants.NoPlaceholders, subsets)
    keeps("causal", subsets)


@pytest.mark.parametrize("order", ["fifo", "causal-total", "tomp", "toto", "rmp"])
def test_b12_destination_subsets_in_other_orders(order: str) -> None:
    keeps(order, subsets)


def classes_mixed(world: GroupWorld) -> None:
    """Every service that the order carries, in one stream."""
    world.network.loss = 0.1
    world.gather("abcd")
    services = sorted(world.orders[world.order].services)
    for number in range(60):
        for i, process in enumerate(world.up):
            process.cast(b"%d" % number, CastOptions(service=services[(number + i) % len(services)]))
        world.run(0.004)
        if number == 40:
            world.crash("a")


@pytest.mark.parametrize("order", [name for name, kind in ORDERS.items() if len(kind.services) > 1])
def test_b14_unordered_and_ordered_classes_mixed(order: str) -> None:
    keeps(order, classes_mixed)


def test_b14_ordered_messages_treated_like_unordered_ones_are_caught() -> None:
    assert Service.TOTAL in rmp_mutants.DeliversOnReceipt.services
    assert broken("rmp", rmp_mutants.DeliversOnReceipt, classes_mixed) & {"P9a", "P9c", "P18"}


def test_which_orders_mix_classes() -> None:
    assert {name for name, kind in ORDERS.items() if len(kind.services) > 1} == {"toto", "all-ack", "rmp"}
