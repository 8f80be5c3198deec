"""A directory of names that needs no server. Paper 002, section 2.

Every machine has a name **manager**, and all managers hear each other (on one well-known address). To create a group, the local
manager hashes its name into the pool of addresses and asks all managers, `probes` times because messages can be lost, whether
anyone objects. If there is no objection, the manager announces that the address belongs to the name. Managers defend what is
taken. A table of **permanent** groups, the same at all managers, needs no asking.

| message  | meaning                                                                            |
|----------|------------------------------------------------------------------------------------|
| Probe    | I would give this address to this name; does anyone object?                          |
| Taken    | I object: the address, or the name, is taken, or pending and before yours             |
| Announce | I have given this address to this name (at once, and again every `announce_ns`)       |
| Release  | it is free again                                                                      |
| Query    | who knows this name?                                                                  |

D1  a manager gives an address away only after `probes` probes and as many silent intervals.
D2  of two pending claims to one address, or of one name, that of the lower manager goes on; the other takes the next address,
    or is refused. Both know it from the other's probe, so one of many messages must arrive, not a certain one.
D3  if all those messages are lost, or the network was cut, two managers own the same. The first announcement that gets through
    shows it, and the lower manager keeps it: the other one's user is told (`Lost`).
D4  at most one entry for each address, and nothing else is remembered of others: tables are bounded by the pool.

What closes the paper's gaps: managers answer for pending claims too (D2), or two creators at once both hear nothing. What is known
of others expires `expiry_ns` after its owner last said so, so a manager that died does not keep its names for ever; a manager
that restarts (a higher incarnation) does not have its own earlier life against it.

Sans-IO: `claim`, `release`, `lookup`, `receive` and `tick` go in, `drain` returns what to send and what happened, and `deadline`
says when to tick next. Addresses are numbers below `pool`; what they stand for is the driver's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from unisono.core.config import MILLISECOND, SECOND
from unisono.core.errors import ConfigError, Misuse
from unisono.core.types import MemberId
from unisono.papers.directory.messages import Announce, Message, NameTaken, Probe, Query, Release

NAME_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """The settings of a directory. All managers use the same."""

    pool: int = 65_536
    """How many addresses there are."""
    probes: int = 3
    """How often a manager asks before it takes an address."""
    probe_ns: int = 200 * MILLISECOND
    """How long it waits for objections each time. Longer than a round trip."""
    announce_ns: int = 30 * SECOND
    """How often an owner repeats what it owns."""
    expiry_ns: int = 100 * SECOND
    """How long others remember it without hearing it again."""
    claims_max: int = 256
    """Claims of one manager that are under way at once."""
    messages_max: int = 4_096
    """Messages that wait to be sent; beyond it they are dropped and counted, as a network would."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
                raise ConfigError(f"{name} = {value!r} is out of range: choose a whole number from 1.")
        if self.pool > 2**32:
            raise ConfigError(f"pool = {self.pool} is out of range: choose 1 to {2**32}.")
        if self.expiry_ns <= self.announce_ns:
            raise ConfigError(
                f"expiry_ns = {self.expiry_ns} must be longer than announce_ns = {self.announce_ns}: names would vanish."
            )


class Claimed(NamedTuple):
    """The name is ours, at this address."""

    name: str
    address: int


class ClaimRefused(NamedTuple):
    """The claim failed; the reason is a sentence."""

    name: str
    reason: str


class Lost(NamedTuple):
    """The name was ours, and another manager has it too and keeps it (D3)."""

    name: str
    address: int
    owner: MemberId


Outcome: TypeAlias = Claimed | ClaimRefused | Lost


class NameEntry:
    """An address that is given away."""

    __slots__ = ("address", "due_ns", "name", "owner")

    def __init__(self, name: str, address: int, owner: MemberId, due_ns: int) -> None:
        self.name = name
        self.address = address
        self.owner = owner
        self.due_ns = due_ns  # mine: when to announce it again; another's: when to forget it


