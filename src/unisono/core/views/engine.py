"""Runs one view after another: casts, orders and delivers, between an application and streams.

A deterministic object without I/O. A `Member` owns one; the simulator and the explorers drive engines alone. A **turn** is any
number of inputs (`cast`, `receive`, or just that time has passed), then exactly one `drain(now)`.

    cast ─▶ casting ─▶ ordering.submit ──┐
    receive ─▶ admission ─▶ .receive ────┴─▶ showing (gate, remainder) ─▶ events

Membership decides on views. `install` begins the first one. A view change is three calls: `block` stops the old view and returns
the report, `close` takes the agreed remainder, `install` shows it behind a `Transition` and begins the next view. Casts that
arrive in between belong to the next view. If the member leaves, `depart` shows the remainder instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from unisono.core.config import Config
from unisono.core.errors import Misuse, PeerFault
from unisono.core.options import DEFAULT, CastOptions
from unisono.core.ordering import AnyOrdering, Cut, Report, Wait
from unisono.core.outbox import EngineEffects, Note, NoteKind, Outbox
from unisono.core.transition import Transition
from unisono.core.types import Batch, Key, MemberId, Packet, Rank, Slot, View, ViewId
from unisono.core.views.admission import Admission
from unisono.core.views.casting import Casting
from unisono.core.views.notes import note_cast, note_received, note_view
from unisono.core.views.retained import Retained
from unisono.core.views.showing import Showing


class Phase(Enum):
    """What the engine does with the inputs of a view."""

    IDLE = "before the first view"
    RUNNING = "takes them"
    BLOCKED = "takes nothing more: the report is out"
    CLOSED = "takes nothing more: the agreed remainder is known"


class ViewEngine:
    """See the module's text. `orders` come by name, because the core knows none."""

    def __init__(
        self, member: MemberId, orders: Mapping[str, type[AnyOrdering]], config: Config, noting: bool = False
    ) -> None:
        self.id = member
        self.config = config
        self.phase = Phase.IDLE
        self.view = View(ViewId(0, member), ())
        """The view installed last; at first one without members."""
        self.rank: Rank = -1
        self.ordering: AnyOrdering
        """The ordering of the view, from the first view on."""
        self.quiet_at: int | None = None
        """When the ordering may owe an acknowledgement."""
        self._orders = orders
        self._order: type[AnyOrdering]
        self._ack_delay: int | None = None  # None: the order owes no acknowledgements
        self._is_read_only = False
        self._inbox: list[tuple[Rank, Packet]] = []  # received, not yet handed to the ordering
        self._out = Outbox(noting)
        self._effects = EngineEffects()
        self.casting = Casting(config)
        """Own messages that are not yet submitted, and their limits."""
        self.showing = Showing(self.casting, self._out, self.view)
        """What is delivered, on its way to the application."""
        self.admission = Admission()
        """Refuses packets that no correct member sends."""
        self.kept = Retained()
        """Numbered packets, for members that may lack them when the view ends."""

    # The inputs of a turn.

    def cast(self, payload: bytes, options: CastOptions = DEFAULT) -> Key | None:
        """Accept a message for the group. None: there is no view yet, or the window is full until some are delivered."""
        if self.phase is Phase.IDLE or not self.casting.has_room(self.ordering.unsent_bytes):
            return None
        return Key(self.id, self.casting.accept(payload, options, self.view, self._order))

    def receive(self, sender: Rank, packet: Packet) -> None:
        """Keep a packet of this view for the turn; once the view is blocked, drop it."""
        if self.phase is Phase.RUNNING:
            self._inbox.append((sender, packet))

    def drain(self, now: int) -> EngineEffects:
        """End the turn. The caller may keep the lists in the effects; the object itself is used again next turn."""
        out, effects, showing = self._out, self._effects, self.showing
        effects.partial = False
        if effects.faults:
            effects.faults = []
        if showing.own_shown:
            showing.own_shown, showing.own_safe = [], []
        if self.phase is Phase.RUNNING:
            if self.casting.count and not self._is_read_only:
                self._submit(out)
            if self._inbox:
                self._hand_over(now, out)
            if self.quiet_at is not None and now >= self.quiet_at:
                self.quiet_at = None
                self.ordering.quiet(out)
                if out.deliver:
                    showing.deliver()
            self.ordering.end_turn(out)
            if out.deliver:
                showing.deliver()
            if out.to_all:
                self.kept.add(self.rank, out.to_all)
        effects.events, showing.events = showing.events, []
        effects.casts, out.to_all = out.to_all, []
        effects.sends, out.to_one = out.to_one, []
        effects.vote_watermark, out.vote_watermark = out.vote_watermark, None
        effects.notes, out.notes = out.notes, []
        effects.deadline = self.quiet_at
        return effects

    def _submit(self, out: Outbox) -> None:
        """Submit what was cast: as one batch, or as several where options or limits differ."""
        for batch in self.casting.take(self.view, self.rank, self._order):
            if batch.to is not None:
                self._effects.partial = True
            mark = len(out.notes)
            self.ordering.submit(batch, out)
            if out.noting:
                note_cast(out, mark, batch)
            if out.deliver:
                self.showing.deliver()
        self.quiet_at = None  # an own cast acknowledges all that was received before this turn

    def _hand_over(self, now: int, out: Outbox) -> None:
        """Hand what was received to the ordering, and blame the sender of what is refused."""
        inbox, self._inbox = self._inbox, []
        receive, admission, kept = self.ordering.receive, self.admission, self.kept
        for sender, packet in inbox:
            if sender in admission.faulty:
                continue
            batch: Batch | None = getattr(packet, "batch", None)
            mark = len(out.notes)
            try:
                if batch is not None:
                    admission.admit(sender, batch)
                receive(sender, packet, out)
            except PeerFault as fault:
                self._effects.faults = [*self._effects.faults, admission.refuse(sender, fault)]
                continue
            if type(packet) in kept.numbered:
                kept.packets[sender].append(packet)
            if out.noting:
                note_received(out, mark, (packet,))
            if out.deliver:
                self.showing.deliver()
        if self.quiet_at is None and self._ack_delay is not None:
            self.quiet_at = now + self._ack_delay

    # The view change.

    def approach(self, wanted: bool) -> bool:
        """Whether a view change may begin. `wanted`: membership plans one."""
        return self.phase is not Phase.RUNNING or self.ordering.approach(wanted)

    def block(self) -> Report:
        """Stop the view and report: nothing more of it is submitted or received. Casts wait for the next view."""
        self.phase = Phase.BLOCKED
        self._inbox.clear()
        self.quiet_at = None
        if self._out.noting:
            self._out.notes.append(Note(NoteKind.BLOCK))
        report: Report = self.ordering.report()
        self.kept.add(self.rank, self.ordering.unsent())
        return report

    def retained(self, slot: Slot) -> Packet | None:
        """The packet of a slot, for a member that lacks it; its batch is a placeholder if this member is not addressed."""
        return self.kept.get(slot)

    def close(self, cut: Cut, missing: Mapping[Slot, Packet]) -> None:
        """Take the agreed remainder of the view, to be shown by `install` or `depart`.

        Raises `PeerFault`, before anything changes, if it does not fit this member's report.
        """
        for slot, packet in missing.items():
            self.admission.demand_slot(slot, packet)
        mark = len(self._out.notes)
        self.ordering.close(cut, missing, self._out)
        if self._out.noting:
            note_received(self._out, mark, [missing[slot] for slot in sorted(missing)])
        self.phase = Phase.CLOSED
        assert not self._out.to_all, "a view that is closed casts nothing"
        assert not self._out.to_one
        self.showing.close()

    def depart(self, together: Sequence[MemberId], is_primary: bool) -> None:
        """Show the remainder of the view that has ended: before the next one, or because this member leaves."""
        self.showing.end(Transition(tuple(together), is_primary, self.view.id))

    def install(
        self,
        view: View,
        previous: View | None = None,
        transitional: Sequence[MemberId] = (),
        parts: Sequence[ViewId] = (),
        order: str | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> None:
        """Begin a view with a fresh ordering, perhaps of another order.

        `parts`: the views that it was merged from. `attributes` are for the trace, except for two: if `primary` is False, the view
        is read-only; if `carries` is False, another part's state replaces the state of this member's part.
        """
        if self.id not in view.members:
            raise Misuse(f"{self.id} cannot install view {view.id}: it is not a member of it.")
        size, limit = len(view), self.config.members_max
        if size > limit:
            raise Misuse(f"view {view.id} has {size} members, over members_max = {limit}: raise it at every member.")
        # In a read-only view casts wait for a primary one.
        self._is_read_only = attributes is not None and attributes.get("primary") is False
        if self.has_view:
            is_carried = attributes is None or attributes.get("carries") is not False
            self.depart(transitional or (self.id,), is_carried and not self._is_read_only)
        self.view, self.rank = view, view.rank_of(self.id)
        if order is not None:
            self._order = self._orders[order]
            self._ack_delay = self.config.ack_delay_ns if self._order.acknowledges else None
        chosen = previous is None and attributes is None  # by a person, so settings that do not fit are refused
        self.ordering = self._order(view, self.rank, self.config if chosen else self.config.fitted(len(view)))
        self.showing.enter(view, self.rank)
        self.admission = Admission(self.rank, self._order.numbered, self.showing.reach)
        self.kept = Retained(len(view), self._order.numbered)
        self.quiet_at = None
        self.phase = Phase.RUNNING
        if self._out.noting:
            note_view(self._out, view, previous, transitional, parts, attributes)

    # Questions.

    def waits(self) -> Sequence[Wait]:
        """What is held back here, why, and by whom. A closed view holds nothing back."""
        return () if self.phase in (Phase.IDLE, Phase.CLOSED) else self.ordering.waits()

    @property
    def has_view(self) -> bool:
        """Whether any view was installed."""
        return self.phase is not Phase.IDLE

    @property
    def is_blocked(self) -> bool:
        """Whether this member has reported its view and not installed the next one."""
        return self.phase in (Phase.BLOCKED, Phase.CLOSED)

    @property
    def has_input(self) -> bool:
        """Whether something waits for the next turn."""
        return bool(self.casting.count or self._inbox)

    @property
    def has_room(self) -> bool:
        """Whether another message is accepted: there is a view, and the window is not full."""
        return self.phase is not Phase.IDLE and self.casting.has_room(self.ordering.unsent_bytes)
