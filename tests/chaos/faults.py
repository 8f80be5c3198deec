"""Faults to plant into the logs of a clean run: each breaks one promise, and names the checks that must notice.

They look for a place that fits, so they work on the logs of real runs too. `NoPlace`: these logs have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.chaos.checker import CAUSAL, FIFO, TOTAL, Line, Logs, Period, Run, is_safe


class NoPlace(Exception):
    """The logs have no place for this fault."""


@dataclass(frozen=True)
class Plant:
    """A fault, and what the checker must say of it: at least `raises`, and nothing beyond `raises` and `may_raise`."""

    name: str
    raises: frozenset[str]
    may_raise: frozenset[str]
    alter: Callable[[Logs], None]
    policy: str
    """The story that has a place for it."""
    hooks: str
    order: str


PLANTS: list[Plant] = []


def plant(
    *raises: str,
    may: tuple[str, ...] = (),
    policy: str = "primary",
    hooks: str = "restore",
    order: str = "causal-total",
) -> Callable[[Callable[[Logs], None]], Callable[[Logs], None]]:
    def register(alter: Callable[[Logs], None]) -> Callable[[Logs], None]:
        name = alter.__name__.replace("_", " ")
        PLANTS.append(Plant(name, frozenset(raises), frozenset(may), alter, policy, hooks, order))
        return alter

    return register


# Finding places.


def lines_of(logs: Logs, period: Period) -> list[Line]:
    return logs.lives[period.life.file]


def first_of(places: Iterator[tuple[Period, int]]) -> tuple[Period, int]:
    """A period, and the number of a line (from 0) in its life's log."""
    for place in places:
        return place
    raise NoPlace


def deliveries(
    logs: Logs, wanted: Callable[[Run, Period, str], bool] = lambda run, period, m: True
) -> Iterator[tuple[Period, int]]:
    run = Run(logs)
    for p, q in run.companions:
        for one, other in ((p, q), (q, p)):
            for delivered in one.deliveries:
                if delivered.m in other.messages and wanted(run, one, delivered.m):
                    yield one, delivered.line - 1


def lines_with(
    logs: Logs, kind: str, wanted: Callable[[Line], bool] = lambda line: True
) -> Iterator[tuple[list[Line], int]]:
    for lines in logs.lives.values():
        for number, line in enumerate(lines):
            if line["is"] == kind and wanted(line):
                yield lines, number


def periods(run: Run, promise: str) -> Iterator[Period]:
    """Those in which deliveries have this property."""
    return (one for shown in run.views.values() for one in shown if promise in one.promises)


def receipt_of(lines: list[Line], m: str, stage: str) -> int:
    """Where the receipt of a message first answers about this stage."""
    wanted = {"is": "receipt", "m": m, "stage": stage}
    return next(at for at, line in enumerate(lines) if wanted.items() <= line.items())


def line_with(logs: Logs, kind: str, wanted: Callable[[Line], bool] = lambda line: True) -> tuple[list[Line], int]:
    for place in lines_with(logs, kind, wanted):
        return place
    raise NoPlace


def later_views(logs: Logs) -> tuple[list[Line], int]:
    """A view that is not its life's first."""
    for lines in logs.lives.values():
        views = [number for number, line in enumerate(lines) if line["is"] == "view"]
        for number in views[1:]:
            if len(lines[number]["members"]) > 1:
                return lines, number
    raise NoPlace


def neighbours(logs: Logs, wanted: Callable[[Run, Period, str, str], bool]) -> Iterator[tuple[Period, int, int]]:
    """Two deliveries in a row that companions have in common; nothing but receipts and casts in between is disturbed."""
    run = Run(logs)
    for p, q in run.companions:
        for x, y in zip(p.deliveries, p.deliveries[1:], strict=False):
            if x.m in q.messages and y.m in q.messages and x.is_late == y.is_late and wanted(run, p, x.m, y.m):
                yield p, x.line - 1, y.line - 1


