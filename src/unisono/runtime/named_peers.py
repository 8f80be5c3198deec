"""What a member knows of the peers that it was told to look for: who has answered, and what keeps the others away.

Wrong keys, misspelt groups and names that do not resolve all look like silence to the protocols, which is right: a stranger's
datagram must change nothing there. Here such datagrams are looked at once more before they are forgotten, so that the log,
`explain`, `status` and the metrics can say which peer is silent and why. All of them read the one `NamedPeers` of a member.

A refused datagram is attributed to the address that it came from, else to the one that it claims in its readable head. Nothing
vouches for either, so sentences say *claim*. Nothing that is noted here changes what the member does, except that a peer of its
own in another group is told that group's name (`group_hint`).

Looking costs nothing while every named peer is in the view: then only refused datagrams are looked at, `NOTES_MAX` a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from unisono.core.config import SECOND
from unisono.core.types import MemberId
from unisono.core.wire import Frames, group_tag
from unisono.core.wire.frame import CONTROL, HEAD_BYTES, VERSION
from unisono.runtime.group_hint import HINT, Hints
from unisono.runtime.seal import SEALED, UNKNOWN, claimed_address
from unisono.trace.sanitize import cut, sanitize

PATIENCE_NS = 1 * SECOND
"""A peer that has never answered is missed after this."""
SILENCE_NS = 15 * SECOND
"""A peer that has answered before is missed after this. A peer that a group refuses speaks every ten seconds."""
RECENT_NS = 30 * SECOND
"""Refused datagrams explain a peer's silence, or are worth a line about a stranger, for this long."""
HINT_NS = 10 * SECOND
"""A peer in another group is told so at most this often …"""
HINTS_MAX = 8
"""… and at one address the members of at most this many groups."""
NOTES_MAX = 1_000
"""Maximum number of refused datagrams that are looked at per second; all are counted."""
STRANGERS_MAX = 64
"""Addresses that are not named, and whose refused datagrams are remembered."""


class Trouble(StrEnum):
    """What keeps a named peer away."""

    UNRESOLVED = "unresolved"
    SILENT = "silent"
    OTHER_KEY = "other key"
    KEY_MISSING_HERE = "no key here"
    KEY_MISSING_THERE = "no key there"
    OTHER_GROUP = "other group"


@dataclass(slots=True)
class PeerAddress:
    """One address, and what came from there."""

    address: str
    since: int  # when it was first looked for
    heard_at: int | None = None  # the last authentic message of membership, or the end of its time in the view
    departure: str = ""  # why it is not in the view any more
    trouble: Trouble | None = None  # of the latest datagram that was refused
    count: int = 0  # of such datagrams, since it was heard
    told: int = 0  # how many of them are in the log
    refused_at: int = 0
    group: str = ""  # the name of its group, if it is another one and known
    hinted: dict[int, int] = field(
        default_factory=dict
    )  # by the hash of a group there: when it was last told of this one

    def hear(self, now: int) -> None:
        self.heard_at = now
        self.departure = ""
        self.trouble = None
        self.count = self.told = 0
        self.group = ""

    def refuse(self, trouble: Trouble, now: int) -> None:
        if trouble is not self.trouble:
            self.trouble, self.count, self.told = trouble, 0, 0
        self.count += 1
        self.refused_at = now

    def is_refused(self, now: int) -> bool:
        return self.trouble is not None and now - self.refused_at <= RECENT_NS


class MissedPeer(NamedTuple):
    """A named peer that is missed."""

    peer: str
    trouble: Trouble
    silent_ns: int
    was_met: bool
    sentence: str


@dataclass(slots=True)
class _Entry:
    """One peer as it was written, and where it is."""

    since: int
    problem: str = ""  # why it has no address


