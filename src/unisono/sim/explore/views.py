"""The explorer of views: every way in which a small group can change its view, with the real membership over real orders.

A **scope** (`views_member.Scope`) says which members there are and how often each thing may happen: casts, crashes, joins,
wrong suspicions, ticks, and what the network does. The members begin in one view, with nothing under way. Then everything
that can happen happens at every point, to every member; the search is breadth first, over states that are compared by value.
In every state the histories are judged (`views_judge`). Where nothing is left to happen but faults and time, there must be a
**way to rest**: suspicions become right, what is under way arrives, time passes when nothing is. As every run without further
faults ends in such a state, every one comes to rest. At rest the living members are in one view of exactly them, no view
change is under way, and the histories, as a trace, keep every promise of the order, of virtual synchrony and of merges (P15,
P16).

What is covered, within the numbers of a scope:

- *Any order* of what different members send, and of control messages against packets of the view. Control messages of one
  sender to one receiver arrive as they were sent, except for `detours`, in which one overtakes all before it.
- *Delay* without bound: nothing makes a message arrive, and neither ticks nor suspicions wait for it. So safety is seen under every
  delay. *Loss*: `losses`, one by one, and from there on to rest; with `blackout`, all that is under way is lost in every state
  at once, and from there on to rest. *Repetition*: `repeats`, besides what members themselves send again. Of equal
  messages of one sender under way, one is kept.
- *Crashes* at every point, and with them the loss of any suffix of what the victim sent: that may arrive, or never.
- *Suspicions* at every point: of the dead by anyone and without limit, of the living as often as the scope says.
- *Time*: a tick brings one member to its next deadline. Clocks of two members are not related, so timeouts happen here
  that no two real clocks would show. Safety must not need clocks.

- *Cuts*: one member's links are down, from any point to any later one, or until all is to come to rest. Control messages
  between the two sides are lost, packets wait; each side may suspect the other, and no member suspects one that it hears.
- *Second lives*: a process crashes and starts again in one step, with its record and without a state. A member that meets
  newcomers may then propose without a tick.
- *Safe messages*, with acknowledgements that arrive at any time or never; the *primary policy*; and a *state* that is copied in one
  step (`views_app`).

What is not covered: leaving, switching the order, answers and cuts of several chunks, messages to some, the content of
states, a merge after a cut in more than one schedule for each state, and control messages that a cut delays. Streams between
the living are in order and reliable, and only the view change forwards what the dead have cast. These are left to the swarms,
and so is everything beyond the numbers of a scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple, TypeAlias

from unisono.core.types import View
from unisono.core.wire import HeldState
from unisono.sim.explore.views_judge import HistoryJudge
from unisono.sim.explore.views_member import Do, Facts, Scope, Start
from unisono.sim.explore.views_side import Action, Cost, Step, StepFailed, StepOutcome, Tables, ViewsSide

State: TypeAlias = tuple[int, ...]
"""By member, the number of its situation; at the end what is left of the budget."""

PROGRESS_EVERY = 2_048
FREE = Cost.FREE
BUDGET = (
    "casts",
    "crashes",
    "joins",
    "suspicions",
    "ticks",
    "detours",
    "losses",
    "repeats",
    "cuts",
    "restarts",
)
"""The numbers of a scope, in the order of `Cost`. At its end a budget names the member that is cut off."""
NO_CUT = -1
REST_TICKS = 200
"""Maximum number of ticks on a way to rest: many times what a group needs."""


class ViewsProgress(NamedTuple):
    """How far a search is."""

    states: int
    transitions: int
    depth: int
    frontier: int


@dataclass(frozen=True)
class ViewsCounterexample:
    """A shortest way to something wrong."""

    steps: tuple[str, ...]
    sentence: str

    def __str__(self) -> str:
        lines = [f"{number:3}. {text}" for number, text in enumerate(self.steps, 1)]
        return "\n".join([*lines, f"   => {self.sentence}"])


@dataclass(frozen=True)
class ViewsReport:
    """What a search did and found."""

    states: int
    transitions: int
    locals: int
    """Local states, all members together: so often a real membership was driven, at least."""
    rests: int
    """States on the ways to rest."""
    ends: int
    """Different traces that were judged."""
    depth: int
    violation: ViewsCounterexample | None
    complete: bool
    """Whether every state was visited. False after a violation, or at a limit."""


def explore_views(
    scope: Scope,
    states_max: int | None = None,
    seconds_max: float | None = None,
    progress: Callable[[ViewsProgress], None] | None = None,
) -> ViewsReport:
    """Visit every state of the scope, and judge each."""
    return ViewsSearch(scope, states_max, seconds_max, progress).run()


class _Wrong(Exception):
    """Something is wrong in a state, perhaps after further steps from it."""

    def __init__(self, state: State, steps: Sequence[str], sentence: str) -> None:
        super().__init__(sentence)
        self.state = state
        self.steps = tuple(steps)


class ViewsSearch:
    """One search. `explore_views` is the way to run it."""

    def __init__(
        self,
        scope: Scope,
        states_max: int | None = None,
        seconds_max: float | None = None,
        progress: Callable[[ViewsProgress], None] | None = None,
    ) -> None:
        self.scope = scope
        self.tables = Tables(scope)
        self.sides = [ViewsSide(self.tables, number) for number in range(len(scope.ids))]
        self.judge = HistoryJudge(scope, self.tables)
        self.parents: dict[State, tuple[State, Step | None]] = {}
        self.settled: set[State] = set()  # without their budgets: from here there is a way to rest
        self.transitions = 0
        self.depth = 0
        self._states_max = states_max
        self._ends_at = None if seconds_max is None else monotonic() + seconds_max
        self._progress = progress
        start: tuple[int, ...] = (*(getattr(scope, name) for name in BUDGET), NO_CUT)
        self._budgets: list[tuple[int, ...]] = [start]
        self._budget_numbers = {start: 0}
        self._spent: dict[tuple[int, Cost], int] = {}
        self._seeds = tuple(member.address for member in scope.ids[: scope.members])

    def run(self) -> ViewsReport:
        violation, complete = None, False
        try:
            complete = self._search()
        except _Wrong as wrong:
            violation = ViewsCounterexample((*self._way_to(wrong.state), *wrong.steps), str(wrong))
        return ViewsReport(
            len(self.parents),
            self.transitions,
            sum(len(side.locals) for side in self.sides),
            len(self.settled),
            self.judge.ends,
            self.depth,
            violation,
            complete,
        )

    def _search(self) -> bool:
        """Breadth first, a depth at a time; False if a limit was met."""
        start = (*self._found_group(), 0)
        self.parents[start] = (start, None)
        frontier = [start]
        while frontier:
            found: list[State] = []
            for state in frontier:
                self._expand(state, found)
                if self._is_over():
                    return False
            self.depth += bool(found)
            frontier = found
        return True

    def _is_over(self) -> bool:
        if self._states_max is not None and len(self.parents) >= self._states_max:
            return True
        return self._ends_at is not None and monotonic() > self._ends_at

    def _found_group(self) -> State:
        """The first members find each other and come to rest in one view, by the same procedure."""
        sides, first = self.sides, self.scope.members
        state = tuple(side.absent for side in sides)
        for number in range(first):
            situation, sends = sides[number].start(Start(self._seeds))
            state = self._put(state, number, situation, sends)
        for _ in range(REST_TICKS * 10):
            outcome = self._way(state)
            if outcome is None:
                break
            state = self._put(state, outcome.step.member, outcome.situation, outcome.sends)
        assert self._rests_in(state) is not None, "the first members find each other"
        return state

    # One step.

    def _expand(self, state: State, found: list[State]) -> None:
        """One step further from a state. The inner loop of the search, so it is written for speed."""
        parents, sides, budget, blackout = self.parents, self.sides, state[-1], self.scope.blackout
        apart = self._budgets[budget][-1]
        is_end = True  # nothing more can happen, unless a fault does or time passes
        for number, side in enumerate(sides):
            situation = state[number]
            for action in side.actions[situation] or side.find_actions(situation):
                left = budget
                if action.cost is not FREE or action.other >= 0:
                    left = self._pay(state, budget, action)
                    if left < 0:
                        continue
                outcome = action.outcome
                if outcome is None:
                    try:
                        outcome = side.perform(situation, action)
                    except StepFailed as broken:
                        raise _Wrong(state, [broken.step.tell(self.tables)], str(broken)) from broken
                self.transitions += 1
                is_end = is_end and left != budget
                after = list(state)
                after[number] = outcome.situation
                for to, letter in outcome.sends:
                    if apart >= 0 and (to == apart) != (number == apart) and self.tables.is_mail(letter):
                        continue
                    other = sides[to]
                    there = other.arrivals.get((after[to], letter))
                    after[to] = other.arrive(after[to], letter) if there is None else there
                after[-1] = left
                reached = tuple(after)
                if reached in parents:
                    continue
                parents[reached] = (state, outcome.step)
                found.append(reached)
                if outcome.acted:
                    self._check(reached, outcome)
                if blackout:
                    self._lose_all(reached)
                if len(parents) % PROGRESS_EVERY == 0 and self._progress is not None:
                    self._progress(ViewsProgress(len(parents), self.transitions, self.depth, len(found)))
        if self.scope.cuts or self.scope.restarts:
            for reached, step in self._strike(state):
                self.transitions += 1
                if reached not in parents:
                    parents[reached] = (state, step)
                    found.append(reached)
        if is_end:
            self._come_to_rest(state, state[:-1], ("the link comes back",) if apart >= 0 else ())

    def _strike(self, state: State) -> Iterator[tuple[State, Step]]:
        """What happens to a member from outside: a cut and its end, a second life."""
        *amounts, apart = self._budgets[state[-1]]
        if apart >= 0 and self.scope.heals:
            yield (*state[:-1], self._number_budget((*amounts, NO_CUT))), Step(apart, Do.HEAL)
        for number in range(self.scope.members) if apart < 0 and amounts[Cost.CUT] else ():
            if self.scope.names[number] not in self.scope.cut_off or self.sides[number].local(state[number]).crashed:
                continue
            left = self._number_budget((*_less(amounts, Cost.CUT), number))
            after = [
                side.cut_from(state[one], number.__eq__ if one != number else number.__ne__)
                for one, side in enumerate(self.sides)
            ]
            yield (*after, left), Step(number, Do.CUT)
        for number, side in enumerate(self.sides) if amounts[Cost.RESTART] else ():
            former = self.scope.former_life(number)
            if former is None or former == apart or self.sides[former].local(state[former]).crashed:
                continue
            left = self._number_budget((*_less(amounts, Cost.RESTART), apart))
            crash = self.sides[former].crash(state[former])
            dead = self._put(state[:-1], former, crash.situation, ())
            situation, sends = side.start(Start(self._seeds, self.sides[former].local(crash.situation).record))
            sends = tuple(one for one in sends if one[0] != apart)
            yield (*self._put(dead, number, situation, sends), left), Step(number, Do.RESTART)

    def _put(self, state: State, number: int, situation: int, sends: tuple[tuple[int, int], ...]) -> State:
        """The state after one member moved and sent."""
        result = list(state)
        result[number] = situation
        for to, letter in sends:
            result[to] = self.sides[to].arrive(result[to], letter)
        return tuple(result)

    def _pay(self, state: State, budget: int, action: Action) -> int:
        """What is left of a budget; -1 if it does not allow this action."""
        cost, do, me = action.cost, action.step.do, action.step.member
        if action.other >= 0:
            apart = self._budgets[budget][-1]
            is_apart = apart >= 0 and (me == apart) != (action.other == apart)
            has_crashed = self.sides[action.other].local(state[action.other]).crashed
            if do is Do.SUSPECT:
                if has_crashed and self._has_successor(state, action.other):
                    return -1  # its second life speaks for itself
                if has_crashed or (is_apart and cost is Cost.SUSPICION):
                    cost = Cost.FREE
                elif cost is Cost.FREE:
                    return -1
            elif do is Do.ADOPT:
                if not self._has_donor(state, me, apart):
                    return -1
            elif is_apart:
                return -1
        if cost is Cost.FREE:
            return budget
        if cost is Cost.JOIN and not all(  # members that may join are alike: they come in the order of their names
            self.sides[one].local(state[one]).stored or self.sides[one].local(state[one]).crashed
            for one in range(action.step.member)
        ):
            return -1
        key = (budget, cost)
        left = self._spent.get(key)
        if left is None:
            amounts = list(self._budgets[budget])
            amounts[cost] -= 1
            left = -1 if amounts[cost] < 0 else self._number_budget(tuple(amounts))
            self._spent[key] = left
        return left

    def _has_successor(self, state: State, number: int) -> bool:
        after = number + self.scope.members + self.scope.joins
        return after < len(self.sides) and state[after] != self.sides[after].absent

    def _has_donor(self, state: State, number: int, apart: int) -> bool:
        """Whether a member of the same view, on the same side, has the state of it."""
        mine = self.sides[number].local(state[number]).facts
        assert mine is not None
        assert mine.view is not None
        for other, side in enumerate(self.sides):
            facts = side.local(state[other]).facts
            is_near = apart < 0 or (other == apart) == (number == apart)
            if is_near and facts is not None and facts.holds == HeldState(mine.view.id) and facts.view == mine.view:
                return True
        return False

    def _number_budget(self, amounts: tuple[int, ...]) -> int:
        number = self._budget_numbers.setdefault(amounts, len(self._budgets))
        if number == len(self._budgets):
            self._budgets.append(amounts)
        return number

    # What is asked of a state.

    def _locals(self, state: State) -> list[Facts | None]:
        return [side.local(state[number]).facts for number, side in enumerate(self.sides)]

    def _histories(self, state: State) -> list[int]:
        return [side.local(state[number]).history for number, side in enumerate(self.sides)]

    def _check(self, state: State, outcome: StepOutcome) -> None:
        sentence = self._judge_step(state, outcome)
        if sentence is not None:
            raise _Wrong(state, (), sentence)

    def _judge_step(self, state: State, outcome: StepOutcome) -> str | None:
        who = outcome.step.member
        for charter in outcome.installed:
            sentence = self.judge.installed(who, charter, self._locals(state)) or self.judge.begins(who, charter)
            if sentence is not None:
                return sentence
        return self.judge.compare(who, self._histories(state))

    # Ways to rest.

    def _lose_all(self, state: State) -> None:
        """Lose what is under way, and come to rest."""
        lost = tuple([side.clear(state[number]) for number, side in enumerate(self.sides)])
        if lost not in self.settled and lost != state[:-1]:
            self._come_to_rest(state, lost, ("every control message that is under way is lost",))

    def _come_to_rest(self, origin: State, state: State, told: tuple[str, ...]) -> None:
        way: list[State] = []
        steps: list[Step] = []
        ticks = 0

        def wrong(sentence: str) -> _Wrong:
            return _Wrong(origin, [*told, *(step.tell(self.tables) for step in steps)], sentence)

        while state not in self.settled:
            way.append(state)
            try:
                outcome = self._way(state)
            except StepFailed as broken:
                steps.append(broken.step)
                raise wrong(str(broken)) from broken
            if outcome is None:
                sentence = self._judge_rest(state)
                if sentence is not None:
                    raise wrong(sentence)
                break
            steps.append(outcome.step)
            ticks += outcome.step.do is Do.TICK
            state = self._put(state, outcome.step.member, outcome.situation, outcome.sends)
            if outcome.acted and (sentence := self._judge_step(state, outcome)) is not None:
                raise wrong(sentence)
            if ticks > REST_TICKS or len(way) > REST_TICKS * 20:
                raise wrong(f"P22: after {ticks} ticks without a fault there is still no common view.")
        self.settled.update(way)

    def _way(self, state: State) -> StepOutcome | None:
        """The next step towards rest; None: this is rest. It depends on nothing but the state."""
        living = [(number, side, side.local(state[number])) for number, side in enumerate(self.sides)]
        here = [(number, side, local.facts) for number, side, local in living if local.facts is not None]
        dead = [number for number, _, local in living if local.crashed]
        ids = self.scope.ids
        for number, side, facts in here:
            for one in facts.suspects:
                if one not in dead:
                    return side.move(state[number], Do.UNSUSPECT, one)
            for one in dead:
                if one not in facts.suspects and ids[one].address != ids[number].address:
                    return side.move(state[number], Do.SUSPECT, one)
        for number, side, _ in here:
            mail = side.situations.values[state[number]].mail
            if mail:
                return side.move(state[number], Do.RECEIVE, mail[0][1][0])
            for letter in side.heads(state[number]):
                return side.move(state[number], Do.TAKE, letter)
        for number, side, facts in here:
            if facts.quiet:
                return side.move(state[number], Do.QUIET)
            if facts.is_waiting and facts.is_primary and self._has_donor(state, number, NO_CUT):
                return side.move(state[number], Do.ADOPT)
        if self._rests_in(state) is not None:
            return None
        for number, side, facts in here:
            if not facts.knows_all and facts.view is None:
                return side.move(state[number], Do.HEAR)
        _, number, side = min(
            ((facts.deadline or 0, number, side) for number, side, facts in here), key=lambda one: one[:2]
        )
        return side.move(state[number], Do.TICK)

    def _rests_in(self, state: State) -> View | None:
        """The view in which all that live are at rest, if there is one."""
        locals_ = [side.local(state[number]) for number, side in enumerate(self.sides)]
        alive = [(number, local.facts) for number, local in enumerate(locals_) if local.facts is not None]
        view = alive[0][1].view
        if view is None or sorted(view.members) != sorted(self.scope.ids[number] for number, _ in alive):
            return None
        return view if all(facts.view == view and facts.at_rest for _, facts in alive) else None

    def _judge_rest(self, state: State) -> str | None:
        crashed = [side.local(state[number]).crashed for number, side in enumerate(self.sides)]
        return self.judge.end(self._histories(state), crashed)

    # The way to a state.

    def _way_to(self, state: State) -> list[str]:
        steps: list[str] = []
        while True:
            before, step = self.parents[state]
            if step is None:
                return steps[::-1]
            steps.append(step.tell(self.tables))
            state = before


def _less(amounts: Sequence[int], cost: Cost) -> list[int]:
    """A budget with one thing of it spent."""
    return [amount - (place == cost) for place, amount in enumerate(amounts)]
