"""The simulator's driver: virtual time, one heap of things to come, and members that take turns.

Everything random is drawn from streams named after their purpose and seeded by the scenario, and the heap breaks ties by the order
of insertion, so a scenario has exactly one run. Watchers see every turn; without one, nothing is spent on notes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, Protocol, TypeAlias

from unisono.core.errors import PeerFault
from unisono.core.ordering import AnyOrdering
from unisono.core.outbox import EngineEffects
from unisono.core.types import Batch, MemberId, Packet, Rank, View, ViewId
from unisono.core.views import ViewEngine, packet_for
from unisono.orders.registry import find_order
from unisono.sim.network import CAST, UNICAST, PacketNetwork
from unisono.sim.oracle import ViewChange
from unisono.sim.scenario import Fault, Scenario
from unisono.sim.workload import Workload

Scheduled: TypeAlias = tuple[int, int, int, Any, Any]
"""(time, tie, host, rank of the sender, packet), or (time, tie, -1, None, function to call)."""


class Watcher(Protocol):
    """Someone who looks at a run: recorder, checkers, meter."""

    def turn(self, now: int, member: MemberId, effects: EngineEffects) -> None: ...
    def crash(self, now: int, member: MemberId, sent: Mapping[str, int]) -> None: ...
    def fault(self, now: int, member: MemberId, kind: str) -> None: ...
    def end(self, now: int, member: MemberId, reason: str, sent: Mapping[str, int]) -> None: ...


class Host:
    """A simulated process: its member, and what the simulator does to it."""

    __slots__ = (
        "alive", "armed", "busy_until", "cast_at", "clock_base", "clock_rate", "clock_since", "hindered", "mailbox", "member",
        "number", "paused_until", "sent_bytes", "sent_packets",
    )  # fmt: skip

    def __init__(self, number: int, member: ViewEngine) -> None:
        self.number = number
        self.member = member
        self.alive = True
        self.hindered = False  # dead, paused or busy: the fast path leaves it alone
        self.paused_until = 0
        self.busy_until = 0
        self.cast_at = 0  # when its application cast last
        self.sent_packets, self.sent_bytes = 0, 0  # on the wire, one a receiver; bytes only if someone measures
        self.mailbox: list[tuple[Rank, Packet]] = []  # arrived while it could not take a turn
        self.armed: int | None = None  # the deadline for which a tick is on the heap
        self.clock_base, self.clock_since, self.clock_rate = 0, 0, 1.0

    @property
    def sent(self) -> dict[str, int]:
        """What it put on the wire so far."""
        return {"packets": self.sent_packets, "bytes": self.sent_bytes}

    def clock(self, now: int) -> int:
        """This host's own clock, which may drift."""
        if self.clock_rate == 1.0:
            return now
        return self.clock_base + int((now - self.clock_since) * self.clock_rate)

    def when(self, local: int, now: int) -> int:
        """The simulator's time at which this host's clock reads `local`."""
        if self.clock_rate == 1.0:
            return max(now, local)
        return max(now, self.clock_since + int((local - self.clock_base) / self.clock_rate) + 1)

    def drift(self, now: int, rate: float) -> None:
        self.clock_base, self.clock_since, self.clock_rate = self.clock(now), now, rate


