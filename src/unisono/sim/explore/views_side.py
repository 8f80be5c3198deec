"""Everything that can become of one member of a scope: its local states, its situations, and the steps between them.

A **local state** is a model member with its history. A **situation** is a local state and what is on its way to that member:
control messages, in no order and each once, and streams of packets, in order. Both are numbered as they are met, and a turn
is run once for each local state and input.

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
from unisono.sim.explore.side import Table
from unisono.sim.explore.state import blame, freeze
from unisono.sim.explore.views_member import (
    ACKS,
    SEEDS,
    Do,
    Facts,
    HistoryAct,
    Letter,
    Mail,
    ModelMember,
    Scope,
    Snapshots,
    Start,
    StreamPacket,
)


class Cost(IntEnum):
    """Which number of the scope's budget an action uses up; FREE uses none."""

    FREE = -1
    CAST = 0
    CRASH = 1
    JOIN = 2
    SUSPICION = 3
    TICK = 4
    DETOUR = 5
    LOSS = 6
    REPEAT = 7
    CUT = 8
    RESTART = 9


class Step(NamedTuple):
    """What a member does, and with what: a letter, or another member."""

    member: int
    do: Do | None  # None: it crashes
    what: int | None = None

    def tell(self, tables: Tables) -> str:
        names = tables.scope.names
        who = names[self.member]
        if self.do is None:
            return f"{who} crashes"
        if self.do is Do.RECEIVE or self.do is Do.TAKE or self.do is Do.LOSE:
            assert self.what is not None
            return f"{who} {'never gets' if self.do is Do.LOSE else 'receives'} {tables.in_words(self.what)}"
        if self.do is Do.SUSPECT or self.do is Do.UNSUSPECT:
            assert self.what is not None
            return f"{who} {'suspects' if self.do is Do.SUSPECT else 'no longer suspects'} {names[self.what]}"
        return f"{who} {_PLAIN_STEPS[self.do]}"


_PLAIN_STEPS = {
    Do.CAST: "casts",
    Do.TICK: "has waited: time passes for it until something is due",
    Do.QUIET: "acknowledges",
    Do.JOIN: "joins",
    Do.HEAR: "is told all addresses",
    Do.ADOPT: "takes the state over",
    Do.RESTART: "starts: its former life has crashed and left a record",
    Do.CUT: "is cut off",
    Do.HEAL: "is reached again",
}


class StepOutcome(NamedTuple):
    """What a step leads to: the situation after it, and what it sends to whom."""

    situation: int
    sends: tuple[tuple[int, int], ...]
    step: Step
    installed: tuple[Charter, ...]
    acted: bool  # the history grew


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


class ModelStates(Table[tuple[bytes | None, int, bool], ModelState]):
    """Local states by digest (of a crashed member: its record), history, and whether it has crashed."""

    __slots__ = ()

    def find(self, key: tuple[bytes | None, int, bool]) -> int | None:
        return self._numbers.get(key)


class Situation(NamedTuple):
    local: int
    mail: Links
    streams: Streams


