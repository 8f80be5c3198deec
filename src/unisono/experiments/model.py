"""The performance model of paper 004, section 6: expected latency from the joint distribution of τ and ω.

A message with ω = j is concurrent to messages of j members (its sender is one); it can be delivered when i = τ members have been
heard of. So i - j more have to cast. With Poisson sources the wait for the next *new* one of n - k silent members is 1/(n - k) of
an interval; with periodic sources of random phase, i - j of the n - j remaining phases pass after (i - j)/(n - j + 1) of one.
The model knows no propagation delay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Joint: TypeAlias = Mapping[tuple[int, int], float]
"""How often each (τ, ω) was seen; need not add up to 1."""


def poisson_latency(joint: Joint, members: int, interval: float) -> float:
    """Formula (1). `interval` is the mean time between two casts of one member; the latency has its unit."""
    return interval * _expect(joint, lambda i, j: sum(1 / (members - k) for k in range(j, i)))


def periodic_latency(joint: Joint, members: int, interval: float) -> float:
    """Formula (2)."""
    return interval * _expect(joint, lambda i, j: (i - j) / (members - j + 1))


def predict(source: str, joint: Joint, members: int, interval: float) -> float:
    """The formula for this kind of source."""
    formula = {"poisson": poisson_latency, "periodic": periodic_latency}[source]
    return formula(joint, members, interval)


def deviation(model: float, observed: float) -> float:
    """The paper's ρ."""
    return abs(model - observed) / observed


def pooled(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], int]:
    """The joint distribution of several runs together."""
    total: dict[tuple[int, int], int] = {}
    for row in rows:
        for entry in row["joint"]:
            key = entry["tau"], entry["omega"]
            total[key] = total.get(key, 0) + entry["messages"]
    return dict(sorted(total.items()))


def index_histogram(joint: Joint) -> dict[int, float]:
    """The share of messages by index of latency."""
    whole = sum(joint.values())
    shares: dict[int, float] = {}
    for (tau, _), weight in joint.items():
        shares[tau] = shares.get(tau, 0.0) + weight / whole
    return dict(sorted(shares.items()))


def _expect(joint: Joint, wait: Any) -> float:
    whole = sum(joint.values())
    assert whole > 0, "there is something to expect"
    return float(sum(weight * wait(i, j) for (i, j), weight in joint.items()) / whole)
