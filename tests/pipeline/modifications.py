"""Modifications of recorded traces, each with the verdicts that are acceptable: what a judge must not be fooled by.

`CASES` are kinds of modification, by family: labels, rows, views, orders, schema and files. Each is a function of the rows of a
run, or of the folder that holds them, which changes them and returns False where a run has nothing that it could change. Neutral
ones leave the verdict as it was. `sources` makes the runs: real members in virtual time, one run for every order, and some with
a crash, a switch of orders, lists of recipients, or what their applications were shown.

    python -m tests.pipeline.modifications [--page docs/results/modifications.md] [ORDER ...]

prints what each judge says of each kind, or writes it as a page.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unisono.core.options import CastOptions
from unisono.core.types import MemberId
from unisono.orders.registry import ORDERS
from unisono.pipeline import columns
from unisono.sim.group_world import GroupWorld
from unisono.trace.checks.judge import judge_all
from unisono.trace.parquet import arrow_table, write_parquet
from unisono.trace.promises import PROMISES, promises
from unisono.trace.reader import read
from unisono.trace.schema import (
    CAST,
    DECIDE,
    DELIVER,
    END,
    ENDINGS,
    JOIN,
    PLACE,
    RECEIPT,
    SHOW,
    SHOWN,
    STATE,
    SUSPECT,
    TRANSITION,
    VIEW,
    VOTE,
    Event,
    TraceError,
    member_name,
    to_line,
)
from unisono.trace.sinks import MemorySink, stem_of
from unisono.trace.story import renumber

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Trace = list[Event]
FAIL, UNKNOWN, EITHER, PASS = "FAIL", "UNKNOWN", "FAIL or UNKNOWN", "PASS"
ODD = "b"
"""The member whose rows are modified."""


# Runs.


def play(
    order: str, name: str, *, crash: bool = False, switch: str = "", recipients: bool = False, shown: bool = False
) -> Trace:
    """A run of three members in two views, its rows life after life.

    Without `shown` there are no rows of what applications were shown: they would give away much that other rows cover up.
    """
    sink = MemorySink()
    world = GroupWorld(order, seed=name, sinks=lambda member: [sink], run_name=name)
    members = world.gather("abc")
    for number in range(3):
        for process in members:
            to = (MemberId("a", 0), MemberId("b", 0)) if recipients and number == 1 else None
            process.cast(b"%d" % number, CastOptions(to=to), is_awaited=number == 0)
        world.run(0.05)
    world.run(0.5)
    if crash:
        world.crash("c")
    else:
        world.leave("c")
    assert world.run(10, lambda: world.is_one("ab")), world.story()
    if switch:
        members[0].member.switch(switch)
        assert world.run(10, lambda: members[1].member.state.order == switch), world.story()
    for number in range(2):
        for process in members[:2]:
            process.cast(b"later %d" % number)
        world.run(0.05)
    assert world.finish().result == PASS
    events = [event for event in sink.events if shown or event.kind not in SHOWN]
    events = renumber(events)
    return sorted(events, key=lambda event: (event.member, event.incarnation, event.local_index))


def sources(orders: Iterable[str] = ORDERS) -> Iterator[tuple[str, Trace]]:
    """The runs that are modified: of every order, and a few others."""
    for order in orders:
        yield order, play(order, order)
    yield "crash", play("causal-total", "crash", crash=True)
    yield "switch", play("fifo-total", "switch", switch="causal")
    yield "recipients", play("causal-total", "recipients", recipients=True)
    yield "shown", play("sequencer", "shown", shown=True)


# Rows.

Change = Callable[[Trace], object]
"""Changes the rows of a run; False: not with these."""
Chosen = Callable[[Event], bool]


def rows_of(events: Trace, kind: str, member: str = ODD) -> list[int]:
    return [at for at, event in enumerate(events) if event.kind == kind and event.member == member]


def put(events: Trace, at: int, **values: Any) -> None:
    """Change a row. A value may be a function of the row."""
    event = events[at]
    events[at] = replace(event, **{name: value(event) if callable(value) else value for name, value in values.items()})


def put_all(events: Trace, chosen: Chosen, **values: Any) -> int:
    """Change all these rows; how many there were."""
    places = [at for at, event in enumerate(events) if chosen(event)]
    for at in places:
        put(events, at, **values)
    return len(places)


def same_message(one: Event, other: Event) -> bool:
    return one.kind in (CAST, DELIVER, PLACE) and (one.origin, one.first) == (other.origin, other.first)


def count_anew(events: Trace) -> None:
    events[:] = renumber(events)


def swap(events: Trace, first_view: bool = True) -> bool:
    """The odd member delivers two messages of one origin in the other order: no order allows it."""
    view = next(event.view for event in events if event.kind == VIEW and len(event.members or ()) == 3)
    last: dict[str | None, int] = {}
    for at in rows_of(events, DELIVER):
        event = events[at]
        is_in = (event.view == view) == first_view
        if is_in and event.destinations is None and event.origin in last and event.service != "datagram":
            exchange(events, last[event.origin], at)
            return True
        if is_in:
            last[event.origin] = at
    return False


def exchange(events: Trace, one: int, other: int) -> None:
    """Two deliveries change places; what counts places does not."""
    x, y = events[one], events[other]
    events[one] = replace(y, local_index=x.local_index, ordinal=x.ordinal)
    events[other] = replace(x, local_index=y.local_index, ordinal=y.ordinal)


def lose(events: Trace, last: bool = False) -> Event:
    """The odd member does not deliver a message of another one, and counts on as if nothing had been."""
    places = [at for at in rows_of(events, DELIVER) if events[at].origin != ODD and events[at].destinations is None]
    lost = events.pop(places[-1 if last else 0])
    count_anew(events)
    return lost


# Changes made of changes.


def then(*changes: Change) -> Change:
    """One after the other."""
    return lambda events: all(change(events) is not False for change in changes)


def row(kind: str, number: int = 0, /, **values: Any) -> Change:
    """Other values in one of the odd member's rows of a kind."""
    return lambda events: put(events, rows_of(events, kind)[number], **values)


def rows(chosen: Chosen = lambda event: True, **values: Any) -> Change:
    """Other values in all these rows, if there are any."""
    return lambda events: put_all(events, chosen, **values)


def any_rows(chosen: Chosen, **values: Any) -> Change:
    """Likewise; not with a run that has none."""
    return lambda events: put_all(events, chosen, **values) > 0


def of(*kinds: str) -> Chosen:
    return lambda event: event.kind in kinds


def is_odd(event: Event) -> bool:
    return event.member == ODD


def of_last_view(chosen: Chosen = lambda event: True, **values: Any) -> Change:
    """Other values in all these rows that name the view which the odd member installed last."""

    def change(events: Trace) -> None:
        view = events[rows_of(events, VIEW)[-1]].view
        put_all(events, lambda event: event.view == view and chosen(event), **values)

    return change


def of_first_delivery(chosen: Chosen = lambda event: True, **values: Any) -> Change:
    """Other values in all these rows about the message that the odd member delivers first."""

    def change(events: Trace) -> None:
        first = events[rows_of(events, DELIVER)[0]]
        put_all(events, lambda event: chosen(event) and same_message(event, first), **values)

    return change


def without(chosen: Chosen) -> Change:
    """Rows are gone."""

    def change(events: Trace) -> None:
        events[:] = [event for event in events if not chosen(event)]

    return change


def without_row(kind: str, number: int = 0) -> Change:
    """One row of the odd member is gone, and the indices show it."""

    def change(events: Trace) -> None:
        del events[rows_of(events, kind)[number]]

    return change