class Claim:
    """A claim under way: which address it is at, and how often it asked."""

    __slots__ = ("address", "asked", "due_ns", "name", "tried")

    def __init__(self, name: str, address: int) -> None:
        self.name = name
        self.address = address
        self.asked = 0
        self.tried = 0  # addresses passed over
        self.due_ns = 0  # when to ask again, or to take it


class Directory:
    """One manager. See the module's text."""

    def __init__(
        self,
        manager: MemberId,
        settings: DirectorySettings | None = None,
        permanent: Mapping[str, int] | None = None,
    ) -> None:
        self.id = manager
        self.settings = settings or DirectorySettings()
        self.dropped = 0
        """Messages that were refused or did not fit."""
        self._permanent = dict(permanent or {})
        self._reserved = {address: name for name, address in self._permanent.items()}
        self._by_address: dict[int, NameEntry] = {}
        self._by_name: dict[str, NameEntry] = {}
        self._claims: dict[str, Claim] = {}
        self._messages: dict[Message, None] = {}  # to send, each once
        self._events: list[Outcome] = []
        for name, address in self._permanent.items():
            _check_name(name)
            if not 0 <= address < self.settings.pool or self._reserved[address] != name:
                raise ConfigError(f"the permanent group {name!r} cannot have address {address}: it is not free.")

    # Inputs.

    def claim(self, name: str, now: int) -> None:
        """Create a name. `drain` says later whether it is ours; a permanent one is at once."""
        _check_name(name)
        if name in self._permanent:
            self._events.append(Claimed(name, self._permanent[name]))
            return
        known = self._by_name.get(name)
        if name in self._claims or (known is not None and known.owner == self.id):
            raise Misuse(f"this manager has claimed {name!r} already: release it first.")
        if len(self._claims) >= self.settings.claims_max:
            raise Misuse(f"{len(self._claims)} claims are under way, the most there may be: wait for some to end.")
        if known is not None:
            self._refuse(name, _taken_by(known))
            return
        claim = self._claims[name] = Claim(name, hash_into(name, self.settings.pool))
        self._ask_for_free(claim, now)

    def lookup(self, name: str) -> int | None:
        """The address of a name, if it is known here; if not, the others are asked, and a later lookup may know."""
        if name in self._permanent:
            return self._permanent[name]
        entry = self._by_name.get(name)
        if entry is not None:
            return entry.address
        _check_name(name)
        self._send(Query(name))
        return None

    def owner_of(self, name: str) -> MemberId | None:
        """The manager that has claimed a name, if known here. Permanent names have none."""
        entry = self._by_name.get(name)
        return None if entry is None else entry.owner

    def release(self, name: str) -> None:
        """Give a name up, or a claim to it."""
        entry = self._by_name.get(name)
        if name in self._claims:
            del self._claims[name]
        elif entry is not None and entry.owner == self.id:
            self._forget(entry)
            self._send(Release(name, entry.address))
        elif name in self._permanent:
            raise Misuse(f"{name!r} is a permanent group: it is free when it is in no manager's table any more.")
        else:
            raise Misuse(f"{name!r} is not a name of this manager: only its owner can release it.")

    def receive(self, sender: MemberId, message: Message, now: int) -> None:
        """Take in what another manager said. Anything may be lost, come late, or twice."""
        if sender == self.id:
            return  # a network that reflects
        if not self._is_sound(message) or self._is_outlived(sender):
            self.dropped += 1
            return
        self._forget_earlier_lives(sender)
        match message:
            case Probe():
                self._defend(sender, message, now)
            case NameTaken():
                self._learn_taken(sender, message, now)
            case Announce(name, address):
                self._learn(NameEntry(name, address, sender, now + self.settings.expiry_ns), now)
            case Release(name, address):
                entry = self._by_address.get(address)
                if entry is not None and (entry.name, entry.owner) == (name, sender):
                    self._forget(entry)
            case Query(name):
                self._answer(name)

    def tick(self, now: int) -> None:
        """Act on the time: probe again, take unopposed claims, announce, and forget expired names."""
        for claim in list(self._claims.values()):
            if claim.due_ns <= now:
                self._go_on(claim, now)
        for entry in list(self._by_address.values()):
            if entry.due_ns > now:
                continue
            if entry.owner == self.id:
                self._announce(entry, now)
            else:
                self._forget(entry)

    # Outputs.

    def drain(self) -> tuple[list[Message], list[Outcome]]:
        """What to send to all managers, and what happened, since the last time."""
        messages, self._messages = list(self._messages), {}
        events, self._events = self._events, []
        return messages, events

    @property
    def deadline(self) -> int | None:
        """When `tick` is due next."""
        dues = [claim.due_ns for claim in self._claims.values()]
        dues += [entry.due_ns for entry in self._by_address.values()]
        return min(dues, default=None)

    @property
    def owned(self) -> dict[str, int]:
        """The names that this manager owns, with their addresses."""
        return {entry.name: entry.address for entry in self._by_address.values() if entry.owner == self.id}

    @property
    def claiming(self) -> list[str]:
        """The names that this manager is claiming."""
        return list(self._claims)

    def entries(self) -> list[NameEntry]:
        """All names known here, this manager's own and others', in alphabetical order."""
        return sorted(self._by_address.values(), key=lambda entry: entry.name)

    # A claim's way through the pool.

    def _ask_for_free(self, claim: Claim, now: int) -> None:
        """Find the next address that is not known to be taken, from the claim's own on, and ask for it."""
        while claim.tried < self.settings.pool:
            if self._is_free(claim):
                claim.asked = 0
                self._ask(claim, now)
                return
            self._pass_over(claim)
        del self._claims[claim.name]
        self._refuse(claim.name, f"all {self.settings.pool} addresses of the pool are taken")

    def _is_free(self, claim: Claim) -> bool:
        """Whether nothing here stands against the claim's address, other claims of this manager included."""
        at = claim.address
        rivals = (other for other in self._claims.values() if other is not claim)
        return at not in self._by_address and at not in self._reserved and all(other.address != at for other in rivals)

    def _pass_over(self, claim: Claim) -> None:
        claim.tried += 1
        claim.address = (claim.address + 1) % self.settings.pool

    def _ask(self, claim: Claim, now: int) -> None:
        claim.asked += 1
        claim.due_ns = now + self.settings.probe_ns
        self._send(Probe(claim.name, claim.address))

    def _go_on(self, claim: Claim, now: int) -> None:
        if claim.asked < self.settings.probes:
            self._ask(claim, now)
            return
        del self._claims[claim.name]  # D1
        entry = NameEntry(claim.name, claim.address, self.id, now)
        self._enter(entry)
        self._announce(entry, now)
        self._events.append(Claimed(claim.name, claim.address))

    def _yield(self, name: str, address: int, owner: MemberId, now: int) -> None:
        """Withdraw or move own claims that conflict with what another manager has or is about to have."""
        mine = self._claims.get(name)
        if mine is not None:
            del self._claims[name]
            self._refuse(name, f"{owner} has it, or claimed it at the same time")
        for claim in [claim for claim in self._claims.values() if claim.address == address]:
            self._pass_over(claim)
            self._ask_for_free(claim, now)

    # Defending and learning.

    def _defend(self, sender: MemberId, probe: Probe, now: int) -> None:
        for entry in self._against(probe.name, probe.address):
            if entry.owner != sender:
                self._send(NameTaken(entry.name, entry.address, entry.owner, False))
        rivals = [c for c in self._claims.values() if c.name == probe.name or c.address == probe.address]
        if rivals and self.id < sender:  # D2
            for claim in rivals:
                self._send(NameTaken(claim.name, claim.address, self.id, True))
        elif rivals:
            self._yield(probe.name, probe.address, sender, now)

    def _against(self, name: str, address: int) -> Iterator[NameEntry]:
        """What stands against giving this address to this name."""
        if address in self._reserved:
            yield NameEntry(self._reserved[address], address, self.id, 0)
        if name in self._permanent:
            yield NameEntry(name, self._permanent[name], self.id, 0)
        at = self._by_address.get(address)
        if at is not None:
            yield at
        called = self._by_name.get(name)
        if called is not None and called is not at:
            yield called

    def _learn_taken(self, sender: MemberId, message: NameTaken, now: int) -> None:
        """An objection binds my claims. Only an owner's own word is remembered, or others could keep a dead one's name alive."""
        name, address, owner, pending = message
        if owner == self.id:
            return  # someone quotes me
        if sender == owner and not pending:
            self._learn(NameEntry(name, address, owner, now + self.settings.expiry_ns), now)
        elif not pending or (sender == owner and owner < self.id):
            self._yield(name, address, owner, now)

    def _learn(self, entry: NameEntry, now: int) -> None:
        """Another manager owns this. Where two own the same, the lower one keeps it (D3)."""
        if entry.address in self._reserved or entry.name in self._permanent:
            return  # its table is not ours, and ours is what people look at here
        against = [one for one in self._against(entry.name, entry.address) if one.owner != entry.owner]
        if any(one.owner < entry.owner for one in against):
            for one in against:
                if one.owner == self.id:
                    self._announce(one, now)
            return
        for one in [*against, *self._against(entry.name, entry.address)]:
            if self._by_address.get(one.address) is one:
                self._forget(one)
                if one.owner == self.id:
                    self._events.append(Lost(one.name, one.address, entry.owner))
        self._enter(entry)
        self._yield(entry.name, entry.address, entry.owner, now)

    def _answer(self, name: str) -> None:
        entry = self._by_name.get(name)
        if name in self._permanent:
            self._send(NameTaken(name, self._permanent[name], self.id, False))
        elif entry is not None:
            self._send(NameTaken(name, entry.address, entry.owner, False))

    def _announce(self, entry: NameEntry, now: int) -> None:
        entry.due_ns = now + self.settings.announce_ns
        self._send(Announce(entry.name, entry.address))

    def _forget_earlier_lives(self, sender: MemberId) -> None:
        """A manager that restarted has forgotten what it owned; so do the others."""
        for entry in list(self._by_address.values()):
            if entry.owner.address == sender.address and entry.owner.incarnation < sender.incarnation:
                self._forget(entry)

    def _is_outlived(self, sender: MemberId) -> bool:
        """Whether a later life of this manager is known here."""
        lives = (entry.owner for entry in self._by_address.values() if entry.owner.address == sender.address)
        return any(owner.incarnation > sender.incarnation for owner in lives)

    # The tables.

    def _enter(self, entry: NameEntry) -> None:
        assert entry.address not in self._by_address, "D4"
        assert entry.name not in self._by_name, "D4"
        self._by_address[entry.address] = entry
        self._by_name[entry.name] = entry

    def _forget(self, entry: NameEntry) -> None:
        del self._by_address[entry.address]
        del self._by_name[entry.name]

    def _refuse(self, name: str, reason: str) -> None:
        self._events.append(ClaimRefused(name, f"{name!r} cannot be claimed: {reason}."))

    def _send(self, message: Message) -> None:
        if len(self._messages) < self.settings.messages_max or message in self._messages:
            self._messages[message] = None
        else:
            self.dropped += 1

    def _is_sound(self, message: Message) -> bool:
        """Whether it speaks of names and addresses that can be."""
        address = 0 if isinstance(message, Query) else message.address
        return 0 < len(message.name.encode()) <= NAME_BYTES_MAX and 0 <= address < self.settings.pool


def hash_into(name: str, pool: int) -> int:
    """Where in the pool the search for a name's address begins. The same at every manager."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") % pool


def _check_name(name: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise Misuse(f"the name {name!r} is not text: write it in UTF-8.") from None
    if not 0 < size <= NAME_BYTES_MAX:
        raise Misuse(f"a name has 1 to {NAME_BYTES_MAX} bytes, not {size}: choose another.")


def _taken_by(entry: NameEntry) -> str:
    return f"{entry.owner} has it, at address {entry.address}"
