"""One member as the explorer of views drives it: a real membership over a real engine, and its state as a value.

Time is taken out. A model member has a clock of its own, which stands still until a tick moves it to that membership's next
deadline; so between two inputs any or no time may have passed, and no two clocks are related. Settings count waits in units so
small that a few ticks lead through all of them (`PATIENCE`).
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from unisono.core.errors import PeerFault
from unisono.core.membership import Installed, Left
from unisono.core.options import DEFAULT
from unisono.core.outbox import Note, NoteKind
from unisono.core.types import Batch, MemberId, Packet, View, ViewId
from unisono.core.views import Phase, ViewEngine, packet_for
from unisono.core.wire import Charter, Codec, ControlCodec, HeldState
from unisono.core.wire.control import Control
from unisono.sim.explore.freeze import copy, freeze
from unisono.sim.explore.orders.case import NAMES
from unisono.sim.explore.views.application import ModelApplication, ShownAct
from unisono.sim.explore.views.scope import SAFE, SOON_NS, Scope, SharedDict
from unisono.trace.promises import promises


class MemberAct(NamedTuple):
    """What a member's history consists of: it cast a batch, delivered one, blocked, or installed a view."""

    kind: NoteKind
    batch: Batch | None
    view: View | None
    attributes: tuple[tuple[str, Any], ...]

    def note(self) -> Note:
        return Note(self.kind, self.batch, None, self.view, dict(self.attributes) or None)


HistoryAct: TypeAlias = MemberAct | ShownAct | Left
"""What happened in a member, or what its application was shown; the last may be that it has left."""
KEPT = frozenset({NoteKind.CAST, NoteKind.DELIVER, NoteKind.BLOCK, NoteKind.VIEW, NoteKind.VOTE, NoteKind.DECIDE})


@cache
def kept(orders: frozenset[str], safe: bool) -> frozenset[NoteKind]:
    """What a history consists of. Two-phase commit and safe messages are judged by who holds what, so there receipts belong
    to it too (P17, P18)."""
    if safe:
        return KEPT | {NoteKind.RECEIVE, NoteKind.STABLE}
    return KEPT | {NoteKind.RECEIVE} if any("P18" in promises(order) for order in orders) else KEPT


class Do(StrEnum):
    """The inputs of a model member, and what happens to it from outside; as a person would say it."""

    RECEIVE = "receives"
    TAKE = "takes in"
    CAST = "casts"
    SUSPECT = "suspects"
    UNSUSPECT = "no longer suspects"
    TICK = "has waited: time passes for it until something is due"
    QUIET = "acknowledges"
    JOIN = "joins"
    HEAR = "is told all addresses"
    ADOPT = "takes the state over"
    GREET = "greets all that it knows"
    LEAVE = "asks to leave"
    STOP = "ends: it has left"
    SWITCH = "asks for another order"
    CRASH = "crashes"
    LOSE = "never gets"
    BLACKOUT = "and all others get none of the control messages under way"
    RESTART = "starts: its former life has crashed and left a record"
    CUT = "is cut off"
    HEAL = "is reached again"


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
    order: str
    blocked: bool
    at_rest: bool  # takes part in no view change, and has all that it asked for
    suspects: tuple[int, ...]
    deadline: int | None
    is_due: bool  # something of a view change is waited for
    quiet: bool  # an acknowledgement is owed
    closed: ViewId | None  # the cut that closed the view
    knows_all: bool  # it has heard of every address
    is_gathering: bool  # it has met newcomers, and is about to propose a view with them
    is_primary: bool
    is_leaving: bool
    is_gone: bool  # it has left, and only answers
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
        self.is_leaving = False
        self.has_left = False
        self.wants_other_order = False
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
        elif do is Do.GREET:
            membership.greet_soon()
        elif do is Do.LEAVE:
            membership.leave()
            self.is_leaving = True
        elif do is Do.SWITCH:
            membership.switch(self.scope.switch_to)
            self.wants_other_order = True
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
        if engine.has_view and not self.has_left:
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
            wanted = kept(self.scope.all_orders, self.scope.safe)
            acts = [_act(note) for note in notes if note.kind in wanted]
            told += self.application.take(events, charters)
            if self.scope.has_state:
                self.membership.hold(self.application.holds)
        self.membership.observe()
        left = [event for event in out.events if isinstance(event, Left)]
        self.has_left = self.has_left or bool(left)
        return TurnResult(tuple(sends), (*acts, *told, *left), charters)

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
            membership.order,
            engine.is_blocked,
            not membership.is_engaged
            and not membership.is_proposing
            and not self.is_leaving
            and not (self.wants_other_order and membership.order != self.scope.switch_to),
            tuple(sorted(numbers[member] for member in membership.suspects)),
            deadline,
            deadline is not None and deadline < membership.now + SOON_NS,
            engine.quiet_at is not None and engine.phase is Phase.RUNNING,
            None if membership.closed is None else membership.closed.id,
            self.knows_all,
            membership.is_gathering,
            membership.is_primary,
            self.is_leaving,
            self.has_left,
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
        copied = copy(member, self._names)
        assert isinstance(copied, ModelMember)
        return copied

    def digest(self, member: ModelMember) -> bytes:
        """Equal for members that behave alike for ever. To tell apart too much would be merely slow."""
        return blake2b(repr(freeze(member, self._names)).encode(), digest_size=16).digest()
