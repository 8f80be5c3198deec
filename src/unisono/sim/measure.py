"""What a simulated run costs: latencies split as the papers split them, and packets and bytes beside the theory.

- latency: cast to delivery, at the sender alone and at all members (virtual time has one clock);
- t1: first received (at the sender: cast) until its place in the order is known; t2: from then until delivered (000, section 2.3);
- index of latency: of how many members something was heard, before delivery, that the message does not follow; concurrency: the
  same when it was received (004, section 6). Only protocols that keep the graph of acknowledgements know these two.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from unisono.core.outbox import EngineEffects, NoteKind
from unisono.core.types import Batch, MemberId
from unisono.sim.world import World


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in three figures, in ns; zero where there was nothing to measure."""

    count: int
    mean: float
    p50: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[int]) -> Spread:
        ranked = sorted(values)
        if not ranked:
            return cls(0, 0.0, 0.0, 0.0)
        return cls(len(ranked), sum(ranked) / len(ranked), _percentile(ranked, 0.50), _percentile(ranked, 0.99))


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of one run."""

    order: str
    members: int
    seed: int
    casts: int
    delivered: int
    """Messages delivered by at least one member."""
    deliveries: int
    view_changes: int
    virtual_ns: int
    latency_sender: Spread
    latency: Spread
    t1: Spread
    t2: Spread
    index_of_latency: float | None
    concurrency: float | None
    packets_per_message: float
    bytes_per_message: float
    packets_formula: str
    packets_theory: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Meter:
    """Follows each batch from cast to delivery at every member."""

    def __init__(self) -> None:
        self.latency_sender, self.latency = array("q"), array("q")
        self.t1, self.t2 = array("q"), array("q")
        self.index: Counter[int] = Counter()
        self.joint: Counter[tuple[int, int]] = Counter()
        self.delivered = 0
        self._members: dict[MemberId, tuple[MemberId, ...]] = {}  # by member: its current view
        self._cast: dict[tuple[MemberId, int], int] = {}
        self._seen: set[tuple[MemberId, int]] = set()
        self._start: dict[tuple[MemberId, MemberId, int], int] = {}  # member, origin, first
        self._ordered: dict[tuple[MemberId, MemberId, int], int] = {}

    def turn(self, now: int, member: MemberId, effects: EngineEffects) -> None:
        for kind, batch, _, view, attributes in effects.notes:
            if kind is NoteKind.VIEW and view is not None:
                self._members[member] = view.members
            if batch is None:
                continue
            key = (member, self._members[member][batch.origin], batch.first)
            match kind:
                case NoteKind.CAST:
                    self._cast[key[1:]] = now
                    self._start[key] = now
                case NoteKind.RECEIVE:
                    self._start.setdefault(key, now)
                case NoteKind.ORDERED:
                    self._ordered[key] = now
                    if attributes and "index_of_latency" in attributes:
                        self._count(attributes, batch.count)
                case NoteKind.DELIVER:
                    self._deliver(now, key, batch)

    def _count(self, attributes: Any, weight: int) -> None:
        index, breadth = attributes["index_of_latency"], attributes["concurrency"]
        self.index[index] += weight
        self.joint[index, breadth] += weight

    def _deliver(self, now: int, key: tuple[MemberId, MemberId, int], batch: Batch) -> None:
        member, origin, first = key
        cast = self._cast[origin, first]
        start = self._start.pop(key, now)
        ordered = self._ordered.pop(key, None)
        if (origin, first) not in self._seen:
            self._seen.add((origin, first))
            self.delivered += batch.count
        for _ in range(batch.count):
            self.latency.append(now - cast)
            if member == origin:
                self.latency_sender.append(now - cast)
            if ordered is not None:
                self.t1.append(ordered - start)
                self.t2.append(now - ordered)

    def measures(self, world: World) -> Measures:
        n = world.scenario.members
        formula, theory = packets_in_theory(world.scenario.order, n)
        per = max(1, self.delivered)
        return Measures(
            order=world.scenario.order,
            members=n,
            seed=world.scenario.seed,
            casts=world.casts,
            delivered=self.delivered,
            deliveries=world.deliveries,
            view_changes=world.change.count,
            virtual_ns=world.now,
            latency_sender=Spread.of(self.latency_sender),
            latency=Spread.of(self.latency),
            t1=Spread.of(self.t1),
            t2=Spread.of(self.t2),
            index_of_latency=_mean(self.index),
            concurrency=_mean(self._concurrency()),
            packets_per_message=world.packets / per,
            bytes_per_message=world.bytes / per,
            packets_formula=formula,
            packets_theory=theory,
        )

    def _concurrency(self) -> Counter[int]:
        result: Counter[int] = Counter()
        for (_, breadth), weight in self.joint.items():
            result[breadth] += weight
        return result


def packets_in_theory(order: str, n: int) -> tuple[str, float]:
    """Packets on the wire a message without batching: the formula as people write it, and its value.

    all-ack and ToTo need no packets of their own while everyone casts; explicit acknowledgements of idle members come on top.
    RMP needs request, accept, data, vote and commit; a member that still has the lock needs only the last three.
    """
    factor = {"fifo": 1, "causal": 1, "abcast": 3, "tomp": 3, "all-ack": 1, "toto": 1, "rmp": 5}.get(order, 2)
    suffix = "+acks" if order in ("all-ack", "toto") else ""
    return (f"{factor}(n-1)" if factor > 1 else "n-1") + suffix, float(factor * (n - 1))


def _percentile(ranked: list[int], share: float) -> float:
    """Exact, by linear interpolation between the closest ranks."""
    place = share * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)


def _mean(counts: Counter[int]) -> float | None:
    total = counts.total()
    return sum(value * weight for value, weight in counts.items()) / total if total else None
