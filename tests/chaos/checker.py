"""Judges the logs of a chaos run: what the applications wrote down, and what the runner did to them.

It imports nothing of `unisono`, on purpose: what an order promises is written here a second time, and all that is known of views,
messages and receipts is what an application was shown. The form of the logs is described in `tests.chaos.member`; the runner's own
log (`nemesis.jsonl`) says which process was started, killed and healed when, and `plan.json` what the group was.

Terms: a *life* is one process, from its start to its end. A *period* is what a life was shown from one view to the next; its
deliveries after the `Transition` are the remainder. What a restored state holds counts as *absorbed*: it is never shown as a
delivery. Two lives are *companions* in a view if both show the same next view and name each other in `together`, or if both
were in it when the healed group had come to rest at the end of the run.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple

Line = dict[str, Any]

FIFO, CAUSAL, TOTAL, UNIFORM = "fifo", "causal", "total", "uniform"
PROMISES: dict[str, frozenset[str]] = {
    "fifo": frozenset({FIFO}),
    "causal": frozenset({FIFO, CAUSAL}),
    "sequencer": frozenset({TOTAL}),
    "fifo-total": frozenset({TOTAL, FIFO}),
    "causal-total": frozenset({TOTAL, FIFO, CAUSAL}),
    "abcast": frozenset({TOTAL, FIFO}),
    "tomp": frozenset({TOTAL, FIFO}),
    "all-ack": frozenset({TOTAL, FIFO, CAUSAL}),
    "toto": frozenset({TOTAL, FIFO, CAUSAL}),
    "rmp": frozenset({TOTAL, FIFO, UNIFORM}),
}
STAGES = ("delivered", "applied", "stable")
PER_CHECK_MAX = 20
"""Violations of one check that are told in words; the rest are counted."""


class Violation(NamedTuple):
    """One broken promise: which, and a sentence with the place in the logs."""

    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


class Delivered(NamedTuple):
    """A delivery as a log has it; `is_late`: after the Transition."""

    m: str
    sender: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    is_late: bool
    line: int


@dataclass
class Period:
    """What one life was shown between two views."""

    life: Life
    view: Line
    line: int
    previous: Period | None
    absorbed: frozenset[str]
    """The messages of the state that was restored or merged just before this view; empty if none was."""
    was_restored: bool
    state: frozenset[str]
    """The application's state when it was shown this view."""
    deliveries: list[Delivered] = field(default_factory=list)
    transitions: list[tuple[int, Line]] = field(default_factory=list)
    next: Period | None = None
    last_state: list[str] = field(default_factory=list)
    """The application's state when the last delivery of this view was applied."""

    @property
    def id(self) -> str:
        return str(self.view["id"])

    @property
    def promises(self) -> frozenset[str]:
        return PROMISES[self.view["order"]]

    def has(self, m: str) -> bool:
        return m in self.absorbed or m in self.messages

    @property
    def messages(self) -> set[str]:
        if len(self._messages) != len(self.deliveries):
            self._messages = {one.m for one in self.deliveries}
        return self._messages

    _messages: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{self.life} in view {self.id} (line {self.line})"


@dataclass
class Cast:
    """A message, as its caster's log has it."""

    m: str
    life: Life
    line: int
    is_safe: bool
    crc: int
    is_probe: bool
    t: float
    period: Period | None
    frontier: dict[str, Delivered]
    """Of the period in which it was cast: the last delivery from each sender so far."""
    index: int | None = None
    refusal: str | None = None
    receipts: dict[str, tuple[int, Line]] = field(default_factory=dict)


