"""Understands rows once, for all checkers: whose, in which view, of which cast.

Rows come in any interleaving that keeps each member's own order, for example one member's whole trace after another's.
Checkers want every CAST before its deliveries. So a life whose next row delivers a message that was not seen cast yet waits,
with all its further rows, until that CAST comes, or until none can come any more. On a trace in the order of a
simulator's turns nothing ever waits.

Two kinds of trouble are recorded here, because all checkers must respect them. A **hole** in the local indices means that
rows are missing: nothing may be concluded from the absence of a row in that stay. And a row may name a view that its life
did not install last; it is then attributed to the stay that it names.

A history may also be an **excerpt**: the rows of one view alone. Its lives begin at any local index, and one that has installed
another view is complete as far as the excerpt goes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from unisono.trace import schema
from unisono.trace.checks.attributes import is_true, value_of
from unisono.trace.checks.model import (
    DATAGRAM,
    KEPT,
    PLACED,
    TOTAL,
    Cast,
    DeliveredPart,
    Life,
    MemberList,
    Stay,
    ViewPassage,
)
from unisono.trace.checks.spans import Spans
from unisono.trace.evidence import EVIDENCE, MESSAGES, Evidence, not_judged
from unisono.trace.promises import SERVICES, Orders, is_committed, order_of, unknown_in, unordered_in
from unisono.trace.schema import Event


class History:
    """The books of one run of one group."""

    def __init__(self, excerpt: str | None = None, begins: Mapping[str, int] | None = None) -> None:
        """`excerpt`: the one view whose rows are given; None: whole lives. `begins`: by life, its first row there."""
        self._excerpt = excerpt
        self._begins = begins or {}
        self.lives: dict[tuple[str | None, int | None], Life] = {}
        self.numbered: list[Life] = []
        self.by_name: dict[str, Life] = {}
        self.memberships: dict[tuple[str, tuple[str, ...]], MemberList] = {}
        self.memberships_by_id: dict[str, MemberList] = {}
        self.orders = Orders()
        self.safe_views: set[str] = set()
        """Views with safe messages: their vectors count what still waits to become safe, too (P8c)."""
        self.recorded: set[str] = set()
        """Properties that can be judged by some row (`evidence`)."""
        self.has_messages = False
        self._wanted: dict[str, list[Evidence]] = {}  # by kind of row
        for one in EVIDENCE:
            for kind in one.kinds:
                self._wanted.setdefault(kind, []).append(one)
        self._listeners: dict[str, list[Callable[..., None]]] = {
            name: [] for name in ("row", "view", "cast", "deliver", "place", "end")
        }
        self._on_row = self._listeners["row"]
        self._on_deliver = self._listeners["deliver"]
        self._on_place = self._listeners["place"]
        self._awake: deque[Life] = deque()  # lives whose CAST may have come
        self._finished = False
        self._transitions: list[ViewPassage] | None = None
        self._take: dict[str, Callable[[Life, Event], None]] = {
            schema.VIEW: self._view,
            schema.CAST: self._cast,
            schema.DELIVER: self._deliver,
            schema.PLACE: self._deliver,
            schema.BLOCK: self._block,
            **dict.fromkeys(schema.ENDINGS, self._end),
        }

    def listen(self, what: str, handler: Callable[..., None]) -> None:
        self._listeners[what].append(handler)

    def observe(self, event: Event) -> None:
        """Take in one row."""
        life = self.lives.get((event.member, event.incarnation))
        if life is None:
            life = self._life(event.member, event.incarnation)
        if life.backlog or self._must_wait(life, event):
            life.backlog.append(event)
            if event.kind == schema.CAST:
                life.coming.add(event.first, event.first + event.count)  # type: ignore[operator,arg-type]
            return
        self._book(life, event)
        while self._awake:
            self._drain(self._awake.popleft())

    def finish(self) -> None:
        """No more rows will come: those that still wait for a CAST go on without it."""
        if self._finished:
            return
        self._finished = True
        while waiting := [life for life in self.numbered if life.backlog]:
            life = self._first_to_give_up(waiting)
            self._stop_waiting(life)
            self._book(life, life.backlog.popleft())
            self._drain(life)
            while self._awake:
                self._drain(self._awake.popleft())

    def transitions(self) -> list[ViewPassage]:
        """All (V→V') of the run, once it is finished; stays with missing rows belong to none."""
        if self._transitions is None:
            assert self._finished
            ways: dict[tuple[str, str | None, frozenset[str]], list[Stay]] = {}
            for life in self.lives.values():
                for stay in life.stays.values():
                    if stay.rank is None or stay.holed or not stay.installed:
                        continue
                    if stay.next_view is not None or (life.ending == schema.END and stay is life.stay):
                        together = frozenset(stay.transitional or ())
                        ways.setdefault((stay.id, stay.next_view, together), []).append(stay)
            self._transitions = [
                ViewPassage(view, next_view, sorted(stays, key=lambda stay: stay.life.name), _is_cut(next_view, stays))
                for (view, next_view, _), stays in ways.items()
            ]
            self._transitions.sort(key=lambda transition: (transition.view, transition.stays[0].life.name))
        return self._transitions

    def unknown(self) -> dict[str, str]:
        """The lives of which something is missing, each with the reason; members of views without a trace too."""
        lives = {life.name: life.unknown for life in self.lives.values() if life.rows}
        for membership in self.memberships.values():
            if self._excerpt not in (None, membership.id):
                continue
            for name in membership.members:
                lives.setdefault(name, "there is no trace of it")
        return {name: reason for name, reason in sorted(lives.items()) if reason is not None}

    def doubts(self, of_orders: bool) -> dict[str, str]:
        """Lives whose rows are all there, but do not tell enough to pass; `of_orders`: what the orders of views owe counts.

        An order that owes P8c stamps its casts with vectors. Without them nothing is compared, and nothing is shown.
        """
        doubts: dict[str, str] = {}
        for life in self.numbered:
            if of_orders:
                for stay in life.stays.values():
                    reason = None if stay.order is None else unknown_in(stay.order, stay.id)
                    if reason is not None and self._excerpt in (None, stay.id):
                        doubts.setdefault(life.name, reason)
                    reason = None if self._excerpt is not None else self._untold(stay)
                    if reason is not None:
                        doubts.setdefault(life.name, reason)
                for view, local in life.unstamped.items():
                    if "P8c" in self.orders.owed_in(view):
                        reason = (
                            f"its CAST (local {local}) has no vector that could be compared with what it had delivered"
                        )
                        doubts.setdefault(life.name, reason)
            if (
                self._excerpt is not None and life.uncast is not None
            ):  # in whole lives, P1 tells or the origin is unknown
                doubts.setdefault(life.name, f"its row {life.uncast} is of a message that no row of the view casts")
            if life.undigested is not None:
                reason = f"its DELIVER (local {life.undigested}) has no digest that could be compared with its CAST's"
                doubts.setdefault(life.name, reason)
        return doubts

    def _untold(self, stay: Stay) -> str | None:
        """What the order of a view owes, and the rows of a stay, or of the whole run, do not tell."""
        order = stay.order or ""
        if reason := not_judged(order, self.recorded, self.has_messages):
            return reason
        for (view, service), local in stay.life.uncommitted.items():
            if view == stay.id and is_committed(order, service):
                return f"its CAST (local {local}) names no transaction, although the order of view {view} commits in two phases"
        for (view, service), local in stay.life.unordered.items():
            if view == stay.id and unordered_in(order, service):
                return f"its row {local} is of the service {service!r}, and P9 and P10 judge the service {schema.TOTAL!r} alone"
        return None

    def notes(self) -> Iterator[str]:
        """What a reader of a verdict should know besides."""
        for life in sorted(self.numbered, key=lambda life: life.name):
            if life.backwards is not None:
                yield clock_note(life.name, life.backwards)
        alone = () if "P10" in self.orders.owed else sorted(self._alone())
        if alone:
            yield alone_note(f"{who} in {view}" for who, view in alone)
        cut = [life.name for life in self.numbered if (life.ending, life.ending_reason) == (schema.END, schema.CUT)]
        if cut:
            yield cut_note(cut)

    def _alone(self) -> Iterator[tuple[str, str]]:
        """Lives that left a view of several members, or crashed in it, or went on from it without any other."""
        for life in self.numbered:
            for stay in life.stays.values():
                went_alone = stay.next_view is not None and frozenset(stay.transitional or ()) == {life.name}
                ended = stay is life.stay and life.ending in (schema.LEAVE, schema.CRASH)
                if stay.installed and len(stay.view.members) > 1 and (went_alone or ended):
                    yield life.name, stay.id

    # Waiting for casts.

    def _must_wait(self, life: Life, event: Event) -> bool:
        if event.kind != schema.DELIVER and event.kind != schema.PLACE:
            return False
        origin = self.lives.get((event.origin, event.origin_incarnation))
        if origin is None:
            origin = self._life(event.origin, event.origin_incarnation)
        end: int = event.first + event.count  # type: ignore[operator]  # the schema demands both
        if origin.cast_end >= end or origin is life or origin.settled:
            return False
        life.waits_for = origin
        origin.waiters.append(life)
        return True

    def _drain(self, life: Life) -> None:
        """Book what waited, as far as it goes now."""
        backlog = life.backlog
        self._stop_waiting(life)
        while backlog and not self._must_wait(life, backlog[0]):
            self._book(life, backlog.popleft())

    def _stop_waiting(self, life: Life) -> None:
        if life.waits_for is not None:
            if life in life.waits_for.waiters:
                life.waits_for.waiters.remove(life)
            life.waits_for = None

    def _wake(self, origin: Life) -> None:
        self._awake.extend(origin.waiters)
        origin.waiters.clear()

    def _first_to_give_up(self, waiting: list[Life]) -> Life:
        """Find a life that waits in vain: its CAST is in no backlog, or the waits form a circle."""
        life = waiting[0]
        seen = set()
        while life not in seen:
            seen.add(life)
            origin, event = life.waits_for, life.backlog[0]
            assert origin is not None
            first: int = event.first  # type: ignore[assignment]
            parts = origin.cast_of(first, first + event.count)  # type: ignore[operator]
            if not any(cast is None and origin.coming.inside(low, high) for low, high, cast in parts):
                origin.settled = not origin.backlog
                return life
            life = origin
        return life

    # Booking rows.

    def _book(self, life: Life, event: Event) -> None:
        index = event.local_index
        if self._excerpt is not None and not life.rows:
            life.next_index = self._begins.get(life.name, index)
        if index > life.next_index:
            self._hole(life, index)
        for handle in self._on_row:
            handle(life, event)
        if event.protocol != life.protocol:
            life.protocol = event.protocol
            self.orders.add(event)
        if event.kind not in schema.DATED_BACK:
            if event.time_ns < life.time_ns and life.backwards is None:
                life.backwards = index
            life.time_ns = event.time_ns
        life.rows += 1
        life.next_index = index + 1
        if wanted := self._wanted.get(event.kind):
            self._look_for(wanted, event)
        if event.kind in KEPT:
            life.kept.append(event)
        take = self._take.get(event.kind)
        if take is not None:
            take(life, event)

    def _look_for(self, wanted: list[Evidence], event: Event) -> None:
        for one in [one for one in wanted if one.shows(event)]:
            wanted.remove(one)
            self.recorded |= one.properties
        self.has_messages |= event.kind in MESSAGES

    def _hole(self, life: Life, index: int) -> None:
        if life.hole is None:
            life.hole = (life.next_index, index)
        if life.stay is not None:
            life.stay.holed = True

    def _view(self, life: Life, event: Event) -> None:
        assert event.view is not None
        assert event.members is not None
        key = (event.view, event.members)
        membership = self.memberships.get(key)
        if membership is None:
            membership = self.memberships[key] = MemberList(*key)
            self.memberships_by_id.setdefault(event.view, membership)
        before = life.stay
        stay = Stay(life, membership, order_of(event))
        self.orders.add(event)
        for handle in self._listeners["view"]:
            handle(stay, event)
        if before is not None:
            before.next_view = event.view
            before.transitional = event.transitional
        life.stay = stay
        life.stays.setdefault(event.view, stay)
        if self._excerpt is not None and event.view != self._excerpt:
            life.is_complete = life.settled = True
            if life.waiters:
                self._wake(life)

    def _cast(self, life: Life, event: Event) -> None:
        stay = life.stay
        if stay is None or stay.id != event.view:
            stay = self._other_stay(life, event)
        cast = Cast(life, stay, event)
        for handle in self._listeners["cast"]:
            handle(cast, event)
        life.add_cast(cast)
        if is_true(event, "safe"):
            self.safe_views.add(cast.view)
        if event.transaction is None:
            life.uncommitted.setdefault((cast.view, event.service), event.local_index)
        if event.service not in SERVICES:
            life.unordered.setdefault((cast.view, event.service), event.local_index)
        if value_of(event, "vector") is None:
            life.unstamped.setdefault(cast.view, event.local_index)
        if life.waiters:
            self._wake(life)

    def _deliver(self, life: Life, event: Event) -> None:
        stay = life.stay
        if stay is None or stay.id != event.view:
            stay = self._other_stay(life, event)
        if event.service not in SERVICES:
            life.unordered.setdefault((stay.id, event.service), event.local_index)
        origin = self.lives[event.origin, event.origin_incarnation]
        first: int = event.first  # type: ignore[assignment]
        end: int = first + event.count  # type: ignore[operator]
        cast = origin.casts.get(first)
        if cast is not None and cast.end == end:
            self._deliver_part(stay, origin, first, end, cast, event)
        else:
            for low, high, part in list(origin.cast_of(first, end)):
                self._deliver_part(stay, origin, low, high, part, event)

    def _deliver_part(self, stay: Stay, origin: Life, first: int, end: int, cast: Cast | None, event: Event) -> None:
        rank = stay.view.ranks.get(origin.name)
        slot = rank if cast is None or cast.view == stay.id else None
        following = stay.next
        if slot is not None and following[slot] < 0:
            following[slot] = origin.starts.get(stay.id, first)
        delivery = DeliveredPart(stay, origin, rank, first, end, cast, event)
        mark = _MARKS.get(event.service or "", 0)
        if event.kind == schema.DELIVER:
            for handle in self._on_deliver:
                handle(delivery)
            if cast is not None and stay.life.undigested is None and not is_comparable(cast, event):
                stay.life.undigested = event.local_index
        else:
            for handle in self._on_place:
                handle(delivery)
            mark |= PLACED
            if is_void(event):
                stay.voids.setdefault(origin.number, Spans()).add(first, end)
        if cast is None:
            stay.life.uncast = event.local_index if stay.life.uncast is None else stay.life.uncast
            stay.strange = True  # it is unknown where this origin's messages of the view begin
        if slot is None:
            stay.strange = True
        elif first == following[slot]:
            following[slot] = stay.early[slot].drop_below(end) if slot in stay.early else end
        elif first > following[slot]:
            stay.early.setdefault(slot, Spans()).add(first, end)
        else:
            stay.strange = True
        whole = cast is not None and end - first == cast.end - cast.first
        stay.spans.append(cast.span if whole else (origin.number, first, end))  # type: ignore[union-attr]
        stay.locals.append(event.local_index)
        stay.marks.append(mark)
        stay.totals += (mark & TOTAL) >> 1

    def _block(self, life: Life, event: Event) -> None:
        if life.stay is not None and life.stay.block is None:
            life.stay.block = len(life.stay.spans)

    def _end(self, life: Life, event: Event) -> None:
        for handle in self._listeners["end"]:
            handle(life, event)
        if life.ending is None:
            life.ending = event.kind
            life.ending_reason = event.reason
        life.settled = True
        if life.waiters:
            self._wake(life)

    # Finding and making.

    def _life(self, address: str | None, incarnation: int | None) -> Life:
        assert address is not None
        assert incarnation is not None
        life = Life(address, incarnation, len(self.numbered))
        self.lives[address, incarnation] = life
        self.numbered.append(life)
        self.by_name[life.name] = life
        return life

    def _other_stay(self, life: Life, event: Event) -> Stay:
        """The stay that a row names although its life installed another view last, or none."""
        assert event.view is not None
        stay = life.stays.get(event.view)
        if stay is None:
            membership = self.memberships_by_id.get(event.view) or MemberList(event.view, ())
            stay = life.stays[event.view] = Stay(life, membership, None)
            stay.holed = True
        return stay


_MARKS = {schema.TOTAL: TOTAL, schema.DATAGRAM: DATAGRAM}


def is_void(event: Event) -> bool:
    """Whether a PLACE row stands for a message addressed to this member whose payload no member holds any more."""
    return event.attributes is not None and event.attributes.get("void") == "true"


def clock_note(who: str, local: int) -> str:
    return f"{who}: its clock runs backwards (first at local {local})."


def alone_note(stays: Iterable[str]) -> str:
    return f"ended or went on alone: {', '.join(stays)}; what it delivered there was compared with no other member's."


def cut_note(names: Iterable[str]) -> str:
    return f"cut at the end: {', '.join(sorted(names))}; P4, P5 and P14 do not ask for what was under way there."


def is_comparable(cast: Cast, event: Event) -> bool:
    """Whether the payloads of a DELIVER row can be held against its CAST: a digest is that of a whole batch."""
    is_alike = cast.first == event.first and cast.end - cast.first == event.count
    return is_alike and cast.digest is not None and event.digest is not None


def _is_cut(next_view: str | None, stays: list[Stay]) -> bool:
    return next_view is None and all(stay.life.ending_reason == schema.CUT for stay in stays)
