"""Stories can fail: with a deliberate breakage planted, each of these is told otherwise than its file says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from tests.mutants import (
    contract_mutants,
    core_mutants,
    explore_mutants,
    membership_mutants,
    rmp_mutants,
    stamped_mutants,
    stream_mutants,
    transfer_mutants,
)
from tests.stories import members
from tests.stories.telling import tell
from tests.stories.text import StoryError, read_story, takes_seconds
from tests.stream_harness import planted
from tests.transfer_world import TransferWorld
from unisono.core.config import Config
from unisono.core.departure import Cause
from unisono.core.errors import PeerFault
from unisono.core.member import Member
from unisono.core.member import member as member_module
from unisono.core.member.settings import Settings
from unisono.core.member.watchdog import Watchdog
from unisono.core.membership import ballot as ballot_module
from unisono.core.membership.departures import Departures
from unisono.core.outbox import EngineEffects
from unisono.core.streams.inflow import Inflow
from unisono.core.streams.streams import Streams
from unisono.core.types import MemberId, Packet, Rank, View
from unisono.core.views.engine import Phase, ViewEngine
from unisono.orders.fifo import Fifo
from unisono.orders.holdback import longest_held
from unisono.orders.registry import ORDERS
from unisono.orders.sequencer import Sequencer, SequencerCut, SequencerReport
from unisono.sim.group_world import GroupWorld

Plant = Callable[[type], AbstractContextManager[Any]]


def in_member(part: str) -> Plant:
    """In the place of a part of every member."""
    return lambda mutant: patch.object(member_module, part, planted(mutant) if part == "Streams" else mutant)


def as_order(order: str) -> Plant:
    return lambda mutant: patch.dict(ORDERS, {order: mutant})


@contextmanager
def as_transfer(mutant: type) -> Iterator[None]:
    with patch.dict(TransferWorld.__init__.__kwdefaults__, transfer_type=mutant):
        yield


def as_member(mutant: type) -> AbstractContextManager[Any]:
    return patch.object(members, "GroupWorld", partial(GroupWorld, kind=mutant))


# Breakages that only stories know.


class Hasty(Member):
    """Shows safe messages at once."""

    def _take_engine_turn(self, streams, effects):  # type: ignore[no-untyped-def]
        streams.taken_by_all[:] = [2**40] * len(streams.taken_by_all)
        super()._take_engine_turn(streams, effects)


class ActsOnSuspicions(Member):
    """Takes nothing in from a member that it suspects, without waiting for a view."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        take, state = self.engine.receive, self.state

        def receive(sender: Rank, packet: Packet) -> None:
            if state.members[sender] not in state.suspects:
                take(sender, packet)

        self.engine.receive = receive  # type: ignore[method-assign]


class ForgetsNumbers(Sequencer):
    """After the sequencer's end everything goes by name, whatever was numbered."""

    @staticmethod
    def merge(view: View, config: Config, reports: Mapping[Rank, SequencerReport]) -> SequencerCut:
        held = longest_held(reports)
        order = [(origin, number) for origin in range(len(view)) for number in range(1, held[origin] + 1)]
        return SequencerCut(held, tuple(order))


class SubmitsWhileBlocked(ViewEngine):
    """Hands casts to an ordering that has given its report."""

    def drain(self, now: int) -> EngineEffects:
        phase, self.phase = self.phase, Phase.RUNNING
        effects = super().drain(now)
        self.phase = phase
        return effects


class ViewFirst(ViewEngine):
    """Shows the next view, and then the rest of the old one."""

    def install(self, view: View, *rest: Any, **more: Any) -> None:
        events, notes = len(self.showing.events), len(self._out.notes)
        super().install(view, *rest, **more)
        for shown, before in ((self.showing.events, events), (self._out.notes, notes)):
            shown.insert(before, shown.pop())  # type: ignore[arg-type]


class EvictsByTheClock(Member):
    """Whoever holds the window shut for long goes, however much it takes in."""

    def __init__(self, member: MemberId, group: str, orders: Any, order: str, given: Settings, *rest: Any) -> None:
        flow = replace(given.flow, evict_datagrams_min=2**31 - 1)
        super().__init__(member, group, orders, order, replace(given, flow=flow), *rest)