class Life:
    """One process: its log, divided into periods."""

    def __init__(self, file: str, lines: Sequence[Line]) -> None:
        self.file = file
        self.lines = lines
        self.id = ""
        self.periods: list[Period] = []
        self.casts: list[Cast] = []
        self.states: list[tuple[int, Line]] = []  # snapshot, restore, merge
        self.all_delivered: dict[str, int] = {}  # message: line
        self.ever_held: dict[str, int] = {}  # message: the line where it was first delivered, or came with a state
        self.kinds: set[str] = {line["is"] for line in lines}
        self.faults: list[Violation] = []
        self.last: Period | None = None
        """The period in which it said its last state. The views after it are those in which all leave."""
        self._read()

    def __str__(self) -> str:
        return self.file.removesuffix(".jsonl")

    @property
    def is_whole(self) -> bool:
        """It was there to the end of the run, and said so."""
        return "end" in self.kinds

    @property
    def view(self) -> Period | None:
        return self.periods[-1] if self.periods else None

    def _fault(self, check: str, line: int, text: str) -> None:
        self.faults.append(Violation(check, f"{self}, line {line}: {text}"))

    def _read(self) -> None:
        state: list[str] = []
        held: set[str] = set()  # what is in the state
        fresh: frozenset[str] | None = None  # what was restored or merged since the last view
        replacement: tuple[int, set[str]] | None = None  # of the state: the line, and what is gone
        is_told = False  # that it was replaced
        casts: dict[str, Cast] = {}
        frontier: dict[str, Delivered] = {}
        for number, line in enumerate(self.lines, 1):
            period = self.view
            match line["is"]:
                case "joined":
                    self.id = line["id"]
                case "cast":
                    cast = Cast(
                        line["m"],
                        self,
                        number,
                        line["safe"],
                        line["crc"],
                        line["probe"],
                        line["t"],
                        period,
                        dict(frontier),
                    )
                    casts[cast.m] = cast
                    self.casts.append(cast)
                case "accepted":
                    casts[line["m"]].index = line["index"]
                case "refused_cast":
                    casts[line["m"]].refusal = line["text"]
                case "receipt":
                    self._receipt(casts[line["m"]], number, line)
                case "snapshot" | "restore" | "merge" as kind:
                    self.states.append((number, line))
                    if kind != "snapshot":
                        if period is not None and not period.transitions and period.deliveries:
                            self._fault("lineage", number, f"its state was replaced in the middle of view {period.id}.")
                        state, fresh = list(line["state"]), frozenset(line["state"])
                        gone, held = held - fresh, set(state)
                        if period is not None and gone:
                            replacement = (number, gone)
                        for m in state:
                            self.ever_held.setdefault(m, number)
                case "replaced":
                    is_told = True
                case "view":
                    if replacement is not None and not is_told:
                        at, gone = replacement
                        text = (
                            f"{len(gone)} messages of its state are gone ({sorted(gone)[0]} …), and no event said so."
                        )
                        self._fault("lineage", at, text)
                    replacement, is_told = None, False
                    following = Period(
                        self, line, number, period, fresh or frozenset(), fresh is not None, frozenset(held)
                    )
                    if period is not None:
                        period.next = following
                    self.periods.append(following)
                    fresh, frontier = None, {}
                    following.last_state = list(state)
                case "transition":
                    if period is None:
                        self._fault("transition", number, "a Transition before the first view.")
                    else:
                        period.transitions.append((number, line))
                case "delivery":
                    m = line["m"]
                    if period is None:
                        self._fault("well-formed", number, f"{m} was delivered before the first view.")
                        continue
                    one = Delivered(m, line["sender"], line["index"], bool(period.transitions), number)
                    if m in self.all_delivered:
                        self._fault(
                            "duplication", number, f"{m} was delivered before, in line {self.all_delivered[m]}."
                        )
                    elif m in held:
                        self._fault(
                            "duplication", number, f"{m} was delivered, but the state has it since {self.ever_held[m]}."
                        )
                    period.deliveries.append(one)
                    frontier[one.sender] = one
                    self.all_delivered.setdefault(m, number)
                    self.ever_held.setdefault(m, number)
                    state.append(m)
                    held.add(m)
                    period.last_state.append(m)
                case "end":
                    self.last = period
                case "error":
                    self._fault("failure", number, f"{line['error']}: {line['text']}")

    def _receipt(self, cast: Cast, number: int, line: Line) -> None:
        """P28, as far as one log shows it. Later checks look at the stages together."""
        stage, outcome = line["stage"], line["outcome"]
        if stage in cast.receipts:
            self._fault("receipts", number, f"{cast.m} is {stage} a second time.")
        if outcome == "yes":
            for earlier in STAGES[: STAGES.index(stage) + 1]:
                at, told = cast.receipts.get(earlier, (0, {}))
                if told.get("outcome") == "uncertain":
                    text = f"{cast.m} is {stage}, after line {at} had said that {earlier} is uncertain."
                    self._fault("receipts", number, text)
            if stage == "applied":
                if "delivered" not in cast.receipts:
                    self._fault("receipts", number, f"{cast.m} is applied, and its receipt has not said delivered.")
                if cast.m not in self.ever_held:
                    self._fault("receipts", number, f"{cast.m} is applied, but this program has not taken it.")
        if outcome == "uncertain":
            for later in STAGES[STAGES.index(stage) :]:
                at, told = cast.receipts.get(later, (0, {}))
                if told.get("outcome") == "yes":
                    self._fault(
                        "receipts", number, f"{stage} of {cast.m} is uncertain, after line {at} had confirmed {later}."
                    )
        cast.receipts[stage] = (number, line)


