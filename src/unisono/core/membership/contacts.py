"""Whom a member knows outside of its view: addresses to greet, and members that have answered.

A **contact** is a member of another view, or of none, that greeted. It is good for a merge when it has answered a greeting of
ours, which proves that the link works both ways, and as long as it is heard now and then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from unisono.core.membership.settings import MembershipSettings
from unisono.core.types import MemberId, View, ViewId
from unisono.core.wire.control import Hello
from unisono.core.wire.frame import ADDRESS_BYTES_MAX

FIRM = 0
"""An address from the operator or from a view. It is greeted for ever."""
HEARSAY_GREETINGS = 16
"""An address that others spoke of is forgotten after this many greetings without a word from there."""


@dataclass(slots=True)
class Contact:
    """What one greeting after another said."""

    hello: Hello
    heard_at: int
    since: int  # when it became good for a merge
    greeted_at: int = -1  # when it was last greeted in return
    answered: bool = False


class Contacts:
    def __init__(self, member: MemberId, settings: MembershipSettings) -> None:
        self._id = member
        self._settings = settings
        # In the order in which they are greeted: how many greetings an address is still worth, or FIRM.
        self._addresses: dict[str, int] = {}
        self._newest: dict[str, int] = {}  # by address: the highest incarnation heard of
        self.inside: frozenset[str] = frozenset()  # addresses in the view
        self.contacts: dict[MemberId, Contact] = {}
        self.meet(member)

    # Incarnations: of one address only the newest counts.

    def meet(self, member: MemberId) -> bool:
        """A member speaks or is spoken of; False if a newer life of the process at its address is known."""
        newest = self._newest.get(member.address, -1)
        if member.incarnation < newest:
            return False
        if member.incarnation > newest:
            if newest < 0 and len(self._newest) >= self._settings.addresses_max:
                self._forget_a_life()
            self._newest[member.address] = member.incarnation
            for old in [one for one in self.contacts if one.address == member.address]:
                del self.contacts[old]
        return True

    def _forget_a_life(self) -> None:
        """Forget the oldest address outside of the view. If an old life speaks from there again, it will not answer a ballot."""
        oldest = next((address for address in self._newest if address not in self.inside), None)
        if oldest is not None:
            del self._newest[oldest]

    def is_stale(self, member: MemberId) -> bool:
        return member.incarnation < self.newest(member.address)

    def newest(self, address: str) -> int:
        """The highest incarnation heard of at an address; -1 if there is none."""
        return self._newest.get(address, -1)

    # Addresses.

    def learn(self, addresses: Iterable[str], is_firm: bool = False) -> None:
        """Remember where members may be, for good or, of hearsay, for some greetings.

        At the limit hearsay is not taken in, and gives way to what is firm.
        """
        for address in addresses:
            if address == self._id.address or not 0 < len(address.encode()) <= ADDRESS_BYTES_MAX:
                continue
            if address not in self._addresses and len(self._addresses) >= self._settings.addresses_max:
                hearsay = (
                    next((one for one, left in self._addresses.items() if left != FIRM), None) if is_firm else None
                )
                if hearsay is None:
                    continue
                del self._addresses[hearsay]
            if is_firm or address not in self._addresses:
                self._addresses[address] = FIRM if is_firm else HEARSAY_GREETINGS

    def doubt(self, addresses: Iterable[str]) -> None:
        """The operator's names stand for these no longer: they are hearsay from now on."""
        for address in addresses:
            if self._addresses.get(address) == FIRM and address not in self.inside:
                self._addresses[address] = HEARSAY_GREETINGS

    def heard_at(self, address: str) -> None:
        """A member speaks from this address: it is worth further greetings."""
        if self._addresses.get(address, FIRM) != FIRM:
            self._addresses[address] = HEARSAY_GREETINGS

    def knows(self, address: str) -> bool:
        return address in self._addresses

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    @property
    def firm_addresses(self) -> tuple[str, ...]:
        """Those that others are told of: if hearsay were passed on, two members could keep it up for ever."""
        return tuple(address for address, left in self._addresses.items() if left == FIRM)

    def next_addresses(self, view: View | None) -> list[str]:
        """Whom to greet now if I coordinate: addresses outside of the view, in turn. Hearsay becomes a little older by it.

        Where firm addresses wait too, hearsay gets half of the places at most: a stranger can make any amount of it.
        """
        inside = {self._id.address} | ({member.address for member in view.members} if view is not None else set())
        limit = self._settings.probe_addresses_max
        outside = [one for one in self._addresses if one not in inside]
        firm = [one for one in outside if self._addresses[one] == FIRM][:limit]
        hearsay = [one for one in outside if self._addresses[one] != FIRM][: max(limit - len(firm), limit // 2)]
        chosen = firm[: limit - len(hearsay)] + hearsay
        for address in chosen:  # to the end of the line
            left = self._addresses.pop(address)
            if left != 1:
                self._addresses[address] = left if left == FIRM else left - 1
        return chosen

    # Greetings.

    def hear(self, sender: MemberId, hello: Hello, now: int) -> Contact | None:
        """Take a greeting in; None if there are as many contacts as there may be."""
        contact = self.contacts.get(sender)
        if contact is None and len(self.contacts) >= self._settings.addresses_max:
            self._drop_old(now)
            if len(self.contacts) >= self._settings.addresses_max:
                return None
        if contact is None or now - contact.heard_at > self._settings.contact_ns:
            contact = self.contacts[sender] = Contact(hello, now, now)
        newer = hello.view is not None and (contact.hello.view is None or hello.view >= contact.hello.view)
        if newer or hello.view == contact.hello.view:  # views of one life rise: anything else is an old greeting
            contact.hello = hello
        contact.heard_at = now
        if hello.answer and not contact.answered:
            contact.answered = True
            contact.since = now
        return contact

    def _drop_old(self, now: int) -> None:
        limit = self._settings.contact_ns
        self.contacts = {member: one for member, one in self.contacts.items() if now - one.heard_at <= limit}

    def forget(self, member: MemberId) -> None:
        self.contacts.pop(member, None)

    def forget_view_of(self, member: MemberId) -> None:
        """A member is not in the view that was thought: what speaks for that view is out of date."""
        for one in [one for one, contact in self.contacts.items() if member == one or member in contact.hello.members]:
            self.forget(one)

    def good(self, now: int) -> list[tuple[MemberId, Contact]]:
        """Contacts that answered, were heard lately and are not stale, by member: a merge can take them in."""
        limit = self._settings.contact_ns
        return [
            (member, contact)
            for member, contact in sorted(self.contacts.items(), key=lambda item: item[0])
            if contact.answered and now - contact.heard_at <= limit and not self.is_stale(member)
        ]

    def installed(self, view: View) -> None:
        """The members of the view are no strangers any more; all their addresses are worth remembering."""
        for member in view.members:
            self.meet(member)
        self.inside = frozenset(member.address for member in view.members)
        for member in view.members:
            self.contacts.pop(member, None)
            self.learn((member.address,), is_firm=True)

    def view_of(self, member: MemberId) -> ViewId | None:
        contact = self.contacts.get(member)
        return None if contact is None else contact.hello.view
