"""The network of the world of orders: when does a packet that leaves now arrive?

Each pair of members has a cast and a unicast stream. Within a stream the network restores order, as the streams below an ordering
do in the real system: a packet never overtakes its predecessor, and loss is late arrival (a retransmission, then perhaps another).
Between streams nothing is promised, so a unicast may overtake a cast of the same sender.
"""

from __future__ import annotations

from unisono.sim.links import Links
from unisono.sim.lots import MASK, STEP, key_of
from unisono.sim.scenario import Scenario

CAST, UNICAST = 0, 1
TRIES_MAX = 12
"""Doublings of the retransmission time stop here."""


class PacketNetwork(Links[int]):
    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario.delay)
        size = scenario.members
        self.loss, self.duplicate, self.reorder = scenario.loss, scenario.duplicate, scenario.reorder
        self.is_plain = not (scenario.loss or scenario.duplicate or scenario.reorder)
        self._retransmit_ns = max(1, scenario.retransmit_ns)
        self.lost = self.duplicated = 0
        self.receivers = [key_of(scenario.seed, "receiver", host) for host in range(size)]
        """What alters the key of a packet for each of its receivers."""
        self._casts = [key_of(scenario.seed, "cast", src) for src in range(size)]  # of the latest packet
        self._unicasts = [[key_of(scenario.seed, "unicast", src)] * size for src in range(size)]
        self.last = [[[0] * size for _ in range(size)] for _ in (CAST, UNICAST)]  # arrival so far, by stream and link

    def next_cast(self, src: int) -> int:
        """The key of the next packet that is cast."""
        key = self._casts[src] = self._casts[src] + STEP & MASK
        return key

    def unicast(self, src: int, dst: int, now: int) -> int:
        """When a packet to this member alone, sent now, arrives."""
        row = self._unicasts[src]
        key = row[dst] = row[dst] + STEP & MASK
        return self.take(UNICAST, src, dst, now, key)

    def take(self, stream: int, src: int, dst: int, now: int, key: int) -> int:
        """When a packet sent now arrives; it has this key."""
        key ^= self.receivers[dst]
        at = now + self.sample(src, dst, key) if self.is_plain else self._late(src, dst, now, key)
        last = self.last[stream][src]
        if at < last[dst]:
            at = last[dst]
        last[dst] = at
        return at

    def _late(self, src: int, dst: int, now: int, key: int) -> int:
        start, wait, tries = now, self._retransmit_ns, 0
        while tries < TRIES_MAX and self.loses(src, dst, key + tries & MASK):
            self.lost += 1
            start += wait
            wait, tries = wait * 2, tries + 1
        if self.doubles(key):
            self.duplicated += 1  # the stream drops the second copy
        return self.arrival(src, dst, (src, dst), start, key, 4 * self.mean_ns)
