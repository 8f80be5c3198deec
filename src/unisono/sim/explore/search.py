"""Exhaustive search: every interleaving of a small case, on the engines that ship.

**What a step is.** A member takes one turn (`Case.turn_inputs_max` inputs at most): it casts its next message, or receives the
head of one of the streams to it, or its patience ends and it acknowledges. Each pair of members has a cast and a unicast stream;
packets of one stream keep their order, and nothing else does. Whatever a network without loss can do is one of these schedules;
loss is a longer delay, since streams repeat what was lost.

**Why it is fast.** A turn depends on one member alone. So the states that one member can be in, and the turns between them, are
computed once and numbered, however many states of the whole they occur in; a member's local state together with the packets on
their way to it is a **situation**, also numbered. A state of the whole is one situation a member, packed into one
integer, and a step is a few additions of integers. A local state is not copied to go on from it: it is made anew by
running the inputs that led to it, which takes no longer than copying it, needs no memory, and cannot be wrong.
Search is breadth first, so the first violation has a shortest schedule.

**Crashes are free.** Take any run in which c crashes, some of its last packets reach some members and others reach none, the
survivors go on for a while, each as long as it likes, and report. Let c take no more turns, in place of crashing, and let its
lost packets stay on their way for ever; and let a survivor that has reported take no more turns either. The survivors see
exactly the same, and this is a run without a crash. The flush discards all packets on their way: after its report a
member takes in none of this view, and what a survivor had sent is still held by it. So flushing the others in *every* state
covers every crash of c, at every point, with every loss. The outcome depends on the survivors' local states alone (and its
verdict, for causality, on what c had seen when it cast, and for a uniform order on what c delivered), and is remembered by
them. The same holds for several that crash, and for none, as when a member joins.

**What is asked.** In every state: sequences of a total order agree so far; the flush of each set of survivors keeps the
promises; `merge` does not care in which order the reports came. At an end, where no step is possible: all promises, so also that
nothing waits for ever. An exception inside an ordering is a violation. See `judge`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, TypeAlias

from unisono.core.errors import Misuse
from unisono.core.ordering import AnyOrdering
from unisono.core.types import Property, Rank
from unisono.sim.explore.case import Case, Counterexample, End, FlushStep, Step, Turn
from unisono.sim.explore.flush import Flushes
from unisono.sim.explore.judge import Judge, clash, sequence_of
from unisono.sim.explore.replay import tell
from unisono.sim.explore.side import BITS, MASK, Broken, Shared, Side
from unisono.sim.explore.state import Act, Setup

PROGRESS_EVERY = 1 << 16

State: TypeAlias = int
"""The situation of each member, rank 0 in the lowest bits."""


@dataclass(frozen=True)
class ExploreReport:
    """What a search came to."""

    states: int
    transitions: int
    local_states: int
    """Different states of single members, summed."""
    flushes_checked: int
    """Different combinations of survivors' states from which a flush was run."""
    outcomes: int
    """Different ends that were judged."""
    depth: int
    """Steps of the longest shortest schedule."""
    violation: Counterexample | None
    complete: bool
    """Whether every state was visited. False after a violation, or at the limit of states."""


class SearchProgress(NamedTuple):
    """How far a search is."""

    states: int
    depth: int
    frontier: int
    """States that are found and not yet looked into."""


def explore(
    case: Case,
    order: type[AnyOrdering],
    crashes: int = 0,
    limit_states: int | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
) -> ExploreReport:
    """Visit every state of the case. With `crashes`, also flush in each: with no member crashed, and with up to `crashes`."""
    if not 0 <= crashes < case.members:
        raise Misuse(f"of {case.members} members at most {case.members - 1} can crash, not {crashes}.")
    return Search(case, order, crashes, limit_states, progress).run()


class _Finding(NamedTuple):
    """Something is wrong in a state, or after one more step from it."""

    state: State
    step: Step | None
    sentence: str