class Unshielded(Departures):
    """An eviction is told like a suspicion, and the coordinator takes nobody's side."""

    def hear(self, sender, grounds, view):  # type: ignore[no-untyped-def]
        accused = [ground.member for ground in grounds if ground.cause is Cause.SLOW]
        super().hear(sender, [ground for ground in grounds if ground.cause is not Cause.SLOW], view)
        if accused:
            victim = max(sender, *accused)
            self.evicting.setdefault(victim, grounds[0]._replace(member=victim))


class Restless(Departures):
    """Nobody turns an evicted member away, and it does not wait either."""

    rests = False

    def is_resting(self, member):  # type: ignore[no-untyped-def]
        return False


class Forgetful(Watchdog):
    """Forgets a refusal when it has judged the window."""

    def _look_at_window(self, now: int) -> None:
        super()._look_at_window(now)
        if self._hold is not None and self._hold.judged_at == now:
            self._hold.is_felt = False


class CountsMessages(Streams):
    """Takes the messages that a peer has received for its pace, and not the datagrams."""

    def acknowledged_by(self, peer: Rank) -> int:
        return self.packets_cast - self.window_use()[peer]


class ForgetsItsRate(Streams):
    """Does not know that it holds itself back."""

    is_paced = False


class Shuffles(Inflow):
    """Puts the pieces of a packet together by their arrival, whatever they belong to."""

    def drop_held(self, seq: int) -> None:
        super().drop_held(seq)
        if len(self._pieces) > 1:
            self._pieces[0], self._pieces[-1] = self._pieces[-1], self._pieces[0]


def as_departures(mutant: type) -> AbstractContextManager[Any]:
    return patch("unisono.core.membership.membership.Departures", mutant)


def as_streams(mutant: type) -> AbstractContextManager[Any]:
    return patch.object(member_module, "Streams", mutant)


# What catches what.


class Row(NamedTuple):
    """A breakage, the story that tells something else with it, and how it is planted."""

    mutant: type
    story: str
    plant: Plant

    @property
    def name(self) -> str:
        return self.mutant.__name__

    def is_noticed(self) -> bool:
        """Whether the story is told otherwise, or not to its end."""
        story = read_story(Path(__file__).parent / f"{self.story}.txt")
        try:
            with self.plant(self.mutant):
                return bool(story.differences(tell(story)))
        except (StoryError, PeerFault):
            return True


MEMBERSHIP, STREAMS, ENGINE = in_member("Membership"), in_member("Streams"), in_member("ViewEngine")

