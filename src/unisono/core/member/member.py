"""One member of a group, whole: all its parts, put together in one object without I/O.

    datagrams ─▶ frame ─▶ streams ─▶ decode ─▶ engine (batches, ordering) ─▶ gate ─▶ shown ─▶ events
                     └──▶ tickets ─▶ membership ─▶ block · close · install of the engine, and new streams with each view

| part         | its business                                                                                         |
|--------------|------------------------------------------------------------------------------------------------------|
| `engine`     | casts, orders and delivers; it lives through all views                                               |
| `streams`    | reliable streams between the members of one view; new ones with each view                            |
| `membership` | agrees with the other members on views: blocks and closes the engine's, has the member install them   |
| `suspicions` | which members are believed to have crashed, or to be faulty                                          |
| `stability`  | what every member has taken in: own messages become stable, and old packets are forgotten            |
| `shown`      | completes the engine's events for the application                                                    |
| `comparer`   | compares what members have delivered                                                                 |
| `markers`    | casts the markers at which members compare                                                           |
| `watchdog`   | explains what waits, evicts slow receivers, reports when nothing moves                               |
| `state`      | what may be asked of the member                                                                      |

A **turn** is any number of inputs (`cast`, `receive`, `tick`, …), then exactly one `drain(now)`, whose effects the driver
performs strictly top to bottom. Same inputs in the same order, same outputs.

The streams of a view are kept while a view change is under way: they no longer feed the ordering (the report is out), but they
still show that this member is alive. What arrives for a view that is not installed here yet waits, bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from unisono.core.departure import Cause
from unisono.core.incarnation import INCARNATION_MAX
from unisono.core.member.comparison import TAG as COMPARING
from unisono.core.member.comparison import Comparer
from unisono.core.member.counters import Counting, MemberCounters, Refuses
from unisono.core.member.events import Aside, Effects, Happening
from unisono.core.member.markers import Markers
from unisono.core.member.next_view_buffer import NextViewBuffer
from unisono.core.member.settings import Settings as Settings
from unisono.core.member.shown import EventCompleter
from unisono.core.member.stability import Stability
from unisono.core.member.state import MemberState
from unisono.core.member.suspicions import NEVER, Suspicions
from unisono.core.member.watchdog import Culprit, Watchdog
from unisono.core.membership import SECRET_BYTES, Installed, Membership, Tickets
from unisono.core.options import DEFAULT, CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.outbox import RefusedPacket
from unisono.core.streams import Streams
from unisono.core.types import Key, MemberId, Rank, View, ViewId
from unisono.core.views import Doubt, Phase, ViewEngine
from unisono.core.wire import Codec, ControlCodec, Frames, HeldState, ReplayWindow, view_tag
from unisono.core.wire.envelope import HEAD, ROUTE
from unisono.core.wire.envelope import VERSION as STREAM_VERSION
from unisono.core.wire.frame import HEAD_BYTES

if TYPE_CHECKING:
    from random import Random

LARGE_DATAGRAM_BYTES = 16_384
BATCH_HEAD_BYTES = 4_096
"""Room in a datagram for what surrounds the payloads of a batch of small messages, and some acknowledgements."""
ASIDE = b"\0"
"""The first byte of packets that are not the ordering's, which begin with their version."""


