"""One member as the explorer of views drives it: a real membership over a real engine, and its state as a value.

Time is taken out. A model member has a clock of its own, which stands still until a tick moves it to that membership's next
deadline; so between two inputs any or no time may have passed, and no two clocks are related. Settings count waits in units so
small that a few ticks lead through all of them (`PATIENCE`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import cache
from hashlib import blake2b
from operator import is_
from types import MethodType
from typing import Any, NamedTuple, TypeAlias

from unisono.core.config import Config
from unisono.core.errors import Misuse, PeerFault
from unisono.core.membership import Installed, Membership, MembershipSettings, Policy
from unisono.core.options import DEFAULT, CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.outbox import Note, NoteKind
from unisono.core.types import Batch, MemberId, Packet, View, ViewId
from unisono.core.views import Phase, ViewEngine, packet_for
from unisono.core.wire import Charter, Codec, ControlCodec, HeldState
from unisono.core.wire.control import Control
from unisono.orders.registry import ORDERS
from unisono.sim.explore.case import NAMES
from unisono.sim.explore.state import attributes_of
from unisono.sim.explore.views_app import ModelApplication, ShownAct
from unisono.trace.promises import promises

PATIENCE = MembershipSettings(
    retry_ns=1,
    retry_ns_max=1,
    answer_wait_ns=2,
    proposal_wait_ns=3,
    takeover_ns=1,
    backoff_ns=1,
    backoff_ns_max=2,
    gather_ns=1,
    probe_ns=1_000,
    contact_ns=100_000,
    merge_wait_ns=5_000,
    shun_ns=2,
    join_wait_ns=1_000_000,
)
"""A tick repeats what was not answered, the next one gives up waiting for it. Greeting comes long after, founding alone never."""
SOON_NS = 100
"""What is due sooner belongs to a view change; later than that, members only greet strangers once more."""

SEEDS = ("a",)
"""The addresses that a joiner knows. If the member there has crashed, the joiner hears of the others before all comes to rest."""


class SharedDict(dict[str, Any]):
    """A dict that all members of one search share; copies and digests leave it out."""


@dataclass(frozen=True)
class Scope:
    """What is explored: which members there are, and how often each thing may happen, at any point, to any member."""

    order: str = "fifo"
    members: int = 3
    """Number of members in the first view."""
    casts: int = 1
    crashes: int = 1
    joins: int = 1
    """Number of other members that join, one after the other."""
    suspicions: int = 0
    """How often a member suspects another that lives. A crashed member may be suspected besides, by any other."""
    ticks: int = 1
    """How often time passes for some member, up to its next deadline, while other things can still happen."""
    detours: int = 0
    """How often a control message overtakes an earlier one of the same sender to the same member."""
    losses: int = 0
    """Number of control messages that are lost, one by one."""
    blackout: bool = False
    """Whether in every state, besides, all control messages that are under way are lost at once."""
    repeats: int = 0
    """How often a control message arrives and arrives again."""
    cuts: int = 0
    """How often a member is cut off from all others: control messages are lost, packets wait, and suspicions are free."""
    restarts: int = 0
    """How often a process crashes and starts again at once, with its record and without a state."""
    cut_off: str = NAMES
    """Names of the members that may be cut off."""
    heals: bool = True
    """Whether a cut ends at any point; otherwise only when all is to come to rest."""
    safe: bool = False
    """Whether what is cast is safe."""
    primary: bool = False
    """Whether the primary policy holds."""
    has_state: bool = False
    """Whether applications have a state, as simple as `views_app` makes it."""
    kind: type[Membership] = Membership
    engine: type[ViewEngine] = ViewEngine
    orders: Mapping[str, type[AnyOrdering]] = field(default_factory=lambda: SharedDict(ORDERS))

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", SharedDict(self.orders))
        if self.order not in self.orders:
            raise Misuse(f"there is no order {self.order!r}: choose among {', '.join(self.orders)}.")
        if not 2 <= self.members <= 4 or not 0 <= self.joins <= 2:
            raise Misuse("the explorer of views takes 2 to 4 members and up to 2 joins: the number of states explodes.")
        if not 0 <= self.crashes < self.members:
            raise Misuse(f"of {self.members} members at most {self.members - 1} can crash, not {self.crashes}.")
        if not 0 <= self.restarts <= self.members:
            raise Misuse(f"{self.members} members can restart {self.members} times, once each, not {self.restarts}.")
        if self.has_state and not self.primary:
            raise Misuse("the explorer of views models a state under the primary policy alone: add --primary.")
        for name in ("casts", "suspicions", "ticks", "detours", "losses", "repeats", "cuts"):
            if not 0 <= getattr(self, name) <= 6:
                raise Misuse(f"--{name} must be 0 to 6, not {getattr(self, name)}: the number of states explodes.")

    @property
    def ids(self) -> tuple[MemberId, ...]:
        """Everyone: the first members, those that may join, and the second lives of the first members, if there are any."""
        return IDS[: self.members + self.joins] + (SECOND_LIVES[: self.members] if self.restarts else ())

    def former_life(self, number: int) -> int | None:
        """Whose second life this is."""
        first = number - self.members - self.joins
        return first if first >= 0 else None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{one.address}'" if one.incarnation else one.address for one in self.ids)

    @property
    def config(self) -> Config:
        return CONFIG

    @property
    def settings(self) -> MembershipSettings:
        return _settings(self.members, self.primary, self.has_state)


CONFIG = Config()
SAFE = CastOptions(safe=True)
IDS = tuple(MemberId(name) for name in NAMES)
SECOND_LIVES = tuple(MemberId(name, 1) for name in NAMES)


@cache
def _settings(members: int, primary: bool, has_state: bool) -> MembershipSettings:
    if not primary:
        return PATIENCE
    peers = tuple(member.address for member in IDS[:members])
    return replace(PATIENCE, policy=Policy.PRIMARY, peers=peers, has_state=has_state)


class MemberAct(NamedTuple):
    """What a member's history consists of: it cast a batch, delivered one, blocked, or installed a view."""

    kind: NoteKind
    batch: Batch | None
    view: View | None
    attributes: tuple[tuple[str, Any], ...]

    def note(self) -> Note:
        return Note(self.kind, self.batch, None, self.view, dict(self.attributes) or None)


