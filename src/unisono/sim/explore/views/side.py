"""Everything that can become of one member of a scope: its local states, its situations, and the steps between them.

A **local state** is a model member with its history. On its way to a member are control messages, of one sender in order and each
once, and streams of packets, in order. A turn is run once for each local state and input, on a copy of the member.

What can have no effect any more is not kept on its way: anything to a member that has crashed or not joined yet, and
packets of a view that their receiver has left behind or blocked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from unisono.core.types import Packet, ViewId
from unisono.core.wire import Charter
from unisono.core.wire.control import ANSWER, CUT, Chunk
from unisono.sim.explore.freeze import freeze
from unisono.sim.explore.search import ViolationFound, blame
from unisono.sim.explore.situations import Situations, Table
from unisono.sim.explore.views.member import (
    ACKS,
    Do,
    Facts,
    HistoryAct,
    Letter,
    Mail,
    ModelMember,
    Snapshots,
    Start,
    StreamPacket,
)
from unisono.sim.explore.views.scope import SEEDS, Scope


class Cost(IntEnum):
    """Which number of the scope an action uses up; FREE uses none."""

    FREE = -1
    CASTS = 0
    CRASHES = 1
    JOINS = 2
    SUSPICIONS = 3
    TICKS = 4
    DETOURS = 5
    LOSSES = 6
    REPEATS = 7
    CUTS = 8
    RESTARTS = 9
    GREETINGS = 10
    LEAVES = 11
    SWITCHES = 12

    def limit(self, scope: Scope) -> int:
        limit: int = getattr(scope, self.name.lower())
        return limit


class Step(NamedTuple):
    """What a member does, and with what: a letter, or another member."""

    member: int
    do: Do
    what: int | None = None

    def tell(self, tables: Tables) -> str:
        names = tables.scope.names
        text = f"{names[self.member]} {self.do}"
        if self.what is None:
            return text
        return f"{text} {tables.in_words(self.what) if self.do in _OF_LETTERS else names[self.what]}"


_OF_LETTERS = (Do.RECEIVE, Do.TAKE, Do.LOSE)


class StepOutcome(NamedTuple):
    """What a step leads to: what it adds to the state, and what it sends to whom."""

    step: Step
    delta: int = 0
    sends: tuple[tuple[int, int], ...] = ()
    installed: tuple[Charter, ...] = ()
    acted: bool = False  # the history grew


class Action:
    """A step that may be possible in a situation. It is performed only if the budget of the state allows it."""

    __slots__ = ("cost", "other", "outcome", "step")

    def __init__(self, cost: Cost, step: Step, other: int = -1) -> None:
        self.cost = cost
        self.step = step
        self.other = other  # whether it is possible depends on this member, or on all if it is this one; -1: on none
        self.outcome: StepOutcome | None = None


class ModelState(NamedTuple):
    """What is remembered of a local state."""

    stored: ModelMember | None  # None: not there, before joining or after a crash
    facts: Facts | None
    history: int
    crashed: bool
    record: bytes | None = None  # of a member that has crashed, for its second life


Links: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
"""By sender: the control messages on their way, the earliest first."""
Streams: TypeAlias = tuple[tuple[tuple[int, ViewId, int], tuple[int, ...]], ...]
"""By sender, view and kind of stream: the letters in it, in order."""
Wire: TypeAlias = tuple[Links, Streams]
Turn: TypeAlias = tuple[int, tuple[tuple[int, int], ...], tuple[Charter, ...], bool]
"""The local state after a turn, the letters that it sends, what it installed, and whether the history grew."""


class Tables:
    """What all members of one search share."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.snapshots = Snapshots(scope)
        self.letters: Table[Any, Letter] = Table()
        self.histories: Table[tuple[int, Any], tuple[int, HistoryAct | None]] = Table()
        self.nothing = self.histories.number((-1, None), (-1, None))

    def letter(self, letter: Letter) -> int:
        return self.letters.number(freeze(letter), letter)

    def is_mail(self, letter: int) -> bool:
        """Whether it is a control message; packets of streams are sent again until they arrive."""
        return isinstance(self.letters.values[letter], Mail)

    def in_words(self, letter: int) -> str:
        return _in_words(self.letters.values[letter], self.scope.names)

    def history(self, before: int, acts: tuple[HistoryAct, ...]) -> int:
        for act in acts:
            before = self.histories.number((before, act), (before, act))
        return before

    def acts(self, history: int) -> list[HistoryAct]:
        result = []
        while history != self.nothing:
            history, act = self.histories.values[history]
            assert act is not None
            result.append(act)
        return result[::-1]