@dataclass
class Logs:
    """All that a run left behind."""

    plan: Line
    nemesis: list[Line]
    lives: dict[str, list[Line]]
    """By the name of the file."""


def load(folder: Path) -> Logs:
    lives = {path.name: read_lines(path) for path in sorted(folder.glob("[a-h]-*.jsonl"))}
    plan = json.loads((folder / "plan.json").read_text())
    return Logs(plan, read_lines(folder / "nemesis.jsonl"), lives)


def read_lines(path: Path) -> list[Line]:
    """The lines of a log. A killed process may have left half a line behind."""
    texts = path.read_text().split("\n")
    lines = [json.loads(text) for text in texts[:-1]]
    return lines


@dataclass
class Report:
    """The verdict on a run, and what it is based on."""

    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """lives, messages, deliveries, views, pairs (of companions in a view that were compared), receipts, …"""

    @property
    def is_clean(self) -> bool:
        return not self.violations

    @property
    def broken(self) -> Counter[str]:
        return Counter(one.check for one in self.violations)

    def __str__(self) -> str:
        told, lines = Counter[str](), []
        for one in self.violations:
            told[one.check] += 1
            if told[one.check] <= PER_CHECK_MAX:
                lines.append(str(one))
        lines += [f"{check}: {n - PER_CHECK_MAX} more" for check, n in told.items() if n > PER_CHECK_MAX]
        return "\n".join(lines) or "no promise was broken"


def check(logs: Logs) -> Report:
    """Judge a run."""
    run = Run(logs)
    report = Report()
    for life in run.lives:
        report.violations += life.faults
    for judge in CHECKS:
        report.violations += judge(run)
    report.counts.update(
        lives=len(run.lives),
        messages=sum(cast.index is not None for cast in run.casts.values()),
        deliveries=sum(len(life.all_delivered) for life in run.lives),
        views=len(run.views),
        shown_views=sum(len(life.periods) for life in run.lives),
        remainder=sum(one.is_late for life in run.lives for period in life.periods for one in period.deliveries),
        pairs=len(run.companions),
        receipts=sum(len(cast.receipts) for cast in run.casts.values()),
        uncertain=sum(
            line["outcome"] == "uncertain" for cast in run.casts.values() for _, line in cast.receipts.values()
        ),
        states=sum(len(life.states) for life in run.lives),
    )
    return report


