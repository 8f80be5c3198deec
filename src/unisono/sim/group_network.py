"""The network of whole members: datagrams that are delayed, lost, doubled, reordered, held back, or come again much later.

Links are directed pairs of addresses. Every kind of draw has a random stream of its own, so that one fault does not change what
the others do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from random import Random

from unisono.core.config import MILLISECOND, SECOND
from unisono.sim.delay import parse_delay

REPLAYS_KEPT = 64


class DatagramNetwork:
    """Decides what becomes of each datagram: `fate` returns when copies of it arrive."""

    def __init__(self, stream: Callable[[str], Random], delay: str = "uniform:0.2ms:2ms") -> None:
        self._sample = parse_delay(delay).make(stream("delays"))
        self._luck = stream("loss")
        self._twice = stream("duplicates")
        self._detour = stream("detours")
        self._past = stream("replays")
        self.loss = 0.0
        self.duplicate = 0.0
        self.reorder = 0.0
        self.replay = 0.0
        """The share of datagrams beside which an old one of the same link comes again."""
        self.bytes_per_s: dict[str, int] = {}  # by sender: how much it can send
        self.drops: Callable[[str, str, bytes], bool] | None = None
        """Which datagrams are lost besides: from, to, bytes."""
        self.fails: Callable[[str, str, bytes], int] | None = None
        """The error with which the sender's system refuses a datagram; 0: none."""
        self._numbers: dict[str, int] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._parts: dict[str, int] = {}  # by address: its side of a partition
        self._clogs: dict[tuple[str, str], int] = {}  # until when
        self._lossy: dict[tuple[str, str], float] = {}
        self._busy_until: dict[str, int] = {}
        self._old: dict[tuple[str, str], list[bytes]] = {}
        self.sent = self.sent_bytes = self.lost = self.replayed = 0

    # Faults.

    def partition(self, parts: Iterable[Iterable[str]]) -> None:
        """Only members of one part hear each other; who is in none hears and is heard by all."""
        self._parts = {address: number for number, part in enumerate(parts) for address in part}

    def cut(self, src: str, dst: str) -> None:
        """Lose everything from `src` to `dst`. The other direction stays open."""
        self._cuts.add((src, dst))

    def clog(self, src: str, dst: str, until: int) -> None:
        """Nothing gets through until then; what was sent meanwhile comes afterwards, at once."""
        self._clogs[src, dst] = max(until, self._clogs.get((src, dst), 0))

    def lose(self, src: str, dst: str, share: float) -> None:
        self._lossy[src, dst] = share

    def heal(self) -> None:
        """No fault remains, not even ordinary loss."""
        self._cuts.clear()
        self._parts.clear()
        self._clogs.clear()
        self._lossy.clear()
        self.bytes_per_s.clear()
        self.drops = self.fails = None
        self.loss = self.duplicate = self.reorder = self.replay = 0.0

    def reaches(self, src: str, dst: str) -> bool:
        here, there = self._parts.get(src), self._parts.get(dst)
        return (src, dst) not in self._cuts and (here is None or there is None or here == there)

    # Datagrams.

    def fate(self, src: str, dst: str, datagram: bytes, now: int) -> list[tuple[int, bytes]]:
        """When what arrives: nothing, the datagram, two of it, or an old one besides. Raises OSError, as a socket does."""
        if self.fails is not None and (error := self.fails(src, dst, datagram)):
            raise OSError(error, os.strerror(error))
        self.sent += 1
        self.sent_bytes += len(datagram)
        if not self.reaches(src, dst):
            return []
        if self.drops is not None and self.drops(src, dst, datagram):
            self.lost += 1
            return []
        if self._luck.random() < max(self.loss, self._lossy.get((src, dst), 0.0)):
            self.lost += 1
            return []
        start = self._leaves(src, len(datagram), now)
        if start is None:
            self.lost += 1
            return []
        arrivals = [(self._arrival(src, dst, start), datagram)]
        if self.duplicate and self._twice.random() < self.duplicate:
            arrivals.append((self._arrival(src, dst, start), datagram))
        if self.replay:
            old = self._old.setdefault((src, dst), [])
            if old and self._past.random() < self.replay:
                self.replayed += 1
                arrivals.append((self._arrival(src, dst, start), self._past.choice(old)))
            if len(old) < REPLAYS_KEPT:
                old.append(datagram)
            else:
                old[self._past.randrange(REPLAYS_KEPT)] = datagram
        return arrivals

    def _leaves(self, src: str, size: int, now: int) -> int | None:
        """When the sender's line has taken it; None: its queue of half a second is full."""
        rate = self.bytes_per_s.get(src)
        if rate is None:
            return now
        busy = max(self._busy_until.get(src, 0), now)
        if busy - now > SECOND // 2:
            return None
        self._busy_until[src] = busy + size * SECOND // rate
        return self._busy_until[src]

    def _arrival(self, src: str, dst: str, start: int) -> int:
        arrival = start + self._sample(self._number(src), self._number(dst))
        if self.reorder and self._detour.random() < self.reorder:
            arrival += int(self._detour.random() * 20 * MILLISECOND)
        return max(arrival, self._clogs.get((src, dst), 0))

    def _number(self, address: str) -> int:
        return self._numbers.setdefault(address, len(self._numbers))