def swap(lines: list[Line], x: int, y: int) -> None:
    """Two deliveries change places."""
    for field in ("m", "sender", "index", "crc"):
        lines[x][field], lines[y][field] = lines[y][field], lines[x][field]


def swap_everywhere(logs: Logs, m: str, n: str) -> None:
    for lines in logs.lives.values():
        at = {line["m"]: number for number, line in enumerate(lines) if line["is"] == "delivery"}
        if m in at and n in at:
            swap(lines, at[m], at[n])
        for line in lines:
            if {m, n} <= set(line.get("state", ())):
                state = line["state"]
                x, y = state.index(m), state.index(n)
                state[x], state[y] = n, m


# Messages.


@plant("creation")
def a_payload_is_altered(logs: Logs) -> None:
    lines, number = line_with(logs, "delivery")
    lines[number]["crc"] += 1


@plant(
    "creation",
    may=("fifo", "together", "lineage", "sending-view", "safe", "stable", "primary-safe", "receipts", "liveness"),
)
def a_message_is_made_up(logs: Logs) -> None:
    period, number = first_of(deliveries(logs))
    lines = lines_of(logs, period)
    lines.insert(number + 1, lines[number] | {"m": "z9:1", "index": lines[number]["index"]})


@plant("creation", may=("fifo",))
def an_index_is_altered(logs: Logs) -> None:
    for period in (one for one in periods(Run(logs), FIFO) if one.deliveries):
        lines_of(logs, period)[period.deliveries[-1].line - 1]["index"] += 0.5
        return
    raise NoPlace


@plant("creation", may=("receipts",))
def what_was_refused_is_delivered(logs: Logs) -> None:
    lines, number = line_with(logs, "accepted")
    m = lines[number]["m"]
    lines[number] = {"t": lines[number]["t"], "is": "refused_cast", "m": m, "error": "NotPrimary", "text": "read-only"}


@plant("duplication", may=("total", "lineage"))
def a_message_is_delivered_twice(logs: Logs) -> None:
    period, number = first_of(deliveries(logs))
    lines = lines_of(logs, period)
    lines.insert(number + 1, dict(lines[number]))


@plant("duplication", may=("fifo", "causal", "sending-view", "together", "lineage"))
def a_message_in_the_restored_state_is_delivered_as_well(logs: Logs) -> None:
    sent = {line["m"]: line for lines, at in lines_with(logs, "delivery") for line in [lines[at]]}
    for lines, number in lines_with(logs, "restore", lambda line: bool(line["state"])):
        line = sent.get(lines[number]["state"][-1])
        view = next((at for at, one in enumerate(lines) if at > number and one["is"] == "view"), None)
        if line is None or view is None or line["sender"] not in lines[view]["members"]:
            continue
        if not any(one["is"] == "delivery" and one["m"] == line["m"] for one in lines):
            lines.insert(view + 1, dict(line))
            return
    raise NoPlace


@plant("in-view", "creation", may=("fifo", "causal"))
def a_sender_is_no_member(logs: Logs) -> None:
    period, number = first_of(deliveries(logs))
    lines_of(logs, period)[number]["sender"] = "10.99.0.99:7400#1"


@plant(
    "sending-view",
    "together",
    may=("in-view", "lineage", "safe", "stable", "causal", "total", "fifo", "primary-safe", "receipts"),
)
def a_message_is_delivered_in_the_next_view(logs: Logs) -> None:
    period, number = first_of(place for place in deliveries(logs) if place[0].next is not None)
    assert period.next is not None
    lines = lines_of(logs, period)
    lines.insert(period.next.line, dict(lines[number]))
    del lines[number]


@plant("well-formed", may=("duplication", "creation"))
def a_delivery_comes_before_the_first_view(logs: Logs) -> None:
    lines, number = line_with(logs, "view")
    source, at = line_with(logs, "delivery")
    lines.insert(number, dict(source[at]))


# Orders.


