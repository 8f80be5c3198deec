"""The model of orders: a few members in one view cast a few messages, and each message may take any time.

**What a step is.** A member takes one turn (`Case.turn_inputs_max` inputs at most): it casts its next message, or receives the
head of one of the streams to it, or its patience ends and it acknowledges. Each pair of members has a cast and a unicast stream;
packets of one stream keep their order, and nothing else does. Whatever a network without loss can do is one of these schedules;
loss is a longer delay, since streams repeat what was lost.

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

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from unisono.core.errors import Misuse
from unisono.core.ordering import AnyOrdering
from unisono.core.types import Property, Rank
from unisono.sim.explore.orders.case import Case, Counterexample, End, FlushStep, Step, Turn
from unisono.sim.explore.orders.flush import Flushes
from unisono.sim.explore.orders.judge import Judge, clash, sequence_of
from unisono.sim.explore.orders.member import Act, Setup
from unisono.sim.explore.orders.replay import tell
from unisono.sim.explore.orders.side import OrderSide, Shared
from unisono.sim.explore.search import Counts, Search, SearchProgress, SearchReport, State, ViolationFound
from unisono.sim.explore.situations import MASK, deliver


def explore(
    case: Case,
    order: type[AnyOrdering],
    crashes: int = 0,
    states_max: int | None = None,
    progress: Callable[[SearchProgress], object] | None = None,
) -> SearchReport[Counterexample]:
    """Visit every state of the case. With `crashes`, also flush in each: with no member crashed, and with up to `crashes`."""
    return Search(OrdersModel(case, order, crashes), states_max, None, progress).run()


class OrdersModel:
    """A case under an order. A test may look at what it remembers."""

    def __init__(self, case: Case, order: type[AnyOrdering], crashes: int = 0) -> None:
        if not 0 <= crashes < case.members:
            raise Misuse(f"of {case.members} members at most {case.members - 1} can crash, not {crashes}.")
        self.setup = Setup(case, order)
        self.shared = Shared()
        self.sides = [OrderSide(self.setup, rank, self.shared) for rank in self.setup.ranks]
        sets = [crashed for size in range(crashes + 1) for crashed in combinations(self.setup.ranks, size)]
        judge = self._judge = Judge(self.setup)
        self.flushes = [Flushes(self.setup, self.sides, crashed, judge) for crashed in sets] if crashes else []
        self.ends: set[tuple[int, ...]] = set()  # by rank: the number of the history
        self._situations = [side.situations for side in self.sides]
        self._total = Property.TOTAL in order.guarantees
        self._uniform = Property.UNIFORM in order.guarantees
        self._sequences: list[tuple[Act, ...]] = []  # by history: its part in the total order
        self._agreeing: set[tuple[int, int]] = set()  # pairs of histories whose sequences agree so far

    def start(self) -> State:
        return sum(side.start() << side.situations.shift for side in self.sides)

    def steps(self, state: State) -> Iterator[tuple[State, Step, bool]]:
        situations = self._situations
        for one in situations:
            situation = state >> one.shift & MASK
            for delta, sends, turn in one.actions[situation] or one.find(situation):
                yield deliver(situations, state + delta, sends) if sends else state + delta, turn, True

    def judge(self, state: State, step: Step | None) -> None:
        locals_ = self._locals(state)
        turn = step if isinstance(step, Turn) else None
        if turn is not None and self._total:
            self._check_sequences(locals_, turn.member)
        for flushes in self.flushes:
            if turn is None or turn.casts or self._uniform or turn.member not in flushes.crashed:
                sentence = flushes.check(locals_)
                if sentence is not None:
                    raise ViolationFound(sentence, FlushStep(flushes.crashed))

    def judge_end(self, state: State) -> None:
        histories = tuple(self._histories(self._locals(state)))
        if histories not in self.ends:
            self.ends.add(histories)
            sentence = self._judge.end([self.shared.histories.values[history] for history in histories])
            if sentence is not None:
                raise ViolationFound(sentence, End())

    def tell(self, steps: Sequence[Step], sentence: str) -> Counterexample:
        return tell(self.setup.case, self.setup.order, steps)

    def counts(self) -> Counts:
        return Counts(
            sum(len(side.locals) for side in self.sides),
            sum(flushes.checked for flushes in self.flushes),
            len(self.ends) + sum(len(flushes.outcomes) for flushes in self.flushes),
        )

    def _locals(self, state: State) -> list[int]:
        return [one.values[state >> one.shift & MASK][0] for one in self._situations]

    def _histories(self, locals_: Sequence[int]) -> list[int]:
        return [side.locals.values[local].history for side, local in zip(self.sides, locals_, strict=True)]

    def _check_sequences(self, locals_: list[int], mover: Rank) -> None:
        """Compare the mover with all others, who agree among themselves."""
        histories = self._histories(locals_)
        mine = histories[mover]
        for rank, other in enumerate(histories):
            if (mine, other) not in self._agreeing:
                sentence = clash(mover, self._sequence(mine), rank, self._sequence(other))
                if sentence is not None:
                    raise ViolationFound(sentence)
                self._agreeing.add((mine, other))

    def _sequence(self, history: int) -> tuple[Act, ...]:
        while len(self._sequences) <= history:
            self._sequences.append(sequence_of(self.shared.histories.values[len(self._sequences)]))
        return self._sequences[history]