class StepFailed(Exception):
    """A member raised an exception in this step. The text is the sentence on it."""

    def __init__(self, step: Step, sentence: str) -> None:
        super().__init__(sentence)
        self.step = step


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
        self.locals: ModelStates = ModelStates()
        self.situations: Table[Situation, Situation] = Table()
        self.actions: list[list[Action] | None] = []
        self.arrivals: dict[tuple[int, int], int] = {}  # by situation and letter
        self._bare: dict[int, int] = {}  # by situation: the one without mail
        self._results: dict[
            tuple[int, Do, Any], tuple[int, tuple[tuple[int, int], ...], tuple[Charter, ...], bool]
        ] = {}
        absent = self.locals.number((None, tables.nothing, False), ModelState(None, None, tables.nothing, False))
        self.absent = self._situate(absent, (), ())

    # Asked by the search.

    def local(self, situation: int) -> ModelState:
        return self.locals.values[self.situations.values[situation].local]

    def find_actions(self, number: int) -> list[Action]:
        """All that may happen to this member in a situation, found once."""
        actions = self.actions[number]
        if actions is None:
            actions = self.actions[number] = list(self._actions(number))
        return actions

    def perform(self, situation: int, action: Action) -> StepOutcome:
        """What an action leads to; it is performed once."""
        if action.outcome is None:
            step = action.step
            if step.do is None:
                action.outcome = self.crash(situation)
            elif step.do is Do.LOSE:
                assert step.what is not None
                action.outcome = StepOutcome(self.lose(situation, step.what), (), step, (), False)
            else:
                action.outcome = self.move(situation, step.do, step.what)
                if action.cost is Cost.REPEAT:
                    assert step.what is not None
                    kept = self.arrive(action.outcome.situation, step.what)
                    action.outcome = action.outcome._replace(situation=kept)
        return action.outcome

    def arrive(self, situation: int, letter: int) -> int:
        """The situation after something was sent to this member."""
        key = (situation, letter)
        reached = self.arrivals.get(key)
        if reached is None:
            local, mail, streams = self.situations.values[situation]
            sent = self.tables.letters.values[letter]
            if isinstance(sent, Mail):
                mail = _append(mail, sent.sender, letter)
            else:
                name = (sent.sender, sent.view, sent.stream)
                known = dict(streams)
                waiting = () if sent.stream == ACKS else known.get(name, ())
                known[name] = (*waiting, letter)
                streams = tuple(sorted(known.items()))
            reached = self.arrivals[key] = self._situate(local, mail, streams)
        return reached

    def start(self, start: Start) -> tuple[int, tuple[tuple[int, int], ...]]:
        """The situation of a member that has just joined, and what it sends."""
        local, sends, _, _ = self._take(self.situations.values[self.absent].local, Do.JOIN, start, start)
        return self._situate(local, (), ()), sends

    def cut_from(self, situation: int, side: Callable[[int], bool]) -> int:
        """The situation when the control messages of these members are lost. Packets wait: streams send them again."""
        local, mail, streams = self.situations.values[situation]
        return self._situate(local, tuple(link for link in mail if not side(link[0])), streams)

    def lose(self, situation: int, letter: int) -> int:
        """The situation when one control message is lost."""
        local, mail, streams = self.situations.values[situation]
        return self._situate(local, _remove(mail, letter), streams)

    def clear(self, situation: int) -> int:
        """The situation when all control messages on their way are lost."""
        bare = self._bare.get(situation)
        if bare is None:
            local, _, streams = self.situations.values[situation]
            bare = self._bare[situation] = self._situate(local, (), streams)
        return bare

    def move(self, situation: int, do: Do, what: int | None = None) -> StepOutcome:
        """Take one step, whatever the budget says."""
        local, mail, streams = self.situations.values[situation]
        argument: Any = what
        if do is Do.RECEIVE:
            assert what is not None
            argument, mail = self.tables.letters.values[what], _remove(mail, what)
        elif do is Do.TAKE:
            assert what is not None
            in_flight = argument = self.tables.letters.values[what]
            assert isinstance(in_flight, StreamPacket)
            name = (in_flight.sender, in_flight.view, in_flight.stream)
            streams = tuple((n, q[1:] if n == name else q) for n, q in streams if n != name or len(q) > 1)
        elif do is Do.JOIN:
            argument = Start(SEEDS)
        elif do is Do.HEAR:
            argument = tuple(member.address for member in self.tables.scope.ids)
        step = Step(self.number, do, what)
        try:
            reached, sends, installed, acted = self._take(local, do, argument, what)
        except Exception as error:
            raise StepFailed(step, blame(error)) from error
        return StepOutcome(self._situate(reached, mail, streams), sends, step, installed, acted)

    def crash(self, situation: int) -> StepOutcome:
        local = self.local(situation)
        history, record = local.history, None if local.stored is None else local.stored.record
        dead = self.locals.number((record, history, True), ModelState(None, None, history, True, record))
        return StepOutcome(self._situate(dead, (), ()), (), Step(self.number, None), (), False)

    # What may happen in one situation.

    def _actions(self, number: int) -> Iterator[Action]:
        situation, me = self.situations.values[number], self.number
        local = self.locals.values[situation.local]
        facts, scope = local.facts, self.tables.scope
        if facts is None:
            if not local.crashed and scope.former_life(me) is None:
                yield Action(Cost.JOIN, Step(me, Do.JOIN))
            return
        for _, letters in situation.mail:
            for letter in letters:
                yield Action(Cost.FREE if letter == letters[0] else Cost.DETOUR, Step(me, Do.RECEIVE, letter))
            yield Action(Cost.LOSS, Step(me, Do.LOSE, letters[0]))
            yield Action(Cost.REPEAT, Step(me, Do.RECEIVE, letters[0]))
        for letter in self.heads(number):
            sender = self.tables.letters.values[letter].sender if scope.cuts else -1
            yield Action(Cost.FREE, Step(me, Do.TAKE, letter), sender)
        if facts.quiet:
            yield Action(Cost.FREE, Step(me, Do.QUIET))
        if facts.view is not None and facts.is_primary:
            yield Action(Cost.CAST, Step(me, Do.CAST))
        for other, member in enumerate(scope.ids):
            if member.address != scope.ids[me].address and other not in facts.suspects:
                known = facts.view is not None and member in facts.view.members
                yield Action(Cost.SUSPICION if known else Cost.FREE, Step(me, Do.SUSPECT, other), other)
        if facts.is_waiting and facts.is_primary and not facts.blocked:
            yield Action(Cost.FREE, Step(me, Do.ADOPT), me)
        if facts.is_due:
            is_free = (
                scope.restarts and facts.is_gathering
            )  # a second life is to come to a view while others are cut off
            yield Action(Cost.FREE if is_free else Cost.TICK, Step(me, Do.TICK))
        yield Action(Cost.CRASH, Step(me, None))

    def heads(self, situation: int) -> list[int]:
        """The packets that can be taken in now: the first of each stream of the view that is installed."""
        local, _, streams = self.situations.values[situation]
        facts = self.locals.values[local].facts
        if facts is None or facts.view is None:
            return []
        return [queue[0] for (_, view, _), queue in streams if view == facts.view.id]

    def _take(
        self, number: int, do: Do, argument: Any, key: Any = None
    ) -> tuple[int, tuple[tuple[int, int], ...], tuple[Charter, ...], bool]:
        """The local state after a turn, the letters that it sends, and what it installed."""
        known = self._results.get((number, do, key))
        if known is not None:
            return known
        tables, snapshots = self.tables, self.tables.snapshots
        local = self.locals.values[number]
        if local.stored is None:
            member = ModelMember(tables.scope, self.number, argument.record)
            snapshots.admit(member)
        else:
            member = snapshots.copy(local.stored)
        turn = member.take(do, argument)
        history = tables.history(local.history, turn.acts)
        name = (snapshots.digest(member), history, False)
        after = self.locals.find(name)
        if after is None:
            after = self.locals.number(name, ModelState(member, member.facts(), history, False))
        sends = tuple((to, tables.letter(letter)) for to, letter in turn.sends)
        result = (after, sends, turn.installed, bool(turn.acts))
        self._results[number, do, key] = result
        return result

    def _situate(
        self,
        local: int,
        mail: Links,
        streams: Streams,
    ) -> int:
        facts = self.locals.values[local].facts
        if facts is None:
            mail, streams = (), ()
        elif streams and facts.view is not None:
            current, blocked = facts.view.id, facts.blocked
            streams = tuple(one for one in streams if one[0][1] > current or (one[0][1] == current and not blocked))
        situation = Situation(local, mail, streams)
        number = self.situations.number(situation, situation)
        if number == len(self.actions):
            self.actions.append(None)
        return number


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
