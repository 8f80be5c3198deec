"""Queues and sums that several orderings share: what is received and not yet deliverable, and what a view change keeps of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import gt, lt
from typing import NamedTuple

from unisono.core.config import Config
from unisono.core.errors import PeerFault
from unisono.core.ordering import Report
from unisono.core.types import Packet, Rank, Slot
from unisono.core.wire import ALL, RANK, ROW, SLOT, U64, VECTOR, Layout

FORGET_MIN = 4_096
"""Minimum number of batches to forget at once, for an order that keeps some of what everyone has delivered."""

AHEAD_MAX = 2**32
"""Windows keep members together: a counter that lies further beyond all that is known here is not a correct member's. Taking it
over would use up the numbers that counters can have."""


def reach_max(config: Config) -> int:
    """How many batches of one origin a member can be ahead of another: both have windows. A report of more is forged."""
    return max(2**20, 8 * config.window_messages)


def longest_held(reports: Mapping[Rank, Report]) -> tuple[int, ...]:
    """By origin: the longest prefix of its slots that any survivor holds."""
    return tuple(max(column) for column in zip(*(report.held for report in reports.values()), strict=True))


def demand_rest(
    rest: Iterable[Slot],
    delivered: Sequence[int],
    held: Sequence[int],
    missing: Mapping[Slot, Packet],
    wanted: tuple[int, ...],
) -> None:
    """Raise `PeerFault` unless the rest of a cut goes on with each origin's next batch, which is here, up to what it wants."""
    ends = list(delivered)
    for origin, number in rest:
        ends[origin] += 1
        if number != ends[origin] or (number > held[origin] and (origin, number) not in missing):
            raise PeerFault("the cut orders a batch that cannot be there")
    if tuple(ends) != wanted:
        raise PeerFault("the cut does not deliver what it wants")


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

    def __init__(self, size: int) -> None:
        self.taken = [0] * size  # by origin: how much is past the holdback, in units of weight
        self._cast = [0] * size  # by origin: the same, with what is in the holdback
        self._last = [(0,) * size] * size  # by origin: the vector of its last packet
        self._queues: list[deque[Held]] = [deque() for _ in range(size)]
        self._awaiting: list[list[Rank]] = [[] for _ in range(size)]  # by origin: whose heads wait for it to advance

    def demand(self, origin: Rank, vector: tuple[int, ...], me: Rank) -> None:
        """Raise `PeerFault` if no correct member gives its next packet this vector. Changes nothing.

        That vectors of several members fit together is not checked: it would take all packets of the view.
        """
        if vector[origin] != self._cast[origin]:
            raise PeerFault("a vector miscounts what its own sender has cast")
        if any(map(lt, vector, self._last[origin])):
            raise PeerFault("a vector is behind the last one of its sender")
        taken = self.taken
        if any(map(gt, vector, taken)):
            if vector[me] > taken[me]:
                raise PeerFault("a vector counts casts of this member that it never made")
            if any(count > known + AHEAD_MAX for count, known in zip(vector, taken, strict=True)):
                raise PeerFault("a vector counts more than can have been cast")

    def add(self, origin: Rank, held: Held) -> list[tuple[Rank, Held]]:
        """Queue one packet; return all that became ready, in a legal order (usually just this one)."""
        self._cast[origin] += held.weight
        self._last[origin] = held.vector
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
        assert not self._awaiting[rank], "no packet can wait for one that was not cast yet"

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
    queues whose past is in the set. The rest follows a packet that no survivor holds: all drop it, and with it, by FIFO,
    everything later of the same origin.
    """
    _demand_sound(reports)
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


Row = tuple[Rank, int, int, tuple[int, ...]]
"""One packet, as a report lists it: origin, number, weight, vector."""


def demand_closed(held: list[int], holdback: VectorHoldback, missing: Iterable[Row], wanted: tuple[int, ...]) -> None:
    """Raise `PeerFault` unless a cut is just what a member can take in when it gets these packets."""
    mine = vector_report(held, holdback)
    waiting = (*mine.waiting, *missing)
    together = mine._replace(held=tuple(map(max, held, wanted)), waiting=tuple(sorted(waiting)))
    if causally_closed({0: together}) != wanted:
        raise PeerFault("the cut is not causally closed")


def _demand_sound(reports: Mapping[Rank, VectorReport]) -> None:
    """Raise `PeerFault` if one of the reports cannot be, or if two contradict each other."""
    known: dict[tuple[Rank, int], tuple[int, tuple[int, ...]]] = {}
    places: list[set[tuple[int, int]]] = [set() for _ in next(iter(reports.values())).held]
    for report in reports.values():
        last = list(report.held)
        for origin, _, _, _ in report.waiting:
            last[origin] -= 1
        if any(map(gt, last, report.taken)) or min(last) < 0:
            raise PeerFault("a report lists more than it holds")
        for origin, place in enumerate(zip(last, report.taken, strict=True)):
            places[origin].add(place)
        taken = list(report.taken)
        for origin, number, weight, vector in report.waiting:
            last[origin] += 1
            if number != last[origin] or vector[origin] != taken[origin] or not weight:
                raise PeerFault("a report lists packets that cannot follow each other")
            if known.setdefault((origin, number), (weight, vector)) != (weight, vector):
                raise PeerFault("two reports differ in a packet")
            taken[origin] += weight
    for rows in places:
        for (slots, units), (more_slots, more_units) in pairwise(sorted(rows)):
            if more_slots == slots or more_units - units < more_slots - slots:
                raise PeerFault("two reports differ in what was taken in")
