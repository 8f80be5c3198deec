"""Reports by the ring: the token's two rounds, its losses, crashes in the middle, and who sees what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.membership_harness import Node, World, judged, losing, payloads, settle
from tests.membership_swarm import Run
from tests.mutants import ring_mutants as mutants
from unisono.core.config import MILLISECOND, Config
from unisono.core.membership.chunks import chunks_of
from unisono.core.membership.membership import Membership
from unisono.core.membership.ring import after, before, ring_of
from unisono.core.membership.settings import MembershipSettings
from unisono.core.options import CastOptions
from unisono.core.types import MemberId, ViewId
from unisono.core.wire.control import (
    ANSWER,
    CUT,
    DECREE,
    ROLL,
    Chunk,
    Control,
    ControlCodec,
    Decree,
    Pull,
    RollCall,
)
from unisono.orders.registry import ORDERS
from unisono.trace.checks import Result

RING = MembershipSettings(collect="ring")
A, B, C = (MemberId(name) for name in "abc")


def name_of(message: Control) -> str:
    topics = {ANSWER: "answer", CUT: "cut", ROLL: "roll", DECREE: "decree"}
    if isinstance(message, Chunk):
        return topics.get(message.topic, "fetched")
    return type(message).__name__.lower()


def is_piece(message: Control, topic: int) -> bool:
    return isinstance(message, Chunk) and message.topic == topic


def counting(world: World, *rules: Callable[[MemberId, MemberId, Control], bool]) -> Counter[str]:
    """What arrives from now on, by name; what a rule names is lost."""
    seen: Counter[str] = Counter()

    def watch(sender: MemberId, to: MemberId, message: Control) -> bool:
        if any(rule(sender, to, message) for rule in rules):
            return False
        seen[name_of(message)] += 1
        return True

    world.filter = watch
    return seen


def calm(kind: type[Membership] = Membership, settings: MembershipSettings = RING, names: str = "abcde") -> World:
    """A group whose messages take exactly as long as each other, so that nothing is repeated without need."""
    world = World("sequencer", settings=settings, kind=kind)
    world.random.random = lambda: 0.5  # type: ignore[method-assign]  # no stragglers
    world.delay_ns = (MILLISECOND, MILLISECOND)
    world.group(names)
    return world


def first(rule: Callable[[MemberId, MemberId, Control], bool]) -> Callable[[MemberId, MemberId, Control], bool]:
    """A rule that holds once."""
    is_over = False

    def once(sender: MemberId, to: MemberId, message: Control) -> bool:
        nonlocal is_over
        found = not is_over and rule(sender, to, message)
        is_over = is_over or found
        return found

    return once


def test_the_ring_begins_with_the_proposer_and_goes_around() -> None:
    assert ring_of((C, A, B), B) == (B, C, A)
    assert after((B, C, A), A) == B
    assert before((B, C, A), B) == A


def test_two_rounds_of_the_token_change_a_view_and_nobody_is_asked_directly() -> None:
    world = calm()
    world.crash("e")
    seen = counting(world)
    settle(world, "abcd")
    assert {name: seen[name] for name in ("roll", "decree", "install")} == {"roll": 4, "decree": 4, "install": 3}
    assert not {"propose", "answer", "cut", "confirm"} & seen.keys(), seen
    judged(world)


@pytest.mark.parametrize("topic", [ROLL, DECREE])
@pytest.mark.parametrize("hop", ["ab", "bc", "cd", "da"])
def test_a_token_that_is_lost_is_passed_on_again(hop: str, topic: int) -> None:
    assert lost_token_heals(Membership, hop, topic)


def lost_token_heals(kind: type[Membership], hop: str, topic: int) -> bool:
    world = calm(kind)
    world.crash("e")
    seen = counting(world, first(lambda s, to, m: is_piece(m, topic) and s.address + to.address == hop))
    settle(world, "abcd")
    view = world.nodes["a"].view
    judged(world)
    return view is not None and view.id.proposer == A and not {"propose", "cut"} & seen.keys()


def test_one_that_passes_the_token_on_only_once_is_caught() -> None:
    assert not lost_token_heals(mutants.PassesOnOnce, "bc", ROLL)


@pytest.mark.parametrize("topic", [ROLL, DECREE])
def test_a_round_that_stands_still_is_finished_by_star_in_the_same_ballot(topic: int) -> None:
    world = calm()
    begun = world.nodes["a"].view
    world.crash("e")
    seen = counting(world, lambda s, to, m: is_piece(m, topic) and to.address == "c")
    settle(world, "abcd")
    now = world.nodes["a"].view
    assert begun is not None
    assert now is not None
    assert now.id.number == begun.id.number + 1, "one ballot was enough"
    assert seen["propose"] or seen["cut"]
    judged(world)


@pytest.mark.parametrize("topic", [ROLL, DECREE])
@pytest.mark.parametrize("victim", ["a", "b", "c", "d"])
def test_a_crash_in_the_ring_restarts_it_with_a_higher_ballot(victim: str, topic: int) -> None:
    world = calm()
    for node in world.living:
        node.cast(b"m")
    world.crash("e")
    world.filter = lambda _, to, m: not (is_piece(m, topic) and to.address == victim and strike())

    def strike() -> bool:
        world.crash(victim)
        return True

    settle(world, "abcd".replace(victim, ""))
    judged(world)


def test_tokens_in_small_pieces_get_through_heavy_loss() -> None:
    settings = MembershipSettings(collect="ring", chunk_bytes_max=64, chunks_max=2)
    world = World("causal", settings=settings, loss=0.3, duplication=0.2)
    world.group("abcd")
    world.crash("d")
    settle(world, "abc")
    judged(world)


def test_a_token_whose_chunks_come_twice_is_gathered_once() -> None:
    """The swarm found it: the chunks of a token that had been taken were taken for a new one, and every pull brought more."""
    assert pulls_of_doubled_tokens(Membership) < 60
    assert pulls_of_doubled_tokens(mutants.TakesTokensTwice) > 60, "the test can fail"


def pulls_of_doubled_tokens(kind: type[Membership]) -> int:
    world = calm(kind, MembershipSettings(collect="ring", chunk_bytes_max=64))
    world.random.random = lambda: 0.5  # type: ignore[method-assign]
    world.duplication = 1.0
    world.crash("e")
    pulls = 0

    def watch(_: MemberId, __: MemberId, message: Control) -> bool:
        nonlocal pulls
        pulls += isinstance(message, Pull)
        return pulls < 1_000

    world.filter = watch
    world.run(0.5)
    return pulls


def test_a_payload_goes_to_its_addressees_alone_although_the_token_passes_everyone() -> None:
    """e's message to b and c reached b alone; d sees the decree, and never the payload."""
    world = calm()
    e: Node = world.nodes["e"]
    world.cut("e", "c")
    e.cast(b"for b and c only", CastOptions((B, C)))
    world.run(0.02)
    world.crash("e")
    seen_by_d: list[bytes] = []

    def watch(_: MemberId, to: MemberId, message: Control) -> bool:
        if to.address == "d" and isinstance(message, Chunk):
            seen_by_d.append(message.data)
        return True

    world.filter = watch
    settle(world, "abcd")
    assert b"for b and c only" in payloads(world.nodes["c"])
    assert seen_by_d
    assert not any(b"for b and c only" in data for data in seen_by_d)
    judged(world)


