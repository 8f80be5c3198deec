"""Members compare what they delivered: at every view change, and when an application asks.

| message | from → to            | meaning                                                                          |
|---------|----------------------|----------------------------------------------------------------------------------|
| Closing | companion → examiner | how far each lane was when that view ended here (see `views.delivered`)          |
| Passed  | member → asker       | how far a lane was here at this marker                                           |
| Show    | examiner → member    | asks for the marks of that lane                                                  |
| Marks   | member → examiner    | the marks of that lane                                                           |
| Differs | examiner → all       | the members of these parts delivered different messages, and where that begins   |

All of them travel beside the order (`Member.send`), reliably while a view lasts.

**At a view change.** The *companions* of a closed view are the members that have come along from it together ever since. The one
with the lowest rank is the *examiner*: each of the others sends it one `Closing`. If all are equal, nothing more happens. The next
view may end before they have arrived, so they are sent again in the one after it, and to another examiner if this one is gone; all
companions agree on it.

**On demand.** The asker casts a *marker* in each service: a batch to no recipient, which has its place in the order and is shown
to no application. In services other than `total` every member has a lane of its own, so every member that is shown such a marker
casts one too. At each marker, every member sends `Passed` to all that have asked in this view. A check is over when, for
each lane, all members have passed one marker that the asker was shown. So everything that the asker had delivered when it
asked is compared.

**A difference.** The examiner, or asker, takes the first lane that differs, asks one member on the other side for its marks, and
tells all members concerned. It does not judge who is right.

What is compared is what the member puts into its application's stream, read or not. Every member begins anew with each view, so one
that has joined compares from its first view on. Members that leave, and those that closed the view with another cut, do not take
part. Sans-IO: `receive` queues, `work` acts, and the member takes `sends` and `found` once a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from unisono.core.config import Config
from unisono.core.markers import Marker
from unisono.core.member.events import Diverged
from unisono.core.types import Batch, MemberId, Service, View, ViewId
from unisono.core.views import TOTAL_LANE, DeliveredLanes, Lane, LaneMark, Place, differing_lanes, first_difference
from unisono.core.wire import ALL, ROW, TEXT, U8, U16, U64, Codec, Layout, Reason
from unisono.core.wire.fields import Bound, Many

TAG = b"="
"""The first byte of these messages, among all that members send beside the order."""
WAITING_MAX = 32
"""Batches wait until this many are counted together …"""
WAITING_BYTES_MAX = 4_096
"""… or until one has a message larger than this."""
CLOSED_VIEWS_MAX = 4
"""Maximum number of closed views that are still compared."""
CLOSINGS_MAX = 2
"""Maximum number of times that one examiner is told of a view."""
MARKERS_A_LANE_MAX = 16
"""Maximum number of markers in a check; more from a peer are ignored."""
DIFFERENCES_MAX = 64
"""Maximum number of differences that are remembered, so that none is told twice."""


class Check(NamedTuple):
    """The result of `check`."""

    view: ViewId
    members: tuple[MemberId, ...]
    """The members that were compared: all of the view."""
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
    marks: tuple[LaneMark, ...]


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
    Layout(0x93, Marks, (_VIEW, U8, U16, ALL(ROW(U64, U64, U64, type=LaneMark)))),
    Layout(0x94, Differs, (_VIEW, Many(_MEMBERS, Bound.MEMBERS), U8, U16, U64, U64)),
)


# The work.


def is_lane(lane: Lane, view: View) -> bool:
    """Whether members of a view compare this lane; a peer can name anything."""
    service, origin = lane
    return lane == TOTAL_LANE or (service in _IN_LANES and origin < len(view))


_IN_LANES = frozenset(int(service) for service in Service) - {int(Service.TOTAL), int(Service.DATAGRAM)}


class Comparison:
    """One comparison of members: finds which of them differ, and where."""

    def __init__(self, view: View, expected: Iterable[MemberId]) -> None:
        self.view = view
        self.expected = set(expected)
        self.differences: tuple[Diverged, ...] = ()
        self.is_over = False
        """What differs is known, or never will be."""
        self.is_answered = False
        """What differs is known."""
        self._asked: tuple[MemberId, Lane] | None = None  # the member that was asked to show its marks
        self._parts: tuple[tuple[MemberId, ...], ...] = ()

    def conclude(self) -> None:
        """What differs is known."""
        self.is_over = self.is_answered = True

    def ask_again(self) -> None:
        """A view has ended, and with it its streams: the question or its answer may be lost."""
        self._asked = None

    def judge(
        self, me: MemberId, mine: dict[Lane, Place], theirs: Mapping[MemberId, dict[Lane, Place]]
    ) -> tuple[MemberId, Lane] | None:
        """Judge, now that the places of all are known. Returns the member that must show its marks, and of which lane."""
        asked = self._asked
        if asked is not None and asked[0] in self.expected:
            return None  # it will answer
        differing = {member: differing_lanes(mine, places) for member, places in theirs.items()}
        lanes, other = min(((lanes, member) for member, lanes in differing.items() if lanes), default=([], me))
        if not lanes:
            self.conclude()
            return None
        parts: dict[tuple[tuple[Lane, Place], ...], list[MemberId]] = {}
        for member in self.view.members:
            places = mine if member == me else theirs.get(member)
            if places is not None:
                parts.setdefault(tuple(sorted(places.items())), []).append(member)
        self._parts = tuple(tuple(part) for part in sorted(parts.values(), key=len, reverse=True))
        self._asked = other, lanes[0]
        return self._asked

    def shown(
        self, sender: MemberId, lane: Lane, mine: Sequence[LaneMark], theirs: Sequence[LaneMark]
    ) -> Differs | None:
        """A member shows its marks. Returns the message for all members concerned."""
        if self.is_over or self._asked != (sender, lane):
            return None
        alike, differs_by = first_difference(mine, theirs)
        self.conclude()
        return Differs(self.view.id, self._parts, *lane, alike, differs_by)


class ClosedView(Comparison):
    """The comparison of a view that has ended here."""

    def __init__(self, view: View, delivered: DeliveredLanes, companions: Iterable[MemberId]) -> None:
        super().__init__(view, companions)
        self.delivered = delivered
        self.places: dict[MemberId, dict[Lane, Place]] = {}
        self.sent_to: list[MemberId] = []

    @property
    def examiner(self) -> MemberId:
        """The companion that compares for all: the lowest in rank."""
        return next(member for member in self.view.members if member in self.expected)


class Checking(Comparison):
    """The comparison that an application waits for, from its own marker on."""

    def __init__(
        self, view: View, me: MemberId, lanes: frozenset[Lane], behind: Mapping[tuple[Lane, int], int]
    ) -> None:
        """`behind`: by lane and origin, the last marker that was shown before the check began.

        That marker and those before it say nothing about what was delivered since.
        """
        super().__init__(view, view.members)
        self._rank = view.members.index(me)
        self.lanes = lanes
        self._behind = dict(behind)
        self._passed: dict[tuple[Lane, int, int], dict[MemberId, Place]] = {}  # by lane and marker

    def abandon(self) -> None:
        """The application no longer waits."""
        self.is_over = True

    def passed(self, member: MemberId, lane: Lane, marker: tuple[int, int], place: Place) -> None:
        """Take note of how far a lane was at a member when it passed a marker."""
        origin, number = marker
        if lane not in self.lanes or number <= self._behind.get((lane, origin), -1):
            return
        # All members may check at once: their markers leave room for the own ones, which all answer.
        alike = sum((known == self._rank) == (origin == self._rank) for _, known, _ in self._passed)
        if (lane, *marker) in self._passed or alike < MARKERS_A_LANE_MAX * len(self.lanes):
            self._passed.setdefault((lane, *marker), {})[member] = place

    def places(self, me: MemberId) -> dict[MemberId, dict[Lane, Place]] | None:
        """How far all lanes were at each member; None: not known yet. Only markers that this member has passed count."""
        found: dict[MemberId, dict[Lane, Place]] = {member: {} for member in self.expected}
        for (lane, *_), places in self._passed.items():
            if me in places and self.expected <= places.keys():
                for member in self.expected:
                    found[member][lane] = places[member]
        return found if len(found[me]) == len(self.lanes) else None

    def missing(self, me: MemberId) -> tuple[MemberId, ...]:
        """The members that have not passed a marker that this member has passed."""
        mine = [places for places in self._passed.values() if me in places]
        return tuple(m for m in self.view.members if any(m not in places for places in mine))


class Comparer:
    """The part of a member that compares; the module's docstring specifies it."""

    def __init__(self, me: MemberId, config: Config) -> None:
        self._me = me
        self._codec = Codec(WIRE, config)
        self._members_max = config.members_max
        self._view: View | None = None  # that was shown last
        self.delivered = DeliveredLanes()
        """What was shown in the current view, except for what waits to be counted."""
        self.waiting: list[Batch] = []
        """Batches shown and not yet counted: counting many at once takes less time."""
        self._closed: deque[ClosedView] = deque(maxlen=CLOSED_VIEWS_MAX)
        self._checks: list[Checking] = []
        self._askers: dict[MemberId, None] = {}  # in this view
        self._markers: dict[Lane, Passed] = {}  # the latest of each lane
        self._behind: dict[tuple[Lane, int], int] = {}  # by lane and origin: the last marker that was shown
        self.owes_markers = False
        """Another member checks in a service that is not total: this one must cast a marker in each such service."""
        self._received: list[tuple[MemberId, bytes]] = []
        self._told: dict[tuple[ViewId, Lane], None] = {}
        self.has_work = False
        self.sends: list[tuple[MemberId, bytes]] = []
        self.found: list[Diverged] = []
        """Differences that the application must be told."""
        self.divergences = 0
        """How many differences were found so far."""

    @property
    def refused(self) -> Mapping[Reason, int]:
        """Data that could not be decoded, by reason."""
        return self._codec.refused

    def take_sends(self) -> list[tuple[MemberId, bytes]]:
        """What is to be sent, to whom; each is told once."""
        sends, self.sends = self.sends, []
        return sends

    def take_found(self) -> list[Diverged]:
        """The differences that the application must be told; each is told once."""
        found, self.found = self.found, []
        return found

    # What happens to the member.

    def markers_cast(self) -> None:
        """The markers that other members' checks wait for are cast."""
        self.owes_markers = False

    def limit_waiting(self) -> None:
        """Count what waits if it is much, in number or in bytes, so that nothing large is kept between turns."""
        waiting = self.waiting
        if len(waiting) >= WAITING_MAX or len((waiting[-1].payloads or (b"",))[0]) > WAITING_BYTES_MAX:
            self.count()

    def count(self) -> None:
        """Count what has been shown."""
        add = self.delivered.add
        for batch in self.waiting:
            add(batch)
        self.waiting.clear()

    def end_view(self) -> None:
        """The current view ends: what is shown of it now is as its cut says, and others may have closed it with another one."""
        for check in self._checks:
            check.abandon()  # members that came along together compare the whole view

    def enter(self, view: View, together: Sequence[MemberId]) -> None:
        """A view is shown. The members of `together` have closed the last one with the same cut as this member."""
        self.count()
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
        self._view, self.delivered = view, DeliveredLanes()
        for closed in self._closed:
            if len(closed.expected) < 2 or closed.examiner == self._me:
                continue
            if closed.sent_to.count(closed.examiner) < CLOSINGS_MAX:
                closed.sent_to.append(closed.examiner)
                places = tuple(LanePlace(*lane, *place) for lane, place in closed.delivered.places().items())
                self._send(closed.examiner, Closing(closed.view.id, places))
        self.has_work = True

    def pass_marker(self, marker: Marker) -> None:
        """A marker is shown behind what was delivered so far: tell those that asked, and note it for own checks."""
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
        """Begin a check in the view that is shown; the member casts its markers now."""
        lanes = {TOTAL_LANE} if Service.TOTAL in services else set()
        others = [service for service in services if service is not Service.TOTAL]
        lanes |= {(int(service), rank) for service in others for rank in range(len(view))}
        self._checks = [check for check in self._checks if not check.is_over]
        check = Checking(view, self._me, frozenset(lanes), self._behind)
        self._checks.append(check)
        return check

    def receive(self, sender: MemberId, data: bytes) -> None:
        """Take a message of another member; it is looked at once this turn's deliveries and views are shown."""
        self._received.append((sender, data))
        self.has_work = True

    def work(self) -> None:
        """Look at the messages received, and judge each comparison that is complete."""
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

    def _delivered_in(self, view: ViewId) -> tuple[View, DeliveredLanes] | None:
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
        """Tell the application, unless it was told before."""
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
