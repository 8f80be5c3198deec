"""When a member is to propose a view: how long it waits for others and for a boundary between messages, and how it gives way.

Nothing here is needed for safety: a ballot too early costs messages, one too late costs time.
"""

from __future__ import annotations

from zlib import crc32

from unisono.core.membership.beliefs import Beliefs
from unisono.core.membership.context import Context
from unisono.core.membership.participant import Participant
from unisono.core.types import MemberId


class ProposalTiming:
    def __init__(self, context: Context, participant: Participant, beliefs: Beliefs) -> None:
        self._context = context
        self._participant = participant
        self._beliefs = beliefs
        self.joined_at: int | None = None
        self.has_seeds = False
        self._outbid = 0  # times in a row
        self._abandoned = 0  # ballots in a row
        self._backoff_until = 0
        self._trouble_at: int | None = None  # since when the view has to change
        self._lost_at: int | None = None  # since when the proposer that I wait for is lost
        self._newcomers_at: int | None = None
        self._approached_at: int | None = None  # since when I wait for a boundary between messages

    # What happened.

    def installed(self) -> None:
        """A view was installed: what was known about the old one is settled."""
        self._outbid = 0
        self._abandoned = 0
        self._backoff_until = 0
        self._trouble_at = self._lost_at = self._newcomers_at = self._approached_at = None

    def proposed(self) -> None:
        """I propose."""
        self._trouble_at = self._lost_at = self._approached_at = None

    def promised(self) -> None:
        """Somebody proposes, and lives."""
        self._lost_at = None

    def abandon(self) -> None:
        """Another ballot is needed, at once; but if several in a row come to nothing, not at once any more."""
        settings = self._context.settings
        self._abandoned += 1
        if self._abandoned > 3:
            wait = min(settings.backoff_ns << min(self._abandoned - 4, 16), settings.backoff_ns_max)
            self._backoff_until = self._context.now + wait

    def back_off(self) -> None:
        """Outbid: let the other one finish. The wait differs from member to member, so that two do not meet for ever."""
        settings = self._context.settings
        wait = min(settings.backoff_ns << min(self._outbid, 16), settings.backoff_ns_max)
        jitter = crc32(f"{self._context.id}/{self._outbid}".encode()) % 1024 * wait // 1024
        self._outbid += 1
        self._backoff_until = self._context.now + wait + jitter

    # When it is time.

    @property
    def is_approaching(self) -> bool:
        """Whether the seat may reach a boundary in any turn, and then I am to propose."""
        return self._approached_at is not None

    def due(self, wish: str, is_refused: bool, is_renewal: bool) -> int | None:
        """When I am to propose, if I am; `wish` is the order that somebody asked for. One that was refused founds nothing.
        `is_renewal`: a state was given up that the view lacks to be primary.

        Where all of a view are well, its change waits for a boundary between messages. A crash may block the way there, and who
        sleeps gives no way: so it waits for `takeover_ns` at most, as the next in line does for whoever is to propose.
        """
        p, now, at = self._participant, self._context.now, self._wanted_at(wish, is_refused, is_renewal)
        if at is None or at > now or p.view is None or p.engaged or self._beliefs.is_broken():
            if self._approached_at is not None:
                self._approached_at = None
                self._context.seat.approach(False)
            return at
        if self._approached_at is None:
            self._approached_at = now
        return now if self._context.seat.approach(True) else self._approached_at + self._context.settings.takeover_ns

    def _wanted_at(self, wish: str, is_refused: bool, is_renewal: bool) -> int | None:
        """When I would propose if there were no messages."""
        p, now, settings = self._participant, self._context.now, self._context.settings
        line = self._beliefs.line()
        patience = settings.takeover_ns * line.index(self._context.id)
        if p.view is None and is_refused:
            return None
        newcomers = self._beliefs.newcomers() if line[0] == self._context.id else {}
        is_enough = p.view is not None or len(newcomers) + 1 >= settings.members_min
        if p.engaged:
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
        elif self._beliefs.must_shrink() or (line[0] == self._context.id and (wish not in ("", p.order) or is_renewal)):
            self._trouble_at = now if self._trouble_at is None else self._trouble_at
            times.append(self._trouble_at + patience)
        else:
            self._trouble_at = None
        return max(min(times), self._backoff_until) if times else None

    def _is_waiting_in_vain(self, proposer: MemberId) -> bool:
        view, known = self._participant.view, self._beliefs
        if proposer == self._context.id or self._participant.is_forsaken:
            return True
        is_mine = view is not None and proposer in view.members
        return not known.is_active(proposer) if is_mine else known.is_lost(proposer)

    def _founding_at(self) -> int | None:
        assert self.joined_at is not None
        if self._context.settings.members_min > 1:
            return None
        return self.joined_at + (self._context.settings.join_wait_ns if self.has_seeds else 0)