@plant("fifo", may=("causal", "receipts"))
def two_messages_of_one_sender_change_places_everywhere(logs: Logs) -> None:
    run = Run(logs)
    for period in periods(run, FIFO):
        by_sender: dict[str, str] = {}
        for one in period.deliveries:
            if one.sender in by_sender:
                swap_everywhere(logs, by_sender[one.sender], one.m)
                return
            by_sender[one.sender] = one.m
    raise NoPlace


@plant("fifo", may=("together", "lineage", "safe", "stable", "receipts", "primary-safe", "causal", "liveness"))
def a_message_is_missing_between_two(logs: Logs) -> None:
    run = Run(logs)
    for period in periods(run, FIFO):
        by_sender: dict[str, list[int]] = {}
        for one in period.deliveries:
            mine = by_sender.setdefault(one.sender, [])
            mine.append(one.line)
            if len(mine) == 3:
                del lines_of(logs, period)[mine[1] - 1]
                return
    raise NoPlace


@plant("causal", may=("total", "uniform", "lineage"), order="causal")
def an_answer_comes_before_its_question(logs: Logs) -> None:
    """At a member that cast neither."""
    run = Run(logs)
    for period in periods(run, CAUSAL):
        for x, y in zip(period.deliveries, period.deliveries[1:], strict=False):
            cast = run.casts.get(y.m)
            if cast is None or cast.period is None or cast.period.id != period.id or x.sender == y.sender:
                continue
            cause = cast.frontier.get(x.sender)
            if cause is not None and cause.m == x.m and period.life.id not in (x.sender, y.sender):
                swap(lines_of(logs, period), x.line - 1, y.line - 1)
                return
    raise NoPlace


@plant("total", may=("causal", "lineage", "receipts", "uniform"))
def two_messages_change_places_at_one_member(logs: Logs) -> None:
    def fits(run: Run, period: Period, m: str, n: str) -> bool:
        senders = run.casts[m].life, run.casts[n].life
        return TOTAL in period.promises and period.life not in senders and senders[0] is not senders[1]

    for period, x, y in neighbours(logs, fits):
        swap(lines_of(logs, period), x, y)
        return
    raise NoPlace


@plant("uniform", may=("causal", "lineage", "receipts", "total"))
def two_messages_of_a_uniform_order_change_places_at_one_member(logs: Logs) -> None:
    logs.plan["safe"] = True
    two_messages_change_places_at_one_member(logs)


# Views.


@plant("together", may=("lineage", "fifo", "causal", "safe", "stable", "receipts", "primary-safe", "liveness"))
def a_delivery_is_lost_at_one_member(logs: Logs) -> None:
    period, number = first_of(deliveries(logs, lambda run, period, m: run.casts[m].life is not period.life))
    del lines_of(logs, period)[number]


@plant("together", may=("total",), hooks="none")
def together_names_one_that_delivered_something_else(logs: Logs) -> None:
    run = Run(logs)
    for periods in run.views.values():
        for p in periods:
            for q in periods:
                if p is q or p.next is None or q.next is None or p.next.id != q.next.id or p.messages == q.messages:
                    continue
                if q.life.id in p.next.view["together"] or p.next.was_restored or q.next.was_restored:
                    continue
                for one, other in ((p, q), (q, p)):
                    assert one.next is not None
                    include(one.transitions[0][1], one.next.view, other.life.id)
                return
    raise NoPlace


def include(transition: Line, view: Line, member: str) -> None:
    transition["together"] = sorted({*transition["together"], member})
    view["together"] = sorted({*view["together"], member})
    view["joined"].pop(member, None)
    view["left"].pop(member, None)


@plant("sets")
def joined_lacks_a_member(logs: Logs) -> None:
    lines, number = line_with(logs, "view", lambda line: bool(line["joined"]))
    lines[number]["joined"].popitem()


@plant("sets")
def left_lacks_a_member(logs: Logs) -> None:
    lines, number = line_with(logs, "view", lambda line: bool(line["left"]))
    lines[number]["left"].popitem()