class Run:
    """The logs of a run, put together."""

    def __init__(self, logs: Logs) -> None:
        self.plan = logs.plan
        self.nemesis = logs.nemesis
        self.lives = [Life(file, lines) for file, lines in logs.lives.items()]
        self.by_id = {life.id: life for life in self.lives if life.id}
        self.casts: dict[str, Cast] = {cast.m: cast for life in self.lives for cast in life.casts}
        self.views: dict[str, list[Period]] = defaultdict(list)
        for life in self.lives:
            for period in life.periods:
                self.views[period.id].append(period)
        self.view_of: dict[str, str] = {}  # message: where it was delivered first
        for view, periods in self.views.items():
            for period in periods:
                for one in period.deliveries:
                    self.view_of.setdefault(one.m, view)
        self.companions = list(self._companions())

    @property
    def has_hooks(self) -> bool:
        return bool(self.plan["hooks"] != "none")

    @property
    def is_primary_policy(self) -> bool:
        return bool(self.plan["policy"] == "primary")

    @property
    def is_total(self) -> bool:
        """Whether every view of the run was totally ordered."""
        return all(TOTAL in periods[0].promises for periods in self.views.values())

    @property
    def is_settled(self) -> bool:
        return any(line["is"] == "settled" for line in self.nemesis)

    @property
    def probes(self) -> list[str] | None:
        """The messages of the last round after the heal; None: all that were cast for that."""
        return next((line.get("probes") for line in self.nemesis if line["is"] == "settled"), None)

    @property
    def living(self) -> list[Life]:
        return [life for life in self.lives if life.is_whole]

    def was_killed(self, life: Life) -> bool:
        return any(line["is"] == "killed" and line["file"] == life.file for line in self.nemesis)

    def _companions(self) -> Iterator[tuple[Period, Period]]:
        for periods in self.views.values():
            for p, q in combinations(periods, 2):
                if are_companions(p, q) or (self.is_settled and p.life.last is p and q.life.last is q):
                    yield p, q

    def later(self, period: Period) -> Iterator[Period]:
        while period.next is not None:
            period = period.next
            yield period


def are_companions(p: Period, q: Period) -> bool:
    if p.next is None or q.next is None or p.next.id != q.next.id:
        return False
    return q.life.id in p.next.view["together"] and p.life.id in q.next.view["together"]


def check_messages(run: Run) -> Iterator[Violation]:
    """No creation, in-view, sending view (P1, P3, P13)."""
    for view, periods in run.views.items():
        for period in periods:
            members = set(period.view["members"])
            for one in period.deliveries:
                cast = run.casts.get(one.m)
                where = f"{period.life}, line {one.line}"
                line = period.life.lines[one.line - 1]
                if cast is None:
                    yield Violation("creation", f"{where}: nobody cast {one.m}.")
                elif line["crc"] != cast.crc:
                    yield Violation("creation", f"{where}: the payload of {one.m} is not what was cast.")
                elif (cast.life.id and one.sender != cast.life.id) or (
                    cast.index is not None and one.index != cast.index
                ):
                    told = f"{cast.life.id} {cast.index}"
                    yield Violation(
                        "creation", f"{where}: {one.m} came as {one.sender} {one.index}, and was cast as {told}."
                    )
                elif cast.refusal is not None:
                    yield Violation("creation", f"{where}: the cast of {one.m} had been refused: {cast.refusal}")
                if one.sender not in members:
                    yield Violation("in-view", f"{where}: {one.sender}, who cast {one.m}, is not in view {view}.")
                if run.view_of[one.m] != view:
                    other = run.view_of[one.m]
                    yield Violation(
                        "sending-view", f"{where}: {one.m} was delivered in {view} here, elsewhere in {other}."
                    )


def check_views(run: Run) -> Iterator[Violation]:
    """One view is the same at all who show it; numbers grow; a member is in its views (P11, P12)."""
    for view, periods in run.views.items():
        first = periods[0]
        for period in periods:
            if period.life.id not in period.view["members"]:
                yield Violation("views", f"{period}: it is not a member of it.")
            for what in ("members", "order", "primary", "number"):
                if period.view[what] != first.view[what]:
                    text = f"{what} is {period.view[what]} at {period.life} and {first.view[what]} at {first.life}."
                    yield Violation("views", f"view {view}: {text}")
        addresses = [address_of(member) for member in first.view["members"]]
        if len(set(addresses)) < len(addresses):
            yield Violation("views", f"view {view} has two lives of one address: {first.view['members']}.")
    for life in run.lives:
        for before, after in pairwise(life.periods):
            if after.view["number"] <= before.view["number"]:
                yield Violation("views", f"{after}: the number does not grow, it was {before.view['number']}.")


