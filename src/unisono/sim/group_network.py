"""The network of whole members: datagrams that are delayed, lost, doubled, reordered, held back, or come again much later."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from unisono.core.config import MILLISECOND, SECOND
from unisono.sim.links import Links
from unisono.sim.lots import MASK, STEP, key_of, number, pick

DETOUR_NS = 20 * MILLISECOND
"""How much later a datagram arrives at most that takes a detour."""
REPLAYS_KEPT = 64
REPLAY, OLD, FORGOTTEN, COPY, COPY_OF_OLD = (
    key_of(what) for what in ("replay", "old", "forgotten", "copy", "copy of old")
)
"""What alters the key of a datagram beside those of `links`."""


class DatagramNetwork(Links[str]):
    """Decides what becomes of each datagram: `fate` returns when copies of it arrive. A host is an address."""

    def __init__(self, seed: object, delay: str = "uniform:0.2ms:2ms") -> None:
        super().__init__(delay)
        self._seed = seed
        self._keys: dict[tuple[str, str], int] = {}  # by link: of the latest datagram
        self.replay = 0.0
        """The share of datagrams beside which an old one of the same link comes again."""
        self.bytes_per_s: dict[str, int] = {}  # by sender: how much it can send
        self.drops: Callable[[str, str, bytes], bool] | None = None
        """Which datagrams are lost besides: from, to, bytes."""
        self.fails: Callable[[str, str, bytes], int] | None = None
        """The error with which the sender's system refuses a datagram; 0: none."""
        self._cuts: set[tuple[str, str]] = set()
        self._parts: dict[str, int] = {}  # by address: its side of a partition
        self._busy_until: dict[str, int] = {}
        self._old: dict[tuple[str, str], list[bytes]] = {}
        self.sent = self.sent_bytes = self.lost = 0

    # Faults.

    def partition(self, parts: Iterable[Iterable[str]]) -> None:
        """Only members of one part hear each other; who is in none hears and is heard by all."""
        self._parts = {address: number for number, part in enumerate(parts) for address in part}

    def cut(self, src: str, dst: str) -> None:
        """Lose everything from `src` to `dst`. The other direction stays open."""
        self._cuts.add((src, dst))

    def heal(self) -> None:
        super().heal()
        self._cuts.clear()
        self._parts.clear()
        self.bytes_per_s.clear()
        self.drops = self.fails = None
        self.replay = 0.0

    def reaches(self, src: str, dst: str) -> bool:
        here, there = self._parts.get(src), self._parts.get(dst)
        return (src, dst) not in self._cuts and (here is None or there is None or here == there)

    # Datagrams.

    def fate(self, src: str, dst: str, datagram: bytes, now: int) -> list[tuple[int, bytes]]:
        """When what arrives: nothing, the datagram, two of it, or an old one besides. Raises OSError, as a socket does."""
        link = src, dst
        key = self._keys.get(link)
        key = self._keys[link] = key_of(self._seed, *link) if key is None else key + STEP & MASK
        if self.fails is not None and (error := self.fails(src, dst, datagram)):
            raise OSError(error, os.strerror(error))
        self.sent += 1
        self.sent_bytes += len(datagram)
        if not self.reaches(src, dst):
            return []
        is_dropped = self.drops is not None and self.drops(src, dst, datagram)
        start = None if is_dropped or self.loses(src, dst, key) else self._leaves(src, len(datagram), now)
        if start is None:
            self.lost += 1
            return []
        arrivals = [(self._arrival(src, dst, start, key), datagram)]
        if self.doubles(key):
            arrivals.append((self._arrival(src, dst, start, key ^ COPY), datagram))
        if self.replay:
            old = self._old.setdefault(link, [])
            if old and number(key ^ REPLAY) < self.replay:
                arrivals.append((self._arrival(src, dst, start, key ^ COPY_OF_OLD), old[pick(key ^ OLD, len(old))]))
            if len(old) < REPLAYS_KEPT:
                old.append(datagram)
            else:
                old[pick(key ^ FORGOTTEN, REPLAYS_KEPT)] = datagram
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

    def _arrival(self, src: str, dst: str, start: int, key: int) -> int:
        return self.arrival(src, dst, (_place_of(src), _place_of(dst)), start, key, DETOUR_NS)


def _place_of(address: str) -> int:
    """Where in the world an address is: neighbours in the alphabet, or of consecutive ports, are in different regions."""
    return sum(address.encode())
