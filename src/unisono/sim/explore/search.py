"""The search: breadth first through every state of a model, each visited and judged once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from traceback import extract_tb
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from unisono.sim.oracle import ContractViolation
from unisono.trace.checks import judge
from unisono.trace.sinks import MemorySink

State: TypeAlias = int
PROGRESS_EVERY = 1 << 13

S = TypeVar("S")
"""A step of the model."""
C = TypeVar("C")
"""A violation, as the model tells it."""
C_co = TypeVar("C_co", covariant=True)


class ViolationFound(Exception):
    """A promise is broken: in the state that was asked about, or after these further steps from it."""

    def __init__(self, sentence: str, *steps: object) -> None:
        super().__init__(sentence)
        self.steps = steps


def blame(error: Exception) -> str:
    """An exception inside what is explored as a sentence: what, and where it was raised."""
    if isinstance(error, ContractViolation):
        return str(error)
    frame = extract_tb(error.__traceback__)[-1]
    text = f": {error}" if str(error) else ""
    return f"{type(error).__name__} in {frame.name} ({frame.line}){text}."


def first_violation(trace: MemorySink, owed: Collection[str]) -> str | None:
    """The sentence on what a trace breaks of these properties, the weakest first; None: nothing."""
    verdict = judge(trace.events, owed)
    return next((str(one) for one in verdict.violations if one.property in verdict.weakest), None)


class Counts(NamedTuple):
    """What a model has computed so far."""

    local_states: int
    """Different states of single members, summed."""
    probes: int
    """What was tried besides the search: view changes from states of orders, states on the ways to rest of views."""
    ends: int
    """Different ends that were judged."""


class Model(Protocol[S, C_co]):
    """What is searched. States are integers that only the model reads; each method may raise `ViolationFound`."""

    def start(self) -> State:
        """The first state."""

    def steps(self, state: State) -> Iterable[tuple[State, S, bool]]:
        """All that can happen in a state: the state that it leads to, the step, and whether it needs neither fault nor time."""

    def judge(self, state: State, step: S | None) -> None:
        """Judge a state that was not met before, reached by this step; None: it is the first one."""

    def judge_end(self, state: State) -> None:
        """Judge a state in which nothing more happens without a fault, and without time passing."""

    def tell(self, steps: Sequence[S], sentence: str) -> C_co:
        """Write down a way to a violation."""

    def counts(self) -> Counts:
        """What was computed so far."""


class SearchProgress(NamedTuple):
    """How far a search is."""

    states: int
    transitions: int
    depth: int


@dataclass(frozen=True)
class SearchReport(Generic[C]):
    """What a search did and found."""

    states: int
    transitions: int
    depth: int
    """Steps of the longest shortest schedule."""
    local_states: int
    probes: int
    ends: int
    violation: C | None
    complete: bool
    """Whether every state was visited. False after a violation, or at a limit."""


class Search(Generic[S, C]):
    """One search of one model."""

    def __init__(
        self,
        model: Model[S, C],
        states_max: int | None = None,
        seconds_max: float | None = None,
        progress: Callable[[SearchProgress], object] | None = None,
    ) -> None:
        self.model = model
        self.transitions = 0
        self.depth = 0
        self._parents: dict[State, State] = {}
        self._at: State = 0  # the state that is asked about
        self._states_max = states_max
        self._ends_at = None if seconds_max is None else monotonic() + seconds_max
        self._progress = progress

    def run(self) -> SearchReport[C]:
        violation, complete = None, False
        try:
            complete = self._search()
        except ViolationFound as found:
            violation = self.model.tell([*self._way_to(self._at), *found.steps], str(found))  # type: ignore[list-item]
        counts = self.model.counts()
        return SearchReport(len(self._parents), self.transitions, self.depth, *counts, violation, complete)

    def _search(self) -> bool:
        """A depth at a time; False if a limit was met."""
        start = self._at = self.model.start()
        self._parents[start] = start
        self.model.judge(start, None)
        frontier = [start]
        while frontier:
            found: list[State] = []
            for state in frontier:
                if self._is_over():
                    return False
                self._expand(state, found)
            self.depth += bool(found)
            frontier = found
        return True

    def _is_over(self) -> bool:
        if self._states_max is not None and len(self._parents) >= self._states_max:
            return True
        return self._ends_at is not None and monotonic() > self._ends_at

    def _expand(self, state: State, found: list[State]) -> None:
        """One step further from a state. The inner loop of the search, so it is written for speed."""
        parents, judge = self._parents, self.model.judge
        self._at = state
        is_end = True
        transitions = 0
        for reached, step, is_free in self.model.steps(state):
            transitions += 1
            if is_free:
                is_end = False
            if reached not in parents:
                parents[reached] = state
                found.append(reached)
                self._at = reached
                judge(reached, step)
                self._at = state
                if len(parents) % PROGRESS_EVERY == 0 and self._progress is not None:
                    self._progress(SearchProgress(len(parents), self.transitions + transitions, self.depth))
        self.transitions += transitions
        if is_end:
            self.model.judge_end(state)

    def _way_to(self, state: State) -> list[S]:
        steps: list[S] = []
        while (before := self._parents.get(state, state)) != state:
            steps.append(next(step for reached, step, _ in self.model.steps(before) if reached == state))
            state = before
        return steps[::-1]