def check_sets(run: Run) -> Iterator[Violation]:
    """The sets of a view fit each other, and the last view (P25)."""
    for life in run.lives:
        for period in life.periods:
            view, last = period.view, period.previous
            members, together = set(view["members"]), set(view["together"])
            before = set() if last is None else set(last.view["members"])
            if life.id not in together:
                yield Violation("sets", f"{period}: together does not name the member itself.")
            if last is None and together != {life.id}:
                yield Violation("sets", f"{period}: a first view, and together names others: {sorted(together)}.")
            if not together <= members:
                yield Violation(
                    "sets", f"{period}: together names {sorted(together - members)}, who are not in the view."
                )
            if last is not None and not together <= before:
                strangers = sorted(together - before)
                yield Violation("sets", f"{period}: together names {strangers}, who were not in view {last.id}.")
            if set(view["joined"]) != members - together:
                text = f"joined is {sorted(view['joined'])}, but members − together is {sorted(members - together)}."
                yield Violation("sets", f"{period}: {text}")
            if set(view["left"]) != before - together:
                text = f"left is {sorted(view['left'])}, but members of the last view − together is {sorted(before - together)}."
                yield Violation("sets", f"{period}: {text}")
    for periods in run.views.values():  # both come from one view into this one: they came together, or they did not
        for p, q in combinations(periods, 2):
            if p.previous is None or q.previous is None or p.previous.id != q.previous.id:
                continue
            if p.was_restored or q.was_restored:
                continue
            if (q.life.id in p.view["together"]) != (p.life.id in q.view["together"]):
                yield Violation(
                    "sets", f"{p} and {q} came from view {p.previous.id}, and only one names the other in together."
                )


def check_transitions(run: Run) -> Iterator[Violation]:
    """Exactly one Transition between two views, with the same `together` as the view that follows (P25)."""
    for life in run.lives:
        for period in life.periods:
            count, following = len(period.transitions), period.next
            if count > 1 or (count == 0 and following is not None):
                before = "the end" if following is None else f"view {following.id}"
                yield Violation("transition", f"{period}: {count} Transitions before {before}.")
                continue
            if count == 0:
                continue
            line, transition = period.transitions[0]
            if transition["view"] != period.id:
                yield Violation(
                    "transition", f"{life}, line {line}: it ends {transition['view']}, in view {period.id}."
                )
            if following is None:
                continue
            told, shown = set(transition["together"]), set(following.view["together"])
            if told != shown and not (following.was_restored and shown < told):
                text = f"together is {sorted(told)} in the Transition and {sorted(shown)} in view {following.id}."
                yield Violation("transition", f"{life}, line {line}: {text}")
            if transition["primary"] != following.view["primary"] and not following.was_restored:
                text = f"is_primary is {transition['primary']} in the Transition, not so in view {following.id}."
                yield Violation("transition", f"{life}, line {line}: {text}")


def check_fifo(run: Run) -> Iterator[Violation]:
    """Increasing indexes of each sender, without gaps inside a view (P6, P7)."""
    for life in run.lives:
        last: dict[str, Delivered] = {}
        for period in life.periods:
            if FIFO not in period.promises:
                last.clear()
                continue
            here: set[str] = set()
            for one in period.deliveries:
                before = last.get(one.sender)
                if before is not None:
                    where = f"{life}, lines {before.line} and {one.line}"
                    if one.index < before.index:
                        yield Violation("fifo", f"{where}: {before.m} and then {one.m} of the same sender.")
                    elif one.sender in here and one.index > before.index + 1:
                        yield Violation("fifo", f"{where}: between {before.m} and {one.m} a message is missing.")
                here.add(one.sender)
                last[one.sender] = one


def check_causal(run: Run) -> Iterator[Violation]:
    """What the caster had delivered when it cast, everyone delivers before that message (P8)."""
    for view, periods in run.views.items():
        if CAUSAL not in periods[0].promises:
            continue
        for period in periods:
            reached: dict[str, Delivered] = {}
            for one in period.deliveries:
                cast = run.casts.get(one.m)
                if cast is not None and cast.period is not None and cast.period.id == view:
                    for sender, cause in cast.frontier.items():
                        has = reached.get(sender)
                        if (has is None or has.index < cause.index) and cause.m not in period.absorbed:
                            text = f"{one.m} was delivered before {cause.m}, which {cast.life} had delivered when it cast it"
                            yield Violation("causal", f"{period.life}, line {one.line}: {text} (line {cast.line}).")
                reached[one.sender] = one


