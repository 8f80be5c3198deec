"""The control messages of membership, and how they look on the wire.

Control runs outside of the view's streams. Every message is idempotent: it may be lost, repeated, or come late.

| message | from → to              | meaning                                                                        |
|---------|------------------------|--------------------------------------------------------------------------------|
| Hello   | anyone → an address    | my settings and my view; `answer`: to your greeting. Joins and merges begin so |
| Refuse  | member → joiner        | your settings do not fit, and why; it repeats the nonce of your greeting       |
| Outlive | member → old life      | a later life of the process at your address is known: begin above its number   |
| Notice  | member → coordinator   | whom I suspect, who greeted me, whether I leave, which order I want            |
| Propose | proposer → participant | take part in this ballot; I take you to be in view `base`                      |
| Chunk   | either way             | some bytes of an answer, of a cut, or of packets (see below)                   |
| Pull    | either way             | send more chunks of that from this offset on                                   |
| Fetch   | proposer → holder      | send me the packets in these ranges of slots of your view                      |
| Confirm | participant → proposer | I closed as this ballot's cut says                                             |
| Install | member → participant   | this ballot is installed                                                       |
| Outbid  | participant → proposer | I have promised a higher ballot                                                |
| Moved   | participant → proposer | I am not in the view that you think, but in this one                           |
| Dismiss | member → evicted one   | the view went on without you, why, and how long you are turned away            |

What may be large is encoded and sent in **chunks** of bounded size; the first chunk is pushed, the rest is pulled. `Answer`
answers Propose; `Flush` carries a participant's cut, and exactly the packets that it lacks; `Packets` answers Fetch. `RollCall` and
`Decree` are the token's two rounds where answers travel by the ring (`core.membership.ring`). Reports, cuts and packets in them
are bytes in the layout of the view's own order.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from unisono.core.config import CONFIG_NAMES, Config
from unisono.core.departure import Departure
from unisono.core.types import MemberId, Rank, ViewId
from unisono.core.wire.codec import ALL, BLOB, FLAG, MAYBE, ROW, SLOT, TEXT, U8, U16, U32, U64, Codec, Layout
from unisono.core.wire.fields import Bound, Many


class HookSet(NamedTuple):
    """Which hooks an application gives. All members of a group give the same ones; observers give none."""

    state: bool  # `snapshot` and `restore`
    merge: bool
    answer: bool


class GroupSettings(NamedTuple):
    """What all members of a group must have in common."""

    version: int
    order: str  # as configured; a group may have switched since
    policy: str
    hooks: HookSet | None  # of the group; None: the sender is an observer, and knows of no member that is none
    is_observer: bool
    config: tuple[int, ...]  # `Config.as_numbers`


class Hello(NamedTuple):
    settings: GroupSettings
    view: ViewId | None
    order: str  # of that view
    members: tuple[MemberId, ...]
    coordinator: MemberId  # who speaks for that view; without a view, the sender
    suspects: tuple[MemberId, ...]  # of some member of that view
    addresses: tuple[str, ...]
    answer: bool
    nonce: int = 0  # of this greeting, or of the one that it answers


class Refuse(NamedTuple):
    reason: str
    view: ViewId | None = None  # of the member that refuses; None: it has none, so no group speaks
    nonce: int = 0  # of the greeting that it answers


class Outlive(NamedTuple):
    life: MemberId  # the receiver, if it is still that life
    newest: int  # the highest incarnation known at its address
    nonce: int = 0  # of the greeting that it answers


class Notice(NamedTuple):
    view: ViewId
    suspects: tuple[MemberId, ...]
    addresses: tuple[str, ...]
    leaving: bool
    order: str  # "": no wish
    grounds: tuple[Departure, ...] = ()  # why I suspect them, and whom I find too slow
    renew: bool = False  # a state was given up: form the view anew


class Propose(NamedTuple):
    ballot: ViewId
    base: ViewId | None
    participants: tuple[MemberId, ...]


class Chunk(NamedTuple):
    ballot: ViewId
    topic: int
    offset: int
    total: int
    data: bytes


class Pull(NamedTuple):
    ballot: ViewId
    topic: int
    offset: int


class Fetch(NamedTuple):
    ballot: ViewId
    topic: int
    view: ViewId
    ranges: tuple[tuple[Rank, int, int], ...]  # origin, first, last


class Confirm(NamedTuple):
    ballot: ViewId


class Install(NamedTuple):
    ballot: ViewId


class Outbid(NamedTuple):
    ballot: ViewId
    promised: ViewId


class Moved(NamedTuple):
    ballot: ViewId
    view: ViewId | None


class Dismiss(NamedTuple):
    view: ViewId  # the first without you
    base: ViewId | None  # the last that the sender shared with you
    by: MemberId  # whose window you held shut
    lasted_ns: int
    rest_ns: int


Control: TypeAlias = (
    Hello | Refuse | Outlive | Notice | Propose | Chunk | Pull | Fetch | Confirm | Install | Outbid | Moved | Dismiss
)  # fmt: skip

ANSWER, CUT, ROLL, DECREE, FETCHED = 0, 1, 2, 3, 4
"""Topics of chunks; FETCHED and above are a proposer's fetches."""


