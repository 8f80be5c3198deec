"""The stories of the contract can fail: each catches a broken rule. Without it they pass (`test_contract`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import contract_mutants as mutants
from tests.mutants.shown_mutants import JoinedAsBefore, NamesEverybody
from tests.scenarios import test_contract as contract
from unisono.runtime.inbox import Inbox
from unisono.trace.checks import judge
from unisono.trace.checks.judge import Verdict
from unisono.trace.promises import promises
from unisono.trace.reader import read

pytestmark = pytest.mark.seconds


def test_members_that_restarted_empty_become_primary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unisono.core.member.member.Membership", mutants.AllowsAmnesia)
    with pytest.raises(AssertionError, match="is_primary"):
        contract.test_g4_members_that_restarted_empty_do_not_become_primary(tmp_path, False)


def test_a_read_only_minority_overwrites_the_primary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unisono.core.member.member.Membership", mutants.LowestViewCarriesTheState)
    with pytest.raises(AssertionError, match="written in the primary"):
        contract.test_a_read_only_minority_never_overwrites_the_primary(tmp_path, 0)


def verdict_on_a_cut(folder: Path) -> Verdict:
    contract.cut_off_once(*contract.DIVERGES, trace=folder)
    return judge(read(folder).events(), promises(contract.DIVERGES[0]))


@pytest.mark.parametrize(("mutant", "part"), [(NamesEverybody, "member.ViewEngine"), (JoinedAsBefore, "shown.Entered")])
def test_wrong_sets_of_a_view_break_p25(
    mutant: type, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a swarm it is rare that a member of both views diverges."""
    monkeypatch.setattr(f"unisono.core.member.{part}", mutant)
    assert {violation.property for violation in verdict_on_a_cut(tmp_path).violations} == {"P25"}


@pytest.mark.parametrize("mutant", [mutants.DropsABatch, mutants.WidensTogether])
def test_what_is_altered_before_it_is_recorded_breaks_p25(
    mutant: type[Inbox], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not verdict_on_a_cut(tmp_path / "real").violations
    monkeypatch.setattr("unisono.runtime.running.Inbox", mutant)
    verdict = verdict_on_a_cut(tmp_path / "mutant")
    assert {violation.property for violation in verdict.violations} == {"P25"}


def test_what_is_altered_behind_the_recorder_is_seen_in_the_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unisono.runtime.running.Inbox", mutants.WidensTogetherUnseen)
    readers = contract.cut_off_once(*contract.DIVERGES, trace=tmp_path)
    assert not judge(read(tmp_path).events(), promises(contract.DIVERGES[0])).violations
    with pytest.raises(AssertionError, match="name the same members"):
        contract.assert_the_contract_of_views(readers)
