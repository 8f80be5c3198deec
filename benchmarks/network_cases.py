"""What the network benchmark measures: the cases that all systems run, and those that only unisono does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from unisono.orders.registry import ORDERS

SIZES = {100: "100 B", 1_000: "1 kB"}
MEMBERS = (3, 8)
CALM_PER_S = 200.0
"""So few messages that nothing queues: the latency of a message alone."""
NO_TOTAL_ORDER = {"fifo", "causal"}
CRASH_S = 12.0
"""Long enough for the default detector's patience and the view change after it."""


@dataclass(frozen=True)
class Case:
    """One figure or a few, measured in one run."""

    name: str
    members: int
    size_bytes: int
    senders: str
    rate_per_s: float | None = None
    load_share: float | None = None  # the rate is this share of what the case's base was measured to bear
    kills: bool = False
    ordered: str = "total"
    seconds: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def at_rate(self, per_s: float) -> Case:
        return replace(self, rate_per_s=per_s)


def rate_case(members: int, size_bytes: int, senders: str) -> Case:
    return Case(f"N={members} {SIZES[size_bytes]} {senders}", members, size_bytes, senders)


BASE = rate_case(3, 100, "all")
RATES = [rate_case(members, size, senders) for members in MEMBERS for size in SIZES for senders in ("all", "one")]
LATENCIES = [Case(f"latency N={members}", members, 100, "all", rate_per_s=CALM_PER_S) for members in MEMBERS]
COMMON = RATES + LATENCIES

OWN = [
    replace(BASE, name="encrypted", extra={"key": True}),
    replace(BASE, name="datagrams of 1,472 B", extra={"datagram_bytes": 1_472}),
    replace(BASE, name="recorded", extra={"trace": True}),
    *(
        replace(
            BASE, name=f"order {order}", extra={"order": order}, ordered="fifo" if order in NO_TOTAL_ORDER else "total"
        )
        for order in ORDERS
    ),
    replace(BASE, name="latency at half load", load_share=0.5),
    replace(BASE, name="crash under half load", load_share=0.5, kills=True, seconds=CRASH_S),
]