def check_total(run: Run) -> Iterator[Violation]:
    """Companions deliver what both deliver in the same order (P9); under a uniform order or with `safe`, up to the Transition,
    all members of a view do (P10)."""
    for p, q in run.companions:
        if TOTAL in p.promises:
            yield from compare_orders(p, q, p.deliveries, q.deliveries, "total")
    for periods in run.views.values():
        promises = periods[0].promises
        if UNIFORM in promises or (TOTAL in promises and run.plan["safe"]):
            for p, q in combinations(periods, 2):
                early_p, early_q = ([one for one in period.deliveries if not one.is_late] for period in (p, q))
                yield from compare_orders(p, q, early_p, early_q, "uniform")


def compare_orders(
    p: Period, q: Period, of_p: Sequence[Delivered], of_q: Sequence[Delivered], name: str
) -> Iterator[Violation]:
    common = {one.m for one in of_p} & {one.m for one in of_q}
    order_p, order_q = ([one for one in deliveries if one.m in common] for deliveries in (of_p, of_q))
    for x, y in zip(order_p, order_q, strict=False):
        if x.m != y.m:
            text = f"{x.m} (line {x.line}) where {q.life} delivered {y.m} (line {y.line})"
            yield Violation(name, f"view {p.id}: {p.life} delivered {text}.")
            return


def check_together(run: Run) -> Iterator[Violation]:
    """Companions delivered the same messages, apart from what came in a state (P25)."""
    for p, q in run.companions:
        for one, other in ((p, q), (q, p)):
            lacking = [m for m in sorted(other.messages - one.messages) if m not in one.absorbed]
            if lacking:
                to = "the end" if one.next is None else f"view {one.next.id}"
                text = f"{len(lacking)} messages that {one.life} did not: {', '.join(lacking[:5])}"
                yield Violation("together", f"from view {one.id} to {to}, {other.life} delivered {text}.")


def check_safe(run: Run) -> Iterator[Violation]:
    """A safe message that one member delivers before its Transition, every member that closes the view delivers in it (P5, P17)."""
    for view, periods in run.views.items():
        is_uniform = UNIFORM in periods[0].promises
        for p in periods:
            due = [one for one in p.deliveries if not one.is_late and (is_uniform or is_safe(run, one.m))]
            for q in periods:
                if q is p or q.next is None:
                    continue
                lacking = [one for one in due if not q.has(one.m)]
                if lacking:
                    one = lacking[0]
                    text = f"{len(lacking)} safe messages that {q.life} did not: {one.m} (line {one.line}) …"
                    yield Violation("safe", f"view {view}: before its Transition, {p.life} delivered {text}")


def is_safe(run: Run, m: str) -> bool:
    return m in run.casts and run.casts[m].is_safe


def check_stable(run: Run) -> Iterator[Violation]:
    """After `stable()` has returned, every member of the message's view delivers it or takes over a state that has it (P26)."""
    lost: dict[tuple[str, str, str], list[str]] = defaultdict(list)  # caster, view, who lacks them
    may_drop_states = (
        run.plan["policy"] == "partitionable" and run.plan["hooks"] == "restore"
    )  # parts meet: one state is kept
    for cast in run.casts.values():
        if outcome(cast, "stable") != "yes":
            continue
        view = run.view_of.get(cast.m)
        if view is None:
            if cast.life.is_whole and cast.m not in cast.life.ever_held:
                lost[str(cast.life), "none", "anybody"].append(cast.m)
            continue
        for member in run.views[view][0].view["members"]:
            life = run.by_id.get(member)
            if life is None or cast.m in life.ever_held:
                continue
            mine = next((period for period in life.periods if period.id == view), None)
            has_closed = mine is not None and mine.next is not None
            if mine is None and may_drop_states:
                continue  # it had no state yet when its part's state was dropped
            if life.is_whole or (has_closed and not run.has_hooks):
                lost[str(cast.life), view, str(life)].append(cast.m)
    for (caster, view, life_name), messages in lost.items():
        m = messages[0]
        text = f"{len(messages)} messages of view {view} are stable, and {life_name} never delivered them"
        yield Violation(
            "stable", f"{caster}, line {run.casts[m].receipts['stable'][0]}: {text}: {', '.join(messages[:5])}"
        )


