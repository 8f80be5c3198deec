"""A group of engines that a test drives by hand, with every channel in the open.

Each member is the `ViewEngine` that ships, in its first view. Nothing moves unless the test says so: `cast` casts, `carry` takes
one packet off one stream and hands it over, `quiet` lets a member acknowledge, `settle` carries all that is left. Each of these
is one turn of one member. `crash` cuts what a member had under way, `flush` is the view change of those who are left.
`violations` says what the application was promised and did not get, judged by the deliveries alone.

`run` does all this by chance, from a seed. An order decides nothing in it: two orders that send the same packets
at the same moments live through the same schedule, which `steps` holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

from unisono.core.config import Config
from unisono.core.errors import Contradiction, PeerFault
from unisono.core.options import DEFAULT, CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.outbox import Note, NoteKind
from unisono.core.types import Batch, MemberId, Packet, Property, Rank, Service, View, ViewId
from unisono.core.views import ViewEngine, packet_for
from unisono.core.views.admission import Admission
from unisono.sim.oracle import ContractViolation, missing_packets

A, B, C, D, E = range(5)
STEPS_MAX = 5_000  # of one group; an order that never comes to rest fails here instead of running for ever
UNICAST = False  # for `carry`: the stream of packets to one member, instead of the casts


def make_view(size: int, number: int = 1) -> View:
    """A view of the members a, b, c, …"""
    members = tuple(MemberId("abcdefghijklmnop"[rank]) for rank in range(size))
    return View(ViewId(number, members[0]), members)


class Broken(StrEnum):
    """What a run can show the application."""

    TOTAL = "total order"
    FIFO = "FIFO order"
    CAUSAL = "causal order"
    AGREEMENT = "agreement"  # survivors of a view change delivered different sets
    VALIDITY = "validity"  # a member waits for ever, or never delivers what it cast
    TWICE = "no duplication"
    INVARIANT = "an assertion of the order"


class Stream(NamedTuple):
    """One FIFO channel: a sender's casts on their way to one receiver, or its packets to that receiver alone."""

    sender: Rank
    receiver: Rank
    is_cast: bool = True


class Sent(NamedTuple):
    """One message that was cast, and the set of messages (as bits) that its caster had cast or delivered before."""

    batch: Batch
    past: int


OF_THE_ORDER = (NoteKind.ORDERED, NoteKind.VOTE, NoteKind.DECIDE)
"""What an order notes; the other notes are the engine's."""


class AdmitsAll(Admission):
    """For a channel that does not keep order, which no engine has below it: whatever comes is the ordering's matter."""

    def admit(self, sender: Rank, batch: Batch) -> None:
        pass