HistoryAct: TypeAlias = MemberAct | ShownAct
"""What happened in a member, or what its application was shown."""
KEPT = frozenset({NoteKind.CAST, NoteKind.DELIVER, NoteKind.BLOCK, NoteKind.VIEW, NoteKind.VOTE, NoteKind.DECIDE})


@cache
def kept(order: str, safe: bool) -> frozenset[NoteKind]:
    """What a history consists of. Two-phase commit and safe messages are judged by who holds what, so there receipts belong
    to it too (P17, P18)."""
    if safe:
        return KEPT | {NoteKind.RECEIVE, NoteKind.STABLE}
    return KEPT | {NoteKind.RECEIVE} if "P18" in promises(order) else KEPT


class Do(StrEnum):
    """The inputs of a model member, and what happens to it from outside."""

    RECEIVE = "receive"
    TAKE = "take"
    CAST = "cast"
    SUSPECT = "suspect"
    UNSUSPECT = "unsuspect"
    TICK = "tick"
    QUIET = "quiet"
    JOIN = "join"
    HEAR = "hear"
    LOSE = "lose"
    ADOPT = "adopt"
    RESTART = "restart"
    CUT = "cut"
    HEAL = "heal"


class Start(NamedTuple):
    """With what a process starts: the addresses that it knows, and what an earlier life has persisted."""

    seeds: tuple[str, ...]
    record: bytes | None = None


class Mail(NamedTuple):
    """A control message on its way."""

    sender: int
    message: Control


class StreamPacket(NamedTuple):
    """A packet on its way, in a stream of a view."""

    sender: int
    view: ViewId
    stream: int  # 0 its casts, 1 what it sends to one member, 2 its acknowledgements, of which the latest counts
    packet: Packet