def check_receipts(run: Run) -> Iterator[Violation]:
    """What a receipt says has happened (P28); at rest, every stage is decided."""
    for cast in run.casts.values():
        life = cast.life
        at, line = cast.receipts.get("delivered", (0, {}))
        if line.get("outcome") == "yes" and (life.is_whole or "left" in life.kinds) and cast.m not in life.ever_held:
            yield Violation(
                "receipts", f"{life}, line {at}: {cast.m} is delivered, and this program was never given it."
            )
        for stage, (number, told) in cast.receipts.items():
            if told["outcome"] == "error" and life.is_whole and number < end_of(life):
                yield Violation("receipts", f"{life}, line {number}: {stage} of {cast.m} failed: {told['text']}")


def end_of(life: Life) -> int:
    return next(number for number, line in enumerate(life.lines, 1) if line["is"] == "end")


def check_primary_safe(run: Run) -> Iterator[Violation]:
    """A safe message that anyone delivered in a primary view before its Transition is in every later primary (P27)."""
    if not run.is_primary_policy:
        return
    due: list[tuple[int, str, Period]] = []  # number of the view, message, who delivered it
    seen: set[str] = set()
    for periods in run.views.values():
        for period in periods:
            if period.view["primary"]:
                for one in period.deliveries:
                    if not one.is_late and one.m not in seen and is_safe(run, one.m):
                        seen.add(one.m)
                        due.append((period.view["number"], one.m, period))
    for life in run.lives:
        shown = {period.id for period in life.periods}
        for period in life.periods:
            if not period.view["primary"]:
                continue
            number = period.view["number"]
            owed = [(m, by) for before, m, by in due if before < number and (run.has_hooks or by.id in shown)]
            if run.has_hooks:
                lacking = [(m, by) for m, by in owed if m not in period.state]
            else:
                lacking = [(m, by) for m, by in owed if life.ever_held.get(m, period.line) >= period.line]
            if lacking:
                m, by = lacking[0]
                text = f"it is primary, and lacks {len(lacking)} safe messages of earlier primaries: {m}"
                yield Violation("primary-safe", f"{period}: {text}, delivered by {by}.")
                break  # the later views of this life lack them too


def check_chain(run: Run) -> Iterator[Violation]:
    """Primary views form one chain (P20)."""
    if not run.is_primary_policy:
        return
    primaries = sorted(
        (periods[0] for periods in run.views.values() if periods[0].view["primary"]), key=lambda one: one.view["number"]
    )
    for before, after in pairwise(primaries):
        if before.view["number"] == after.view["number"]:
            yield Violation("chain", f"two primary views have the same number: {before}, and {after}.")
        old, new = ({address_of(member) for member in period.view["members"]} for period in (before, after))
        if not old & new:
            yield Violation(
                "chain", f"two primary views follow each other and have no address in common: {before}, and {after}."
            )


def address_of(member: str) -> str:
    return member.partition("#")[0]


def check_lineage(run: Run) -> Iterator[Violation]:
    """States come from snapshots; companions have the same; the final one is the same everywhere and complete (P19, P29)."""
    if not run.has_hooks:
        return
    taken = {line["digest"] for life in run.lives for _, line in life.states if line["is"] == "snapshot"}
    for life in run.lives:
        for number, line in life.states:
            where = f"{life}, line {number}"
            if line["is"] == "restore" and line["digest"] not in taken:
                yield Violation("lineage", f"{where}: it restored a state that is no member's snapshot.")
            if line["is"] == "merge":
                if run.is_primary_policy:
                    yield Violation("lineage", f"{where}: merge was called under the primary policy.")
                if not set(line["parts"]) <= taken:
                    yield Violation("lineage", f"{where}: it merged a state that is no member's snapshot.")
            if len(set(line["state"])) < len(line["state"]):
                yield Violation("lineage", f"{where}: the state has a message twice.")
    for p, q in run.companions:
        if p.view["primary"]:  # a view that is not may have members with an older state, or none: it is read-only
            yield from compare_states(run, p, q)
    yield from check_final_state(run)


