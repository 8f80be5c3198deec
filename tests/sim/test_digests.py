"""Some of the recorded runs are still what they were; `python -m tests.digests` compares all 560."""

from __future__ import annotations

import pytest

from tests.digests.runs import GROUP_SEEDS, ORDER_SEEDS, compute, load, select
from unisono.core.views import ViewEngine
from unisono.orders.registry import ORDERS


@pytest.mark.parametrize("order", ORDERS)
def test_a_run_of_each_order_is_what_it_was(order: str) -> None:
    run = compute("order", order, 0)
    assert (run.trace, run.shown) == load()[run.name]


@pytest.mark.parametrize("order", ["causal", "sequencer", "rmp"])
def test_a_run_of_whole_members_is_what_it_was(order: str) -> None:
    run = compute("group", order, 0)
    assert (run.trace, run.shown) == load()[run.name]


def test_every_run_that_is_compared_is_recorded() -> None:
    assert len(select()) == (ORDER_SEEDS + GROUP_SEEDS) * len(ORDERS) == len(load())


def test_a_change_of_behaviour_changes_the_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Casting in smaller batches shows the application the same messages, in other batches."""
    make = ViewEngine.__init__

    def smaller(self: ViewEngine, *arguments: object, **named: object) -> None:
        make(self, *arguments, **named)  # type: ignore[arg-type]
        self.casting.batch_bytes_max = 1

    monkeypatch.setattr(ViewEngine, "__init__", smaller)
    runs = [compute("order", "fifo", seed) for seed in range(8)]
    recorded = load()
    assert any(run.trace != recorded[run.name][0] and run.shown != recorded[run.name][1] for run in runs)