class Group:
    """See the module's text."""

    def __init__(
        self,
        order: type[AnyOrdering],
        size: int,
        config: Config | None = None,
        *,
        noting: bool = False,
        in_order: bool = True,
    ) -> None:
        self.order = order
        self.size = size
        self.config = config or Config()
        self.view = make_view(size)
        self.letters = [member.address for member in self.view.members]
        self.in_order = in_order  # False: one origin's casts may overtake each other
        self.engines = [self._engine(member, noting) for member in self.view.members]
        self.orderings: list[Any] = [engine.ordering for engine in self.engines]
        self.notes: list[list[Note]] = [[] for _ in range(size)]
        self.streams: dict[Stream, list[Packet]] = {}
        self.delivered: list[list[Batch]] = [[] for _ in range(size)]  # by member: what its application was shown
        self.when: dict[tuple[Rank, Rank, int], int] = {}  # (member, origin, index): the step that delivered it
        self.sent: list[Sent] = []
        self.steps: list[tuple[object, ...]] = []
        self.alive = set(range(size))
        self.flushed = False
        self.fault: str | None = None  # what an ordering did against its contract
        self.void: set[int] = set()  # messages whose payloads no survivor held: the placeholder is all that is left
        self.now = 0
        self.packets = 0  # on the wire: a cast counts once for each receiver
        self.watch: Callable[[Group, Rank], None] | None = None  # called after every turn with whose turn it was
        self._ids: dict[tuple[Rank, int], int] = {}
        self._known = [0] * size  # by member: what it has cast or delivered, as bits

    # What a test does.

    def cast(
        self,
        rank: Rank,
        name: str = "",
        service: Service | None = None,
        to: tuple[Rank, ...] | None = None,
        count: int = 1,
    ) -> Batch:
        """One member casts a batch, and its turn ends."""
        first = sum(sent.batch.count for sent in self.sent if sent.batch.origin == rank)
        payloads = [name.encode()] * count
        batch = Batch(rank, first, payloads, self.order.service if service is None else service, to)
        self.steps.append(("cast", rank, service, to))
        self._note(batch)
        options = DEFAULT
        if service is not None or to is not None:
            members = None if to is None else tuple(self.view.members[one] for one in to)
            options = CastOptions(members, service)
        for payload in payloads:
            assert self.engines[rank].cast(payload, options) is not None, "the window is full"
        self._end_turn(rank)
        return batch

    def take(self, rank: Rank, payload: bytes, options: CastOptions) -> bool:
        """One member casts, and its turn goes on. False: not now."""
        return self.engines[rank].cast(payload, options) is not None

    def turn(self, rank: Rank, now: int | None = None) -> None:
        """The turn of one member ends, now or at a later time, which it is then for all."""
        self.steps.append(("turn", rank))
        self.now = self.now if now is None else now
        self._end_turn(rank)

    def carry(self, sender: Rank, receiver: Rank, is_cast: bool = True, at: int = 0) -> Packet:
        """The next packet of one stream arrives (`at`: one behind it, where the channel does not keep order)."""
        stream = Stream(sender, receiver, is_cast)
        packet = self.streams[stream].pop(at)
        if not self.streams[stream]:
            del self.streams[stream]
        self.steps.append(("carry", stream, at))
        self.engines[receiver].receive(sender, packet)
        self._end_turn(receiver)
        return packet

    def carry_all(self, sender: Rank, receivers: Iterable[Rank] | None = None, is_cast: bool = True) -> None:
        """Everything that one member has under way arrives, at these receivers or at all."""
        for receiver in range(self.size) if receivers is None else receivers:
            while Stream(sender, receiver, is_cast) in self.streams:
                self.carry(sender, receiver, is_cast)

    def quiet(self, rank: Rank) -> None:
        """The acknowledgement delay of one member is over, if it owes an acknowledgement."""
        self.steps.append(("quiet", rank))
        self._end_turn(rank, self.engines[rank].quiet_at or 0)

    def settle(self, random: Random | None = None) -> None:
        """Carry what is under way and let everyone acknowledge, until nothing moves any more."""
        while True:
            while self.streams:
                streams = sorted(self.streams)
                self.carry(*(streams[0] if random is None else random.choice(streams)))
            for rank in sorted(self.alive):
                self.quiet(rank)
            if not self.streams:
                return

    def crash(self, rank: Rank, left: Mapping[Stream, int] | None = None) -> None:
        """One member stops. Of each of its streams only the first `left` packets are still under way."""
        self.steps.append(("crash", rank))
        self.alive.discard(rank)
        for stream in list(self.streams):
            if stream.sender == rank:
                self._cut(stream, (left or {}).get(stream, 0))
            elif stream.receiver == rank:
                self._cut(stream, 0)

    def flush(self, reports: Mapping[Rank, Any] | None = None) -> Any:
        """The view change of those alive: everyone's report, the merge, and the agreed remainder at everyone. Returns the cut."""
        survivors = sorted(self.alive)
        if reports is None:
            reports = {rank: self.engines[rank].block() for rank in survivors}
        self.flushed = True
        self.streams.clear()
        cut = self.order.merge(self.view, self.config, reports)
        holders = [self.engines[rank].kept for rank in survivors]
        together = [self.view.members[rank] for rank in survivors]
        lacks = missing_packets(self.view, cut, reports, holders)
        for rank, missing in lacks.items():
            lacked = [batch for packet in missing.values() if (batch := getattr(packet, "batch", None)) is not None]
            self.void |= {self._id(batch) for batch in lacked if addressed(batch, rank) and batch.payloads is None}
            self.engines[rank].close(cut, missing)
            self.engines[rank].depart(together, True)
            self._end_turn(rank)
        return cut

    # What a test asks.

    def names(self, rank: Rank) -> list[str]:
        """What the application of one member was shown, by name."""
        return [batch.payloads[0].decode() for batch in self.delivered[rank] if shown(batch, rank) and batch.payloads]

    def under_way(self, sender: Rank, receiver: Rank, is_cast: bool = True) -> list[Packet]:
        return list(self.streams.get(Stream(sender, receiver, is_cast), ()))

    def violations(self) -> dict[Broken, str]:
        """What those alive were promised by the order and did not get, each with a sentence."""
        found: dict[Broken, str] = {}
        if self.fault is not None:
            found[Broken.INVARIANT] = self.fault
        orders = {rank: [self._id(b) for b in self.delivered[rank] if shown(b, rank)] for rank in sorted(self.alive)}
        for rank, order in orders.items():
            self._judge_alone(rank, order, found)
        if self.fault is None:
            self._judge_completeness(orders, found)
        if Property.TOTAL in self.order.guarantees:
            self._judge_total(orders, found)
        return found

    # Inside.

    def _engine(self, member: MemberId, noting: bool) -> ViewEngine:
        engine = ViewEngine(member, {"order": self.order}, self.config, noting)
        engine.install(self.view, order="order")
        if not self.in_order:
            engine.admission = AdmitsAll()
        engine.drain(0)
        return engine

    def _end_turn(self, rank: Rank, now: int = 0) -> None:
        assert len(self.steps) < STEPS_MAX, "the group never comes to rest"
        effects = self.engines[rank].drain(max(now, self.now))
        for fault in effects.faults:
            raise (PeerFault if fault.is_certain else Contradiction)(fault.reason)
        for batch in effects.events:
            if isinstance(batch, Batch):
                self._note(batch)
                self.delivered[rank].append(batch)
                self.when[rank, batch.origin, batch.first] = len(self.steps)
                self._known[rank] |= 1 << self._id(batch) | self.sent[self._id(batch)].past
        self.notes[rank] += [note for note in effects.notes if note.kind in OF_THE_ORDER]
        for packet in effects.casts:
            own = getattr(packet, "batch", None)
            if own is not None:
                self._note(own)
            for other in sorted(self.alive - {rank}):
                self._send(Stream(rank, other), packet_for(packet, other))
        for other, packet in effects.sends:
            if other in self.alive:
                self._send(Stream(rank, other, False), packet)
        if self.watch is not None:
            self.watch(self, rank)

    def _note(self, batch: Batch) -> None:
        """Its origin has cast this batch, now if it was not noted before."""
        rank = batch.origin
        if (rank, batch.first) in self._ids:
            return
        self._ids[rank, batch.first] = len(self.sent)
        self.sent.append(Sent(batch, self._known[rank]))
        self._known[rank] |= 1 << self._ids[rank, batch.first]

    def _send(self, stream: Stream, packet: Packet) -> None:
        self.packets += 1
        self.streams.setdefault(stream, []).append(packet)

    def _cut(self, stream: Stream, left: int) -> None:
        del self.streams[stream][left:]
        if not self.streams[stream]:
            del self.streams[stream]

    def _id(self, batch: Batch) -> int:
        return self._ids[batch.origin, batch.first]

    def _text(self, message: int) -> str:
        batch = self.sent[message].batch
        name = batch.payloads[0].decode() if batch.payloads else ""
        return name or f"{'abcdefgh'[batch.origin]}{batch.first}"

    def _judge_alone(self, rank: Rank, order: list[int], found: dict[Broken, str]) -> None:
        who = self.view.members[rank]
        if len(set(order)) < len(order):
            found[Broken.TWICE] = f"{who} delivered a message twice"
        place = {message: at for at, message in enumerate(order)}
        for message in order:
            later = self.sent[message]
            for other, earlier in enumerate(self.sent):
                if not later.past >> other & 1 or not addressed(earlier.batch, rank) or other in self.void:
                    continue
                if place.get(other, len(order)) < place[message] or earlier.batch.service > later.batch.service:
                    continue  # a causal message need not wait for a total one of its past
                sentence = f"{who} delivered {self._text(message)} without {self._text(other)} before it"
                if earlier.batch.origin == later.batch.origin and Property.FIFO in self.order.guarantees:
                    found.setdefault(Broken.FIFO, sentence)
                elif Property.CAUSAL in self.order.guarantees:
                    found.setdefault(Broken.CAUSAL, sentence)

    def _judge_completeness(self, orders: Mapping[Rank, list[int]], found: dict[Broken, str]) -> None:
        """Without a view change everyone delivers everything; after one, its own casts, and the same as the others."""
        anywhere = {message for order in orders.values() for message in order}
        for rank, order in orders.items():
            who = self.view.members[rank]
            for message, sent in enumerate(self.sent):
                if message in order or not addressed(sent.batch, rank) or sent.batch.service is Service.DATAGRAM:
                    continue
                if self.flushed and message in anywhere:
                    found.setdefault(Broken.AGREEMENT, f"{who} did not deliver {self._text(message)}, another did")
                if not self.flushed or sent.batch.origin == rank:
                    found.setdefault(Broken.VALIDITY, f"{who} never delivered {self._text(message)}")

    def _judge_total(self, orders: Mapping[Rank, list[int]], found: dict[Broken, str]) -> None:
        """Two members agree on the order of any two messages that both delivered."""
        for rank, order in orders.items():
            for other in range(rank):
                if other not in orders:
                    continue
                place = {message: at for at, message in enumerate(orders[other])}
                common = [m for m in order if m in place and self.sent[m].batch.service is Service.TOTAL]
                for x, y in pairwise(common):
                    if place[x] > place[y]:
                        here, there = self.view.members[rank], self.view.members[other]
                        sentence = f"{here} delivered {self._text(x)} before {self._text(y)}, {there} the other way"
                        found.setdefault(Broken.TOTAL, sentence)