def compare_states(run: Run, p: Period, q: Period) -> Iterator[Violation]:
    of_p, of_q = set(p.last_state), set(q.last_state)
    if of_p != of_q:
        only = sorted(of_p - of_q)[:3], sorted(of_q - of_p)[:3]
        text = (
            f"only {p.life} has {len(of_p - of_q)} messages {only[0]}, only {q.life} has {len(of_q - of_p)} {only[1]}."
        )
        yield Violation("lineage", f"at the end of view {p.id} companions have different states: {text}")
    elif run.is_total and p.last_state != q.last_state:
        yield Violation(
            "lineage", f"at the end of view {p.id}, {p.life} and {q.life} have the same state in different orders."
        )


def check_final_state(run: Run) -> Iterator[Violation]:
    living = run.living
    last = living[0].last if living else None
    if last is None or not run.is_settled:
        return
    final = set(last.last_state)
    if run.is_primary_policy and last.view["primary"]:
        lost = [
            cast.m
            for cast in run.casts.values()
            if cast.is_safe and was_primary(run, cast.m) and outcome(cast, "stable") == "yes" and cast.m not in final
        ]
        if lost:
            yield Violation(
                "lineage", f"{len(lost)} safe and stable messages of primaries are not in the final state: {lost[:5]}"
            )
    if run.plan["policy"] == "partitionable" and run.plan["hooks"] == "merge":
        for one in living:
            lost = [m for m in one.ever_held if m not in final]
            if lost:
                yield Violation(
                    "lineage", f"{len(lost)} messages that {one} had in its state are not in the merged one: {lost[:5]}"
                )


def was_primary(run: Run, m: str) -> bool:
    view = run.view_of.get(m)
    return view is not None and bool(run.views[view][0].view["primary"])


def outcome(cast: Cast, stage: str) -> str | None:
    return cast.receipts[stage][1]["outcome"] if stage in cast.receipts else None


def check_liveness(run: Run) -> Iterator[Violation]:
    """Healed, all that live become one view within the bound, and deliver what is cast from then on (P22)."""
    for line in run.nemesis:
        if line["is"] == "unsettled":
            yield Violation("liveness", line["text"])
        if line["is"] == "exit" and line["code"] != 0:
            yield Violation("failure", f"the process of {line['file']} ended by itself, with {line['code']}.")
    if not run.is_settled:
        return
    living = run.living
    wanted = sorted(life.id for life in living)
    for life in living:
        shown = sorted(life.last.view["members"]) if life.last is not None else []
        if shown != wanted:
            yield Violation("liveness", f"{life} ends with a view of {shown}, and {wanted} live.")
    for life in living:
        probes = [cast for cast in life.casts if cast.is_probe and (run.probes is None or cast.m in run.probes)]
        refused = [cast for cast in probes if cast.refusal is not None]
        if refused and not may_be_read_only(run):
            text = f"after the heal {len(refused)} casts were refused: {refused[0].refusal}"
            yield Violation("liveness", f"{life}, line {refused[0].line}: {text}")
        for cast in probes:
            lacking = [str(other) for other in living if cast.m not in other.ever_held]
            if lacking and cast.refusal is None:
                yield Violation(
                    "liveness", f"{cast.m}, cast after the heal, was not delivered by {', '.join(lacking)}."
                )


def may_be_read_only(run: Run) -> bool:
    """With state hooks, nobody that lives has seen the last primary: its state may be lost, and no view becomes primary."""
    if not (run.is_primary_policy and run.has_hooks):
        return False
    primaries = [periods for periods in run.views.values() if periods[0].view["primary"]]
    if not primaries:
        return False
    last = max(primaries, key=lambda periods: int(periods[0].view["number"]))
    return not any(period.life.is_whole for period in last)


CHECKS: Sequence[Callable[[Run], Iterable[Violation]]] = (
    check_messages,
    check_views,
    check_sets,
    check_transitions,
    check_fifo,
    check_causal,
    check_total,
    check_together,
    check_safe,
    check_stable,
    check_receipts,
    check_primary_safe,
    check_chain,
    check_lineage,
    check_liveness,
)