class ViewsSide:
    """One member's side of the search."""

    def __init__(self, tables: Tables, number: int) -> None:
        self.tables = tables
        self.number = number
        self.locals: Table[tuple[bytes | None, int, bool], ModelState] = Table()
        """By digest (of a crashed member: its record), history, and whether it has crashed."""
        self.situations: Situations[Wire, Action] = Situations(number, self._receive, self._find_actions)
        self._costs = {cost for cost in Cost if cost in (Cost.FREE, Cost.SUSPICIONS) or cost.limit(tables.scope)}
        self._bare: dict[int, int] = {}  # by situation: what it adds to lose all control messages
        self._turns: dict[tuple[int, Do, Any], Turn] = {}
        absent = self.locals.number((None, tables.nothing, False), ModelState(None, None, tables.nothing, False))
        self.absent = self.situations.number(absent, ((), ()))

    # Asked by the model.

    def local(self, situation: int) -> ModelState:
        return self.locals.values[self.situations.values[situation][0]]

    def mail(self, situation: int) -> Links:
        """The control messages on their way."""
        return self.situations.values[situation][1][0]

    def heads(self, situation: int) -> list[int]:
        """The packets that can be taken in now: the first of each stream of the view that is installed."""
        local, (_, streams) = self.situations.values[situation]
        facts = self.locals.values[local].facts
        if facts is None or facts.view is None:
            return []
        return [queue[0] for (_, view, _), queue in streams if view == facts.view.id]

    def perform(self, situation: int, action: Action) -> StepOutcome:
        """What an action leads to; it is performed once."""
        if action.outcome is None:
            outcome = self.move(situation, action.step.do, action.step.what)
            if action.cost is Cost.REPEATS:
                assert action.step.what is not None
                after = situation + (outcome.delta >> self.situations.shift)
                kept = outcome.delta + self.situations.arrive(after, action.step.what)
                outcome = outcome._replace(delta=kept)
            action.outcome = outcome
        return action.outcome

    def move(self, situation: int, do: Do, what: int | None = None, start: Start | None = None) -> StepOutcome:
        """Take one step, whatever the budget says."""
        local, (mail, streams) = self.situations.values[situation]
        step = Step(self.number, do, what)
        argument: Any = what
        if do is Do.CRASH or do is Do.STOP:
            return StepOutcome(step, self._crash(situation))
        if do is Do.RECEIVE or do is Do.LOSE:
            assert what is not None
            argument, mail = self.tables.letters.values[what], _remove(mail, what)
            if do is Do.LOSE:
                return StepOutcome(step, self._delta(situation, local, mail, streams))
        elif do is Do.TAKE:
            assert what is not None
            in_flight = argument = self.tables.letters.values[what]
            assert isinstance(in_flight, StreamPacket)
            name = (in_flight.sender, in_flight.view, in_flight.stream)
            streams = tuple((n, q[1:] if n == name else q) for n, q in streams if n != name or len(q) > 1)
        elif do is Do.JOIN:
            argument = start or Start(SEEDS)
        elif do is Do.HEAR:
            argument = tuple(member.address for member in self.tables.scope.ids)
        try:
            after, sends, installed, acted = self._take(local, do, argument, argument if what is None else what)
        except Exception as error:
            raise ViolationFound(blame(error), StepOutcome(step)) from error
        return StepOutcome(step, self._delta(situation, after, mail, streams), sends, installed, acted)

    def cut_from(self, situation: int, side: Callable[[int], bool]) -> int:
        """What it adds to lose the control messages of these members. Packets wait: streams send them again."""
        local, (mail, streams) = self.situations.values[situation]
        return self._delta(situation, local, tuple(link for link in mail if not side(link[0])), streams)

    def clear(self, situation: int) -> int:
        """What it adds to lose all control messages on their way."""
        bare = self._bare.get(situation)
        if bare is None:
            bare = self._bare[situation] = self.cut_from(situation, lambda sender: True)
        return bare

    # What may happen in one situation.

    def _find_actions(self, situation: int) -> list[Action]:
        return [action for action in self._actions(situation) if action.cost in self._costs]

    def _actions(self, situation: int) -> Iterator[Action]:
        local, (mail, _) = self.situations.values[situation]
        state, scope, me = self.locals.values[local], self.tables.scope, self.number
        facts = state.facts
        if facts is None:
            if not state.crashed and scope.former_life(me) is None:
                yield Action(Cost.JOINS, Step(me, Do.JOIN))
            return
        for _, letters in mail:
            for letter in letters:
                yield Action(Cost.FREE if letter == letters[0] else Cost.DETOURS, Step(me, Do.RECEIVE, letter))
            yield Action(Cost.LOSSES, Step(me, Do.LOSE, letters[0]))
            yield Action(Cost.REPEATS, Step(me, Do.RECEIVE, letters[0]))
        if facts.is_gone:
            yield Action(Cost.FREE, Step(me, Do.STOP))
            return
        for letter in self.heads(situation):
            sender = self.tables.letters.values[letter].sender if scope.cuts else -1
            yield Action(Cost.FREE, Step(me, Do.TAKE, letter), sender)
        if facts.quiet:
            yield Action(Cost.FREE, Step(me, Do.QUIET))
        if facts.view is not None and facts.is_primary:
            yield Action(Cost.CASTS, Step(me, Do.CAST))
        for other, member in enumerate(scope.ids):
            if member.address != scope.ids[me].address and other not in facts.suspects:
                known = facts.view is not None and member in facts.view.members
                yield Action(Cost.SUSPICIONS if known else Cost.FREE, Step(me, Do.SUSPECT, other), other)
        if facts.is_waiting and facts.is_primary and not facts.blocked:
            yield Action(Cost.FREE, Step(me, Do.ADOPT), me)
        if facts.view is not None:
            if any(member not in facts.view.members for member in scope.ids[: scope.members]):
                yield Action(Cost.GREETINGS, Step(me, Do.GREET))
            if scope.switches and facts.order != scope.switch_to:
                yield Action(Cost.SWITCHES, Step(me, Do.SWITCH))
        if not facts.is_leaving:
            yield Action(Cost.LEAVES, Step(me, Do.LEAVE))
        if facts.is_due:  # a second life is to come to a view while others are cut off, and what was parted is to merge
            is_free = (scope.restarts or scope.greetings) and facts.is_gathering
            yield Action(Cost.FREE if is_free else Cost.TICKS, Step(me, Do.TICK))
        yield Action(Cost.CRASHES, Step(me, Do.CRASH))

    # Inside.

    def _crash(self, situation: int) -> int:
        local = self.local(situation)
        record = None if local.stored is None else local.stored.record
        dead = ModelState(None, None, local.history, True, record)
        return self._delta(situation, self.locals.number((record, local.history, True), dead), (), ())

    def _take(self, number: int, do: Do, argument: Any, key: Any) -> Turn:
        known = self._turns.get((number, do, key))
        if known is not None:
            return known
        tables, snapshots = self.tables, self.tables.snapshots
        local = self.locals.values[number]
        if local.stored is None:
            member = ModelMember(tables.scope, self.number, argument.record)
            snapshots.admit(member)
        else:
            member = snapshots.copy(local.stored)
        result = member.take(do, argument)
        history = tables.history(local.history, result.acts)
        name = (snapshots.digest(member), history, False)
        after = self.locals.find(name)
        if after is None:
            after = self.locals.number(name, ModelState(member, member.facts(), history, False))
        sends = tuple((to, tables.letter(letter)) for to, letter in result.sends)
        turn = self._turns[number, do, key] = (after, sends, result.installed, bool(result.acts))
        return turn

    def _receive(self, local: int, wire: Wire, letter: int) -> Wire:
        mail, streams = wire
        sent = self.tables.letters.values[letter]
        if isinstance(sent, Mail):
            mail = _append(mail, sent.sender, letter)
        else:
            name = (sent.sender, sent.view, sent.stream)
            known = dict(streams)
            waiting = () if sent.stream == ACKS else known.get(name, ())
            known[name] = (*waiting, letter)
            streams = tuple(sorted(known.items()))
        return self._wire(local, mail, streams)

    def _delta(self, before: int, local: int, mail: Links, streams: Streams) -> int:
        return self.situations.delta(before, local, self._wire(local, mail, streams))

    def _wire(self, local: int, mail: Links, streams: Streams) -> Wire:
        """What can still have an effect."""
        facts = self.locals.values[local].facts
        if facts is None:
            return (), ()
        if streams and facts.view is not None:
            current, blocked = facts.view.id, facts.blocked
            streams = tuple(one for one in streams if one[0][1] > current or (one[0][1] == current and not blocked))
        return mail, streams


def _append(mail: Links, sender: int, letter: int) -> Links:
    """Equal messages of one sender that are under way are one."""
    links = dict(mail)
    letters = links.get(sender, ())
    if letter in letters:
        return mail
    links[sender] = (*letters, letter)
    return tuple(sorted(links.items()))


def _remove(mail: Links, letter: int) -> Links:
    left = ((sender, tuple(one for one in letters if one != letter)) for sender, letters in mail)
    return tuple(link for link in left if link[1])


def _in_words(letter: Letter, names: tuple[str, ...]) -> str:
    sender = names[letter.sender]
    if isinstance(letter, StreamPacket):
        return f"{_packet(letter.packet)} of view {letter.view} from {sender}"
    message = letter.message
    ballot = getattr(message, "ballot", None)
    name = type(message).__name__
    if isinstance(message, Chunk):
        name = {ANSWER: "the answer", CUT: "the cut"}.get(message.topic, "packets")
    return f"{name}{f' of {ballot}' if ballot else ''} from {sender}"


def _packet(packet: Packet) -> str:
    number = getattr(packet, "number", None)
    return type(packet).__name__ if number is None else f"{type(packet).__name__} {number}"
