"""One member of a group, whole: streams, failure detector, membership and ordering in one object without I/O.

    datagrams ─▶ frame ─▶ streams ─▶ decode ─▶ engine (batches, ordering) ─▶ gate ─▶ events
                     └──▶ membership ─▶ block · close · install of the engine, and new streams with each view

A **turn** is any number of inputs (`cast`, `receive`, `tick`, …), then exactly one `drain(now)`, whose effects the driver
performs strictly top to bottom. Same inputs in the same order, same outputs.

The streams of a view are kept while a view change is under way: they no longer feed the ordering (the report is out), but they
still say that this member is alive. What arrives for a view that is not installed here yet waits, bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from unisono.core.config import SECOND
from unisono.core.departure import Cause
from unisono.core.errors import NotPrimary
from unisono.core.events import Aside, Effects, Entered, Happening
from unisono.core.incarnation import INCARNATION_MAX
from unisono.core.member.comparison import TAG as COMPARING
from unisono.core.member.comparison import Checking, Comparer
from unisono.core.member.counters import Tally, Totals, tally
from unisono.core.member.next_view_buffer import Early
from unisono.core.member.questions import MemberQuestions
from unisono.core.member.settings import Settings as Settings
from unisono.core.member.watchdog import Watch
from unisono.core.membership.context import Installed
from unisono.core.membership.detector import Detector
from unisono.core.membership.membership import Membership
from unisono.core.membership.tickets import SECRET_BYTES, Tickets
from unisono.core.ordering import AnyOrdering, Cut, Report
from unisono.core.outbox import Fault, Note, NoteKind
from unisono.core.streams.streams import Streams
from unisono.core.types import (
    DEFAULT,
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
from unisono.core.views.engine import Phase, ViewEngine
from unisono.core.views.own_casts import OwnCasts
from unisono.core.wire.codec import Codec
from unisono.core.wire.control import Charter, ControlCodec, Held
from unisono.core.wire.envelope import HEAD, ROUTE, ReplayWindow, view_tag
from unisono.core.wire.envelope import VERSION as STREAM_VERSION
from unisono.core.wire.frame import HEAD_BYTES, Frames

if TYPE_CHECKING:
    from random import Random

NEVER = 2**63 - 1
FORGIVEN_NS = 30 * SECOND
"""Who has sent what no correct member sends is kept out for so long."""
LARGE_DATAGRAM_BYTES = 16_384
BATCH_HEAD_BYTES = 4_096
"""What a batch of small messages in a datagram has around its payloads, and some acknowledgements."""
ASIDE = b"\0"
"""What a packet begins with that is none of the ordering; those begin with their version."""


class Member(MemberQuestions):
    """See the module's text. Orders are handed in by name, so that the core knows none."""

    def __init__(
        self,
        member: MemberId,
        group: str,
        orders: Mapping[str, type[AnyOrdering]],
        order: str,
        settings: Settings,
        random: Random,
        now: int,
        noting: bool = False,
        record: bytes | None = None,
        incarnation_max: int = INCARNATION_MAX,
    ) -> None:
        self.id = member
        self.settings = settings
        self._orders = orders
        self._order = order
        self._random = random
        self._now = now
        self._noting = noting
        self._frames = Frames(group, member, incarnation_max)
        secret = random.randbytes(SECRET_BYTES)
        self.tickets = Tickets(member.address, secret, settings.membership.addresses_max)
        self._control = ControlCodec(settings.config)
        self._engine = self._make_engine()
        self._streams: Streams | None = None  # from the first view on
        self._codec = Codec((), settings.config)
        self._room: int | None = None  # of the application
        self._room_most = 1  # that it ever had
        self._charters: dict[ViewId, Charter] = {}  # of views that were installed and not yet shown
        self._entered_last: View | None = None
        self._together: tuple[MemberId, ...] = (member,)  # who comes along into the next view, as its Transition said
        self._peers: tuple[str, ...] = ()  # addresses of the members of the view, by rank
        self._others: tuple[str, ...] = ()  # without the own one
        self._heard_from: dict[Rank, None] = {}  # in this turn; the detector is told when it ends
        self._has_told_all = False  # something, in this turn: likewise
        self._detector = Detector(settings.detector, now)
        self._replay: dict[MemberId, ReplayWindow] = {}
        self._windows: list[ReplayWindow] = []  # the same, by rank
        self._counter = 1  # of the next transmission on a stream
        self._early = Early()
        self._tag = 0  # of the installed view
        # By origin: packets on its cast stream, and how many slots they held.
        self._marks: list[deque[tuple[int, int]]] = []
        self._quiet_at: int | None = None  # when the ordering may owe an acknowledgement
        self._members: tuple[MemberId, ...] = ()
        self._rank: Rank = -1
        self._own_casts = OwnCasts()
        self._comparer = Comparer(member, settings.config)
        self._notes: list[Note] = []  # before the engine's
        self._events: list[Happening] = []  # after the engine's
        self._suspected: dict[MemberId, None] = {}
        self._forgive_at: dict[MemberId, int] = {}  # who sent what no correct member sends
        self._detect_at = NEVER  # when the detector must be asked
        self._plan_at = NEVER  # when membership must be asked
        self._is_planning = False  # something happened that membership may act upon
        self.dropped: dict[str, int] = {}
        """Datagrams and packets that were not used, by reason."""
        self.lie = ""
        """What was wrong with the last packet that was refused because no correct member sends it at that point."""
        self._totals = Totals()
        self._views = self._suspicions = 0
        self._watch = Watch(self, now)
        self._membership = Membership(member, self, orders, order, settings.config, settings.membership, record, secret)
        self._membership.tick(now)

    @property
    def tally(self) -> Tally:
        """What happened so far, in numbers. What else can be asked is in `MemberQuestions`."""
        return tally(self)

    def _make_engine(self) -> ViewEngine:
        settings = self.settings.streams
        engine = ViewEngine(self.id, self._orders, self.settings.config, self._noting)
        engine.casting.bytes_max = settings.window_bytes
        engine.casting.copies_bytes_max = settings.kept_bytes_max - 2 * settings.window_bytes
        if settings.datagram_bytes >= LARGE_DATAGRAM_BYTES:  # a batch a datagram: nothing to cut and rebuild
            room = settings.datagram_bytes - BATCH_HEAD_BYTES
            engine.casting.batch_bytes_max = min(self.settings.config.batch_bytes_max, room)
        return engine

    # The inputs of a turn.

    def join(self, seeds: Iterable[str] = (), expects_more: bool = False) -> None:
        """Look for the group at these addresses; without any, and if no more are to come, found one."""
        self._membership.tick(self._now)
        self._membership.join(seeds, expects_more)
        self._is_planning = True

    def doubt(self, addresses: Iterable[str]) -> None:
        """Addresses that the operator's names stood for, and do not any more."""
        self._membership.doubt(addresses)

    def name_peers(self, peers: Sequence[str]) -> None:
        """Whom the first primary needs a majority of, now that more of their addresses are known, or other ones."""
        self._membership.tick(self._now)
        self._membership.name_peers(peers)
        self._is_planning = True

    def leave(self) -> None:
        """Leave the group in an orderly way."""
        self._membership.tick(self._now)
        self._membership.leave()
        self._is_planning = True

    def switch(self, order: str) -> None:
        """Ask for another order; it takes effect with the next view."""
        self._membership.switch(order)
        self._is_planning = True

    def hold(self, state: Held | None) -> None:
        """The application has this state of a primary, and can carry it on; None: it has none."""
        self._membership.hold(state)
        self._is_planning = True

    def give_up(self, state: ViewId) -> None:
        """Give up the state of a primary that nobody here has, by its name. It is written down before it takes effect."""
        self._membership.tick(self._now)
        self._membership.give_up(state)
        self._is_planning = True

    def cast(self, payload: bytes, options: CastOptions = DEFAULT) -> Key | None:
        """Accept a message for the group. None: not now, because there is no view yet or a window is full.

        Under the policy `shed` a full window raises `Shed` instead.
        """
        engine, streams = self._engine, self._streams
        if streams is None or self.is_gone:
            return None
        self._demand_primary()
        key = engine.cast(payload, options) if engine.phase is not Phase.RUNNING or streams.writable() else None
        if key is None:
            self._watch.refuse()
        return key

    def _demand_primary(self) -> None:
        if not self._membership.is_primary:
            raise NotPrimary(
                f"{self._membership.explain_read_only()}. Nothing was cast: wait until a view is primary "
                "(`await group.until(lambda view: view.is_primary)`), then cast again."
            )

    def room_messages(self) -> int:
        """How many messages without options `cast_many` takes now, whatever their size: as many as the window has room for."""
        return self._engine.room_messages if self.is_writable and self.is_primary else 0

    def cast_many(self, payloads: list[bytes]) -> None:
        """Accept messages without options, of which there are no more than `room_messages` and none is too large.

        For a driver that has asked at the end of the last turn: nothing but a turn changes the answer.
        """
        self._engine.cast_many(payloads)

    def check(self) -> Checking | None:
        """Begin to compare what the members of the view have delivered. None: not now, because a window is full, or a view change
        is under way. It casts markers, so a caller that counts own messages counts them too (`cast_index`)."""
        view, services = self.view, self._compared_services()
        if view is None or not self.can_check:
            return None
        self._demand_primary()
        check = self._comparer.begin(view, services)
        self._cast_markers(True, services)
        return check

    @property
    def owes_markers(self) -> bool:
        """Another member checks and waits for markers of this one: call `mark` when no own message is on its way here."""
        return self._comparer.owes_markers

    def mark(self) -> None:
        """Cast the markers that another member's check waits for, if there is room for them."""
        services = [service for service in self._compared_services() if service is not Service.TOTAL]
        if self.can_check and self.is_primary:
            self._comparer.owes_markers = False
            self._cast_markers(False, services)

    def _compared_services(self) -> list[Service]:
        return sorted(self._orders[self._order].services - {Service.DATAGRAM})

    @property
    def can_check(self) -> bool:
        """Whether there is room for the markers of a check, and no view change under way."""
        if self._engine.phase is not Phase.RUNNING or not self.is_writable:
            return False
        return self._engine.room_messages >= len(self._compared_services())

    def _cast_markers(self, asks: bool, services: Sequence[Service]) -> None:
        for service in services:
            self._engine.cast_marker(asks, service)

    def send(self, to: MemberId, data: bytes) -> bool:
        """Send bytes to one member of the view, reliably and in order while the view lasts. False: it is not in the view."""
        streams, view = self._streams, self.view
        if streams is None or view is None or to == self.id or to not in view.members:
            return False
        streams.send(view.rank_of(to), ASIDE + data)
        return True

    def urge(self) -> None:
        """Somebody waits until own messages are stable: the others shall not delay their acknowledgements."""
        if self._streams is not None:
            self._streams.urge()

    def set_free_room(self, packets: int | None) -> None:
        """How many more packets of each origin the application can take; None: any number. The others keep to it."""
        self._room = packets
        self._room_most = max(self._room_most, packets or 0)
        self._membership.departures.is_drained = packets is None or 2 * packets >= self._room_most
        if self._streams is not None:
            self._streams.set_free_room(packets)

    def receive(
        self, datagrams: Iterable[bytes | memoryview], now: int, senders: Iterable[MemberId | None] = ()
    ) -> None:
        """Take datagrams from the network. `senders`: who has sealed each of them, as far as that is known."""
        self.tick(now)
        for datagram, sender in zip_longest(datagrams, senders):
            if datagram[:HEAD_BYTES] == self._frames.stream_head:
                self._take_stream(memoryview(datagram)[HEAD_BYTES:], now, sender)
            elif (frame := self._frames.open(datagram)) is not None:
                self._take_control(frame.sender, frame.message, now)

    def tick(self, now: int) -> None:
        """Time has passed."""
        self._now = max(self._now, now)
        if self._now >= self._detect_at:
            self._detect()
        if self._now >= self._plan_at:
            self._membership.tick(self._now)
            self._is_planning = True
        if self._now >= self._watch.look_at:
            self._membership.tick(self._now)
            self._events += self._watch.look(self._now)
            self._forgive()

    def drain(self, now: int) -> Effects:
        """End the turn."""
        effects = self.act(now)
        effects.deadline = self.settle()
        return effects

    def act(self, now: int) -> Effects:
        """The half of `drain` that somebody waits for: all its effects but the deadline."""
        self.tick(now)
        effects = Effects()
        if self._is_planning:
            self._plan(effects)  # may block, close and install
        for address, written in self.tickets.drain():
            effects.datagrams.append(((address,), self._frames.control(written)))
        streams = self._streams
        if streams is not None:
            if streams.arrivals:
                self._hand_over(streams)
            self._take_engine_turn(streams, effects)
            if self._comparer.has_work:
                self._compare()
            self._drain_streams(streams, effects)
        if self._notes:
            effects.notes, self._notes = self._notes + effects.notes, []
        if self._events:
            effects.events += self._events
            self._events = []
        return effects

    def settle(self) -> int | None:
        """The other half: what can wait until the effects are performed, but not until the next input. Returns the deadline."""
        self._tell_detector()
        streams = self._streams
        if self._comparer.waiting:
            self._comparer.settle()
        if streams is not None:
            if self._engine.phase is Phase.RUNNING:
                self._forget(streams)
            streams.settle(self._now)
        if self._membership.is_approaching:
            self._plan_at = _or_never(self._membership.deadline)  # this turn may have got there
        return self._deadline()

    # Inside a turn.

    def _tell_detector(self) -> None:
        for rank in self._heard_from:
            self._detector.heard(self._members[rank], self._now)
        self._heard_from.clear()
        if self._has_told_all:
            self._has_told_all = False
            self._detector.sent(self._now)

    def _detect(self) -> None:
        self._tell_detector()
        for change in self._detector.tick(self._now):
            if change.suspected:  # what ends a suspicion is hearing, and that is seen at once
                self._suspect(change.peer, Cause.SUSPECTED, self._detector.silence(change.peer, self._now))
        self._detect_at = _or_never(self._detector.deadline)

    def _suspect(self, member: MemberId, cause: Cause, lasted_ns: int = 0) -> None:
        self._is_planning = True
        self._suspicions += 1
        self._membership.suspect(member, cause, lasted_ns)
        if cause is Cause.FAULTY:
            self._forgive_at[member] = self._now + FORGIVEN_NS
        if cause is Cause.SUSPECTED:  # what it sends refutes it
            self._suspected[member] = None
            while len(self._suspected) > self.settings.config.members_max:
                del self._suspected[next(iter(self._suspected))]  # it is long out of the view
        if self._noting:
            attributes = {"suspected": str(member), "reason": cause.name.lower()}
            self._notes.append(Note(NoteKind.SUSPECT, attributes=attributes))

    def _forgive(self) -> None:
        """A wrong packet may have been a stranger's, or damaged on its way: whoever sent it is not shunned for ever."""
        for member in [member for member, due in self._forgive_at.items() if due <= self._now]:
            del self._forgive_at[member]
            if member not in self._suspected:
                self._membership.unsuspect(member)
                self._is_planning = True

    def _evict(self, member: MemberId, lasted_ns: int) -> None:
        self._is_planning = True
        self._membership.departures.evict(member, lasted_ns)

    def _plan(self, effects: Effects) -> None:
        """Let membership do what is due. Only control messages, suspicions and time move it, so a turn of data does not ask."""
        self._membership.tick(self._now)
        out = self._membership.drain()
        self._is_planning = False
        self._plan_at = _or_never(self._membership.deadline)
        effects.records = out.records
        for to, message in out.sends:
            is_for_anyone = isinstance(to, str)
            address = to if isinstance(to, str) else to.address
            written = self.tickets.write(address, self._control.encode(message), self._now, is_for_anyone)
            if written is not None:
                effects.datagrams.append(((address,), self._frames.control(written)))
        for event in out.events:
            if isinstance(event, Installed):
                self._charters[event.charter.id] = event.charter
            else:
                self._events.append(event)

    def _take_stream(self, datagram: memoryview, now: int, sealed_by: MemberId | None) -> None:
        if len(datagram) < HEAD.size or datagram[0] != STREAM_VERSION:
            self._drop("short datagram")
            return
        _, sender, view = ROUTE.unpack_from(datagram)
        if view != self._tag:
            self._keep_early(view, datagram, sealed_by)
        elif self._streams is not None and sender < len(self._members):
            if sealed_by is not None and sealed_by != self._members[sender]:
                self._drop("sender")
                return
            window = self._windows[sender]
            before = window.highest
            self._streams.receive(sender, datagram, now)
            # Authentic, well-formed, and sent after all that came before: what was held back says nothing of the present.
            if window.highest > before:
                if self._suspected:
                    self._heard(self._members[sender], now)
                else:
                    self._heard_from[sender] = None

    def _take_control(self, sender: MemberId, data: memoryview, now: int) -> None:
        proven = self.tickets.read(sender, data, self._now)
        if not proven:
            return  # a question, or an answer to one
        if isinstance(proven, str):
            self._drop(proven)
            return
        message = self._control.read(proven)
        if message is None:
            self._drop("control message")
            return
        self._heard(sender, now)
        self._is_planning = True
        self._membership.tick(self._now)
        self._membership.receive(sender, message)  # type: ignore[arg-type]  # what is no control message is ignored there

    def _heard(self, member: MemberId, now: int) -> None:
        """A member lives. One that was excluded under suspicion is not watched any more, and yet may refute it."""
        self._detector.heard(member, now)
        if member in self._suspected:
            del self._suspected[member]
            self._membership.unsuspect(member)
            self._is_planning = True

    def _keep_early(self, view: int, datagram: memoryview, sealed_by: MemberId | None) -> None:
        """Of another view: perhaps of the next one, which others have installed a little earlier."""
        if self._engine.phase is Phase.RUNNING:
            self._drop("other view")
            return
        for _ in range(self._early.keep(view, bytes(datagram), sealed_by)):
            self._drop("early datagrams")

    def _hand_over(self, streams: Streams) -> None:
        """What has arrived on the streams goes to the ordering, unless the view is being closed."""
        engine, members = self._engine, len(self._members)
        for sender, data in streams.arrived():
            if data[:1] == ASIDE:
                if data[1:2] == COMPARING:
                    self._comparer.receive(self._members[sender], bytes(data[2:]))
                else:
                    self._events.append(Aside(self._members[sender], bytes(data[1:])))
                continue
            if engine.phase is not Phase.RUNNING or sender in engine.faulty:
                continue
            packet = self._codec.decode(data, sender, members)
            if packet is None:
                self._drop("packet")
                self._distrust(sender, streams)
                continue
            engine.receive(sender, packet)
        if streams.broken:
            for sender in streams.broken - engine.faulty:
                self._distrust(sender, streams)

    def _refuse(self, faults: Sequence[Fault], streams: Streams) -> None:
        """The ordering has refused packets that no correct member sends at that point."""
        for fault in faults:
            self.lie = f"{self._members[fault.sender]}: {fault.reason}"
            self._drop("impossible packet" if fault.is_certain else "contradiction")
            self._distrust(fault.sender, streams, fault.is_certain)

    def _distrust(self, rank: Rank, streams: Streams, is_certain: bool = True) -> None:
        """What came in a member's name cannot be. It is blamed if all of it came from itself, sealed by it where there is a key.

        Otherwise it cannot be told who lied: no member is blamed, and the view is formed anew, with fresh streams.
        """
        self._engine.faulty.add(rank)
        if is_certain and rank not in streams.relayed:
            self._suspect(self._members[rank], Cause.FAULTY)
        else:
            self._membership.renew()
        self._is_planning = True
        self._plan_at = self._now  # at once, not with the next datagram

    def _take_engine_turn(self, streams: Streams, effects: Effects) -> None:
        engine = self._engine
        turn = engine.drain(self._now)
        if turn.faults:
            self._refuse(turn.faults, streams)
        if turn.events:
            effects.events += self._happenings(turn.events)
        effects.notes = turn.notes
        effects.pledge = turn.pledge
        self._quiet_at = turn.deadline
        encode = self._codec.encode
        for packet in turn.casts:
            batch = getattr(packet, "batch", None)
            if batch is None or batch.to is None:
                streams.cast(encode(packet))
            else:
                header = packet._replace(batch=batch.placeholder())  # type: ignore[attr-defined]
                streams.cast_parts(encode(header), encode(packet), batch.to)
        for rank, packet in turn.sends:
            streams.send(rank, encode(packet))
        if engine.phase is not Phase.RUNNING:
            return
        streams.take_all(engine.faulty)
        if engine.is_gated:
            streams.hurry()  # everyone gates it, and waits for everyone
            engine.release(streams.held(), streams.taken_by_all)
            released = engine.shown()
            effects.events += self._happenings(released.events)
            effects.notes += released.notes
        if engine.own_shown:
            safe = engine.own_safe
            self._own_casts.safe(safe)
            shown = [span for span in engine.own_shown if span not in safe] if safe else engine.own_shown
            self._own_casts.delivered(shown, streams.held())

    def _happenings(self, events: Sequence[Batch | Marker | Transition | View]) -> list[Happening]:
        """What the engine shows, with all that is known about a view. All of it is compared with what others deliver."""
        happened: list[Happening] = []
        comparer = self._comparer
        for event in events:
            if isinstance(event, Batch):
                comparer.waiting.append(event)
                happened.append(event)
            elif isinstance(event, Marker):
                comparer.pass_marker(event)
            elif isinstance(event, Transition):
                self._together = event.together
                happened.append(event)
            else:
                happened.append(self._entered(event))
                comparer.enter(event, self._together)
        return happened

    def _compare(self) -> None:
        """Take in what others say that they have delivered, and answer."""
        comparer = self._comparer
        comparer.work()
        sends, comparer.sends = comparer.sends, []
        for to, data in sends:
            self.send(to, data)
        self._events += comparer.found
        comparer.found = []

    def _entered(self, view: View) -> Entered:
        previous, self._entered_last = self._entered_last, view
        charter = self._charters.pop(view.id)
        return Entered.of(view, charter, previous, self._together, charter.primary or self.is_partitionable)

    def _forget(self, streams: Streams) -> None:
        """Forget the packets that every member's ordering has taken in."""
        engine = self._engine
        held, settled = streams.held(), streams.taken_by_all
        if self._own_casts.is_waiting:
            self._own_casts.taken(settled)
            engine.settle_own(self._own_casts.settled_index)
        for origin, marks in enumerate(self._marks):
            slots = engine.slots(origin)
            if not marks or marks[-1][1] < slots:
                marks.append((held[origin], slots))
            enough = 0
            while marks and marks[0][0] <= settled[origin]:
                enough = marks.popleft()[1]
            if enough:
                engine.trim(origin, enough)

    def _drain_streams(self, streams: Streams, effects: Effects) -> None:
        if self._detect_at <= self._now and self._detector.wants_heartbeat(self._now):  # never earlier
            streams.announce()
        for to, datagram in streams.act(self._now):
            if to is None:
                self._has_told_all = True
                effects.datagrams.append((self._others, datagram))
            else:
                effects.datagrams.append(((self._peers[to],), datagram))
        self._counter = streams.counter

    def _deadline(self) -> int | None:
        due = min(self._plan_at, self._detect_at)
        if self._streams is not None and self._streams.deadline is not None:
            due = min(due, self._streams.deadline)
        if self._quiet_at is not None:
            due = min(due, self._quiet_at)
        if self._watch.is_needed and not self.is_gone:
            due = min(due, self._watch.look_at)
        return None if due == NEVER else due

    def _drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    # What membership asks for: the view that it holds (`Holder`).

    def approach(self, wanted: bool) -> bool:
        """A view change is planned here, or is not any more: whether it may begin."""
        return self._engine.approach(wanted)

    def block(self) -> Report:
        """Stop the view, and say what is held of it."""
        return self._engine.block()

    def retained(self, slot: Slot) -> Packet | None:
        """The packet of a slot of the view, if it is held."""
        return self._engine.retained(slot)

    def close(self, cut: Cut, missing: Mapping[Slot, Packet]) -> None:
        """Take the agreed remainder of the view."""
        self._engine.close(cut, missing)

    def _renew_own_casts(self, previous: View | None) -> None:
        """The last view is over: tell which members are known to have everything that this one cast in it."""
        charter = self._membership.charter
        parts = () if charter is None else charter.parts
        alike = (part.members + part.leavers for part in parts)
        known = next((members for members in alike if self.id in members), (self.id,))
        is_everyone = previous is None or set(previous.members) <= set(known)
        self._own_casts.renew(self._engine.submitted, known, is_everyone, self._engine.ended_addressed)

    def depart(self, together: Sequence[MemberId], is_primary: bool) -> None:
        """Show the remainder of the view: this member leaves."""
        self._engine.depart(together, is_primary)
        self._renew_own_casts(self._engine.view)

    def install(
        self,
        view: View,
        previous: View | None,
        transitional: Sequence[MemberId],
        parts: Sequence[ViewId],
        order: str,
        attributes: Mapping[str, object],
    ) -> None:
        """Start a view, with streams of its own."""
        engine, self._order = self._engine, order
        is_first = not engine.has_view
        engine.install(view, previous, transitional, parts, order, attributes)
        if not is_first:
            self._renew_own_casts(previous)
        self._codec = Codec(self._orders[order].wire, self.settings.config)
        if self._streams is not None:
            self._totals.add(self._streams.counters)
        self._views += 1
        self._watch.renew_window()
        self._tell_detector()  # while the ranks mean the same
        self._members = view.members
        self._rank = view.rank_of(self.id)
        self._peers = tuple(member.address for member in view.members)
        self._others = tuple(member.address for member in view.members if member != self.id)
        self._replay = {member: self._replay.get(member) or ReplayWindow() for member in view.members}
        windows = self._windows = [self._replay[member] for member in view.members]
        settings, prefix = self.settings.streams, self._frames.stream_head
        self._streams = Streams(view, self._rank, settings, self._random, self._now, self._counter, windows, prefix)
        self._streams.set_free_room(self._room)
        self._tag = view_tag(view)
        self._marks = [deque() for _ in view.members]
        self._detector.watch([member for member in view.members if member != self.id], self._now)
        self._detect_at = self._now
        addresses = {member.address for member in view.members}
        for member in [one for one in self._suspected if one.address in addresses]:  # it, or its next life, took part
            del self._suspected[member]
            self._membership.unsuspect(member)
        for datagram, sealed_by in self._early.take(self._tag):
            self._take_stream(memoryview(datagram), self._now, sealed_by)


def _or_never(time: int | None) -> int:
    return NEVER if time is None else time
