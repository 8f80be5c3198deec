"""Limits of memory and rate, as whole members: a receiver that has stopped, too much in one turn, shares of the group's rate."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.group_tools import retained_packets
from unisono.core.config import MILLISECOND, SECOND
from unisono.core.errors import Misuse
from unisono.core.member.member import Settings
from unisono.core.options import CastOptions
from unisono.core.streams.settings import KIB, StreamSettings
from unisono.core.streams.streams import Streams
from unisono.core.types import MemberId, View, ViewId
from unisono.sim.group_world import QUICK, GroupWorld, Process

SMALL = replace(QUICK.streams, window_bytes=64 * KIB, window_packets=500, window_bytes_start=64 * KIB)


def held_bytes(process: Process) -> int:
    """All that a member holds of its own casts and of others': queue, streams, retained slots, early datagrams."""
    member = process.member
    engine, streams = member.engine, member.streams
    assert streams is not None
    retained = sum(
        len(payload)
        for packet in retained_packets(member)
        for payload in getattr(packet, "batch").payloads or ()  # noqa: B009
    )
    memory = streams.memory
    return (
        engine.casting.bytes
        + retained
        + streams.kept_bytes
        + memory.ahead
        + memory.kept
        + memory.reassembly
        + member.next_view_bytes
    )


def cast_at_a_wall(casts: int) -> None:
    """E9: b has stopped and takes nothing; a casts and casts. Now and then there is a turn, and time."""
    world = GroupWorld("fifo", 1, settings=replace(QUICK, streams=SMALL))
    world.gather("ab")
    a, b = world.processes["a"], world.processes["b"]
    b.member.set_free_room(0)
    b.turn()
    world.run(0.1)
    taken = most = 0
    for number in range(casts):
        taken += a.member.cast(bytes(100)) is not None
        if number % 1_000 == 0:
            a.turn()
            world.run(0.005)
            most = max(most, held_bytes(a), held_bytes(b))
    assert taken < 1_000, "the caller feels it"
    assert most < 4 * SMALL.window_bytes
    assert a.member.counters.casts_refused == casts - taken
    b.member.set_free_room(None)
    b.turn()
    world.run(1)
    assert len(b.delivered) == taken, "what was accepted is delivered"


def test_a_stopped_receiver_and_many_casts_stay_within_the_limits() -> None:
    cast_at_a_wall(50_000)


@pytest.mark.slow
def test_a_stopped_receiver_and_a_million_casts_stay_within_the_limits() -> None:
    cast_at_a_wall(1_000_000)


def fill_one_turn(world: GroupWorld, options: CastOptions | None = None) -> int:
    """Cast without a turn, until it is refused."""
    member = world.processes["a"].member
    for number in range(100_000):
        if member.cast(bytes(16_000), options or CastOptions()) is None:
            return number
    raise AssertionError("nothing held it up")


def test_what_is_cast_in_one_turn_is_limited_in_bytes() -> None:
    """The window was looked at once a turn, so a turn could accept more than the streams keep, and its end failed."""
    world = GroupWorld("fifo", 2)
    world.gather("ab")
    taken = fill_one_turn(world)
    assert taken <= QUICK.streams.window_bytes // 16_000 + 1
    world.processes["a"].turn()
    world.run(2)
    assert len(world.processes["b"].delivered) == taken


def test_without_the_limit_the_turn_fails() -> None:
    world = GroupWorld("fifo", 2)
    world.gather("ab")
    member = world.processes["a"].member
    member.engine.casting.bytes_max = 1 << 62
    for _ in range(20_000):
        assert member.cast(bytes(16_000)) is not None
    with pytest.raises(Misuse, match="more is kept"):
        world.processes["a"].turn()


def test_a_cast_to_some_counts_once_for_each_of_them() -> None:
    world = GroupWorld("fifo", 3)
    world.gather("abcd")
    view = world.processes["a"].member.view
    assert view is not None
    to_three = fill_one_turn(world, CastOptions(view.members[1:]))
    assert to_three <= QUICK.streams.window_bytes // (3 * 16_000) + 1


def test_what_is_cast_during_a_view_change_is_limited_in_bytes_too() -> None:
    world = GroupWorld("fifo", 4)
    world.gather("abc")
    world.crash("c")
    assert world.run(2, lambda: world.processes["a"].member.is_blocked)
    taken = fill_one_turn(world)
    assert 0 < taken <= QUICK.streams.window_bytes // 16_000 + 1
    assert not world.processes["a"].member.is_writable
    world.run(3)
    assert world.processes["a"].member.is_writable
    assert len(world.processes["b"].delivered) == taken


# Rates.


def streams_of(members: int, settings: StreamSettings) -> Streams:
    view = View(ViewId(1, MemberId("m0")), tuple(MemberId(f"m{number}") for number in range(members)))
    return Streams(view, 0, settings, Random(1), 0)


def sent_in_a_second(streams: Streams) -> int:
    """How many bytes of data leave if there is always more, and everybody acknowledges at once."""
    for _ in range(400):
        streams.cast(bytes(1_000))
    sent = 0
    for now in range(0, SECOND, 5 * MILLISECOND):
        for to, datagram in streams.drain(now):
            sent += len(datagram) if to is None else 0
    return sent


@pytest.mark.parametrize("members", [2, 4, 8])
def test_the_rate_of_the_group_is_shared_by_the_members_of_the_view(members: int) -> None:
    settings = StreamSettings(group_rate_bytes_per_s=400_000, window_bytes=512 * KIB, window_bytes_start=512 * KIB)
    share = 400_000 // members
    assert 0.9 * share <= sent_in_a_second(streams_of(members, settings)) <= 1.15 * share + 1_400


def test_a_member_has_its_own_limit_besides() -> None:
    settings = StreamSettings(group_rate_bytes_per_s=1_000_000, rate_bytes_per_s=100_000)
    assert settings.shared_by(2).rate_bytes_per_s == 100_000
    assert settings.shared_by(20).rate_bytes_per_s == 50_000
    assert settings.shared_by(65_535).rate_bytes_per_s == 1_024, "a share is never too small to go on"
    assert StreamSettings().shared_by(5).rate_bytes_per_s is None


def test_timers_follow_the_share() -> None:
    """What is only queued on a line that all share must not be taken for lost."""
    settings = StreamSettings(group_rate_bytes_per_s=1_024_000)
    assert settings.shared_by(1).retransmit_ns_per_kib == MILLISECOND
    assert settings.shared_by(10).retransmit_ns_per_kib == 10 * MILLISECOND
    fast = StreamSettings(group_rate_bytes_per_s=2**40)
    assert fast.shared_by(10).retransmit_ns_per_kib == fast.retransmit_ns_per_kib


def test_rates_and_timers_are_computed_anew_with_every_view() -> None:
    settings: Settings = replace(QUICK, streams=replace(QUICK.streams, group_rate_bytes_per_s=1_200_000))
    world = GroupWorld("sequencer", 5, settings=settings)
    world.gather("abcd")

    def rates() -> set[int | None]:
        return {process.member.streams.rate_bytes_per_s for process in world.up if process.member.streams is not None}

    assert rates() == {300_000}
    world.crash("d")
    assert world.run(3, lambda: world.is_one("abc")), world.story()
    assert rates() == {400_000}
    world.start("e", seeds="abc")
    world.start("f", seeds="abc")
    world.start("g", seeds="abc")
    assert world.run(3, lambda: world.is_one("abcefg")), world.story()
    assert rates() == {200_000}
