"""Membership in ballots, with virtual synchrony: who is in the group, agreed by those who are.

One procedure serves joins, leaves, crashes and merges. A **ballot** is the id of the view that it proposes, (number, proposer); a
member's ballots never repeat, and a restarted process is another member, so a ballot has one proposer and one charter.

1. The lowest active member of a view proposes; unless a failure forces it, at a boundary between messages (`Ordering.approach`).
   Participants **promise** the ballot (refuse lower ones from then on), **block** their seat, and **answer** with the report
   of their view and the cut that they closed it with, if they did.
2. The proposer groups the answers by view and closed cut, merges those that no cut covers, fetches what somebody lacks, and
   sends each its cut with exactly the packets that it misses (`membership_proposal`).
3. Participants **close**, once a view, and **confirm**.
4. When *all* have confirmed, the proposer **installs** and says so. Whoever waits repeats its confirmation until somebody who has
   the view answers, or until it starts a higher ballot. A participant that is suspected, silent or elsewhere: a higher ballot.

What never breaks (the properties are those of PROPERTIES):

I1  A member reports once a view and takes nothing of that view in afterwards. So every proposer gets the same report of it.
I2  A member closes a view once, with a cut that counted its report; a cut's name stands for one cut. A later ballot brings
    it the same cut or none, and a payload is void for all who close with a cut or for none of them (`membership_proposal`).
    So members that closed a view with the same cut delivered the same set (P14, P5, P9).
I3  A view is installed only if every participant had confirmed its ballot, that is, closed as the charter says. The parts
    of the charter are groups of one view and one cut. So whoever ever installs it names the same transitional set, and
    everyone in that set has closed with that cut, whether it gets to installing or not (P15, P16).
I4  A member installs only what it confirmed itself and has not left behind; it forgets its confirmations when it installs. What it
    answered to a ballot before that is void: the ballot's cut names another view than the one it is in, and is refused.
    One that leaves before it has a view is gone at once and forgets them too, and its own ballot. To the others it is as one
    that crashed; if it installed after that, it would acknowledge what nobody there takes in any more (P17).
I5  A member promises only ballots whose number is above its view's and above all that it confirmed; so numbers rise (P12),
    also along the chain of primaries.
I6  One ballot has one charter, and participants refuse one with two lives of a process (P11, P12).

A member that confirmed and never saw the install. Story: 1. P, A and B confirm ballot b for V'; P installs and casts m in V'.
2. The install is lost at B, and P crashes or is cut off. 3. B starts a ballot from V with A. If A has V', it
answers *Moved*: somebody is in V', which proves that all confirmed it, so B installs V' late, before anything else, and
reports that it holds nothing of V'; m reaches it through the cut. Other proofs are a greeting from V', or a proposal that takes B
to be in V'. 4. If nobody that B reaches has V', B goes on from V with those who closed with the same cut. V' then has members that
never install it; P's transitional set is still true (I3), and nothing that P did in V' was promised to anyone but members of
V' that came along with P further. P may take B for alive, even for the one that is to propose, because B greets it: so whoever
is greeted from a view that it has left behind, or told of one, says *Moved*, and that view goes on without it.

A partition in mid-flush can close one view with two cuts. Groups keep them apart, in the merge too: each group is its own
transitional set, and one that has not closed joins only a cut that counted its report.

Safety needs no clock and no failure detector. Liveness needs that for a while messages arrive in `answer_wait_ns` and
suspicions are right: then the lowest coordinator's ballot, or the first after a back-off, is finished.

Names of times and limits: `membership_settings`. Primary policy: `membership_primary`. Who finds whom: `membership_discovery`.
How answers travel, by star or by ring: `membership_ring`. When somebody proposes: `membership_pace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from unisono.core.config import Config
from unisono.core.departure import Cause
from unisono.core.errors import Misuse
from unisono.core.membership.ballot import Attempt
from unisono.core.membership.beliefs import Knowledge
from unisono.core.membership.context import Holder, Host, MembershipOut
from unisono.core.membership.discovery import Discovery
from unisono.core.membership.explain import explain_change, explain_read_only, explain_standing
from unisono.core.membership.participant import LIES_MAX, Participant
from unisono.core.membership.primary import restore
from unisono.core.membership.settings import MembershipSettings
from unisono.core.membership.timing import Pace
from unisono.core.ordering import AnyOrdering
from unisono.core.types import MemberId, View, ViewId
from unisono.core.waiting import Waiting
from unisono.core.wire.control import (
    CUT,
    DECREE,
    ROLL,
    Charter,
    Confirm,
    Control,
    Dismiss,
    Fetch,
    Held,
    Hello,
    Install,
    Moved,
    Notice,
    Outbid,
    Outlive,
    Piece,
    Propose,
    Pull,
    Refuse,
    RollCall,
)

NEVER = 2**63 - 1
LEAP_MAX = 2**32
NUMBER_MAX = 2**62


class Membership:
    """One member's membership. A turn is `tick(now)`, then any inputs, then one `drain`."""

    attempt_type: type[Attempt] = Attempt
    participant_type: type[Participant] = Participant

    def __init__(
        self,
        member: MemberId,
        seat: Holder,
        orders: Mapping[str, type[AnyOrdering]],
        order: str,
        config: Config,
        settings: MembershipSettings | None = None,
        record: bytes | None = None,
        secret: bytes = b"",
    ) -> None:
        if order not in orders:
            raise Misuse(f"there is no order {order!r}: choose among {', '.join(orders)}.")
        self.id = member
        self._settings = settings or MembershipSettings()
        self._host = Host(member, seat, orders, order, config, self._settings, secret)
        self._participant = self.participant_type(self._host, restore(self._host.codec, record))
        self._known = Knowledge(self._host, self._participant)
        self._contacts = self._known.contacts
        self._discovery = Discovery(self._host, self._participant, self._known)
        self.departures = self._host.departures
        self._attempt: Attempt | None = None
        self._pace = Pace(self._host, self._participant, self._known)
        self._leave_at: int | None = None  # when leave() was called
        self._renewed: tuple[tuple[MemberId, ...], tuple[str, ...]] | None = None  # a view, and the peers known then
        self._top = self._participant.promised.number  # the highest ballot number heard of

    # Questions.

    @property
    def view(self) -> View | None:
        return self._participant.view

    @property
    def charter(self) -> Charter | None:
        """What the members of the installed view agreed on."""
        return self._participant.charter

    @property
    def is_primary(self) -> bool:
        """Whether the view may change state: always under `partitionable`."""
        charter = self._participant.charter
        return self._settings.policy != "primary" or (charter is not None and charter.primary)

    @property
    def is_gone(self) -> bool:
        return self._participant.gone

    @property
    def refused(self) -> Mapping[str, int]:
        """What was dropped, by reason."""
        return self._host.refused

    @property
    def turned_away(self) -> Mapping[str, str]:
        """Addresses of members that are not taken in, the latest last, each with the reason that it was given."""
        return self._discovery.turned_away

    @property
    def is_lied_to(self) -> bool:
        """Whether a report, a packet or a cut came here that no correct member sends."""
        return bool(self._participant.nonsense) or not self._host.refused.keys().isdisjoint(
            ("report", "packets", "cut")
        )

    @property
    def coordinator(self) -> MemberId:
        """Who proposes the next view, as far as I know."""
        return self._known.line()[0]

    def explain(self) -> str | None:
        """Why a view change has not finished, in one sentence; None if none is under way."""
        return explain_change(self._host, self._participant, self._attempt)

    def waiting(self) -> list[Waiting]:
        """All that waits here, beside messages."""
        met = len(self._contacts.good(self._host.now))
        refusal = self._discovery.refusal
        said = explain_standing(self._host, self._participant, self._pace.joined_at, self._leave_at, met, refusal)
        change = self.explain()
        return said if change is None else [Waiting(("view change",), change.rstrip(".")), *said]

    def explain_read_only(self) -> str:
        """Why the installed view is not primary, without a full stop."""
        return explain_read_only(self._host, self._participant)

    @property
    def stalled(self) -> bool:
        """Whether a view change is under way and has not moved for as long as a participant waits."""
        p = self._participant
        since = self._attempt.since if self._attempt is not None else p.progress_at
        return p.engaged and self._host.now - since >= self._settings.proposal_wait_ns

    # Inputs.

    def join(self, seeds: Iterable[str] = (), expects_more: bool = False) -> None:
        """Look for the group at these addresses; without any, and if no more are to come, found one."""
        seeds = tuple(seeds)
        if self._pace.joined_at is None:
            self._pace.joined_at = self._host.now
            self._discovery.greet_at = self._host.now
        has_seeds = expects_more or any(seed != self.id.address for seed in seeds)
        self._pace.has_seeds = self._pace.has_seeds or has_seeds
        self.heard_of(seeds)

    def doubt(self, addresses: Iterable[str]) -> None:
        """Addresses that the operator's names stood for, and do not any more."""
        self._contacts.doubt(addresses)

    def name_peers(self, peers: Sequence[str]) -> None:
        """Whom the first primary needs a majority of, now that more of their addresses are known, or other ones.

        If the view that this member coordinates has that majority after all, it is formed anew.
        """
        self._host.peers = tuple(peers)
        view, p = self.view, self._participant
        if view is None or self.is_primary or p.standing.last is not None or self.coordinator != self.id:
            return
        present = {member.address for member in view.members}
        tried = (view.members, self._host.peers)
        if 2 * len(present.intersection(peers)) > len(peers) and tried != self._renewed:
            self._renewed = tried  # once: something else may keep it from being primary
            self._discovery.renew()

    def leave(self) -> None:
        """Leave when everything that this member cast is delivered."""
        if self._leave_at is None:
            self._leave_at = self._host.now
            self._participant.leaving = True
            if self.view is None:
                self._attempt = None
                self._participant.withdraw()

    def switch(self, order: str) -> None:
        """Ask for another order; it takes effect with the next view."""
        if order not in self._host.orders:
            raise Misuse(f"there is no order {order!r}: choose among {', '.join(self._host.orders)}.")
        self._discovery.wish = order

    def hold(self, state: Held | None) -> None:
        """The application has this state of a primary; None: it has none."""
        self._participant.holds = state

    def give_up(self, state: ViewId) -> None:
        """Give up the state of the primary that the view lacks, by its name; the next view does without it."""
        self._participant.give_up(state)

    def renew(self) -> None:
        """What I was sent in this view contradicts itself, and I cannot tell who lied: form the view anew."""
        self._participant.is_torn = True

    def heard_of(self, addresses: Iterable[str]) -> None:
        """Addresses where members may be."""
        self._contacts.learn(addresses, is_firm=True)

    def contact(self, member: MemberId, view: ViewId | None) -> None:
        """A member was heard that is in this view; the driver sees it in the envelope."""
        if not self._contacts.meet(member):
            return
        self._notice_view(member, view)
        mine = self.view
        if mine is None or member not in mine.members:
            self._contacts.learn((member.address,))

    def suspect(self, member: MemberId, cause: Cause = Cause.SUSPECTED, lasted_ns: int = 0) -> None:
        if member != self.id:
            self._known.suspect(member)
            self.departures.note(member, cause, lasted_ns)

    def unsuspect(self, member: MemberId) -> None:
        self._known.suspects.pop(member, None)
        self.departures.forgive(member)

    def receive(self, sender: MemberId, message: Control) -> None:
        """Take a control message. Those of an older life of the process at an address are dropped, and it is told so."""
        if not self._contacts.meet(sender) or sender == self.id:
            self._host.refuse("stale incarnation")
            if isinstance(message, Hello) and not message.answer and sender.address != self.id.address:
                newest = self._contacts.newest(sender.address)
                self._host.send(sender, Outlive(sender, newest, message.nonce))
            return
        if self._pace.joined_at is None:
            return
        if self._leaps(message):
            self._host.refuse("number")
            return
        self._dispatch(sender, message)
        self._work_off()

    def _leaps(self, message: Control) -> bool:
        """Whether a view's number is far beyond all others: taking one forged would use up the numbers that views can have."""
        limit = NUMBER_MAX if self.view is None else min(self._top + LEAP_MAX, NUMBER_MAX)
        named = (getattr(message, name, None) for name in ("ballot", "view", "base", "promised"))
        return any(isinstance(one, ViewId) and one.number > limit for one in named)

    def tick(self, now: int) -> None:
        """Time has passed. Call it first in every turn, and by `deadline` at the latest."""
        self._host.now = max(now, self._host.now)
        self._work_off()

    def drain(self) -> MembershipOut:
        """End the turn: what is to be persisted, sent and shown, in this order."""
        self._plan()
        host = self._host
        out, host.out = host.out, MembershipOut()
        return out

    # Messages.

    def _work_off(self) -> None:
        """Deliver what I sent to myself."""
        loop = self._host.loop
        while loop:
            batch, loop[:] = list(loop), []
            for message in batch:
                self._dispatch(self.id, message)

    def _dispatch(self, sender: MemberId, message: Control) -> None:
        p, attempt = self._participant, self._attempt
        if self.departures.turns_away(sender, message):
            return
        mine = attempt is not None and getattr(message, "ballot", None) == attempt.ballot
        if isinstance(message, Hello):
            if not p.gone and self._discovery.fits(sender, message):  # who is gone does not pose as a newcomer
                self._top = max(self._top, 0 if message.view is None else message.view.number)
                self._notice_view(sender, message.view)
                self._deny(sender, message)
                self._discovery.hear(sender, message)
        elif isinstance(message, Confirm):
            if mine and attempt is not None:
                attempt.confirm(sender)
                self._finish(attempt)
            else:
                self._remind(sender, message.ballot)
        elif p.gone:
            return
        elif isinstance(message, Propose):
            self._proposed(sender, message)
        elif isinstance(message, Piece):
            if message.topic == CUT:
                p.flush(sender, message)
                if p.nonsense.get(sender, 0) >= LIES_MAX and sender != self.id:
                    self._known.mistrust(sender)
            elif message.topic in (ROLL, DECREE):
                self._take_token(sender, message)
            elif mine and attempt is not None:
                attempt.piece(sender, message)
                self._give_up(attempt)
        elif isinstance(message, Pull):
            if message.topic == CUT and mine and attempt is not None:
                attempt.pull(sender, message)
            elif message.topic != CUT:
                p.pull(sender, message)
        elif isinstance(message, Fetch):
            p.fetch(sender, message)
        elif isinstance(message, Install):
            if message.ballot == p.latest:
                self._install(message.ballot)
        elif isinstance(message, Outbid):
            self._top = max(self._top, message.promised.number)
            if mine:
                self._attempt = None
                self._pace.back_off()
        elif isinstance(message, Moved):
            self._moved(sender, message)
        elif isinstance(message, Notice):
            self._notice_view(sender, message.view)
            self._discovery.noticed(sender, message)
        elif isinstance(message, Dismiss):
            self._known.dismissed(sender, message)
        elif isinstance(message, Outlive):
            self._discovery.outlived(sender, message)
        elif isinstance(message, Refuse):
            self._discovery.refused(sender, message)
            if self._discovery.is_refused and self._settings.stops_when_refused:
                self._pace.joined_at = None

    def _take_token(self, sender: MemberId, piece: Piece) -> None:
        """A token of the ring comes to me, or back to me."""
        p, attempt = self._participant, self._attempt
        if attempt is not None and piece.ballot == attempt.ballot:
            token = self._host.ring.take(sender, piece)
            if token is not None:
                attempt.come_around(sender, token)
                self._give_up(attempt)
                self._finish(attempt)
        elif piece.ballot.proposer != self.id and not p.has_seen(piece):
            settings = self._settings
            if piece.total > settings.piece_bytes_max * settings.pieces_max and not self._knows(
                sender, piece.ballot.proposer
            ):
                self._host.refuse("token of strangers")
                return
            token = self._host.ring.take(sender, piece)
            if isinstance(token, RollCall):
                proposal = p.called(sender, piece, token)
                if proposal is not None:
                    self._proposed(piece.ballot.proposer, proposal, token)
            elif token is not None:
                p.decree(sender, piece.ballot, token)

    def _knows(self, *members: MemberId) -> bool:
        """Whether one of these is in my view, or has greeted me from another one."""
        mine = () if self.view is None else self.view.members
        return any(member in mine or member in self._contacts.contacts for member in members)

    def _proposed(self, sender: MemberId, message: Propose, roll: RollCall | None = None) -> None:
        if self._known.is_mistrusted(sender):
            self._host.refuse("proposal")
            return
        self._top = max(self._top, message.ballot.number)
        self._contacts.learn(member.address for member in message.participants)
        p, before = self._participant, self._participant.base
        if p.propose(sender, message, roll):
            self._pace.promised()
            if self._attempt is not None and self._attempt.ballot != message.ballot:
                self._attempt = None  # outbid: take part in the other one
        if p.base != before:
            self._entered()

    def _moved(self, sender: MemberId, message: Moved) -> None:
        """A member is in another view than was thought: the next ballot does without it, or takes it from there."""
        if message.view is not None:
            self._top = max(self._top, message.view.number)
        self._notice_view(sender, message.view)
        if self._attempt is not None and message.ballot == self._attempt.ballot and sender != self.id:
            self._known.moved(sender)
            self._abandon()
            return
        view = self.view
        is_mine = view is not None and message.ballot == view.id and sender in view.members
        if is_mine and message.view != message.ballot:
            self._known.depart(sender)

    def _deny(self, sender: MemberId, hello: Hello) -> None:
        """Somebody is in a higher view that lists me. All had confirmed it, so I would be in it, had I not left it behind."""
        view = self.view
        if view is not None and hello.view is not None and hello.view > view.id and self.id in hello.members:
            self._host.send(sender, Moved(hello.view, view.id))

    def _remind(self, sender: MemberId, ballot: ViewId) -> None:
        """Somebody waits for an install: it is mine too, or I have moved on."""
        p = self._participant
        if p.charter is not None and p.charter.id == ballot:
            self._host.send(sender, Install(ballot))
        elif p.view is not None and p.view.id > ballot:
            self._host.send(sender, Moved(ballot, p.view.id))

    def _finish(self, attempt: Attempt) -> None:
        if not attempt.done:
            return
        self._install(attempt.ballot)
        for member in attempt.participants:
            if member != self.id:
                self._host.send(member, Install(attempt.ballot))

    def _install(self, ballot: ViewId) -> None:
        self._participant.install(ballot)
        self._entered()

    def _entered(self) -> None:
        """A view was installed: what was known about the old one is settled."""
        self._attempt = None
        view = self.view
        if self._participant.gone or view is None:
            return
        self._top = max(self._top, view.id.number)
        self._known.installed(view)
        self._pace.installed()
        self._discovery.installed()

    def _notice_view(self, member: MemberId, theirs: ViewId | None) -> None:
        """A member is in that view: perhaps one that I confirmed, perhaps one without me."""
        if self._participant.knows_installed(theirs):
            self._entered()
        self._participant.notice(member, theirs)
        view = self.view
        if view is not None and member in view.members and theirs is not None and theirs > view.id:
            self._known.depart(member)

    # Planning.

    def _plan(self) -> None:
        """Start, repeat or give up whatever is due. Called once a turn."""
        p, now = self._participant, self._host.now
        if self._pace.joined_at is None or p.gone:
            return
        self._discovery.greet()
        self._discovery.tell()
        for _ in range(len(self.view or ()) + len(self._contacts.contacts) + 2):
            if self._attempt is not None:
                self._attempt.tick()
                self._watch(self._attempt)
            if self._attempt is None:
                due = self._due()
                if due is None or due > now:
                    break
                self._propose()
            self._work_off()
            if self._attempt is not None and not self._attempt.failed:
                break
        p.tick()
        self._work_off()

    def _watch(self, attempt: Attempt) -> None:
        """A ballot whose participant is suspected cannot be finished: another one is needed."""
        if any(member != self.id and self._known.is_lost(member) for member in attempt.participants):
            self._abandon()
        else:
            self._give_up(attempt)

    def _give_up(self, attempt: Attempt) -> None:
        """Go on without those that were silent or sent nonsense."""
        if not attempt.failed or attempt.begins_anew():
            return
        for member in attempt.failed:
            if member != self.id:
                self._known.shun(member)
        self._abandon()

    def _abandon(self) -> None:
        self._attempt = None
        self._pace.abandon()

    def _due(self) -> int | None:
        return self._pace.due(self._discovery.wish, self._discovery.is_refused, self._discovery.is_renewal)

    def _propose(self) -> None:
        view = self.view
        bases: dict[MemberId, ViewId | None] = {self.id: None}
        if view is not None:
            line = self._known.line()
            if self._has_waited_to_leave():
                line = [self.id]
            bases = dict.fromkeys(self._known.compatible(line), view.id)
        for member, base in self._known.newcomers().items():
            if member not in bases or base != bases[member]:
                bases[member] = base
        bases[self.id] = None if view is None else view.id
        self._top += 1
        leavers = [member for member in bases if self._known.is_leaving(member)]
        self._pace.proposed()
        collect = self._settings.collect or self._host.orders[self._participant.order].collect
        self._attempt = self.attempt_type(
            self._host, ViewId(self._top, self.id), bases, leavers, self._discovery.wish, collect == "ring"
        )

    def _has_waited_to_leave(self) -> bool:
        return self._leave_at is not None and self._host.now - self._leave_at >= self._settings.leave_wait_ns

    @property
    def is_approaching(self) -> bool:
        """Whether `deadline` may change with the seat's turn: I want to propose, and wait for a boundary between messages."""
        return self._pace.is_approaching

    @property
    def deadline(self) -> int | None:
        """By when `tick` must be called."""
        if self._pace.joined_at is None or self._participant.gone:
            return None
        times = [self._discovery.deadline]
        if self._attempt is not None:
            times.append(self._attempt.deadline)
        else:
            due = self._due()
            times += [] if due is None else [due]
        if self._participant.engaged:
            times.append(self._participant.repeat_at)
        return min([*times, *self._known.next_pardon()])