ROWS = (
    Row(membership_mutants.InstallsEarly, "silent_participant", MEMBERSHIP),
    Row(membership_mutants.ForgetsAdoptedCut, "c3_coordinator_crashes_with_its_cut", MEMBERSHIP),
    Row(membership_mutants.DoesNotGroupByCut, "c3_by_ring", MEMBERSHIP),
    Row(membership_mutants.AdoptsUncovered, "back_in_mid_flush", MEMBERSHIP),
    Row(membership_mutants.VoidsWhatOthersDelivered, "void_for_all_or_none", MEMBERSHIP),
    Row(membership_mutants.TrustsStaleIncarnations, "a4_forgotten_state", MEMBERSHIP),
    Row(membership_mutants.ChangesItsProposal, "silent_participant", MEMBERSHIP),
    Row(membership_mutants.ForgetsConfirmedPrimaries, "d16_confirmed_is_enough", MEMBERSHIP),
    Row(membership_mutants.ForgetsTheRecord, "d16_records_outlive_lives", MEMBERSHIP),
    Row(membership_mutants.NeverInstallsLate, "c7_coordinator_leaves", MEMBERSHIP),
    Row(membership_mutants.KeepsItsBallotWhenLeaving, "c8_leaves_before_its_first_view", MEMBERSHIP),
    Row(core_mutants.LeakyEngine, "c11_casts_around_a_flush", ENGINE),
    Row(contract_mutants.StableWhenReceived, "g2_stable_with_its_predecessor", in_member("Stability")),
    Row(SubmitsWhileBlocked, "b10_answers", ENGINE),
    Row(Hasty, "safe_after_delivery", as_member),
    Row(ForgetsNumbers, "b7_numbers_for_some", as_order("sequencer")),
    Row(ActsOnSuspicions, "b9_unconfirmed_suspicion", as_member),
    Row(Fifo, "b11_ten_seconds_late", as_order("causal")),
    Row(stream_mutants.TakesDuplicates, "a2_first_acks", STREAMS),
    Row(stream_mutants.NoAckOfDuplicates, "a2_first_acks", STREAMS),
    Row(stream_mutants.NoTail, "a1_first_and_last_datagram", STREAMS),
    Row(stamped_mutants.AbcastHoldersAlone, "b3_between_proposal_and_final_crashes", as_order("abcast")),
    Row(stamped_mutants.TompHoldersAlone, "b3_between_proposal_and_final_crashes", as_order("tomp")),
    Row(explore_mutants.NeverAcknowledges, "b5_a_silent_member", as_order("all-ack")),
    Row(rmp_mutants.DeliversOnReceipt, "b14_mixed_classes", as_order("rmp")),
    Row(transfer_mutants.NoFrontier, "joins_with_a_state", as_transfer),
    Row(transfer_mutants.AppliesTwice, "joins_with_a_state", as_transfer),
    Row(transfer_mutants.EveryoneBegins, "joins_with_a_state", as_transfer),
    Row(transfer_mutants.MixesDonors, "c22_donor_crashes", as_transfer),
    Row(transfer_mutants.HoldsEverySnapshot, "c22_joiner_crashes", as_transfer),
    Row(transfer_mutants.MergesByArrival, "d4_states_merge", as_transfer),
    Row(Shuffles, "a9_fragments_interrupted", STREAMS),
    Row(EvictsByTheClock, "e1_busy_is_not_slow", as_member),
    Row(Unshielded, "e1_whoever_is_slow_goes", as_departures),
    Row(Restless, "e1_never_drains", as_departures),
    Row(Forgetful, "e1_stands_still", in_member("Watchdog")),
    Row(CountsMessages, "e1_large_messages", as_streams),
    Row(ForgetsItsRate, "e1_own_rate", as_streams),
    Row(rmp_mutants.MajorityCommits, "hand_rmp_commit", as_order("rmp")),
    Row(rmp_mutants.LowerRankWins, "hand_rmp_lock", as_order("rmp")),
    Row(rmp_mutants.NeverYields, "hand_rmp_hold", as_order("rmp")),
    Row(rmp_mutants.ForgetsUnsent, "hand_rmp_recovery", as_order("rmp")),
    Row(explore_mutants.NeverAcknowledges, "hand_agreed_waits", as_order("all-ack")),
)


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.name, marks=pytest.mark.seconds if takes_seconds(row.story) else ()) for row in ROWS],
)
def test_a_story_catches_the_mutant(row: Row) -> None:
    assert row.is_noticed()


def test_a_proposer_that_asks_less_often_takes_a_healthy_member_out() -> None:
    assert Row(type(None), "patience", lambda mutant: patch.object(ballot_module, "ASKED_MIN", 2)).is_noticed()


def lecture(plant: AbstractContextManager[Any]) -> str:
    with plant:
        return tell(read_story(Path(__file__).parent / "lectures_b_both.txt"))


def test_lectures_c_the_view_and_then_m_is_not_allowed() -> None:
    """Ours never shows it (b); one that does is caught."""
    told = lecture(ENGINE(ViewFirst))
    shown = [line.split()[0] for line in told.partition("\nq\n")[2].splitlines()[:3]]
    assert shown == ["view", "transition:", "delivers"]
    assert "FAIL" in told


def test_lectures_d_m_at_one_and_not_at_the_other_is_not_allowed() -> None:
    """Ours never shows it (b). A flush that takes one report for the whole truth would: r does not close with such a cut."""
    with pytest.raises(StoryError, match="r takes another member for a liar"):
        lecture(as_order("fifo")(explore_mutants.FirstReportWins))
