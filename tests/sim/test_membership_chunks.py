"""Reports and cuts in many small chunks, in virtual time: no storm, and patience as long as something moves."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tests.membership_harness import World
from tests.unit.test_chunks import PullsForEveryChunk
from unisono.core.config import MILLISECOND, SECOND
from unisono.core.membership import ballot as membership_proposal
from unisono.core.membership import merge as membership_merge
from unisono.core.membership import participant as membership_participant
from unisono.core.membership import ring as membership_ring
from unisono.core.membership.settings import MembershipSettings
from unisono.core.options import CastOptions
from unisono.core.types import MemberId
from unisono.core.wire.control import ANSWER, Chunk, Control, Fetch

CHUNK_BYTES = 64


def times_sent(collect: str) -> float:
    """One crashes, and another lacks much: how often each chunk came, for the data for which that was most."""
    world = World("abcast", settings=MembershipSettings(chunk_bytes_max=CHUNK_BYTES, collect=collect))
    nodes = world.group("abcde")
    came: Counter[tuple[object, ...]] = Counter()

    def count(sender: MemberId, to: MemberId, message: Control) -> bool:
        if isinstance(message, Chunk) and message.total > 10 * CHUNK_BYTES:
            came[sender, to, message.ballot, message.topic, message.total] += 1
        return True

    world.filter = count
    world.cut("a", "c")
    for number in range(40):
        nodes[number % 4].cast(bytes(100))
    world.run(0.05)
    world.heal()
    world.crash("e")
    assert world.run(20, lambda: world.is_one("abcd")), world.story()
    world.run(1)  # what was called up and is still under way
    return max(count * CHUNK_BYTES / key[-1] for key, count in came.items())  # type: ignore[operator]


def is_storm(collect: str) -> bool:
    try:
        return times_sent(collect) > 8
    except AssertionError as error:
        return "a storm of control messages" in str(error)  # of the whole run: the world has a limit of its own


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
    settings = MembershipSettings(chunk_bytes_max=CHUNK_BYTES, collect="star")
    world = World("abcast", settings=settings)
    a, b, _ = world.group("abc")
    world.cut("b", "a")  # so that much is known to b alone
    for _ in range(40):
        b.cast(bytes(100))
    world.run(0.05)
    world.heal()
    came: dict[int, int] = {}  # offsets of b's answer, and when

    def one_at_a_time(sender: MemberId, to: MemberId, message: Control) -> bool:
        if not isinstance(message, Chunk) or message.topic != ANSWER or sender != b.id:
            return True
        if message.offset in came or world.now - max(came.values(), default=-SECOND) < settings.retry_ns:
            return False
        came[message.offset] = world.now
        return True

    world.filter = one_at_a_time
    before = a.view
    world.crash("c")
    assert world.run(20, lambda: world.is_one("ab")), world.story()
    assert before is not None
    assert a.view is not None
    assert a.view.id.number == before.id.number + 1, "b was given up"
    times = sorted(came.values())
    assert len(times) > 4, "the answer is too small for this story"
    waits = [late - early for early, late in pairwise(times)]
    assert max(waits) < 2 * settings.retry_ns + 20 * MILLISECOND


@pytest.mark.parametrize("collect", ["star", "ring"])
def test_much_that_is_missing_is_asked_for_in_messages_that_fit_a_datagram(
    collect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: slots that do not follow each other were asked for in one message, however many there were."""
    monkeypatch.setattr(membership_merge, "FETCHED_AT_ONCE", 2)
    world = World("fifo", settings=MembershipSettings(collect=collect))
    nodes = world.group("abcd")
    asked: list[int] = []

    def look(sender: MemberId, to: MemberId, message: Control) -> bool:
        if isinstance(message, Fetch):
            asked.append(len(message.ranges))
        return True

    world.filter = look
    world.cut("d", "a")
    world.cut("d", "b")
    for number in range(12):  # to c alone, to all, to c alone …: of the first kind a and b would hold placeholders
        to = (nodes[2].id, nodes[1].id) if number % 2 else None
        nodes[3].cast(b"%d" % number, CastOptions(to=to))
    world.run(0.05)
    world.heal()
    world.crash("d")
    assert world.run(20, lambda: world.is_one("abc")), world.story()
    assert asked
    assert max(asked) <= 2
    assert nodes[1].engine.showing.delivered == 12
