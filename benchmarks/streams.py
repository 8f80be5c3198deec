"""What reliable streams cost: ``python -m benchmarks.streams [--json]``.

Two members' streams back to back, without a network and without loss. Measured is the whole way, from `cast` to `arrived`, with the
acknowledgements that flow back, in time of the processor; the best of several rounds, because whatever else the machine does
only ever adds.
"""

from __future__ import annotations

import argparse
import json
from random import Random
from time import process_time_ns
from typing import NamedTuple

from unisono.core.streams import Streams, StreamSettings
from unisono.core.types import MemberId, View, ViewId

ROUNDS = 21
TURN_NS = 50_000  # of virtual time between turns


class Case(NamedTuple):
    """The number of packets a turn, their size, and the size of datagrams."""

    name: str
    packet_bytes: int
    a_turn: int
    datagram_bytes: int
    turns: int
    mixed: bool = False


class Cost(NamedTuple):
    name: str
    packets_per_s: float
    mb_per_s: float
    us_a_turn: float


CASES = (
    Case("100 B × 64, one datagram", 100, 64, 9_000, 600),
    Case("50–150 B × 64, one datagram", 100, 64, 9_000, 600, mixed=True),
    Case("100 B × 64, 1,400 B datagrams", 100, 64, 1_400, 400),
    Case("100 B × 1, one datagram", 100, 1, 1_400, 3_000),
    Case("59 kB × 1, 60 kB datagrams", 59_000, 1, 60_000, 1_500),
    Case("1 MiB × 1, 60 kB datagrams", 2**20, 1, 60_000, 60),
)


def measure(case: Case) -> Cost:
    best = min(run(case) for _ in range(ROUNDS))
    packets = case.turns * case.a_turn
    return Cost(
        case.name,
        packets / best * 1e9,
        packets * case.packet_bytes / best * 1e3,
        best / case.turns / 1e3,
    )


def run(case: Case) -> int:
    view = View(ViewId(1, MemberId("a")), (MemberId("a"), MemberId("b")))
    settings = StreamSettings(datagram_bytes=case.datagram_bytes)
    a, b = (Streams(view, rank, settings, Random(rank), 0) for rank in (0, 1))
    random = Random(1)
    spread = case.packet_bytes // 2 if case.mixed else 0
    packets = [bytes(case.packet_bytes + random.randint(-spread, spread)) for _ in range(case.a_turn)]
    got, now = 0, 0
    start = process_time_ns()
    for _ in range(case.turns):
        now += TURN_NS
        for packet in packets:
            a.cast(packet)
        while True:
            for _, datagram in a.drain(now):
                b.receive(0, datagram, now)
            got += len(b.arrived())
            b.take_all()
            for _, datagram in b.drain(now):
                a.receive(1, datagram, now)
            if a.writable():
                break
            now += TURN_NS
    spent = process_time_ns() - start
    while got < case.turns * case.a_turn:  # the tail, not measured
        now += 1_000_000
        for _, datagram in a.drain(now):
            b.receive(0, datagram, now)
        got += len(b.arrived())
        for _, datagram in b.drain(now):
            a.receive(1, datagram, now)
    assert not a.counters.resent
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.streams", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args().json
    costs = [measure(case) for case in CASES]
    if as_json:
        print(json.dumps({"costs": [cost._asdict() for cost in costs]}))
        return
    print(f"{'case':32} {'packets/s':>12} {'MB/s':>8} {'µs/turn':>9}")
    for cost in costs:
        print(f"{cost.name:32} {cost.packets_per_s:12,.0f} {cost.mb_per_s:8,.0f} {cost.us_a_turn:9.1f}")


if __name__ == "__main__":
    main()
