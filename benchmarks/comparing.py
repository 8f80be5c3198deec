"""What it costs that members compare what they delivered: by batch, and as a share of all that members do.

The first table times the hash of one batch alone: the best of many short tries.

The second is three members in one process, without sockets: datagrams are handed over by lists, so what members do is all
that is measured, and the share of the hash is an upper bound. Runs come in pairs, as they are and without the hash (it is
replaced by nothing), in turn, so that other load on the machine meets both alike; figures are medians over the pairs, of CPU
time. `--sockets` adds the same for real members on loopback.

The exchange at a view change is one small packet a member, and in none of these.

    ./dev bench comparing [--pairs 40] [--sockets] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Callable
from random import Random
from statistics import median
from time import process_time
from timeit import repeat
from typing import Any, NamedTuple
from unittest.mock import patch

import unisono
from unisono.core.member import Member, Settings
from unisono.core.member.comparison import Comparer
from unisono.core.streams import StreamSettings
from unisono.core.types import Batch, MemberId, Service
from unisono.core.views import DeliveredLanes
from unisono.orders.registry import ORDERS

BATCHES = ((1, 100), (40, 100), (200, 100), (1, 1_000), (1, 60_000))
"""Messages in a batch, and bytes of each."""
TICK_NS = 50_000


class Load(NamedTuple):
    name: str
    burst: int
    """Messages that each member casts at once."""
    size: int
    total: int


LOADS = (
    Load("100 bytes, one at a time", 1, 100, 500),
    Load("100 bytes, bursts of 200", 200, 100, 12_000),
    Load("1 kB, bursts of 50", 50, 1_000, 4_000),
    Load("60 kB, one at a time", 1, 60_000, 150),
)
ORDERS_SHOWN = ("sequencer", "fifo")


def hash_ns(messages: int, size: int) -> float:
    """Nanoseconds a batch: the best of many short tries, which other load on the machine leaves alone."""
    batch = Batch(0, 0, [os.urandom(size) for _ in range(messages)], Service.TOTAL)
    add, times = DeliveredLanes().add, 1_000
    return min(repeat(lambda: add(batch), number=times, repeat=50)) / times * 1e9


class Lists:
    """Three whole members, and the datagrams between them."""

    def __init__(self, order: str) -> None:
        self.now = 0
        settings = Settings(streams=StreamSettings(datagram_bytes=65_000))
        self.members = {
            name: Member(MemberId(name, 1), "bench", ORDERS, order, settings, Random(name), self.now) for name in "abc"
        }
        self.delivered = 0
        for member in self.members.values():
            member.join(["a"])
        while not all(member.view is not None and len(member.view) == 3 for member in self.members.values()):
            self.turn()

    def turn(self) -> None:
        """Everyone takes a turn; what is sent arrives with the next one."""
        self.now += TICK_NS
        sent: dict[str, list[bytes]] = {name: [] for name in self.members}
        for member in self.members.values():
            effects = member.drain(self.now)
            for addresses, datagram in effects.datagrams:
                for address in addresses:
                    sent[address].append(datagram)
            self.delivered += sum(event.count for event in effects.events if isinstance(event, Batch))
        for name, datagrams in sent.items():
            if datagrams:
                self.members[name].receive(datagrams, self.now)

    def seconds(self, load: Load) -> float:
        """CPU seconds a message, for casting it and delivering it at all three."""
        payload, cast = bytes(load.size), 0
        begun, target = process_time(), self.delivered
        while cast < load.total:
            for member in self.members.values():
                member.cast_many([payload] * load.burst)
            cast += 3 * load.burst
            target += 9 * load.burst
            while self.delivered < target:
                self.turn()
        return (process_time() - begun) / cast


async def on_sockets(order: str, load: Load) -> float:
    """The same of real members on loopback."""
    async with (
        unisono.join("bench", listen="127.0.0.1:0", order=order) as a,
        unisono.join("bench", listen="127.0.0.1:0", peers=[a.id.address], order=order, min_members=2) as b,
        unisono.join("bench", listen="127.0.0.1:0", peers=[a.id.address], order=order, min_members=3) as c,
    ):
        groups, taken = (a, b, c), [0, 0, 0]
        await a.until(lambda view: len(view.members) == 3, 30)

        def taker(i: int) -> Any:
            def take(sender: unisono.MemberId, payload: bytes) -> None:
                taken[i] += 1

            return take

        reading = [asyncio.create_task(group.each(taker(i))) for i, group in enumerate(groups)]
        payload, cast = bytes(load.size), 0
        begun = process_time()
        while cast < load.total:
            receipts = [[await group.cast(payload) for _ in range(load.burst)][-1] for group in groups]
            cast += 3 * load.burst
            for receipt in receipts:
                await receipt.delivered(30)
        while min(taken) < cast:
            await asyncio.sleep(0)
        spent = process_time() - begun
        for group in groups:
            await group.leave()
        await asyncio.gather(*reading)
    return spent / cast


def without_hash(measure: Callable[[], float]) -> float:
    with patch.object(Comparer, "count", lambda self: self.waiting.clear()):
        return measure()


def in_pairs(measure: Callable[[], float], pairs: int) -> list[tuple[float, float]]:
    """With the hash and without it, which of them first by turns."""
    found = []
    for i in range(pairs):
        if i % 2:
            found.append((measure(), without_hash(measure)))
        else:
            bare = without_hash(measure)
            found.append((measure(), bare))
    return found


def ratio_of(pairs: list[tuple[float, float]]) -> float:
    return round(median(with_hash / bare for with_hash, bare in pairs), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--sockets", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    batches: list[dict[str, Any]] = [
        {"messages": count, "bytes": size, "ns": round(hash_ns(count, size))} for count, size in BATCHES
    ]
    groups: list[dict[str, Any]] = []
    for order in ORDERS_SHOWN:
        lists = Lists(order)
        for load in LOADS:
            pairs = in_pairs(lambda lists=lists, load=load: lists.seconds(load), options.pairs)  # type: ignore[misc]
            us = median(with_hash for with_hash, _ in pairs) * 1e6
            row: dict[str, Any] = {"order": order, "load": load.name, "us": round(us, 2), "ratio": ratio_of(pairs)}
            if options.sockets:
                real = in_pairs(lambda order=order, load=load: asyncio.run(on_sockets(order, load)), options.pairs)  # type: ignore[misc]
                row["sockets"] = ratio_of(real)
            groups.append(row)
    if options.json:
        print(json.dumps({"batches": batches, "groups": groups}))
        return
    print("| batch | ns | ns a message |\n|---|---:|---:|")
    for row in batches:
        print(f"| {row['messages']} × {row['bytes']:,} bytes | {row['ns']:,} | {row['ns'] / row['messages']:.0f} |")
    more, rule = (" on sockets, to the same without |", "---:|") if options.sockets else ("", "")
    print(f"\n| order | load | µs of CPU a message, three members | to the same without |{more}")
    print(f"|---|---|---:|---:|{rule}")
    for row in groups:
        sockets = f" {row['sockets']:.1%} |" if options.sockets else ""
        print(f"| {row['order']} | {row['load']} | {row['us']} | {row['ratio']:.1%} |{sockets}")


if __name__ == "__main__":
    main()
