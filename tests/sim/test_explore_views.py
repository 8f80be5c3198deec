"""The explorer of views: small scopes are clean to the last state, and every planted fault is found."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tests.mutants import membership_mutants as mutants
from tests.mutants.contract_mutants import AllowsAmnesia
from tests.mutants.core_mutants import LeakyEngine
from tests.mutants.shown_mutants import RemainderFirst
from unisono.cli.app import app
from unisono.core.errors import Misuse
from unisono.core.membership.ballot import Ballot
from unisono.core.membership.beliefs import Beliefs
from unisono.core.membership.membership import Membership
from unisono.sim.explore.search import SearchReport
from unisono.sim.explore.situations import MASK
from unisono.sim.explore.views import Scope, ViewsCounterexample, explore_views
from unisono.sim.explore.views.model import ViewsModel

CRASH = Scope(casts=1, crashes=1, joins=0, ticks=0)
JOIN = Scope(casts=0, crashes=0, joins=1, ticks=1)
CUT = Scope(casts=0, crashes=0, joins=0, ticks=0, cuts=1, primary=True)
SECOND_LIFE = Scope(casts=0, crashes=0, joins=0, ticks=0, restarts=1, primary=True, has_state=True)
SUSPICION = Scope(casts=0, crashes=0, joins=0, ticks=0, suspicions=1)
LEAVE = Scope(casts=0, crashes=0, joins=0, ticks=0, leaves=1)
MERGE = Scope(casts=0, crashes=0, joins=0, ticks=0, cuts=1, greetings=1)
TWO_CRASHES = Scope(casts=0, crashes=2, joins=0, ticks=0)
SWITCH = Scope(casts=0, crashes=0, joins=0, ticks=0, switches=1)


def clean(scope: Scope) -> SearchReport[ViewsCounterexample]:
    report = explore_views(scope)
    assert report.violation is None, str(report.violation)
    assert report.complete
    return report


# What holds.


@pytest.mark.parametrize(
    ("scope", "states", "transitions", "depth", "ends"),
    [
        pytest.param(CRASH, 1_826, 2_549, 14, 72, id="crash-fifo"),
        pytest.param(replace(CRASH, order="sequencer"), 3_075, 4_477, 15, 84, id="crash-sequencer"),
        pytest.param(replace(CRASH, order="rmp"), 5_447, 8_313, 21, 120, id="crash-rmp"),
        pytest.param(replace(CRASH, order="all-ack", members=2), 47, 62, 6, 21, id="crash-all-ack"),
        pytest.param(replace(CRASH, casts=0, losses=1, detours=1, blackout=True), 255, 316, 10, 7, id="crash-losses"),
        pytest.param(replace(JOIN, order="sequencer", losses=1), 1_096, 2_367, 23, 2, id="join-loss"),
        # The coordinator asks for the lock before it proposes, gets it or not, and time passes at any point.
        pytest.param(replace(JOIN, order="rmp", casts=1), 1_443, 3_088, 37, 17, id="join-lock"),
        pytest.param(replace(JOIN, members=2, crashes=1), 976, 1_712, 26, 27, id="join-crash"),
        pytest.param(replace(SUSPICION, repeats=1), 131, 183, 12, 4, id="suspicion"),
        pytest.param(CUT, 963, 1_829, 14, 19, id="cut"),
        pytest.param(replace(CUT, has_state=True), 963, 1_829, 14, 19, id="cut-state"),
        pytest.param(replace(CUT, members=2, casts=1, safe=True), 91, 152, 7, 20, id="cut-safe"),
        pytest.param(SECOND_LIFE, 6_938, 14_604, 27, 4, id="second-life"),
        pytest.param(
            replace(SECOND_LIFE, members=2, cuts=1, cut_off="b", heals=False), 51, 55, 15, 8, id="second-life-cut"
        ),
        pytest.param(LEAVE, 544, 1_092, 20, 4, id="leave"),
        pytest.param(replace(LEAVE, members=2, casts=1, order="sequencer"), 183, 219, 12, 19, id="leave-cast"),
        pytest.param(replace(LEAVE, members=2, joins=1), 1_192, 2_207, 22, 8, id="leave-join"),
        pytest.param(replace(MERGE, members=2, casts=1), 635, 899, 17, 39, id="merge"),
        pytest.param(replace(MERGE, members=2, primary=True), 76, 94, 15, 5, id="merge-primary"),
        pytest.param(TWO_CRASHES, 469, 705, 12, 53, id="two-crashes"),
        pytest.param(SWITCH, 87, 125, 12, 2, id="switch"),
        pytest.param(replace(SWITCH, members=2, casts=1, crashes=1), 723, 908, 12, 165, id="switch-crash"),
        pytest.param(
            replace(SWITCH, members=2, casts=1, order="causal", switch_to="rmp"), 146, 168, 13, 12, id="switch-rmp"
        ),
    ],
)
def test_every_state_keeps_every_promise(scope: Scope, states: int, transitions: int, depth: int, ends: int) -> None:
    """And each comes to rest: there is one view of the living, and the traces that lead there were judged, each once."""
    report = clean(scope)
    assert (report.states, report.transitions, report.depth, report.ends) == (states, transitions, depth, ends)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scope",
    [
        replace(JOIN, order="rmp", members=2, casts=1, ticks=2),
        replace(JOIN, order="rmp", members=2, casts=1, crashes=1),
        *(replace(JOIN, order=order, casts=1) for order in ("fifo", "sequencer")),
        *(replace(JOIN, order=order, crashes=1) for order in ("fifo", "sequencer", "causal", "abcast")),
        replace(CRASH, ticks=1, losses=1, detours=1, blackout=True),
        replace(CRASH, suspicions=1),
        replace(CUT, casts=1, safe=True),
        replace(SECOND_LIFE, cuts=1, cut_off="c", heals=False),
        replace(LEAVE, casts=1),
        replace(LEAVE, crashes=1),
        replace(MERGE, cut_off="c"),
        replace(TWO_CRASHES, casts=1),
        replace(SWITCH, crashes=1),
    ],
)
def test_every_state_of_a_larger_scope_keeps_every_promise(scope: Scope) -> None:
    clean(scope)


# What it finds.


def found(scope: Scope) -> tuple[str, ...]:
    report = explore_views(scope)
    assert report.violation is not None
    return (*report.violation.steps, report.violation.sentence)


def test_installing_without_all_confirmations_is_found() -> None:
    *_, sentence = found(replace(SUSPICION, kind=mutants.InstallsEarly))
    assert sentence.startswith("I3: ")


def test_taking_packets_in_after_the_report_is_found() -> None:
    steps = found(replace(CRASH, engine=LeakyEngine))
    assert "takes in Data 1 of view 1@a" in steps[-2]
    assert steps[-1].startswith("PeerFault "), "the cut has brought it already"


def test_a_remainder_that_is_shown_before_the_transition_is_found() -> None:
    steps = found(replace(CUT, casts=1, safe=True, engine=RemainderFirst))
    assert steps[:2] == ("a casts", "a is cut off")
    assert steps[-1].startswith("P25: ")


def test_a_primary_of_second_lives_without_a_state_is_found() -> None:
    steps = found(replace(SECOND_LIFE, restarts=2, kind=AllowsAmnesia))
    assert sum(" starts: " in step for step in steps) == 2
    assert steps[-1].startswith("P29: ")
    assert steps[-1].endswith("into which no member carries a state.")


@pytest.mark.parametrize(
    ("scope", "kind", "sentence"),
    [
        pytest.param(
            replace(LEAVE, members=2, casts=1, order="sequencer"), mutants.LeavesAtOnce, "P4: b cast b:0 ", id="leave"
        ),
        pytest.param(SWITCH, mutants.KeepsItsOrder, "P11: View 2@a has the order ", id="switch"),
        pytest.param(
            replace(MERGE, cut_off="a"),
            mutants.TrustsTheLastOfAMerge,
            "I3: a installed view 4@a, ",
            id="merge",
            marks=pytest.mark.slow,
        ),
        pytest.param(TWO_CRASHES, mutants.ExcludesOneAtATime, "P22: ", id="two-crashes"),
    ],
)
def test_a_fault_that_only_a_scope_of_its_kind_shows_is_found(
    scope: Scope, kind: type[Membership], sentence: str
) -> None:
    for other in (SUSPICION, replace(CRASH, members=2), replace(JOIN, members=2, crashes=1), replace(CUT, members=2)):
        clean(replace(other, kind=kind))
    assert found(replace(scope, kind=kind))[-1].startswith(sentence)


class ForgetsTheMissing(Ballot):
    """The cut is sent without the packets that somebody lacks."""

    def _fetch(self) -> None:
        for part in self._parts:
            part.asking = {}
            part.lacks = {member: [] for member in part.lacks}
        super()._fetch()


class MembershipWithoutFetch(Membership):
    ballot_type = ForgetsTheMissing


class ForgetsToConfirm(Ballot):
    """Never believes that all have confirmed."""

    def is_complete(self) -> bool:
        return False


class NeverFinishes(Membership):
    ballot_type = ForgetsToConfirm


def test_a_cut_without_what_somebody_lacks_is_found() -> None:
    *_, sentence = found(replace(CRASH, kind=MembershipWithoutFetch))
    assert sentence.startswith("P22: ")


def test_survivors_that_do_not_act_on_a_suspicion_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Beliefs, "must_shrink", lambda self: False)
    steps = found(replace(CRASH, casts=0))
    assert steps[0] == "a crashes"
    assert steps[-1].startswith("P22: ")


def test_a_group_that_cannot_even_begin_is_a_fault_of_the_scope() -> None:
    with pytest.raises(AssertionError, match="find each other"):
        explore_views(replace(CRASH, kind=NeverFinishes))


@pytest.mark.parametrize("kind", [mutants.ForgetsAdoptedCut, mutants.DoesNotGroupByCut])
def test_a_view_that_is_closed_with_two_cuts_is_found(kind: type[Membership]) -> None:
    *_, sentence = found(replace(CRASH, casts=0, suspicions=1, kind=kind))
    assert sentence.startswith("I3: ")


# The explorer itself.


def test_the_search_is_the_same_every_time() -> None:
    one, other = (explore_views(replace(CRASH, casts=0)) for _ in range(2))
    assert one == other


def test_a_state_is_a_value_and_comes_back_as_it_was() -> None:
    scope = replace(CRASH, casts=0)
    model = ViewsModel(scope)
    start = model.start()
    snapshots = model.tables.snapshots
    for number, side in enumerate(model.sides):
        stored = side.local(start >> side.situations.shift & MASK).stored
        assert stored is not None
        assert stored.membership.view is not None
        again = snapshots.copy(stored)
        assert snapshots.digest(again) == snapshots.digest(stored)
        again.membership.suspect(scope.ids[(number + 1) % 3])
        assert snapshots.digest(again) != snapshots.digest(stored), (
            "what happens to the copy does not happen to the other"
        )


def test_limits_are_kept_and_told() -> None:
    report = explore_views(CRASH, states_max=100)
    assert not report.complete
    assert 100 <= report.states < 300
    assert not explore_views(CRASH, seconds_max=0).complete


@pytest.mark.parametrize(
    "wrong",
    [
        {"members": 1},
        {"crashes": 3},
        {"joins": 3},
        {"casts": -1},
        {"ticks": 7},
        {"order": "none"},
        {"restarts": 4},
        {"cuts": 7},
        {"has_state": True},
        {"leaves": 2},
        {"switches": 1, "switch_to": "fifo"},
        {"switch_to": "none"},
    ],
)
def test_a_scope_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(Misuse):
        replace(CRASH, **wrong)  # type: ignore[arg-type]


def test_the_command() -> None:
    runner = CliRunner()
    options = ["sim", "explore-views", "--casts", "0", "--joins", "0", "--ticks", "0"]
    done = runner.invoke(app, [*options, "--json"])
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert told["complete"]
    assert told["violation"] is None
    assert "no violation" in runner.invoke(app, options).stdout
    assert isinstance(runner.invoke(app, [*options, "--states", "5"]).exception, Misuse)


def test_the_command_tells_a_way_to_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Beliefs, "must_shrink", lambda self: False)
    done = CliRunner().invoke(app, ["sim", "explore-views", "--casts", "0", "--joins", "0", "--ticks", "0"])
    assert done.exit_code == 1
    assert "1. a crashes" in done.stdout
    assert "=> P22" in done.stdout
