"""Every rule of membership is needed: each mutant is caught, by a violated property, a broken invariant or a failed story."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import membership_harness
from tests.membership_harness import World
from tests.membership_swarm import run
from tests.mutants import membership_mutants as mutants
from tests.mutants.core_mutants import LeakyEngine
from tests.sim import test_membership_faults as faults
from tests.sim import test_membership_partitions as partitions
from tests.unit import test_membership as pieces
from unisono.core.membership.membership import Membership
from unisono.trace.checks import Result


def caught_by_story(kind: type[Membership], story: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run a story of the fault tests with the mutant instead of the real thing."""
    real = World.__init__

    def init(self: World, *args: object, **options: object) -> None:
        real(self, *args, **{**options, "kind": kind})  # type: ignore[arg-type]

    monkeypatch.setattr(World, "__init__", init)
    try:
        story()
    except AssertionError:
        return True
    return False


def caught_by_swarm(kind: type[Membership], seeds: range, order: str, primary: bool = False) -> bool:
    for seed in seeds:
        try:
            if run(seed, order, kind, primary).go().result is not Result.PASS:
                return True
        except AssertionError:
            return True
    return False


STORIES: list[tuple[type[Membership], Callable[[], None]]] = [
    (mutants.InstallsEarly, faults.test_a_silent_participant_is_left_out_by_another_ballot),
    (mutants.ForgetsAdoptedCut, lambda: faults.test_c3_the_coordinator_forwards_to_one_member_and_crashes("fifo")),
    (mutants.DoesNotGroupByCut, lambda: faults.test_c3_the_coordinator_forwards_to_one_member_and_crashes("fifo")),
    (
        mutants.AdoptsUncovered,
        lambda: faults.test_one_that_comes_back_in_mid_flush_keeps_what_the_others_cut_off("causal"),
    ),
    (
        mutants.VoidsWhatOthersDelivered,
        lambda: faults.test_a_payload_is_void_for_all_who_close_with_a_cut_or_for_none("sequencer"),
    ),
    (mutants.TrustsStaleIncarnations, faults.test_c19_a_new_life_proves_that_the_old_one_is_over),
    (mutants.ChangesItsProposal, faults.test_a_silent_participant_is_left_out_by_another_ballot),
    (mutants.ForgetsConfirmedPrimaries, partitions.test_a_primary_that_was_only_confirmed_counts),
    (mutants.ForgetsTheRecord, partitions.test_a_record_outlives_lives_that_wrote_none),
    (
        mutants.NeverInstallsLate,
        lambda: faults.test_c7_the_install_is_lost_at_one_member_and_the_coordinator_goes("fifo", "crash"),
    ),
    (
        mutants.KeepsItsBallotWhenLeaving,
        lambda: faults.test_c8_one_that_leaves_before_it_has_a_view_installs_none("a"),
    ),
    (mutants.NeverDenies, pieces.test_who_is_greeted_from_a_view_that_it_has_left_behind_says_so),
    (mutants.MergesWithTheAccused, pieces.test_a_view_that_is_about_to_lose_somebody_is_not_merged_with),
    (
        mutants.WaitsForTheForsaken,
        pieces.test_who_promised_a_ballot_that_its_proposer_has_left_behind_does_not_wait_for_it,
    ),
]


@pytest.mark.parametrize(("kind", "story"), STORIES, ids=[kind.__name__ for kind, _ in STORIES])
def test_a_story_catches_the_mutant(
    kind: type[Membership], story: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert caught_by_story(kind, story, monkeypatch)


@pytest.mark.parametrize(("kind", "story"), STORIES, ids=[kind.__name__ for kind, _ in STORIES])
def test_the_story_passes_without_the_mutant(
    kind: type[Membership], story: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not caught_by_story(Membership, story, monkeypatch)


def test_an_engine_that_takes_packets_in_after_its_report_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_harness, "ViewEngine", LeakyEngine)
    assert caught_by_swarm(Membership, range(20), "fifo")