CASTS, SENDS, ACKS = range(3)


class Taken(NamedTuple):
    """An acknowledgement: by origin, how many packets of its casts the ordering has taken in."""

    counts: tuple[int, ...]


Letter: TypeAlias = Mail | StreamPacket


class TurnResult(NamedTuple):
    """What one turn of a model member brought about."""

    sends: tuple[tuple[int, Letter], ...]
    acts: tuple[HistoryAct, ...]
    installed: tuple[Charter, ...]


class Facts(NamedTuple):
    """What others ask of a local state."""

    view: View | None
    blocked: bool
    at_rest: bool  # takes part in no view change
    suspects: tuple[int, ...]
    deadline: int | None
    is_due: bool  # something of a view change is waited for
    quiet: bool  # an acknowledgement is owed
    closed: ViewId | None  # the cut that closed the view
    knows_all: bool  # it has heard of every address
    is_gathering: bool  # it has met newcomers, and is about to propose a view with them
    is_primary: bool
    is_waiting: bool  # its application has no state
    holds: HeldState | None  # the state of a primary that it has


class ModelMember:
    """One member of a scope: what it ships with, under a clock that stands still."""

    def __init__(self, scope: Scope, number: int, record: bytes | None = None) -> None:
        self.scope = scope
        self.number = number
        self.record = record
        self.engine = scope.engine(scope.ids[number], scope.orders, scope.config, noting=True)
        self.membership = scope.kind(
            scope.ids[number], self.engine, self.engine, scope.orders, scope.order, scope.config, scope.settings, record
        )
        self.application = ModelApplication(scope.ids[number], scope.has_state, not scope.primary)
        self.taken: list[list[int]] = []  # by rank: how many packets of each origin it is known to have taken in
        self.told = Taken(())  # to the others, of that
        self.casts = 0
        self.knows_all = number < scope.members

    def take(self, do: Do, what: Any = None) -> TurnResult:
        """One turn: an input, and all that follows from it."""
        membership, engine = self.membership, self.engine
        now = membership.now
        if do is Do.TICK:
            deadline = membership.deadline
            now = max(now + 1, deadline if deadline is not None else 0)
        membership.tick(now)
        engine_now = 0
        if self.scope.cuts and do in (
            Do.RECEIVE,
            Do.TAKE,
        ):  # as a failure detector would: who is heard is not suspected
            membership.unsuspect(self.scope.ids[what.sender])
        if do is Do.RECEIVE:
            membership.receive(self.scope.ids[what.sender], what.message)
        elif do is Do.SUSPECT:
            membership.suspect(self.scope.ids[what])
        elif do is Do.UNSUSPECT:
            membership.unsuspect(self.scope.ids[what])
        elif do is Do.JOIN:
            membership.join(what.seeds)
        elif do is Do.HEAR:
            membership.heard_of(what)
            membership.greet_soon()
            self.knows_all = True
        elif do is Do.TAKE:
            self._take_in(what)
        elif do is Do.CAST:
            engine.cast(f"{NAMES[self.number]}{self.casts}".encode(), SAFE if self.scope.safe else DEFAULT)
            self.casts += 1
        elif do is Do.QUIET:
            engine_now = engine.quiet_at or 0
        told = self.application.adopt() if do is Do.ADOPT else []
        return self._end_turn(engine_now, told)

    def _take_in(self, in_flight: StreamPacket) -> None:
        engine = self.engine
        rank = engine.view.rank_of(self.scope.ids[in_flight.sender])
        if in_flight.stream == ACKS:
            self.taken[rank] = list(map(max, self.taken[rank], in_flight.packet.counts))  # type: ignore[attr-defined]
            return
        if self.scope.safe and in_flight.stream == CASTS:
            self.taken[engine.rank][rank] += 1
            self.taken[rank][rank] = max(self.taken[rank][rank], self.taken[engine.rank][rank])
        engine.receive(rank, in_flight.packet)

    def _end_turn(self, engine_now: int, told: list[ShownAct]) -> TurnResult:
        out = self.membership.drain()
        self.membership.refused.clear()  # counters tell apart what behaves alike
        if out.records and self.scope.restarts:
            self.record = out.records[-1]
        sends: list[tuple[int, Letter]] = []
        for to, message in out.sends:
            for number in self._numbers_at(to if isinstance(to, str) else to.address):
                sends.append((number, Mail(self.number, message)))
        acts: list[HistoryAct] = []
        charters = tuple(event.charter for event in out.events if isinstance(event, Installed))
        engine = self.engine
        if engine.has_view:
            effects = engine.drain(engine_now)
            for fault in effects.faults:  # all are correct here, so the order is not
                raise PeerFault(fault.reason)
            notes, events = effects.notes, effects.events
            for packet in effects.casts:
                for rank, member in enumerate(engine.view.members):
                    if member != engine.id:
                        sends.append((self._number_of(member), self._in_stream(CASTS, packet_for(packet, rank))))
            for rank, packet in effects.sends:
                sends.append((self._number_of(engine.view.members[rank]), self._in_stream(SENDS, packet)))
            if self.scope.safe:
                sends += self._acknowledge(engine, bool(charters), len(effects.casts))
                if engine.showing.gate.waiting and engine.phase is Phase.RUNNING:
                    taken_by_all = [min(counts) for counts in zip(*self.taken, strict=True)]
                    released = engine.showing.release(self.taken[engine.rank], taken_by_all)
                    notes, events = notes + released.notes, events + released.events
            effects.reset()  # what the engine holds on to would tell states apart that are alike
            wanted = kept(self.scope.order, self.scope.safe)
            acts = [_act(note) for note in notes if note.kind in wanted]
            told += self.application.take(events, charters)
            if self.scope.has_state:
                self.membership.hold(self.application.holds)
        self.membership.observe()
        return TurnResult(tuple(sends), (*acts, *told), charters)

    def _acknowledge(self, engine: ViewEngine, is_new_view: bool, casts: int) -> list[tuple[int, Letter]]:
        """Tell the others how many packets were taken in here, if they do not know."""
        if is_new_view:
            self.taken = [[0] * len(engine.view) for _ in engine.view.members]
        mine = self.taken[engine.rank]
        mine[engine.rank] += casts
        known = Taken(tuple(mine))
        if known == self.told or engine.is_blocked:
            return []
        self.told = known
        if not any(count for rank, count in enumerate(mine) if rank != engine.rank):
            return []  # own casts speak for themselves
        return [(self._number_of(one), self._in_stream(ACKS, known)) for one in engine.view.members if one != engine.id]

    def _number_of(self, member: MemberId) -> int:
        return self.scope.ids.index(member)

    def _numbers_at(self, address: str) -> list[int]:
        """All lives at an address: nothing arrives at a life that is over or has not begun."""
        return [
            number for number, one in enumerate(self.scope.ids) if one.address == address != self.membership.id.address
        ]

    def _in_stream(self, stream: int, packet: Packet) -> StreamPacket:
        return StreamPacket(self.number, self.engine.view.id, stream, packet)

    def facts(self) -> Facts:
        membership, engine = self.membership, self.engine
        deadline = membership.deadline
        numbers = {member: number for number, member in enumerate(self.scope.ids)}
        return Facts(
            membership.view,
            engine.is_blocked,
            not membership.is_engaged and not membership.is_proposing,
            tuple(sorted(numbers[member] for member in membership.suspects)),
            deadline,
            deadline is not None and deadline < membership.now + SOON_NS,
            engine.quiet_at is not None and engine.phase is Phase.RUNNING,
            None if membership.closed is None else membership.closed.id,
            self.knows_all,
            membership.is_gathering,
            membership.is_primary,
            self.application.is_waiting,
            self.application.holds,
        )


