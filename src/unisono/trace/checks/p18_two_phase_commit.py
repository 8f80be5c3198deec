"""P18 two-phase commit: one decision a transaction; commit only if all voted yes, or in recovery all survivors hold it;
delivered iff committed.

Rows of a transaction name it in `transaction`: the CAST, RECEIVE, DELIVER and PLACE rows of its messages, the VOTE of each
member (`decision` yes or no) and its DECIDE (`decision` commit or abort; `attributes.recovery` = ``true`` if it was reached
while recovering from a failure). A change of membership is a transaction without messages. To cast it is to vote yes.

- **one decision**: a commit and an abort of one transaction contradict each other if one member has both, if members of one
  (V→V') have them, or if the commit was not reached in recovery: for then all had voted yes, no member of V may abort, whether
  it crashed or went elsewhere. Partitions that recover apart may decide differently, and so may a member that
  aborted and crashed before anyone heard of it.
- **votes**: for a commit that was not reached in recovery, every member of the decider's view voted yes and none voted no.
- **held**: for one reached in recovery, every survivor holds the transaction: voted yes, or has a CAST or RECEIVE of it.
  Survivors are the transitional set of the decider's next view; if it never got there, the decider alone.
- **delivered iff committed**: a member delivers a transaction only after its own DECIDE commit; and who committed one with
  messages delivers it (or places it), unless it crashed or was cut off in that view.

From a life that is not whole, nothing is concluded that rests on the absence of a row.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from unisono.trace.checks.attributes import is_true
from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.model import Life, Stay
from unisono.trace.schema import CAST, CUT, DECIDE, DELIVER, END, LEAVE, PLACE, RECEIVE, VOTE, Event


class Decision(NamedTuple):
    life: Life
    view: str | None
    commits: bool
    recovery: bool
    local: int


class TwoPhaseCommit(Checker):
    id = "P18"

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._stays: dict[tuple[Life, str | None], Stay] = {}
        self._votes: defaultdict[tuple[str, str], set[str]] = defaultdict(set)  # by transaction and member
        self._cast: set[str] = set()  # transactions with messages
        self._casters: set[tuple[str, str]] = set()  # transaction, member
        self._receivers: set[tuple[str, str]] = set()
        self._decisions: defaultdict[str, list[Decision]] = defaultdict(list)
        self._committed: set[tuple[Life, str]] = set()
        self._delivered: set[tuple[Life, str]] = set()
        self._undecided: dict[tuple[Life, str], Event] = {}  # delivered without a commit before: the row

    def view(self, stay: Stay, event: Event) -> None:
        self._stays.setdefault((stay.life, stay.id), stay)

    def row(self, life: Life, event: Event) -> None:
        transaction, kind = event.transaction, event.kind
        if transaction is None:
            return
        if kind == CAST:
            self._cast.add(transaction)
            self._casters.add((transaction, life.name))
        elif kind == RECEIVE:
            self._receivers.add((transaction, life.name))
        elif kind == VOTE:
            self._votes[transaction, life.name].add(event.decision or "")
        elif kind == DECIDE and event.decision in ("commit", "abort"):
            commits = event.decision == "commit"
            made = Decision(life, event.view, commits, is_true(event, "recovery"), event.local_index)
            self._decisions[transaction].append(made)
            if commits:
                self._committed.add((life, transaction))
        elif kind in (DELIVER, PLACE):
            self._delivered.add((life, transaction))
            if kind == DELIVER and (life, transaction) not in self._committed:
                self._undecided.setdefault((life, transaction), event)

    def conclude(self) -> None:
        ways = {stay: way for way, one in enumerate(self.history.transitions()) for stay in one.stays}
        for transaction, decisions in self._decisions.items():
            self._judge_unity(transaction, decisions, ways)
            for decision in decisions:
                if decision.commits:
                    self._judge_commit(transaction, decision)
        for (life, transaction), event in self._undecided.items():
            if life.hole is None:
                self._say(
                    "undecided", transaction, [life.name], event.view, event.local_index,
                    f"{life.name} delivered it (local {event.local_index}) without having decided to commit it",
                )  # fmt: skip
        self._judge_deliveries()

    def _judge_unity(self, transaction: str, decisions: list[Decision], ways: dict[Stay, int]) -> None:
        def way(one: Decision) -> int | None:
            stay = self._stays.get((one.life, one.view))
            return None if stay is None else ways.get(stay)

        apart = [
            one
            for commit in decisions
            for abort in decisions
            if commit.commits and not abort.commits
            if commit.life is abort.life
            or not commit.recovery
            or (way(commit) is not None and way(commit) == way(abort))
            for one in (commit, abort)
        ]
        guilty = {one.life.name for one in apart}
        if guilty:
            told = [
                f"{one.life.name} {'committed' if one.commits else 'aborted'} it (local {one.local})"
                for one in decisions
                if one.life.name in guilty
            ]
            view = min((one.view for one in apart if one.view is not None), default=None)
            self._say("two decisions", transaction, sorted(guilty), view, None, ", ".join(sorted(told)))

    def _judge_commit(self, transaction: str, one: Decision) -> None:
        stay = self._stays.get((one.life, one.view))
        if stay is None:
            return
        if one.recovery:
            what, asked, lacks, how = (
                "not held",
                stay.transitional or (one.life.name,),
                self._lacks,
                "without holding it",
            )
        else:
            what, asked, lacks, how = "votes", stay.view.members, self._did_not_agree, "without voting yes"
        lacking = sorted({name for name in asked if lacks(transaction, name)})
        if lacking:
            self._say(
                what, transaction, [one.life.name, *lacking], one.view, one.local,
                f"{one.life.name} committed it (local {one.local}) with {', '.join(lacking)} {how}",
            )  # fmt: skip

    def _did_not_agree(self, transaction: str, name: str) -> bool:
        votes = self._votes.get((transaction, name), set())
        if "no" in votes:
            return True
        return "yes" not in votes and (transaction, name) not in self._casters and self._is_whole(name)

    def _lacks(self, transaction: str, name: str) -> bool:
        key = (transaction, name)
        holds = "yes" in self._votes.get(key, ()) or key in self._casters or key in self._receivers
        return not holds and self._is_whole(name)

    def _is_whole(self, name: str) -> bool:
        life = self.history.by_name.get(name)
        return life is not None and life.unknown is None

    def _judge_deliveries(self) -> None:
        told: set[tuple[Life, str]] = set()
        for transaction, decisions in self._decisions.items():
            for one in decisions:
                life, key = one.life, (one.life, transaction)
                stay = self._stays.get((life, one.view))
                if not one.commits or transaction not in self._cast or key in self._delivered or key in told:
                    continue
                if stay is None or life.hole is not None:
                    continue
                ended = life.ending == LEAVE or (life.ending == END and life.ending_reason != CUT)
                if stay.next_view is not None or ended:
                    told.add(key)
                    self._say(
                        "not delivered", transaction, [life.name], one.view, one.local,
                        f"{life.name} committed it (local {one.local}) and never delivered it",
                    )  # fmt: skip

    def _say(
        self, what: str, transaction: str, members: list[str], view: str | None, local: int | None, how: str
    ) -> None:
        self.report(
            members, f"Transaction {transaction}: {how}.", what=what, view=view, transaction=transaction, local=local
        )
