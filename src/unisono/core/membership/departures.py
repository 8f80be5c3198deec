"""Which members must go and why, and how an evicted member stays away for a while.

A member notes each reason that it sees: the failure detector's, its own or another's (by Notice), and what a ballot shows. The
proposer writes what is known of each member that its view loses into the charter, so all name the same reason.

**Eviction.** A member that finds another too slow tells its coordinator. Unlike a suspicion, which may be mistaken on either
side of a link, this points one way: the accused goes, never the accuser. When the view is installed, every member of it turns the
evicted member away for `rest_ns`, twice as long each further time, and tells it so (Dismiss), again whenever it greets. The evicted
member goes on alone, shows that it was evicted and why, and is mute until its rest is over and its application has drained, or
`drain_wait_ns` have passed. So join and evict cannot follow each other faster than the rests allow, even if one side errs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from unisono.core.departure import Cause, Departure
from unisono.core.membership.contacts import Contacts
from unisono.core.membership.context import Context
from unisono.core.types import MemberId, View, ViewId
from unisono.core.wire import Charter
from unisono.core.wire.control import Control, Dismiss, Hello, Propose

_DOUBLINGS_MAX = 16


class EvictedMember(NamedTuple):
    """An evicted member, as the group that turns it away remembers it."""

    dismissal: Dismiss
    until: int
    times: int


class Departures:
    def __init__(self, context: Context, contacts: Contacts) -> None:
        self._context = context
        self._contacts = contacts
        self._grounds: dict[MemberId, Departure] = {}  # since the view was installed
        self._evicted: dict[MemberId, EvictedMember] = {}  # the longest known first
        self.evicting: dict[MemberId, Departure] = {}  # of my view: whom it must lose because they are too slow
        self._is_drained = True  # whether the application here has room again
        self._rests_until = 0  # I was evicted, and stay away until then …
        self._drains_until = 0  # … or, if the application has not drained, until then
        self._told: ViewId | None = None  # of the last eviction that was shown

    # Reasons.

    def note(self, member: MemberId, cause: Cause, lasted_ns: int = 0) -> None:
        """I have seen why a member has to go. The first reason stands: later ones often follow from it."""
        self._grounds.setdefault(member, Departure(member, cause, self._context.id, lasted_ns))

    def forgive(self, member: MemberId) -> None:
        """What spoke against a member is refuted."""
        self._grounds.pop(member, None)

    def evict(self, member: MemberId, lasted_ns: int) -> None:
        """A member of my view is too slow, I say."""
        self.evicting.setdefault(member, Departure(member, Cause.SLOW, self._context.id, lasted_ns))

    def drained(self, is_drained: bool) -> None:
        """Whether the application here has room again: if I was evicted, I come back no sooner."""
        self._is_drained = is_drained

    def told(self, suspects: Iterable[MemberId]) -> tuple[Departure, ...]:
        """What the coordinator should know of my reasons."""
        mine = [self._grounds[one] for one in suspects if one in self._grounds]
        return (*(one for one in self.evicting.values() if one.by == self._context.id), *mine)

    def hear(self, sender: MemberId, grounds: Iterable[Departure], view: View) -> None:
        """Another member of my view has told me its reasons."""
        for ground in grounds:
            known = ground._replace(by=sender)
            if ground.member not in view.members or ground.member in (self._context.id, sender):
                continue
            if ground.cause is not Cause.SLOW:
                self._grounds.setdefault(ground.member, known)
            elif sender not in self.evicting:  # of two that find each other slow the first one stays
                self.evicting.setdefault(ground.member, known)

    def write(
        self, views: Iterable[View], participants: Iterable[MemberId], leavers: Iterable[MemberId]
    ) -> tuple[Departure, ...]:
        """For a charter: why each member of these views is not in the next one."""
        stay, leaving = set(participants), set(leavers)
        gone = {member: None for view in views for member in view.members if member in leaving or member not in stay}
        lives = {member.address: member for member in stay}
        result = []
        for member in sorted(gone)[: self._context.config.members_max]:
            if member in leaving:
                result.append(Departure(member, Cause.LEFT, member))
            elif member in self.evicting:
                result.append(self.evicting[member])
            elif member < lives.get(member.address, member) or self._contacts.is_stale(member):
                result.append(Departure(member, Cause.RESTARTED, self._context.id))
            else:
                result.append(self._grounds.get(member) or Departure(member, Cause.LOST, self._context.id))
        return tuple(result)

    # Turning away.

    def installed(self, charter: Charter, previous: ViewId | None) -> None:
        """A view was installed: its charter says who was evicted. The proposer tells them."""
        self._grounds = {}
        self.evicting = {}
        for departure in charter.departures:
            if departure.cause is Cause.SLOW and departure.member != self._context.id:
                self._turn_out(departure, charter, previous)

    def _turn_out(self, departure: Departure, charter: Charter, previous: ViewId | None) -> None:
        settings, member = self._context.settings, departure.member
        known = self._evicted.pop(member, None)
        times = 0 if known is None else known.times
        rest = min(settings.rest_ns << times, settings.rest_ns_max)
        dismissal = Dismiss(charter.id, previous, departure.by, departure.lasted_ns, rest)
        self._evicted[member] = EvictedMember(dismissal, self._context.now + rest, min(times + 1, _DOUBLINGS_MAX))
        while len(self._evicted) > self._context.config.members_max:
            del self._evicted[next(iter(self._evicted))]
        if charter.id.proposer == self._context.id:
            self._context.send(member, dismissal)

    def is_resting(self, member: MemberId) -> bool:
        """Whether a member was evicted too short a time ago."""
        evicted = self._evicted.get(member)
        return evicted is not None and evicted.until > self._context.now

    def turns_away(self, sender: MemberId, message: Control) -> bool:
        """Whether a greeting or a proposal goes unheard: one of us two was evicted a short time ago."""
        if not isinstance(message, Hello | Propose):
            return False
        if self.is_resting(sender):
            evicted = self._evicted[sender]
            rest = evicted.until - self._context.now
            self._context.send(sender, evicted.dismissal._replace(rest_ns=rest))
            return True
        return self.rests and isinstance(message, Hello)

    # Being turned away.

    @property
    def rests(self) -> bool:
        """Whether I was evicted and must not look for the others yet."""
        now = self._context.now
        return now < self._rests_until or (not self._is_drained and now < self._drains_until)

    @property
    def may_end_sooner(self) -> bool:
        """Whether the rest ends as soon as the application has room again."""
        return not self._is_drained

    @property
    def rest_ns(self) -> int:
        """How long at most I still stay away."""
        return max(0, (self._rests_until if self._is_drained else self._drains_until) - self._context.now)

    def dismissed(self, message: Dismiss) -> bool:
        """I was evicted. True if that is news."""
        settings, now = self._context.settings, self._context.now
        self._rests_until = now + min(message.rest_ns, settings.rest_ns_max)
        if message.view == self._told:
            return False
        self._told = message.view
        self._drains_until = max(self._rests_until, now + settings.drain_wait_ns)
        return True
