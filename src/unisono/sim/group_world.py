"""The simulator of whole groups: processes that join, crash, restart, pause and leave, over a network that is at fault.

Here members are whole (`core.member`): real datagrams, real membership. Time is virtual, one heap holds what is to come, and
everything random comes from streams seeded by purpose, so the same script gives the same run. Every process is recorded, and
checkers look on, unless the world is made without (`is_recorded`): that is the same run (`group_twins`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from unisono.core.config import MILLISECOND, SECOND
from unisono.core.errors import PeerFault, UnisonoError
from unisono.core.member import Checking, Diverged, Entered, Member, Settings
from unisono.core.membership import DetectorSettings, Left, MembershipSettings, Refused
from unisono.core.options import DEFAULT, CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.streams import StreamSettings
from unisono.core.transition import Transition
from unisono.core.types import Batch, MemberId, View
from unisono.orders.registry import ORDERS
from unisono.sim.group_network import DatagramNetwork
from unisono.sim.kernel import Host, VirtualTime
from unisono.trace.checks.judge import Observer, Verdict
from unisono.trace.recorder import Recorder
from unisono.trace.schema import OK, STAGES, UNCERTAIN
from unisono.trace.sinks import Sink, TeeSink
from unisono.trace.state_line import Offered

ALSO_OWED = frozenset({"P15", "P16", "P17", "P22"})
"""What every order owes once views are agreed by membership."""

QUICK = Settings(
    streams=StreamSettings(retransmit_ns_start=30 * MILLISECOND, retransmit_ns_max=500 * MILLISECOND),
    detector=DetectorSettings(
        heartbeat_ns=60 * MILLISECOND,
        suspicion_ns_min=250 * MILLISECOND,
        suspicion_ns_max=1 * SECOND,
        pause_ns=150 * MILLISECOND,
    ),
    membership=MembershipSettings(
        retry_ns=30 * MILLISECOND,
        retry_ns_max=200 * MILLISECOND,
        answer_wait_ns=300 * MILLISECOND,
        proposal_wait_ns=900 * MILLISECOND,
        takeover_ns=100 * MILLISECOND,
        backoff_ns=40 * MILLISECOND,
        backoff_ns_max=600 * MILLISECOND,
        gather_ns=20 * MILLISECOND,
        probe_ns=120 * MILLISECOND,
        contact_ns=600 * MILLISECOND,
        merge_wait_ns=800 * MILLISECOND,
        shun_ns=300 * MILLISECOND,
        join_wait_ns=300 * MILLISECOND,
        leave_wait_ns=1500 * MILLISECOND,
        chunk_bytes_max=1_200,
    ),
)
"""Timers about four times as fast as the defaults, so that a run of some seconds holds many view changes."""

BOUND_NS = 8 * SECOND
"""P22: within this after the last fault there is one view a component, and everything is delivered, under `QUICK`."""


class Told(NamedTuple):
    """A receipt: whether an own message is stable."""

    message: int
    outcome: str


class SimulatedProcess(Host):
    """One life of one process: its member, its recorder, and what the simulator does to it."""

    def __init__(self, world: GroupWorld, id: MemberId, settings: Settings, record: bytes | None) -> None:
        super().__init__(world)
        self.world = world
        self.id = id
        self.member = world.kind(
            id,
            world.group,
            world.orders,
            world.order,
            settings,
            world.stream(f"member {id}"),
            self.clock(),
            world.is_recorded,
            record,
        )
        self.recorder = Recorder(world.run_name, world.group, world.order, id, "simulated", world.sink_of(id))
        self.ended = False  # its trace has an ending
        self.views: list[View] = []
        self.delivered: list[tuple[MemberId, bytes]] = []
        self.shown: list[Any] = []  # and told: everything that the application learns, in order
        self.refusals: list[str] = []
        self.diverged: list[Diverged] = []
        self.records = [] if record is None else [record]  # stable storage: what an earlier life left is still there
        self.unsent: dict[int, int] = {}  # by error: datagrams that the system refused to send
        self.awaited: set[int] = set()  # own messages that the application waits for, until they are stable or in doubt
        self._is_turn_open = False  # the turn has left something to do
        self._deadline: int | None = None  # of the member, as the last turn left it
        self.on_event: Callable[[SimulatedProcess, Any], None] | None = None

    @property
    def is_up(self) -> bool:
        return self.alive and not self.ended

    @property
    def view(self) -> View | None:
        return self.member.view

    def take(self, datagram: bytes) -> None:
        if not self.alive:
            return
        if self.is_hindered:
            self.mailbox.append(datagram)
            return
        self.member.receive([datagram], self.clock())
        self.turn()

    def cast(self, payload: bytes, options: CastOptions = DEFAULT, is_awaited: bool = False) -> bool:
        """False: not now. `is_awaited`: the application waits for its receipt."""
        if not self.is_up or self.is_hindered or self.member.view is None:
            return False
        if options.to is not None:
            to = tuple(member for member in options.to if member in self.member.view.members)
            options = options._replace(to=to or None)
        self._finish_turn()
        try:
            key = self.member.cast(payload, options)
        except UnisonoError:
            return False
        if key is not None and is_awaited:
            self.awaited.add(key.index)
        self.turn()
        return key is not None

    def check(self) -> Checking | None:
        """Begin to compare what the members have delivered. None: not now."""
        if not self.is_up or self.is_hindered:
            return None
        self._finish_turn()
        try:
            check = self.member.markers.begin_check()
        except UnisonoError:  # the view is read-only
            return None
        self.turn()
        return check

    def turn(self) -> None:
        """End the member's turn, with the calls of `runtime.driver` in their order: act, persist, send, show, finish_turn, arm."""
        world, member = self.world, self.member
        self._finish_turn()
        effects = member.act(self.clock())
        if member.is_lied_to and not world.has_liars:
            raise PeerFault(f"{self.id} takes another member for a liar. {member.lie}")
        self.records += effects.records
        if not self.ended:
            self.recorder.turn(world.now, effects.notes)
        for addresses, datagram in effects.datagrams:
            for address in addresses:
                self._send(address, datagram)
        self._is_turn_open = True
        for event in effects.events:
            self._show(event)
        self._finish_turn()
        if not self.ended:
            self._answer()
        if member.markers.are_owed:
            member.markers.cast_owed()
            if not member.markers.are_owed:
                self.turn()
                return
        self.arm(self._deadline)
        if world.on_turn is not None:
            world.on_turn(self)

    def _finish_turn(self) -> None:
        """Do what a turn leaves to do once its effects are performed, before the next input reaches the member."""
        if self._is_turn_open:
            self._is_turn_open = False
            self._deadline = self.member.finish_turn()

    def _send(self, address: str, datagram: bytes) -> None:
        """A datagram that cannot be sent is one that got lost: it is counted, and the streams bring it again."""
        try:
            self.world.send(self.id.address, address, datagram)
        except OSError as error:
            number = error.errno or 0
            self.unsent[number] = self.unsent.get(number, 0) + 1

    def _show(self, event: Any) -> None:
        if not self.ended:
            self.record_shown(event)
        if isinstance(event, Entered):
            self.views.append(event.view)
        elif isinstance(event, Batch):
            # The view of a batch is the one shown last, except that those of a view's end come before the next View.
            sender = self.views[-1].members[event.origin]
            self.delivered += [(sender, payload) for payload in event.payloads or ()]
            self.world.deliveries += event.count
        elif isinstance(event, Refused):
            self.refusals.append(event.reason)
        elif isinstance(event, Diverged):
            self.diverged.append(event)
        elif isinstance(event, Left) and not self.ended:
            self.ended = True
            self.recorder.leave(self.world.now)
            self.world.after(2 * SECOND, self.crash)  # it answers late questions for a while
        if self.on_event is not None:
            self.on_event(self, event)

    def record_shown(self, event: Any) -> None:
        """Record what the application is shown. Where something stands between, it is not every event of the member."""
        self.shown.append(event)
        recorder, now = self.recorder, self.world.now
        if isinstance(event, Batch):
            recorder.show_batch(event)
        elif isinstance(event, Transition):
            recorder.show_transition(now, event.together, event.is_primary)
            self._answer()
        elif isinstance(event, Entered):
            view = event.view
            recorder.show_view(now, view.id, view.members, event.together, event.joined, event.left, event.is_primary)

    def _answer(self) -> None:
        """Record which awaited messages are stable now, or in doubt for good, as is known once the turn is finished."""
        self._finish_turn()
        for doubt in self.member.take_doubts():
            for index in sorted(index for index in self.awaited if doubt.first <= index < doubt.end):
                self._tell(index, UNCERTAIN, doubt.known)
        for index in sorted(index for index in self.awaited if index < self.member.state.settled_index):
            self._tell(index, OK)

    def _tell(self, index: int, outcome: str, known: Iterable[MemberId] = ()) -> None:
        self.awaited.remove(index)
        self.shown.append(Told(index, outcome))
        self.recorder.show_receipt(self.world.now, STAGES[-1], index, 1, outcome, known)

    def resume(self, mailbox: list[bytes], is_overdue: bool) -> None:
        self.member.receive(mailbox, self.clock())
        self.turn()


