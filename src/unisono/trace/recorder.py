"""The recorder: what a member's turns looked like, as events of a trace.

It stands around a driver's turn: after `drain` and before anything is sent, the driver hands it the notes of the turn.
It counts what only an onlooker should count (`local_index`, `ordinal`, the frontier), so that a faulty protocol cannot
vouch for itself.

It never raises into the group because a disk is full. A write that fails is a **gap**: the rows' local indices are used
up, so that everyone who reads the trace sees the hole, and the verdict on this member is UNKNOWN. Later writes are tried
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unisono.core.outbox import Note, NoteKind
from unisono.core.types import Batch, MemberId, Service, View, ViewId
from unisono.trace import schema
from unisono.trace.promises import PROMISES
from unisono.trace.schema import Event, TraceError, attribute, member_name
from unisono.trace.shown import Shown, ShownTotals
from unisono.trace.sinks import Sink
from unisono.trace.state_line import Offered, StateLine


class Recorder:
    """Records one member: one life of the process at one address."""

    def __init__(self, run: str, group: str, protocol: str, member: MemberId, clock: str, sink: Sink) -> None:
        if "#" in member.address:
            raise TraceError(f"the address {member.address!r} contains '#', which separates address and incarnation.")
        if clock not in schema.CLOCKS:
            raise TraceError(f"clock must be real or simulated, not {clock!r}.")
        self.run, self.group, self.protocol, self.member, self.clock = run, group, protocol, member, clock
        self.sink = sink
        self.gaps = 0
        """How many rows could not be written."""
        self.first_error: OSError | None = None
        self._local_index = 0
        self._view: str | None = None
        self._members: tuple[MemberId, ...] = ()
        self._rank = -1
        self._names: tuple[str, ...] = ()
        self._frontier: list[int] = []  # by rank: messages delivered here in this view
        self._ordinals: dict[str, int] = {}  # by service
        # Services whose batches are committed in two phases, each a transaction.
        self._committed = _committed(protocol)
        # What ORDERED said of a batch, by (rank, first), until its DELIVER.
        self._ordered: dict[tuple[int, int], tuple[int | None, dict[str, str] | None]] = {}
        # What the application was shown. Its view may be older than the member's while a state is transferred.
        self._shown_view: str | None = None
        self._shown_names: tuple[str, ...] = ()
        self._shown = ShownTotals()
        self._is_restored = False  # its state was replaced since it was shown that view
        self.line: StateLine | None = None
        """What follows the messages in the state, for P19; set by `follow_state`."""

    def turn(self, now_ns: int, notes: Iterable[Note]) -> None:
        """Record what happened in one turn, in that order. Call it before the turn's datagrams leave."""
        events: list[Event] = []
        for note in notes:
            kind = note.kind
            if kind is NoteKind.VIEW:
                events.append(self._install(now_ns, note))
            elif kind is NoteKind.VOTE or kind is NoteKind.DECIDE:
                events.append(self._decision(now_ns, note))
            elif note.batch is not None:
                events.append(self._message(now_ns, note, note.batch))
            else:
                events.append(self._event(now_ns, kind.value, attributes=_attributes(note.attributes)))
        self._write(events)

    # What only the harness around the member knows.

    def join(self, now_ns: int) -> None:
        self._write([self._event(now_ns, schema.JOIN)])

    def leave(self, now_ns: int, reason: str | None = None) -> None:
        self._write([self._event(now_ns, schema.LEAVE, reason=reason)])

    def crash(self, now_ns: int, reason: str | None = None) -> None:
        self._write([self._event(now_ns, schema.CRASH, reason=reason)])

    def end(self, now_ns: int, reason: str | None = None) -> None:
        """The run is over and this member was still in it. The reason `cut`: messages were still under way."""
        self._write([self._event(now_ns, schema.END, reason=reason)])

    def suspect(self, now_ns: int, suspected: MemberId, reason: str | None = None) -> None:
        attributes = {"suspected": member_name(*suspected)}
        self._write([self._event(now_ns, schema.SUSPECT, reason=reason, attributes=attributes)])

    def pause(self, now_ns: int, reason: str | None = None) -> None:
        self._write([self._event(now_ns, schema.PAUSE, reason=reason)])

    def heal(
        self, now_ns: int, reason: str | None = None, bound_ns: int | None = None, component: str | None = None
    ) -> None:
        """The network is whole again; within the bound this member's component comes to rest (P22)."""
        told = {"bound_ns": bound_ns, "component": component}
        known = {name: value for name, value in told.items() if value is not None}
        self._write([self._event(now_ns, schema.HEAL, reason=reason, attributes=_attributes(known))])

    def drop(self, now_ns: int, reason: str, attributes: Mapping[str, object] | None = None) -> None:
        """A packet or datagram was refused here, for this reason."""
        self._write([self._event(now_ns, schema.DROP, reason=reason, attributes=_attributes(attributes))])

    def counters(self, now_ns: int, counters: Mapping[str, object]) -> None:
        """Note the driver's current counters: packets, bytes, queues, windows."""
        self._write([self._event(now_ns, schema.COUNTERS, attributes=_attributes(counters))])

    def snapshot(self, now_ns: int, kind: str, view: str, service: str, ordinal: int, value: str) -> None:
        """A state was given away or taken over (SNAPSHOT_OUT, SNAPSHOT_IN): P19 says what the value is."""
        name = "chain" if service == schema.TOTAL else "digest"
        event = self._event(now_ns, kind, attributes={name: value})
        event.view, event.service, event.ordinal = view, service, ordinal
        self._write([event])

    # What the application is shown or told. Call these when the event is put into its stream, after the turn's notes.

    def show_batch(self, batch: Batch) -> None:
        """Count a batch that the application is shown in its view. Writes nothing."""
        if batch.to is None and batch.payloads is not None and batch.service is not Service.DATAGRAM:
            origin, is_total = self._shown_names[batch.origin], batch.service is Service.TOTAL
            self._shown.add(origin, batch.first, batch.count, _signed(batch.digest), is_total)

    def show_transition(self, now_ns: int, together: Iterable[MemberId], is_primary: bool) -> None:
        """The view that the application was shown last ends."""
        told = {"together": _names(together), "primary": is_primary, **_totals(self._shown.told())}
        event = self._event(now_ns, schema.TRANSITION, attributes=_attributes(told))
        event.view = self._shown_view
        self._write([event])

    def show_view(
        self,
        now_ns: int,
        view_id: ViewId,
        members: Iterable[MemberId],
        together: Iterable[MemberId],
        joined: Iterable[MemberId],
        left: Iterable[MemberId],
        is_primary: bool,
    ) -> None:
        """The application is shown a view; from here on its batches are counted anew."""
        told: dict[str, object] = {} if self._shown_view is None else {"previous": self._shown_view}
        told |= {"together": _names(together), "joined": _names(joined), "left": _names(left), "primary": is_primary}
        if self._shown_view is not None:
            told |= _totals(self._shown.told())
        if self._is_restored:
            told["restored"] = True
        event = self._event(now_ns, schema.SHOW, attributes=_attributes(told))
        event.view, event.members = str(view_id), tuple(str(member) for member in members)
        self._shown_view, self._shown_names = event.view, event.members
        self._shown, self._is_restored = ShownTotals(), False
        self._write([event])

    def show_state(
        self, now_ns: int, source: ViewId | None, replaced: bool, parts: Iterable[ViewId | None] = ()
    ) -> None:
        """The application's state was replaced by that of the part which came from `source`; None: a joiner's first state.

        `replaced`: a state of its own is thrown away. `parts`: the views that the parts came from.
        """
        told: dict[str, object] = {} if source is None else {"source": str(source)}
        told |= {"replaced": replaced, "parts": [str(part) for part in parts if part is not None]}
        self._is_restored = True
        self._write([self._event(now_ns, schema.STATE, attributes=_attributes(told))])

    def show_receipt(
        self, now_ns: int, stage: str, first: int, count: int, outcome: str, known: Iterable[MemberId] = ()
    ) -> None:
        """The application is told how far own messages have come: `stage` is one of STAGES, `outcome` is ok or uncertain."""
        told: dict[str, object] = {"stage": stage, "outcome": outcome}
        if outcome == schema.UNCERTAIN:
            told["known"] = _names(known)
        event = self._event(now_ns, schema.RECEIPT, attributes=_attributes(told))
        event.origin, event.origin_incarnation = self.member
        event.first, event.count = first, count
        self._write([event])

    def follow_state(self, offered: Offered) -> StateLine:
        """Hash every message that is delivered from now on, so that snapshots can be judged. It costs a hash a message.

        `offered`: what the recorders of one run share, so that nothing of it has to travel with the snapshots.
        """
        self.line = StateLine(self, offered)
        return self.line

    # Notes to events. Indices are taken here, so that a row that is not written leaves a visible hole.

    def _event(
        self, now_ns: int, kind: str, reason: str | None = None, attributes: dict[str, str] | None = None
    ) -> Event:
        index = self._local_index
        self._local_index = index + 1
        address, incarnation = self.member
        return Event(
            self.run,
            self.group,
            self.protocol,
            address,
            incarnation,
            index,
            now_ns,
            self.clock,
            kind,
            self._view,
            reason=reason,
            attributes=attributes,
        )

    def _install(self, now_ns: int, note: Note) -> Event:
        """A VIEW row; from here on ranks, ordinals and the frontier are those of the new view."""
        view: View | None = note.view
        assert view is not None, "a VIEW note carries its view"
        rest = dict(note.attributes or {})
        previous = rest.pop("previous_view", self._view)
        transitional = rest.pop("transitional", None)
        parts = rest.pop("parts", None)
        order = rest.pop("order", None)
        self._committed = _committed(self.protocol if order is None else str(order))
        self._view = str(view.id)
        self._members = view.members
        self._rank = view.members.index(self.member) if self.member in view.members else -1
        self._names = tuple(str(member) for member in view.members)
        self._frontier = [0] * len(view.members)
        self._ordinals = {}
        self._ordered = {}
        if self.line is not None:
            self.line.enter(now_ns, self._view)
        event = self._event(now_ns, schema.VIEW, attributes=_attributes(rest))
        event.members = self._names
        event.previous_view = None if previous is None else str(previous)
        event.transitional = _strings(transitional)
        event.parts = _strings(parts)
        event.reason = None if order is None else str(order)
        return event

    def _decision(self, now_ns: int, note: Note) -> Event:
        """A VOTE or DECIDE row of two-phase commit."""
        assert note.batch is not None, "a vote and a decision are about a batch"
        rest = dict(note.attributes or {})
        decision = rest.pop("decision")
        event = self._event(now_ns, note.kind.value, attributes=_attributes(rest))
        event.transaction, event.decision = self._transaction(note.batch), str(decision)
        return event

    def _transaction(self, batch: Batch) -> str:
        """A batch's transaction has the name of its first message, which is unique for ever."""
        return f"{self._members[batch.origin]}:{batch.first}"

    def _message(self, now_ns: int, note: Note, batch: Batch) -> Event:
        """A row about one batch: CAST, RECEIVE, ORDERED, DELIVER or PLACE."""
        kind: str = note.kind.value
        rank, first, count, service, to = batch.origin, batch.first, batch.count, _SERVICE[batch.service], batch.to
        position, attributes = note.position, _attributes(note.attributes)
        frontier = ordinal = None
        if kind == schema.DELIVER:
            stamp = self._ordered.pop((rank, first), None)
            if stamp is not None:
                position = stamp[0] if position is None else position
                if stamp[1] is not None:
                    attributes = {**stamp[1], **(attributes or {})}
            if batch.payloads is None:
                kind = schema.PLACE
                if to is None or self._rank in to:
                    attributes = {**(attributes or {}), "void": "true"}
            ordinal = self._ordinals.get(service, 0)
            self._ordinals[service] = ordinal + 1
            self._frontier[rank] += count
            if self.line is not None:
                self.line.deliver(now_ns, service, ordinal, self._names[rank], first, count)
        elif kind == schema.CAST:
            frontier = tuple(self._frontier)
        elif kind == schema.ORDERED:
            self._ordered[rank, first] = (position, attributes)
        event = self._event(now_ns, kind, attributes=attributes)
        event.origin, event.origin_incarnation = self._members[rank]
        event.first, event.count, event.service = first, count, service
        event.destinations = None if to is None else tuple([self._names[one] for one in to])
        event.ordinal, event.position, event.digest = ordinal, position, _signed(batch.digest)
        event.frontier = frontier
        if service in self._committed and kind != schema.ORDERED:
            event.transaction = self._transaction(batch)
        return event

    def _write(self, events: list[Event]) -> None:
        if not events:
            return
        try:
            self.sink.write(events)
        except OSError as error:
            self.gaps += len(events)
            if self.first_error is None:
                self.first_error = error


_SERVICE = tuple(Service(value).name.lower() if value else "" for value in range(max(Service) + 1))


def _committed(order: str) -> frozenset[str]:
    return frozenset(name for name, owed in PROMISES.get(order, {}).items() if "P18" in owed)


def _signed(digest: int) -> int:
    return digest if digest < 2**63 else digest - 2**64


def _names(members: Iterable[MemberId]) -> list[str]:
    return [str(member) for member in members]


def _totals(told: Shown) -> dict[str, object]:
    return {"shown": told.shown, "digest": told.digest, "chain": told.chain}


def _attributes(values: Mapping[str, object] | None) -> dict[str, str] | None:
    return {name: attribute(value) for name, value in values.items()} if values else None


def _strings(values: object) -> tuple[str, ...] | None:
    if values is None:
        return None
    assert isinstance(values, Iterable)
    return tuple(str(value) for value in values)
