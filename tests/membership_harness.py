"""Members with real engines and real orders in virtual time: a network that loses, repeats and reorders control messages.

Control messages are encoded and decoded on their way. Packets of a view travel on streams that are in order and reliable between
members that live and reach each other; a crash cuts a random suffix of each stream of the victim. Whoever does
not hear another for `detect_ns` suspects it. Everything is recorded and judged by the checkers of `unisono.trace.checks`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from random import Random

from unisono.core.config import MILLISECOND, SECOND, Config
from unisono.core.membership.context import Installed, Left, Refused
from unisono.core.membership.membership import Membership
from unisono.core.membership.settings import MembershipSettings
from unisono.core.options import CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.types import Batch, MemberId, Packet, View, ViewId
from unisono.core.views import ViewEngine, packet_for
from unisono.core.wire.control import ROLL, Charter, Chunk, Control, ControlCodec, Propose
from unisono.orders.registry import ORDERS
from unisono.trace.checks import Observer, Result, Verdict
from unisono.trace.promises import promises
from unisono.trace.recorder import Recorder
from unisono.trace.schema import HEAL

BOUND_NS = 20 * SECOND
MESSAGES_MAX = 30_000  # of one run; a hard one of the swarm takes 11,000


class Node:
    """One life of a process."""

    def __init__(self, world: World, member: MemberId, record: bytes | None = None) -> None:
        self.world = world
        self.id = member
        self.engine = ViewEngine(member, world.orders, world.config, noting=True)
        self.membership = world.kind(
            member, self.engine, self.engine, world.orders, world.order, world.config, world.settings_of(member), record
        )
        self.recorder = Recorder("run", "group", world.order, member, "simulated", world.observer)
        self.alive = True
        self.ended = False
        self.paused = False
        self.waiting: list[Callable[[], None]] = []  # what happened while it was paused
        self.armed: int | None = None
        self.heard: dict[MemberId, int] = {}
        self.suspected: set[MemberId] = set()
        self.refusals: list[str] = []
        self.views: list[View] = []
        self.shown: list[object] = []
        self.records = [] if record is None else [record]  # stable storage: what an earlier life left is still there

    @property
    def view(self) -> View | None:
        return self.membership.view

    def turn(self, work: Callable[[], None] | None = None) -> None:
        """One turn: time, an input, and all that follows from it."""
        if not self.alive:
            return
        if self.paused:
            if work is not None:
                self.waiting.append(work)
            return
        world = self.world
        self.membership.tick(world.now)
        if work is not None:
            work()
        out = self.membership.drain()
        self.records += out.records
        self._drain_engine()
        for to, message in out.sends:
            world.send(self, to, message)
        for event in out.events:
            if isinstance(event, Refused):
                self.refusals.append(event.reason)
            elif isinstance(event, Installed):
                assert self.view is not None
                self.views.append(self.view)
                world.check_installed(event.charter)
            elif isinstance(event, Left) and not self.ended:
                self.ended = True
                self.recorder.leave(world.now)
                world.at(2 * SECOND, self._stop)  # it answers late questions for a while
        self._arm()

    def _stop(self) -> None:
        self.alive = False

    def _drain_engine(self) -> None:
        engine, world = self.engine, self.world
        if not engine.has_view or self.ended:
            return
        effects = engine.drain(world.now)
        assert not effects.faults, f"{self.id} refuses a packet: {effects.faults}"
        assert world.has_liars or not self.membership.is_lied_to, f"{self.id} takes another member for a liar"
        self.recorder.turn(world.now, effects.notes)
        self.shown += effects.events
        view = engine.view
        for packet in effects.casts:
            for rank, other in enumerate(view.members):
                if other != self.id:
                    world.carry(self, other, view.id, 0, packet_for(packet, rank))
        for rank, packet in effects.sends:
            world.carry(self, view.members[rank], view.id, 1, packet)
        if effects.deadline is not None:
            world.at(max(effects.deadline - world.now, 0), lambda: self.turn())

    def _arm(self) -> None:
        self.membership.observe()
        deadline = self.membership.deadline
        if deadline is not None and deadline != self.armed:
            self.armed = deadline
            assert deadline > self.world.now - 1, (deadline, self.world.now, self.membership.explain())
            self.world.at(max(deadline - self.world.now, 1), lambda: self._tick(deadline))

    def _tick(self, deadline: int) -> None:
        if self.armed == deadline:
            self.armed = None
            self.turn()

    def cast(self, payload: bytes, options: CastOptions | None = None) -> None:
        engine = self.engine
        if not engine.has_view or not self.alive or self.ended or self.paused:
            return
        if options is not None and options.to is not None:
            options = CastOptions(tuple(m for m in options.to if m in engine.view.members) or None)
        self.turn(lambda: engine.cast(payload, options or CastOptions()) and None)

    def receive(self, sender: MemberId, view: ViewId, packet: Packet) -> bool:
        """A packet of a view; False: that view is not installed here yet."""
        engine = self.engine
        if not engine.has_view or engine.view.id < view:
            return False
        if engine.view.id == view:
            rank = engine.view.rank_of(sender)
            self.turn(lambda: engine.receive(rank, packet) if engine.view.id == view else None)
        return True


class World:
    collect: str | None = None
    """How reports travel, where a run's settings do not say."""
    has_liars = False
    """Without any, what is refused as a lie is our mistake."""

    def __init__(
        self,
        order: str = "fifo",
        seed: object = 0,
        settings: MembershipSettings | None = None,
        kind: type[Membership] = Membership,
        orders: Mapping[str, type[AnyOrdering]] = ORDERS,
        loss: float = 0.0,
        duplication: float = 0.0,
        owed: Iterable[str] = (),
    ) -> None:
        self.order = order
        self.orders = orders
        self.kind = kind
        self.config = Config()
        self.settings = settings or MembershipSettings()
        self.own_settings: dict[str, MembershipSettings] = {}
        self.random = Random(f"{seed}")
        self.loss, self.duplication = loss, duplication
        self.delay_ns = (MILLISECOND // 2, 5 * MILLISECOND)
        self.detect_ns = 300 * MILLISECOND
        self.now = 0
        self._tie = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        owes = (promises(order) | {"P15", "P16", "P22"} | set(owed)) - ({"P8c"} if order != "causal" else set())
        self.observer = Observer(owes)
        self.nodes: dict[str, Node] = {}  # the living process at each address
        self.lives: list[Node] = []
        self.codec = ControlCodec(self.config)
        self.cuts: set[tuple[str, str]] = set()  # directed links that are down
        self.filter: Callable[[MemberId, MemberId, Control], bool] | None = None  # False: lose it
        self.messages = 0
        self.bytes_max = 0
        self._streams: dict[tuple[MemberId, MemberId, ViewId, int], deque[tuple[int, Packet]]] = {}
        self.at(50 * MILLISECOND, self._detect)

    def settings_of(self, member: MemberId) -> MembershipSettings:
        own = self.own_settings.get(member.address, self.settings)
        return own if own.collect is not None else replace(own, collect=self.collect)

    # Time.

    def at(self, delay: int, action: Callable[[], None]) -> None:
        self._tie += 1
        heappush(self._heap, (self.now + delay, self._tie, action))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let so much time pass, or less if something holds; True if it holds."""
        end = self.now + int(seconds * SECOND)
        while self._heap and self._heap[0][0] <= end:
            self.now, _, action = heappop(self._heap)
            action()
            if until is not None and until():
                return True
        self.now = end
        return until is not None and until()

    # Processes.

    def start(self, *names: str, seeds: Sequence[str] = (), record: bytes | None = None) -> list[Node]:
        nodes = []
        for name in names:
            lives = sum(node.id.address == name for node in self.lives)
            node = Node(self, MemberId(name, lives), record)
            self.nodes[name] = node
            self.lives.append(node)
            node.recorder.join(self.now)
            node.turn(lambda node=node: node.membership.join(seeds))  # type: ignore[misc]
            nodes.append(node)
        return nodes

    def group(self, names: str, **options: object) -> list[Node]:
        """Start members and wait until they have one view."""
        nodes = self.start(*names, seeds=tuple(names))
        assert self.run(20, lambda: self.is_one(names)), self.story()
        self.run(0.2)
        return nodes

    def is_one(self, names: Iterable[str]) -> bool:
        """Whether exactly these members have one view of exactly them."""
        nodes = [self.nodes[name] for name in names]
        ids = sorted(node.id for node in nodes)
        views = {node.view.id for node in nodes if node.view is not None}
        return (
            len(views) == 1
            and all(node.view is not None and sorted(node.view.members) == ids for node in nodes)
            and not any(node.membership.is_engaged for node in nodes)
        )

    def crash(self, *names: str) -> None:
        for name in names:
            node = self.nodes[name]
            if not node.alive or node.ended:
                continue
            node.alive = False
            node.ended = True
            node.recorder.crash(self.now)
            for (sender, _, _, _), stream in self._streams.items():
                if sender == node.id:
                    for _ in range(self.random.randint(0, len(stream))):
                        stream.pop()

    def pause(self, name: str) -> None:
        node = self.nodes[name]
        if node.alive and not node.ended and not node.paused:
            node.recorder.pause(self.now)
            node.paused = True

    def resume(self, name: str) -> None:
        node = self.nodes[name]
        node.paused = False
        waiting, node.waiting = node.waiting, []
        for work in waiting:
            node.turn(work)
        node.turn()

    def partition(self, *parts: Iterable[str]) -> None:
        sides = [set(part) for part in parts]
        self.cuts = {(a, b) for one in sides for other in sides if one is not other for a in one for b in other}

    def cut(self, a: str, b: str, both: bool = True) -> None:
        self.cuts |= {(a, b), (b, a)} if both else {(a, b)}

    def heal(self) -> None:
        self.cuts = set()

    @property
    def living(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.alive and not node.ended]

    # The network.

    def send(self, node: Node, to: MemberId | str, message: Control) -> None:
        address = to if isinstance(to, str) else to.address
        data = self.codec.encode(message)
        self.messages += 1
        assert self.messages < MESSAGES_MAX, f"a storm of control messages\n{self.story()}"
        self.bytes_max = max(self.bytes_max, len(data))
        copies = 1 + (self.random.random() < self.duplication)
        for _ in range(copies):
            if self.random.random() < self.loss:
                continue
            delay = self.random.randint(*self.delay_ns)
            if self.random.random() < 0.02:
                delay *= 20  # a straggler
            self.at(delay, lambda: self._arrive(node.id, to, address, data))

    def _arrive(self, sender: MemberId, to: MemberId | str, address: str, data: bytes) -> None:
        node = self.nodes.get(address)
        if node is None or (sender.address, address) in self.cuts or not node.alive:
            return
        if isinstance(to, MemberId) and to != node.id:
            return
        message = self.codec.read(data)
        assert message is not None, self.codec.refused
        if self.filter is not None and not self.filter(sender, node.id, message):  # type: ignore[arg-type]
            return
        node.turn(lambda: node.membership.receive(sender, message))  # type: ignore[arg-type]

    def carry(self, node: Node, to: MemberId, view: ViewId, stream: int, packet: Packet) -> None:
        key = (node.id, to, view, stream)
        queue = self._streams.setdefault(key, deque())
        arrival = self.now + self.random.randint(*self.delay_ns)
        if queue:
            arrival = max(arrival, queue[-1][0])
        queue.append((arrival, packet))
        if len(queue) == 1:
            self.at(arrival - self.now, lambda: self._pump(key))

    def _pump(self, key: tuple[MemberId, MemberId, ViewId, int]) -> None:
        sender, to, view, _ = key
        queue = self._streams.get(key)
        if not queue:
            return
        node = self.nodes.get(to.address)
        if node is None or node.id != to or not node.alive:
            queue.clear()
            return
        if (sender.address, to.address) in self.cuts:
            self.at(20 * MILLISECOND, lambda: self._pump(key))
            return
        while queue and queue[0][0] <= self.now:
            if node.paused:
                break
            if not node.receive(sender, view, queue[0][1]):
                break
            if queue:
                queue.popleft()
        if queue:
            self.at(max(queue[0][0] - self.now, 5 * MILLISECOND), lambda: self._pump(key))

    # The failure detector: whoever is not heard for a while is suspected.

    def _detect(self) -> None:
        for node in self.living:
            if node.paused:
                continue
            known = set(node.view.members if node.view is not None else ()) | node.suspected
            for other in sorted(known - {node.id}):
                if self._hears(node, other):
                    node.heard[other] = self.now
                    if other in node.suspected:
                        node.suspected.discard(other)
                        node.turn(lambda n=node, o=other: n.membership.unsuspect(o))  # type: ignore[misc]
                elif self.now - node.heard.setdefault(other, self.now) >= self.detect_ns:
                    self.suspect(node, other)
        self.at(50 * MILLISECOND, self._detect)

    def _hears(self, node: Node, other: MemberId) -> bool:
        there = self.nodes.get(other.address)
        up = there is not None and there.id == other and there.alive and not there.ended and not there.paused
        return up and (other.address, node.id.address) not in self.cuts

    def suspect(self, node: Node, other: MemberId) -> None:
        if other not in node.suspected and not node.ended:
            node.suspected.add(other)
            node.recorder.suspect(self.now, other)
            node.turn(lambda: node.membership.suspect(other))

    def check_installed(self, charter: Charter) -> None:
        """I3, which a trace cannot show: whoever is named as coming along has closed with that cut, or is further."""
        for part in charter.parts:
            for node in self.lives:
                view, closed = node.membership.view, node.membership.closed
                if node.id in part.members and view is not None and view.id == part.view:
                    assert closed is not None, f"{node.id} has not closed {part.view}, but {charter.id} is installed"
                    assert closed.id == part.cut, (
                        f"{node.id} closed {part.view} with another cut than {charter.id} says"
                    )

    # The end.

    def finish(self, casts: bool = True, bound_ns: int = BOUND_NS, components: Sequence[Iterable[str]] = ()) -> Verdict:
        """Heal everything, let the group come to rest, and judge."""
        if not components:
            self.heal()
        self.filter = None
        for node in self.living:
            if node.paused:
                self.resume(node.id.address)
        for node in self.living:
            attributes = {"bound_ns": str(bound_ns)}
            for number, part in enumerate(components):
                if node.id.address in part:
                    attributes["component"] = str(number)
            recorder = node.recorder
            recorder._write([recorder._event(self.now, HEAL, attributes=attributes)])
        if casts:
            for node in self.living:
                node.cast(b"after")
        self.run(bound_ns / SECOND + 1)
        for node in self.living:
            node.recorder.end(self.now)
        for node in self.lives:
            if node.alive and not node.ended:
                node.ended = True
        return self.observer.finish()

    def story(self) -> str:
        lines = []
        for node in self.lives:
            state = "alive" if node.alive and not node.ended else "ended"
            lines.append(
                f"{node.id} {state} {node.view and (str(node.view.id), list(map(str, node.view.members)))} "
                f"{node.membership.explain() if node.alive else ''} suspects {list(map(str, node.suspected))}"
            )
        return "\n".join(lines)


# What tests of it share.


def judged(world: World) -> None:
    verdict = world.finish()
    assert verdict.result is Result.PASS, f"{verdict}\n{world.story()}"


def settle(world: World, names: str, seconds: float = 15) -> None:
    assert world.run(seconds, lambda: world.is_one(names)), world.story()


def payloads(node: Node) -> list[bytes]:
    return [payload for batch in node.shown if isinstance(batch, Batch) for payload in batch.payloads or ()]


def losing(*rules: Callable[[MemberId, MemberId, Control], bool]) -> Callable[[MemberId, MemberId, Control], bool]:
    """Lose every control message that one of the rules names."""
    return lambda sender, to, message: not any(rule(sender, to, message) for rule in rules)


def is_proposal(message: Control) -> bool:
    return isinstance(message, Propose) or (isinstance(message, Chunk) and message.topic == ROLL)
