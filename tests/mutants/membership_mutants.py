"""Membership with one rule broken each: what every rule is for.

**Install without all confirmations.** 1. A proposes {A, B, C}; A and B confirm, and A installs. 2. C has not closed and takes part
in the next ballot with B's rival D. 3. C closes with another cut, although A's view says that it came along.

**Forget an adopted cut.** 1. A sends its cut to B alone and crashes; B closes. 2. B does not say so to the next proposer, C, which
merges another cut. 3. B and C come into one view as one transitional set and have delivered different sets.

**Do not group by closed cut.** The same, with the blame on the proposer, which ignores what B says.

**Adopt a cut that does not cover.** 1. D is suspected, and A's cut counts A, B and C. 2. D comes back before the install and is
given that cut, although it has delivered what the cut lacks.

**Take for void what others delivered.** 1. A's cut reaches A and C; A delivers what was addressed to A and B, C has the
placeholder. 2. B proposes to C without A and adopts the cut, without the payload. 3. A takes B along: same cut, other sets.

**Answer with newer data.** 1. B reports. 2. A packet of the old view comes, and B's ordering takes it in. 3. The cut does not
know of it: B has delivered more than the others.

**Trust a stale incarnation.** 1. A restarts before it is excluded. 2. The old life counts as active as long as no detector
says otherwise, and every ballot waits for its answer; only that it can never answer keeps both lives out of one view.

**Change a proposal in its ballot.** 1. C does not confirm; A leaves it out and sends another charter under the same
ballot. 2. B has confirmed the first one: the same view has two member lists.

**Forget confirmed primaries.** 1. C confirms the primary {A, B, C}, A and B install it. 2. C, D and E are a majority of the
primary before that: two primaries follow the same one.

**Forget the record.** 1. A and B go on from {A, B, C} as the primary {A, B}. 2. A restarts, cut off with C, without what it
persisted: A and C are a majority of {A, B, C}, and two primaries follow the same one.

**Never install late.** 1. B confirms and the install is lost, C casts in the new view. 2. B goes on from the old view,
and what C cast is lost for it, although all the time it could be reached.

**Keep a ballot when leaving without a view.** 1. A proposes its first view {A, B}, confirms it and leaves, which needs nobody.
2. B's confirmation comes: A installs, and acknowledges what B casts. 3. B shows as safe what nobody at A receives any more.

**Never say that a view was left behind.** 1. A confirms {A, B}, and then another view is installed late at A. 2. A greets B: to
B it lives, and is even the one to propose. 3. B's view never changes.

**Merge with whom its own view suspects.** 1. D and E are in one view, E has crashed and D suspects it. 2. A proposes to both and
waits for E in vain; D, engaged, cannot go on without E. 3. A gives E up for a while, and asks again.

**Wait for a ballot that was given up.** 1. D promises A's ballot, which fails without D's doing. 2. A goes on in another view, D
waits.

**Leave at once.** 1. B casts, and its message waits to be ordered. 2. B leaves without a view change, and never delivers it.

**Keep the order.** 1. The group switches. 2. A, which proposed it, runs the new order, and B the old one, in one view.

**Exclude one at a time.** 1. B and C crash, and A suspects both. 2. A proposes a view without B, and C never answers.

**Trust the last of a merge.** 1. A proposes a merge to B and C. 2. C confirms before B has closed, and A installs.
"""

from __future__ import annotations

from collections.abc import Mapping

from unisono.core.membership.ballot import Ballot
from unisono.core.membership.contacts import Contacts
from unisono.core.membership.context import Context
from unisono.core.membership.departures import Departures
from unisono.core.membership.membership import Membership
from unisono.core.membership.merge import MergingPart
from unisono.core.membership.participant import Participant
from unisono.core.membership.primary import NOTHING
from unisono.core.membership.ring import Ring
from unisono.core.membership.states import BallotState, BallotStep, ParticipantState
from unisono.core.ordering import Report
from unisono.core.types import MemberId, Rank, ViewId
from unisono.core.wire.control import Answer, Control, Flush, Hello, Propose, RollCall, Standing


class _EagerBallot(Ballot):
    def is_complete(self) -> bool:
        return 2 * len(self._confirmed) > len(self.participants)


class InstallsEarly(Membership):
    ballot_type = _EagerBallot


class _ForgetfulParticipant(Participant):
    def _make_answer(self) -> Answer:
        return super()._make_answer()._replace(closed=None)

    def _close(self, flush: Flush) -> bool:
        return self.closed is not None or super()._close(flush)


class ForgetsAdoptedCut(Membership):
    participant_type = _ForgetfulParticipant


class _CredulousParticipant(Participant):
    def _close(self, flush: Flush) -> bool:
        return self.closed is not None or super()._close(flush)


class _UngroupingBallot(Ballot):
    def _form_parts_of_view(self, answers: Mapping[MemberId, Answer]) -> None:
        super()._form_parts_of_view({member: answer._replace(closed=None) for member, answer in answers.items()})


class DoesNotGroupByCut(Membership):
    ballot_type = _UngroupingBallot
    participant_type = _CredulousParticipant