def addressed(batch: Batch, rank: Rank) -> bool:
    return batch.to is None or rank in batch.to


def shown(batch: Batch, rank: Rank) -> bool:
    """Whether the application of this member sees the batch."""
    return batch.payloads is not None and addressed(batch, rank)


@dataclass(frozen=True)
class Weather:
    """What a random run is like. Ranges include both ends."""

    sizes: tuple[int, int] = (2, 5)
    casts: tuple[int, int] = (2, 8)
    crashes: tuple[int, int] = (0, 0)
    causal: float = 0.0  # the share of causal messages, where the order carries two services
    partial: float = 0.0  # the share of messages with a list of recipients
    in_order: bool = True  # False: the casts of one origin overtake each other
    phis: bool = False  # draw ToTo's threshold instead of n/2

    def config(self, random: Random, size: int) -> Config:
        if not self.phis:
            return Config()
        return Config(phi=random.choice([size / 2 + k / 2 for k in range(size)]))


CALM = Weather()
CRASH = Weather(sizes=(3, 5), crashes=(1, 1))
CRASHES = Weather(sizes=(3, 5), crashes=(1, 3))
MIXED = Weather(causal=0.4)
UNORDERED = Weather(in_order=False)
LISTS = Weather(sizes=(3, 5), partial=0.5)