@plant("sets", may=("transition",))
def a_first_view_names_others_in_together(logs: Logs) -> None:
    lines, number = line_with(logs, "view", lambda line: len(line["members"]) > 1)
    view = lines[number]
    view["together"] = list(view["members"])
    view["joined"] = {}


@plant("sets", "transition", may=("lineage", "together"))
def only_one_of_two_names_the_other_in_together(logs: Logs) -> None:
    run = Run(logs)
    for p, q in run.companions:
        if p.next is not None and q.next is not None and not p.next.was_restored and not q.next.was_restored:
            p.next.view["together"].remove(q.life.id)
            p.next.view["joined"][q.life.id] = "new"
            p.next.view["left"][q.life.id] = "lost"
            return
    raise NoPlace


@plant("transition", may=("safe", "uniform", "primary-safe"))
def a_transition_is_missing(logs: Logs) -> None:
    lines, number = later_views(logs)
    at = max(before for before in range(number) if lines[before]["is"] == "transition")
    del lines[at]


@plant("transition")
def a_transition_comes_twice(logs: Logs) -> None:
    lines, number = line_with(logs, "transition")
    lines.insert(number + 1, dict(lines[number]))


@plant("transition")
def a_transition_ends_another_view(logs: Logs) -> None:
    lines, number = line_with(logs, "transition")
    lines[number]["view"] = "99@nowhere"


@plant("transition", may=("primary-safe", "safe"))
def a_transition_says_primary_and_the_view_does_not(logs: Logs) -> None:
    run = Run(logs)
    for life in run.lives:
        for period in life.periods:
            if period.next is not None and not period.next.was_restored and period.transitions:
                line = period.transitions[0][1]
                line["primary"] = not line["primary"]
                return
    raise NoPlace


@plant("views", may=("sets", "in-view"))
def members_of_one_view_differ(logs: Logs) -> None:
    run = Run(logs)
    for periods in run.views.values():
        if len(periods) > 1 and len(periods[0].view["members"]) > 1:
            periods[-1].view["members"].reverse()
            return
    raise NoPlace


@plant("views", may=("chain", "primary-safe"))
def the_number_of_a_view_does_not_grow(logs: Logs) -> None:
    run = Run(logs)
    for period in (one for life in run.lives for one in life.periods if one.previous is not None):
        for same in run.views[period.id]:
            same.view["number"] = 1
        return
    raise NoPlace


# Receipts and safe messages.


@plant("safe", may=("stable", "receipts", "fifo", "causal", "lineage", "together", "primary-safe"))
def a_safe_message_is_delivered_by_one_part_only(logs: Logs) -> None:
    """Before its Transition one member delivers it; another, which goes into another view, never does."""
    run = Run(logs)
    for periods in run.views.values():
        for p in periods:
            for q in periods:
                if p.next is None or q.next is None or p.next.id == q.next.id:
                    continue
                for one in q.deliveries:
                    if is_safe(run, one.m) and any(one.m == two.m and not two.is_late for two in p.deliveries):
                        del lines_of(logs, q)[one.line - 1]
                        return
    raise NoPlace


@plant("stable", may=("receipts", "together", "lineage", "safe", "fifo", "causal", "liveness", "primary-safe"))
def stable_on_receipt(logs: Logs) -> None:
    """The receipt says stable, and a member of that view that was there to the end never delivers it."""
    run = Run(logs)
    for period in (one for life in run.living for one in life.periods):
        for one in period.deliveries:
            cast = run.casts[one.m]
            is_in_state = any(one.m in line["state"] for _, line in period.life.states)
            if (
                cast.life is not period.life
                and cast.receipts.get("stable", (0, {}))[1].get("outcome") == "yes"
                and not is_in_state
            ):
                del lines_of(logs, period)[one.line - 1]
                return
    raise NoPlace


