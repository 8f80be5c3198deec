"""Streams that share memory and a rate: nobody is kept out for ever. Both found by reading."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest

from unisono.core.config import MILLISECOND, SECOND
from unisono.core.streams.settings import KIB, StreamSettings
from unisono.core.streams.streams import Streams
from unisono.core.types import MemberId, View, ViewId


def make(members: int, settings: StreamSettings) -> list[Streams]:
    ids = tuple(MemberId(f"m{i:02}") for i in range(members))
    view = View(ViewId(1, ids[0]), ids)
    return [Streams(view, rank, settings, Random(rank), 0) for rank in range(members)]


@pytest.mark.parametrize(
    ("members", "seed"),
    [(4, 0), (4, 1), (8, 0), *(pytest.param(20, seed, marks=pytest.mark.seconds) for seed in range(3))],
)
def test_large_packets_of_all_at_once_arrive(members: int, seed: int) -> None:
    """Each was in the middle of a packet that another one did not let in, and nothing ever moved again."""
    size = 64 * KIB
    settings = StreamSettings(
        datagram_bytes=1_400, reassembly_bytes_max=3 * size, window_bytes=32 * KIB, window_bytes_start=32 * KIB
    )
    streams, random = make(members, settings), Random(seed)
    for one in streams:
        one.cast(bytes(size))
    flying: list[tuple[int, int, int, int, bytes]] = []
    now = number = arrived = 0
    while arrived < members * (members - 1) and now < 300 * SECOND:
        for rank, one in enumerate(streams):
            for to, datagram in one.drain(now):
                for other in range(members) if to is None else (to,):
                    if other != rank:
                        number += 1
                        delay = 100_000 + random.randrange(MILLISECOND)
                        heappush(flying, (now + delay, number, rank, other, bytes(datagram)))
        due = [one.deadline for one in streams if one.deadline is not None] + [at for at, *_ in flying[:1]]
        now = max(now + 1, min(due))
        while flying and flying[0][0] <= now + 100_000:
            _, _, rank, other, datagram = heappop(flying)
            streams[other].receive(rank, datagram, now)
        for one in streams:
            arrived += len(one.arrived())
            one.take_all()
    assert arrived == members * (members - 1)
    assert not any(one.memory.reassembly or one.memory.assembling for one in streams)


def test_under_a_rate_limit_a_large_unicast_body_is_not_put_off_for_ever() -> None:
    """Casts took what the rate allowed as soon as it was enough for one of them, which was never enough for a larger body."""
    a, b, c = make(3, StreamSettings(rate_bytes_per_s=100_000, window_bytes=32 * KIB, window_bytes_start=32 * KIB))
    shown: dict[str, list[int]] = {"b": [], "c": []}
    for now in range(0, 10 * SECOND, MILLISECOND):
        if now == SECOND:
            a.cast_parts(b"header", bytes(3_000), [1])
        while a.writable():
            a.cast(bytes(500))
        for sender, one in enumerate((a, b, c)):
            for to, datagram in one.drain(now):
                for rank, other in enumerate((a, b, c)):
                    if rank != sender and to in (None, rank):
                        other.receive(sender, datagram, now)
        for name, one in (("b", b), ("c", c)):
            shown[name] += [len(packet) for _, packet in one.arrived()]
            one.take_all()
    assert 3_000 in shown["b"]
    assert len(shown["b"]) == len(shown["c"])
