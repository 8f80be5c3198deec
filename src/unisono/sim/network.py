"""The simulated network: when does a packet that leaves now arrive?

Cast and unicast streams are modelled apart. Within a stream the network restores order, as the streams below an ordering do in the
real system: a packet never overtakes its predecessor, and loss is late arrival (a retransmission, then perhaps another). Between
streams nothing is promised, so a unicast may overtake a cast of the same sender.

Two paths: while nothing but the delay model matters, a tight loop; as soon as loss, detours or a fault on a link are in play,
the general rule in `_late`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from unisono.sim.delay import parse_delay
from unisono.sim.scenario import Scenario

CAST, UNICAST = 0, 1
TRIES_MAX = 12
"""Doublings of the retransmission time stop here."""


class PacketNetwork:
    def __init__(self, scenario: Scenario, stream: Callable[[str], Random]) -> None:
        size = scenario.members
        delay = parse_delay(scenario.delay)
        self.sample = delay.make(stream("delay"))
        self.counts: Counter[str] = Counter()  # what happened to packets: lost, duplicated, detoured, held
        self.mean_ns = delay.mean_ns
        self._retransmit_ns = max(1, scenario.retransmit_ns)
        self._loss, self._duplicate, self._reorder = scenario.loss, scenario.duplicate, scenario.reorder
        self._losses, self._duplicates, self._detours = stream("loss"), stream("duplicate"), stream("reorder")
        self._blocked_until = [[0] * size for _ in range(size)]  # by direction: nothing passes before
        self._factor = [[1.0] * size for _ in range(size)]
        self._link_loss = [[0.0] * size for _ in range(size)]
        self.last = [[[0] * size for _ in range(size)] for _ in (CAST, UNICAST)]  # by stream: latest arrival so far
        self.plain = not (scenario.loss or scenario.duplicate or scenario.reorder)

    def arrival(self, stream: int, src: int, dst: int, now: int) -> int:
        """When a packet sent now arrives."""
        at = now + self.sample(src, dst) if self.plain else self._late(src, dst, now)
        last = self.last[stream][src]
        if at < last[dst]:
            at = last[dst]
        last[dst] = at
        return at

    def _late(self, src: int, dst: int, now: int) -> int:
        counts = self.counts
        start = now
        if self._blocked_until[src][dst] > now:
            start = self._blocked_until[src][dst]
            counts["held"] += 1
        took = int(self.sample(src, dst) * self._factor[src][dst])
        loss = max(self._loss, self._link_loss[src][dst])
        if loss:
            wait, tries = self._retransmit_ns, 0
            while tries < TRIES_MAX and self._losses.random() < loss:
                counts["lost"] += 1
                took += wait
                wait, tries = wait * 2, tries + 1
        if self._reorder and self._detours.random() < self._reorder:
            counts["detoured"] += 1
            took += int(self._detours.random() * 4 * self.mean_ns)
        if self._duplicate and self._duplicates.random() < self._duplicate:
            counts["duplicated"] += 1  # the stream drops the second copy
        return start + max(1, took)

    # Faults on links.

    def block(self, src: int, dst: int, until: int) -> None:
        self._blocked_until[src][dst] = max(self._blocked_until[src][dst], until)
        self.plain = False

    def slow(self, src: int, dst: int, factor: float) -> None:
        self._factor[src][dst] = factor
        self.plain = False

    def lose(self, src: int, dst: int, share: float) -> None:
        self._link_loss[src][dst] = share
        self.plain = False
