"""What one member believes about the others: whom it expects to answer, who is next in line, whom a merge can take in.

`Beliefs` is told what has happened, and keeps that; its questions change nothing. It asks the participant, the contacts and the
departures, and tells them nothing: that is membership's part.

Nothing here is needed for safety. A wrong belief costs a ballot that fails or a view that is smaller than it could be; that views
agree rests on ballots, reports and confirmations alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unisono.core.departure import Cause
from unisono.core.membership.contacts import Contacts
from unisono.core.membership.context import Context
from unisono.core.membership.departures import Departures
from unisono.core.membership.participant import Participant
from unisono.core.types import MemberId, View, ViewId
from unisono.core.wire.control import Hello, Notice


class Beliefs:
    def __init__(self, context: Context, participant: Participant, contacts: Contacts, departures: Departures) -> None:
        self._context = context
        self._participant = participant
        self._contacts = contacts
        self._departures = departures
        self._id = context.id
        self._suspects: dict[MemberId, None] = {}  # what my failure detector says
        self._departed: dict[MemberId, None] = {}  # members of my view that have moved on without me
        self._complaints: dict[MemberId, frozenset[MemberId]] = {}  # whom others of my view suspect …
        self._charges: dict[MemberId, frozenset[MemberId]] = {}  # … and who of these has sent them what cannot be
        self._leavers: dict[MemberId, None] = {}  # members of my view that want to leave
        self._shunned: dict[
            MemberId, tuple[int, int]
        ] = {}  # did not answer: until when, and how often; the latest last
        self._mistrusted: dict[MemberId, None] = {}  # of these: whose cuts could not be

    @property
    def _view(self) -> View | None:
        return self._participant.view

    @property
    def _mine(self) -> tuple[MemberId, ...]:
        return () if self._view is None else self._view.members

    # What happened.

    def installed(self, view: View) -> None:
        """A view was installed: what was known about the old one is settled."""
        for member in view.members:
            self._shunned.pop(member, None)
            self._mistrusted.pop(member, None)
        self._departed = {}
        self._complaints = {}
        self._charges = {}
        self._leavers = {}

    def suspect(self, member: MemberId) -> None:
        """At the limit the oldest suspicion goes: its member left the view long ago."""
        self._suspects[member] = None
        while len(self._suspects) > self._context.config.members_max:
            del self._suspects[next(iter(self._suspects))]

    def unsuspect(self, member: MemberId) -> None:
        """It was heard again."""
        self._suspects.pop(member, None)

    def hear(self, sender: MemberId, notice: Notice) -> None:
        """A member of my view says whom it suspects, whom it blames, and whether it wants to leave."""
        self._complaints[sender] = frozenset(notice.suspects)
        self._charges[sender] = frozenset(one.member for one in notice.grounds if one.cause is Cause.FAULTY)
        if notice.leaving:
            self._leavers[sender] = None

    def depart(self, member: MemberId) -> None:
        """A member of my view is in another one."""
        self._departed[member] = None

    def shun(self, member: MemberId) -> None:
        """Do not ask a member that did not answer for a while, longer each time."""
        times = min(self._shunned.pop(member, (0, 0))[1], 4)
        self._shunned[member] = (self._context.now + (self._context.settings.shun_ns << times), times + 1)
        while (
            len(self._shunned) > self._context.config.members_max
        ):  # the member that failed longest ago is asked again sooner
            del self._shunned[next(iter(self._shunned))]

    def mistrust(self, member: MemberId) -> None:
        """Let others propose for a while: this member has sent impossible cuts, whether it lies or was lied to."""
        self._mistrusted[member] = None
        self.shun(member)
        while len(self._mistrusted) > self._context.config.members_max:
            del self._mistrusted[next(iter(self._mistrusted))]

    def take_suspects_outside(self, most: int) -> list[MemberId]:
        """The next suspects that are not in my view, at most this many: each goes to the end of the line."""
        chosen = [one for one in self._suspects if one not in self._mine][:most]
        for member in chosen:
            self._suspects[member] = self._suspects.pop(member)
        return chosen

    # Single members.

    @property
    def suspects(self) -> tuple[MemberId, ...]:
        """Whom my failure detector suspects, the latest last."""
        return tuple(self._suspects)

    def is_active(self, member: MemberId) -> bool:
        """Whether a member can be expected to answer and has not left my view."""
        if member == self._id:
            return True
        is_out = member in self._departed or member in self._departures.evicting
        return not (is_out or self.is_lost(member) or self._is_shunned(member))

    def is_lost(self, member: MemberId) -> bool:
        """Whether a member is believed to have crashed."""
        return member in self._suspects or self._contacts.is_stale(member)

    def is_leaving(self, member: MemberId) -> bool:
        return member in self._leavers or (member == self._id and self._participant.is_leaving)

    def is_mistrusted(self, member: MemberId) -> bool:
        """Whether its proposals go unheard for now."""
        return member in self._mistrusted and self._is_shunned(member)

    def _is_shunned(self, member: MemberId) -> bool:
        return self._shunned.get(member, (0, 0))[0] > self._context.now

    def next_pardon(self) -> list[int]:
        """When members will be asked again."""
        return [until for until, _ in self._shunned.values() if until > self._context.now]

    # My view.

    def line(self) -> list[MemberId]:
        """The members of my view in the order in which they are to propose: those that stay before those that leave."""
        if self._view is None:
            return [self._id]
        active = [member for member in self._view.members if self.is_active(member)]
        return sorted(active, key=self.is_leaving)

    def compatible(self, members: Iterable[MemberId]) -> list[MemberId]:
        """Leave out as few members as possible so that none suspects another.

        Of two in conflict, the one in more conflicts goes; else the one that sent what no correct member sends; else the higher.
        """
        chosen = list(members)
        while True:
            charged = {one for accuser in chosen for one in self._charges.get(accuser, ())}
            conflicts = dict.fromkeys(chosen, 0)
            for accuser in chosen:
                for accused in self._complaints.get(accuser, ()):
                    if accused in conflicts and accused != accuser:
                        conflicts[accuser] += 1
                        conflicts[accused] += 1
            conflicts.pop(self._id, None)
            ranked = max(((count, one in charged, one) for one, count in conflicts.items()), default=None)
            if ranked is None or not ranked[0]:
                return chosen
            chosen.remove(ranked[2])

    def must_shrink(self) -> bool:
        """Whether my view must lose a member."""
        return any(map(self.is_leaving, self._mine)) or self.is_broken()

    def is_broken(self) -> bool:
        """Whether a member of my view cannot be expected to answer, or to get on with all others."""
        if not all(map(self.is_active, self._mine)):
            return True
        return len(self.compatible(self._mine)) < len(self._mine)

    def accused(self) -> tuple[MemberId, ...]:
        """Whom I or others of my view suspect."""
        result = dict(self._suspects)
        for accuser in self._mine:
            result.update(dict.fromkeys(sorted(self._complaints.get(accuser, ()))))
        return tuple(result)[: self._context.config.members_max]

    # Others.

    def newcomers(self) -> dict[MemberId, ViewId | None]:
        """Whom I can take in now, with the view that each is in; empty if another member is to lead the merge.

        The lowest coordinator leads; who has a view leads those that have none. If the leader does nothing for
        `merge_wait_ns`, the coordinators that waited for it lead.
        """
        now = self._context.now
        result: dict[MemberId, ViewId | None] = {}
        if self._departures.rests:
            return result
        for member, contact in self._contacts.good(now):
            added = self._added_by(member, contact.hello)
            if not added or len({self._id, *self._mine, *result, *added}) > self._context.config.members_max:
                continue  # a merge takes whole views, or nothing
            if not self._leads(member, contact.hello) and now - contact.since < self._context.settings.merge_wait_ns:
                return {}
            for one, base in added.items():
                known = result.get(one)
                if known is None or (base is not None and base > known):
                    result[one] = base
        return self._one_life_each(result)

    def _added_by(self, member: MemberId, hello: Hello) -> dict[MemberId, ViewId | None]:
        """Whom a contact would bring along: itself, or its whole view if it speaks for that."""
        view = self._view
        if hello.view is None:
            is_welcome = self.is_active(member) and not self._departures.is_resting(member)
            return {member: None} if is_welcome and member not in self._mine else {}
        if hello.coordinator != member or (view is not None and hello.view == view.id):
            return {}
        if not set(hello.suspects).isdisjoint(hello.members):
            return {}  # that view is about to lose a member: a ballot with all of them would wait in vain, and be in its way
        added: dict[MemberId, ViewId | None] = {}
        for one in hello.members:
            is_mine = view is not None and one in view.members and hello.view < view.id and self.is_active(one)
            if one != self._id and not is_mine and not self._contacts.is_stale(one):
                added[one] = hello.view
        return {} if self._clash(added, hello) else added

    def _clash(self, added: Mapping[MemberId, ViewId | None], hello: Hello) -> bool:
        """Whether a member there suspects a member here, or the reverse: a merge takes whole views or nothing."""
        here = {*self._mine, self._id}
        there = set(added)
        accused = {one for member in here for one in self._complaints.get(member, ())} | self._suspects.keys()
        here -= there  # those of mine that have gone over to them
        if any(self._is_shunned(one) or self._departures.is_resting(one) for one in there):
            return True
        return bool(there & accused) or not here.isdisjoint(hello.suspects)

    def _leads(self, member: MemberId, hello: Hello) -> bool:
        if (self._view is None) is (hello.view is None):
            return self._id < member
        return self._view is not None

    def _one_life_each(self, found: dict[MemberId, ViewId | None]) -> dict[MemberId, ViewId | None]:
        """Of one address the newest life."""
        newest: dict[str, MemberId] = {}
        for one in (*self._mine, *found):
            newest[one.address] = max(one, newest.get(one.address, one))
        return {one: base for one, base in found.items() if newest[one.address] == one}
