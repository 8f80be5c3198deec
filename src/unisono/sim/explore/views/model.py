"""The model of views: every way in which a small group can change its view, with the real membership over real orders.

A **scope** (`Scope`) says which members there are and how often each thing may happen: casts, crashes, joins,
wrong suspicions, ticks, and what the network does. The members begin in one view, with nothing under way. Then everything
that can happen happens at every point, to every member. In every state the histories are judged (`judge`). Where nothing is
left to happen but faults and time, there must be a **way to rest**: suspicions become right, what is under way arrives, time
passes when nothing is. As every run without further faults ends in such a state, every one comes to rest. At rest the living
members are in one view of exactly them, no view change is under way, and the histories, as a trace, keep every promise of the
order, of virtual synchrony and of merges (P15, P16).

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
- *Merges*: with `greetings`, a member greets the others at any point, so that what a cut has parted merges within the search, and
  not only on the way to rest. Gathering needs no tick then.
- *Leaving*: a member asks to leave at any point. When it has left, it answers what it is asked, and ends at any point.
- *A switch* of the order, asked for by any member at any point. At rest the group has that order.
- *Second lives*: a process crashes and starts again in one step, with its record and without a state. A member that meets
  newcomers may then propose without a tick.
- *Safe messages*, with acknowledgements that arrive at any time or never; the *primary policy*; and a *state* that is copied in one
  step (`application`).

What is not covered: answers and cuts of several chunks, messages to some, the content of states, without `greetings` a merge in
more than one schedule for each state, and control messages that a cut delays. Streams between
the living are in order and reliable, and only the view change forwards what the dead have cast. These are left to the swarms,
and so is everything beyond the numbers of a scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from unisono.core.types import View
from unisono.core.wire import HeldState
from unisono.sim.explore.search import Counts, Search, SearchProgress, SearchReport, State, ViolationFound
from unisono.sim.explore.situations import BITS, MASK, Table, deliver
from unisono.sim.explore.views.judge import HistoryJudge
from unisono.sim.explore.views.member import Do, Start
from unisono.sim.explore.views.scope import Scope
from unisono.sim.explore.views.side import Action, Cost, ModelState, Step, StepOutcome, Tables, ViewsSide

FREE = Cost.FREE
NO_CUT = -1
REST_TICKS = 200
"""Maximum number of ticks on a way to rest: many times what a group needs."""


@dataclass(frozen=True)
class ViewsCounterexample:
    """A shortest way to something wrong."""

    steps: tuple[str, ...]
    sentence: str

    def __str__(self) -> str:
        lines = [f"{number:3}. {text}" for number, text in enumerate(self.steps, 1)]
        return "\n".join([*lines, f"   => {self.sentence}"])


def explore_views(
    scope: Scope,
    states_max: int | None = None,
    seconds_max: float | None = None,
    progress: Callable[[SearchProgress], object] | None = None,
) -> SearchReport[ViewsCounterexample]:
    """Visit every state of the scope, and judge each."""
    return Search(ViewsModel(scope), states_max, seconds_max, progress).run()


class ViewsModel:
    """The members of a scope. Above their situations, a state has the number of its budget: what is left, and who is cut off."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.tables = Tables(scope)
        self.sides = [ViewsSide(self.tables, number) for number in range(len(scope.ids))]
        self.histories = HistoryJudge(scope, self.tables)
        self._situations = [side.situations for side in self.sides]
        self._settled: set[State] = set()  # without their budgets: from here there is a way to rest
        self._top = BITS * len(self.sides)
        self._below = (1 << self._top) - 1
        self._budgets: Table[tuple[int, ...], tuple[int, ...]] = Table()
        self._number_budget((*(cost.limit(scope) for cost in Cost if cost is not FREE), NO_CUT))
        self._spent: dict[tuple[int, Cost], int] = {}
        self._seeds = tuple(member.address for member in scope.ids[: scope.members])

    def start(self) -> State:
        """The first members find each other and come to rest in one view, by the same procedure."""
        state = 0
        for side in self.sides[: self.scope.members]:
            state = self._after(state, side.move(self._situation(state, side), Do.JOIN, start=Start(self._seeds)))
        for _ in range(REST_TICKS * 10):
            outcome = self._way(state)
            if outcome is None:
                break
            state = self._after(state, outcome)
        assert self._rests_in(state) is not None, "the first members find each other"
        return state

    def steps(self, state: State) -> Iterator[tuple[State, StepOutcome, bool]]:
        budget = state >> self._top
        apart = self._budgets.values[budget][-1]
        for one, side in zip(self._situations, self.sides, strict=True):
            situation = state >> one.shift & MASK
            for action in one.actions[situation] or one.find(situation):
                left = budget
                if action.cost is not FREE or action.other >= 0:
                    left = self._pay(state, budget, action)
                    if left < 0:
                        continue
                outcome = action.outcome or side.perform(situation, action)
                yield self._after(state, outcome, apart) + (left - budget << self._top), outcome, left == budget
        if self.scope.cuts or self.scope.restarts:
            for reached, step in self._strikes(state):
                yield reached, StepOutcome(step), False

    def judge(self, state: State, step: StepOutcome | None) -> None:
        if step is None:
            return
        if step.acted and (sentence := self._judge_step(state, step)) is not None:
            raise ViolationFound(sentence)
        if self.scope.blackout:
            bare = state & self._below
            lost = bare + sum(side.clear(self._situation(state, side)) for side in self.sides)
            if lost != bare:
                self._come_to_rest(lost, StepOutcome(Step(0, Do.BLACKOUT)))

    def judge_end(self, state: State) -> None:
        apart = self._budgets.values[state >> self._top][-1]
        told = () if apart == NO_CUT else (StepOutcome(Step(apart, Do.HEAL)),)
        self._come_to_rest(state & self._below, *told)

    def tell(self, steps: Sequence[StepOutcome], sentence: str) -> ViewsCounterexample:
        return ViewsCounterexample(tuple(outcome.step.tell(self.tables) for outcome in steps), sentence)

    def counts(self) -> Counts:
        return Counts(sum(len(side.locals) for side in self.sides), len(self._settled), self.histories.ends)

    # States.

    def _situation(self, state: State, side: ViewsSide) -> int:
        return state >> side.situations.shift & MASK

    def _local(self, state: State, number: int) -> ModelState:
        side = self.sides[number]
        return side.local(self._situation(state, side))

    def _after(self, state: State, outcome: StepOutcome, apart: int = NO_CUT) -> State:
        """The state after one member moved and sent; what crosses a cut is lost, except packets, which wait."""
        sends, me = outcome.sends, outcome.step.member
        if apart >= 0:
            is_mail = self.tables.is_mail
            sends = tuple(one for one in sends if (one[0] == apart) == (me == apart) or not is_mail(one[1]))
        state += outcome.delta
        return deliver(self._situations, state, sends) if sends else state

    def _number_budget(self, amounts: tuple[int, ...]) -> int:
        return self._budgets.number(amounts, amounts)

    # What happens to members from outside.

    def _strikes(self, state: State) -> Iterator[tuple[State, Step]]:
        """A cut and its end, a second life."""
        *amounts, apart = self._budgets.values[state >> self._top]
        below = state & self._below
        if apart >= 0 and self.scope.heals:
            yield below | self._number_budget((*amounts, NO_CUT)) << self._top, Step(apart, Do.HEAL)
        for number in range(self.scope.members) if apart < 0 and amounts[Cost.CUTS] else ():
            may_be = not self.scope.cut_off or self.scope.names[number] in self.scope.cut_off
            if not may_be or self._local(state, number).crashed:
                continue
            left = self._number_budget((*_less(amounts, Cost.CUTS), number))
            after = below
            for one, side in enumerate(self.sides):
                is_lost = number.__eq__ if one != number else number.__ne__
                after += side.cut_from(self._situation(state, side), is_lost)
            yield after | left << self._top, Step(number, Do.CUT)
        for number in range(len(self.sides)) if amounts[Cost.RESTARTS] else ():
            former = self.scope.former_life(number)
            if former is None or former == apart or self._local(state, former).crashed:
                continue
            left = self._number_budget((*_less(amounts, Cost.RESTARTS), apart))
            after = self._after(below, self.sides[former].move(self._situation(state, self.sides[former]), Do.CRASH))
            start = Start(self._seeds, self._local(after, former).record)
            side = self.sides[number]
            after = self._after(after, side.move(self._situation(after, side), Do.JOIN, start=start), apart)
            yield after | left << self._top, Step(number, Do.RESTART)

    def _pay(self, state: State, budget: int, action: Action) -> int:
        """What is left of a budget; -1 if it does not allow this action."""
        cost, do, me = action.cost, action.step.do, action.step.member
        if action.other >= 0:
            apart = self._budgets.values[budget][-1]
            is_apart = apart >= 0 and (me == apart) != (action.other == apart)
            has_crashed = self._local(state, action.other).crashed
            if do is Do.SUSPECT:
                if has_crashed and self._has_successor(state, action.other):
                    return -1  # its second life speaks for itself
                if has_crashed or (is_apart and cost is Cost.SUSPICIONS):
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
        if cost is Cost.JOINS and not all(  # members that may join are alike: they come in the order of their names
            self._local(state, one).stored or self._local(state, one).crashed for one in range(me)
        ):
            return -1
        key = (budget, cost)
        left = self._spent.get(key)
        if left is None:
            amounts = self._budgets.values[budget]
            left = self._number_budget(_less(amounts, cost)) if amounts[cost] else -1
            self._spent[key] = left
        return left

    def _has_successor(self, state: State, number: int) -> bool:
        after = number + self.scope.members + self.scope.joins
        return after < len(self.sides) and self._situation(state, self.sides[after]) != self.sides[after].absent

    def _has_donor(self, state: State, number: int, apart: int) -> bool:
        """Whether a member of the same view, on the same side, has the state of it."""
        mine = self._local(state, number).facts
        assert mine is not None
        assert mine.view is not None
        for other in range(len(self.sides)):
            facts = self._local(state, other).facts
            is_near = apart < 0 or (other == apart) == (number == apart)
            if is_near and facts is not None and facts.holds == HeldState(mine.view.id) and facts.view == mine.view:
                return True
        return False

    # What is asked of a state.

    def _judge_step(self, state: State, outcome: StepOutcome) -> str | None:
        who = outcome.step.member
        locals_ = [self._local(state, number) for number in range(len(self.sides))]
        for charter in outcome.installed:
            sentence = self.histories.installed(who, charter, [local.facts for local in locals_])
            sentence = sentence or self.histories.begins(who, charter)
            if sentence is not None:
                return sentence
        return self.histories.compare(who, [local.history for local in locals_])

    # Ways to rest.

    def _come_to_rest(self, state: State, *told: StepOutcome) -> None:
        """Go the way to rest, unless a part of it was gone before, and judge where it ends."""
        way: list[State] = []
        steps = list(told)
        ticks = 0
        while state not in self._settled:
            way.append(state)
            try:
                outcome = self._way(state)
            except ViolationFound as broken:
                raise ViolationFound(str(broken), *steps, *broken.steps) from broken
            if outcome is None:
                locals_ = [self._local(state, number) for number in range(len(self.sides))]
                sentence = self.histories.end(
                    [local.history for local in locals_], [local.crashed for local in locals_]
                )
                if sentence is not None:
                    raise ViolationFound(sentence, *steps)
                break
            steps.append(outcome)
            ticks += outcome.step.do is Do.TICK
            state = self._after(state, outcome)
            if outcome.acted and (sentence := self._judge_step(state, outcome)) is not None:
                raise ViolationFound(sentence, *steps)
            if ticks > REST_TICKS or len(way) > REST_TICKS * 20:
                raise ViolationFound(f"P22: after {ticks} ticks without a fault there is still no common view.", *steps)
        self._settled.update(way)

    def _way(self, state: State) -> StepOutcome | None:
        """The next step towards rest; None: this is rest. It depends on nothing but the state."""
        locals_ = [side.local(self._situation(state, side)) for side in self.sides]
        here = [
            (side, self._situation(state, side), local.facts)
            for side, local in zip(self.sides, locals_, strict=True)
            if local.facts is not None
        ]
        staying = [one for one in here if not one[2].is_gone]
        dead = [number for number, local in enumerate(locals_) if local.crashed]
        ids = self.scope.ids
        for side, situation, facts in staying:
            for one in facts.suspects:
                if one not in dead:
                    return side.move(situation, Do.UNSUSPECT, one)
            for one in dead:
                if one not in facts.suspects and ids[one].address != ids[side.number].address:
                    return side.move(situation, Do.SUSPECT, one)
        for side, situation, _ in here:
            mail = side.mail(situation)
            if mail:
                return side.move(situation, Do.RECEIVE, mail[0][1][0])
            for letter in side.heads(situation):
                return side.move(situation, Do.TAKE, letter)
        for side, situation, facts in staying:
            if facts.quiet:
                return side.move(situation, Do.QUIET)
            if facts.is_waiting and facts.is_primary and self._has_donor(state, side.number, NO_CUT):
                return side.move(situation, Do.ADOPT)
        if self._rests_in(state) is not None:
            return None
        for side, situation, facts in here:
            if facts.is_gone:
                return side.move(situation, Do.STOP)
            if not facts.knows_all and facts.view is None:
                return side.move(situation, Do.HEAR)
        side, situation, _ = min(here, key=lambda one: one[2].deadline or 0)
        return side.move(situation, Do.TICK)

    def _rests_in(self, state: State) -> View | None:
        """The view in which all that live are at rest, if there is one."""
        locals_ = [self._local(state, number) for number in range(len(self.sides))]
        alive = [(number, one.facts) for number, one in enumerate(locals_) if one.facts and not one.facts.is_gone]
        view = alive[0][1].view
        if view is None or sorted(view.members) != sorted(self.scope.ids[number] for number, _ in alive):
            return None
        return view if all(facts.view == view and facts.at_rest for _, facts in alive) else None


def _less(amounts: Sequence[int], cost: Cost) -> tuple[int, ...]:
    """A budget with one thing of it spent."""
    return tuple(amount - (place == cost) for place, amount in enumerate(amounts))
