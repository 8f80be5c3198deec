"""Chunked data comes whole over a network that loses, repeats and reorders, and costs a few times its chunks, whatever happens."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest

from unisono.core.membership.chunks import IncomingChunks, chunks_of
from unisono.core.types import MemberId, ViewId
from unisono.core.wire.control import Chunk, Pull

BALLOT = ViewId(2, MemberId("a", 0))
SIZE, COUNT = 64, 64
REACH = SIZE * COUNT
DATA = bytes(range(256)) * 40  # 160 chunks


def sent_for(kind: type[IncomingChunks], seed: int, loss: float, duplication: float) -> int:
    """How many chunks are sent until all is here. Of the time it takes to come, a chunk differs tenfold from another."""
    random, incoming = Random(seed), kind(BALLOT, 0, len(DATA))
    now, tie, sent = 0, 0, 0
    heap: list[tuple[int, int, Chunk | Pull]] = []

    def send(*messages: Chunk | Pull) -> None:
        nonlocal tie
        for message in messages:
            for _ in range(1 + (random.random() < duplication)):
                if random.random() >= loss:
                    tie += 1
                    heappush(heap, (now + random.randint(5, 50), tie, message))

    send(*chunks_of(BALLOT, 0, DATA, 0, SIZE, 1))
    while not incoming.is_whole:
        if not heap or heap[0][0] > now + 1_000:
            now += 1_000  # nothing moves: the receiver has waited
            pull = incoming.pull(REACH, again=True)
        else:
            now, _, message = heappop(heap)
            if isinstance(message, Pull):
                answer = list(chunks_of(BALLOT, 0, DATA, message.offset, SIZE, COUNT))
                sent += len(answer)
                send(*answer)
                continue
            incoming.add(message)
            pull = incoming.pull(REACH)
        if pull is not None:
            send(pull)
        if sent > 30 * len(DATA) // SIZE:
            break
    return sent


def times_sent(kind: type[IncomingChunks], loss: float, duplication: float) -> float:
    """How often a chunk is sent, in the worst of some runs."""
    return max(sent_for(kind, seed, loss, duplication) for seed in range(6)) / (len(DATA) // SIZE)


class PullsForEveryChunk(IncomingChunks):
    def pull(self, reach: int, again: bool = False) -> Pull | None:
        return super().pull(reach, again=True)


class TakesAnyChunkForTheEnd(IncomingChunks):
    def pull(self, reach: int, again: bool = False) -> Pull | None:
        self._is_ended = True
        return super().pull(reach, again)


class NeedsNoNews(IncomingChunks):
    def pull(self, reach: int, again: bool = False) -> Pull | None:
        self._is_news = True
        return super().pull(reach, again)


class IsNotUrged(IncomingChunks):
    def pull(self, reach: int, again: bool = False) -> Pull | None:
        self._is_urged = False
        return super().pull(reach, again)


@pytest.mark.parametrize("duplication", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("loss", [0.0, 0.05, 0.25])
def test_chunked_data_costs_a_few_times_its_chunks(loss: float, duplication: float) -> None:
    assert times_sent(IncomingChunks, loss, duplication) < 12


@pytest.mark.parametrize("kind", [PullsForEveryChunk, TakesAnyChunkForTheEnd])
def test_a_pull_for_every_chunk_is_a_storm(kind: type[IncomingChunks]) -> None:
    assert times_sent(kind, 0.0, 0.0) > 20


def begin(kind: type[IncomingChunks]) -> tuple[IncomingChunks, list[Chunk]]:
    """Data of four chunks: the first is here, and the others are asked for."""
    some = list(chunks_of(BALLOT, 0, DATA[: 4 * SIZE], 0, SIZE, 4))
    incoming = kind(BALLOT, 0, 4 * SIZE)
    incoming.add(some[0])
    assert incoming.pull(REACH) == Pull(BALLOT, 0, SIZE)
    return incoming, some


def waits_for_what_is_under_way(kind: type[IncomingChunks]) -> bool:
    incoming, some = begin(kind)
    incoming.add(some[2])
    return incoming.pull(REACH) is None


def waits_when_the_end_is_repeated(kind: type[IncomingChunks]) -> bool:
    incoming, some = begin(kind)
    incoming.add(some[3])
    assert incoming.pull(REACH) == Pull(BALLOT, 0, SIZE), "what is missing before the end is lost"
    incoming.add(some[3])
    return incoming.pull(REACH) is None


def answers_one_that_waits(kind: type[IncomingChunks]) -> bool:
    incoming, some = begin(kind)
    incoming.add(some[0])
    return incoming.pull(REACH) == Pull(BALLOT, 0, SIZE) and incoming.pull(REACH) is None


RULES = [
    (waits_for_what_is_under_way, TakesAnyChunkForTheEnd),
    (waits_when_the_end_is_repeated, NeedsNoNews),
    (answers_one_that_waits, IsNotUrged),
    (answers_one_that_waits, PullsForEveryChunk),
]


@pytest.mark.parametrize(("rule", "mutant"), RULES, ids=[f"{rule.__name__}-{kind.__name__}" for rule, kind in RULES])
def test_a_pull_has_a_reason(rule, mutant) -> None:  # type: ignore[no-untyped-def]
    assert rule(IncomingChunks)
    assert not rule(mutant)


def test_the_end_tells_of_losses_each_time_that_it_comes() -> None:
    """Two chunks are lost, then one of them again: each end that comes with news of the others is a reason to pull."""
    incoming, some = begin(IncomingChunks)
    incoming.add(some[3])
    assert incoming.pull(REACH) == Pull(BALLOT, 0, SIZE)
    incoming.add(some[1])
    assert incoming.pull(REACH) is None
    incoming.add(some[3])
    assert incoming.pull(REACH) == Pull(BALLOT, 0, 2 * SIZE)