def _act(note: Note) -> MemberAct:
    attributes = {name: tuple(v) if isinstance(v, list) else v for name, v in (note.attributes or {}).items()}
    return MemberAct(note.kind, note.batch, note.view, tuple(attributes.items()))


# Copies of a member, to go on from, and its digest, to be compared. What all members share is in neither.


class Snapshots:
    """Copies model members, and says which of them are alike."""

    def __init__(self, scope: Scope) -> None:
        codecs = SharedDict(
            (n, Codec((*k.wire, k.report_wire, k.cut_wire), scope.config)) for n, k in scope.orders.items()
        )
        shared: dict[str, Any] = {"codec": ControlCodec(scope.config), "codecs": codecs, "settings": scope.settings}
        shared |= {"scope": scope, "config": scope.config, "orders": scope.orders}
        self._shared = shared
        self._names = {id(thing): name for name, thing in shared.items()}

    def admit(self, member: ModelMember) -> None:
        """Give a new member the codecs that all share."""
        member.membership.use_codecs(self._shared["codec"], self._shared["codecs"])

    def copy(self, member: ModelMember) -> ModelMember:
        """A member that can go on by itself. What is immutable or shared is not copied."""
        copied = _copy(member, self._names, {})
        assert isinstance(copied, ModelMember)
        return copied

    def digest(self, member: ModelMember) -> bytes:
        """Equal for members that behave alike for ever. To tell apart too much would be merely slow."""
        text = repr(_value(member, self._names, {}))
        return blake2b(text.encode(), digest_size=16).digest()