def first_receipt(logs: Logs, stage: str, outcome: str = "yes") -> tuple[list[Line], int]:
    return line_with(logs, "receipt", lambda line: line["stage"] == stage and line["outcome"] == outcome)


@plant("receipts")
def applied_before_the_program_has_it(logs: Logs) -> None:
    lines, number = first_receipt(logs, "applied")
    m = lines[number]["m"]
    at = next(at for at, line in enumerate(lines) if line["is"] == "accepted" and line["m"] == m)
    moved = [line for line in lines if line["is"] == "receipt" and line["m"] == m and line["stage"] != "stable"]
    lines[:] = [line for line in lines if line not in moved]
    lines[at + 1 : at + 1] = moved


@plant("receipts")
def applied_before_delivered(logs: Logs) -> None:
    lines, number = first_receipt(logs, "applied")
    m = lines[number]["m"]
    at = receipt_of(lines, m, "delivered")
    lines[at]["stage"], lines[number]["stage"] = "applied", "delivered"


@plant("receipts")
def stable_after_uncertain(logs: Logs) -> None:
    lines, number = first_receipt(logs, "stable")
    m = lines[number]["m"]
    at = receipt_of(lines, m, "delivered")
    lines[at]["outcome"] = "uncertain"
    del lines[receipt_of(lines, m, "applied")]


@plant("receipts")
def uncertain_after_stable(logs: Logs) -> None:
    lines, number = first_receipt(logs, "stable")
    m = lines[number]["m"]
    applied = lines[receipt_of(lines, m, "applied")]
    lines.insert(number + 1, applied | {"outcome": "uncertain"})
    lines.remove(applied)


@plant("receipts", may=("together", "fifo", "lineage", "safe", "stable", "causal", "primary-safe", "liveness"))
def delivered_and_never_given(logs: Logs) -> None:
    run = Run(logs)
    for life in run.living:
        for cast in life.casts:
            told = cast.receipts.get("delivered", (0, {}))[1].get("outcome")
            if told == "yes" and not any(cast.m in line["state"] for _, line in life.states):
                lines = logs.lives[life.file]
                lines[:] = [line for line in lines if not (line["is"] == "delivery" and line["m"] == cast.m)]
                return
    raise NoPlace


# Primary views and states.


@plant("chain", may=("transition", "views", "primary-safe"))
def two_primaries_at_a_time(logs: Logs) -> None:
    """A view that is not primary says that it is, at all who show it, beside a primary of the same number."""
    views = Run(logs).views.values()
    numbers = {periods[0].view["number"] for periods in views if periods[0].view["primary"]}
    for periods in views:
        if not periods[0].view["primary"] and periods[0].view["number"] in numbers:
            for period in periods:
                period.view["primary"] = True
                if period.previous is not None:
                    period.previous.transitions[0][1]["primary"] = True
            return
    raise NoPlace


@plant("primary-safe", may=("lineage", "duplication"))
def the_minority_s_state_wins(logs: Logs) -> None:
    """A state that is taken over lacks a safe message of an earlier primary; the snapshot that it comes from does as well."""
    run = Run(logs)
    for lines, number in lines_with(logs, "restore"):
        for m in lines[number]["state"]:
            if is_safe(run, m) and not any(line["is"] == "delivery" and line["m"] == m for line in lines[number:]):
                told = lines[number]["digest"]
                for others in logs.lives.values():
                    for line in others:
                        if line.get("digest") == told:
                            line["state"] = [one for one in line["state"] if one != m]
                return
    raise NoPlace


@plant("primary-safe", hooks="none", may=("together", "fifo", "causal", "safe", "stable", "receipts"))
def a_safe_message_of_a_primary_is_lost(logs: Logs) -> None:
    run = Run(logs)
    for period in (one for life in run.lives for one in life.periods):
        if period.view["primary"] and any(later.view["primary"] for later in run.later(period)):
            for one in period.deliveries:
                if is_safe(run, one.m) and run.casts[one.m].life is not period.life:
                    del lines_of(logs, period)[one.line - 1]
                    return
    raise NoPlace