def again(kind: str, number: int = 0, /, *, before: bool = False, **values: Any) -> Change:
    """One row of the odd member is there again, with other values, and rows are counted anew."""

    def change(events: Trace) -> None:
        at = rows_of(events, kind)[number]
        events.insert(at + (not before), events[at])
        put(events, at + (not before), **values)
        count_anew(events)

    return change


def orders(text: str | Callable[[Event], str]) -> Change:
    """All rows name this order."""
    return then(rows(protocol=text), rows(of(VIEW), reason=None))


def other_order(event: Event) -> str:
    return "rmp" if event.protocol == "fifo" else "fifo"


def with_attributes(**values: str) -> Callable[[Event], dict[str, str]]:
    return lambda event: {**(event.attributes or {}), **values}


def with_members(*names: str) -> Callable[[Event], tuple[str, ...]]:
    return lambda event: (*(event.members or ()), *names)


void = with_attributes(void="true")


CASES: dict[str, Case] = {}
AMBIGUOUS = frozenset({"index cast twice", "rows in two forms", "safe index cast twice"})
"""Two rows claim one place. What else is broken depends on which of them a judge believes, so judges agree on the result alone."""


OF_THE_RUN = frozenset({"no transactions", "list of what nobody recorded", "receipt without attributes", "state from nobody",
    "view that was not shown", "receipts without views", "receipt of an unknown stage", "member that stays behind"})  # fmt: skip
"""What only the judge of whole runs finds: it rests on properties that are not asked of single views, or on a view that a member
never had."""


@dataclass(frozen=True)
class Case:
    """A kind of modification and what a judge may say of it."""

    name: str
    family: str
    expected: str
    meaning: str
    change: Change
    write: Write
    is_named: bool = True
    """Its files have the names of segments."""


def lives_of(events: Trace) -> dict[tuple[str, int], Trace]:
    lives: dict[tuple[str, int], Trace] = {}
    for event in events:
        lives.setdefault((event.member, event.incarnation), []).append(event)
    return lives


def segment(folder: Path, event: Event, number: int = 0, ending: str = "parquet") -> Path:
    return folder / f"{stem_of(event.run, event.member, event.incarnation)}.{number:06}.{ending}"


def as_segments(folder: Path, events: Trace) -> None:
    """One Parquet file a life, in the order of its rows."""
    for life in lives_of(events).values():
        write_parquet(segment(folder, life[0]), life)


Write = Callable[[Path, Trace], None]
"""Writes the rows of a run into a folder."""


def changes(family: str, *cases: tuple[str, str, str, Change], write: Write = as_segments) -> None:
    """Changes of rows that belong to a family: name, what a judge may say, meaning, change."""
    for name, expected, meaning, change in cases:
        CASES[name] = Case(name, family, expected, meaning, change, write)


def case(family: str, expected: str) -> Callable[[Change], Change]:
    """A change that is a function with a name and a meaning of its own."""

    def add(change: Change) -> Change:
        changes(family, (change.__name__.replace("_", " "), expected, (change.__doc__ or "").strip(), change))
        return change

    return add


def writes(family: str, *cases: tuple[str, str, str, Write], is_named: bool = True) -> None:
    """Other ways to write the rows, likewise."""
    for name, expected, meaning, write in cases:
        CASES[name] = Case(name, family, expected, meaning, lambda events: True, write, is_named)


# Labels: what rows say of themselves, changed to cover something up.


@case("labels", FAIL)
def service_that_the_order_does_not_carry(events: Trace) -> bool:
    """A message is of a service that is asked for less, at its CAST and at all members, and one swaps it."""
    row = events[rows_of(events, DELIVER)[0]]
    other = next((name for name in ("datagram", "fifo", "causal") if name not in PROMISES[row.protocol]), None)
    if other is None or any(event.reason for event in events if event.kind == VIEW):
        return False
    put_all(events, lambda event: event.kind in (CAST, DELIVER, PLACE) and event.origin == row.origin, service=other)
    swap(events)
    count_anew(events)
    return True


@case("labels", FAIL)
def cut_at_one_member(events: Trace) -> None:
    """One member lacks its last delivery, and says that messages were under way when it ended."""
    lose(events, last=True)
    put(events, rows_of(events, END)[0], reason="cut")


@case("labels", FAIL)
def placeholder_for_a_delivery(events: Trace) -> None:
    """One member places what is addressed to it, and calls the payload void."""
    put(events, next(at for at in rows_of(events, DELIVER) if events[at].origin != ODD), kind=PLACE, attributes=void)


@case("labels", FAIL)
def recipients_on_a_placeholder(events: Trace) -> None:
    """A message for everyone is placed by one member as a message for others, and delivered as such."""
    row = events[next(at for at in rows_of(events, DELIVER) if events[at].origin != ODD)]
    others = tuple(sorted({event.member for event in events} - {ODD}))
    put_all(events, lambda event: event.kind == DELIVER and same_message(event, row), destinations=others)
    put_all(events, lambda e: e.kind == DELIVER and is_odd(e) and same_message(e, row), kind=PLACE)


@case("labels", FAIL)
def recipients_on_one_delivery(events: Trace) -> None:
    """A member that lost a message is left out of the recipients that the others' deliveries name."""
    lost = lose(events)
    others = tuple(sorted({event.member for event in events} - {ODD}))
    put_all(events, lambda event: event.kind == DELIVER and same_message(event, lost), destinations=others)


@case("labels", FAIL)
def transitional_set_of_its_own(events: Trace) -> None:
    """A member that lost a message says that it came alone into the next view."""
    lose(events)
    put(events, rows_of(events, VIEW)[-1], transitional=(ODD,))


