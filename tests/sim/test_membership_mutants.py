"""Rules of membership that no story of `tests/stories` needs: each mutant is caught by a test of one membership, or a swarm."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import membership_harness
from tests.membership_harness import World
from tests.membership_swarm import run
from tests.mutants import membership_mutants as mutants
from tests.mutants.core_mutants import LeakyEngine
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
