"""Whole groups in the simulator, where a story is not enough: memory, damage, and what one member refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.group_tools import load, passes, retained_packets, texts
from unisono.core.config import MILLISECOND
from unisono.core.errors import Misuse
from unisono.core.member.member import Settings
from unisono.core.options import CastOptions
from unisono.core.streams.settings import StreamSettings
from unisono.core.types import Service
from unisono.sim.group_world import QUICK, GroupWorld


def test_who_has_sent_a_wrong_packet_is_put_out_and_forgiven_later() -> None:
    world = GroupWorld("sequencer", seed=3)
    world.gather("abc")
    wrong = world.processes["b"].member
    assert wrong.streams is not None
    wrong.streams.cast(b"\xff no packet")  # as a stranger's datagram, or a damaged one, would look
    world.processes["b"].turn()
    assert world.run(5, lambda: world.is_one("ac")), world.story()
    assert world.run(60, lambda: world.is_one("abc")), world.story()
    load(world, 5)
    passes(world)


def test_e9_memory_is_bounded_when_a_receiver_stands_still() -> None:
    """E9: a caster that nobody listens to is refused; what is kept stays within the window."""
    streams = StreamSettings(window_bytes=64 * 1024, window_packets=500, window_bytes_start=64 * 1024)
    settings = Settings(QUICK.config, streams, QUICK.detector, QUICK.membership)
    world = GroupWorld("fifo", seed=16, settings=settings)
    world.gather("ab")
    world.pause("b", 150 * MILLISECOND)
    caster = world.processes["a"]
    taken = 0
    for _ in range(20_000):
        taken += caster.cast(bytes(200))
    assert taken < 2_000, "the caster felt it"
    member = caster.member
    assert member.streams is not None
    assert member.streams.kept_bytes < 256 * 1024
    world.run(1)
    assert load(world, 20) == 40, "and goes on when the receiver does"
    passes(world)


def test_retained_packets_are_forgotten_once_all_have_taken_them_in() -> None:
    world = GroupWorld("sequencer", seed=17)
    world.gather("abc")
    load(world, 300)
    world.run(1)
    for process in world.up:
        assert len(retained_packets(process.member)) < 30, "a thousand slots were cast"
    passes(world)


def test_the_same_seed_gives_the_same_run() -> None:
    def digest(seed: int) -> list[tuple[bytes, ...]]:
        world = GroupWorld("toto", seed)
        world.network.loss = 0.2
        world.gather("abcd")
        load(world, 30)
        world.crash("c")
        load(world, 30)
        world.finish()
        return [tuple(texts(process)) for process in world.lives]

    assert digest(5) == digest(5)
    assert digest(5) != digest(6)


def test_a_message_to_more_than_can_be_kept_is_refused_and_harms_nobody() -> None:
    """Found by reading: it was accepted, and stopped the member in its turn."""
    streams = StreamSettings(
        window_bytes=64 * 1024, window_bytes_start=64 * 1024, kept_bytes_max=400_000, packet_bytes_max=200_000
    )
    config = replace(QUICK.config, payload_bytes_max=150_000, batch_bytes_max=150_000)
    world = GroupWorld("fifo", seed=32, settings=Settings(config, streams, QUICK.detector, QUICK.membership))
    a, *others = world.gather("abcd")
    everyone = CastOptions(to=tuple(process.id for process in others))
    with pytest.raises(Misuse, match="a message of 100000 bytes to 3 members takes more than"):
        a.member.cast(bytes(100_000), everyone)
    assert a.cast(bytes(80_000), everyone)
    passes(world)


def test_under_rmp_a_message_that_waits_for_the_lock_is_not_stable_because_a_later_one_is() -> None:
    """Found by reading: the receipt of a message that never left said that every member had it."""
    world = GroupWorld("rmp", seed=33)
    a, _, _ = world.gather("abc")
    for name in "bc":
        world.network.cut(name, "a")
    assert a.cast(b"ordered")
    world.run(0.01)
    assert a.cast(b"at once", CastOptions(service=Service.FIFO))
    assert texts(a)[-1:] == [b"at once"], "the second one was delivered here"
    assert a.member.streams is not None
    a.member.streams.taken_by_all[:] = [2**40] * 3
    a.member.drain(a.clock())
    assert a.member.state.settled_index == 0
    world.network.heal()
    world.run(1)
    assert a.member.state.settled_index == 2
    passes(world)
