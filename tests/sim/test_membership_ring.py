"""Reports by the ring: the token's two rounds, its losses, crashes in the middle, and who sees what."""

from __future__ import annotations

from typing import Any

import pytest

from tests.group_tools import ClosingWorld, Rule, name_of, passes, send, settles, texts, watch_control, with_membership
from tests.mutants import ring_mutants as mutants
from unisono.core.config import SECOND, Config
from unisono.core.member import member
from unisono.core.membership.chunks import chunks_of
from unisono.core.membership.membership import Membership
from unisono.core.membership.ring import after, before, ring_of
from unisono.core.options import CastOptions
from unisono.core.types import MemberId, ViewId
from unisono.core.wire.control import ROLL, Chunk, Control, ControlCodec, Decree, RollCall
from unisono.orders.registry import ORDERS
from unisono.sim.group_world import GroupWorld, SimulatedProcess

A, B, C = (MemberId(name) for name in "abc")


def calm(names: str = "abcde", **changes: Any) -> GroupWorld:
    """A group whose messages take exactly as long as each other, so that nothing is repeated without need."""
    settings = with_membership(**{"collect": "ring"} | changes)
    world = ClosingWorld("sequencer", settings=settings, delay="constant:1ms")
    world.gather(names)
    world.run(0.2)
    return world


def number_of(process: SimulatedProcess) -> int:
    assert process.view is not None
    return process.view.id.number


def pieces(name: str, to: str) -> Rule:
    """Chunks of this name to this member."""
    return lambda _, dst, message: dst == to and name_of(message) == name


def first(rule: Rule) -> Rule:
    """A rule that holds once."""
    is_over = False

    def once(src: str, dst: str, message: Control) -> bool:
        nonlocal is_over
        found = not is_over and rule(src, dst, message)
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
    seen = watch_control(world)
    settles(world, "abcd")
    assert {name: seen[name] for name in ("roll", "decree", "install")} == {"roll": 4, "decree": 4, "install": 3}
    assert not sum(seen[name] for name in ("propose", "answer", "cut", "confirm")), seen
    passes(world)


@pytest.mark.parametrize("name", ["roll", "decree"])
@pytest.mark.parametrize("hop", ["ab", "bc", "cd", "da"])
def test_a_token_that_is_lost_is_passed_on_again(hop: str, name: str) -> None:
    world = calm()
    world.crash("e")
    lost = pieces(name, hop[1])
    seen = watch_control(world, first(lambda src, dst, message: src == hop[0] and lost(src, dst, message)))
    settles(world, "abcd")
    view = world.processes["a"].view
    assert view is not None
    assert view.id.proposer == A
    assert not seen["propose"] + seen["cut"]
    passes(world)


def test_one_that_passes_the_token_on_only_once_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "Membership", mutants.PassesOnOnce)
    with pytest.raises(AssertionError):
        test_a_token_that_is_lost_is_passed_on_again("bc", "roll")


@pytest.mark.parametrize("name", ["roll", "decree"])
def test_a_round_that_stands_still_is_finished_by_star_in_the_same_ballot(name: str) -> None:
    world = calm()
    begun = number_of(world.processes["a"])
    world.crash("e")
    seen = watch_control(world, pieces(name, "c"))
    settles(world, "abcd")
    assert number_of(world.processes["a"]) == begun + 1, "one ballot was enough"
    assert seen["propose"] or seen["cut"]
    passes(world)


@pytest.mark.parametrize("name", ["roll", "decree"])
@pytest.mark.parametrize("victim", ["a", "b", "c", "d"])
def test_a_crash_in_the_ring_restarts_it_with_a_higher_ballot(victim: str, name: str) -> None:
    world = calm()
    for process in world.up:
        process.cast(b"m")
    world.crash("e")
    strikes = pieces(name, victim)

    def strike(src: str, dst: str, message: Control) -> bool:
        if strikes(src, dst, message):
            world.after(0, lambda: world.crash(victim))
            return True
        return False

    watch_control(world, strike)
    settles(world, "abcd".replace(victim, ""))
    passes(world)


def test_tokens_in_small_pieces_get_through_heavy_loss() -> None:
    world = GroupWorld("causal", settings=with_membership(collect="ring", chunk_bytes_max=64, chunks_max=2))
    world.network.loss, world.network.duplicate = 0.3, 0.2
    world.gather("abcd")
    world.crash("d")
    settles(world, "abc")
    passes(world)


