"""Everything that can become of one member of a case: its local states, and the turns between them.

A turn is run once for each local state and input. A local state is not copied to go on from it: it is made anew by running the
inputs that led to it, which takes no longer than copying it, needs no memory, and cannot be wrong.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from unisono.core.errors import Misuse
from unisono.core.ordering import Cut, Report
from unisono.core.outbox import EngineEffects
from unisono.core.types import Packet, Rank, Slot
from unisono.core.views import Retained, packet_for
from unisono.sim.explore.freeze import freeze
from unisono.sim.explore.orders.case import Stream, Turn
from unisono.sim.explore.orders.member import Act, CaseMember, Received, Setup, freeze_ordering
from unisono.sim.explore.search import ViolationFound, blame
from unisono.sim.explore.situations import Situations, Table

Streams: TypeAlias = tuple[tuple[int, ...], ...]
"""By sender, its cast stream and its unicast stream to this member: the numbers of the packets on their way."""


class Letter(NamedTuple):
    """What one turn sends to one other member, as numbers of packets."""

    sender: Rank
    casts: tuple[int, ...]
    unicasts: tuple[int, ...]


class Input(NamedTuple):
    """What a turn takes in, as numbers of packets."""

    casts: int
    received: tuple[tuple[Rank, int], ...]
    quiet: bool


class Move(NamedTuple):
    """A turn that is possible in a situation: what it adds to the state, and what it sends to whom."""

    delta: int
    sends: tuple[tuple[Rank, int], ...]
    turn: Turn


class Shared:
    """The tables that all members of one search share."""

    def __init__(self) -> None:
        self.packets: Table[Hashable, Packet] = Table()
        self.letters: Table[Letter, Letter] = Table()
        self.cuts: Table[Hashable, Cut] = Table()
        self.histories: Table[tuple[Act, ...], tuple[Act, ...]] = Table()

    def packet(self, packet: Packet) -> int:
        return self.packets.number(freeze(packet), packet)

    def cut(self, cut: Cut) -> int:
        return self.cuts.number(freeze(cut), cut)

    def history(self, acts: tuple[Act, ...]) -> int:
        return self.histories.number(acts, acts)


class LocalState(NamedTuple):
    """What is remembered of a local state: how to make it, and what others ask of it."""

    before: int  # the local state that it was met from; -1: none, it is the first
    input: Input
    history: int
    until_cast: int  # the history up to the last cast: what decides which messages follow which
    cast: int  # messages cast so far
    is_armed: bool


class Reported(NamedTuple):
    """A member's report at a flush: its number among the different ones, itself, and the packets that the member keeps."""

    number: int
    report: Report
    kept: Retained


