"""Reports and cuts in many small chunks, in virtual time: no storm, and patience as long as something moves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.group_tools import body_in, control_in, settles, texts, watch_control, with_membership
from tests.unit.test_chunks import PullsForEveryChunk
from unisono.core.config import MILLISECOND
from unisono.core.membership import ballot as membership_proposal
from unisono.core.membership import merge as membership_merge
from unisono.core.membership import participant as membership_participant
from unisono.core.membership import ring as membership_ring
from unisono.core.membership.settings import MembershipSettings
from unisono.core.wire.control import ANSWER, Chunk, Control, Fetch
from unisono.sim.group_world import QUICK, GroupWorld

CHUNK_BYTES = 64
TIMES = 8


def is_storm(collect: str) -> bool:
    """One crashes, and another lacks much: whether chunks of some data come more often than they should."""
    world = GroupWorld("abcast", settings=with_membership(chunk_bytes_max=CHUNK_BYTES, collect=collect))
    members = world.gather("abcde")
    came: Counter[tuple[object, ...]] = Counter()
    most = 0.0

    def count(src: str, dst: str, message: Control) -> bool:
        nonlocal most
        if isinstance(message, Chunk) and message.total > 10 * CHUNK_BYTES:
            key = src, dst, message.ballot, message.topic, message.total
            came[key] += 1
            most = max(most, came[key] * CHUNK_BYTES / message.total)
        return False

    world.network.cut("a", "c")
    for number in range(40):
        members[number % 4].cast(bytes(100))
    world.run(0.05)
    world.network.heal()
    watch_control(world, count)
    world.crash("e")
    assert world.run(20, lambda: world.is_one("abcd") or most > TIMES), world.story()
    return world.run(1, lambda: most > TIMES)  # what was called up and is still under way


@pytest.mark.parametrize("collect", ["star", "ring"])
def test_a_piece_that_comes_does_not_call_up_all_the_others(collect: str) -> None:
    assert not is_storm(collect)


@pytest.mark.parametrize("collect", ["star", "ring"])
def test_a_piece_that_calls_up_all_the_others_is_caught(collect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (membership_participant, membership_proposal, membership_ring):
        monkeypatch.setattr(module, "IncomingChunks", PullsForEveryChunk)
    assert is_storm(collect)


def test_a_proposer_does_not_wait_longer_and_longer_for_an_answer_that_moves() -> None:
    """Of b's answer one chunk comes, then nothing for as long as a proposer waits before it asks again, and so on."""
    patient = MembershipSettings(chunk_bytes_max=CHUNK_BYTES, collect="star")
    world = GroupWorld("abcast", settings=replace(QUICK, membership=patient))
    a, *_ = world.gather("abc")
    world.network.cut("b", "a")  # so that much is known to b alone
    for _ in range(40):
        world.processes["b"].cast(bytes(100))
    world.run(0.05)
    world.network.heal()
    came: dict[int, int] = {}  # offsets of b's answer, and when

    def too_soon(src: str, dst: str, message: Control) -> bool:
        if not isinstance(message, Chunk) or message.topic != ANSWER or src != "b":
            return False
        if message.offset in came or (came and world.now - max(came.values()) < patient.retry_ns):
            return True
        came[message.offset] = world.now
        return False

    watch_control(world, too_soon)
    before = len(a.views)
    world.crash("c")
    settles(world, "ab", 20)
    assert len(a.views) == before + 1, "b was given up"
    times = sorted(came.values())
    assert len(times) > 4, "the answer is too small for this story"
    waits = [late - early for early, late in pairwise(times)]
    assert max(waits) < 2 * patient.retry_ns + 20 * MILLISECOND


@pytest.mark.parametrize("collect", ["star", "ring"])
def test_much_that_is_missing_is_asked_for_in_messages_that_fit_a_datagram(
    collect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: slots that do not follow each other were asked for in one message, however many there were."""
    monkeypatch.setattr(membership_merge, "FETCHED_AT_ONCE", 2)
    world = GroupWorld("fifo", settings=with_membership(collect=collect))
    a, *_ = world.gather("abcdef")
    asked: list[int] = []

    def look(src: str, dst: str, datagram: bytes) -> bool:
        message = control_in(datagram)
        if isinstance(message, Fetch):
            asked.append(len(message.ranges))
        return body_in(datagram) is not None and dst in "ab"  # c has all, and only membership brings it

    world.network.drops = look
    for name in "def":
        world.processes[name].cast(name.encode())
    world.run(0.05)
    for name in "def":
        world.crash(name)
    settles(world, "abc", 20)
    assert max(asked) == 2
    assert len(texts(a)) == 3
