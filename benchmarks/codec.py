"""What the codec costs a message, by batch size: ``python -m benchmarks.codec [--json]``.

Measured is a whole packet with a vector of four members and payloads of 100 bytes, from packet to bytes and back;
the best of several rounds, because whatever else the machine does only ever adds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from random import Random
from time import perf_counter_ns
from typing import NamedTuple

from unisono.core.types import Batch, Service
from unisono.core.wire.codec import BATCH, SLOT, VECTOR, Codec, Layout

BATCHES = (1, 4, 16, 64, 256)
PAYLOAD_BYTES = 100
MEMBERS = 4
ROUNDS = 15
MESSAGES_A_ROUND = 20_000


class Data(NamedTuple):
    number: int
    vector: tuple[int, ...]
    batch: Batch


class Cost(NamedTuple):
    """What one message costs in batches of this size, in nanoseconds."""

    batch: int
    packet_bytes: int
    encode_ns: float
    decode_ns: float
    decode_mixed_ns: float
    size_ns: float


def measure(messages: int) -> Cost:
    codec = Codec((Layout(1, Data, (SLOT, VECTOR, BATCH)),))
    packet = make_packet([PAYLOAD_BYTES] * messages)
    data = memoryview(codec.encode(packet))
    assert codec.decode(data, 0, MEMBERS) == packet
    mixed = [memoryview(codec.encode(make_packet(mixed_lengths(messages, i)))) for i in range(1_000)]
    turn = iter(range(10**12))

    def decode_mixed() -> None:
        codec.decode(mixed[next(turn) % len(mixed)], 0, MEMBERS)

    return Cost(
        messages,
        len(data),
        best_ns(lambda: codec.encode(packet), messages),
        best_ns(lambda: codec.decode(data, 0, MEMBERS), messages),
        best_ns(decode_mixed, messages),
        best_ns(lambda: codec.size(packet), messages),
    )


def make_packet(lengths: list[int]) -> Data:
    payloads = [bytes([i % 256]) * length for i, length in enumerate(lengths)]
    return Data(1, (10, 20, 30, 40), Batch(0, 1_000, payloads, Service.CAUSAL))


def mixed_lengths(messages: int, seed: int) -> list[int]:
    """Random lengths around 100. Of 1,000 such lists the codec still knows few, unless they have one entry."""
    random = Random(seed)
    return [random.randint(PAYLOAD_BYTES - 50, PAYLOAD_BYTES + 50) for _ in range(messages)]


def best_ns(call: Callable[[], object], messages: int) -> float:
    """The time of a call in its fastest round, divided by the messages in it."""
    calls = max(1, MESSAGES_A_ROUND // messages)
    rounds = []
    for _ in range(ROUNDS):
        start = perf_counter_ns()
        for _ in range(calls):
            call()
        rounds.append(perf_counter_ns() - start)
    return min(rounds) / calls / messages


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.codec", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args().json
    costs = [measure(messages) for messages in BATCHES]
    if as_json:
        print(json.dumps({"payload_bytes": PAYLOAD_BYTES, "costs": [cost._asdict() for cost in costs]}))
        return
    print(f"ns a message, payloads of {PAYLOAD_BYTES} bytes (mixed: 50 to 150, lengths that change with every batch)")
    print(f"{'batch':>6} {'bytes':>7} {'encode':>8} {'decode':>8} {'mixed':>8} {'size':>8}")
    for cost in costs:
        numbers = " ".join(f"{value:8.0f}" for value in cost[2:])
        print(f"{cost.batch:6} {cost.packet_bytes:7} {numbers}")


if __name__ == "__main__":
    main()
