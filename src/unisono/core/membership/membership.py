"""Membership in ballots, with virtual synchrony: who is in the group, agreed by its members.

One procedure serves joins, leaves, crashes and merges. A **ballot** is the id of the view that it proposes, (number, proposer); a
member's ballots never repeat, and a restarted process is another member, so a ballot has one proposer and one charter.

1. The lowest active member of a view proposes; unless a failure forces it, at a boundary between messages (`Ordering.approach`).
   Participants **promise** the ballot (refuse lower ones from then on), **block** their view, and **answer** with the report
   of their view and the cut that they closed it with, if they did.
2. The proposer forms a part for each view and closed cut, merges the reports of members that no cut covers, fetches what a member
   lacks, and sends each its cut with exactly the packets that it misses (`ballot`).
3. Participants **close**, once a view, and **confirm**.
4. When *all* have confirmed, the proposer **installs** and says so. A participant that waits repeats its confirmation until a
   member that has the view answers, or until it starts a higher ballot. If a participant is suspected, silent or elsewhere, the
   proposer starts a higher ballot.

What never breaks (docs/properties.md lists the properties):

I1  A member reports once a view and takes nothing of that view in afterwards. So every proposer gets the same report of it.
I2  A member closes a view once, with a cut that counted its report; a cut's name stands for one cut. A later ballot brings
    it the same cut or none, and a payload is void for all members that close with one cut or for none of them (`ballot`).
    So members that closed a view with the same cut delivered the same set (P14, P5, P9).
I3  A view is installed only if every participant had confirmed its ballot, that is, closed as the charter says. A part
    of the charter comes from one view with one cut. So every member that ever installs it names the same transitional set, and
    everyone in that set has closed with that cut, whether it gets to installing or not (P15, P16).
I4  A member installs only what it confirmed itself and has not left behind; it forgets its confirmations when it installs. What it
    answered to a ballot before that is void: the ballot's cut names another view than the one it is in, and is refused.
    A member that leaves before it has a view is gone at once, and forgets its confirmations and its own ballot. The others
    treat it as crashed; if it installed a view after that, it would acknowledge what no member there takes in any more (P17).
I5  A member promises only ballots whose number is above its view's and above all that it confirmed; so numbers rise (P12),
    also along the chain of primaries.
I6  One ballot has one charter, and participants refuse one with two lives of a process (P11, P12).

A member that confirmed and never saw the install. Story: 1. P, A and B confirm ballot b for V'; P installs and casts m in V'.
2. The install is lost at B, and P crashes or is cut off. 3. B starts a ballot from V with A. If A has V', it
answers *Moved*: a member is in V', which proves that all confirmed it, so B installs V' late, before anything else, and
reports that it holds nothing of V'; m reaches it through the cut. Other proofs are a greeting from V', or a proposal that takes B
to be in V'. 4. If no member that B reaches has V', B goes on from V with the members that closed with the same cut. V' then has
members that never install it; P's transitional set is still true (I3), and nothing that P did in V' was promised to anyone but
members of V' that came along with P further. P may take B for alive, even for the next proposer, because B greets it: so a member
that is greeted from a view that it has left behind, or told of one, says *Moved*, and that view goes on without it.

A partition in mid-flush can close one view with two cuts. Parts keep them apart, in the merge too: each part is its own
transitional set, and a member that has not closed joins only a part whose cut counted its report.

Safety needs no clock and no failure detector. Liveness needs that for a while messages arrive in `answer_wait_ns` and
suspicions are right: then the lowest coordinator's ballot, or the first after a back-off, is finished.

States and steps of participant and ballot: `states`. Names of times and limits: `settings`. Primary policy: `primary`. Who finds
whom: `discovery`. How answers travel, by star or by ring: `collection`, `ring`. When a member proposes: `timing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from unisono.core.config import Config
from unisono.core.departure import Cause
from unisono.core.errors import Misuse
from unisono.core.membership.ballot import Ballot
from unisono.core.membership.beliefs import Beliefs
from unisono.core.membership.collection import Star, TokenRound
from unisono.core.membership.contacts import Contacts
from unisono.core.membership.context import Context, Engine, Evicted, Installer, MembershipOut, Refused, Waiting
from unisono.core.membership.departures import Departures
from unisono.core.membership.discovery import Discovery
from unisono.core.membership.explain import explain_change, explain_read_only, explain_standing
from unisono.core.membership.participant import LIES_MAX, Participant
from unisono.core.membership.primary import restore
from unisono.core.membership.ring import Ring
from unisono.core.membership.settings import MembershipSettings
from unisono.core.membership.states import BallotState, ParticipantState, ViewChange
from unisono.core.membership.timing import ProposalTiming
from unisono.core.ordering import AnyOrdering
from unisono.core.types import MemberId, View, ViewId
from unisono.core.wire import Charter, ClosingCut, Codec, ControlCodec, HeldState
from unisono.core.wire.control import (
    CUT,
    DECREE,
    ROLL,
    Chunk,
    Confirm,
    Control,
    Dismiss,
    Fetch,
    Hello,
    Install,
    Moved,
    Notice,
    Outbid,
    Outlive,
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

    ballot_type: type[Ballot] = Ballot
    participant_type: type[Participant] = Participant

    def __init__(
        self,
        member: MemberId,
        engine: Engine,
        installer: Installer,
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
        self._context = Context(member, engine, installer, orders, order, config, self._settings, secret)
        self._contacts = Contacts(member, self._settings)
        self._ring = Ring(self._context)
        self._departures = Departures(self._context, self._contacts)
        standing = restore(self._context.codec, record)
        self._participant = self.participant_type(self._context, self._ring, self._departures, standing)
        self._beliefs = Beliefs(self._context, self._participant, self._contacts, self._departures)
        self._discovery = Discovery(self._context, self._participant, self._contacts, self._departures, self._beliefs)
        self._timing = ProposalTiming(member, self._settings, self._participant, self._beliefs)
        self._ballot: Ballot | None = None
        self._leave_at: int | None = None  # when leave() was called
        self._renewed: tuple[tuple[MemberId, ...], tuple[str, ...]] | None = None  # a view, and the peers known then
        self._top = self._participant.promised.number  # the highest ballot number heard of

    # Questions.

    @property
    def now(self) -> int:
        """The time of this turn."""
        return self._context.now

    @property
    def view(self) -> View | None:
        return self._participant.view

    @property
    def order(self) -> str:
        """The order of the installed view; before there is one, as configured."""
        return self._participant.order

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
        return self._participant.is_gone

    @property
    def state(self) -> ParticipantState:
        """How far this member is with the change of its view."""
        return self._participant.state

    @property
    def is_engaged(self) -> bool:
        """Whether it has answered a ballot, and installed no view since."""
        return self._participant.is_engaged

    @property
    def is_proposing(self) -> bool:
        """Whether it has a ballot of its own."""
        return self._ballot is not None

    @property
    def is_gathering(self) -> bool:
        """Whether it has met newcomers, and is about to propose a view with them."""
        return self._timing.is_gathering and not self.is_engaged and not self.is_proposing

    @property
    def promised(self) -> ViewId:
        """The highest ballot that was answered."""
        return self._participant.promised

    @property
    def closed(self) -> ClosingCut | None:
        """The cut that closed the view, if it is closed."""
        return self._participant.closed

    @property
    def uninstalled(self) -> ViewId | None:
        """The last ballot that was confirmed here and not installed."""
        return self._participant.latest

    @property
    def holds(self) -> HeldState | None:
        """The state of a primary that the application has."""
        return self._participant.holds

    @property
    def suspects(self) -> tuple[MemberId, ...]:
        """Whom this member's failure detector suspects."""
        return self._beliefs.suspects

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses that it knows of."""
        return self._contacts.addresses

    @property
    def refusal(self) -> Refused | None:
        """Why a group does not take this member in."""
        return self._discovery.refusal

    def greeting(self, nonce: int | None = None) -> Hello:
        """What it would greet with now; with a nonce, its answer to the greeting that had that one."""
        return self._discovery.hello(nonce)

    @property
    def refused(self) -> dict[str, int]:
        """What was dropped, by reason."""
        return self._context.refused

    @property
    def turned_away(self) -> Mapping[str, str]:
        """Addresses of members that are not taken in, the latest last, each with the reason that it was given."""
        return self._discovery.turned_away

    @property
    def is_lied_to(self) -> bool:
        """Whether a report, a packet or a cut came here that no correct member sends."""
        return bool(self._participant.nonsense) or not self._context.refused.keys().isdisjoint(
            ("report", "packets", "cut")
        )

    @property
    def view_change(self) -> ViewChange:
        """All of this at once: how far this member is with the change of its view."""
        p, ballot, timing = self._participant, self._ballot, self._timing
        change = ViewChange(
            p.state,
            p.base,
            p.promised,
            None if p.closed is None else p.closed.id,
            p.latest,
            self._beliefs.suspects,
            p.is_leaving,
            timing.is_gathering,
            timing.is_approaching,
            self.is_primary,
            None,
        )
        if ballot is None:
            return change
        bases = tuple(dict.fromkeys((p.base, *ballot.bases.values())))
        return change._replace(
            ballot=ballot.state, awaited=ballot.awaited(), bases=bases, is_switching=ballot.switch not in ("", p.order)
        )

    @property
    def coordinator(self) -> MemberId:
        """Who proposes the next view, as far as I know."""
        return self._beliefs.line()[0]

    def explain(self) -> str | None:
        """Why a view change has not finished, in one sentence; None if none is under way."""
        return explain_change(self._context, self._participant, self._ballot)

    def waiting(self) -> list[Waiting]:
        """All that waits here, beside messages."""
        met = len(self._contacts.good(self._context.now))
        since = (self._timing.joined_at, self._leave_at)
        said = explain_standing(self._context, self._participant, self._departures, *since, met, self.refusal)
        change = self.explain()
        return said if change is None else [Waiting(("view change",), change.rstrip(".")), *said]

    def explain_read_only(self) -> str:
        """Why the installed view is not primary, without a full stop."""
        return explain_read_only(self._context, self._participant)

    @property
    def stalled(self) -> bool:
        """Whether a view change is under way and has not moved for as long as a participant waits."""
        p = self._participant
        since = self._ballot.since if self._ballot is not None else p.progress_at
        return p.is_engaged and self._context.now - since >= self._settings.proposal_wait_ns

    # Inputs.

    def join(self, seeds: Iterable[str] = (), expects_more: bool = False) -> None:
        """Look for the group at these addresses; without any, and if no more are to come, found one."""
        seeds = tuple(seeds)
        if self._timing.joined_at is None:
            self._timing.join(self._context.now)
            self.greet_soon()
        self._timing.seek(expects_more or any(seed != self.id.address for seed in seeds))
        self.heard_of(seeds)

    def greet_soon(self) -> None:
        """Greet what addresses are known in this turn, although it is not time yet."""
        self._discovery.greet_soon()

    def use_codecs(self, control: ControlCodec, by_order: dict[str, Codec]) -> None:
        """Share codecs with other members that use the same orders and settings."""
        self._context.use_codecs(control, by_order)

    def doubt(self, addresses: Iterable[str]) -> None:
        """Addresses that the operator's names stood for, and do not any more."""
        self._contacts.doubt(addresses)

    def name_peers(self, peers: Sequence[str]) -> None:
        """Whom the first primary needs a majority of, now that more of their addresses are known, or other ones.

        If the view that this member coordinates has that majority after all, it is formed anew.
        """
        self._context.name_peers(peers)
        view, p = self.view, self._participant
        if view is None or self.is_primary or p.standing.last is not None or self.coordinator != self.id:
            return
        present = {member.address for member in view.members}
        tried = (view.members, self._context.peers)
        if 2 * len(present.intersection(peers)) > len(peers) and tried != self._renewed:
            self._renewed = tried  # once: something else may keep it from being primary
            self._discovery.renew()

    def leave(self) -> None:
        """Leave when everything that this member cast is delivered."""
        if self._leave_at is None:
            self._leave_at = self._context.now
            if self.view is None and not self.is_gone:
                self._ballot = None
            self._participant.leave()

    def switch(self, order: str) -> None:
        """Ask for another order; it takes effect with the next view."""
        if order not in self._context.orders:
            raise Misuse(f"there is no order {order!r}: choose among {', '.join(self._context.orders)}.")
        self._discovery.ask_for(order)

    def hold(self, state: HeldState | None) -> None:
        """The application has this state of a primary; None: it has none."""
        self._participant.hold(state)

    def give_up(self, state: ViewId) -> None:
        """Give up the state of the primary that the view lacks, by its name; the next view does without it."""
        self._participant.give_up(state)

    def renew(self) -> None:
        """What I was sent in this view contradicts itself, and I cannot tell who lied: form the view anew."""
        self._participant.doubt_view()

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
            self._beliefs.suspect(member)
            self._departures.note(member, cause, lasted_ns)

    def evict(self, member: MemberId, lasted_ns: int) -> None:
        """A member of the view has held this member's window shut for that long: it must go."""
        self._departures.evict(member, lasted_ns)

    def drained(self, is_drained: bool) -> None:
        """Whether the application has room again: one that was evicted comes back no sooner."""
        self._departures.drained(is_drained)

    def unsuspect(self, member: MemberId) -> None:
        self._beliefs.unsuspect(member)
        self._departures.forgive(member)

    def receive(self, sender: MemberId, message: Control) -> None:
        """Take a control message. Those of an older life of the process at an address are dropped, and it is told so."""
        if not self._contacts.meet(sender) or sender == self.id:
            self._context.refuse("stale incarnation")
            if isinstance(message, Hello) and not message.answer and sender.address != self.id.address:
                newest = self._contacts.newest(sender.address)
                self._context.send(sender, Outlive(sender, newest, message.nonce))
            return
        if self._timing.joined_at is None:
            return
        if self._leaps(message):
            self._context.refuse("number")
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
        self._context.tick(now)
        self._work_off()

    def drain(self) -> MembershipOut:
        """End the turn: what is to be persisted, sent and shown, in this order."""
        self._plan()
        self.observe()
        return self._context.take_out()

    # Messages.

    def _work_off(self) -> None:
        """Deliver what I sent to myself."""
        while batch := self._context.take_loop():
            for message in batch:
                self._dispatch(self.id, message)

    def _dispatch(self, sender: MemberId, message: Control) -> None:
        if self._departures.turns_away(sender, message):
            return
        if self.is_gone and not isinstance(message, Confirm):
            return  # only late questions are answered: a member that is gone does not pose as a newcomer
        handle = self.handlers.get(type(message))
        if handle is not None:
            handle(self, sender, message)

    def _ballot_of(self, message: Confirm | Chunk | Pull | Outbid | Moved) -> Ballot | None:
        """My ballot, if the message is about it."""
        ballot = self._ballot
        return ballot if ballot is not None and message.ballot == ballot.id else None

    def _greeted(self, sender: MemberId, message: Hello) -> None:
        if self._discovery.fits(sender, message):
            self._top = max(self._top, 0 if message.view is None else message.view.number)
            self._notice_view(sender, message.view)
            self._deny(sender, message)
            self._discovery.hear(sender, message)

    def _confirmed(self, sender: MemberId, message: Confirm) -> None:
        ballot = self._ballot_of(message)
        if ballot is not None:
            ballot.confirm(sender)
            self._finish(ballot)
        else:
            self._remind(sender, message.ballot)

    def _take_chunk(self, sender: MemberId, message: Chunk) -> None:
        if message.topic == CUT:
            self._participant.flush(sender, message)
            is_liar = self._participant.nonsense.get(sender, 0) >= LIES_MAX and sender != self.id
            if is_liar and not self._beliefs.is_mistrusted(sender):
                self._beliefs.mistrust(sender)
                self._forgo(sender)
        elif message.topic in (ROLL, DECREE):
            self._take_token(sender, message)
        else:
            ballot = self._ballot_of(message)
            if ballot is not None:
                ballot.take_chunk(sender, message)
                self._give_up(ballot)

    def _pulled(self, sender: MemberId, message: Pull) -> None:
        if message.topic != CUT:
            self._participant.pull(sender, message)
        else:
            ballot = self._ballot_of(message)
            if ballot is not None:
                ballot.pull(sender, message)

    def _fetched(self, sender: MemberId, message: Fetch) -> None:
        self._participant.fetch(sender, message)

    def _told_to_install(self, sender: MemberId, message: Install) -> None:
        if message.ballot == self._participant.latest:
            self._install(message.ballot)

    def _outbid(self, sender: MemberId, message: Outbid) -> None:
        self._top = max(self._top, message.promised.number)
        if self._ballot_of(message) is not None:
            self._ballot = None
            self._timing.outbid(self._context.now)

    def _noticed(self, sender: MemberId, message: Notice) -> None:
        self._notice_view(sender, message.view)
        self._discovery.noticed(sender, message)

    def _dismissed(self, sender: MemberId, message: Dismiss) -> None:
        """The others have gone on without me: I go on alone, and rest."""
        view = self.view
        if view is None or (sender in view.members and view.id != message.base):
            return  # of an earlier time: since then we have shared a view
        is_news = self._departures.dismissed(message)
        if view.id == message.base:
            for member in view.members:
                if member != self.id:
                    self._part_with(member)
        if is_news:
            self._context.show(Evicted(message.by, message.lasted_ns, message.rest_ns))

    def _outlived(self, sender: MemberId, message: Outlive) -> None:
        self._discovery.outlived(sender, message)

    def _refused(self, sender: MemberId, message: Refuse) -> None:
        self._discovery.refused(sender, message)
        if self._discovery.is_refused and self._settings.stops_when_refused:
            self._timing.stop()

    def _take_token(self, sender: MemberId, chunk: Chunk) -> None:
        """A token of the ring comes to me, or back to me."""
        p, ballot = self._participant, self._ballot_of(chunk)
        if ballot is not None:
            token = self._ring.take(sender, chunk)
            if token is not None:
                ballot.come_around(sender, token)
                self._give_up(ballot)
                self._finish(ballot)
        elif chunk.ballot.proposer != self.id and not p.has_seen(chunk):
            settings = self._settings
            if chunk.total > settings.chunk_bytes_max * settings.chunks_max and not self._knows(
                sender, chunk.ballot.proposer
            ):
                self._context.refuse("token of strangers")
                return
            token = self._ring.take(sender, chunk)
            if isinstance(token, RollCall):
                proposal = p.called(sender, chunk, token)
                if proposal is not None:
                    self._proposed(chunk.ballot.proposer, proposal, token)
            elif token is not None:
                p.decree(sender, chunk.ballot, token)

    def _knows(self, *members: MemberId) -> bool:
        """Whether one of these is in my view, or has greeted me from another one."""
        mine = () if self.view is None else self.view.members
        return any(member in mine or member in self._contacts.contacts for member in members)

    def _proposed(self, sender: MemberId, message: Propose, roll: RollCall | None = None) -> None:
        if self._beliefs.is_mistrusted(sender):
            self._context.refuse("proposal")
            return
        self._top = max(self._top, message.ballot.number)
        self._contacts.learn(member.address for member in message.participants)
        p, before = self._participant, self._participant.base
        if p.propose(sender, message, roll):
            self._timing.promised()
            if self._ballot is not None and self._ballot.id != message.ballot:
                self._ballot = None  # outbid: take part in the other one
        if p.base != before:
            self._entered()

    def _moved(self, sender: MemberId, message: Moved) -> None:
        """A member is in another view than was thought: the next ballot does without it, or takes it from there."""
        if message.view is not None:
            self._top = max(self._top, message.view.number)
        self._notice_view(sender, message.view)
        if self._ballot_of(message) is not None and sender != self.id:
            if self.view is not None and sender in self.view.members:
                self._part_with(sender)
            self._contacts.forget_view_of(sender)
            self._abandon()
            return
        view = self.view
        is_mine = view is not None and message.ballot == view.id and sender in view.members
        if is_mine and message.view != message.ballot:
            self._part_with(sender)

    def _deny(self, sender: MemberId, hello: Hello) -> None:
        """Tell a member of a higher view that lists me that I am elsewhere.

        All had confirmed that view, so I would be in it, had I not left it behind.
        """
        view = self.view
        if view is not None and hello.view is not None and hello.view > view.id and self.id in hello.members:
            self._context.send(sender, Moved(hello.view, view.id))

    def _remind(self, sender: MemberId, ballot: ViewId) -> None:
        """Answer a member that waits for an install: it is mine too, or I have moved on."""
        p = self._participant
        if p.charter is not None and p.charter.id == ballot:
            self._context.send(sender, Install(ballot))
        elif p.view is not None and p.view.id > ballot:
            self._context.send(sender, Moved(ballot, p.view.id))

    def _finish(self, ballot: Ballot) -> None:
        if ballot.state is not BallotState.DONE:
            return
        self._install(ballot.id)
        for member in ballot.participants:
            if member != self.id:
                self._context.send(member, Install(ballot.id))

    def _install(self, ballot: ViewId) -> None:
        self._participant.install(ballot)
        self._entered()

    def _entered(self) -> None:
        """A view was installed: what was known about the old one is settled."""
        self._ballot = None
        view = self.view
        if self._participant.is_gone or view is None:
            return
        self._top = max(self._top, view.id.number)
        self._contacts.installed(view)
        self._beliefs.installed(view)
        self._timing.installed()
        self._discovery.installed()

    def _notice_view(self, member: MemberId, theirs: ViewId | None) -> None:
        """A member is in that view, which I may have confirmed, or which may be without me."""
        if self._participant.knows_installed(theirs):
            self._entered()
        self._participant.notice(member, theirs)
        view = self.view
        if view is not None and member in view.members and theirs is not None and theirs > view.id:
            self._part_with(member)

    def _part_with(self, member: MemberId) -> None:
        """A member of my view is in another one."""
        self._beliefs.depart(member)
        self._departures.note(member, Cause.APART)

    def _forgo(self, member: MemberId) -> None:
        """A member is shunned: the next view does without it."""
        self._departures.note(member, Cause.UNANSWERING)
        self._contacts.forget(member)

    handlers: ClassVar[Mapping[type, Callable[[Any, MemberId, Any], None]]] = {
        Hello: _greeted,
        Refuse: _refused,
        Outlive: _outlived,
        Notice: _noticed,
        Propose: _proposed,
        Chunk: _take_chunk,
        Pull: _pulled,
        Fetch: _fetched,
        Confirm: _confirmed,
        Install: _told_to_install,
        Outbid: _outbid,
        Moved: _moved,
        Dismiss: _dismissed,
    }
    """What takes each control message. What is none of them is ignored."""

    # Planning.

    def _plan(self) -> None:
        """Start, repeat or give up whatever is due. Called once a turn."""
        p, now = self._participant, self._context.now
        if self._timing.joined_at is None or p.is_gone:
            return
        self._discovery.greet()
        self._discovery.tell()
        for _ in range(len(self.view or ()) + len(self._contacts.contacts) + 2):
            if self._ballot is not None:
                self._ballot.tick()
                self._watch(self._ballot)
            if self._ballot is None:
                self.observe()
                due = self._timing.due
                if due is None or due > now:
                    break
                self._propose()
            self._work_off()
            if self._ballot is not None and not self._ballot.failed:
                break
        p.tick()
        self._work_off()

    def _watch(self, ballot: Ballot) -> None:
        """A ballot whose participant is suspected cannot be finished: another one is needed."""
        if any(member != self.id and self._beliefs.is_lost(member) for member in ballot.participants):
            self._abandon()
        else:
            self._give_up(ballot)

    def _give_up(self, ballot: Ballot) -> None:
        """Go on without those that were silent or sent nonsense."""
        if not ballot.failed or ballot.begins_anew():
            return
        for member in ballot.failed:
            if member != self.id:
                self._beliefs.shun(member)
                self._forgo(member)
        self._abandon()

    def _abandon(self) -> None:
        self._ballot = None
        self._timing.abandoned(self._context.now)

    def observe(self) -> None:
        """See when I am to propose, if I am. A driver whose engine has had its turn since `drain` calls it before `deadline`.

        Where all of a view are well, its change waits for a boundary between messages. A crash may block the way there, and
        a member that sleeps gives no way: so it waits for `takeover_ns` at most, as the next in line does for the first.
        """
        p, now, timing, discovery = self._participant, self._context.now, self._timing, self._discovery
        if timing.joined_at is None or p.is_gone or self._ballot is not None:
            return
        timing.observe(now, discovery.wish, discovery.is_refused, discovery.is_renewal)
        at = timing.due
        if at is not None and at <= now and p.view is not None and not p.is_engaged and not self._beliefs.is_broken():
            timing.approach(now, self._context.engine.approach(True))
        elif timing.is_approaching:
            timing.stop_approaching()
            self._context.engine.approach(False)

    def _propose(self) -> None:
        view = self.view
        bases: dict[MemberId, ViewId | None] = {self.id: None}
        if view is not None:
            line = self._beliefs.line()
            if self._has_waited_to_leave():
                line = [self.id]
            bases = dict.fromkeys(self._beliefs.compatible(line), view.id)
        for member, base in self._beliefs.newcomers().items():
            if member not in bases or base != bases[member]:
                bases[member] = base
        bases[self.id] = None if view is None else view.id
        self._top += 1
        leavers = [member for member in bases if self._beliefs.is_leaving(member)]
        self._timing.proposed()
        ballot = ViewId(self._top, self.id)
        self._ballot = self.ballot_type(
            self._context,
            self._departures,
            self._collection(ballot, bases),
            ballot,
            bases,
            leavers,
            self._discovery.wish,
        )

    def _collection(self, ballot: ViewId, bases: Mapping[MemberId, ViewId | None]) -> Star:
        collect = self._settings.collect or self._context.orders[self._participant.order].collect
        if collect == "ring" and len(bases) > 1:
            return TokenRound(self._context, self._ring, ballot, bases)
        return Star()

    def _has_waited_to_leave(self) -> bool:
        return self._leave_at is not None and self._context.now - self._leave_at >= self._settings.leave_wait_ns

    @property
    def is_approaching(self) -> bool:
        """Whether `deadline` may change with the engine's turn: I want to propose, and wait for a boundary between messages."""
        return self._timing.is_approaching

    @property
    def deadline(self) -> int | None:
        """By when `tick` must be called, as far as `drain` and `observe` have seen."""
        if self._timing.joined_at is None or self._participant.is_gone:
            return None
        times = [self._discovery.deadline]
        if self._ballot is not None:
            times.append(self._ballot.deadline)
        elif self._timing.due is not None:
            times.append(self._timing.due)
        if self._participant.is_engaged:
            times.append(self._participant.repeat_at)
        return min([*times, *self._beliefs.next_pardon()])
