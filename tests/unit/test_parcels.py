"""A parcel comes whole over a network that loses, repeats and reorders, and costs a few times its pieces, whatever happens."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest

from unisono.core.membership.chunks import Parcel, pieces
from unisono.core.types import MemberId, ViewId
from unisono.core.wire.control import Piece, Pull

BALLOT = ViewId(2, MemberId("a", 0))
SIZE, COUNT = 64, 64
REACH = SIZE * COUNT
DATA = bytes(range(256)) * 40  # 160 pieces


def sent_for(kind: type[Parcel], seed: int, loss: float, duplication: float) -> int:
    """How many pieces are sent until the parcel is whole. Of the time it takes to come, a piece differs tenfold from another."""
    random, parcel = Random(seed), kind(BALLOT, 0, len(DATA))
    now, tie, sent = 0, 0, 0
    heap: list[tuple[int, int, Piece | Pull]] = []

    def send(*messages: Piece | Pull) -> None:
        nonlocal tie
        for message in messages:
            for _ in range(1 + (random.random() < duplication)):
                if random.random() >= loss:
                    tie += 1
                    heappush(heap, (now + random.randint(5, 50), tie, message))

    send(*pieces(BALLOT, 0, DATA, 0, SIZE, 1))
    while not parcel.is_whole:
        if not heap or heap[0][0] > now + 1_000:
            now += 1_000  # nothing moves: the receiver has waited
            pull = parcel.pull(REACH, again=True)
        else:
            now, _, message = heappop(heap)
            if isinstance(message, Pull):
                answer = list(pieces(BALLOT, 0, DATA, message.offset, SIZE, COUNT))
                sent += len(answer)
                send(*answer)
                continue
            parcel.add(message)
            pull = parcel.pull(REACH)
        if pull is not None:
            send(pull)
        if sent > 30 * len(DATA) // SIZE:
            break
    return sent


def times_sent(kind: type[Parcel], loss: float, duplication: float) -> float:
    """How often a piece is sent, in the worst of some runs."""
    return max(sent_for(kind, seed, loss, duplication) for seed in range(6)) / (len(DATA) // SIZE)


class PullsForEveryPiece(Parcel):
    def pull(self, reach: int, again: bool = False) -> Pull | None:
        return super().pull(reach, again=True)


class TakesAnyPieceForTheEnd(Parcel):
    def pull(self, reach: int, again: bool = False) -> Pull | None:
        self._is_ended = True
        return super().pull(reach, again)


class NeedsNoNews(Parcel):
    def pull(self, reach: int, again: bool = False) -> Pull | None:
        self._is_news = True
        return super().pull(reach, again)


class IsNotUrged(Parcel):
    def pull(self, reach: int, again: bool = False) -> Pull | None:
        self._is_urged = False
        return super().pull(reach, again)


@pytest.mark.parametrize("duplication", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("loss", [0.0, 0.05, 0.25])
def test_a_parcel_costs_a_few_times_its_pieces(loss: float, duplication: float) -> None:
    assert times_sent(Parcel, loss, duplication) < 12


@pytest.mark.parametrize("kind", [PullsForEveryPiece, TakesAnyPieceForTheEnd])
def test_a_pull_for_every_piece_is_a_storm(kind: type[Parcel]) -> None:
    assert times_sent(kind, 0.0, 0.0) > 20


def begin(kind: type[Parcel]) -> tuple[Parcel, list[Piece]]:
    """A parcel of four pieces: the first is here, and the others are asked for."""
    some = list(pieces(BALLOT, 0, DATA[: 4 * SIZE], 0, SIZE, 4))
    parcel = kind(BALLOT, 0, 4 * SIZE)
    parcel.add(some[0])
    assert parcel.pull(REACH) == Pull(BALLOT, 0, SIZE)
    return parcel, some


def waits_for_what_is_under_way(kind: type[Parcel]) -> bool:
    parcel, some = begin(kind)
    parcel.add(some[2])
    return parcel.pull(REACH) is None


def waits_when_the_end_is_repeated(kind: type[Parcel]) -> bool:
    parcel, some = begin(kind)
    parcel.add(some[3])
    assert parcel.pull(REACH) == Pull(BALLOT, 0, SIZE), "what is missing before the end is lost"
    parcel.add(some[3])
    return parcel.pull(REACH) is None


def answers_one_that_waits(kind: type[Parcel]) -> bool:
    parcel, some = begin(kind)
    parcel.add(some[0])
    return parcel.pull(REACH) == Pull(BALLOT, 0, SIZE) and parcel.pull(REACH) is None


RULES = [
    (waits_for_what_is_under_way, TakesAnyPieceForTheEnd),
    (waits_when_the_end_is_repeated, NeedsNoNews),
    (answers_one_that_waits, IsNotUrged),
    (answers_one_that_waits, PullsForEveryPiece),
]


@pytest.mark.parametrize(("rule", "mutant"), RULES, ids=[f"{rule.__name__}-{kind.__name__}" for rule, kind in RULES])
def test_a_pull_has_a_reason(rule, mutant) -> None:  # type: ignore[no-untyped-def]
    assert rule(Parcel)
    assert not rule(mutant)


def test_the_end_tells_of_losses_each_time_that_it_comes() -> None:
    """Two pieces are lost, then one of them again: each end that comes with news of the others is a reason to pull."""
    parcel, some = begin(Parcel)
    parcel.add(some[3])
    assert parcel.pull(REACH) == Pull(BALLOT, 0, SIZE)
    parcel.add(some[1])
    assert parcel.pull(REACH) is None
    parcel.add(some[3])
    assert parcel.pull(REACH) == Pull(BALLOT, 0, 2 * SIZE)
