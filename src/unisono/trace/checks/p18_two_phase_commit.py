"""P18 two-phase commit: one decision a transaction; commit only if all voted yes, or in recovery all survivors hold it;
delivered iff committed.

Rows of a transaction name it in `transaction`: the CAST, RECEIVE, DELIVER and PLACE rows of its messages, the VOTE of each
member (`decision` yes or no) and its DECIDE (`decision` commit or abort; `attributes.recovery` = ``true`` if it was reached
while recovering from a failure, which begins with a BLOCK in that view). A message is of the transaction that its CAST names,
whatever its DELIVER and PLACE rows say. A change of membership is a transaction without messages. To cast it is to vote yes.
A CAST that names none, although the order commits messages of its service, keeps its life from passing (`History.doubts`).

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
from unisono.trace.checks.model import Cast, DeliveredPart, Life, Stay
from unisono.trace.checks.property import Each, Example, Kind, PropertyRecord, RowOf
from unisono.trace.schema import BLOCK, CAST, CUT, DECIDE, DELIVER, END, LEAVE, PLACE, RECEIVE, VOTE, Event

TOLD_MAX = 20
"""Maximum number of decisions that a sentence tells of."""


class Decision(NamedTuple):
    life: Life
    view: str | None
    commits: bool
    recovery: bool
    local: int


class _Decided:
    """All decisions of one kind about one transaction."""

    def __init__(self) -> None:
        self._any = self._by_all = False
        self._lives: set[Life] = set()
        self._ways: set[int | None] = set()

    def add(self, one: Decision, way: int | None) -> None:
        self._any = True
        self._by_all |= one.commits and not one.recovery  # all had voted for it
        self._lives.add(one.life)
        self._ways.add(way)

    def contradict(self, one: Decision, way: int | None) -> bool:
        """Whether one of them contradicts a decision of the other kind."""
        binds = self._by_all or (self._any and one.commits and not one.recovery)
        return binds or one.life in self._lives or (way is not None and way in self._ways)


def _may_recover(life: Life, view: str | None) -> bool:
    """Whether a life may be recovering from a failure: it has blocked in this view, or rows that might say so are missing."""
    stay = life.stay
    return stay is None or stay.id != view or stay.holed or stay.block is not None


class TwoPhaseCommit(Checker):
    about = PropertyRecord(
        id="P18",
        name="two-phase commit",
        says="A transaction has one outcome, and commits only if all voted for it.",
        exact=__doc__,
        rows=(CAST, RECEIVE, VOTE, DECIDE, DELIVER, PLACE, BLOCK),
        roles=("who",),
        witness={
            "what": Kind.TEXT, "transaction": Kind.TEXT, "local": RowOf("who"), "lacking": Kind.MEMBERS,
            "decisions": Each(
                {"who": Kind.MEMBERS, "decided": Kind.TEXT, "local": RowOf("who")}, "{who} {decided} it (local {local})"
            ),
            "more": Kind.NUMBER,
        },
        sentence={
            "two decisions": "Transaction {transaction}: {decisions}[, and {more} more].",
            "votes": "Transaction {transaction}: {who} committed it (local {local}) with {lacking} without voting yes.",
            "not held": "Transaction {transaction}: {who} committed it (local {local}) with {lacking} without holding it.",
            "undecided": "Transaction {transaction}: {who} delivered it (local {local}) without having decided to commit it.",
            "not delivered": "Transaction {transaction}: {who} committed it (local {local}) and never delivered it.",
        },
        example=Example(("a", "c"), "1@a", {"what": "votes", "transaction": "t1", "local": 3, "lacking": ["c"]}),
    )  # fmt: skip

    def __init__(self, history: History | None = None) -> None:
        super().__init__(history)
        self._stays: dict[tuple[Life, str | None], Stay] = {}
        self._votes: defaultdict[tuple[str, str], set[str]] = defaultdict(set)  # by transaction and member
        self._cast: set[str] = set()  # transactions with messages
        self._of: dict[Cast, str] = {}
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
        if kind == RECEIVE:
            self._receivers.add((transaction, life.name))
        elif kind == VOTE:
            self._votes[transaction, life.name].add(event.decision or "")
        elif kind == DECIDE and event.decision in ("commit", "abort"):
            commits = event.decision == "commit"
            is_recovering = is_true(event, "recovery") and _may_recover(life, event.view)
            made = Decision(life, event.view, commits, is_recovering, event.local_index)
            self._decisions[transaction].append(made)
            if commits:
                self._committed.add((life, transaction))

    def cast(self, cast: Cast, event: Event) -> None:
        if event.transaction is not None:
            self._of[cast] = event.transaction
            self._cast.add(event.transaction)
            self._casters.add((event.transaction, cast.origin.name))

    def deliver(self, delivery: DeliveredPart) -> None:
        life, event = delivery.stay.life, delivery.event
        of_cast = None if delivery.cast is None else self._of.get(delivery.cast)
        transaction = of_cast or event.transaction
        if transaction is None:
            return
        self._delivered.add((life, transaction))
        for one in {transaction, event.transaction or transaction}:
            if event.kind == DELIVER and (life, one) not in self._committed:
                self._undecided.setdefault((life, one), event)

    place = deliver

    def conclude(self) -> None:
        ways = {stay: way for way, one in enumerate(self.history.transitions()) for stay in one.stays}
        for transaction, decisions in self._decisions.items():
            self._judge_unity(transaction, decisions, ways)
            for decision in decisions:
                if decision.commits:
                    self._judge_commit(transaction, decision)
        for (life, transaction), event in self._undecided.items():
            if life.hole is None:
                self.report([life.name], event.view, what="undecided", transaction=transaction, local=event.local_index)
        self._judge_deliveries()

    def _judge_unity(self, transaction: str, decisions: list[Decision], ways: dict[Stay, int]) -> None:
        """Commits and aborts that contradict each other: anywhere, at one life, or among members of one (V→V')."""
        commits, aborts = _Decided(), _Decided()
        for one in decisions:
            (commits if one.commits else aborts).add(one, self._way(one, ways))
        apart = [one for one in decisions if (aborts if one.commits else commits).contradict(one, self._way(one, ways))]
        if apart:
            guilty = {one.life.name for one in apart}
            told = sorted(
                (one.life.name, "committed" if one.commits else "aborted", one.local)
                for one in decisions
                if one.life.name in guilty
            )
            view = min((one.view for one in apart if one.view is not None), default=None)
            self.report(
                sorted(guilty),
                view,
                what="two decisions",
                transaction=transaction,
                decisions=told[:TOLD_MAX],
                more=len(told) - TOLD_MAX if len(told) > TOLD_MAX else None,
            )

    def _way(self, one: Decision, ways: dict[Stay, int]) -> int | None:
        stay = self._stays.get((one.life, one.view))
        return None if stay is None else ways.get(stay)

    def _judge_commit(self, transaction: str, one: Decision) -> None:
        stay = self._stays.get((one.life, one.view))
        if stay is None:
            return
        if one.recovery:
            what, asked, lacks = "not held", stay.transitional or (one.life.name,), self._lacks
        else:
            what, asked, lacks = "votes", stay.view.members, self._did_not_agree
        lacking = sorted({name for name in asked if lacks(transaction, name)})
        if lacking:
            self.report(
                [one.life.name, *lacking],
                one.view,
                what=what,
                transaction=transaction,
                local=one.local,
                lacking=lacking,
            )

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
                    self.report([life.name], one.view, what="not delivered", transaction=transaction, local=one.local)
