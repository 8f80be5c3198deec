"""Membership in random runs: faults in any number and mixture; some runs collect reports by star, some by ring."""

from __future__ import annotations

import pytest

from tests.membership_swarm import SWARM_ORDERS, run
from unisono.trace.checks import Result


@pytest.mark.parametrize("order", SWARM_ORDERS)
@pytest.mark.parametrize("block", range(4))
def test_swarm(order: str, block: int) -> None:
    for seed in range(block * 5, block * 5 + 5):
        verdict = run(seed, order).go()
        assert verdict.result is Result.PASS, f"seed {seed}, {order}: {verdict}"


@pytest.mark.parametrize(
    ("seed", "order"),
    [
        (43, "fifo"),  # a suspected member in a stranger's list was proposed, and dropped, thousands of times a second
        (1223, "sequencer"),  # a chunk of a cut called up 64 others: 39,000 for data of 115, in half a second
        (1280, "abcast"),  # the same with roll calls and answers
    ],
)
def test_what_the_swarm_once_found(seed: int, order: str) -> None:
    verdict = run(seed, order).go()
    assert verdict.result is Result.PASS, str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("order", SWARM_ORDERS)
@pytest.mark.parametrize("block", range(10))
def test_swarm_of_thousands(order: str, block: int) -> None:
    for seed in range(1_000 + block * 50, 1_050 + block * 50):
        verdict = run(seed, order).go()
        assert verdict.result is Result.PASS, f"seed {seed}, {order}: {verdict}"


def test_swarm_of_primaries() -> None:
    for seed in range(12):
        verdict = run(seed, "sequencer", primary=True).go()
        assert verdict.result is Result.PASS, f"seed {seed}: {verdict}"