@plant("lineage")
def a_state_is_nobody_s_snapshot(logs: Logs) -> None:
    lines, number = line_with(logs, "restore")
    lines[number]["digest"] = "0" * 8


@plant("lineage")
def a_state_is_replaced_and_nothing_says_so(logs: Logs) -> None:
    lines, number = line_with(logs, "replaced")
    del lines[number]


@plant("lineage")
def merge_is_called_under_the_primary_policy(logs: Logs) -> None:
    lines, number = line_with(logs, "restore")
    lines[number] |= {"is": "merge", "parts": [lines[number]["digest"]]}


@plant("lineage", policy="partitionable", hooks="merge", may=("duplication",))
def a_merge_forgets_a_part(logs: Logs) -> None:
    """At all members alike."""
    lines, number = line_with(logs, "merge", lambda line: len(line["state"]) > 1)
    run = Run(logs)
    only = [m for m in lines[number]["state"] if any(m in one.ever_held for one in run.living)]
    delivered = {
        line["m"] for other, at in lines_with(logs, "merge") for line in other[at:] if line["is"] == "delivery"
    }
    lost = next((m for m in reversed(only) if m not in delivered), None)
    if lost is None:
        raise NoPlace
    for other in logs.lives.values():
        merges = [at for at, line in enumerate(other) if line["is"] == "merge"]
        for line in other[merges[0] if merges else 0 :]:
            if "digest" in line:
                line["state"] = [m for m in line["state"] if m != lost]


@plant("lineage")
def a_state_has_a_message_twice(logs: Logs) -> None:
    lines, number = line_with(logs, "snapshot", lambda line: bool(line["state"]))
    lines[number]["state"].append(lines[number]["state"][0])


@plant("lineage", may=("duplication", "primary-safe", "stable", "together", "liveness", "safe"))
def one_member_ends_with_another_state(logs: Logs) -> None:
    """What it restored last has a message that nobody else has."""
    for life in Run(logs).living:
        for _, line in reversed(life.states):
            if line["is"] == "restore":
                line["state"] = [*line["state"], "z9:9"]
                return
    raise NoPlace


# Liveness.


@plant("liveness")
def the_group_never_comes_to_rest(logs: Logs) -> None:
    at = next(at for at, line in enumerate(logs.nemesis) if line["is"] == "settled")
    logs.nemesis[at] = {"t": 0, "is": "unsettled", "text": "not within 32 s: one view of all that live."}


@plant("liveness", may=("together", "lineage", "stable", "safe", "fifo", "causal", "receipts"))
def a_probe_does_not_arrive(logs: Logs) -> None:
    run = Run(logs)
    for life in run.living:
        for cast in life.casts:
            if cast.is_probe and cast.index is not None:
                for other in run.living:
                    if other is not life and cast.m in other.all_delivered:
                        del logs.lives[other.file][other.all_delivered[cast.m] - 1]
                        return
    raise NoPlace


@plant("liveness", may=("views", "sets", "in-view"))
def a_member_ends_in_another_view(logs: Logs) -> None:
    run = Run(logs)
    for life in run.living:
        if life.last is not None and len(life.last.view["members"]) > 1:
            gone = next(member for member in life.last.view["members"] if member not in life.last.view["together"])
            for period in run.views[life.last.id]:
                period.view["members"] = [one for one in period.view["members"] if one != gone]
            return
    raise NoPlace


@plant("failure")
def a_program_meets_an_error(logs: Logs) -> None:
    lines = next(iter(logs.lives.values()))
    lines.append({"t": 0, "is": "error", "error": "AssertionError", "text": "slot 7 is missing"})


@plant("failure")
def a_process_ends_by_itself(logs: Logs) -> None:
    logs.nemesis.append({"t": 0, "is": "exit", "name": "a", "file": "a-1.jsonl", "code": 1})
