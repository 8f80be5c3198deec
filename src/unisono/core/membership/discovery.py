"""Finding each other: greetings by which joins and merges start, and what members tell their coordinator.

A coordinator, like a member without a view, greets the addresses that it knows outside of its view, again and again; so two
parts of a partition find each other without an operator. A member that is greeted answers. A member that does not coordinate passes
strangers' addresses on to the one that does, and answers with its name, so that the two coordinators meet.
"""

from __future__ import annotations

from unisono.core.membership.agreement import Agreement
from unisono.core.membership.beliefs import Beliefs
from unisono.core.membership.contacts import Contacts
from unisono.core.membership.context import Context, Outlived, Refused
from unisono.core.membership.departures import Departures
from unisono.core.membership.participant import Participant
from unisono.core.types import MemberId
from unisono.core.wire.control import Hello, Moved, Notice, Outlive, Refuse

REASON_LETTERS_MAX = 1_000
"""Maximum number of characters shown of a refusal's reason, which comes from outside. All settings can differ at once."""

REFUSAL_PROBES = 3
"""A refusal expires after this many times `refused_probe_ns`."""

REPEATS_MAX = 6
"""Maximum number of times that the wait between two equal notices doubles."""


class Discovery:
    def __init__(
        self, context: Context, participant: Participant, contacts: Contacts, departures: Departures, beliefs: Beliefs
    ) -> None:
        self._context = context
        self._participant = participant
        self._contacts = contacts
        self._departures = departures
        self._beliefs = beliefs
        self.agreement = Agreement(context)
        self._greeters: dict[str, None] = {}  # strangers that greeted me, for my coordinator
        self._noticed: Notice | None = None  # what my coordinator was told last, if it was news
        self._notice_at = 0
        self._repeats = 0  # of that, while there is nothing to be done about it
        self._greet_at = 0
        self.wish = ""
        """The order that a member of the view asked for."""
        self._is_renewal = False  # a member of my view has given up the state that the view lacks, or has it
        self._refusal: Refused | None = None  # by a group that I greeted, and taken by none since
        self._refusal_at = 0
        self._refusals_shown: dict[tuple[str, str], None] = {}  # by whom and why, since a group took me last
        self.turned_away: dict[str, str] = {}
        """Addresses of members that I did not take in, the latest last, each with the reason that I gave it."""
        self._refused_at: dict[str, int] = {}  # by address: when it last refused me; "": any that is not known
        self._order = participant.order

    @property
    def refusal(self) -> Refused | None:
        """Why the group does not take me. It expires unless it is repeated: I ask again every `refused_probe_ns`."""
        limit = REFUSAL_PROBES * self._context.settings.refused_probe_ns
        return None if self._context.now - self._refusal_at > limit else self._refusal

    @property
    def is_refused(self) -> bool:
        return self.refusal is not None

    @property
    def is_renewal(self) -> bool:
        """Whether the view is to be formed anew: the state that it lacks was given up, or is here; or it contradicts itself."""
        return self._is_renewal or self._participant.can_be_primary or self._participant.is_torn

    @property
    def coordinator(self) -> MemberId:
        return self._beliefs.line()[0]

    @property
    def deadline(self) -> int:
        is_telling = self._noticed is not None and not self._participant.is_engaged
        return min(self._greet_at, self._notice_at) if is_telling else self._greet_at

    def greet_soon(self) -> None:
        """Greet in this turn, although it is not time yet."""
        self._greet_at = self._context.now

    def ask_for(self, order: str) -> None:
        """Ask for another order."""
        self.wish = order

    def renew(self) -> None:
        """Have the view formed anew, because it can be primary now."""
        self._is_renewal = True

    def installed(self) -> None:
        """A view was installed: its coordinator has been told nothing yet."""
        self._noticed = None
        self._is_renewal = False
        self.agreement.enter(self._participant.view)
        if len(self._participant.view or ()) > 1:
            self._refusals_shown.clear()
        if self._participant.order != self._order:  # of two wishes the first one wins, or they would take turns
            self._order = self._participant.order
            self.wish = ""

    # Greetings.

    def hello(self, nonce: int | None = None) -> Hello:
        """A greeting, or the answer to the greeting with this nonce."""
        view, limit = self._participant.view, self._context.settings.probe_addresses_max
        return Hello(
            self.agreement.settings,
            self._participant.base,
            self._participant.order,
            () if view is None else view.members,
            self.coordinator,
            self._beliefs.accused(),
            self._contacts.firm_addresses[:limit],
            nonce is not None,
            self._context.nonces.current(self._context.now) if nonce is None else nonce,
        )

    def greet(self) -> None:
        """Greet strangers, now and then: a coordinator all that it knows of, and everybody whom it suspects outside of its view.

        Two that suspect each other keep their groups apart, and coordinators talk only to each other: so suspects must be
        given the chance to refute it.
        """
        context, view = self._context, self._participant.view
        if context.now < self._greet_at:
            return
        self._greet_at = context.now + (
            context.settings.refused_probe_ns if self.is_refused else context.settings.probe_ns
        )
        if self._departures.rests:
            return
        addresses = self._contacts.next_addresses(view)
        if view is None or self.coordinator == context.id:
            for address in addresses:
                context.send(address, self.hello())
            return
        for member in self._beliefs.take_suspects_outside(context.settings.probe_addresses_max):
            context.send(member.address, self.hello())

    def fits(self, sender: MemberId, hello: Hello) -> bool:
        """Answer a greeting; False if its settings are not ours, which a joiner is told."""
        context, view = self._context, self._participant.view
        if hello.answer and not context.nonces.is_recent(hello.nonce, context.now):
            context.refuse("unasked")
            return False
        if (view is None or sender not in view.members) and (unknown := self.agreement.unknown(view)):
            for member in unknown[: context.settings.probe_addresses_max]:
                context.send(member, self.hello())
            return False
        refusal = self.agreement.difference(hello.settings)
        if not refusal and hello.order not in context.orders:
            refusal = f"the joiner's group has switched to {hello.order}, which is not known here."
        if refusal:
            context.refuse("settings")
            self._turn_away(sender, refusal)
            if not hello.answer:
                context.send(sender, Refuse(refusal, self._participant.base, hello.nonce))
            return False
        if not hello.answer and self._is_full_for(sender, hello):
            context.refuse("full")
            reason = f"the group is full: {context.config.members_max} members, as members_max says, can be in a view."
            self._turn_away(sender, reason)
            context.send(sender, Refuse(reason, self._participant.base, hello.nonce))
            return False
        self.agreement.hear(sender, hello, view)
        if not hello.answer:
            context.send(sender, self.hello(hello.nonce))
        if hello.view is not None:
            self._refusal = None
        return True

    def _is_full_for(self, sender: MemberId, hello: Hello) -> bool:
        """Whether a member without a view cannot be taken in; a new life of a member takes the place of the old one."""
        view = self._participant.view
        is_joiner = view is not None and hello.view is None and sender.address not in self._contacts.inside
        return is_joiner and len(view or ()) >= self._context.config.members_max

    def _turn_away(self, sender: MemberId, reason: str) -> None:
        if self._participant.view is None:
            return  # it is I that is not taken in
        self.turned_away.pop(sender.address, None)
        self.turned_away[sender.address] = reason
        if len(self.turned_away) > self._context.settings.probe_addresses_max:
            del self.turned_away[next(iter(self.turned_away))]

    def _show_refusal(self, refusal: Refused) -> None:
        """Show the refusal only to a member that is alone. In a group, the other member is the one refused."""
        view = self._participant.view
        if view is None or len(view) == 1:
            self._show_once(refusal)

    def _show_once(self, refusal: Refused) -> None:
        """Once for each peer and reason."""
        shown, key = self._refusals_shown, (refusal.by.address, refusal.reason)
        if key in shown:
            return
        shown[key] = None
        if len(shown) > self._context.settings.probe_addresses_max:
            del shown[next(iter(shown))]
        self._context.show(refusal)

    def refused(self, sender: MemberId, message: Refuse) -> None:
        """A group does not take me. A member without a view founds none of its own then, or there would be two under one name.

        Anyone can send such a message: each whom I may have greeted is heard now and then, all others together more rarely.
        """
        context, is_known = self._context, self._contacts.knows(sender.address)
        if not context.nonces.is_recent(message.nonce, context.now):
            context.refuse("unasked")
            return
        whose, pause = (
            (sender.address, context.settings.probe_ns) if is_known else ("", context.settings.refused_probe_ns)
        )
        if context.now - self._refused_at.get(whose, -pause) < pause:
            context.refuse("refusal")
            return
        self._refused_at.pop(whose, None)
        self._refused_at[whose] = context.now
        while len(self._refused_at) > context.settings.probe_addresses_max:
            del self._refused_at[next(iter(self._refused_at))]
        refusal = Refused(sender, message.reason[:REASON_LETTERS_MAX])
        self._show_refusal(refusal)
        if self._participant.view is None and message.view is not None and is_known:
            self._refusal, self._refusal_at = refusal, context.now
            self._greet_at = context.now + context.settings.refused_probe_ns

    def outlived(self, sender: MemberId, message: Outlive) -> None:
        """A group knows a later life at my address."""
        context = self._context
        is_mine = message.life == context.id and message.newest > context.id.incarnation
        if not is_mine or not context.nonces.is_recent(message.nonce, context.now):
            context.refuse("unasked")
        elif self._participant.view is None or len(self._participant.view) == 1:
            context.show(Outlived(sender, message.newest))
        else:  # the others of my view know better
            reason = f"it has met a later life of the process at {context.id.address}, so the two groups stay apart."
            self._show_once(Refused(sender, reason))

    def hear(self, sender: MemberId, hello: Hello) -> None:
        """Remember a stranger; if I coordinate, see that the link works both ways, and find who speaks for its view."""
        context, view, contacts = self._context, self._participant.view, self._contacts
        hearsay = hello.addresses[: context.settings.probe_addresses_max]
        contacts.learn((sender.address, *hearsay, *(member.address for member in hello.members)))
        contacts.heard_at(sender.address)
        if view is not None and sender in view.members and (hello.view is None or hello.view <= view.id):
            return
        if view is not None and hello.view is not None and hello.view > view.id:
            for member in hello.members:  # has one of mine moved on? It will answer with the view that it is in
                if member not in (sender, context.id) and member in view.members and self._beliefs.is_active(member):
                    context.send(member, self.hello())
        contact = contacts.hear(sender, hello, context.now)
        if contact is None:
            context.refuse("too many contacts")
            return
        if view is not None and self.coordinator != context.id:
            if len(self._greeters) < context.settings.probe_addresses_max:
                self._greeters[sender.address] = None
            return
        if not contact.answered and (
            contact.greeted_at < 0 or context.now - contact.greeted_at >= context.settings.retry_ns
        ):
            contact.greeted_at = context.now
            context.send(sender, self.hello())
        if hello.coordinator not in (sender, context.id) and hello.coordinator not in contacts.contacts:
            context.send(hello.coordinator, self.hello())

    # Notices.

    def tell(self) -> None:
        """Tell the coordinator whom I suspect, who greeted me and what I want, until it is so."""
        context, view, known = self._context, self._participant.view, self._beliefs
        if view is None or self._participant.is_engaged:
            return
        wish = self.wish if self.wish != self._participant.order else ""
        leaving = self._participant.is_leaving
        suspects = tuple(sorted(known.suspects))[: context.config.members_max]
        grounds = self._departures.told(suspects)[: context.config.members_max]
        renew = self._participant.can_be_primary or self._participant.is_torn
        notice = Notice(view.id, suspects, tuple(self._greeters), leaving, wish, grounds, renew)
        is_news = bool(notice.suspects or grounds or notice.addresses or leaving or wish or renew)
        if (notice == self._noticed and context.now < self._notice_at) or (not is_news and self._noticed is None):
            return
        # A member outside may be suspected for ever: that is said again, because it may be lost, but ever more rarely.
        accused = {*suspects, *(ground.member for ground in grounds)}
        is_settled = notice == self._noticed and not (leaving or wish or accused.intersection(view.members))
        self._repeats = min(self._repeats + 1, REPEATS_MAX) if is_settled else 0
        self._noticed = notice if is_news else None
        self._notice_at = context.now + (context.settings.probe_ns << self._repeats)
        self._greeters = {}
        # A member that leaves tells everyone, so that all agree who is next in line.
        for member in view.members if leaving else (self.coordinator,):
            if member != context.id and known.is_active(member):
                context.send(member, notice)

    def noticed(self, sender: MemberId, notice: Notice) -> None:
        """A member of my view told me something."""
        view = self._participant.view
        if view is not None and notice.view > view.id:  # it lists me, and I have left it behind
            self._context.send(sender, Moved(notice.view, view.id))
            return
        if view is None or notice.view != view.id or sender not in view.members:
            self._context.send(sender, self.hello())  # it does not know yet that I am elsewhere
            return
        addresses = notice.addresses[: self._context.settings.probe_addresses_max]
        self._contacts.learn(addresses)
        for address in addresses:
            if all(contact.address != address for contact in self._contacts.contacts):
                self._context.send(address, self.hello())
        self._beliefs.hear(sender, notice)
        self._departures.hear(sender, notice.grounds, view)
        self._is_renewal = self._is_renewal or notice.renew
        if notice.order in self._context.orders:
            self.ask_for(notice.order)
