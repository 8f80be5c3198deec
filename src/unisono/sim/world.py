"""The simulated world of orders: engines of one view on modelled streams, with an oracle in the place of membership.

What arrives at one host at the same time is one turn. Without a recorder and a meter, nothing is spent on notes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import permutations
from typing import TypeAlias

from unisono.core.errors import PeerFault
from unisono.core.ordering import AnyOrdering
from unisono.core.outbox import EngineEffects
from unisono.core.types import Batch, MemberId, Packet, Rank, View, ViewId
from unisono.core.views import ViewEngine, packet_for
from unisono.orders.registry import find_order
from unisono.sim.faults import Fault
from unisono.sim.kernel import Host, Scheduled, VirtualTime
from unisono.sim.lots import key_of, pick
from unisono.sim.network import CAST, PacketNetwork
from unisono.sim.oracle import OracleChange
from unisono.sim.scenario import Scenario, name_of
from unisono.sim.workload import Workload
from unisono.trace.recorder import Recorder

Meter: TypeAlias = Callable[[int, MemberId, EngineEffects], None]
"""Looks at every turn: when, whose, and what came of it."""


class EngineHost(Host):
    """A simulated process that runs the engine of a view."""

    __slots__ = ("cast_at", "member", "number", "recorder", "sent_bytes", "sent_packets", "world")

    def __init__(self, world: World, number: int, member: ViewEngine, recorder: Recorder | None) -> None:
        super().__init__(world)
        self.world = world
        self.number = number
        self.member = member
        self.recorder = recorder
        self.cast_at = 0  # when its application cast last
        self.sent_packets, self.sent_bytes = 0, 0  # on the wire, one a receiver; bytes only if someone measures

    def record_sent(self) -> Recorder | None:
        """Record what it put on the wire so far. Returns its recorder, if it has one."""
        if self.recorder is not None:
            self.recorder.counters(self.time.now, {"packets": self.sent_packets, "bytes": self.sent_bytes})
        return self.recorder

    def turn(self) -> None:
        self.world.take_turn(self)

    def resume(self, mailbox: list[tuple[Rank, Packet]], is_overdue: bool) -> None:
        if mailbox or self.member.has_input or is_overdue:
            for sender, packet in mailbox:
                self.member.receive(sender, packet)
            self.turn()


class World(VirtualTime):
    """One run of one scenario. `order` replaces the registered class, for naive variants."""

    def __init__(
        self,
        scenario: Scenario,
        order: type[AnyOrdering] | None = None,
        recorder_of: Callable[[MemberId], Recorder] | None = None,
        meter: Meter | None = None,
        size_of: Callable[[Packet], int] | None = None,
    ) -> None:
        super().__init__(scenario.seed)
        self.scenario = scenario
        self.config = scenario.settings
        self.order = order or find_order(scenario.order)
        self.casts = 0  # messages cast
        self.deliveries = 0  # messages shown to applications
        self.turns = 0
        self.network = PacketNetwork(scenario)
        self.workload = Workload(scenario)
        self._size_of = size_of
        self._meter = meter
        self._unicast_types: set[type] = set()  # to tell the streams of packets in flight apart
        self._turn_ns = scenario.turn_ns
        self._saturating = scenario.source.kind == "saturating"
        members = tuple(MemberId(name_of(number)) for number in range(scenario.members))
        self.view = View(ViewId(1, members[0]), members)
        noting = recorder_of is not None or meter is not None
        orders = {scenario.order: self.order}
        self.hosts = [
            EngineHost(self, i, ViewEngine(m, orders, self.config, noting), recorder_of and recorder_of(m))
            for i, m in enumerate(members)
        ]
        self._by_name = {host.member.id.address: host for host in self.hosts}
        for host in self.hosts:
            host.member.install(self.view, order=scenario.order)
        self.change = OracleChange(self)
        self.enter_view(self.view, self.hosts)

    # Running.

    def play(self, progress: Callable[[World], None] | None = None, every: int = 20_000) -> World:
        """Run until nothing is left to happen; `progress` is called now and then."""
        for host in self.hosts:
            self.take_turn(host)
            self.at(self.workload.first_ns(host.number), self._caster(host))
        for fault in self.scenario.faults:
            self.at(fault.at_ns, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
        heap, hosts, take_turn = self.heap, self.hosts, self.take_turn
        countdown = every
        while heap:
            now, _, number, sender, packet = heappop(heap)
            self.now = now
            if number < 0:
                packet()
            elif (host := hosts[number]).is_hindered:
                host.mailbox.append((sender, packet))
            else:
                receive = host.member.receive
                receive(sender, packet)
                while heap and heap[0][0] == now and heap[0][2] == number:  # what arrives together is one turn
                    _, _, _, sender, packet = heappop(heap)
                    receive(sender, packet)
                take_turn(host)
            countdown -= 1
            if not countdown:
                countdown = every
                if progress is not None:
                    progress(self)
        self._end()
        return self

    def take_turn(self, host: EngineHost) -> None:
        """End a member's turn and perform its effects."""
        member = host.member
        now = self.now
        effects = member.drain(host.clock())
        if effects.faults:  # here all are correct, so the order is not
            fault = effects.faults[0]
            raise PeerFault(f"{member.id} refuses a packet of rank {fault.sender}: {fault.reason}")
        self.turns += 1
        if effects.notes:
            if host.recorder is not None:
                host.recorder.turn(now, effects.notes)
            if self._meter is not None:
                self._meter(now, member.id, effects)
        if effects.casts:
            for packet in effects.casts:
                self._send_to_all(host, packet, effects.partial)
        if effects.sends:
            for rank, packet in effects.sends:
                self._send(host, rank, packet)
        if effects.events:
            for event in effects.events:
                if type(event) is Batch:
                    self.deliveries += event.count
            if self._saturating and self.workload.remaining and member.casting.unfinished < self.scenario.source.depth:
                self.at(max(now, host.cast_at + self.network.mean_ns), self._caster(host))
        if effects.deadline is not None:
            host.arm(effects.deadline)
        if self._turn_ns:
            host.occupy(now + self._turn_ns)

    def _end(self) -> None:
        reason = "cut" if self.order.acknowledges and self.config.ack_delay_ns is None else "done"
        for host in self.hosts:
            if host.alive and (recorder := host.record_sent()) is not None:
                recorder.end(self.now, reason)

    # Sending.

    def _send_to_all(self, host: EngineHost, packet: Packet, partial: bool) -> None:
        network, heap, now, src = self.network, self.heap, self.now, host.number
        rank = host.member.rank
        peers = self._peers[src]
        tie = self.tie
        if self._size_of is not None:
            host.sent_bytes += self._size_of(packet) * len(peers)
        host.sent_packets += len(peers)
        key = network.next_cast(src)
        if network.is_plain and not partial:  # the tight loop
            sample, receivers, last = network.sample, network.receivers, network.last[CAST][src]
            for dst in peers:
                arrival = now + sample(src, dst, key ^ receivers[dst])
                if arrival < last[dst]:
                    arrival = last[dst]
                last[dst] = arrival
                tie += 1
                heappush(heap, (arrival, tie, dst, rank, packet))
        else:
            for dst in peers:
                arrival = network.take(CAST, src, dst, now, key)
                tie += 1
                heappush(heap, (arrival, tie, dst, rank, packet_for(packet, self.hosts[dst].member.rank)))
        self.tie = tie

    def _send(self, host: EngineHost, rank: Rank, packet: Packet) -> None:
        dst = self.in_view[rank].number
        self._unicast_types.add(type(packet))
        if self._size_of is not None:
            host.sent_bytes += self._size_of(packet)
        host.sent_packets += 1
        self.tie += 1
        arrival = self.network.unicast(host.number, dst, self.now)
        heappush(self.heap, (arrival, self.tie, dst, host.member.rank, packet))

    # Casting and timers.

    def _caster(self, host: EngineHost) -> Callable[[], None]:
        def cast() -> None:
            if not host.alive or not self.workload.remaining:
                return
            if host.paused_until > self.now:
                self.at(host.paused_until, cast)
                return
            self._cast(host)
            gap = self.workload.next_ns(host.number)
            if gap is not None:
                self.at(self.now + gap, cast)

        return cast

    def _cast(self, host: EngineHost) -> None:
        member = host.member
        host.cast_at = self.now
        for _ in range(self.workload.count(member.casting.unfinished)):
            payload, options = self.workload.message(host.number, member.casting.index, member.view.members)
            if member.cast(payload, options) is None:  # the window is full: it tries again with its next cast
                self.workload.remaining += 1
                break
            self.casts += 1
        if not host.is_hindered:
            self.take_turn(host)

    # Faults.

    def _strike(self, fault: Fault) -> None:
        end = self.now + fault.duration_ns
        hosts = [self._by_name[name] for name in fault.who]
        if hosts and not hosts[0].alive:
            return
        match fault.kind:
            case "crash":
                self._crash(hosts[0])
            case "pause":
                if hosts[0].recorder is not None:
                    hosts[0].recorder.pause(self.now)
                hosts[0].pause(end)
            case "drift":
                hosts[0].drift(1.0 + fault.amount)
            case "partition":
                part_of = {self._by_name[name].number: part for part in fault.parts for name in part}
                for src, dst in permutations(part_of, 2):
                    if part_of[src] != part_of[dst]:
                        self.network.clog(src, dst, end)
            case _:
                self.network.strike(fault, hosts[0].number, hosts[-1].number, self)

    def _crash(self, host: EngineHost) -> None:
        """A member dies; of each of its streams, to each receiver, some suffix of what is under way is lost with it."""
        host.crash()
        if (recorder := host.record_sent()) is not None:
            recorder.crash(self.now)
        rank = host.member.rank
        flights: dict[tuple[int, bool], list[Scheduled]] = {}
        for scheduled in sorted(self.heap, key=lambda h: h[:2]):
            if scheduled[2] >= 0 and scheduled[3] == rank:
                unicast = type(scheduled[4]) in self._unicast_types
                flights.setdefault((scheduled[2], unicast), []).append(scheduled)
        lost: set[int] = set()
        for (receiver, is_unicast), flight in flights.items():
            key = key_of(self.seed, "crash", host.number, receiver, is_unicast)
            lost.update(scheduled[1] for scheduled in flight[pick(key, len(flight) + 1) :])
        self.heap[:] = [scheduled for scheduled in self.heap if scheduled[1] not in lost]
        heapify(self.heap)
        self.at(self.now + self.scenario.detect_ns, self.change.begin)

    # For the view change.

    def drop_in_flight(self) -> None:
        """Forget every packet under way: after the reports nothing of the old view is handed over."""
        self.heap[:] = [scheduled for scheduled in self.heap if scheduled[2] < 0]
        heapify(self.heap)
        for host in self.hosts:
            host.mailbox.clear()

    def enter_view(self, view: View, hosts: Sequence[EngineHost]) -> None:
        self.view = view
        self.in_view = list(hosts)
        """The hosts of the current view by rank, crashed ones included."""
        numbers = [host.number for host in hosts]
        self._peers = {number: [other for other in numbers if other != number] for number in numbers}

    @property
    def packets(self) -> int:
        """Packets on the wire, one a receiver."""
        return sum(host.sent_packets for host in self.hosts)

    @property
    def bytes(self) -> int:
        """Their encoded size, if someone measures it."""
        return sum(host.sent_bytes for host in self.hosts)