@case("labels", EITHER)
def another_incarnation(events: Trace) -> None:
    """The second half of a life is of another incarnation."""
    mine = [at for at, event in enumerate(events) if event.member == ODD]
    for at in mine[len(mine) // 2 :]:
        put(events, at, incarnation=1)


@case("labels", FAIL)
def digests_that_change_places(events: Trace) -> bool:
    """Two deliveries have digests that were chosen so that their hashes change places."""
    rows = rows_of(events, DELIVER)
    one = rows[0]
    other = next((at for at in rows[1:] if _is_beside(events[at], events[one])), None)
    if other is None:
        return False
    x, y = events[one], events[other]
    hashes = _message_hash(x) ^ _message_hash(y)
    put(events, one, digest=_signed(hashes ^ ((y.digest or 0) & _WORD)))
    put(events, other, digest=_signed(hashes ^ ((x.digest or 0) & _WORD)))
    return True


_WORD = (1 << 64) - 1


def _is_beside(one: Event, other: Event) -> bool:
    return (one.origin, one.view, one.service) == (other.origin, other.view, other.service)


def _message_hash(event: Event) -> int:
    """How a scan hashes which message this is."""
    seed = columns.seed(member_name(event.origin or "", event.origin_incarnation or 0))
    word = seed + (event.first or 0) * 0xD6E8FEB86659FD93 + (event.count or 0) * 0xA0761D6478BD642F
    return int(columns.mix(np.array([word & _WORD], np.uint64))[0])


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


@case("labels", FAIL)
def two_names_as_one(events: Trace) -> bool:
    """One member's transitional set joins the names of two members by a comma."""
    at = rows_of(events, VIEW)[-1]
    along = events[at].transitional or ()
    put(events, at, transitional=(",".join(sorted(along)),))
    return len(along) > 1


def without_vectors(members: Iterable[str]) -> Change:
    return any_rows(lambda event: event.member in members and "vector" in (event.attributes or {}), attributes=None)


def renamed(name: str) -> Change:
    """Another name for the odd member, wherever it is named."""

    def names(column: str) -> Callable[[Event], tuple[str, ...] | None]:
        def changed(event: Event) -> tuple[str, ...] | None:
            some = getattr(event, column)
            return None if some is None else tuple(name if one == ODD else one for one in some)

        return changed

    def change(events: Trace) -> bool:
        put_all(events, is_odd, member=name)
        put_all(events, lambda event: event.origin == ODD, origin=name)
        put_all(events, lambda event: True, **{one: names(one) for one in ("members", "transitional", "destinations")})
        return not any(event.kind in SHOWN for event in events)  # they hold names as JSON

    return change


def commits(events: Trace) -> bool:
    return any(event.kind == DECIDE for event in events)


changes("labels",
    ("weaker protocol at one member", FAIL, "One member's rows name an order that promises less, and it swaps two deliveries.",
     then(rows(is_odd, protocol=other_order), swap)),
    ("protocol of one row", FAIL, "One row names another order than the rest of its life.", row(DELIVER, protocol=other_order)),
    ("service of one delivery", FAIL, "One delivery is of another service than its CAST.",
     then(row(DELIVER, service=lambda event: "fifo" if event.service != "fifo" else "total"), count_anew)),
    ("placeholders everywhere", FAIL, "Nobody delivers a message: all, its caster too, call it void.",
     of_first_delivery(of(DELIVER), kind=PLACE, attributes=void)),
    ("no transitional set", FAIL, "A member that swapped two deliveries does not say who came along.",
     then(row(VIEW, -1, transitional=None), swap)),
    ("no origin of a view", FAIL, "… and not from which view it came either.",
     then(row(VIEW, -1, transitional=None, previous_view=None), swap)),
    ("no transitional sets at all", FAIL, "One member swaps two deliveries, and nobody's row says who came along, or from where.",
     then(rows(of(VIEW), transitional=None, previous_view=None), swap)),
    ("delivery without a digest", EITHER, "One delivery does not say what it delivered.", row(DELIVER, digest=None)),
    ("no digests", EITHER, "No row says what the payloads were.", rows(digest=None)),
    ("another group", EITHER, "One member's rows are of another group.", rows(is_odd, group="another")),
    ("renamed member", EITHER, "One member's rows are of an address that no view lists.",
     rows(lambda event: is_odd(event) and event.kind != CAST, member="z")),
    ("clock that runs backwards", PASS, "A row is earlier than the row before: worth a note, but no order is judged by clocks.",
     row(DELIVER, 1, time_ns=0)),
    ("group named like the unknown", EITHER,
     "One member swaps two deliveries in a group whose name stands for groups that are not known.",
     then(rows(group="?"), swap)),
    ("no vectors", UNKNOWN, "No CAST carries the vector that the order owes.", without_vectors("abc")),
    ("no vectors of one member", UNKNOWN, "One member's casts carry no vectors, where the order owes them.", without_vectors(ODD)),
    ("transitional set with a name twice", FAIL,
     "A member that swapped two deliveries names another one twice among those that came along.",
     then(row(VIEW, -1, transitional=lambda event: (*(event.transitional or ()), "a")), swap)),
    ("names with a bar", FAIL, "All members call one that came along otherwise, behind the sign that divides facts.",
     rows(lambda event: event.kind == VIEW and "a" in (event.transitional or ()),
          transitional=lambda event: tuple("A|a" if one == "a" else one for one in event.transitional or ()))),
    ("previous view without a name", FAIL, "A member came into its first view from one with an empty name.",
     row(VIEW, previous_view="")),
    ("message for nobody", FAIL, "A message has an empty list of recipients, in all rows that name it.",
     of_first_delivery(destinations=())),
    ("clock before zero", PASS, "All times are negative.", rows(time_ns=lambda event: event.time_ns - 10**15)),
    *((f"name {what}", PASS, "A member has an unusual name, in all rows.", renamed(name)) for what, name in (
        ("with a comma", "b,c"), ("with a bar", "b|c"), ("of a question mark", "?"), ("with a zero byte", "b\0"),
        ("with a line break", "b\nc"), ("with spaces", " b c "), ("of other letters", "β\u0308"), ("with a quote", "b'\"c"),
    )),
    ("no transactions", UNKNOWN, "No row names a transaction, and there are no votes and decisions.",
     then(commits, without(of(VOTE, DECIDE)), rows(transaction=None), count_anew)),
    ("no transactions on decisions and deliveries", FAIL,
     "One member's decisions and deliveries do not say of which transaction they are.",
     then(rows(lambda event: is_odd(event) and event.kind in (DECIDE, DELIVER), transaction=None), commits)),
    ("delivered though aborted", FAIL, "All decide to abort everything, and deliver it without a word of transactions.",
     then(rows(of(DELIVER), transaction=None), any_rows(of(DECIDE), decision="abort"))),
    ("recovery without a failure", FAIL, "A member never votes, and all call their decisions a recovery.",
     then(commits, without(lambda event: event.kind == VOTE and is_odd(event)),
          rows(of(DECIDE), attributes={"recovery": "true"}), count_anew)),
    ("safe messages without vectors", UNKNOWN, "No vectors, and all messages are called safe.",
     then(without_vectors("abc"), any_rows(of(CAST), attributes={"safe": "true"}))),
)  # fmt: skip


@case("labels", FAIL)
def wrong_vector_of_a_safe_message(events: Trace) -> bool:
    """A vector counts too much, and its message is called safe."""
    at = rows_of(events, CAST)[-1]
    if "vector" not in (events[at].attributes or {}):
        return False
    put(events, at, attributes={"vector": "[7,7]", "safe": "true"})
    return True


# Rows: what a faulty member, or a lost write, would leave.


def swap_origins(events: Trace) -> bool:
    if "P9a" not in promises(events[0].protocol):
        return False
    for one, other in pairwise(rows_of(events, DELIVER)):
        x, y = events[one], events[other]
        if x.origin != y.origin and x.view == y.view and x.service == y.service == "total":
            exchange(events, one, other)
            return True
    return False


@case("rows", FAIL)
def undelivered_cast(events: Trace) -> None:
    """A message is cast that nobody delivers."""
    row = events[rows_of(events, CAST)[-1]]
    events[:] = [event for event in events if not (event.kind in (DELIVER, PLACE) and same_message(event, row))]
    count_anew(events)


@case("rows", FAIL)
def index_twice(events: Trace) -> None:
    """Two rows of one life have one local index."""
    at = rows_of(events, DELIVER)[-1]
    other = replace(events[at], kind=SUSPECT, view=None, origin=None, first=None, count=None, ordinal=None)
    events.insert(at + 1, other)


@case("rows", FAIL)
def delivered_before_its_cast(events: Trace) -> None:
    """A caster delivers its own message before it casts it."""
    own = next(at for at in rows_of(events, DELIVER) if events[at].origin == ODD)
    at = next(at for at in rows_of(events, CAST) if events[at].first == events[own].first)
    events.insert(at, events.pop(own))
    count_anew(events)


@case("rows", UNKNOWN)
def cut_off_life(events: Trace) -> None:
    """A life stops in the middle."""
    mine = [event for event in events if event.member == ODD]
    events[:] = [event for event in events if event.member != ODD] + mine[: len(mine) // 2]


@case("rows", FAIL)
def row_behind_the_end(events: Trace) -> None:
    """A life goes on after it has ended."""
    last = [event for event in events if event.member == ODD][-1]
    events.append(replace(last, kind=SUSPECT, local_index=last.local_index + 1))


@case("rows", FAIL)
def other_beginning(events: Trace) -> None:
    """A life begins with neither JOIN nor VIEW."""
    put(events, next(at for at, event in enumerate(events) if event.member == ODD), kind=SUSPECT)


@case("rows", UNKNOWN)
def first_row_missing(events: Trace) -> None:
    """A life begins with its second row."""
    del events[next(at for at, event in enumerate(events) if event.member == ODD)]


@case("rows", FAIL)
def circle_of_casts(events: Trace) -> bool:
    """Two members each deliver the other's first message before they cast their own."""
    pair = [events[rows_of(events, CAST, member)[0]] for member in ("a", ODD)]
    for own, other in (pair, reversed(pair)):
        at = next(at for at, e in enumerate(events) if e.kind == CAST and e.member == own.member)
        its = next(i for i in rows_of(events, DELIVER, own.member) if same_message(events[i], other))
        if its > at:
            events.insert(at, events.pop(its))
    count_anew(events)
    return pair[0].destinations is None and pair[0].view == pair[1].view


@case("rows", FAIL)
def casts_in_another_order(events: Trace) -> None:
    """A member casts its second message before its first."""
    one, other = rows_of(events, CAST)[:2]
    events[one], events[other] = events[other], events[one]
    count_anew(events)


@case("rows", FAIL)
def batches_that_overlap(events: Trace) -> None:
    """A member casts a batch that reaches into its next one, and all deliver it so."""
    row = events[rows_of(events, CAST)[0]]
    put_all(events, lambda event: same_message(event, row), count=(row.count or 0) + 1)


def other_digest(event: Event) -> int:
    return (event.digest or 0) ^ 1


changes("rows",
    ("lost delivery", FAIL, "One member does not deliver a message.", lose),
    ("hole", UNKNOWN, "A row is missing, and the indices show it.", without_row(DELIVER)),
    ("delivered twice", FAIL, "One member delivers a message again.", again(DELIVER)),
    ("swapped deliveries", FAIL, "One member delivers two messages of one origin in the other order.", swap),
    ("swapped origins", FAIL,
     "One member delivers two messages of two origins in the other order, where a total order is owed.", swap_origins),
    ("altered payload", FAIL, "A delivery has another payload than its CAST.", row(DELIVER, digest=other_digest)),
    ("altered cast", FAIL, "A CAST has another payload than all of its deliveries.", row(CAST, digest=other_digest)),
    ("removed cast", FAIL, "A message is delivered that its origin did not cast.", then(without_row(CAST), count_anew)),
    ("invented delivery", FAIL, "One member delivers a message beyond what its origin cast.", again(DELIVER, -1, first=10_000)),
    ("shifted ordinal", FAIL, "A delivery's ordinal is not the next one.",
     row(DELIVER, 1, ordinal=lambda event: (event.ordinal or 0) + 1)),
    ("longer batch", FAIL, "One member delivers one message more of a batch than was cast.",
     row(DELIVER, -1, count=lambda event: (event.count or 0) + 1)),
    ("delivery of a stranger", EITHER, "A delivery names an origin that is in no view.", row(DELIVER, origin="zz")),
    ("no ending", UNKNOWN, "A life stops without END, LEAVE or CRASH.", without(lambda e: is_odd(e) and e.kind in ENDINGS)),
    ("missing life", UNKNOWN, "A member of the views has no rows.", without(is_odd)),
    ("nothing happens", PASS, "All members join and end, and that is all.",
     then(without(lambda event: event.kind not in (JOIN, *ENDINGS)), count_anew)),
    ("index cast twice", FAIL, "A member casts two messages with one index, and the second one is delivered.",
     again(CAST, before=True, digest=other_digest)),
)  # fmt: skip


# Claims that used to excuse what they should not, and rows whose absence nobody noticed.


@case("rows", FAIL)
def safe_index_cast_twice(events: Trace) -> None:
    """A safe message is cast again under its index, to some."""
    at = rows_of(events, CAST)[0]
    put(events, at, attributes=with_attributes(safe="true"))
    put_all(events, of(VIEW), attributes=with_attributes(primary="true"))
    again(CAST, destinations=("a", "b", "c"))(events)


@case("rows", FAIL)
def joined_again(events: Trace) -> None:
    """A JOIN row in the middle of a life."""
    at = rows_of(events, DELIVER)[2]
    batch = dict.fromkeys(
        ("origin", "origin_incarnation", "first", "count", "service", "ordinal", "position", "digest")
    )
    events.insert(at, replace(events[at], kind=JOIN, view=None, transaction=None, attributes=None, **batch))  # type: ignore[arg-type]
    count_anew(events)


@case("rows", FAIL)
def placeholders_of_a_stranger(events: Trace) -> None:
    """Every member that stays places messages that nobody cast, of a member that there is not."""
    for member in "ab":
        at = rows_of(events, DELIVER, member)[-1]
        invented = replace(events[at], kind=PLACE, origin="zz", first=0, count=5, destinations=("qq",), attributes=None)
        events.insert(at + 1, replace(invented, digest=None))
    count_anew(events)


@case("rows", FAIL)
def payload_that_is_void_beside_its_caster(events: Trace) -> bool:
    """All addressees of a message call it void, though its caster, which is none of them, stays."""
    row = next((e for e in events if e.kind == CAST and e.destinations and e.member not in e.destinations), None)
    if row is None:
        return False
    put_all(events, lambda e: e.kind == DELIVER and same_message(e, row), kind=PLACE, digest=None, attributes=void)
    return True


# Views.


@case("views", FAIL)
def member_out_of_every_list(events: Trace) -> None:
    """No list of a view holds a member that casts in it."""
    of_last_view(of(VIEW), members=("a",))(events)


@case("views", FAIL)
def delivery_moved_into_the_next_view(events: Trace) -> None:
    """A member delivers a message in the view behind the one in which it was cast."""
    at = rows_of(events, DELIVER)[0]
    later = next(view for view in rows_of(events, VIEW) if view > at)
    row = events.pop(at)
    events.insert(later, replace(row, view=events[later - 1].view))
    count_anew(events)


@case("views", FAIL)
def row_that_names_another_view(events: Trace) -> None:
    """A delivery names a view that its member has not installed yet."""
    put(events, rows_of(events, DELIVER)[0], view=events[rows_of(events, VIEW)[-1]].view)


@case("views", FAIL)
def member_that_stays_behind(events: Trace) -> bool:
    """A member never installs the last view, and its END says that nothing was under way."""
    views = [events[at].view for at in rows_of(events, VIEW)]
    if len(views) < 2:
        return False
    events[:] = [e for e in events if e.view != views[-1] or (e.origin != ODD and (e.member != ODD or e.kind == END))]
    put(events, rows_of(events, END)[0], view=views[-2])
    count_anew(events)
    return True


changes("views",
    ("member left out", FAIL, "One member's list of a view lacks another member.", row(VIEW, -1, members=(ODD,))),
    ("list in another order", FAIL, "One member's list of a view has another order.",
     row(VIEW, -1, members=lambda event: tuple(reversed(event.members or ())))),
    ("stranger in a list", EITHER, "One member's list of a view has one name more.", row(VIEW, -1, members=with_members("zz"))),
    ("stranger in every list", EITHER, "All lists of a view have one name more, of which there is no trace.",
     of_last_view(of(VIEW), members=with_members("zz"))),
    ("view number goes back", FAIL, "A later view has a lower number, in all rows that name it.", of_last_view(view="0@a")),
    ("view renamed at one member", EITHER, "One member calls a view otherwise than the others.",
     of_last_view(is_odd, view="99@b")),
    ("view that nobody installed", FAIL, "A member's VIEW row is gone, and its rows count on.",
     then(without_row(VIEW, -1), count_anew)),
    ("other previous view", FAIL, "A member says that it came from another view than it had installed.",
     row(VIEW, -1, previous_view="99@b")),
    ("member twice in every list", FAIL, "All lists of a view name one member twice.",
     of_last_view(of(VIEW), members=with_members("a"))),
    ("view installed again", FAIL, "A member installs its last view twice.", again(VIEW, -1)),
    ("empty lists", FAIL, "No list of a view names anybody.", of_last_view(of(VIEW), members=())),
    ("view number of twenty digits", UNKNOWN, "The number of the last view is larger than 64 bits hold, in all rows that name it.",
     of_last_view(view="9" * 20 + "@a")),
    ("view number of five thousand digits", UNKNOWN, "… or larger than Python reads.", of_last_view(view="9" * 5_000 + "@a")),
)  # fmt: skip


# Orders.


@case("orders", FAIL)
def another_order_in_one_later_view_row(events: Trace) -> bool:
    """One member's last VIEW row names another order, and it swapped two deliveries before."""
    at = rows_of(events, VIEW)[-1]
    order = events[at].reason or events[at].protocol
    put(events, at, reason="rmp" if order == "fifo" else "fifo")
    return swap(events)


@case("orders", FAIL)
def another_order_in_the_first_view_row(events: Trace) -> bool:
    """One member's first view has another order, and it swaps two deliveries there."""
    at = next(at for at in rows_of(events, VIEW) if len(events[at].members or ()) == 3)
    put(events, at, reason=other_order)
    return swap(events)


@case("orders", FAIL)
def order_that_carries_other_services(events: Trace) -> bool:
    """All VIEW rows name an order that does not carry what was cast, and one member swaps two deliveries."""
    services = {event.service for event in events if event.kind == DELIVER}
    put_all(events, of(VIEW), reason="causal" if "causal" not in services else "fifo")
    return swap(events)


@case("orders", EITHER)
def protocols_that_all_differ(events: Trace) -> None:
    """Every member names another order."""
    orders = dict(zip("abc", ("fifo", "rmp", "toto"), strict=True))
    put_all(events, lambda event: event.member in orders, protocol=lambda event: orders[event.member])


@case("orders", PASS)
def empty_order_in_a_view_row(events: Trace) -> bool:
    """One VIEW row has an empty order, which is none: its protocol counts."""
    put(events, rows_of(events, VIEW)[0], reason="")
    return not any(event.reason for event in events if event.kind == VIEW)


changes("orders",
    ("unknown order", UNKNOWN, "All rows name an order of which nothing is known.", orders("raft")),
    ("unknown order and a swap", EITHER, "… and one member swaps two deliveries.", then(orders("raft"), swap)),
    ("unknown order and a fault that every order forbids", FAIL, "… or delivers one twice.", then(orders("raft"), again(DELIVER))),
    ("unknown order in one view", EITHER,
     "All members name an unknown order for the last view, and one swaps two deliveries in it.",
     then(of_last_view(of(VIEW), reason="raft"), lambda events: swap(events, first_view=False))),
    ("unknown order in another view", FAIL,
     "All members name an unknown order for the last view, and one swaps two deliveries in the first.",
     then(of_last_view(of(VIEW), reason="raft"), swap)),
    ("order that owes nothing", UNKNOWN, "All rows name a list of properties that is empty.", orders("owes ")),
    ("order that owes what there is not", EITHER,
     "All rows name a list with a property that there is not, and one member swaps two deliveries.",
     then(orders("owes P1,P99"), swap)),
    ("list with an unknown property and a broken one", FAIL,
     "All rows list a property that there is not beside one that a member breaks.", then(orders("owes P2,P6,P99"), swap)),
    ("list with an unknown property", UNKNOWN, "… or that nobody breaks.", orders("owes P2,P6,P99")),
    ("list with a space", UNKNOWN, "All rows list a property with a space before it, and one member breaks that property.",
     then(orders("owes P2, P6"), swap)),
    ("list with a line break", UNKNOWN, "… or with a line break behind it.", then(orders("owes P2,P6\n"), swap)),
    ("very long list", FAIL, "The property that a member breaks comes last in a list of thousands.",
     then(orders(f"owes {'P2,' * 4_000}P6"), swap)),
    ("order with a line break", UNKNOWN, "All rows name their order with a line break behind it.",
     orders(lambda event: f"{event.protocol}\n")),
    ("list with a service that nobody judges", UNKNOWN,
     "A list owes a total order, and all messages are of a service in capitals; two are swapped.",
     then(swap_origins, orders("owes P1,P9a,P9c,P14"), rows(lambda event: event.service is not None, service="TOTAL"), count_anew)),
    ("list of what nobody recorded", UNKNOWN, "A list owes what needs rows that there are not.",
     orders("owes P17,P19,P20,P22,P23")),
    ("list beside a known order", FAIL,
     "VIEW rows name a short list, the other columns the order that the members ran, and a message is lost.",
     then(rows(of(VIEW), reason="owes P0"), lose)),
)  # fmt: skip


# The schema.


def tables(change: Callable[[pyarrow.Table], pyarrow.Table], chosen: Chosen = is_odd) -> Write:
    """Every life as a Parquet file, with other tables in the place of some."""

    def write(folder: Path, events: Trace) -> None:
        for life in lives_of(events).values():
            table = arrow_table(life)
            pq.write_table(change(table) if chosen(life[0]) else table, segment(folder, life[0]))

    return write


def all_tables(change: Callable[[pyarrow.Table], pyarrow.Table]) -> Write:
    return tables(change, lambda event: True)


def column(name: str, change: Callable[[Any], Any]) -> Callable[[pyarrow.Table], pyarrow.Table]:
    """Another column in the place of one."""
    return lambda table: table.set_column(table.schema.get_field_index(name), name, change(table.column(name)))


def column_of(name: str, value: Any, kind: Any = None) -> Callable[[pyarrow.Table], pyarrow.Table]:
    """A column that holds one value everywhere."""
    return column(name, lambda column: pyarrow.array([value] * len(column), kind))


def each(name: str, kind: Any, change: Callable[[Any], Any]) -> Callable[[pyarrow.Table], pyarrow.Table]:
    """Another value in every row of a column."""
    return column(name, lambda column: pyarrow.array([change(value) for value in column.to_pylist()], kind))


def of_type(wanted: Callable[[Any], Any]) -> Callable[[pyarrow.Table], pyarrow.Table]:
    """A table whose columns are of the types that are wanted in the place of theirs."""

    def change(table: pyarrow.Table) -> pyarrow.Table:
        fields = [pyarrow.field(field.name, wanted(field.type) or field.type) for field in table.schema]
        return table.cast(pyarrow.schema(fields))

    return change


def cast(name: str, kind: Any, **options: Any) -> Callable[[pyarrow.Table], pyarrow.Table]:
    return column(name, lambda column: column.cast(kind, **options))


def narrow(table: pyarrow.Table) -> pyarrow.Table:
    return column("member", lambda column: column.dictionary_encode())(cast("local_index", pyarrow.int32())(table))


TEXT, NUMBER = pyarrow.string(), pyarrow.int64()
PAIRS = pyarrow.map_(TEXT, TEXT)


def not_words(column: Any) -> Any:
    return pyarrow.array([b"\xff\xfe"] * len(column), pyarrow.binary()).view(TEXT)


def pairs_of_bytes(column: Any) -> Any:
    names = pyarrow.array(["x"] * len(column))
    return pyarrow.MapArray.from_arrays(list(range(len(column) + 1)), names, not_words(column))


def lines(change: Callable[[list[str]], str] = "".join, ending: str = "jsonl", newline: str = "\n") -> Write:
    """Every life as lines of JSON, those of the odd member changed."""

    def write(folder: Path, events: Trace) -> None:
        for life in lives_of(events).values():
            told = [to_line(event) for event in life]
            text = change(told) if is_odd(life[0]) else "".join(told)
            segment(folder, life[0], 0, ending).write_bytes(text.replace("\n", newline).encode())

    return write


def in_lines(old: str, new: str) -> Write:
    return lines(lambda told: "".join(told).replace(old, new))


def in_the_middle(line: str, instead: bool = False) -> Write:
    """A line more in the middle, or another one there."""

    def change(told: list[str]) -> str:
        middle = len(told) // 2
        return "".join([*told[:middle], line, *told[middle + instead :]])

    return lines(change)


writes("schema",
    ("no column of digests", EITHER, "A file lacks a column that may be null.", tables(lambda t: t.drop_columns(["digest"]))),
    ("no column of kinds", UNKNOWN, "A file lacks a column that every row needs.", tables(lambda t: t.drop_columns(["kind"]))),
    ("another version", UNKNOWN, "A file is of a version of the schema that nobody knows.",
     tables(lambda table: table.replace_schema_metadata({"unisono.schema": "99"}))),
    ("numbers that are words", UNKNOWN, "A column of numbers holds words.", tables(column_of("local_index", "one"))),
    ("words that are not utf8", UNKNOWN, "A column of words holds bytes that are none.",
     tables(column_of("reason", b"\xff\xfe"))),
    ("list with a hole", UNKNOWN, "Lists of members hold a null.",
     tables(each("members", pyarrow.list_(TEXT), lambda names: names and [*names, None]))),
    ("column twice", UNKNOWN, "A file has two columns of one name.",
     tables(lambda table: table.append_column("digest", table.column("digest")))),
    ("numbers with fractions", UNKNOWN, "A column of numbers holds halves.",
     tables(column("first", lambda column: pc.add(column.cast(pyarrow.float64()), 0.5)))),
    ("positions that are words", UNKNOWN, "A column that no digest covers is of another type.", tables(column_of("position", "x"))),
    ("half a character", UNKNOWN, "A line of JSON escapes one half of a pair of surrogates.",
     in_lines('"kind":"END"', '"kind":"END","transaction":"\\ud800"')),
    ("extra column", PASS, "A file has a column more.",
     tables(lambda table: table.append_column("extra", pyarrow.array(range(len(table)))))),
    ("columns in another order", PASS, "The columns of a file are in another order.",
     tables(lambda table: table.select(list(reversed(table.column_names))))),
    ("other types", PASS, "Columns are as wide as they must be, and strings are codes.", tables(narrow)),
    ("wide words everywhere", PASS, "Words of all files are of the type that holds more of them.",
     all_tables(of_type(lambda kind: kind == TEXT and pyarrow.large_string()))),
    ("wide lists everywhere", PASS, "Lists of all files are of the type that holds more of them.",
     all_tables(of_type(lambda kind: kind == pyarrow.list_(TEXT) and pyarrow.large_list(TEXT)))),
    ("codes everywhere", PASS, "Words of all files are codes.",
     all_tables(of_type(lambda kind: kind == TEXT and pyarrow.dictionary(pyarrow.int32(), TEXT)))),
    ("times that are times", PASS, "The times of all files are of the type of times.",
     all_tables(cast("time_ns", pyarrow.timestamp("ns")))),
    ("attribute without a value", PASS, "An attribute of every row is null.",
     tables(each("attributes", PAIRS, lambda pairs: [*(pairs or ()), ("nothing", None)]))),
    ("attribute twice", PASS, "Every attribute is there twice, and the second one counts.",
     tables(each("attributes", PAIRS, lambda pairs: [*((name, "[7]") for name, _ in pairs or ()), ("x", "y"), *(pairs or ())]))),
    ("frontier with a hole", UNKNOWN, "A list that no digest covers holds a null.",
     tables(each("frontier", pyarrow.list_(NUMBER), lambda some: some and [*some, None]))),
    ("bytes in a column of words", UNKNOWN, "A column of words that no digest covers holds bytes that are none.",
     tables(column("transaction", not_words))),
    ("bytes in an attribute", UNKNOWN, "An attribute holds bytes that are no words.", tables(column("attributes", pairs_of_bytes))),
    ("null in an attribute of a line", UNKNOWN, "A line of JSON has an attribute that is null.",
     in_lines('"kind":"END"', '"kind":"END","attributes":{"x":null}')),
)  # fmt: skip
changes("schema", ("unsigned numbers everywhere", FAIL,
    "Numbers of all files are of a type without a sign, and one member swaps two deliveries.", swap,
), write=all_tables(cast("first", pyarrow.uint64())))  # fmt: skip
changes("schema",
    ("unknown kind", UNKNOWN, "A row is of a kind that there is not.", row(DELIVER, kind="DELIVERED")),
    ("delivery without an ordinal", UNKNOWN, "A row lacks what its kind needs.", row(DELIVER, ordinal=None)),
    ("negative index", UNKNOWN, "A number is below zero.", row(DELIVER, first=-1)),
    ("unknown clock", UNKNOWN, "A row tells the time of a clock that there is not.", row(DELIVER, clock="sundial")),
    ("empty batch in a row without one", UNKNOWN, "A row that needs no count has one of zero.", row(END, count=0)),
    ("batch of too many", UNKNOWN, "A delivery says that it is of more messages than anyone could look at.",
     row(DELIVER, -1, count=2**40)),
    ("index at the end of all numbers", UNKNOWN, "A delivery's index has no successor.", row(DELIVER, -1, first=2**63 - 1)),
    ("view without a number", UNKNOWN, "A view's name is not number@proposer.", row(DELIVER, view="first")),
    ("decision in capitals", UNKNOWN, "A member decides again, in a word that there is not.",
     lambda events: bool(rows_of(events, DECIDE)) and again(DECIDE, before=True, decision="ABORT")(events)),
)  # fmt: skip


@case("schema", UNKNOWN)
def row_of_another_kind_without_a_view(events: Trace) -> bool:
    """A row that no digest covers names a view without a number."""
    others = [at for at, e in enumerate(events) if is_odd(e) and e.kind not in (VIEW, CAST, DELIVER, PLACE, END)]
    for at in others[:1]:
        put(events, at, view="nonsense")
    return bool(others)


# Files.


def beside(change: Callable[[Path, Trace], object]) -> Write:
    """The segments, and something done with the folder and the rows of the odd member."""

    def write(folder: Path, events: Trace) -> None:
        as_segments(folder, events)
        change(folder, [event for event in events if is_odd(event)])

    return write


def odd_file(number: int, change: Callable[[bytes], bytes]) -> Callable[[Path, Trace], object]:
    """Another content of one of the odd member's segments."""

    def changed(folder: Path, life: Trace) -> None:
        path = segment(folder, life[0], number)
        path.write_bytes(change(path.read_bytes()))

    return changed


def told_again(number: int, ending: str, change: Callable[[str], str] = str) -> Write:
    """The odd member's rows are there as lines of JSON, too."""
    return beside(
        lambda folder, life: segment(folder, life[0], number, ending).write_text(change("".join(map(to_line, life))))
    )


def in_thirds(folder: Path, events: Trace, numbers: tuple[int, ...] = (0, 1, 2)) -> None:
    for life in lives_of(events).values():
        third = -(-len(life) // 3)
        for at, number in enumerate(numbers):
            write_parquet(segment(folder, life[0], number), life[at * third : (at + 1) * third])


def segment_without_rows(folder: Path, events: Trace) -> None:
    for life in lives_of(events).values():
        table = arrow_table(life)
        with pq.ParquetWriter(segment(folder, life[0]), table.schema) as writer:
            for part in (table.slice(0, 0), table, table.slice(0, 0)):
                writer.write_table(part)
        write_parquet(segment(folder, life[0], 1), [])


def all_files_damaged(folder: Path, events: Trace) -> None:
    as_segments(folder, events)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-100] + path.name.encode())


def missing_segment(folder: Path, events: Trace) -> None:
    in_thirds(folder, events)
    segment(folder, next(filter(is_odd, events)), 1).unlink()


def small_row_groups(folder: Path, events: Trace) -> None:
    for life in lives_of(events).values():
        pq.write_table(arrow_table(life), segment(folder, life[0]), row_group_size=7)


def subfolders(folder: Path, events: Trace) -> None:
    for (member, _), life in lives_of(events).items():
        (folder / member).mkdir()
        as_segments(folder / member, life)


def open_twin_of_another_story(folder: Path, life: Trace) -> None:
    put(life, len(life) // 2, time_ns=lambda event: event.time_ns + 1)
    segment(folder, life[0], 0, "open.jsonl").write_text("".join(map(to_line, life)))


def folder_named_as_a_file(folder: Path, events: Trace) -> None:
    (folder / "trace.parquet").mkdir()
    as_segments(folder / "trace.parquet", events)
    (folder / "gone.jsonl").symlink_to(folder / "nothing")
    os.mkfifo(folder / "fifo.parquet")


def names_of_other_lives(folder: Path, events: Trace) -> None:
    lives = list(lives_of(events).values())
    for life, other in zip(lives, [*lives[1:], lives[0]], strict=True):
        write_parquet(segment(folder, other[0]), life)


def stranger(folder: Path, life: Trace, ending: str = "parquet") -> Path:
    """A file with the name of a member that no view lists."""
    return segment(folder, replace(life[0], member="z"), 0, ending)


writes("files",
    ("lines that end otherwise", PASS, "Lines of JSON end with a carriage return, too.", lines(newline="\r\n")),
    ("byte order mark", UNKNOWN, "A file of JSON lines begins with a sign that tells the order of its bytes.",
     lines(lambda told: "\ufeff" + "".join(told))),
    ("empty line", UNKNOWN, "A file of JSON lines has an empty line in the middle.", in_the_middle("\n")),
    ("segment without rows", PASS,
     "A life has a further segment that holds no row, and a row group of another one is empty.", segment_without_rows),
    ("lines without rows", PASS, "A life has a further segment of JSON lines that is empty.",
     beside(lambda folder, life: segment(folder, life[0], 1, "jsonl").write_text(""))),
    ("damaged file of a stranger", UNKNOWN, "A file that cannot be read has the name of a member that no view lists.",
     beside(lambda folder, life: stranger(folder, life).write_bytes(b"PAR1 damaged PAR1"))),
    ("all files damaged", UNKNOWN, "No file of the run can be read.", all_files_damaged),
    ("missing segment", UNKNOWN, "The second of three segments of a life is gone.", missing_segment),
    ("truncated segment", UNKNOWN, "A Parquet file ends too early.", beside(odd_file(0, lambda data: data[:-100]))),
    ("empty segment", UNKNOWN, "A Parquet file is empty.", beside(odd_file(0, lambda data: b""))),
    ("torn line", UNKNOWN, "An open segment ends in the middle of its last line.",
     lines(lambda told: "".join(told)[:-20], "open.jsonl")),
    ("line that is not json", UNKNOWN, "A line in the middle cannot be read.", in_the_middle("{\n", instead=True)),
    ("overlapping segments", FAIL, "A second segment repeats the last rows of the first.",
     beside(lambda folder, life: write_parquet(segment(folder, life[0], 1), life[-2:]))),
    ("rows in two forms", FAIL, "A life is there as Parquet, and as JSON lines that call themselves its next segment.",
     told_again(1, "jsonl")),
    ("split segments", PASS, "Every life lies in three segments.", in_thirds),
    ("rows in another order", PASS, "The rows of every file lie in it backwards.",
     lambda folder, events: as_segments(folder, list(reversed(events)))),
    ("segments in another order", PASS, "The numbers of the segments run against their rows.",
     lambda folder, events: in_thirds(folder, events, (2, 1, 0))),
    ("small row groups", PASS, "Files have row groups of seven rows.", small_row_groups),
    ("json lines", PASS, "The rows are written as JSON lines.", lines()),
    ("subfolders", PASS, "Every life lies in a folder of its own.", subfolders),
    ("open twin", PASS, "The open form of a finished segment is still there.", told_again(0, "open.jsonl")),
    ("torn line after the end", UNKNOWN, "An open segment goes on after the END of its member, with half a line.",
     lines(lambda told: "".join([*told, told[0][:20]]), "open.jsonl")),
    ("torn line of a stranger", UNKNOWN, "The open segment of a member that no view lists is half a line.",
     beside(lambda folder, life: stranger(folder, life, "open.jsonl").write_text('{"run":'))),
    ("open twin of another story", UNKNOWN,
     "The open form of a finished segment is still there, and one of its rows says something else.",
     beside(open_twin_of_another_story)),
    ("open twin with a torn line", PASS, "The open form of a finished segment is still there, and its last line is torn.",
     told_again(0, "open.jsonl", lambda text: text[:-20])),
    ("folder named as a file", PASS,
     "The files lie in a folder that is named as a file, with a link that leads nowhere and a FIFO beside them.",
     folder_named_as_a_file),
    ("number in other digits", PASS, "An empty file is named as a segment, with a number in digits of another kind.",
     beside(lambda folder, _: (folder / f"{folder.name.replace('.', '-')}.b.\N{SUPERSCRIPT TWO}.000001.jsonl").write_text(""))),
    ("digest twice in a line", UNKNOWN, "Every digest of a member is there twice in its line, and the first one is another.",
     in_lines('"digest":', '"digest":5,"digest":')),
    ("digests that have lost digits", UNKNOWN, "The digests are numbers of floating point.",
     all_tables(cast("digest", pyarrow.float64(), safe=False))),
    ("names of other lives", PASS, "The files of two members have each other's names.", names_of_other_lives),
)  # fmt: skip


def one_file(folder: Path, events: Trace) -> None:
    write_parquet(folder / f"{folder.name}.parquet", sorted(events, key=lambda event: event.time_ns))


def bad_row_in_one_file(folder: Path, events: Trace) -> None:
    changed = list(events)
    put(changed, rows_of(changed, DELIVER)[0], ordinal=None)
    one_file(folder, changed)


def open_file_with_a_name_of_its_own(folder: Path, events: Trace) -> None:
    changed = list(events)
    swap(changed)
    write_parquet(folder / f"{folder.name}.parquet", [replace(event, run=f"{event.run}, clean") for event in events])
    (folder / f"{folder.name}.open.jsonl").write_text("".join(map(to_line, changed)))


def renamed_files(folder: Path, events: Trace) -> None:
    for number, life in enumerate(lives_of(events).values()):
        write_parquet(folder / f"{folder.name}-{number}.parquet", life)


writes("files",
    ("bad row in one file", UNKNOWN, "All rows are in one file, and one of them cannot be used.", bad_row_in_one_file),
    ("open file with a name of its own", FAIL,
     "A run in `log.open.jsonl` has lost a delivery; `log.parquet` beside it holds another run.", open_file_with_a_name_of_its_own),
    ("renamed files", PASS, "The files have names of their own.", renamed_files),
    ("one file", PASS, "All rows are compacted into one file, in the order of their times.", one_file),
    is_named=False,
)  # fmt: skip


# What applications are shown.


def receipt(**values: Any) -> Change:
    return lambda events: bool(rows_of(events, RECEIPT)) and row(RECEIPT, **values)(events)


def shown_last(**values: str) -> Change:
    """Give the last SHOW row of the odd member other attributes."""
    return lambda events: bool(rows_of(events, SHOW)) and row(SHOW, -1, attributes=with_attributes(**values))(events)


WRONG_TOTALS = {"digest": "0" * 16, "shown": "3"}
changes("labels",
    ("receipt of what was not cast", FAIL, "A receipt is of an index that was never cast.", receipt(first=10**6)),
    ("receipt of another's message", FAIL, "A receipt is of another member's message.", receipt(origin="a")),
    ("receipt of another life", FAIL, "A receipt is of a later life's message.", receipt(origin_incarnation=7)),
    ("receipt without attributes", UNKNOWN, "A receipt says nothing.", receipt(attributes=None)),
    ("receipt of an unknown stage", UNKNOWN, "A receipt names no stage.", receipt(attributes={"stage": "stabel", "outcome": "ok"})),
    ("restored from nothing", FAIL, "An application was shown other messages, and its state is said to have been restored.",
     shown_last(restored="true", **WRONG_TOTALS)),
    ("primary for all but one", FAIL, "One application is told that a view is not primary.", shown_last(primary="false")),
)  # fmt: skip


@case("rows", FAIL)
def receipt_before_its_cast(events: Trace) -> bool:
    """A receipt comes before its message is cast."""
    at = rows_of(events, RECEIPT)[:1]
    if at:
        row = events.pop(at[0])
        events.insert(rows_of(events, VIEW)[0] + 1, row)
        count_anew(events)
    return bool(at)


@case("rows", UNKNOWN)
def state_from_nobody(events: Trace) -> bool:
    """… or a STATE row says so, where no member could have given one."""
    if shown_last(**WRONG_TOTALS)(events) is False:
        return False
    at = rows_of(events, TRANSITION)[-1]
    events.insert(at, replace(events[at], kind=STATE, attributes=None))
    put(events, at + 1, attributes=with_attributes(shown="1"))
    count_anew(events)
    return True


@case("labels", FAIL)
def companions_left_out(events: Trace) -> bool:
    """Applications are told that they came alone, and VIEW rows name both."""
    for at, event in enumerate(events):
        if event.kind in (SHOW, TRANSITION) and event.member in "ab":
            told = dict(event.attributes or {})
            other = "a" if event.member == "b" else "b"
            if event.kind == TRANSITION or "previous" in told:
                told["together"] = f'["{event.member}"]'
            if event.kind == SHOW and "previous" in told:
                told |= {"joined": f'["{other}"]', "left": f'["{other}","c"]'}
            put(events, at, attributes=told)
    return any(event.kind == SHOW for event in events)


@case("rows", UNKNOWN)
def receipts_without_views(events: Trace) -> bool:
    """An application is given receipts and shown nothing."""
    is_told = bool(rows_of(events, RECEIPT))
    then(without(lambda event: is_odd(event) and event.kind in (SHOW, TRANSITION)), count_anew)(events)
    return is_told


@case("rows", UNKNOWN)
def view_that_was_not_shown(events: Trace) -> bool:
    """A member comes to its END in a view that its application was not shown."""
    is_shown = bool(rows_of(events, SHOW))
    if is_shown:
        then(without_row(SHOW, -1), without_row(TRANSITION, -1), count_anew)(events)
    return is_shown


# Judges.


@dataclass(frozen=True)
class Said:
    """What a judge says of a modified run."""

    result: str
    broken: frozenset[str]
    unknown: frozenset[str]
    by: str = "plain"


@dataclass(frozen=True)
class Modified:
    """A run, modified and written to a folder."""

    case: Case
    source: str
    run: str
    folder: Path


def write_all(folder: Path, runs: Iterable[tuple[str, Trace]], cases: Iterable[Case]) -> list[Modified]:
    """Write every modification of every run, those with files without a segment's name apart."""
    cases, made = list(cases), []
    for source, events in runs:
        for kind in cases:
            run = f"{kind.name} of {source}"
            rows = [replace(event, run=run) for event in events]
            if kind.change(rows) is False:
                continue
            place = folder / ("named" if kind.is_named else "nameless") / run.replace(" ", "-")
            place.mkdir(parents=True)
            kind.write(place, rows)
            made.append(Modified(kind, source, run, place))
    return made


def judge_plainly(modified: Modified) -> Said:
    """As `unisono trace check` judges."""
    try:
        trace = read(modified.folder, tolerant=True)
    except TraceError as error:
        return Said(f"refused: {error}", frozenset(), frozenset())
    verdicts = judge_all(trace.events(), troubled=trace.troubled)
    return _together([(v.result.value, v.broken, v.unknown.keys(), "plain") for v in verdicts.values()])


def judge_on_spark(spark: SparkSession, folder: Path, made: Iterable[Modified], whole_rows_max: int) -> dict[str, Said]:
    """As `unisono trace verify` judges: all runs by one call, and those of nameless files by another."""
    from unisono.pipeline.verify import verify

    found: dict[str, list[Any]] = {}
    for part in ("named", "nameless"):
        if (folder / part).exists():
            for run in verify(spark, [folder / part], whole_rows_max=whole_rows_max).runs:
                broken = {violation.property for violation in run.violations}
                found.setdefault(run.run, []).append((run.result, broken, run.unknown.keys(), run.by))
    return {one.run: _together(found.get(one.run, [])) for one in made}


def _together(verdicts: list[Any]) -> Said:
    """Of several groups of one run: the worst."""
    results = {result for result, *_ in verdicts}
    result = next((one for one in (FAIL, UNKNOWN, PASS) if one in results), "nothing")
    broken = frozenset(one for _, some, _, _ in verdicts for one in some)
    unknown = frozenset(one for _, _, some, _ in verdicts for one in some)
    return Said(result, broken, unknown, ", ".join(sorted({by for *_, by in verdicts})))


def main(words: list[str]) -> None:
    """Print what each judge says of each kind of modification, or write it as a page."""
    from tempfile import TemporaryDirectory

    from rich.console import Console
    from rich.table import Table

    from unisono.pipeline.session import open_session

    page = Path(words[1]) if words[:1] == ["--page"] else None
    orders = words if page is None else words[2:]
    with TemporaryDirectory() as name:
        folder = Path(name)
        made = write_all(folder, sources(orders or ORDERS), CASES.values())
        spark = open_session("local[2]")
        judges = {
            "plain": {one.run: judge_plainly(one) for one in made},
            "digests, whole": judge_on_spark(spark, folder, made, 10**6),
            "digests, joins": judge_on_spark(spark, folder, made, 0),
        }
    rows = []
    wrong = 0
    for kind in CASES.values():
        runs = [one.run for one in made if one.case is kind]
        said = [
            ", ".join(f"{n} {r}" for r, n in Counter(by[run].result for run in runs).items()) for by in judges.values()
        ]
        wrong += sum(by[run].result not in kind.expected for by in judges.values() for run in runs)
        rows.append((kind.family, kind.name, str(len(runs)), kind.expected, *said))
    title = f"{len(CASES)} kinds of modification, {len(made)} runs"
    last = f"{wrong} verdicts that are not acceptable"
    columns = ("family", "kind", "runs", "acceptable", *judges)
    if page is not None:
        page.write_text(_page(words, title, last, columns, rows), "utf-8")
        return
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    Console(width=150).print(table, last)


def _page(words: list[str], title: str, last: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """The table as a page of the documentation."""
    meanings = {kind.name: " ".join(kind.meaning.split()) for kind in CASES.values()}
    lines = [
        "# What the judges say of modified traces",
        "",
        "Recorded runs of real members in virtual time are modified, each in one way, and judged by the",
        "plain checkers and on Spark: with small runs judged whole in one task, and by joins alone. All",
        "three should say what is acceptable, and the same.",
        "",
        "```console",
        f"$ python -m tests.pipeline.modifications {' '.join(words)}",
        "```",
        "",
        f"{title}; {last}.",
        "",
        *(f"| {' | '.join(row)} |" for row in (columns, ["---"] * 7, *rows)),
        "",
        "## The kinds",
        "",
        *(f"- **{name}**: {meaning}" for name, meaning in meanings.items()),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