class Search:
    """One search. `explore` is the way to run it; a test may look at what it remembers."""

    def __init__(
        self,
        case: Case,
        order: type[AnyOrdering],
        crashes: int,
        limit_states: int | None,
        progress: Callable[[SearchProgress], None] | None,
    ) -> None:
        self.setup = Setup(case, order)
        self.limit_states = limit_states
        self.progress = progress
        self.shared = Shared()
        self.sides = [Side(self.setup, rank, self.shared) for rank in self.setup.ranks]
        self.judge = Judge(self.setup)
        sets = [crashed for size in range(crashes + 1) for crashed in combinations(self.setup.ranks, size)]
        self.flushes = [Flushes(self.setup, self.sides, crashed, self.judge) for crashed in sets] if crashes else []
        self.parents: dict[State, State] = {}
        self.transitions = 0
        self.depth = 0
        self.ends: set[tuple[int, ...]] = set()  # by rank: the number of the history
        self.total = Property.TOTAL in order.guarantees
        self.uniform = Property.UNIFORM in order.guarantees
        self.sequences: list[tuple[Act, ...]] = []  # by history: its part in the total order
        self.agreeing: set[tuple[int, int]] = set()  # pairs of histories whose sequences agree so far

    def run(self) -> ExploreReport:
        finding, complete = self._search()
        return ExploreReport(
            len(self.parents),
            self.transitions,
            sum(len(side.locals) for side in self.sides),
            sum(flushes.checked for flushes in self.flushes),
            len(self.ends) + sum(len(flushes.outcomes) for flushes in self.flushes),
            self.depth,
            None if finding is None else self._explain(finding),
            complete,
        )

    def _search(self) -> tuple[_Finding | None, bool]:
        """Breadth first, a depth at a time."""
        start = sum(side.start() << side.shift for side in self.sides)
        self.parents[start] = start
        frontier = [start]
        finding = self._check(start, None)
        while frontier and finding is None:
            if self.limit_states is not None and len(self.parents) >= self.limit_states:
                return None, False
            finding, frontier = self._expand(frontier)
            self.depth += bool(frontier)
        return finding, finding is None

    def _expand(self, frontier: list[State]) -> tuple[_Finding | None, list[State]]:
        """One step further from every state of one depth. The inner loop of the search, so it is written for speed."""
        parents, sides = self.parents, self.sides
        found: list[State] = []
        limit = self.limit_states or sys.maxsize
        for state in frontier:
            ended = True
            for side in sides:
                situation = state >> side.shift & MASK
                try:
                    moves = side.moves[situation]
                    if moves is None:
                        moves = side.find_moves(situation)
                except Broken as broken:
                    return _Finding(state, broken.turn, str(broken)), found
                for delta, sends, turn in moves:
                    ended = False
                    reached = state + delta
                    for receiver, letter in sends:
                        other = sides[receiver]
                        arrival = letter << BITS | state >> other.shift & MASK
                        added = other.arrivals.get(arrival)
                        reached += other.arrive(arrival & MASK, letter) if added is None else added
                    self.transitions += 1
                    if reached not in parents:
                        parents[reached] = state
                        found.append(reached)
                        finding = self._check(reached, turn)
                        if finding is not None:
                            return finding, found
                        if len(parents) % PROGRESS_EVERY == 0 and self.progress is not None:
                            self.progress(SearchProgress(len(parents), self.depth, len(frontier) + len(found)))
            if ended and (sentence := self._check_end(state)) is not None:
                return _Finding(state, End(), sentence), found
            if len(parents) >= limit:
                break
        return None, found

    # What is asked of a state.

    def _check(self, state: State, turn: Turn | None) -> _Finding | None:
        """Check a state that was not met before, reached by this turn."""
        locals_ = [side.local_of[state >> side.shift & MASK] for side in self.sides]
        if self.total and turn is not None and (sentence := self._check_sequences(locals_, turn.member)) is not None:
            return _Finding(state, None, sentence)
        for flushes in self.flushes:
            if turn is None or turn.casts or self.uniform or turn.member not in flushes.crashed:
                sentence = flushes.check(locals_)
                if sentence is not None:
                    return _Finding(state, FlushStep(flushes.crashed), sentence)
        return None

    def _check_sequences(self, locals_: list[int], mover: Rank) -> str | None:
        """Compare the mover with all others, who agree among themselves."""
        histories = [side.locals.values[local].history for side, local in zip(self.sides, locals_, strict=True)]
        mine = histories[mover]
        for rank, other in enumerate(histories):
            if (mine, other) not in self.agreeing:
                sentence = clash(mover, self._sequence(mine), rank, self._sequence(other))
                if sentence is not None:
                    return sentence
                self.agreeing.add((mine, other))
        return None

    def _sequence(self, history: int) -> tuple[Act, ...]:
        while len(self.sequences) <= history:
            self.sequences.append(sequence_of(self.shared.histories.values[len(self.sequences)]))
        return self.sequences[history]

    def _check_end(self, state: State) -> str | None:
        """Check a state in which no step is possible."""
        locals_ = [side.local_of[state >> side.shift & MASK] for side in self.sides]
        histories = tuple(side.locals.values[local].history for side, local in zip(self.sides, locals_, strict=True))
        if histories in self.ends:
            return None
        self.ends.add(histories)
        return self.judge.end([self.shared.histories.values[history] for history in histories])

    # The way to a state.

    def _explain(self, finding: _Finding) -> Counterexample:
        steps: list[Step] = [] if finding.step is None else [finding.step]
        state = finding.state
        while (before := self.parents[state]) != state:
            steps.append(self._turn_between(before, state))
            state = before
        return tell(self.setup.case, self.setup.order, steps[::-1])

    def _turn_between(self, before: State, after: State) -> Turn:
        for side in self.sides:
            for delta, sends, turn in side.moves[before >> side.shift & MASK] or ():
                reached = before + delta
                for receiver, letter in sends:
                    other = self.sides[receiver]
                    reached += other.arrivals[letter << BITS | before >> other.shift & MASK]
                if reached == after:
                    return turn
        raise AssertionError("every state was reached from its parent")
