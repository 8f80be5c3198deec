"""Rules of state transfer that no story of `tests/stories` needs: each mutant is caught by a test, or by a seed of the swarm."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.mutants import transfer_mutants as mutants
from tests.sim import test_transfer_faults as faults
from tests.transfer_swarm import run_transfer_seed
from tests.transfer_world import TransferWorld
from unisono.services.transfer.transfer import Transfer
from unisono.trace.checks import Result

Story = Callable[[], None]


def caught_by_story(kind: type[Transfer], story: Story, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run a story with the mutant instead of the real thing."""
    real = TransferWorld.__init__

    def init(self: TransferWorld, *args: object, **options: object) -> None:
        real(self, *args, **{**options, "transfer_type": kind})  # type: ignore[arg-type]

    monkeypatch.setattr(TransferWorld, "__init__", init)
    try:
        story()
    except (AssertionError, ValueError):  # a state that is no state any more cannot be parsed
        return True
    return False


STORIES: list[tuple[type[Transfer], Story]] = [
    (mutants.ForgetsBackPressure, faults.test_what_a_stopped_joiner_holds_back_is_bounded_and_the_casters_wait),
    (mutants.AsksOnlyThePart, faults.test_one_got_the_base_of_a_part_that_is_gone_and_the_rest_get_it_from_there),
]


@pytest.mark.parametrize(("kind", "story"), STORIES, ids=[kind.__name__ for kind, _ in STORIES])
def test_a_story_catches_the_mutant(kind: type[Transfer], story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught_by_story(kind, story, monkeypatch)


SEEDS: list[tuple[type[Transfer], str, int]] = [
    (mutants.DoesNotWaitForDeliveries, "causal", 0),
    (mutants.MergesWithoutAskingAll, "causal", 11),
    (mutants.ServesWhileMerging, "sequencer", 1),
    (mutants.KeepsOverMerge, "fifo", 0),
    (mutants.DropsTheBuffer, "sequencer", 0),
]


@pytest.mark.parametrize(("kind", "order", "seed"), SEEDS, ids=[kind.__name__ for kind, _, _ in SEEDS])
def test_a_seed_of_the_swarm_catches_the_mutant(kind: type[Transfer], order: str, seed: int) -> None:
    """The very seed depends on the timing of everything below; the next ones are tried too."""
    for one in range(seed, seed + 24):
        try:
            if run_transfer_seed(order, one, transfer_type=kind)[1].result is not Result.PASS:
                return
        except AssertionError as error:
            if "there is no one view" not in str(error):
                return
    pytest.fail("nothing was seen")