class _OverreachingBallot(Ballot):
    def _adopt(
        self, rank: Rank, member: MemberId, parts: Mapping[ViewId, MergingPart], reports: Mapping[MemberId, Report]
    ) -> bool:
        for part in parts.values():
            covered = tuple(range(len(part.view)))
            part.cut = part.cut._replace(covered=covered)
        return super()._adopt(rank, member, parts, reports)


class AdoptsUncovered(Membership):
    ballot_type = _OverreachingBallot


class _VoidingBallot(Ballot):
    def _find_bereft(self) -> set[MemberId]:
        return set()


class VoidsWhatOthersDelivered(Membership):
    ballot_type = _VoidingBallot


class _GullibleContacts(Contacts):
    def meet(self, member: MemberId) -> bool:
        return True

    def is_stale(self, member: MemberId) -> bool:
        return False


class _GullibleParticipant(Participant):
    def propose(self, sender: MemberId, message: Propose, roll: RollCall | None = None) -> bool:
        lives = {member.address: member for member in message.participants}
        some = tuple(one for one in message.participants if lives[one.address] == one or one == self._context.id)
        return super().propose(sender, message._replace(participants=some), roll)


class TrustsStaleIncarnations(Membership):
    participant_type = _GullibleParticipant

    def tick(self, now: int) -> None:
        self._contacts.__class__ = _GullibleContacts
        self._beliefs._one_life_each = lambda found: found  # type: ignore[method-assign]
        super().tick(now)


class _ChangingBallot(Ballot):
    def tick(self) -> None:
        before = self._state
        super().tick()
        if before is BallotState.CLOSING and self.failed:
            for member in self.failed:
                del self.bases[member]
                self._answers.pop(member, None)
                for part in self._parts:
                    part.lacks.pop(member, None)
            self.participants = tuple(self.bases)
            self.failed = []
            self._confirmed &= set(self.participants)
            self._state = BallotState.FETCHING
            self._write()
            if self.is_complete():
                self._step(BallotStep.FINISH)


class ChangesItsProposal(Membership):
    ballot_type = _ChangingBallot


class _ShortStanding(Participant):
    def _make_answer(self) -> Answer:
        answer = super()._make_answer()
        return answer._replace(standing=Standing(answer.standing.last, ()))


class ForgetsConfirmedPrimaries(Membership):
    participant_type = _ShortStanding


class _Forgetful(Participant):
    def __init__(self, context: Context, ring: Ring, departures: Departures, standing: Standing) -> None:
        super().__init__(context, ring, departures, NOTHING)


class ForgetsTheRecord(Membership):
    participant_type = _Forgetful


class _PunctualParticipant(Participant):
    def knows_installed(self, view: ViewId | None) -> bool:
        return False

    def propose(self, sender: MemberId, message: Propose, roll: RollCall | None = None) -> bool:
        if message.base != self.base and message.base in self.confirmed:
            del self.confirmed[message.base]
        return super().propose(sender, message, roll)


class NeverInstallsLate(Membership):
    participant_type = _PunctualParticipant


class _LingeringParticipant(Participant):
    def install(self, ballot: ViewId) -> None:
        was_gone = self.is_gone
        if was_gone:
            self._state = ParticipantState.CONFIRMED
        super().install(ballot)
        if was_gone:
            self._state = ParticipantState.GONE


class KeepsItsBallotWhenLeaving(Membership):
    participant_type = _LingeringParticipant

    def leave(self) -> None:
        ballot, confirmed = self._ballot, self._participant.confirmed
        super().leave()
        self._ballot, self._participant.confirmed = ballot, confirmed


class NeverDenies(Membership):
    def _deny(self, sender: MemberId, hello: Hello) -> None:
        pass


class MergesWithTheAccused(Membership):
    def receive(self, sender: MemberId, message: Control) -> None:
        if isinstance(message, Hello):
            message = message._replace(suspects=tuple(one for one in message.suspects if one not in message.members))
        super().receive(sender, message)


class _HastyParticipant(Participant):
    def leave(self) -> None:
        self.is_leaving = True
        if not self.is_gone:
            self._withdraw()


class LeavesAtOnce(Membership):
    participant_type = _HastyParticipant


class _StubbornParticipant(Participant):
    def install(self, ballot: ViewId) -> None:
        if ballot.proposer != self._context.id:
            self.confirmed[ballot] = self.confirmed[ballot]._replace(order=self.order)
        super().install(ballot)


class KeepsItsOrder(Membership):
    participant_type = _StubbornParticipant


class ExcludesOneAtATime(Membership):
    def _propose(self) -> None:
        others = self._beliefs.suspects[1:]
        for one in others:
            self._beliefs.unsuspect(one)
        super()._propose()
        for one in others:
            self._beliefs.suspect(one)


class _LaxBallot(Ballot):
    def is_complete(self) -> bool:
        if len({part.view.id for part in self._parts}) > 1:
            return max(self.participants) in self._confirmed
        return super().is_complete()


class TrustsTheLastOfAMerge(Membership):
    ballot_type = _LaxBallot


class _FaithfulParticipant(Participant):
    def notice(self, member: MemberId, view: ViewId | None) -> None:
        pass


class WaitsForTheForsaken(Membership):
    participant_type = _FaithfulParticipant
