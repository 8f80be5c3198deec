"""What a message alone costs in Python calls: a limit, so that what was taken away does not come back unseen."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.alone import ROLES, measure

CALLS_MAX = 215
"""At all three members, with the order `sequencer`. It takes 200; where other programs keep the cores busy, acknowledgements of
the message before sometimes come in between."""


@pytest.mark.seconds
def test_a_message_alone_takes_few_calls() -> None:
    """`./dev bench alone --names` tells which."""
    calls = asyncio.run(measure("sequencer", 50))["calls"]
    assert all(calls[role] for role in ROLES)
    assert sum(calls.values()) <= CALLS_MAX, calls
