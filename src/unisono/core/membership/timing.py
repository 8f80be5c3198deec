"""When a member proposes a view: how long it waits for others and for a boundary between messages, and how it gives way.

Nothing here is needed for safety: a ballot too early costs messages, one too late costs time. It is told the time and what has
happened (`observe` looks at the participant and at what is believed of the others), and then it says when to propose (`due`): a
question, which changes nothing. It does nothing itself.
"""

from __future__ import annotations

from zlib import crc32

from unisono.core.membership.beliefs import Beliefs
from unisono.core.membership.participant import Participant
from unisono.core.membership.settings import MembershipSettings
from unisono.core.types import MemberId

FREE_BALLOTS = 3
"""This number of ballots in a row may come to nothing before the next one waits."""


class ProposalTiming:
    def __init__(
        self, member: MemberId, settings: MembershipSettings, participant: Participant, beliefs: Beliefs
    ) -> None:
        self._id = member
        self._settings = settings
        self._participant = participant
        self._beliefs = beliefs
        self.joined_at: int | None = None
        self.due: int | None = None
        """When I am to propose, as `observe` found it; None: I am not."""
        self._has_seeds = False
        self._outbid = 0  # times in a row
        self._abandoned = 0  # ballots in a row
        self._backoff_until = 0
        self._trouble_at: int | None = None  # since when the view has to change
        self._lost_at: int | None = None  # since when the proposer that I wait for is lost
        self._newcomers_at: int | None = None
        self._approached_at: int | None = None  # since when I wait for a boundary between messages

    # What happened.

    def join(self, now: int) -> None:
        """I look for a group."""
        self.joined_at = now

    def seek(self, has_seeds: bool) -> None:
        """There are addresses to look for the group at, or there will be."""
        self._has_seeds = self._has_seeds or has_seeds

    def stop(self) -> None:
        """I do not look for a group any more."""
        self.joined_at = None

    def installed(self) -> None:
        """A view was installed: what was known about the old one is settled."""
        self._outbid = 0
        self._abandoned = 0
        self._backoff_until = 0
        self._trouble_at = self._lost_at = self._newcomers_at = self._approached_at = None

    def proposed(self) -> None:
        """I propose."""
        self.due = None
        self._trouble_at = self._lost_at = self._approached_at = None

    def promised(self) -> None:
        """Another member proposes, and lives."""
        self._lost_at = None

    def abandoned(self, now: int) -> None:
        """Another ballot is needed, at once; but if several in a row come to nothing, not at once any more."""
        self._abandoned += 1
        if self._abandoned > FREE_BALLOTS:
            doublings = min(self._abandoned - FREE_BALLOTS - 1, 16)
            self._backoff_until = now + min(self._settings.backoff_ns << doublings, self._settings.backoff_ns_max)

    def outbid(self, now: int) -> None:
        """Let the other one finish. The wait differs from member to member, so that two do not meet for ever."""
        wait = min(self._settings.backoff_ns << min(self._outbid, 16), self._settings.backoff_ns_max)
        jitter = crc32(f"{self._id}/{self._outbid}".encode()) % 1024 * wait // 1024
        self._outbid += 1
        self._backoff_until = now + wait + jitter

    # When it is time.

    @property
    def is_approaching(self) -> bool:
        """Whether the view may reach a boundary between messages in any turn, and then I am to propose."""
        return self._approached_at is not None

    @property
    def is_gathering(self) -> bool:
        """Whether there are newcomers, and I wait for more of them."""
        return self._newcomers_at is not None

    def approach(self, now: int, is_there: bool) -> None:
        """I wait for a boundary between messages, unless the view is there, but not for ever."""
        if self._approached_at is None:
            self._approached_at = now
        self.due = now if is_there else self._approached_at + self._settings.takeover_ns

    def stop_approaching(self) -> None:
        self._approached_at = None

    def observe(self, now: int, wish: str, is_refused: bool, is_renewal: bool) -> None:
        """See since when what makes me propose is so, and when I would propose if there were no messages.

        `wish` is the order that a member asked for. A member that was refused founds nothing. `is_renewal`: the view is to be
        formed anew, because a state that it lacks was given up or is here after all.
        """
        self.due = self._observe(now, wish, is_refused, is_renewal)

    def _observe(self, now: int, wish: str, is_refused: bool, is_renewal: bool) -> int | None:
        p, settings = self._participant, self._settings
        line = self._beliefs.line()
        patience = settings.takeover_ns * line.index(self._id)
        if p.view is None and is_refused:
            return None
        newcomers = self._beliefs.newcomers() if line[0] == self._id else {}
        is_enough = p.view is not None or len(newcomers) + 1 >= settings.members_min
        if p.is_engaged:
            if not is_enough:  # what was begun with more is not finished with fewer
                return None
            if self._is_waiting_in_vain(p.promised.proposer):
                if self._lost_at is None:
                    self._lost_at = now
                at = self._lost_at + patience
            else:
                self._lost_at = None
                at = p.progress_at + settings.proposal_wait_ns + patience
            return max(at, self._backoff_until)
        times = []
        if newcomers:
            self._newcomers_at = now if self._newcomers_at is None else self._newcomers_at
            if is_enough:
                times.append(self._newcomers_at + settings.gather_ns)
        else:
            self._newcomers_at = None
        if p.view is None:
            founding = self._founding_at()
            times += [] if founding is None or newcomers else [founding]
        elif self._beliefs.must_shrink() or (line[0] == self._id and (wish not in ("", p.order) or is_renewal)):
            self._trouble_at = now if self._trouble_at is None else self._trouble_at
            times.append(self._trouble_at + patience)
        else:
            self._trouble_at = None
        return max(min(times), self._backoff_until) if times else None

    def _is_waiting_in_vain(self, proposer: MemberId) -> bool:
        view, beliefs = self._participant.view, self._beliefs
        if proposer == self._id or self._participant.is_forsaken:
            return True
        is_mine = view is not None and proposer in view.members
        return not beliefs.is_active(proposer) if is_mine else beliefs.is_lost(proposer)

    def _founding_at(self) -> int | None:
        assert self.joined_at is not None
        if self._settings.members_min > 1:
            return None
        return self.joined_at + (self._settings.join_wait_ns if self._has_seeds else 0)