def run(
    order: type[AnyOrdering],
    seed: int,
    weather: Weather = CALM,
    *,
    noting: bool = False,
    watch: Callable[[Group, Rank], None] | None = None,
) -> Group:
    """One run by chance. The same seed is the same schedule for every order that sends packets at the same moments."""
    random = Random(seed)
    size = random.randint(*weather.sizes)
    group = Group(order, size, weather.config(random, size), noting=noting, in_order=weather.in_order)
    group.watch = watch
    try:
        _Driver(group, random, weather).drive()
    except (AssertionError, ContractViolation, PeerFault) as error:
        group.fault = str(error) or "assertion"
    return group


class _Driver:
    """Chooses the steps of a random run. Streams differ in speed, so that some packets come very late."""

    def __init__(self, group: Group, random: Random, weather: Weather) -> None:
        self.group = group
        self.random = random
        self.weather = weather
        self.left = random.randint(*weather.casts)  # messages to cast
        self.eagerness = random.choice((0.1, 0.3, 0.6))
        ends = range(group.size)
        self.speeds = {
            Stream(s, r, kind): random.choice((1, 3, 12)) for s in ends for r in ends for kind in (False, True)
        }

    def drive(self) -> None:
        victims = self.random.sample(
            range(self.group.size), min(self.random.randint(*self.weather.crashes), self.group.size - 1)
        )
        if not victims:
            while self.left or self.group.streams:
                self.step()
            self.group.settle(self.random)
            return
        for victim in victims:
            for _ in range(self.random.randint(0, 25)):
                self.step()
            self.crash(victim)
        for _ in range(self.random.randint(0, 8)):
            self.step()
        self.flush()

    def step(self, able: set[Rank] | None = None) -> None:
        """One turn of one of those who are able to take one."""
        group, random = self.group, self.random
        able = group.alive if able is None else able
        streams = [stream for stream in sorted(group.streams) if stream.receiver in able]
        if self.left and (not streams or random.random() < self.eagerness):
            self.left -= 1
            self.cast(random.choice(sorted(able)))
        elif group.order.acknowledges and random.random() < 0.15:
            group.quiet(random.choice(sorted(able)))
        elif streams:
            (stream,) = random.choices(streams, [self.speeds[stream] for stream in streams])
            at = random.randrange(len(group.streams[stream]))
            group.carry(*stream, at=0 if group.in_order or not stream.is_cast else at)

    def cast(self, rank: Rank) -> None:
        service = Service.CAUSAL if self.random.random() < self.weather.causal else None
        to = None
        if self.random.random() < self.weather.partial:
            others = [other for other in range(self.group.size) if other != rank]
            to = tuple(sorted({rank, *self.random.sample(others, self.random.randint(0, len(others)))}))
        self.group.cast(rank, service=service, to=to)

    def crash(self, victim: Rank) -> None:
        """Of what the victim had under way, some prefix of each stream still arrives."""
        streams = [stream for stream in sorted(self.group.streams) if stream.sender == victim]
        left = {stream: self.random.randint(0, len(self.group.streams[stream])) for stream in streams}
        self.group.crash(victim, left)

    def flush(self) -> None:
        """Members report one after the other, while the rest go on."""
        reports = {}
        able = set(self.group.alive)
        for rank in self.random.sample(sorted(able), len(able)):
            reports[rank] = self.group.engines[rank].block()
            able.discard(rank)
            for _ in range(self.random.randint(0, 4) if able else 0):
                self.step(able)
        self.group.flush(reports)