# What travels in chunks.


class Part(NamedTuple):
    """Members of the new view that come from one view with one cut: each other's transitional set."""

    view: ViewId
    cut: ViewId
    members: tuple[MemberId, ...]
    leavers: tuple[MemberId, ...] = ()
    """Members that closed that view with that cut too, and leave with it."""


class HeldState(NamedTuple):
    """The state of an application that has everything of a primary view. Equal names, equal states.

    Members that left the primary with different cuts have different remainders, so the name says with which one.
    """

    view: ViewId
    cut: ViewId | None = None  # None: it has not left that view


class Charter(NamedTuple):
    """Everything about a view that its members must know alike. It never changes: one ballot has one charter."""

    id: ViewId
    members: tuple[MemberId, ...]
    leavers: tuple[MemberId, ...]  # take part in the flush and are gone when it is installed
    order: str
    parts: tuple[Part, ...]
    primary: bool
    supersedes: tuple[ViewId, ...]  # primary policy: what it comes after, the latest first
    departures: tuple[Departure, ...] = ()  # why members of the previous views are not in this one
    has_state: bool = False  # some member's application has a state
    state: HeldState | None = None  # primary policy: the state that it begins with …
    holders: tuple[MemberId, ...] = ()  # … and who carries that state into it; the others take it over
    lost: Quorum | None = (
        None  # the primary whose state this view lacks to be primary; if it is, whose state was given up
    )


def part_of(charter: Charter, member: MemberId) -> Part | None:
    """From where, and with whom, a member comes into a view; None: from nowhere."""
    return next((part for part in charter.parts if member in part.members), None)


class Quorum(NamedTuple):
    """A primary view, installed or only confirmed. Members without a state remember what it begins with, too."""

    view: ViewId
    members: tuple[MemberId, ...]
    state: ViewId | None = None  # the primary whose state it begins with
    has_state: bool | None = False  # some member's application had a state; None: an earlier version did not say


class Standing(NamedTuple):
    """What a member persists under the primary policy."""

    last: Quorum | None  # the last primary that it installed
    attempts: tuple[Quorum, ...]  # later ones that it confirmed
    given_up: ViewId | None = None  # the primary whose state an operator has given up


class EarlierQuorum(NamedTuple):
    """A `Quorum` as earlier versions persisted it."""

    view: ViewId
    members: tuple[MemberId, ...]


class EarlierStanding(NamedTuple):
    """A `Standing` as earlier versions persisted it."""

    last: EarlierQuorum | None
    attempts: tuple[EarlierQuorum, ...]


class ClosingCut(NamedTuple):
    """The cut that a member closed its view with."""

    id: ViewId  # the ballot in which it was merged
    covered: tuple[Rank, ...]  # whose reports it counts
    cut: bytes


class Answer(NamedTuple):
    view: ViewId | None
    members: tuple[MemberId, ...]
    order: str
    report: bytes
    closed: ClosingCut | None
    leaving: bool
    bootstrap: bool
    standing: Standing
    has_state: bool = False  # its application has hooks that carry a state
    holds: tuple[HeldState, ...] = ()  # the states of primaries that it has


class Flush(NamedTuple):
    charter: Charter
    view: ViewId | None  # which the cut closes
    cut: ClosingCut | None
    missing: tuple[tuple[Rank, int, bytes], ...]  # origin, number, packet


class Packets(NamedTuple):
    packets: tuple[tuple[Rank, int, bytes], ...]


class RollCall(NamedTuple):
    """The token's first round."""

    bases: tuple[tuple[MemberId, ViewId | None], ...]  # who takes part, and in which view I take each to be
    views: tuple[tuple[ViewId, tuple[MemberId, ...]], ...]  # of the members that have answered
    answers: tuple[bytes, ...]  # along the ring, without their members, which `views` has once


class Decree(NamedTuple):
    """The token's second round."""

    charter: Charter
    cuts: tuple[tuple[ViewId, ClosingCut, tuple[MemberId, ...]], ...]  # which view each closes, and for whom


