"""Recorded runs are still what they were: some of them always, all 560 with `./dev slow` or `python -m tests.digests`."""

from __future__ import annotations

import pytest

from tests.digests.runs import GROUP_SEEDS, ORDER_SEEDS, Run, compute, differences, load, select
from unisono.core.views import ViewEngine
from unisono.orders.registry import ORDERS
from unisono.sim.pool import fan_out


@pytest.mark.parametrize("order", ORDERS)
def test_a_run_of_each_order_is_what_it_was(order: str) -> None:
    assert differences([compute("order", order, 0)], load()) == []


@pytest.mark.parametrize("order", ["causal", "sequencer", "rmp"])
def test_a_run_of_whole_members_is_what_it_was(order: str) -> None:
    assert differences([compute("group", order, 0)], load()) == []


@pytest.mark.slow
def test_all_recorded_runs_are_what_they_were() -> None:
    runs: list[Run] = []

    def seen(run: Run) -> bool:
        runs.append(run)
        return True

    fan_out(compute, select(), seen)
    assert len(runs) == (ORDER_SEEDS + GROUP_SEEDS) * len(ORDERS)
    assert differences(runs, load()) == []


def test_every_run_that_is_compared_is_recorded() -> None:
    assert len(select()) == (ORDER_SEEDS + GROUP_SEEDS) * len(ORDERS) == len(load())


def test_a_changed_run_is_found_and_named() -> None:
    runs = [Run("group/fifo/0", "a", "b"), Run("group/fifo/1", "a", "b"), Run("group/fifo/2", "a", "b")]
    recorded = {"group/fifo/0": ("a", "b"), "group/fifo/1": ("other", "b"), "group/fifo/2": ("other", "other")}
    assert differences([*runs, Run("group/fifo/3", "a", "b")], recorded) == [
        "group/fifo/1: the trace changed; views and deliveries are the same",
        "group/fifo/2: views or deliveries changed",
        "group/fifo/3: not recorded",
    ]


def test_a_change_of_behaviour_changes_the_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Casting in smaller batches shows the application the same messages, in other batches."""
    make = ViewEngine.__init__

    def smaller(self: ViewEngine, *arguments: object, **named: object) -> None:
        make(self, *arguments, **named)  # type: ignore[arg-type]
        self.casting.batch_bytes_max = 1

    monkeypatch.setattr(ViewEngine, "__init__", smaller)
    found = differences([compute("order", "fifo", seed) for seed in range(8)], load())
    assert any("views or deliveries changed" in sentence for sentence in found)