def a_flush_is_lost(kind: type[Membership]) -> None:
    """c lacks what e cast; the flush that brings it is lost for a while."""
    world = calm(kind)
    world.cut("e", "c")
    world.nodes["e"].cast(b"m")
    world.run(0.02)
    world.crash("e")
    world.filter = losing(lambda s, to, m: is_piece(m, CUT) and to.address == "c")
    world.run(1.0)
    world.filter = None
    settle(world, "abcd")
    assert payloads(world.nodes["c"]) == payloads(world.nodes["a"]) == [b"m"]
    judged(world)


def test_a_decree_waits_at_one_that_lacks_a_packet() -> None:
    a_flush_is_lost(Membership)


def test_one_that_passes_the_decree_on_before_closing_is_caught() -> None:
    with pytest.raises(AssertionError, match="has not closed"):
        a_flush_is_lost(mutants.PassesOnBeforeClosing)


def test_parts_of_a_partition_merge_by_ring_each_with_its_own_cut() -> None:
    world = World("causal", settings=RING)
    nodes = world.group("abcd")
    world.partition("ab", "cd")
    assert world.run(10, lambda: world.is_one("ab") and world.is_one("cd"))
    for node in nodes:
        node.cast(str(node.id).encode())
    world.heal()
    settle(world, "abcd")
    charter = nodes[0].membership.charter
    assert charter is not None
    assert len(charter.parts) == 2
    judged(world)