class World:
    """One run of one scenario. `order` replaces the registered class, for naive variants."""

    def __init__(
        self,
        scenario: Scenario,
        order: type[AnyOrdering] | None = None,
        watchers: Sequence[Watcher] = (),
        size_of: Callable[[Packet], int] | None = None,
    ) -> None:
        self.scenario = scenario
        self.config = scenario.settings
        self.order = order or find_order(scenario.order)
        self.now = 0
        self.casts = 0  # messages cast
        self.deliveries = 0  # messages shown to applications
        self.turns = 0
        self.network = PacketNetwork(scenario, self.stream)
        self.workload = Workload(scenario, self.stream)
        self._size_of = size_of
        self._watchers = tuple(watchers)
        self._heap: list[Scheduled] = []
        self._tie = 0
        self._unicast_types: set[type] = set()  # to tell the streams of packets in flight apart
        self._turn_ns = scenario.turn_ns
        self._saturating = scenario.source.kind == "saturating"
        members = tuple(MemberId(name_of(number)) for number in range(scenario.members))
        self.view = View(ViewId(1, members[0]), members)
        noting = bool(self._watchers)
        orders = {scenario.order: self.order}
        self.hosts = [Host(i, ViewEngine(m, orders, self.config, noting)) for i, m in enumerate(members)]
        for host in self.hosts:
            host.member.install(self.view, order=scenario.order)
        self.change = ViewChange(self)
        self._enter_view(self.view, self.hosts)

    def stream(self, purpose: str) -> Random:
        """A random stream of its own for one purpose. Seeding by text does not depend on the hash seed."""
        return Random(f"{self.scenario.seed}/{purpose}")

    # Running.

    def run(self, progress: Callable[[World], None] | None = None, every: int = 20_000) -> World:
        """Run until nothing is left to happen; `progress` is called now and then."""
        for host in self.hosts:
            self.take_turn(host)
            self.at(self.workload.first_ns(), self._caster(host))
        for fault in self.scenario.faults:
            self.at(fault.at_ns, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
        heap = self._heap
        countdown = every
        while heap:
            self._step(heap)
            countdown -= 1
            if not countdown:
                countdown = every
                if progress is not None:
                    progress(self)
        self._end()
        return self

    def at(self, time: int, action: Callable[[], None]) -> None:
        """Let something happen at a time; ties happen in the order in which they were asked for."""
        self._tie += 1
        heappush(self._heap, (max(time, self.now), self._tie, -1, None, action))

    def _step(self, heap: list[Scheduled]) -> None:
        now, _, number, sender, packet = heappop(heap)
        self.now = now
        if number < 0:
            packet()
            return
        host = self.hosts[number]
        if host.hindered:
            host.mailbox.append((sender, packet))
            return
        receive = host.member.receive
        receive(sender, packet)
        while heap and heap[0][0] == now and heap[0][2] == number:  # what arrives together is one turn
            _, _, _, sender, packet = heappop(heap)
            receive(sender, packet)
        self.take_turn(host)

    def take_turn(self, host: Host) -> None:
        """End a member's turn and perform its effects."""
        member = host.member
        now = self.now
        effects = member.drain(host.clock(now))
        for fault in effects.faults:  # here all are correct, so the order is not
            raise PeerFault(f"{member.id} refuses a packet of rank {fault.sender}: {fault.reason}")
        self.turns += 1
        for watcher in self._watchers:
            watcher.turn(now, member.id, effects)
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
        if effects.deadline is not None and effects.deadline != host.armed:
            host.armed = effects.deadline
            self.at(host.when(effects.deadline, now), self._ticker(host, effects.deadline))
        if self._turn_ns:
            self._occupy(host)

    def _end(self) -> None:
        reason = "cut" if self.order.acknowledges and self.config.ack_delay_ns is None else "done"
        for host in self.hosts:
            if host.alive:
                for watcher in self._watchers:
                    watcher.end(self.now, host.member.id, reason, host.sent)

    # Sending.

    def _send_to_all(self, host: Host, packet: Packet, partial: bool) -> None:
        network, heap, now, src = self.network, self._heap, self.now, host.number
        rank = host.member.rank
        peers = self._peers[src]
        tie = self._tie
        if self._size_of is not None:
            host.sent_bytes += self._size_of(packet) * len(peers)
        host.sent_packets += len(peers)
        if network.plain and not partial:  # the tight loop
            sample, last = network.sample, network.last[CAST][src]
            for dst in peers:
                arrival = now + sample(src, dst)
                if arrival < last[dst]:
                    arrival = last[dst]
                last[dst] = arrival
                tie += 1
                heappush(heap, (arrival, tie, dst, rank, packet))
        else:
            for dst in peers:
                arrival = network.arrival(CAST, src, dst, now)
                tie += 1
                heappush(heap, (arrival, tie, dst, rank, packet_for(packet, self.hosts[dst].member.rank)))
        self._tie = tie

    def _send(self, host: Host, rank: Rank, packet: Packet) -> None:
        dst = self._by_rank[rank].number
        self._unicast_types.add(type(packet))
        if self._size_of is not None:
            host.sent_bytes += self._size_of(packet)
        host.sent_packets += 1
        self._tie += 1
        arrival = self.network.arrival(UNICAST, host.number, dst, self.now)
        heappush(self._heap, (arrival, self._tie, dst, host.member.rank, packet))

    # Casting and timers.

    def _caster(self, host: Host) -> Callable[[], None]:
        def cast() -> None:
            if not host.alive or not self.workload.remaining:
                return
            if host.paused_until > self.now:
                self.at(host.paused_until, cast)
                return
            self._cast(host)
            gap = self.workload.next_ns()
            if gap is not None:
                self.at(self.now + gap, cast)

        return cast

    def _cast(self, host: Host) -> None:
        member = host.member
        host.cast_at = self.now
        for _ in range(self.workload.count(member.casting.unfinished)):
            self.casts += 1
            options = self.workload.options(member.view.members)
            key = member.cast(self.workload.payload(f"{member.id}/{self.casts}"), options)
            if key is None:  # the window is full: the application tries again with its next cast
                self.casts -= 1
                self.workload.remaining += 1
                break
        if not host.hindered:
            self.take_turn(host)

    def _ticker(self, host: Host, deadline: int) -> Callable[[], None]:
        def tick() -> None:
            if host.armed == deadline and not host.hindered:  # a hindered host sees to it when it is free again
                host.armed = None
                self.take_turn(host)

        return tick

    # Hindrances: a host that is busy or paused takes what arrived meanwhile in one turn afterwards.

    def _occupy(self, host: Host) -> None:
        host.busy_until = self.now + self._turn_ns
        host.hindered = True
        self.at(host.busy_until, lambda: self._free(host))

    def _free(self, host: Host) -> None:
        if not host.alive or host.paused_until > self.now or host.busy_until > self.now:
            return
        host.hindered = False
        overdue = host.armed is not None and host.clock(self.now) >= host.armed
        if host.mailbox or host.member.has_input or overdue:
            if overdue:
                host.armed = None
            for sender, packet in host.mailbox:
                host.member.receive(sender, packet)
            host.mailbox.clear()
            self.take_turn(host)

    # Faults.

    def _strike(self, fault: Fault) -> None:
        host = self.hosts[fault.who[0]] if fault.who else None
        end = self.now + fault.duration_ns
        if fault.kind == "partition":
            side = set(fault.who)
            for src in range(len(self.hosts)):
                for dst in range(len(self.hosts)):
                    if (src in side) != (dst in side):
                        self.network.block(src, dst, end)
            return
        assert host is not None
        if not host.alive:
            return
        for watcher in self._watchers:
            if fault.kind in ("pause", "drift"):
                watcher.fault(self.now, host.member.id, fault.kind)
        match fault.kind:
            case "crash":
                self._crash(host)
            case "pause":
                host.paused_until = max(host.paused_until, end)
                host.hindered = True
                self.at(host.paused_until, lambda: self._free(host))
            case "drift":
                host.drift(self.now, 1.0 + fault.amount)
            case "clog" | "slow" | "lossy":
                self._strike_link(fault, end)
            case _:
                raise NotImplementedError(f"the simulator of orders does not play the fault {fault.kind}")

    def _strike_link(self, fault: Fault, end: int) -> None:
        src, dst = fault.who
        network = self.network
        match fault.kind:
            case "clog":
                network.block(src, dst, end)
            case "slow":
                network.slow(src, dst, fault.amount)
                self.at(end, lambda: network.slow(src, dst, 1.0))
            case "lossy":
                network.lose(src, dst, fault.amount)
                self.at(end, lambda: network.lose(src, dst, 0.0))

    def _crash(self, host: Host) -> None:
        """A member dies; of each of its streams, to each receiver, some suffix of what is under way is lost with it."""
        host.alive = False
        host.hindered = True
        for watcher in self._watchers:
            watcher.crash(self.now, host.member.id, host.sent)
        rank = host.member.rank
        rng = self.stream(f"crash {host.number}")
        flights: dict[tuple[int, bool], list[Scheduled]] = {}
        for scheduled in sorted(self._heap, key=lambda h: h[:2]):
            if scheduled[2] >= 0 and scheduled[3] == rank:
                unicast = type(scheduled[4]) in self._unicast_types
                flights.setdefault((scheduled[2], unicast), []).append(scheduled)
        lost = {h[1] for flight in flights.values() for h in flight[rng.randint(0, len(flight)) :]}
        self._heap[:] = [scheduled for scheduled in self._heap if scheduled[1] not in lost]
        heapify(self._heap)
        self.at(self.now + self.scenario.detect_ns, self.change.begin)

    # For the view change.

    def drop_in_flight(self) -> None:
        """Forget every packet under way: after the reports nothing of the old view is handed over."""
        self._heap[:] = [scheduled for scheduled in self._heap if scheduled[2] < 0]
        heapify(self._heap)
        for host in self.hosts:
            host.mailbox.clear()

    def _enter_view(self, view: View, hosts: Sequence[Host]) -> None:
        self.view = view
        self._by_rank = list(hosts)
        numbers = [host.number for host in hosts]
        self._peers = {number: [other for other in numbers if other != number] for number in numbers}

    def enter_view(self, view: View, hosts: Sequence[Host]) -> None:
        """All of them have installed it; let them go on."""
        self._enter_view(view, hosts)
        for host in hosts:
            host.hindered = host.paused_until > self.now or host.busy_until > self.now
            self.take_turn(host)

    @property
    def packets(self) -> int:
        """Packets on the wire, one a receiver."""
        return sum(host.sent_packets for host in self.hosts)

    @property
    def bytes(self) -> int:
        """Their encoded size, if someone measures it."""
        return sum(host.sent_bytes for host in self.hosts)

    @property
    def in_view(self) -> Sequence[Host]:
        """The hosts of the current view by rank, crashed ones included."""
        return self._by_rank


def name_of(number: int) -> str:
    """a, b, ... z, then m26, m27, ..."""
    return chr(ord("a") + number) if number < 26 else f"m{number}"
