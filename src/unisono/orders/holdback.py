"""Queues and sums that several orderings share: what is received and not yet deliverable, and what a view change keeps of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from unisono.core.config import Config
from unisono.core.ordering import Report
from unisono.core.types import Packet, Rank
from unisono.core.wire import ALL, RANK, ROW, SLOT, U64, VECTOR, Layout

FORGET_MIN = 4_096
"""So many batches are forgotten at once, by an order that keeps some of what everyone has delivered."""


def reach_max(config: Config) -> int:
    """In a view change nobody is so many batches of one origin ahead of another: both have windows. What says so is forged."""
    return max(2**20, 8 * config.window_messages)


def longest_held(reports: Mapping[Rank, Report]) -> tuple[int, ...]:
    """By origin: the longest prefix of its slots that any survivor holds."""
    return tuple(max(column) for column in zip(*(report.held for report in reports.values()), strict=True))


class Held(NamedTuple):
    """One packet that waits for its causal past: its place, its vector, and by how much it will advance its origin."""

    number: int
    vector: tuple[int, ...]
    weight: int
    packet: Packet


class VectorHoldback:
    """Holds packets back until their causal past is here, by vectors whose own entry is the count *before* the packet.

    Only the head of each origin's queue can be ready, and an unready head names one origin that it waits for; it is looked at
    again when that origin advances, so a packet is tested about once for each origin that it waits for, not once a delivery.
    """

    __slots__ = ("_awaiting", "_queues", "taken")

    def __init__(self, size: int) -> None:
        self.taken = [0] * size  # by origin: how much is past the holdback, in units of weight
        self._queues: list[deque[Held]] = [deque() for _ in range(size)]
        self._awaiting: list[list[Rank]] = [[] for _ in range(size)]  # by origin: whose heads wait for it to advance

    def add(self, origin: Rank, held: Held) -> list[tuple[Rank, Held]]:
        """Queue one packet; return all that became ready, in a legal order (usually just this one)."""
        queue = self._queues[origin]
        if queue:  # its predecessor waits, so it waits too
            queue.append(held)
            return []
        blocker = self._blocker(held)
        if blocker is not None:
            queue.append(held)
            self._awaiting[blocker].append(origin)
            return []
        self.taken[origin] += held.weight
        ready = [(origin, held)]
        if self._awaiting[origin]:
            self._release(origin, ready)
        return ready

    def waiting(self) -> Iterator[tuple[Rank, Held]]:
        """Everything that is held back, by origin."""
        for origin, queue in enumerate(self._queues):
            for held in queue:
                yield origin, held

    def depth(self, origin: Rank) -> int:
        return len(self._queues[origin])

    def blockers(self, held: Held) -> tuple[Rank, ...]:
        """Of which origins something is missing that this packet follows."""
        return tuple(rank for rank, count in enumerate(held.vector) if count > self.taken[rank])

    def advance(self, rank: Rank, weight: int) -> None:
        """Count an own packet, which needs no holding back: its past is by definition here."""
        self.taken[rank] += weight
        assert not self._awaiting[rank], "nobody can wait for a packet that was not cast yet"

    def _blocker(self, held: Held) -> Rank | None:
        taken = self.taken
        for rank, count in enumerate(held.vector):
            if count > taken[rank]:
                return rank
        return None

    def _release(self, origin: Rank, ready: list[tuple[Rank, Held]]) -> None:
        advanced = [origin]
        while advanced:
            rank = advanced.pop()
            waiters, self._awaiting[rank] = self._awaiting[rank], []
            for waiter in waiters:
                queue = self._queues[waiter]
                while queue:
                    blocker = self._blocker(queue[0])
                    if blocker is not None:
                        self._awaiting[blocker].append(waiter)
                        break
                    held = queue.popleft()
                    self.taken[waiter] += held.weight
                    ready.append((waiter, held))
                    advanced.append(waiter)


class VectorReport(NamedTuple):
    """What a member with a `VectorHoldback` says at a flush."""

    held: tuple[int, ...]  # by origin: slots received
    taken: tuple[int, ...]  # by origin: units past the holdback
    waiting: tuple[tuple[Rank, int, int, tuple[int, ...]], ...]  # held back: origin, number, weight, vector


VECTOR_REPORT_WIRE = Layout(0x21, VectorReport, (VECTOR, VECTOR, ALL(ROW(RANK, SLOT, U64, VECTOR))))


def vector_report(held: list[int], holdback: VectorHoldback) -> VectorReport:
    waiting = tuple((origin, h.number, h.weight, h.vector) for origin, h in holdback.waiting())
    return VectorReport(tuple(held), tuple(holdback.taken), waiting)


def causally_closed(reports: Mapping[Rank, VectorReport]) -> tuple[int, ...]:
    """By origin: the last slot of the largest causally closed set that the survivors hold together.

    What any survivor has taken in is causally closed, and so is the union of such sets. To it come the packets in holdback
    queues whose past is in the set. The rest follows a packet that nobody holds, and is dropped by all; with it, by FIFO,
    everything later of the same origin.
    """
    size = len(next(iter(reports.values())).held)
    taken = [0] * size
    last = [0] * size  # the slot that goes with `taken`
    waiting: dict[tuple[Rank, int], tuple[int, tuple[int, ...]]] = {}
    for report in reports.values():
        behind = [0] * size
        for origin, number, weight, vector in report.waiting:
            behind[origin] += 1
            waiting[origin, number] = (weight, vector)
        for origin in range(size):
            taken[origin] = max(taken[origin], report.taken[origin])
            last[origin] = max(last[origin], report.held[origin] - behind[origin])
    progress = True
    while progress:
        progress = False
        for origin in range(size):
            while (entry := waiting.get((origin, last[origin] + 1))) is not None:
                weight, vector = entry
                if any(count > taken[rank] for rank, count in enumerate(vector)):
                    break
                taken[origin] += weight
                last[origin] += 1
                progress = True
    return tuple(last)