class NamedPeers:
    """See the module's text."""

    def __init__(
        self,
        group: str,
        member: MemberId,
        key: bytes | None,
        clock: Callable[[], int],
        send: Callable[[str, bytes], None],
        source_of: Callable[[memoryview], str] = lambda datagram: "",
        silence_is_news: bool = True,
    ) -> None:
        self._group = group
        self._tag = group_tag(group).to_bytes(4, "little")
        self._control_head = bytes((VERSION, CONTROL)) + self._tag
        self._frames = Frames(group, member)  # to read who a frame says to be from
        self._hints = Hints(group, member.address, key)
        self._is_sealed = key is not None
        self._clock = clock
        self._send = send
        self._source_of = source_of
        self._silence_is_news = silence_is_news
        self._entries: dict[str, _Entry] = {}
        self._places: dict[str, dict[str, PeerAddress]] = {}  # by entry, then by address
        self._by_address: dict[str, PeerAddress] = {}
        self._inside: frozenset[str] = frozenset()
        self._strangers: dict[str, PeerAddress] = {}
        self._attributed: dict[Trouble, int] = {}  # refused datagrams, since the log asked last
        self._noted_from = clock()
        self._noted = 0
        self.sealed = 0
        """Refused datagrams that are sealed, at a member without a key: of another key, not of another version."""
        self.is_watching = False
        """Whether a named peer is not in the view, so that all datagrams are looked at (`open`)."""
        self.remarks: Callable[[], list[str]] = list
        """What else stands between this member and its peers, a sentence each."""

    # What is known of the peers.

    def name(self, text: str, addresses: Iterable[str], problem: str = "") -> None:
        """A peer as it was written is at these addresses, without the own one; at none: because of this problem."""
        now = self._clock()
        entry = self._entries.setdefault(text, _Entry(now))
        before, entry.problem = self._places.get(text, {}), problem
        self._places[text] = {
            one: before.get(one) or self._by_address.get(one) or PeerAddress(one, now) for one in addresses
        }
        self._index()

    def keep_only(self, texts: Iterable[str]) -> None:
        """Forget all other peers."""
        for text in set(self._entries).difference(texts):
            del self._entries[text], self._places[text]
        self._index()

    def entered(self, members: Iterable[MemberId], left: Mapping[MemberId, object]) -> None:
        """A view was installed with these members; these have left, each with its reason."""
        now = self._clock()
        before, self._inside = self._inside, frozenset(member.address for member in members)
        why = {member.address: str(reason) for member, reason in left.items()}
        for address in before | self._inside:
            place = self._by_address.get(address)
            if place is not None:
                place.hear(now)
                if address not in self._inside:
                    place.departure = why.get(address, "")
        self._index()

    def _index(self) -> None:
        self._by_address = {one: place for places in self._places.values() for one, place in places.items()}
        is_unresolved = any(entry.problem for entry in self._entries.values())
        self.is_watching = is_unresolved or not self._inside.issuperset(self._by_address)

    # Datagrams.

    def takes(self, datagram: memoryview) -> bool:
        """Take a hint about another group; False: it is none."""
        if datagram[:1] != _HINT:
            return False
        self._take_hint(datagram)
        return True

    def opened(self, frame: bytes | memoryview, datagram: memoryview) -> None:
        """A datagram was authentic, and this is its frame."""
        if frame[:HEAD_BYTES] == self._control_head:
            self._heard(frame, datagram)

    def _heard(self, frame: bytes | memoryview, datagram: memoryview) -> None:
        opened, now = self._frames.open_client(frame), self._clock()
        for address in (self._source_of(datagram), "" if opened is None else opened.sender.address):
            place = self._by_address.get(address)
            if place is not None:
                place.hear(now)
            self._strangers.pop(address, None)

    def refused(self, datagram: memoryview, reason: str) -> None:
        """A datagram was refused."""
        now = self._clock()
        if now - self._noted_from >= SECOND:
            self._noted_from, self._noted = now, 0
        self._noted += 1
        trouble = self._judge(datagram, reason) if self._noted <= NOTES_MAX else None
        if trouble is None:
            return
        self.sealed += trouble is Trouble.KEY_MISSING_HERE
        source, claimed = self._source_of(datagram), self._claimed(datagram)
        place = self._by_address.get(source) or self._by_address.get(claimed)
        if place is None:
            place = self._stranger(claimed or source, now)
        elif trouble is Trouble.OTHER_GROUP:
            self._hint(place, datagram, now)
        if place is not None:
            place.refuse(trouble, now)
            self._attributed[trouble] = self._attributed.get(trouble, 0) + 1

    def _judge(self, datagram: memoryview, reason: str) -> Trouble | None:
        """What a refused datagram tells of its sender; None: nothing that a person can act on."""
        if len(datagram) < HEAD_BYTES:
            return None
        version, is_ours = datagram[0], datagram[2:HEAD_BYTES] == self._tag
        if version == SEALED and not self._is_sealed:
            return Trouble.KEY_MISSING_HERE
        if version == VERSION and self._is_sealed:
            return Trouble.KEY_MISSING_THERE
        if version == (SEALED if self._is_sealed else VERSION) and not is_ours:
            return Trouble.OTHER_GROUP
        return Trouble.OTHER_KEY if reason == UNKNOWN else None

    def _claimed(self, datagram: memoryview) -> str:
        """Who a refused datagram says to be from."""
        if datagram[0] == SEALED:
            return claimed_address(datagram)
        opened = self._frames.open_client(datagram) if datagram[1] == CONTROL else None
        return "" if opened is None else opened.sender.address

    def _stranger(self, address: str, now: int) -> PeerAddress | None:
        if not address:
            return None
        place = self._strangers.pop(address, None) or PeerAddress(address, now)
        self._strangers[address] = place
        if len(self._strangers) > STRANGERS_MAX:
            del self._strangers[next(iter(self._strangers))]
        return place

    def _hint(self, place: PeerAddress, datagram: memoryview, now: int) -> None:
        """Tell a peer of another group which group this is."""
        place.hinted = {tag: at for tag, at in place.hinted.items() if now - at < HINT_NS}
        tag = int.from_bytes(datagram[2:HEAD_BYTES], "little")
        if tag in place.hinted or len(place.hinted) >= HINTS_MAX:
            return
        hint = self._hints.make(tag, len(datagram))
        if hint is not None:
            place.hinted[tag] = now
            self._send(place.address, hint)

    def _take_hint(self, datagram: memoryview) -> None:
        hint = self._hints.read(datagram)
        if hint is None or hint.group == self._group:
            return
        place = self._by_address.get(self._source_of(datagram)) or self._by_address.get(hint.address)
        if place is not None:
            place.refuse(Trouble.OTHER_GROUP, self._clock())
            place.group = hint.group

    # Questions.

    def sought(self) -> list[str]:
        """The peers as they were written, without names that stand for this member alone."""
        return [sanitize(text) for text, entry in self._entries.items() if self._places[text] or entry.problem]

    def missed(self) -> list[MissedPeer]:
        """Every named peer that is missed now, in the order of their names as given."""
        now, found = self._clock(), []
        for text, entry in self._entries.items():
            places = self._places[text]
            if not places and entry.problem:
                sentence = f"{sanitize(text)} has no address: {entry.problem}; it is looked up again and again."
                found.append(MissedPeer(sanitize(text), Trouble.UNRESOLVED, now - entry.since, False, sentence))
            for place in places.values():
                name = text if len(places) == 1 else f"{place.address} (of {text})"
                report = self._report(sanitize(name), place, now)
                if report is not None and all(report.peer != one.peer for one in found):
                    found.append(report)
        return found

    def _report(self, name: str, place: PeerAddress, now: int) -> MissedPeer | None:
        if place.address in self._inside:
            return None
        was_met = place.heard_at is not None
        silent_ns = now - (place.since if place.heard_at is None else place.heard_at)
        if silent_ns < (SILENCE_NS if was_met else PATIENCE_NS) and not (place.is_refused(now) and not was_met):
            return None
        if place.is_refused(now):
            assert place.trouble is not None
            return MissedPeer(name, place.trouble, silent_ns, was_met, self._say(name, place))
        if not was_met and not self._silence_is_news:
            return None
        seconds = f"{silent_ns // SECOND} s" if silent_ns >= 10 * SECOND else f"{silent_ns / SECOND:.1f} s"
        sentence = f"no answer from {name} for {seconds}"
        if place.departure:
            sentence += f"; it was in the group before ({sanitize(cut(place.departure))})"
        return MissedPeer(name, Trouble.SILENT, silent_ns, was_met, sentence + ".")

    def _say(self, name: str, place: PeerAddress) -> str:
        match place.trouble:
            case Trouble.OTHER_KEY:
                return f"{_datagrams(place.count)} from {name} failed authentication; does it use a different key?"
            case Trouble.KEY_MISSING_HERE:
                return f"{name} sends sealed datagrams, and this member has no key: give it the group's key."
            case Trouble.KEY_MISSING_THERE:
                return f"{name} uses no key, and this member does: give it the group's key."
            case _:
                mine = f"this member in {sanitize(self._group)!r}: is one of the names misspelt?"
                if place.group:
                    return f"{name} is in group {sanitize(cut(place.group, 100))!r}, {mine}"
                return f"{name} is in another group, {mine}"

    def has_answered(self, peer: str) -> bool:
        """Whether a peer that was reported has been heard or is in the view, rather than forgotten."""
        for text, places in self._places.items():
            for place in places.values():
                if sanitize(text if len(places) == 1 else f"{place.address} (of {text})") == peer:
                    return place.heard_at is not None
        return False

    def sentences(self) -> list[str]:
        """What keeps named peers away."""
        return [report.sentence for report in self.missed()] + self.remarks()

    def strangers(self) -> list[str]:
        """Who else has sent something lately that was refused, a sentence each."""
        now = self._clock()
        return [self._say(_short(one.address), one) for one in self._strangers.values() if one.is_refused(now)]

    # For the log, which says each thing once.

    def take_strangers(self) -> list[str]:
        """What strangers sent since the last call. A stranger that goes on is named again when its datagrams have doubled."""
        said = []
        for place in self._strangers.values():
            if place.trouble is not None and place.count > place.told and place.count >= 2 * place.told:
                added, place.told = place.count - place.told, place.count
                said.append(f"dropped {_datagrams(added)} from {_short(place.address)}: {_WHY[place.trouble]}")
        return said

    def take_attributed(self) -> dict[str, int]:
        """Refused datagrams since the last call whose senders are known here, by layer and reason as they are counted."""
        taken, self._attributed = self._attributed, {}
        return {self._counted_as(trouble): count for trouble, count in taken.items()}

    def _counted_as(self, trouble: Trouble) -> str:
        if not self._is_sealed:
            return "frame: group" if trouble is Trouble.OTHER_GROUP else "frame: version"
        reasons = {Trouble.OTHER_KEY: "seal", Trouble.OTHER_GROUP: "group"}
        return f"seal: {reasons.get(trouble, 'unsealed')}"


def _short(address: str) -> str:
    return sanitize(cut(address, 100))


def _datagrams(count: int) -> str:
    return "1 datagram that claims to be" if count == 1 else f"{count} datagrams that claim to be"


_HINT = bytes((HINT,))
_WHY = {
    Trouble.OTHER_KEY: "authentication failed; does it use a different key?",
    Trouble.KEY_MISSING_HERE: "they are sealed, and this member has no key; give it the group's key.",
    Trouble.KEY_MISSING_THERE: "they are not sealed; give the sender the group's key.",
    Trouble.OTHER_GROUP: "they are of another group; is the name of one misspelt?",
}
