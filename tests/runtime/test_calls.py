"""What a message alone costs in Python calls: a limit, so that what is taken away does not come back unseen."""

from __future__ import annotations

import asyncio

from benchmarks.alone import ROLES, measure

CALLS_MAX = {"cast": 38, "sequence": 80, "deliver": 86}
"""By role, with the order `sequencer`."""


def test_a_message_alone_takes_few_calls() -> None:
    """Which ones: `./dev bench alone --names`. The median of 50 messages is exact, whatever else the machine does."""
    calls = asyncio.run(measure("sequencer", 50))["calls"]
    assert all(0 < calls[role] <= CALLS_MAX[role] for role in ROLES), calls
