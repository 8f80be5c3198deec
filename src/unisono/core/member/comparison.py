"""Members compare what they delivered: at every view change, and when an application asks.

| message | from → to            | meaning                                                                         |
|---------|----------------------|---------------------------------------------------------------------------------|
| Closing | companion → examiner | how far each lane had come when that view ended here (see `delivered`)          |
| Passed  | member → asker       | how far a lane had come here where this marker stands in it                     |
| Show    | examiner → member    | show me your marks of that lane                                                 |
| Marks   | member → examiner    | these                                                                           |
| Differs | examiner → all       | the members of these parts delivered something else, and where that begins      |

All of it goes beside the order (`Member.send`), reliably while a view lasts.

**At a view change.** The *companions* of a closed view are the members that came along from it together, ever since. The one of
the lowest rank is the *examiner*: the others send it one `Closing` each. If all are equal nothing more happens. The next view may
end before they have arrived, so they are sent again in the one after it, and to another examiner if this one is gone; who
that is then, all companions know alike.

**On demand.** The asker casts a *marker* in each service: a batch to no recipient, which has its place in the order and is shown
to no application. In services other than `total` every member has a lane of its own, so every member that is shown such a marker
casts one too. Where a marker stands, everyone sends `Passed` to all that have asked in this view. A check is over when, for
each lane, all members have passed one marker that the asker was shown. So everything that the asker had delivered when it
asked is compared.

**A difference.** The examiner, or asker, takes the first lane that differs, asks one member on the other side for its marks, and
tells everyone concerned. It does not judge who is right.

What is compared is what the member puts into its application's stream, read or not. Views begin anew at all members, so one that
has joined compares from its first view on. Members that leave, and those that closed the view with another cut, do not take
part. Sans-IO: `receive` queues, `work` acts, `sends` and `found` are taken by the member once a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from unisono.core.config import Config
from unisono.core.text import shorten
from unisono.core.types import Batch, Marker, MemberId, Service, View, ViewId
from unisono.core.views.delivered import TOTAL_LANE, Delivered, Lane, Mark, Place, differing_lanes, first_difference
from unisono.core.wire.codec import ALL, ROW, TEXT, U8, U16, U64, Codec, Layout
from unisono.core.wire.fields import Bound, Many, Reason

TAG = b"="
"""What these messages begin with, among all that members send beside the order."""
WAITING_MAX = 32
"""So many batches are counted at once …"""
WAITING_BYTES_MAX = 4_096
"""… unless a message is larger than this."""
CLOSED_VIEWS_MAX = 4
"""Closed views that may still be compared."""
CLOSINGS_MAX = 2
"""How often one examiner is told of a view."""
MARKERS_A_LANE_MAX = 16
"""Of one check: a peer that names more markers is not believed."""
DIFFERENCES_MAX = 64
"""Differences that are remembered, so that none is told twice."""


class Diverged(NamedTuple):
    """Members that should have delivered the same in a view did not."""

    view: ViewId
    parts: tuple[tuple[MemberId, ...], ...]
    """Members of one part delivered the same; the largest part comes first."""
    origin: MemberId | None
    """Whose messages are counted below; None: all messages, in their total order."""
    alike: int
    """The first messages of the view that all of them delivered alike; there may be a few more …"""
    differs_by: int
    """… but with this one, counted from 1, at the latest, they differ."""

    @property
    def long(self) -> str:
        """A line for people, with whole incarnations."""
        first, *others = (", ".join(map(str, part)) for part in self.parts)
        whose = "" if self.origin is None else f" of {self.origin}"
        return (
            f"in view {self.view}, {first} delivered other messages than {' and than '.join(others)}: the first difference is "
            f"between message {self.alike + 1} and message {self.differs_by}{whose}"
        )

    def __str__(self) -> str:
        return shorten(self.long)


class Check(NamedTuple):
    """What `check` has found."""

    view: ViewId
    members: tuple[MemberId, ...]
    """Who was compared: all members of the view."""
    differences: tuple[Diverged, ...]

    @property
    def same(self) -> bool:
        """Whether all members delivered the same."""
        return not self.differences


# On the wire.


class LanePlace(NamedTuple):
    service: int
    origin: int
    messages: int
    value: int


class Closing(NamedTuple):
    view: ViewId
    places: tuple[LanePlace, ...]


class Passed(NamedTuple):
    view: ViewId
    number: int  # the index of the marker among its origin's messages
    origin: int  # of the marker
    place: LanePlace


class Show(NamedTuple):
    view: ViewId
    service: int
    origin: int


class Marks(NamedTuple):
    view: ViewId
    service: int
    origin: int
    marks: tuple[Mark, ...]


class Differs(NamedTuple):
    view: ViewId
    parts: tuple[tuple[MemberId, ...], ...]
    service: int
    origin: int
    alike: int
    differs_by: int


Message: TypeAlias = Closing | Passed | Show | Marks | Differs

_MEMBER = ROW(TEXT, U64, type=MemberId)
_VIEW = ROW(U64, _MEMBER, type=ViewId)
_MEMBERS = Many(_MEMBER, Bound.MEMBERS)
_PLACE = ROW(U8, U16, U64, U64, type=LanePlace)

WIRE = (
    Layout(0x90, Closing, (_VIEW, ALL(_PLACE))),
    Layout(0x91, Passed, (_VIEW, U64, U16, _PLACE)),
    Layout(0x92, Show, (_VIEW, U8, U16)),
    Layout(0x93, Marks, (_VIEW, U8, U16, ALL(ROW(U64, U64, U64, type=Mark)))),
    Layout(0x94, Differs, (_VIEW, Many(_MEMBERS, Bound.MEMBERS), U8, U16, U64, U64)),
)


# The work.


def is_lane(lane: Lane, view: View) -> bool:
    """Whether members of a view compare such a lane; a peer can name anything."""
    service, origin = lane
    return lane == TOTAL_LANE or (service in _IN_LANES and origin < len(view))


_IN_LANES = frozenset(int(service) for service in Service) - {int(Service.TOTAL), int(Service.DATAGRAM)}


class Comparison:
    """One comparison of members: collects where they stand, and finds who differs and where."""

    def __init__(self, view: View, expected: Iterable[MemberId]) -> None:
        self.view = view
        self.expected = set(expected)
        self.differences: tuple[Diverged, ...] = ()
        self.is_over = False
        """It is known what differs, or will never be."""
        self.is_answered = False
        """… and it is known."""
        self._asked: tuple[MemberId, Lane] | None = None  # who was asked to show its marks
        self._parts: tuple[tuple[MemberId, ...], ...] = ()

    def settle(self) -> None:
        self.is_over = self.is_answered = True

    def ask_again(self) -> None:
        """What was asked, or its answer, may be lost: streams end with their view."""
        self._asked = None

    def judge(
        self, me: MemberId, mine: dict[Lane, Place], theirs: Mapping[MemberId, dict[Lane, Place]]
    ) -> tuple[MemberId, Lane] | None:
        """Where everyone stands is known. Returns who must show which lane, if anyone."""
        asked = self._asked
        if asked is not None and asked[0] in self.expected:
            return None  # it will answer
        differing = {member: differing_lanes(mine, places) for member, places in theirs.items()}
        lanes, other = min(((lanes, member) for member, lanes in differing.items() if lanes), default=([], me))
        if not lanes:
            self.settle()
            return None
        parts: dict[tuple[tuple[Lane, Place], ...], list[MemberId]] = {}
        for member in self.view.members:
            places = mine if member == me else theirs.get(member)
            if places is not None:
                parts.setdefault(tuple(sorted(places.items())), []).append(member)
        self._parts = tuple(tuple(part) for part in sorted(parts.values(), key=len, reverse=True))
        self._asked = other, lanes[0]
        return self._asked

    def shown(self, sender: MemberId, lane: Lane, mine: Sequence[Mark], theirs: Sequence[Mark]) -> Differs | None:
        """A member shows its marks. Returns what all are to be told."""
        if self.is_over or self._asked != (sender, lane):
            return None
        alike, differs_by = first_difference(mine, theirs)
        self.settle()
        return Differs(self.view.id, self._parts, *lane, alike, differs_by)


class ClosedView(Comparison):
    """A view that has ended here: what was delivered in it, and what the companions say of it."""

    def __init__(self, view: View, delivered: Delivered, companions: Iterable[MemberId]) -> None:
        super().__init__(view, companions)
        self.delivered = delivered
        self.places: dict[MemberId, dict[Lane, Place]] = {}
        self.sent_to: list[MemberId] = []

    @property
    def examiner(self) -> MemberId:
        return next(member for member in self.view.members if member in self.expected)


class Checking(Comparison):
    """A check that an application waits for, from its own marker on."""

    def __init__(
        self, view: View, me: MemberId, lanes: frozenset[Lane], behind: Mapping[tuple[Lane, int], int]
    ) -> None:
        """`behind`: by lane and origin, the last marker that was shown before the check began. It and those before it say
        nothing of what was delivered since."""
        super().__init__(view, view.members)
        self._rank = view.members.index(me)
        self.lanes = lanes
        self._behind = dict(behind)
        self._passed: dict[tuple[Lane, int, int], dict[MemberId, Place]] = {}  # by lane and marker

    def abandon(self) -> None:
        """The application waits no longer."""
        self.is_over = True

    def passed(self, member: MemberId, lane: Lane, marker: tuple[int, int], place: Place) -> None:
        origin, number = marker
        if lane not in self.lanes or number <= self._behind.get((lane, origin), -1):
            return
        # Those of the others, who may all check at once, leave room for the own ones, which all answer.
        alike = sum((known == self._rank) == (origin == self._rank) for _, known, _ in self._passed)
        if (lane, *marker) in self._passed or alike < MARKERS_A_LANE_MAX * len(self.lanes):
            self._passed.setdefault((lane, *marker), {})[member] = place

    def places(self, me: MemberId) -> dict[MemberId, dict[Lane, Place]] | None:
        """Where everyone stands in all lanes; None: that is not known yet. Only markers that this member has passed count."""
        found: dict[MemberId, dict[Lane, Place]] = {member: {} for member in self.expected}
        for (lane, *_), places in self._passed.items():
            if me in places and self.expected <= places.keys():
                for member in self.expected:
                    found[member][lane] = places[member]
        return found if len(found[me]) == len(self.lanes) else None

    def missing(self, me: MemberId) -> tuple[MemberId, ...]:
        """Who has not passed a marker that this member has passed."""
        mine = [places for places in self._passed.values() if me in places]
        return tuple(m for m in self.view.members if any(m not in places for places in mine))


class Comparer:
    """The part of a member that compares. See the module's text."""

    def __init__(self, me: MemberId, config: Config) -> None:
        self._me = me
        self._codec = Codec(WIRE, config)
        self._members_max = config.members_max
        self._view: View | None = None  # that was shown last
        self.delivered = Delivered()
        """What was shown in it, up to what waits to be counted."""
        self.waiting: list[Batch] = []
        """Shown, and not yet counted: a member counts many at once, which takes less time."""
        self._closed: deque[ClosedView] = deque(maxlen=CLOSED_VIEWS_MAX)
        self._checks: list[Checking] = []
        self._askers: dict[MemberId, None] = {}  # in this view
        self._markers: dict[Lane, Passed] = {}  # the latest of each lane
        self._behind: dict[tuple[Lane, int], int] = {}  # by lane and origin: the last marker that was shown
        self.owes_markers = False
        """Another member checks, in a service that is not total: cast a marker in each such service."""
        self._received: list[tuple[MemberId, bytes]] = []
        self._told: dict[tuple[ViewId, Lane], None] = {}
        self.has_work = False
        self.sends: list[tuple[MemberId, bytes]] = []
        self.found: list[Diverged] = []
        """Differences that the application is to be told."""
        self.divergences = 0
        """How many were found so far."""

    @property
    def refused(self) -> Mapping[Reason, int]:
        """Bytes that were no such message, by reason."""
        return self._codec.refused

    # What happens to the member.

    def settle(self) -> None:
        """Count what waits if it is much, in number or in bytes: nothing large is held on to between turns."""
        waiting = self.waiting
        if len(waiting) >= WAITING_MAX or len((waiting[-1].payloads or (b"",))[0]) > WAITING_BYTES_MAX:
            self.count()

    def count(self) -> None:
        """Count what has been shown."""
        add = self.delivered.add
        for batch in self.waiting:
            add(batch)
        self.waiting.clear()

    def enter(self, view: View, together: Sequence[MemberId]) -> None:
        """A view is shown: this member and those of `together` have closed the last one with the same cut."""
        self.count()
        for check in self._checks:
            check.is_over = True  # what it asks for, the end of the view has asked for
        self._checks.clear()
        self._askers.clear()
        self._markers.clear()
        self._behind.clear()
        self.owes_markers = False
        for closed in self._closed:
            closed.expected.intersection_update(together)
            closed.ask_again()
        if self._view is not None:
            self._closed.append(ClosedView(self._view, self.delivered, together))
        self._view, self.delivered = view, Delivered()
        for closed in self._closed:
            if len(closed.expected) < 2 or closed.examiner == self._me:
                continue
            if closed.sent_to.count(closed.examiner) < CLOSINGS_MAX:
                closed.sent_to.append(closed.examiner)
                places = tuple(LanePlace(*lane, *place) for lane, place in closed.delivered.places().items())
                self._send(closed.examiner, Closing(closed.view.id, places))
        self.has_work = True

    def pass_marker(self, marker: Marker) -> None:
        """A marker is shown, behind what was delivered so far."""
        view = self._view
        if view is None:
            return
        self.count()
        origin = view.members[marker.origin]
        is_total = marker.service is Service.TOTAL
        lane = TOTAL_LANE if is_total else (int(marker.service), marker.origin)
        place = self.delivered.place(lane)
        passed = Passed(view.id, marker.index, marker.origin, LanePlace(*lane, *place))
        self._markers[lane] = passed
        self._behind[lane, marker.origin] = marker.index
        for check in self._checks:
            check.passed(self._me, lane, (marker.origin, marker.index), place)
        if marker.asks and origin != self._me:
            self._askers[origin] = None
            self.owes_markers |= not is_total
            for earlier in self._markers.values():
                self._send(origin, earlier)
        for asker in self._askers:
            if asker != origin or not marker.asks:
                self._send(asker, passed)
        self.has_work = True

    def begin(self, view: View, services: Iterable[Service]) -> Checking:
        """Begin a check in the view that is shown, whose markers the member casts now."""
        lanes = {TOTAL_LANE} if Service.TOTAL in services else set()
        others = [service for service in services if service is not Service.TOTAL]
        lanes |= {(int(service), rank) for service in others for rank in range(len(view))}
        self._checks = [check for check in self._checks if not check.is_over]
        check = Checking(view, self._me, frozenset(lanes), self._behind)
        self._checks.append(check)
        return check

    def receive(self, sender: MemberId, data: bytes) -> None:
        """Of another member; it counts once this turn's deliveries and views are shown."""
        self._received.append((sender, data))
        self.has_work = True

    def work(self) -> None:
        """Look at what has come, and at what is complete now."""
        self.has_work = False
        self.count()
        received, self._received = self._received, []
        for sender, data in received:
            message = self._codec.decode(data, 0, self._members_max)
            if isinstance(message, Closing):
                closed = self._closed_view(message.view, sender)
                if closed is not None and all(is_lane((p.service, p.origin), closed.view) for p in message.places):
                    closed.places[sender] = {(p.service, p.origin): (p.messages, p.value) for p in message.places}
            elif isinstance(message, Passed):
                self._take_passed(sender, message)
            elif isinstance(message, Show):
                self._take_show(sender, message)
            elif isinstance(message, Marks):
                self._take_marks(sender, message)
            elif isinstance(message, Differs):
                self._take_differs(sender, message)
        for closed in self._closed:
            if not closed.is_over and len(closed.expected) > 1 and closed.examiner == self._me:
                others = {member: closed.places.get(member) for member in closed.expected if member != self._me}
                theirs = {member: places for member, places in others.items() if places is not None}
                if len(theirs) == len(others):
                    self._judge(closed, closed.delivered.places(), theirs)
        for check in self._checks:
            places = None if check.is_over else check.places(self._me)
            if places is not None:
                mine = places.pop(self._me)
                self._judge(check, mine, places)
        self._checks = [check for check in self._checks if not check.is_over]

    # Inside.

    def _judge(
        self, comparison: Comparison, mine: dict[Lane, Place], theirs: dict[MemberId, dict[Lane, Place]]
    ) -> None:
        asked = comparison.judge(self._me, mine, theirs)
        if asked is not None:
            member, lane = asked
            self._send(member, Show(comparison.view.id, *lane))

    def _closed_view(self, view: ViewId, sender: MemberId) -> ClosedView | None:
        return next((one for one in self._closed if one.view.id == view and sender in one.expected), None)

    def _delivered_in(self, view: ViewId) -> tuple[View, Delivered] | None:
        if self._view is not None and self._view.id == view:
            return self._view, self.delivered
        return next(((one.view, one.delivered) for one in self._closed if one.view.id == view), None)

    def _take_passed(self, sender: MemberId, message: Passed) -> None:
        place = message.place
        for check in self._checks:
            if check.view.id == message.view and sender in check.expected:
                lane = (place.service, place.origin)
                check.passed(sender, lane, (message.origin, message.number), (place.messages, place.value))

    def _take_show(self, sender: MemberId, message: Show) -> None:
        found = self._delivered_in(message.view)
        if found is not None and message.origin < len(found[0]):
            marks = found[1].marks((message.service, message.origin))
            self._send(sender, Marks(message.view, message.service, message.origin, marks))

    def _take_marks(self, sender: MemberId, message: Marks) -> None:
        lane = (message.service, message.origin)
        comparisons: list[Comparison] = [*self._closed, *self._checks]
        for comparison in comparisons:
            found = self._delivered_in(message.view)
            if found is None or comparison.view.id != message.view:
                continue
            differs = comparison.shown(sender, lane, found[1].marks(lane), message.marks)
            if differs is not None:
                for member in comparison.view.members:
                    if member in comparison.expected and member != self._me:
                        self._send(member, differs)
                comparison.differences = (self._tell(found[0], differs),)

    def _take_differs(self, sender: MemberId, message: Differs) -> None:
        found = self._delivered_in(message.view)
        named = [member for part in message.parts for member in part]
        concerned = set(named)
        if found is None or not {sender, self._me} <= concerned or not concerned <= set(found[0].members):
            return
        are_parts = len(message.parts) > 1 and all(message.parts) and len(named) == len(concerned)
        if are_parts and is_lane((message.service, message.origin), found[0]):
            self._tell(found[0], message)

    def _tell(self, view: View, differs: Differs) -> Diverged:
        """Tell the application, unless it knows."""
        lane = (differs.service, differs.origin)
        origin = None if lane == TOTAL_LANE else view.members[differs.origin]
        diverged = Diverged(view.id, differs.parts, origin, differs.alike, differs.differs_by)
        if (view.id, lane) not in self._told:
            self._told[view.id, lane] = None
            while len(self._told) > DIFFERENCES_MAX:
                del self._told[next(iter(self._told))]
            self.divergences += 1
            self.found.append(diverged)
        return diverged

    def _send(self, to: MemberId, message: Message) -> None:
        self.sends.append((to, TAG + self._codec.encode(message)))