class GroupWorld(VirtualTime):
    """A simulated network with the processes of one group."""

    def __init__(
        self,
        order: str = "sequencer",
        seed: object = 0,
        settings: Settings = QUICK,
        delay: str = "uniform:0.2ms:2ms",
        orders: Mapping[str, type[AnyOrdering]] = ORDERS,
        kind: type[Member] = Member,
        owed: Iterable[str] = (),
        sinks: Callable[[MemberId], Sequence[Sink]] = lambda member: (),
        run_name: str | None = None,
        is_recorded: bool = True,
    ) -> None:
        super().__init__(seed)
        self.order, self.orders, self.kind = order, orders, kind
        self.is_recorded = is_recorded
        self.settings = settings
        self.has_liars = False  # without any, a packet that is refused as a lie is our mistake
        self.group = "simulated"
        self.run_name = run_name or f"group-{order}-{seed}"
        self.network = DatagramNetwork(seed, delay)
        self.ask(owed)
        self._sinks = sinks
        self.processes: dict[str, SimulatedProcess] = {}  # the latest life at each address
        self.lives: list[SimulatedProcess] = []
        self.deliveries = 0
        self.faults: dict[str, int] = {}
        self.on_turn: Callable[[SimulatedProcess], None] | None = None
        """An observer, called after each turn of a process."""
        self.offered: Offered = {}

    def ask(self, also: Iterable[str]) -> None:
        """Judge these properties too, besides what the orders of its views owe. Call it before anything is recorded."""
        self.observer = Observer(also=ALSO_OWED.union(also))

    def sink_of(self, member: MemberId) -> Sink:
        if not self.is_recorded:
            return TeeSink()
        more = self._sinks(member)
        return TeeSink(self.observer, *more) if more else self.observer

    # The network.

    def send(self, src: str, dst: str, datagram: bytes) -> None:
        for arrival, copy in self.network.fate(src, dst, datagram, self.now):
            self.at(arrival, lambda copy=copy: self._arrive(src, dst, copy))  # type: ignore[misc]

    def _arrive(self, src: str, dst: str, datagram: bytes) -> None:
        process = self.processes.get(dst)
        if process is not None and self.network.reaches(src, dst):
            process.take(datagram)

    # Processes.

    def start(
        self,
        *names: str,
        seeds: Sequence[str] = (),
        settings: Settings | None = None,
        record: bytes | None = None,
        incarnation: int | None = None,
    ) -> list[SimulatedProcess]:
        """Start processes that look for the group at `seeds`. One at an address that was used before is a new life there."""
        started = []
        for name in names:
            life = sum(life.id.address == name for life in self.lives) if incarnation is None else incarnation
            process = self.process(MemberId(name, life), settings or self.settings, record)
            self.processes[name] = process
            self.lives.append(process)
            process.recorder.join(self.now)
            process.member.join(seeds)
            process.turn()
            started.append(process)
        return started

    def process(self, id: MemberId, settings: Settings, record: bytes | None) -> SimulatedProcess:
        """One life of one process; a world of other processes says here which."""
        return SimulatedProcess(self, id, settings, record)

    def gather(self, names: Sequence[str], seconds: float = 30) -> list[SimulatedProcess]:
        """Start members and wait until they have one view."""
        processes = self.start(*names, seeds=names)
        assert self.run(seconds, lambda: self.is_one(names)), self.story()
        return processes

    def crash(self, name: str) -> None:
        process = self.processes[name]
        if process.is_up:
            self.count("crash")
            process.crash()
            process.ended = True
            process.recorder.crash(self.now)

    def restart(self, name: str, seeds: Sequence[str]) -> None:
        """The process at an address dies, if it lives, and a new one starts there at once, with the last record of any life."""
        self.crash(name)
        self.count("restart")
        record = self.processes[name].records[-1] if self.processes[name].records else None
        self.start(name, seeds=seeds, record=record)

    def leave(self, name: str) -> None:
        process = self.processes[name]
        if process.is_up and not process.is_hindered:
            self.count("leave")
            process.member.leave()
            process.turn()

    def pause(self, name: str, duration: int) -> None:
        process = self.processes[name]
        if process.is_up:
            self.count("pause")
            process.recorder.pause(self.now)
            process.pause(self.now + duration)

    def partition(self, *parts: Iterable[str]) -> None:
        self.count("partition")
        self.network.partition(parts)

    def count(self, fault: str) -> None:
        """Note that a fault was done to the group."""
        self.faults[fault] = self.faults.get(fault, 0) + 1

    # Questions.

    @property
    def up(self) -> list[SimulatedProcess]:
        return [process for process in self.processes.values() if process.is_up]

    def is_one(self, names: Iterable[str]) -> bool:
        """Whether exactly these have one view of exactly them, and nothing is changing."""
        some = [self.processes[name] for name in names]
        wanted = sorted(process.id for process in some)
        views = {process.view.id for process in some if process.view is not None}
        return len(views) == 1 and all(
            process.is_up
            and process.view is not None
            and sorted(process.view.members) == wanted
            and not process.member.state.is_blocked
            for process in some
        )

    def is_at_rest(self) -> bool:
        """Whether all members that are up have one view, no suspicions and nothing to wait for."""
        names = [process.id.address for process in self.up]
        return self.is_one(names) and all(process.member.state.is_at_rest for process in self.up) if names else True

    def story(self) -> str:
        """How things stand, for a person who looks for a fault."""
        lines = [f"at {self.now / SECOND:.3f} s, seed {self.seed!r}"]
        for process in self.lives:
            view = process.view
            seen = f"{view.id} of {', '.join(map(str, view.members))}" if view is not None else "no view"
            state = "up" if process.is_up else "ended"
            lines.append(f"{process.id} {state}, {seen}, suspects {list(map(str, process.member.state.suspects))}")
            if process.is_up:
                lines += [f"  {sentence}" for sentence in process.member.explain(most=6)]
        return "\n".join(lines)

    @property
    def diverged(self) -> list[Diverged]:
        """What members found that delivered different messages."""
        return [event for life in self.lives for event in life.diverged]

    # The end.

    def finish(self, bound_ns: int = BOUND_NS, last_words: bool = True) -> Verdict:
        """Heal everything, let the group come to rest within the bound, and judge."""
        self.end(bound_ns, last_words)
        return self.observer.finish()

    def end(self, bound_ns: int = BOUND_NS, last_words: bool = True) -> None:
        """Heal everything, and let the group come to rest within the bound."""
        self.network.heal()
        for process in self.up:
            if process.paused_until > self.now:
                process.paused_until = self.now
                process.wake()
        for process in self.up:
            process.drift(1.0)
            process.recorder.heal(self.now, bound_ns=bound_ns)
        if last_words:
            for process in self.up:
                process.cast(b"last words of " + str(process.id).encode())
        end = self.now + bound_ns + SECOND // 10
        rest = 0
        while self.now < end and rest < 5:  # half a second of rest: then nothing more comes, and idle time is skipped
            self.run(0.1)
            rest = rest + 1 if self.is_at_rest() else 0
        self.now = end
        for process in self.up:
            process.ended = True
            process.recorder.end(self.now)