class OrderSide:
    """One member's side of the search."""

    def __init__(self, setup: Setup, rank: Rank, shared: Shared) -> None:
        self.setup = setup
        self.rank = rank
        self.shared = shared
        self.locals: Table[tuple[int, ...], LocalState] = Table()
        self.situations: Situations[Streams, Move] = Situations(rank, self._receive, self._find_moves)
        self._results: dict[tuple[int, Input], tuple[int, tuple[tuple[Rank, int], ...]] | None] = {}
        self._parts: dict[Hashable, int] = {}  # of local states, numbered, since together they take much less room so
        self._reports: dict[int, Reported] = {}  # by local state
        self._contents: Table[Hashable, None] = Table()  # of the reports
        self._closed: dict[Hashable, int] = {}  # by local state, cut and what was lacking: the history

    def start(self) -> int:
        """The situation before the first step."""
        first = self._number_local(CaseMember(self.setup, self.rank), -1, Input(0, (), False))
        return self.situations.number(first, ((),) * (2 * len(self.setup.ranks)))

    def local(self, number: int) -> CaseMember:
        """The member in this local state, made anew."""
        inputs = []
        while number:
            state = self.locals.values[number]
            inputs.append(state.input)
            number = state.before
        local = CaseMember(self.setup, self.rank)
        for taken in reversed(inputs):
            local.take_turn(taken.casts, self._packets(taken), taken.quiet)
        return local

    def report(self, number: int) -> Reported:
        """What the member reports in this local state."""
        reported = self._reports.get(number)
        if reported is None:
            local = self.local(number)
            report = local.report()
            reported = Reported(self._contents.number(freeze(report), None), report, local.engine.kept)
            self._reports[number] = reported
        return reported

    def close(self, number: int, cut: int, lacks: Mapping[Slot, Packet]) -> int:
        """The number of the member's history after it closed the view in this local state with this cut."""
        key = (number, cut, tuple(lacks.items()) if lacks else None)
        history = self._closed.get(key)
        if history is None:
            local = self.local(number)
            local.report()
            local.close(self.shared.cuts.values[cut], lacks)
            history = self._closed[key] = self.shared.history(tuple(local.history))
        return history

    # Inside.

    def _receive(self, local: int, streams: Streams, letter: int) -> Streams:
        sender, casts, unicasts = self.shared.letters.values[letter]
        grown = list(streams)
        grown[2 * sender] += casts
        grown[2 * sender + 1] += unicasts
        return tuple(grown)

    def _find_moves(self, situation: int) -> list[Move]:
        """Every turn that this member can take here."""
        local, streams = self.situations.values[situation]
        moves = []
        for turn, taken, rest in self._inputs(local, streams):
            try:
                result = self._take(local, taken)
            except Misuse:
                raise
            except Exception as error:
                raise ViolationFound(blame(error), turn) from error
            if result is not None:
                after, sends = result
                moves.append(Move(self.situations.delta(situation, after, rest), sends, turn))
        return moves

    def _inputs(self, local: int, streams: Streams) -> Iterator[tuple[Turn, Input, Streams]]:
        """The turns that may be possible, each with what it takes in and what is then still on its way."""
        state = self.locals.values[local]
        most = self.setup.case.turn_inputs_max
        remaining = len(self.setup.case.messages[self.rank]) - state.cast
        for casts in range(min(remaining, most) + 1):
            for heads, received, rest in self._heads(streams, most - casts):
                if casts or heads:
                    yield Turn(self.rank, casts, heads), Input(casts, received, False), rest
        if state.is_armed:
            yield Turn(self.rank, quiet=True), Input(0, (), True), streams

    def _heads(
        self, streams: Streams, most: int
    ) -> Iterator[tuple[tuple[tuple[Rank, Stream], ...], tuple[tuple[Rank, int], ...], Streams]]:
        """Every sequence of at most `most` packets that can be received next."""
        yield (), (), streams
        if not most:
            return
        for place, packets in enumerate(streams):
            if packets:
                sender, unicast = divmod(place, 2)
                head = (sender, Stream.UNICAST if unicast else Stream.CAST)
                rest = (*streams[:place], packets[1:], *streams[place + 1 :])
                for heads, received, left in self._heads(rest, most - 1):
                    yield (head, *heads), ((sender, packets[0]), *received), left

    def _take(self, number: int, taken: Input) -> tuple[int, tuple[tuple[Rank, int], ...]] | None:
        """The local state after a turn and the letters that it sends; None if it is no turn, since patience had no effect."""
        key = (number, taken)
        if key not in self._results:
            local = self.local(number)
            before = freeze_ordering(local.engine.ordering) if taken.quiet else None
            out = local.take_turn(taken.casts, self._packets(taken), taken.quiet)
            if taken.quiet and not (out.casts or out.sends) and freeze_ordering(local.engine.ordering) == before:
                self._results[key] = None
            else:
                self._results[key] = (self._number_local(local, number, taken), tuple(self._sends(out)))
        return self._results[key]

    def _packets(self, taken: Input) -> Received:
        packets = self.shared.packets.values
        return tuple((sender, packets[packet]) for sender, packet in taken.received)

    def _sends(self, out: EngineEffects) -> Iterator[tuple[Rank, int]]:
        for receiver in self.setup.ranks:
            if receiver == self.rank:
                continue
            casts = tuple(self.shared.packet(packet_for(packet, receiver)) for packet in out.casts)
            unicasts = tuple(self.shared.packet(packet) for addressee, packet in out.sends if addressee == receiver)
            if casts or unicasts:
                letter = Letter(self.rank, casts, unicasts)
                yield receiver, self.shared.letters.number(letter, letter)

    def _number_local(self, local: CaseMember, before: int, taken: Input) -> int:
        history = tuple(local.history)
        last = max((place for place, act in enumerate(history, 1) if not act.delivered), default=0)
        numbers = self.shared.history(history), self.shared.history(history[:last])
        parts = self._parts
        key = tuple([parts.setdefault(part, len(parts)) for part in local.freeze()])
        return self.locals.number(key, LocalState(before, taken, *numbers, local.cast, local.is_armed))