_MEMBER = ROW(TEXT, U64, type=MemberId)
_VIEW = ROW(U64, _MEMBER, type=ViewId)
_MEMBERS = Many(_MEMBER, Bound.MEMBERS)
_ADDRESSES = ALL(TEXT)
_HOOKS = ROW(FLAG, FLAG, FLAG, type=HookSet)
_CONFIG = ROW(*(U64 for _ in CONFIG_NAMES))
_SETTINGS = ROW(U8, TEXT, TEXT, MAYBE(_HOOKS), FLAG, _CONFIG, type=GroupSettings)
_PART = ROW(_VIEW, _VIEW, _MEMBERS, _MEMBERS, type=Part)
_DEPARTURES = Many(ROW(_MEMBER, U8, _MEMBER, U64, U64, type=Departure), Bound.MEMBERS)
_QUORUM = ROW(_VIEW, _MEMBERS, MAYBE(_VIEW), MAYBE(FLAG), type=Quorum)
_HELD = ROW(_VIEW, MAYBE(_VIEW), type=HeldState)
_EARLIER_QUORUM = ROW(_VIEW, _MEMBERS, type=EarlierQuorum)
_CHARTER = ROW(
    _VIEW,
    _MEMBERS,
    _MEMBERS,
    TEXT,
    ALL(_PART),
    FLAG,
    ALL(_VIEW),
    _DEPARTURES,
    FLAG,
    MAYBE(_HELD),
    _MEMBERS,
    MAYBE(_QUORUM),
    type=Charter,
)
_STANDING = ROW(MAYBE(_QUORUM), ALL(_QUORUM), MAYBE(_VIEW), type=Standing)
_CLOSED = ROW(_VIEW, Many(U16, Bound.MEMBERS), BLOB, type=ClosingCut)
_PACKETS = ALL(ROW(U16, SLOT, BLOB))

CONTROL_WIRE = (
    Layout(0x40, Hello, (_SETTINGS, MAYBE(_VIEW), TEXT, _MEMBERS, _MEMBER, _MEMBERS, _ADDRESSES, FLAG, U64)),
    Layout(0x41, Refuse, (TEXT, MAYBE(_VIEW), U64)),
    Layout(0x42, Notice, (_VIEW, _MEMBERS, _ADDRESSES, FLAG, TEXT, _DEPARTURES, FLAG)),
    Layout(0x43, Propose, (_VIEW, MAYBE(_VIEW), _MEMBERS)),
    Layout(0x44, Chunk, (_VIEW, U32, U64, U64, BLOB)),
    Layout(0x45, Pull, (_VIEW, U32, U64)),
    Layout(0x46, Fetch, (_VIEW, U32, _VIEW, ALL(ROW(U16, SLOT, SLOT)))),
    Layout(0x47, Confirm, (_VIEW,)),
    Layout(0x48, Install, (_VIEW,)),
    Layout(0x49, Outbid, (_VIEW, _VIEW)),
    Layout(0x4A, Moved, (_VIEW, MAYBE(_VIEW))),
    Layout(0x4B, Dismiss, (_VIEW, MAYBE(_VIEW), _MEMBER, U64, U64)),
    Layout(0x4C, Outlive, (_MEMBER, U64, U64)),
)
CHUNKED_WIRE = (
    Layout(
        0x50,
        Answer,
        (MAYBE(_VIEW), _MEMBERS, TEXT, BLOB, MAYBE(_CLOSED), FLAG, FLAG, _STANDING, FLAG, ALL(_HELD)),
    ),
    Layout(0x51, Flush, (_CHARTER, MAYBE(_VIEW), MAYBE(_CLOSED), _PACKETS)),
    Layout(0x52, Packets, (_PACKETS,)),
    Layout(0x53, EarlierStanding, (MAYBE(_EARLIER_QUORUM), ALL(_EARLIER_QUORUM))),
    Layout(
        0x54,
        RollCall,
        (
            Many(ROW(_MEMBER, MAYBE(_VIEW)), Bound.MEMBERS),
            Many(ROW(_VIEW, _MEMBERS), Bound.MEMBERS),
            Many(BLOB, Bound.MEMBERS),
        ),
    ),
    Layout(0x55, Decree, (_CHARTER, Many(ROW(_VIEW, _CLOSED, _MEMBERS), Bound.MEMBERS))),
    Layout(0x56, Standing, (MAYBE(_QUORUM), ALL(_QUORUM), MAYBE(_VIEW))),
)


class ControlCodec(Codec):
    """Encodes control messages, and what travels in chunks.

    They are of no view, so lists of members are limited by `members_max`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__((*CONTROL_WIRE, *CHUNKED_WIRE), config)
        self._members_max = config.members_max

    def read(self, data: bytes | memoryview) -> tuple[object, ...] | None:
        """The message or record, or None if it is refused (and counted)."""
        return self.decode(data, 0, self._members_max)