@pytest.mark.parametrize("order", list(ORDERS))
def test_the_ring_is_the_default_of_rmp_alone_and_settings_overrule(order: str) -> None:
    for collect, by_ring in ((None, order == "rmp"), ("ring", True), ("star", False)):
        world = World(order, settings=MembershipSettings(collect=collect))
        world.group("abc")
        seen = counting(world)
        world.crash("c")
        settle(world, "ab")
        assert bool(seen["roll"]) is by_ring
        judged(world)


# Hostile tokens.


def token(ballot: ViewId, topic: int, record: RollCall | Decree) -> Chunk:
    data = ControlCodec(Config()).encode(record)
    (chunk,) = chunks_of(ballot, topic, data, 0, 1 << 20, 1)
    return chunk


def test_tokens_that_cannot_be_are_refused_and_change_nothing() -> None:
    world = calm(names="abc")
    b = world.nodes["b"]
    view = b.view
    assert view is not None
    ballot = ViewId(9, A)
    bases = ((A, view.id), (B, view.id), (C, view.id))
    strangers = tuple((MemberId(name), None) for name in "axy")
    for sender, chunk in (
        (C, token(ballot, ROLL, RollCall(bases, (), (b"",)))),  # not from the one before me
        (A, token(ViewId(10, A), ROLL, RollCall(bases, (), (b"", b"")))),  # not my turn
        (A, token(ViewId(11, A), ROLL, RollCall(bases, (), ()))),
        (A, token(ViewId(12, A), ROLL, RollCall(strangers, (), (b"",)))),  # without me
        (A, token(ViewId(13, A), ROLL, RollCall((*bases, bases[0]), (), (b"",)))),  # twice the same
        (A, Chunk(ViewId(14, A), ROLL, 0, 2**62, b"x")),
        (A, Chunk(ViewId(15, A), ROLL, 0, 3, b"xyz")),
    ):
        b.turn(lambda sender=sender, chunk=chunk: b.membership.receive(sender, chunk))  # type: ignore[misc]
        assert not b.membership.is_engaged
    refused = b.membership.refused
    assert (refused["roll call"], refused["chunks too large"], refused["token"]) == (5, 1, 1)
    judged(world)


def test_an_answer_in_the_token_that_cannot_be_read_is_held_against_its_author() -> None:
    world = calm(names="abcd")
    world.crash("d")
    codec = ControlCodec(Config())
    spoilt = False

    def watch(_: MemberId, to: MemberId, message: Control) -> bool:
        nonlocal spoilt
        if isinstance(message, Chunk) and message.topic == ROLL and to == A and not spoilt:
            spoilt = True
            roll = codec.read(message.data)
            assert isinstance(roll, RollCall)
            bad = roll._replace(answers=(*roll.answers[:-1], b"nonsense"))
            a = world.nodes["a"]
            a.turn(lambda: a.membership.receive(C, token(message.ballot, ROLL, bad)))
            assert a.membership.refused["answer"] == 1
            return False
        return True

    world.filter = watch
    settle(world, "abc")
    assert spoilt
    judged(world)


def test_a_confirmation_beside_the_token_counts_too() -> None:
    """A decree is lost at the last hop; those who closed say so themselves, and that is enough."""
    world = calm()
    world.crash("e")
    seen = counting(world, lambda s, to, m: is_piece(m, DECREE) and to.address == "a")
    settle(world, "abcd", 2)
    assert seen["confirm"] >= 3
    judged(world)


@pytest.mark.parametrize("order", ["fifo", "sequencer", "rmp"])
def test_a_swarm_by_ring_alone(order: str) -> None:
    for seed in range(500, 505):
        verdict = Run(seed, order, collect="ring").go()
        assert verdict.result is Result.PASS, f"seed {seed}, {order}: {verdict}"
