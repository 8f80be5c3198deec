"""What ordering costs: µs of CPU per message and member, by protocol and batch size.

Five orderings are connected by plain lists; members cast in turn, and everything is handed over before the next cast. So
the figure is the protocol alone: no network, no codec, no simulator.

    ./dev bench ordering [--members 5] [--messages 20000] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from time import process_time

from unisono.core.config import Config
from unisono.core.ordering import AnyOrdering
from unisono.core.outbox import Outbox
from unisono.core.types import Batch, MemberId, Packet, View, ViewId
from unisono.orders.registry import ORDERS

BATCHES = (1, 4, 16, 64, 256)


class Group:
    """Orderings of one view, and the packets under way between them."""

    def __init__(self, order: type[AnyOrdering], members: int) -> None:
        ids = tuple(MemberId(f"m{i}") for i in range(members))
        view = View(ViewId(1, ids[0]), ids)
        self.orderings = [order(view, rank, Config()) for rank in range(members)]
        self.out = [Outbox() for _ in range(members)]
        self.packets: deque[tuple[int, int, Packet]] = deque()  # to, from, packet
        self.delivered = 0

    def cast(self, rank: int, batch: Batch) -> None:
        self.orderings[rank].submit(batch, self.out[rank])
        self._end_turn(rank)
        self._deliver_packets()

    def finish(self) -> None:
        """Let idle members acknowledge, until none owes anything."""
        before = -1
        while self.delivered != before:
            before = self.delivered
            for rank, ordering in enumerate(self.orderings):
                ordering.quiet(self.out[rank])
                self._end_turn(rank)
            self._deliver_packets()

    def _deliver_packets(self) -> None:
        while self.packets:
            to, sender, packet = self.packets.popleft()
            self.orderings[to].receive(sender, packet, self.out[to])
            self._end_turn(to)

    def _end_turn(self, rank: int) -> None:
        out = self.out[rank]
        self.orderings[rank].end_turn(out)
        if out.to_all:
            for packet in out.to_all:
                self.packets.extend((to, rank, packet) for to in range(len(self.orderings)) if to != rank)
            out.to_all.clear()
        if out.to_one:
            self.packets.extend((to, rank, packet) for to, packet in out.to_one)
            out.to_one.clear()
        if out.deliver:
            self.delivered += sum(batch.count for batch in out.deliver)
            out.deliver.clear()


def measure(name: str, members: int, messages: int, size: int, rounds: int = 3) -> float:
    """The best of a few rounds, in µs per message and member."""
    best = float("inf")
    payloads = (bytes(100),) * size
    for _ in range(rounds):
        group = Group(ORDERS[name], members)
        order = ORDERS[name]
        first = [0] * members
        count = max(members * 4, messages // size)
        start = process_time()
        for i in range(count):
            rank = i % members
            group.cast(rank, Batch(rank, first[rank], payloads, order.service))
            first[rank] += size
        group.finish()
        spent = process_time() - start
        assert group.delivered == count * size * members, "every member delivers every message"
        best = min(best, spent / (count * size * members) * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./dev bench ordering", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = {}
    if not options.json:
        print(f"µs of CPU per message and member, {options.members} members")
        print(f"{'order':14}" + "".join(f"{f'batch {size}':>12}" for size in BATCHES))
    for name in ORDERS:
        rows[name] = {size: measure(name, options.members, options.messages, size) for size in BATCHES}
        if not options.json:
            print(f"{name:14}" + "".join(f"{rows[name][size]:12.3f}" for size in BATCHES))
            sys.stdout.flush()
    if options.json:
        print(json.dumps({"unit": "us per message and member", "members": options.members, "orders": rows}))


if __name__ == "__main__":
    main()
