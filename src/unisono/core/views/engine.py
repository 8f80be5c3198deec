"""The engine of one view after another: it casts, orders and delivers, on streams that are given to it.

A deterministic object without I/O: same inputs in the same order, same outputs. A `Member` has one below its membership, from
its beginning on; the simulator and the explorers drive engines alone.

A **turn** is any number of inputs (`cast`, `receive`, or just that time has passed), then exactly one `drain(now)`, whose effects
the driver performs. The turn is the unit of batching: everything cast since the last one leaves as one batch, without a timer,
so a message alone leaves at once and a thousand leave together.

Views are given to it (`install`), the first one too, and its driver keeps the streams in order. A view change is three
calls: `block` returns the report and stops everything of the old view, `close` fixes the agreed remainder, `install` shows it
behind a `Transition` and starts the next view. Casts that arrive in between wait, and belong to the next view. A member that
leaves is shown the remainder by `depart` instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from operator import attrgetter

from unisono.core.config import Config
from unisono.core.errors import Contradiction, Misuse, PeerFault
from unisono.core.ordering import PACKET_HEAD_BYTES, AnyOrdering, Cut, Report, Wait
from unisono.core.outbox import EngineEffects, Note, NoteKind, Outbox, RefusedPacket
from unisono.core.types import (
    DEFAULT,
    MARKER_PAYLOADS,
    MARKERS,
    Batch,
    CastOptions,
    Key,
    Marker,
    MemberId,
    Packet,
    Rank,
    Service,
    Slot,
    Transition,
    View,
    ViewId,
)
from unisono.core.views.casting import Casting
from unisono.core.views.gate import Gate
from unisono.core.views.retained import Retained

_is_safe = attrgetter("safe")
INDEX_MAX = 2**63 - 1
"""More messages than a member casts in its life."""


class Phase(Enum):
    """What the engine does with the inputs of a view."""

    IDLE = "before the first view"
    RUNNING = "takes them"
    BLOCKED = "takes nothing more: the report is out"
    CLOSED = "takes nothing more: the agreed remainder is known"


class ViewEngine:
    """See the module's text. Orders are handed in by name, so that the core knows none."""

    def __init__(
        self,
        member: MemberId,
        orders: Mapping[str, type[AnyOrdering]],
        config: Config,
        noting: bool = False,
    ) -> None:
        self.id = member
        self.config = config
        self.phase = Phase.IDLE
        self.view = View(ViewId(0, member), ())
        """The one installed last; before the first one, a view without members."""
        self.rank: Rank = -1
        self.ordering: AnyOrdering
        """The ordering of the view, from the first one on: for its questions."""
        self._orders = orders
        self._out = Outbox(noting)
        self._noting = noting
        self._effects = EngineEffects()
        self.casting = Casting(config)
        """Own messages that are not yet submitted, and the limits for them."""
        self._inbox: list[tuple[Rank, Packet]] = []  # received, not yet handed to the ordering
        self._partial = False  # some cast of this turn is not addressed to everyone
        self._events: list[
            Batch | Marker | Transition | View
        ] = []  # shown with the next effects, before that turn's deliveries
        self.faulty: set[Rank] = set()  # of whom nothing more is taken in: what came in its name cannot be
        self._faults: list[RefusedPacket] = []
        self.delivered = 0
        """Messages that the ordering has delivered here, in all views; placeholders too."""
        self.given = 0
        """Those of them that the application gets."""
        self._reach: list[int] = []  # by origin: beyond the last index that was delivered, or 0
        self._remainder: list[Batch] = []  # agreed on by `close`, shown by `install` or `depart`
        self.own_shown: list[tuple[int, int]] = []
        """Own messages delivered in this turn: first index and end of each batch."""
        self._own_addressed: deque[tuple[tuple[int, int], tuple[MemberId, ...]]] = (
            deque()
        )  # delivered in this view, not settled
        self.ended_addressed: dict[tuple[int, int], tuple[MemberId, ...]] = {}
        """Own messages of the last view that were not for everyone and not settled before it ended, and whom they were for."""
        self.own_safe: list[tuple[int, int]] = []
        """Those of them that the gate for safe messages has let pass."""
        self.quiet_at: int | None = None
        """When the ordering may owe an acknowledgement."""
        self._retained = Retained(0)
        self._gate = Gate()

    # The inputs of a turn.

    def cast(self, payload: bytes, options: CastOptions = DEFAULT) -> Key | None:
        """Accept a message for the group. None: the window is full; try again after some deliveries."""
        if self.phase is Phase.IDLE or not self.casting.has_room(self.ordering.unsent_bytes):
            return None
        size = len(payload)
        if size > self.config.payload_bytes_max:
            raise Misuse(
                f"a payload of {size} bytes is over the limit of {self.config.payload_bytes_max}: "
                "cut it, or raise payload_bytes_max."
            )
        if options is DEFAULT:
            return Key(self.id, self.casting.add(payload, options))
        self._check(options)
        copies = len(options.to or (0,))  # each addressee gets its own
        if copies * (size + PACKET_HEAD_BYTES) > self.casting.copies_bytes_max:
            raise Misuse(
                f"a message of {size} bytes to {copies} members takes more than the "
                f"{self.casting.copies_bytes_max} bytes that can be kept: name fewer at a time, leave `to` out, "
                "or raise kept_bytes_max."
            )
        return Key(self.id, self.casting.add(payload, options, copies))

    def cast_marker(self, asks: bool, service: Service) -> Key | None:
        """Accept a marker: a message to no recipient. None: the window is full."""
        if not self.has_room:
            return None
        return Key(self.id, self.casting.add(MARKER_PAYLOADS[asks], CastOptions((), service)))

    @property
    def room_messages(self) -> int:
        """How many messages the window takes now."""
        return self.casting.room_messages

    def cast_many(self, payloads: list[bytes]) -> None:
        """Accept messages without options that are known to have room (`room_messages`) and to be small enough."""
        self.casting.add_many(payloads)

    def receive(self, sender: Rank, packet: Packet) -> None:
        """Take a packet of the current view. Once blocked, nothing of the old view is wanted any more."""
        if self.phase is Phase.RUNNING:
            self._inbox.append((sender, packet))

    def drain(self, now: int) -> EngineEffects:
        """End the turn. The lists in the effects are the driver's to keep; the object itself is used again next turn."""
        out, effects = self._out, self._effects
        if self.own_shown:
            self.own_shown, self.own_safe = [], []
        if self.phase is Phase.RUNNING:
            if self.casting.count and not self._is_read_only:
                self._submit(out)
            if self._inbox:
                self._hand_over(now, out)
            if self.quiet_at is not None and now >= self.quiet_at:
                self.quiet_at = None
                self.ordering.quiet(out)
                if out.deliver:
                    self._pass_gate(out)
            self.ordering.end_turn(out)
            if out.deliver:
                self._pass_gate(out)
            if out.to_all:
                self._retain_own(out.to_all)
        effects.partial, self._partial = self._partial, False
        effects.events, self._events = self._events, []
        effects.casts, out.to_all = out.to_all, []
        effects.sends, out.to_one = out.to_one, []
        effects.pledge, out.pledge = out.pledge, None
        effects.notes, out.notes = out.notes, []
        if self._faults or effects.faults:
            effects.faults, self._faults = self._faults, []
        effects.deadline = self.quiet_at
        return effects

    # The view change.

    def approach(self, wanted: bool) -> bool:
        """Somebody here plans a view change, or does not any more: whether it may begin."""
        return self.phase is not Phase.RUNNING or self.ordering.approach(wanted)

    def block(self) -> Report:
        """Stop the view: nothing more of it is submitted or taken in. What is cast from now on waits for the next view."""
        self.phase = Phase.BLOCKED
        self._inbox.clear()
        self.quiet_at = None
        if self._noting:
            self._out.notes.append(Note(NoteKind.BLOCK))
        report: Report = self.ordering.report()
        self._retain_own(self.ordering.unsent())
        return report

    def retained(self, slot: Slot) -> Packet | None:
        """The packet of a slot as this member holds it, for one that misses it; a placeholder where it is not addressed."""
        return self._retained.get(slot)

    def close(self, cut: Cut, missing: Mapping[Slot, Packet]) -> None:
        """Take the agreed remainder of the view. It is shown with the next view, or by `depart`.

        Raises `PeerFault`, before anything changes, if it does not fit what this member has reported.
        """
        for slot, packet in missing.items():
            self._demand_slot(slot, packet)
        mark = len(self._out.notes)
        self.ordering.close(cut, missing, self._out)
        if self._noting:
            self._note_received(mark, [missing[slot] for slot in sorted(missing)])
        self.phase = Phase.CLOSED
        assert not self._out.to_all, "a view that is closed casts nothing"
        assert not self._out.to_one
        closing, self._out.deliver = self._out.deliver, []
        self._remainder = [*self._gate.empty(), *closing]

    def depart(self, together: Sequence[MemberId], is_primary: bool) -> None:
        """Show the remainder of the last view to a member that is not in the next one, because it leaves."""
        self._show_remainder(together, is_primary)

    def _show_remainder(self, together: Sequence[MemberId], is_primary: bool) -> None:
        self._events.append(Transition(tuple(together), is_primary, self.view.id))
        remainder, self._remainder = self._remainder, []
        self._show(remainder)  # all of `together` have taken in what the cut delivers
        self.ended_addressed = dict(self._own_addressed)
        self._own_addressed.clear()

    def install(
        self,
        view: View,
        previous: View | None = None,
        transitional: Sequence[MemberId] = (),
        parts: Sequence[ViewId] = (),
        order: str | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> None:
        """Start a view: a fresh ordering, perhaps of another order, and what was cast meanwhile.

        `parts` and `attributes` are what membership agreed on: the views that were merged, the cut that closed the previous
        one, whether this one is primary.
        """
        if self.id not in view.members:
            raise Misuse(f"{self.id} cannot install view {view.id}: it is not a member of it.")
        if len(view) > self.config.members_max:
            raise Misuse(f"view {view.id} has {len(view)} members, over the limit of {self.config.members_max}.")
        # Under the primary policy, casts accepted so far wait for a view that is primary.
        self._is_read_only = attributes is not None and attributes.get("primary") is False
        if self.has_view:
            is_carried = attributes is None or attributes.get("carries") is not False
            self._show_remainder(transitional or (self.id,), is_carried and not self._is_read_only)
        known = self.reaches()
        self._reach = [known.get(member, 0) for member in view.members]
        self._indexed: list[dict[Service, int]] = [
            dict.fromkeys(Service, index) for index in self._reach
        ]  # by origin and service: beyond the last index that came
        self.view = view
        self.faulty = set()
        self.rank = view.rank_of(self.id)
        if order is not None:
            kind = self._orders[order]
            self._order = kind
            self._ack_delay = self.config.ack_delay_ns if kind.acknowledges else None
            self._numbered = frozenset(kind.numbered)
        chosen = previous is None and attributes is None  # by a person, so settings that do not fit are refused
        config = self.config if chosen else self.config.fitted(len(view))
        self.ordering = self._order(view, self.rank, config)
        self._retained = Retained(len(view))
        self._gate = Gate()
        self.quiet_at = None
        self.phase = Phase.RUNNING
        self._events.append(view)
        if self._noting:
            origin: dict[str, object] = dict(attributes or {})
            if previous is not None:
                origin |= {"previous_view": str(previous.id), "transitional": [str(m) for m in transitional]}
            if parts:
                origin["parts"] = [str(part) for part in parts]
            self._out.notes.append(Note(NoteKind.VIEW, view=view, attributes=origin or None))

    # Stability: what every member has taken in, as the streams below know.

    def slots(self, origin: Rank) -> int:
        """How many slots of an origin were taken in here."""
        return self._retained.slots(origin)

    def trim(self, origin: Rank, slots: int) -> None:
        """Every member has taken in so many slots of an origin: nobody will ask for them."""
        self._retained.trim(origin, slots)

    def settle_own(self, index: int) -> None:
        """All own messages below this index are stable: whom they were for does not matter any more."""
        addressed = self._own_addressed
        while addressed and addressed[0][0][1] <= index:
            addressed.popleft()

    def mark(self) -> object:
        """How far the ordering has delivered, if what lies before that is worth forgetting."""
        return self.ordering.mark()

    def forget(self, mark: object) -> None:
        """Every member's ordering has taken in all that this one had at that mark."""
        self.ordering.forget(mark)

    @property
    def is_gated(self) -> bool:
        """Whether messages wait to be safe."""
        return bool(self._gate.waiting)

    def release(self, taken: Sequence[int], taken_by_all: Sequence[int]) -> None:
        """Show what has become safe, with the next `drain`. `taken`: how many packets of each origin are taken in here."""
        passing = self._gate.release(taken, taken_by_all)
        self.own_safe += [(b.first, b.first + b.count) for b in passing if b.safe and b.origin == self.rank]
        self._show(passing)

    def shown(self) -> EngineEffects:
        """What `release` has shown, as effects of the turn that was drained before it."""
        effects = EngineEffects()
        effects.events, self._events = self._events, []
        effects.notes, self._out.notes = self._out.notes, []
        return effects

    # Questions.

    def waits(self) -> Sequence[Wait]:
        """What is held back here, for what, and for whom. A view that is closed has delivered all that it will."""
        return () if self.phase in (Phase.IDLE, Phase.CLOSED) else self.ordering.waits()

    def gated(self) -> Sequence[tuple[Batch, tuple[int, ...] | None]]:
        """What is ordered here and waits to be safe, and how many packets of each origin all must have taken in for it."""
        return self._gate.waiting

    def reaches(self) -> dict[MemberId, int]:
        """By member of the view: up to which index its messages were delivered here; 0: none that is known of."""
        return dict(zip(self.view.members, self._reach, strict=True))

    @property
    def has_view(self) -> bool:
        """Whether any view was installed."""
        return self.phase is not Phase.IDLE

    @property
    def is_blocked(self) -> bool:
        """Whether a view change is under way that began with a report of this member."""
        return self.phase in (Phase.BLOCKED, Phase.CLOSED)

    @property
    def has_input(self) -> bool:
        """Whether something waits for the next turn."""
        return bool(self.casting.count or self._inbox)

    @property
    def has_room(self) -> bool:
        """Whether the window takes another message. Before the first view it takes none."""
        return self.phase is not Phase.IDLE and self.casting.has_room(self.ordering.unsent_bytes)

    @property
    def accepted(self) -> int:
        """How many own messages were accepted so far, in all views."""
        return self.casting.index

    @property
    def submitted(self) -> int:
        """How many of them the ordering was given."""
        return self.casting.submitted

    @property
    def unfinished(self) -> int:
        """How many own messages are cast and not yet delivered here."""
        return self.casting.unfinished

    # Inside a turn.

    def _submit(self, out: Outbox) -> None:
        """What was cast becomes batches: one where options and limits allow it."""
        for first, payloads, options in self.casting.take():
            batch = self._batch(first, payloads, options)
            mark = len(out.notes)
            self.ordering.submit(batch, out)
            if self._noting:
                self._note_cast(mark, batch)
            if out.deliver:
                self._pass_gate(out)
        self.quiet_at = None  # an own cast acknowledges whatever was received before this turn

    def _batch(self, first: int, payloads: Sequence[bytes], options: CastOptions) -> Batch:
        # What was cast under another order may ask for a service that this one does not carry.
        service = options.service if options.service in self._order.services else self._order.service
        to = None
        if options.to is not None:  # an addressee that left while the cast waited has no rank in this view
            to = tuple(rank for rank, member in enumerate(self.view.members) if member in options.to)
            self._partial = True
        safe = self.config.safe if options.safe is None else options.safe
        return Batch(self.rank, first, payloads, service, to, safe=safe)

    def _hand_over(self, now: int, out: Outbox) -> None:
        inbox, self._inbox = self._inbox, []
        receive, numbered, retained = self.ordering.receive, self._numbered, self._retained.packets
        for sender, packet in inbox:
            if self.faulty and sender in self.faulty:
                continue
            batch: Batch | None = getattr(packet, "batch", None)
            mark = len(out.notes)
            try:
                if batch is not None:
                    self._demand(sender, batch)
                receive(sender, packet, out)
            except PeerFault as fault:
                self.faulty.add(sender)
                self._faults.append(RefusedPacket(sender, str(fault), not isinstance(fault, Contradiction)))
                continue
            if batch is not None:
                self._indexed[sender][batch.service] = batch.first + batch.count
            if type(packet) in numbered:
                retained[sender].append(packet)
            if self._noting:
                self._note_received(mark, (packet,))
            if out.deliver:
                self._pass_gate(out)
        if self.quiet_at is None and self._ack_delay is not None:
            self.quiet_at = now + self._ack_delay

    def _demand(self, sender: Rank, batch: Batch) -> None:
        """Raise `PeerFault` if no correct member casts this batch, whatever the order."""
        if batch.payloads is None and (batch.to is None or self.rank in batch.to):
            raise PeerFault("a batch is kept from a member that it is for")
        if not self._indexed[sender][batch.service] <= batch.first <= INDEX_MAX - batch.count:
            raise PeerFault("messages have indexes that were used, or that cannot be")

    def _demand_slot(self, slot: Slot, packet: Packet) -> None:
        """The same for a packet that comes with a cut. Its payload may be lost to all, and what came before it may be unknown."""
        batch: Batch | None = getattr(packet, "batch", None)
        if type(packet) not in self._numbered or packet.number != slot[1]:  # type: ignore[attr-defined]
            raise PeerFault("a cut comes with a packet that is not of its slot")
        if batch is not None and batch.first > INDEX_MAX - batch.count:
            raise PeerFault("a cut comes with a batch that no member casts")

    def _retain_own(self, packets: Sequence[Packet]) -> None:
        own, numbered = self._retained.packets[self.rank], self._numbered
        for packet in packets:
            if type(packet) in numbered:
                own.append(packet)

    def _pass_gate(self, out: Outbox) -> None:
        """What the ordering has delivered is shown now, unless it is safe or behind something that is."""
        batches, out.deliver = out.deliver, []
        is_shut = bool(self._gate.waiting)
        if is_shut or any(map(_is_safe, batches)):
            passing = 0 if is_shut else next(at for at, batch in enumerate(batches) if batch.safe)
            self._gate.hold(batches[passing:])
            del batches[passing:]
        self._show(batches)

    def _show(self, batches: Sequence[Batch]) -> None:
        """Show the application what is delivered: placeholders are not shown, own messages leave the window."""
        reach = self._reach
        for batch in batches:
            if self._noting:
                self._note_shown(batch)
            end = batch.first + batch.count
            if end > reach[batch.origin]:
                reach[batch.origin] = end
            self.delivered += batch.count
            if batch.origin == self.rank:
                self.casting.unfinished -= batch.count
                self.own_shown.append((batch.first, end))
                if batch.to is not None:
                    members = tuple(self.view.members[rank] for rank in batch.to)
                    self._own_addressed.append(((batch.first, end), members))
            if batch.payloads is not None and (batch.to is None or self.rank in batch.to):
                self._events.append(batch)
                self.given += batch.count
            elif batch.to == () and (asks := MARKERS.get(batch.digest)) is not None:
                self._events.append(Marker(batch.origin, batch.first, batch.service, asks))

    def _check(self, options: CastOptions) -> None:
        if options.service is not None and options.service not in self._order.services:
            offered = ", ".join(sorted(service.name.lower() for service in self._order.services))
            raise Misuse(f"this order does not carry {options.service.name.lower()} messages: choose {offered}.")
        if options.to == ():
            raise Misuse("a message is addressed to nobody: name at least one member, or leave `to` out for all.")
        for member in options.to or ():
            if member not in self.view.members:
                raise Misuse(
                    f"{member} is not a member of view {self.view.id}: name members of it, or leave `to` out for all."
                )

    # For the recorder: written beside the steps, which are the same without it.

    def _note_cast(self, mark: int, batch: Batch) -> None:
        """Before what the ordering has noted of it, from `mark` on."""
        packets = self._out.to_all  # none, if the batch must wait
        vector = getattr(packets[-1], "vector", None) if packets else None
        attributes: dict[str, object] = {} if vector is None else {"vector": list(vector)}
        if batch.safe:
            attributes["safe"] = "true"
        self._out.notes.insert(mark, Note(NoteKind.CAST, batch, attributes=attributes or None))

    def _note_received(self, mark: int, packets: Iterable[Packet]) -> None:
        """Likewise."""
        batches = (getattr(packet, "batch", None) for packet in packets)
        self._out.notes[mark:mark] = [Note(NoteKind.RECEIVE, batch) for batch in batches if batch is not None]

    def _note_shown(self, batch: Batch) -> None:
        if batch.safe:
            self._out.notes.append(Note(NoteKind.STABLE, batch))
        mine = batch.to is None or self.rank in batch.to
        self._out.notes.append(Note(NoteKind.DELIVER, batch if mine else batch.placeholder()))


def packet_for(packet: Packet, rank: Rank) -> Packet:
    """What one member gets of a cast: the packet, or with a placeholder for its batch if that member is not addressed."""
    batch: Batch | None = getattr(packet, "batch", None)
    if batch is None or batch.to is None or rank in batch.to or batch.payloads is None:
        return packet
    return packet._replace(batch=batch.placeholder())  # type: ignore[attr-defined,no-any-return]