_PLAIN = frozenset({int, str, bytes, bool, type(None), MemberId, ViewId, View})


def _value(thing: Any, shared: Mapping[int, str], seen: dict[int, int]) -> Any:
    """A thing as nested tuples: dicts in their order, sets in none, and what is reached twice is seen to be one thing."""
    kind = type(thing)
    if kind in _PLAIN or isinstance(thing, type | Enum):
        return thing
    if kind is Batch:
        return ("Batch", thing.origin, thing.first, thing.payloads, thing.to, thing.count, thing.service, thing.safe)
    if isinstance(thing, tuple):
        return (kind.__name__, *[_value(item, shared, seen) for item in thing])
    name = shared.get(id(thing))
    if name is not None:
        return name
    if kind is MethodType:
        return ("method", thing.__name__, _value(thing.__self__, shared, seen))
    if kind is set or kind is frozenset:
        return (kind.__name__, *sorted([repr(_value(item, shared, seen)) for item in thing]))
    number = seen.get(id(thing))
    if number is not None:
        return ("again", number)
    seen[id(thing)] = len(seen)
    if kind is list or kind is deque:
        return [_value(item, shared, seen) for item in thing]
    if kind is dict:
        return (kind.__name__, *[(_value(key, shared, seen), _value(v, shared, seen)) for key, v in thing.items()])
    return (kind.__name__, *[(name, _value(value, shared, seen)) for name, value in attributes_of(thing)])


def _copy(thing: Any, shared: Mapping[int, str], seen: dict[int, Any]) -> Any:
    """A deep copy, in which what was reached twice is one thing again."""
    kind = type(thing)
    if kind in _PLAIN or kind is Batch or isinstance(thing, type | Enum) or id(thing) in shared:
        return thing
    if kind is MethodType:
        return MethodType(thing.__func__, _copy(thing.__self__, shared, seen))
    if isinstance(thing, tuple):
        items = [_copy(item, shared, seen) for item in thing]
        if all(map(is_, items, thing)):
            return thing
        return tuple(items) if kind is tuple else kind(*items)
    if kind is frozenset:
        return thing
    known = seen.get(id(thing))
    if known is not None:
        return known
    if kind is set:
        return seen.setdefault(id(thing), {_copy(item, shared, seen) for item in thing})
    if kind is list or kind is deque:
        result: Any = kind()
        seen[id(thing)] = result
        result.extend([_copy(item, shared, seen) for item in thing])
        return result
    if kind is dict:
        copied = seen[id(thing)] = {}
        for key, value in thing.items():
            copied[_copy(key, shared, seen)] = _copy(value, shared, seen)
        return copied
    twin = seen[id(thing)] = object.__new__(kind)
    for name, value in attributes_of(thing):
        object.__setattr__(twin, name, _copy(value, shared, seen))
    return twin