@pytest.mark.parametrize(("kind", "is_storm"), [(Membership, False), (mutants.TakesTokensTwice, True)])
def test_a_token_whose_chunks_come_twice_is_gathered_once(
    kind: type[Membership], is_storm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swarm found it: the chunks of a token that had been taken were taken for a new one, and every pull brought more."""
    monkeypatch.setattr(member, "Membership", kind)
    world = calm(chunk_bytes_max=64)
    world.network.duplicate = 1.0
    world.crash("e")
    seen = watch_control(world)
    assert world.run(0.8, lambda: seen["pull"] > 60) is is_storm
    assert world.is_one("abcd") is not is_storm


def test_a_payload_goes_to_its_addressees_alone_although_the_token_passes_everyone() -> None:
    """e's message to b and c reached b alone; d sees the decree, and never the payload."""
    world = calm()
    world.network.cut("e", "c")
    world.processes["e"].cast(b"for b and c only", CastOptions((B, C)))
    world.run(0.02)
    world.crash("e")
    seen_by_d: list[bytes] = []

    def watch(src: str, dst: str, message: Control) -> bool:
        if dst == "d" and isinstance(message, Chunk):
            seen_by_d.append(message.data)
        return False

    watch_control(world, watch)
    settles(world, "abcd")
    assert b"for b and c only" in texts(world.processes["c"])
    assert seen_by_d
    assert not any(b"for b and c only" in data for data in seen_by_d)
    passes(world)


def test_a_decree_waits_at_one_that_lacks_a_packet() -> None:
    """c lacks what e cast; the flush that brings it is lost for a while."""
    world = calm(answer_wait_ns=SECOND, proposal_wait_ns=3 * SECOND)
    world.network.cut("e", "c")
    world.processes["e"].cast(b"m")
    world.run(0.02)
    world.crash("e")
    watch_control(world, pieces("cut", "c"))
    world.run(1.0)
    world.network.heal()
    settles(world, "abcd")
    assert texts(world.processes["c"]) == texts(world.processes["a"]) == [b"m"]
    passes(world)


def test_one_that_passes_the_decree_on_before_closing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "Membership", mutants.PassesOnBeforeClosing)
    with pytest.raises(AssertionError, match="has not closed"):
        test_a_decree_waits_at_one_that_lacks_a_packet()


def test_parts_of_a_partition_merge_by_ring_each_with_its_own_cut() -> None:
    world = GroupWorld("causal", settings=with_membership(collect="ring"))
    members = world.gather("abcd")
    world.partition("ab", "cd")
    assert world.run(10, lambda: world.is_one("ab") and world.is_one("cd"))
    for process in members:
        process.cast(str(process.id).encode())
    world.network.heal()
    settles(world, "abcd")
    charter = members[0].member._membership.charter
    assert charter is not None
    assert len(charter.parts) == 2
    passes(world)


@pytest.mark.parametrize("order", list(ORDERS))
def test_the_ring_is_the_default_of_rmp_alone_and_settings_overrule(order: str) -> None:
    for collect, by_ring in ((None, order == "rmp"), ("ring", True), ("star", False)):
        world = GroupWorld(order, settings=with_membership(collect=collect))
        world.gather("abc")
        seen = watch_control(world)
        world.crash("c")
        settles(world, "ab")
        assert bool(seen["roll"]) is by_ring


# Hostile tokens.


def token(ballot: ViewId, topic: int, record: RollCall | Decree) -> Chunk:
    data = ControlCodec(Config()).encode(record)
    (chunk,) = chunks_of(ballot, topic, data, 0, 1 << 20, 1)
    return chunk


def test_tokens_that_cannot_be_are_refused_and_change_nothing() -> None:
    world = calm("abc")
    b = world.processes["b"].member._membership
    assert b.view is not None
    bases = ((A, b.view.id), (B, b.view.id), (C, b.view.id))
    strangers = tuple((MemberId(name), None) for name in "axy")
    for sender, chunk in (
        (C, token(ViewId(9, A), ROLL, RollCall(bases, (), (b"",)))),  # not from the one before me
        (A, token(ViewId(10, A), ROLL, RollCall(bases, (), (b"", b"")))),  # not my turn
        (A, token(ViewId(11, A), ROLL, RollCall(bases, (), ()))),
        (A, token(ViewId(12, A), ROLL, RollCall(strangers, (), (b"",)))),  # without me
        (A, token(ViewId(13, A), ROLL, RollCall((*bases, bases[0]), (), (b"",)))),  # twice the same
        (A, Chunk(ViewId(14, A), ROLL, 0, 2**62, b"x")),
        (A, Chunk(ViewId(15, A), ROLL, 0, 3, b"xyz")),
    ):
        send(world, "b", sender, chunk)
        assert not b.is_engaged
    assert (b.refused["roll call"], b.refused["chunks too large"], b.refused["token"]) == (5, 1, 1)
    passes(world)


def test_an_answer_in_the_token_that_cannot_be_read_is_held_against_its_author() -> None:
    world = calm("abcd")
    world.crash("d")
    rolls = pieces("roll", "a")

    def spoil(src: str, dst: str, message: Control) -> bool:
        if not rolls(src, dst, message):
            return False
        assert isinstance(message, Chunk)
        roll = ControlCodec(Config()).read(message.data)
        assert isinstance(roll, RollCall)
        bad = roll._replace(answers=(*roll.answers[:-1], b"nonsense"))
        world.after(0, lambda: send(world, "a", C, token(message.ballot, ROLL, bad)))
        return True

    watch_control(world, first(spoil))
    settles(world, "abc")
    assert world.processes["a"].member._membership.refused["answer"] == 1
    passes(world)


def test_a_confirmation_beside_the_token_counts_too() -> None:
    """A decree is lost at the last hop; those who closed say so themselves, and that is enough."""
    world = calm()
    world.crash("e")
    seen = watch_control(world, pieces("decree", "a"))
    settles(world, "abcd", 2)
    assert seen["confirm"] >= 3
    passes(world)