class Member:
    """See the module's docstring. Orders are handed in by name, so that the core knows none."""

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
        self.now = now
        """The time of the last turn."""
        self.engine = _make_engine(member, orders, settings, noting)
        """Casts, orders and delivers in the current view."""
        self.cast_many = self.engine.casting.accept_many
        """Accept messages without options: at most `room_messages`, and none too large.

        For a driver that has asked at the end of the last turn: nothing but a turn changes the answer.
        """
        self.streams: Streams | None = None
        """The streams of the current view; None: there was no view yet."""
        self.dropped: dict[str, int] = {}
        """Datagrams and packets that were discarded, by reason."""
        self.lie = ""
        """What was wrong with the last packet that was refused because no correct member sends it at that point."""
        self._orders = orders
        self._random = random
        # Outside of views.
        self._frames = Frames(group, member, incarnation_max)
        secret = random.randbytes(SECRET_BYTES)
        self.tickets = Tickets(member.address, secret, settings.membership.addresses_max)
        self._control = ControlCodec(settings.config)
        self._membership = Membership(
            member, self.engine, self, orders, order, settings.config, settings.membership, record, secret
        )
        self._membership.tick(now)
        self._is_planning = False  # something happened that membership may act upon
        self._plan_at = NEVER  # when membership must be asked
        # In a view.
        self._codec = Codec((), settings.config)  # of the ordering's packets
        self._peers: tuple[str, ...] = ()  # addresses of the members of the view, by rank
        self._others: tuple[str, ...] = ()  # without the own one
        self._replay: dict[MemberId, ReplayWindow] = {}
        self._windows: list[ReplayWindow] = []  # the same, by rank
        self._counter = 1  # of the next transmission on a stream
        self._tag = 0  # of the installed view
        self._next_view = NextViewBuffer()
        self._room: int | None = None  # of the application
        self._room_most = 1  # that it ever had
        self._quiet_at: int | None = None  # when the ordering may owe an acknowledgement
        self._events: list[Happening] = []  # shown after the engine's
        self._effects = Effects()
        # Parts that look at the others.
        self._suspicions = Suspicions(settings.detector, settings.config.members_max, self._membership, noting, now)
        self._stability = Stability(self.engine)
        self._comparer = Comparer(member, settings.config)
        self.state = MemberState(settings, self.engine, self._membership, self._suspicions, self._stability)
        """What may be asked of this member."""
        self.markers = Markers(self.engine, self._comparer, self.state)
        """Casts the markers of checks."""
        self._completer = EventCompleter(member, self._comparer, self.state.is_partitionable)
        self._watchdog = Watchdog(self.state, settings.flow, self._evict, now)
        layers: dict[str, Refuses] = {
            "frame": self._frames,
            "control": self._control,
            "membership": self._membership,
            "comparison": self._comparer,
        }
        self._counting = Counting(self.engine, self._suspicions, self._comparer, self._watchdog, layers, self.dropped)

    # The inputs of a turn.

    def join(self, seeds: Iterable[str] = (), expects_more: bool = False) -> None:
        """Look for the group at these addresses; without any, and if no more are to come, found one."""
        self._membership.tick(self.now)
        self._membership.join(seeds, expects_more)
        self._is_planning = True

    def doubt(self, addresses: Iterable[str]) -> None:
        """Distrust addresses that the operator's names no longer stand for."""
        self._membership.doubt(addresses)

    def name_peers(self, peers: Sequence[str]) -> None:
        """Name the peers of which the first primary needs a majority: more of their addresses are known now, or other ones."""
        self._membership.tick(self.now)
        self._membership.name_peers(peers)
        self._is_planning = True

    def leave(self) -> None:
        """Leave the group in an orderly way."""
        self._membership.tick(self.now)
        self._membership.leave()
        self._is_planning = True

    def switch(self, order: str) -> None:
        """Ask for another order; it takes effect with the next view."""
        self._membership.switch(order)
        self._is_planning = True

    def hold(self, state: HeldState | None) -> None:
        """Tell membership which primary's state the application has and can carry on; None: none."""
        self._membership.hold(state)
        self._is_planning = True

    def give_up(self, state: ViewId) -> None:
        """Give up the state of a primary, by its name, when no member here has it. That is persisted before it takes effect."""
        self._membership.tick(self.now)
        self._membership.give_up(state)
        self._is_planning = True

    def cast(self, payload: bytes, options: CastOptions = DEFAULT) -> Key | None:
        """Accept a message for the group. None: not now, because there is no view yet or a window is full.

        Under the policy `shed` a full window raises `Shed` instead.
        """
        state = self.state
        if not state.has_view or state.is_gone:
            return None
        state.demand_primary()
        key = None if state.is_shut else self.engine.cast(payload, options)
        if key is None:
            self._watchdog.refuse(self.now)
        return key

    def send(self, to: MemberId, data: bytes) -> bool:
        """Send bytes to one member of the view, reliably and in order while the view lasts. False: it is not in the view."""
        streams, view = self.streams, self.view
        if streams is None or view is None or to == self.id or to not in view.members:
            return False
        streams.send(view.rank_of(to), ASIDE + data)
        return True

    def urge(self) -> None:
        """Ask peers to acknowledge immediately: a caller is waiting for stability."""
        if self.streams is not None:
            self.streams.urge()

    def set_free_room(self, packets: int | None) -> None:
        """Tell the others how many more packets of each origin the application can take; None: any number."""
        self._room = packets
        self._room_most = max(self._room_most, packets or 0)
        self._membership.drained(packets is None or 2 * packets >= self._room_most)
        if self.streams is not None:
            self.streams.set_free_room(packets)

    def receive(
        self, datagrams: Iterable[bytes | memoryview], now: int, senders: Iterable[MemberId | None] = ()
    ) -> None:
        """Take datagrams from the network. `senders`: the member that has sealed each of them, where that is known."""
        self.tick(now)
        for datagram, sender in zip_longest(datagrams, senders):
            if datagram[:HEAD_BYTES] == self._frames.stream_head:
                self._take_stream(memoryview(datagram)[HEAD_BYTES:], now, sender)
            elif (frame := self._frames.open(datagram)) is not None:
                self._take_control(frame.sender, frame.message, now)

    def tick(self, now: int) -> None:
        """Time has passed."""
        self.now = max(self.now, now)
        if self.now >= self._suspicions.due:
            self._suspicions.tell_detector(self.engine.view.members, self.now)
            self._is_planning |= self._suspicions.tick(self.now)
        if self.now >= self._plan_at:
            self._membership.tick(self.now)
            self._is_planning = True
        if self.now >= self._watchdog.look_at:
            self._membership.tick(self.now)
            self._events += self._watchdog.look(self.now)
            if self.streams is not None and self.engine.phase is Phase.RUNNING:
                self._stability.look_back(self.streams)
            self._is_planning |= self._suspicions.forgive(self.now)

    def drain(self, now: int) -> Effects:
        """End the turn."""
        effects = self.act(now)
        effects.deadline = self.finish_turn()
        return effects

    def act(self, now: int) -> Effects:
        """The urgent half of `drain`: all its effects but the deadline."""
        self.tick(now)
        effects = self._effects
        effects.records, effects.vote_watermark, effects.datagrams, effects.events, effects.notes = [], None, [], [], []
        if self._is_planning:
            self._plan(effects)  # may block, close and install
        if self.tickets.owes:
            for address, written in self.tickets.drain():
                effects.datagrams.append(((address,), self._frames.control(written)))
        streams = self.streams
        if streams is not None:
            if streams.arrivals:
                self._hand_over(streams)
            self._take_engine_turn(streams, effects)
            if self._comparer.has_work:
                self._compare()
            if self._suspicions.due <= self.now and self._suspicions.wants_heartbeat(self.now):  # never earlier
                streams.announce()
            for to, datagram in streams.act(self.now):
                if to is None:
                    self._suspicions.has_told_all = True
                    effects.datagrams.append((self._others, datagram))
                else:
                    effects.datagrams.append(((self._peers[to],), datagram))
            self._counter = streams.counter
        if self._suspicions.notes:
            effects.notes = self._suspicions.take_notes() + effects.notes
        if self._events:
            effects.events += self._events
            self._events = []
        return effects

    def finish_turn(self) -> int | None:
        """The other half: what can wait until the effects are performed, but not until the next input. Returns the deadline."""
        suspicions = self._suspicions
        if suspicions.heard_ranks or suspicions.has_told_all:
            suspicions.tell_detector(self.engine.view.members, self.now)
        streams = self.streams
        if self._comparer.waiting:
            self._comparer.limit_waiting()
        if streams is not None:
            if self.engine.phase is Phase.RUNNING:
                self._stability.forget(streams)
            streams.finish_turn(self.now)
        if self._membership.is_approaching:
            self._membership.observe()
            self._plan_at = _or_never(self._membership.deadline)  # this turn may have got there
        return self._deadline()

    # Inside a turn.

    def suspect(self, member: MemberId, cause: Cause) -> None:
        """Suspect a member, and let membership act upon it with this turn."""
        self._suspicions.suspect(member, cause, self.now)
        self._is_planning = True

    def _evict(self, member: MemberId, lasted_ns: int) -> None:
        self._is_planning = True
        self._membership.evict(member, lasted_ns)

    def _plan(self, effects: Effects) -> None:
        """Let membership do what is due. Only control messages, suspicions and time move it, so a turn of data skips this."""
        self._membership.tick(self.now)
        out = self._membership.drain()
        self._is_planning = False
        self._plan_at = _or_never(self._membership.deadline)
        effects.records = out.records
        for to, message in out.sends:
            is_for_anyone = isinstance(to, str)
            address = to if isinstance(to, str) else to.address
            written = self.tickets.write(address, self._control.encode(message), self.now, is_for_anyone)
            if written is not None:
                effects.datagrams.append(((address,), self._frames.control(written)))
        for event in out.events:
            if isinstance(event, Installed):
                self._completer.learn(event.charter)
            else:
                self._events.append(event)

    def _take_stream(self, datagram: memoryview, now: int, sealed_by: MemberId | None) -> None:
        if len(datagram) < HEAD.size or datagram[0] != STREAM_VERSION:
            self._drop("short datagram")
            return
        _, sender, view = ROUTE.unpack_from(datagram)
        if view != self._tag:
            self._keep_for_next_view(view, datagram, sealed_by)
        elif self.streams is not None and sender < len(self.engine.view.members):
            if sealed_by is not None and sealed_by != self.engine.view.members[sender]:
                self._drop("sender")
                return
            window = self._windows[sender]
            before = window.highest
            self.streams.receive(sender, datagram, now)
            # Authentic, well-formed, and sent after all that came before: what was held back says nothing of the present.
            if window.highest > before:
                if self._suspicions.silent:
                    self._is_planning |= self._suspicions.heard(self.engine.view.members[sender], now)
                else:
                    self._suspicions.heard_ranks[sender] = None

    def _take_control(self, sender: MemberId, data: memoryview, now: int) -> None:
        proven = self.tickets.read(sender, data, self.now)
        if not proven:
            return  # a question, or an answer to one
        if isinstance(proven, str):
            self._drop(proven)
            return
        message = self._control.read(proven)
        if message is None:
            self._drop("control message")
            return
        self._suspicions.heard(sender, now)
        self._is_planning = True
        self._membership.tick(self.now)
        self._membership.receive(sender, message)  # type: ignore[arg-type]  # what is no control message is ignored there

    def _keep_for_next_view(self, view: int, datagram: memoryview, sealed_by: MemberId | None) -> None:
        """Of another view: perhaps of the next one, which others have installed a little earlier."""
        if self.engine.phase is Phase.RUNNING:
            self._drop("other view")
            return
        for _ in range(self._next_view.keep(view, bytes(datagram), sealed_by)):
            self._drop("early datagrams")

    def _hand_over(self, streams: Streams) -> None:
        """Hand what has arrived on the streams to the ordering, unless the view is being closed."""
        engine, members = self.engine, len(self.engine.view.members)
        for sender, data in streams.arrived():
            if data[:1] == ASIDE:
                if data[1:2] == COMPARING:
                    self._comparer.receive(self.engine.view.members[sender], bytes(data[2:]))
                else:
                    self._events.append(Aside(self.engine.view.members[sender], bytes(data[1:])))
                continue
            if engine.phase is not Phase.RUNNING or sender in engine.admission.faulty:
                continue
            packet = self._codec.decode(data, sender, members)
            if packet is None:
                self._drop("packet")
                self._distrust(sender, streams)
                continue
            engine.receive(sender, packet)
        if streams.broken:
            for sender in streams.broken - engine.admission.faulty:
                self._distrust(sender, streams)

    def _refuse(self, faults: Sequence[RefusedPacket], streams: Streams) -> None:
        """Distrust the senders of packets that the ordering has refused, because no correct member sends them at that point."""
        for fault in faults:
            self.lie = f"{self.engine.view.members[fault.sender]}: {fault.reason}"
            self._drop("impossible packet" if fault.is_certain else "contradiction")
            self._distrust(fault.sender, streams, fault.is_certain)

    def _distrust(self, rank: Rank, streams: Streams, is_certain: bool = True) -> None:
        """React to a packet that no correct member sends: suspect its sender, or form the view anew.

        The sender is suspected only if its guilt is certain, and no other member has relayed any of its packets. Otherwise it
        is unknown who lied, so no member is blamed, and a new view begins with fresh streams.
        """
        self.engine.admission.faulty.add(rank)
        if is_certain and rank not in streams.relayed:
            self.suspect(self.engine.view.members[rank], Cause.FAULTY)
        else:
            self._membership.renew()
        self._is_planning = True
        self._plan_at = self.now  # at once, not with the next datagram

    def _take_engine_turn(self, streams: Streams, effects: Effects) -> None:
        engine = self.engine
        turn = engine.drain(self.now)
        if turn.faults:
            self._refuse(turn.faults, streams)
        if turn.events:
            effects.events += self._completer.complete(turn.events)
        effects.notes = turn.notes
        effects.vote_watermark = turn.vote_watermark
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
        if streams.untaken:
            streams.take_all(engine.admission.faulty)
        if engine.showing.gate.waiting:
            streams.hurry()  # everyone gates it, and waits for everyone
            released = engine.showing.release(streams.held(), streams.taken_by_all)
            effects.events += self._completer.complete(released.events)
            effects.notes += released.notes
        if engine.showing.own_shown:
            self._stability.deliver_own(streams)

    def _compare(self) -> None:
        """Take in what others say that they have delivered, and answer."""
        comparer = self._comparer
        comparer.work()
        for to, data in comparer.take_sends():
            self.send(to, data)
        self._events += comparer.take_found()

    def _deadline(self) -> int | None:
        due = min(self._plan_at, self._suspicions.due)
        if self.streams is not None and self.streams.deadline is not None:
            due = min(due, self.streams.deadline)
        if self._quiet_at is not None:
            due = min(due, self._quiet_at)
        if self._watchdog.is_needed and not self._membership.is_gone:
            due = min(due, self._watchdog.look_at)
        return None if due == NEVER else due

    def _drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    # What membership asks for (`Installer`): views begin and end.

    def depart(self, together: Sequence[MemberId], is_primary: bool) -> None:
        """Show the remainder of the view: this member leaves."""
        self.engine.depart(together, is_primary)
        self._stability.end(self._membership.charter, self.engine.view)

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
        engine = self.engine
        self._suspicions.tell_detector(engine.view.members, self.now)  # while the ranks mean the same
        is_first = not engine.has_view
        engine.install(view, previous, transitional, parts, order, attributes)
        if not is_first:
            self._stability.end(self._membership.charter, previous)
        self._codec = Codec(self._orders[order].wire, self.settings.config)
        self._watchdog.renew_window()
        self._peers = tuple(member.address for member in view.members)
        self._others = tuple(member.address for member in view.members if member != self.id)
        self._replay = {member: self._replay.get(member) or ReplayWindow() for member in view.members}
        windows = self._windows = [self._replay[member] for member in view.members]
        settings, prefix = self.settings.streams, self._frames.stream_head
        self.streams = Streams(view, engine.rank, settings, self._random, self.now, self._counter, windows, prefix)
        self.streams.set_free_room(self._room)
        self.state.enter(self.streams)
        self._counting.enter(self.streams)
        self._tag = view_tag(view)
        self._stability.enter(view)
        self._suspicions.watch(view.members, self.id, self.now)
        for datagram, sealed_by in self._next_view.take(self._tag):
            self._take_stream(memoryview(datagram), self.now, sealed_by)

    # Questions.

    @property
    def view(self) -> View | None:
        """The view that was installed last."""
        return self.state.view

    @property
    def is_lied_to(self) -> bool:
        """Whether anything was refused here because no correct member sends it."""
        return bool(self.lie) or self._membership.is_lied_to

    def take_doubts(self) -> list[Doubt]:
        """Own messages whose view ended before every member was known to have them; each is told once."""
        return self._stability.take_doubts()

    def explain(self, key: Key | None = None, most: int | None = None) -> list[str]:
        """Why something waits here, for whom and since when, at most `most` sentences; with a key, of that message alone."""
        return self._watchdog.explain(self.now, most) if key is None else [self._watchdog.explain_key(key, self.now)]

    @property
    def slowest(self) -> Culprit | None:
        """The peer that keeps this member from casting now, and since when."""
        return self._watchdog.slowest(self.now)

    @property
    def counters(self) -> MemberCounters:
        """What happened so far, in numbers. Free until it is asked for."""
        return self._counting.read()


def _make_engine(
    member: MemberId, orders: Mapping[str, type[AnyOrdering]], settings: Settings, noting: bool
) -> ViewEngine:
    """An engine whose limits fit the streams below it."""
    engine = ViewEngine(member, orders, settings.config, noting)
    engine.casting.bytes_max = settings.streams.window_bytes
    engine.casting.copies_bytes_max = settings.streams.kept_bytes_max - 2 * settings.streams.window_bytes
    if settings.streams.datagram_bytes >= LARGE_DATAGRAM_BYTES:  # a batch a datagram: nothing to cut and rebuild
        room = settings.streams.datagram_bytes - BATCH_HEAD_BYTES
        engine.casting.batch_bytes_max = min(settings.config.batch_bytes_max, room)
    return engine


def _or_never(time: int | None) -> int:
    return NEVER if time is None else time
