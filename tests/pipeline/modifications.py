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
from unisono.trace.parquet import write_parquet
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


def rows_of(events: Trace, kind: str, member: str = ODD) -> list[int]:
    return [at for at, event in enumerate(events) if event.kind == kind and event.member == member]


def put(events: Trace, at: int, **values: Any) -> None:
    events[at] = replace(events[at], **values)


def put_all(events: Trace, chosen: Callable[[Event], bool], **values: Any) -> int:
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
            one, other = events[last[event.origin]], event
            events[last[event.origin]] = replace(other, local_index=one.local_index, ordinal=one.ordinal)
            events[at] = replace(one, local_index=other.local_index, ordinal=other.ordinal)
            return True
        if is_in:
            last[event.origin] = at
    return False


def lose(events: Trace, last: bool = False) -> Event:
    """The odd member does not deliver a message of another one, and counts on as if nothing had been."""
    places = [at for at in rows_of(events, DELIVER) if events[at].origin != ODD and events[at].destinations is None]
    lost = events.pop(places[-1 if last else 0])
    count_anew(events)
    return lost


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
    change: Callable[[Trace], bool | None]
    """Change the rows; False: not with these."""
    write: Callable[[Path, Trace], None]
    is_named: bool = True
    """Its files have the names of segments."""
    meaning: str = ""


def lives_of(events: Trace) -> dict[tuple[str, int], Trace]:
    lives: dict[tuple[str, int], Trace] = {}
    for event in events:
        lives.setdefault((event.member, event.incarnation), []).append(event)
    return lives


def segment(folder: Path, event: Event, number: int = 0, ending: str = "parquet") -> Path:
    return folder / f"{stem_of(event.run, event.member, event.incarnation)}.{number:06}.{ending}"


def as_segments(folder: Path, events: Trace) -> None:
    """One Parquet file a life, in the order of its rows."""
    for rows in lives_of(events).values():
        write_parquet(segment(folder, rows[0]), rows)


def case(
    family: str,
    expected: str,
    write: Callable[[Path, Trace], None] = as_segments,
    is_named: bool = True,
) -> Callable[[Callable[[Trace], bool | None]], Callable[[Trace], bool | None]]:
    """A change of rows that belongs to a family."""

    def add(change: Callable[[Trace], bool | None]) -> Callable[[Trace], bool | None]:
        name = change.__name__.strip("_").replace("_", " ")
        meaning = (change.__doc__ or "").strip().splitlines()[0]
        CASES[name] = Case(name, family, expected, change, write, is_named, meaning)
        return change

    return add


def file_case(
    family: str, expected: str, is_named: bool = True
) -> Callable[[Callable[[Path, Trace], None]], Callable[[Path, Trace], None]]:
    """Another way to write the rows."""

    def add(write: Callable[[Path, Trace], None]) -> Callable[[Path, Trace], None]:
        name = write.__name__.replace("_", " ")
        meaning = (write.__doc__ or "").strip().splitlines()[0]
        CASES[name] = Case(name, family, expected, lambda events: True, write, is_named, meaning)
        return write

    return add


# Labels: what rows say of themselves, changed to cover something up.


@case("labels", FAIL)
def weaker_protocol_at_one_member(events: Trace) -> bool:
    """One member's rows name an order that promises less, and it swaps two deliveries."""
    put_all(events, lambda event: event.member == ODD, protocol="rmp" if events[0].protocol == "fifo" else "fifo")
    return swap(events)


@case("labels", FAIL)
def protocol_of_one_row(events: Trace) -> None:
    """One row names another order than the rest of its life."""
    put(events, rows_of(events, DELIVER)[0], protocol="rmp" if events[0].protocol == "fifo" else "fifo")


@case("labels", FAIL)
def service_of_one_delivery(events: Trace) -> None:
    """One delivery is of another service than its CAST."""
    at = rows_of(events, DELIVER)[0]
    put(events, at, service="fifo" if events[at].service != "fifo" else "total")
    count_anew(events)


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
    at = next(at for at in rows_of(events, DELIVER) if events[at].origin != ODD)
    put(events, at, kind=PLACE, attributes={**(events[at].attributes or {}), "void": "true"})


@case("labels", FAIL)
def placeholders_everywhere(events: Trace) -> None:
    """Nobody delivers a message: all, its caster too, call it void."""
    row = events[rows_of(events, DELIVER)[0]]
    for at, event in enumerate(events):
        if event.kind == DELIVER and same_message(event, row):
            put(events, at, kind=PLACE, attributes={**(event.attributes or {}), "void": "true"})


@case("labels", FAIL)
def recipients_on_a_placeholder(events: Trace) -> None:
    """A message for everyone is placed by one member as a message for others, and delivered as such."""
    row = events[next(at for at in rows_of(events, DELIVER) if events[at].origin != ODD)]
    others = tuple(sorted({event.member for event in events} - {ODD}))
    put_all(events, lambda event: event.kind == DELIVER and same_message(event, row), destinations=others)
    put_all(events, lambda e: e.kind == DELIVER and e.member == ODD and same_message(e, row), kind=PLACE)


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


@case("labels", FAIL)
def no_transitional_set(events: Trace) -> bool:
    """A member that swapped two deliveries does not say who came along."""
    put(events, rows_of(events, VIEW)[-1], transitional=None)
    return swap(events)


@case("labels", FAIL)
def no_origin_of_a_view(events: Trace) -> bool:
    """… and not from which view it came either."""
    put(events, rows_of(events, VIEW)[-1], transitional=None, previous_view=None)
    return swap(events)


@case("labels", FAIL)
def no_transitional_sets_at_all(events: Trace) -> bool:
    """One member swaps two deliveries, and nobody's row says who came along, or from where."""
    put_all(events, lambda event: event.kind == VIEW, transitional=None, previous_view=None)
    return swap(events)


@case("labels", EITHER)
def delivery_without_a_digest(events: Trace) -> None:
    """One delivery does not say what it delivered."""
    put(events, rows_of(events, DELIVER)[0], digest=None)


@case("labels", EITHER)
def no_digests(events: Trace) -> None:
    """No row says what the payloads were."""
    put_all(events, lambda event: True, digest=None)


@case("labels", EITHER)
def another_group(events: Trace) -> None:
    """One member's rows are of another group."""
    put_all(events, lambda event: event.member == ODD, group="another")


@case("labels", EITHER)
def another_incarnation(events: Trace) -> None:
    """The second half of a life is of another incarnation."""
    mine = [at for at, event in enumerate(events) if event.member == ODD]
    for at in mine[len(mine) // 2 :]:
        put(events, at, incarnation=1)


@case("labels", EITHER)
def renamed_member(events: Trace) -> None:
    """One member's rows are of an address that no view lists."""
    put_all(events, lambda event: event.member == ODD and event.kind != CAST, member="z")


@case("labels", PASS)
def clock_that_runs_backwards(events: Trace) -> None:
    """A row is earlier than the row before: worth a note, but no order is judged by clocks."""
    put(events, rows_of(events, DELIVER)[1], time_ns=0)


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


@case("labels", EITHER)
def group_named_like_the_unknown(events: Trace) -> bool:
    """One member swaps two deliveries in a group whose name stands for groups that are not known."""
    put_all(events, lambda event: True, group="?")
    return swap(events)


@case("labels", UNKNOWN)
def no_vectors(events: Trace) -> bool:
    """No CAST carries the vector that the order owes."""
    return bool(_without_vectors(events, ("a", "b", "c")))


@case("labels", UNKNOWN)
def no_vectors_of_one_member(events: Trace) -> bool:
    """One member's casts carry no vectors, where the order owes them."""
    return bool(_without_vectors(events, (ODD,)))


def _without_vectors(events: Trace, members: Iterable[str]) -> int:
    return put_all(events, lambda e: e.member in members and "vector" in (e.attributes or {}), attributes=None)


@case("labels", FAIL)
def transitional_set_with_a_name_twice(events: Trace) -> bool:
    """A member that swapped two deliveries names another one twice among those that came along."""
    at = rows_of(events, VIEW)[-1]
    put(events, at, transitional=(*(events[at].transitional or ()), "a"))
    return swap(events)


@case("labels", FAIL)
def names_with_a_bar(events: Trace) -> None:
    """All members call one that came along otherwise, behind the sign that divides facts."""
    for at, event in enumerate(events):
        if event.kind == VIEW and "a" in (event.transitional or ()):
            along = tuple("A|a" if one == "a" else one for one in event.transitional or ())
            put(events, at, transitional=along)


@case("labels", FAIL)
def previous_view_without_a_name(events: Trace) -> None:
    """A member came into its first view from one with an empty name."""
    put(events, rows_of(events, VIEW)[0], previous_view="")


@case("labels", FAIL)
def message_for_nobody(events: Trace) -> None:
    """A message has an empty list of recipients, in all rows that name it."""
    row = events[rows_of(events, DELIVER)[0]]
    put_all(events, lambda event: same_message(event, row), destinations=())


@case("labels", PASS)
def clock_before_zero(events: Trace) -> None:
    """All times are negative."""
    for at, event in enumerate(events):
        put(events, at, time_ns=event.time_ns - 10**15)


def rename(events: Trace, name: str) -> None:
    """Another name for the odd member, wherever it is named."""

    def names(some: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if some is None else tuple(name if one == ODD else one for one in some)

    for at, event in enumerate(events):
        put(
            events,
            at,
            member=name if event.member == ODD else event.member,
            origin=name if event.origin == ODD else event.origin,
            members=names(event.members),
            transitional=names(event.transitional),
            destinations=names(event.destinations),
        )


def _add_names() -> None:
    for what, name in {
        "with a comma": "b,c",
        "with a bar": "b|c",
        "of a question mark": "?",
        "with a zero byte": "b\0",
        "with a line break": "b\nc",
        "with spaces": " b c ",
        "of other letters": "β\u0308",
        "with a quote": "b'\"c",
    }.items():

        def change(events: Trace, name: str = name) -> bool:
            """A member has an unusual name, in all rows."""
            rename(events, name)
            return not any(event.kind in SHOWN for event in events)  # they hold names as JSON

        change.__name__ = f"name_{what.replace(' ', '_')}"
        case("labels", PASS)(change)


_add_names()


# Rows: what a faulty member, or a lost write, would leave.


@case("rows", FAIL)
def lost_delivery(events: Trace) -> None:
    """One member does not deliver a message."""
    lose(events)


@case("rows", UNKNOWN)
def hole(events: Trace) -> None:
    """A row is missing, and the indices show it."""
    del events[rows_of(events, DELIVER)[0]]


@case("rows", FAIL)
def delivered_twice(events: Trace) -> None:
    """One member delivers a message again."""
    at = rows_of(events, DELIVER)[0]
    events.insert(at + 1, events[at])
    count_anew(events)


@case("rows", FAIL)
def swapped_deliveries(events: Trace) -> bool:
    """One member delivers two messages of one origin in the other order."""
    return swap(events)


@case("rows", FAIL)
def swapped_origins(events: Trace) -> bool:
    """One member delivers two messages of two origins in the other order, where a total order is owed."""
    if "P9a" not in promises(events[0].protocol):
        return False
    for one, other in pairwise(rows_of(events, DELIVER)):
        x, y = events[one], events[other]
        if x.origin != y.origin and x.view == y.view and x.service == y.service == "total":
            events[one] = replace(y, local_index=x.local_index, ordinal=x.ordinal)
            events[other] = replace(x, local_index=y.local_index, ordinal=y.ordinal)
            return True
    return False


@case("rows", FAIL)
def altered_payload(events: Trace) -> None:
    """A delivery has another payload than its CAST."""
    at = rows_of(events, DELIVER)[0]
    put(events, at, digest=(events[at].digest or 0) ^ 1)


@case("rows", FAIL)
def altered_cast(events: Trace) -> None:
    """A CAST has another payload than all of its deliveries."""
    at = rows_of(events, CAST)[0]
    put(events, at, digest=(events[at].digest or 0) ^ 1)


@case("rows", FAIL)
def removed_cast(events: Trace) -> None:
    """A message is delivered that its origin did not cast."""
    del events[rows_of(events, CAST)[0]]
    count_anew(events)


@case("rows", FAIL)
def undelivered_cast(events: Trace) -> None:
    """A message is cast that nobody delivers."""
    row = events[rows_of(events, CAST)[-1]]
    events[:] = [event for event in events if not (event.kind in (DELIVER, PLACE) and same_message(event, row))]
    count_anew(events)


@case("rows", FAIL)
def invented_delivery(events: Trace) -> None:
    """One member delivers a message beyond what its origin cast."""
    at = rows_of(events, DELIVER)[-1]
    events.insert(at + 1, replace(events[at], first=10_000))
    count_anew(events)


@case("rows", FAIL)
def index_twice(events: Trace) -> None:
    """Two rows of one life have one local index."""
    at = rows_of(events, DELIVER)[-1]
    events.insert(
        at + 1, replace(events[at], kind=SUSPECT, view=None, origin=None, first=None, count=None, ordinal=None)
    )


@case("rows", FAIL)
def shifted_ordinal(events: Trace) -> None:
    """A delivery's ordinal is not the next one."""
    at = rows_of(events, DELIVER)[1]
    put(events, at, ordinal=(events[at].ordinal or 0) + 1)


@case("rows", FAIL)
def longer_batch(events: Trace) -> None:
    """One member delivers one message more of a batch than was cast."""
    at = rows_of(events, DELIVER)[-1]
    put(events, at, count=(events[at].count or 0) + 1)


@case("rows", FAIL)
def delivered_before_its_cast(events: Trace) -> None:
    """A caster delivers its own message before it casts it."""
    own = next(at for at in rows_of(events, DELIVER) if events[at].origin == ODD)
    at = next(at for at in rows_of(events, CAST) if events[at].first == events[own].first)
    events.insert(at, events.pop(own))
    count_anew(events)


@case("rows", EITHER)
def delivery_of_a_stranger(events: Trace) -> None:
    """A delivery names an origin that is in no view."""
    put(events, rows_of(events, DELIVER)[0], origin="zz")


@case("rows", UNKNOWN)
def no_ending(events: Trace) -> None:
    """A life stops without END, LEAVE or CRASH."""
    del events[next(at for at, event in enumerate(events) if event.member == ODD and event.kind in ENDINGS)]


@case("rows", UNKNOWN)
def cut_off_life(events: Trace) -> None:
    """A life stops in the middle."""
    mine = [event for event in events if event.member == ODD]
    keep = mine[: len(mine) // 2]
    events[:] = [event for event in events if event.member != ODD] + keep


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
def missing_life(events: Trace) -> None:
    """A member of the views has no rows."""
    events[:] = [event for event in events if event.member != ODD]


@case("rows", UNKNOWN)
def first_row_missing(events: Trace) -> None:
    """A life begins with its second row."""
    del events[next(at for at, event in enumerate(events) if event.member == ODD)]


@case("rows", PASS)
def nothing_happens(events: Trace) -> None:
    """All members join and end, and that is all."""
    events[:] = [event for event in events if event.kind in ("JOIN", *ENDINGS)]
    count_anew(events)


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
def index_cast_twice(events: Trace) -> None:
    """A member casts two messages with one index, and the second one is delivered."""
    at = rows_of(events, CAST)[0]
    events.insert(at, replace(events[at], digest=(events[at].digest or 0) ^ 1))
    count_anew(events)


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


# Views.


@case("views", FAIL)
def member_left_out(events: Trace) -> None:
    """One member's list of a view lacks another member."""
    put(events, rows_of(events, VIEW)[-1], members=(ODD,))


@case("views", FAIL)
def list_in_another_order(events: Trace) -> None:
    """One member's list of a view has another order."""
    at = rows_of(events, VIEW)[-1]
    put(events, at, members=tuple(reversed(events[at].members or ())))


@case("views", EITHER)
def stranger_in_a_list(events: Trace) -> None:
    """One member's list of a view has one name more."""
    at = rows_of(events, VIEW)[-1]
    put(events, at, members=(*(events[at].members or ()), "zz"))


@case("views", EITHER)
def stranger_in_every_list(events: Trace) -> None:
    """All lists of a view have one name more, of which there is no trace."""
    view = events[rows_of(events, VIEW)[-1]]
    put_all(events, lambda e: e.kind == VIEW and e.view == view.view, members=(*(view.members or ()), "zz"))


@case("views", FAIL)
def member_out_of_every_list(events: Trace) -> None:
    """No list of a view holds a member that casts in it."""
    view = events[rows_of(events, VIEW)[-1]]
    put_all(events, lambda event: event.kind == VIEW and event.view == view.view, members=("a",))


@case("views", FAIL)
def view_number_goes_back(events: Trace) -> None:
    """A later view has a lower number, in all rows that name it."""
    views = [events[at].view for at in rows_of(events, VIEW)]
    put_all(events, lambda event: event.view == views[-1], view="0@a")


@case("views", EITHER)
def view_renamed_at_one_member(events: Trace) -> None:
    """One member calls a view otherwise than the others."""
    view = events[rows_of(events, VIEW)[-1]].view
    put_all(events, lambda event: event.member == ODD and event.view == view, view="99@b")


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
def view_that_nobody_installed(events: Trace) -> None:
    """A member's VIEW row is gone, and its rows count on."""
    del events[rows_of(events, VIEW)[-1]]
    count_anew(events)


@case("views", FAIL)
def other_previous_view(events: Trace) -> None:
    """A member says that it came from another view than it had installed."""
    put(events, rows_of(events, VIEW)[-1], previous_view="99@b")


@case("views", FAIL)
def member_twice_in_every_list(events: Trace) -> None:
    """All lists of a view name one member twice."""
    view = events[rows_of(events, VIEW)[-1]]
    put_all(events, lambda e: e.kind == VIEW and e.view == view.view, members=(*(view.members or ()), "a"))


@case("views", FAIL)
def view_installed_again(events: Trace) -> None:
    """A member installs its last view twice."""
    at = rows_of(events, VIEW)[-1]
    events.insert(at + 1, events[at])
    count_anew(events)


@case("views", FAIL)
def empty_lists(events: Trace) -> None:
    """No list of a view names anybody."""
    view = events[rows_of(events, VIEW)[-1]].view
    put_all(events, lambda event: event.kind == VIEW and event.view == view, members=())


@case("views", UNKNOWN)
def view_number_of_twenty_digits(events: Trace) -> None:
    """The number of the last view is larger than 64 bits hold, in all rows that name it."""
    view = events[rows_of(events, VIEW)[-1]].view
    put_all(events, lambda event: event.view == view, view="9" * 20 + "@a")


@case("views", UNKNOWN)
def view_number_of_five_thousand_digits(events: Trace) -> None:
    """… or larger than Python reads."""
    view = events[rows_of(events, VIEW)[-1]].view
    put_all(events, lambda event: event.view == view, view="9" * 5_000 + "@a")


# Orders.


@case("orders", UNKNOWN)
def unknown_order(events: Trace) -> None:
    """All rows name an order of which nothing is known."""
    put_all(events, lambda event: True, protocol="raft")
    put_all(events, lambda event: event.kind == VIEW, reason=None)


@case("orders", EITHER)
def unknown_order_and_a_swap(events: Trace) -> bool:
    """… and one member swaps two deliveries."""
    unknown_order(events)
    return swap(events)


@case("orders", FAIL)
def unknown_order_and_a_fault_that_every_order_forbids(events: Trace) -> None:
    """… or delivers one twice."""
    unknown_order(events)
    delivered_twice(events)


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
    put(events, at, reason="rmp" if events[at].protocol == "fifo" else "fifo")
    return swap(events)


@case("orders", FAIL)
def order_that_carries_other_services(events: Trace) -> bool:
    """All VIEW rows name an order that does not carry what was cast, and one member swaps two deliveries."""
    services = {event.service for event in events if event.kind == DELIVER}
    order = "causal" if "causal" not in services else "fifo"
    put_all(events, lambda event: event.kind == VIEW, reason=order)
    return swap(events)


@case("orders", EITHER)
def unknown_order_in_one_view(events: Trace) -> bool:
    """All members name an unknown order for the last view, and one swaps two deliveries in it."""
    view = events[rows_of(events, VIEW)[-1]].view
    put_all(events, lambda event: event.kind == VIEW and event.view == view, reason="raft")
    return swap(events, first_view=False)


@case("orders", FAIL)
def unknown_order_in_another_view(events: Trace) -> bool:
    """All members name an unknown order for the last view, and one swaps two deliveries in the first."""
    view = events[rows_of(events, VIEW)[-1]].view
    put_all(events, lambda event: event.kind == VIEW and event.view == view, reason="raft")
    return swap(events)


@case("orders", EITHER)
def protocols_that_all_differ(events: Trace) -> None:
    """Every member names another order."""
    for member, order in zip("abc", ("fifo", "rmp", "toto"), strict=True):
        put_all(events, lambda event, member=member: event.member == member, protocol=order)  # type: ignore[misc]


@case("orders", UNKNOWN)
def order_that_owes_nothing(events: Trace) -> None:
    """All rows name a list of properties that is empty."""
    put_all(events, lambda event: True, protocol="owes ")
    put_all(events, lambda event: event.kind == VIEW, reason=None)


@case("orders", EITHER)
def order_that_owes_what_there_is_not(events: Trace) -> bool:
    """All rows name a list with a property that there is not, and one member swaps two deliveries."""
    put_all(events, lambda event: True, protocol="owes P1,P99")
    put_all(events, lambda event: event.kind == VIEW, reason=None)
    return swap(events)


def listed(events: Trace, text: str) -> None:
    """All rows name a list of properties as their order."""
    put_all(events, lambda event: True, protocol=f"owes {text}")
    put_all(events, lambda event: event.kind == VIEW, reason=None)


@case("orders", FAIL)
def list_with_an_unknown_property_and_a_broken_one(events: Trace) -> bool:
    """All rows list a property that there is not beside one that a member breaks."""
    listed(events, "P2,P6,P99")
    return swap(events)


@case("orders", UNKNOWN)
def list_with_an_unknown_property(events: Trace) -> None:
    """… or that nobody breaks."""
    listed(events, "P2,P6,P99")


@case("orders", UNKNOWN)
def list_with_a_space(events: Trace) -> bool:
    """All rows list a property with a space before it, and one member breaks that property."""
    listed(events, "P2, P6")
    return swap(events)


@case("orders", UNKNOWN)
def list_with_a_line_break(events: Trace) -> bool:
    """… or with a line break behind it."""
    listed(events, "P2,P6\n")
    return swap(events)


@case("orders", FAIL)
def very_long_list(events: Trace) -> bool:
    """The property that a member breaks comes last in a list of thousands."""
    listed(events, "P2," * 4_000 + "P6")
    return swap(events)


@case("orders", UNKNOWN)
def order_with_a_line_break(events: Trace) -> None:
    """All rows name their order with a line break behind it."""
    put_all(events, lambda event: True, protocol=f"{events[0].protocol}\n")
    put_all(events, lambda event: event.kind == VIEW, reason=None)


@case("orders", PASS)
def empty_order_in_a_view_row(events: Trace) -> bool:
    """One VIEW row has an empty order, which is none: its protocol counts."""
    at = rows_of(events, VIEW)[0]
    put(events, at, reason="")
    return not any(event.reason for event in events if event.kind == VIEW)


# The schema.


def table_of(events: Trace) -> pyarrow.Table:
    sink = pyarrow.BufferOutputStream()
    write_parquet(sink, events)
    return pq.read_table(pyarrow.BufferReader(sink.getvalue()))


def with_table(folder: Path, events: Trace, change: Callable[[pyarrow.Table], pyarrow.Table]) -> None:
    """The odd member's segment as another table."""
    for rows in lives_of(events).values():
        table = table_of(rows)
        pq.write_table(change(table) if rows[0].member == ODD else table, segment(folder, rows[0]))


@file_case("schema", EITHER)
def no_column_of_digests(folder: Path, events: Trace) -> None:
    """A file lacks a column that may be null."""
    with_table(folder, events, lambda table: table.drop_columns(["digest"]))


@file_case("schema", UNKNOWN)
def no_column_of_kinds(folder: Path, events: Trace) -> None:
    """A file lacks a column that every row needs."""
    with_table(folder, events, lambda table: table.drop_columns(["kind"]))


@file_case("schema", UNKNOWN)
def another_version(folder: Path, events: Trace) -> None:
    """A file is of a version of the schema that nobody knows."""
    with_table(folder, events, lambda table: table.replace_schema_metadata({"unisono.schema": "99"}))


@file_case("schema", UNKNOWN)
def numbers_that_are_words(folder: Path, events: Trace) -> None:
    """A column of numbers holds words."""
    with_table(folder, events, lambda t: t.set_column(5, "local_index", pyarrow.array(["one"] * len(t))))


@case("schema", UNKNOWN)
def unknown_kind(events: Trace) -> None:
    """A row is of a kind that there is not."""
    put(events, rows_of(events, DELIVER)[0], kind="DELIVERED")


@case("schema", UNKNOWN)
def delivery_without_an_ordinal(events: Trace) -> None:
    """A row lacks what its kind needs."""
    put(events, rows_of(events, DELIVER)[0], ordinal=None)


@case("schema", UNKNOWN)
def negative_index(events: Trace) -> None:
    """A number is below zero."""
    put(events, rows_of(events, DELIVER)[0], first=-1)


@case("schema", UNKNOWN)
def unknown_clock(events: Trace) -> None:
    """A row tells the time of a clock that there is not."""
    put(events, rows_of(events, DELIVER)[0], clock="sundial")


@case("schema", UNKNOWN)
def row_of_another_kind_without_a_view(events: Trace) -> bool:
    """A row that no digest covers names a view without a number."""
    others = [at for at, e in enumerate(events) if e.member == ODD and e.kind not in (VIEW, CAST, DELIVER, PLACE, END)]
    for at in others[:1]:
        put(events, at, view="nonsense")
    return bool(others)


@case("schema", UNKNOWN)
def empty_batch_in_a_row_without_one(events: Trace) -> None:
    """A row that needs no count has one of zero."""
    put(events, rows_of(events, END)[0], count=0)


@case("schema", UNKNOWN)
def batch_of_too_many(events: Trace) -> None:
    """A delivery says that it is of more messages than anyone could look at."""
    put(events, rows_of(events, DELIVER)[-1], count=2**40)


@case("schema", UNKNOWN)
def index_at_the_end_of_all_numbers(events: Trace) -> None:
    """A delivery's index has no successor."""
    put(events, rows_of(events, DELIVER)[-1], first=2**63 - 1)


@case("schema", UNKNOWN)
def view_without_a_number(events: Trace) -> None:
    """A view's name is not number@proposer."""
    put(events, rows_of(events, DELIVER)[0], view="first")


def other_column(name: str, change: Callable[[Any], Any]) -> Callable[[pyarrow.Table], pyarrow.Table]:
    """Another column in the place of one."""

    def changed(table: pyarrow.Table) -> pyarrow.Table:
        return table.set_column(table.schema.get_field_index(name), name, change(table.column(name)))

    return changed


@file_case("schema", UNKNOWN)
def words_that_are_not_utf8(folder: Path, events: Trace) -> None:
    """A column of words holds bytes that are none."""
    with_table(folder, events, other_column("reason", lambda column: pyarrow.array([b"\xff\xfe"] * len(column))))


@file_case("schema", UNKNOWN)
def list_with_a_hole(folder: Path, events: Trace) -> None:
    """Lists of members hold a null."""

    def holed(column: Any) -> Any:
        lists = [names and [*names, None] for names in column.to_pylist()]
        return pyarrow.array(lists, pyarrow.list_(pyarrow.string()))

    with_table(folder, events, other_column("members", holed))


@file_case("schema", UNKNOWN)
def column_twice(folder: Path, events: Trace) -> None:
    """A file has two columns of one name."""
    with_table(folder, events, lambda table: table.append_column("digest", table.column("digest")))


@file_case("schema", UNKNOWN)
def numbers_with_fractions(folder: Path, events: Trace) -> None:
    """A column of numbers holds halves."""
    with_table(folder, events, other_column("first", lambda column: pc.add(column.cast(pyarrow.float64()), 0.5)))


@file_case("schema", UNKNOWN)
def positions_that_are_words(folder: Path, events: Trace) -> None:
    """A column that no digest covers is of another type."""
    with_table(folder, events, other_column("position", lambda column: pyarrow.array(["x"] * len(column))))


@file_case("schema", UNKNOWN)
def half_a_character(folder: Path, events: Trace) -> None:
    """A line of JSON escapes one half of a pair of surrogates."""
    for rows in lives_of(events).values():
        text = "".join(map(to_line, rows))
        if rows[0].member == ODD:
            text = text.replace('"kind":"END"', '"kind":"END","transaction":"\\ud800"')
        segment(folder, rows[0], 0, "jsonl").write_text(text)


@file_case("schema", PASS)
def extra_column(folder: Path, events: Trace) -> None:
    """A file has a column more."""
    with_table(folder, events, lambda table: table.append_column("extra", pyarrow.array(range(len(table)))))


@file_case("schema", PASS)
def columns_in_another_order(folder: Path, events: Trace) -> None:
    """The columns of a file are in another order."""
    with_table(folder, events, lambda table: table.select(list(reversed(table.column_names))))


@file_case("schema", PASS)
def other_types(folder: Path, events: Trace) -> None:
    """Columns are as wide as they must be, and strings are codes."""

    def narrow(table: pyarrow.Table) -> pyarrow.Table:
        table = table.set_column(5, "local_index", table.column("local_index").cast(pyarrow.int32()))
        return table.set_column(3, "member", table.column("member").dictionary_encode())

    with_table(folder, events, narrow)


def with_tables(folder: Path, events: Trace, change: Callable[[pyarrow.Table], pyarrow.Table]) -> None:
    """All segments as other tables."""
    for rows in lives_of(events).values():
        pq.write_table(change(table_of(rows)), segment(folder, rows[0]))


def of_type(wanted: Callable[[Any], Any]) -> Callable[[pyarrow.Table], pyarrow.Table]:
    """A table whose columns are of the types that are wanted in the place of theirs."""

    def change(table: pyarrow.Table) -> pyarrow.Table:
        fields = [pyarrow.field(field.name, wanted(field.type) or field.type) for field in table.schema]
        return table.cast(pyarrow.schema(fields))

    return change


@file_case("schema", PASS)
def wide_words_everywhere(folder: Path, events: Trace) -> None:
    """Words of all files are of the type that holds more of them."""
    with_tables(folder, events, of_type(lambda kind: kind == pyarrow.string() and pyarrow.large_string()))


@file_case("schema", PASS)
def wide_lists_everywhere(folder: Path, events: Trace) -> None:
    """Lists of all files are of the type that holds more of them."""
    names, wide = pyarrow.list_(pyarrow.string()), pyarrow.large_list(pyarrow.string())
    with_tables(folder, events, of_type(lambda kind: kind == names and wide))


@file_case("schema", PASS)
def codes_everywhere(folder: Path, events: Trace) -> None:
    """Words of all files are codes."""
    codes = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    with_tables(folder, events, of_type(lambda kind: kind == pyarrow.string() and codes))


@file_case("schema", PASS)
def times_that_are_times(folder: Path, events: Trace) -> None:
    """The times of all files are of the type of times."""
    with_tables(folder, events, other_column("time_ns", lambda column: column.cast(pyarrow.timestamp("ns"))))


def as_unsigned(folder: Path, events: Trace) -> None:
    with_tables(folder, events, other_column("first", lambda column: column.cast(pyarrow.uint64())))


@case("schema", FAIL, as_unsigned)
def unsigned_numbers_everywhere(events: Trace) -> bool:
    """Numbers of all files are of a type without a sign, and one member swaps two deliveries."""
    return swap(events)


def other_attributes(change: Callable[[list[Any]], list[Any]]) -> Callable[[pyarrow.Table], pyarrow.Table]:
    """Other pairs in the attributes of every row."""
    kind = pyarrow.map_(pyarrow.string(), pyarrow.string())
    return other_column(
        "attributes", lambda column: pyarrow.array([change(pairs or []) for pairs in column.to_pylist()], kind)
    )


@file_case("schema", PASS)
def attribute_without_a_value(folder: Path, events: Trace) -> None:
    """An attribute of every row is null."""
    with_table(folder, events, other_attributes(lambda pairs: [*pairs, ("nothing", None)]))


@file_case("schema", PASS)
def attribute_twice(folder: Path, events: Trace) -> None:
    """Every attribute is there twice, and the second one counts."""
    with_table(
        folder, events, other_attributes(lambda pairs: [*((name, "[7]") for name, _ in pairs), ("x", "y"), *pairs])
    )


@file_case("schema", UNKNOWN)
def frontier_with_a_hole(folder: Path, events: Trace) -> None:
    """A list that no digest covers holds a null."""

    def holed(column: Any) -> Any:
        return pyarrow.array([some and [*some, None] for some in column.to_pylist()], pyarrow.list_(pyarrow.int64()))

    with_table(folder, events, other_column("frontier", holed))


@file_case("schema", UNKNOWN)
def bytes_in_a_column_of_words(folder: Path, events: Trace) -> None:
    """A column of words that no digest covers holds bytes that are none."""

    def bad(column: Any) -> Any:
        return pyarrow.array([b"\xff\xfe"] * len(column), pyarrow.binary()).view(pyarrow.string())

    with_table(folder, events, other_column("transaction", bad))


@file_case("schema", UNKNOWN)
def bytes_in_an_attribute(folder: Path, events: Trace) -> None:
    """An attribute holds bytes that are no words."""

    def bad(column: Any) -> Any:
        words = pyarrow.array([b"\xff\xfe"] * len(column), pyarrow.binary()).view(pyarrow.string())
        return pyarrow.MapArray.from_arrays(list(range(len(column) + 1)), pyarrow.array(["x"] * len(column)), words)

    with_table(folder, events, other_column("attributes", bad))


@file_case("schema", UNKNOWN)
def null_in_an_attribute_of_a_line(folder: Path, events: Trace) -> None:
    """A line of JSON has an attribute that is null."""
    for rows in lives_of(events).values():
        text = "".join(map(to_line, rows))
        if rows[0].member == ODD:
            text = text.replace('"kind":"END"', '"kind":"END","attributes":{"x":null}')
        segment(folder, rows[0], 0, "jsonl").write_text(text)


# Files.


@file_case("files", PASS)
def lines_that_end_otherwise(folder: Path, events: Trace) -> None:
    """Lines of JSON end with a carriage return, too."""
    for rows in lives_of(events).values():
        text = "".join(map(to_line, rows)).replace("\n", "\r\n")
        segment(folder, rows[0], 0, "jsonl").write_bytes(text.encode())


@file_case("files", UNKNOWN)
def byte_order_mark(folder: Path, events: Trace) -> None:
    """A file of JSON lines begins with a sign that tells the order of its bytes."""
    for rows in lives_of(events).values():
        mark = b"\xef\xbb\xbf" if rows[0].member == ODD else b""
        segment(folder, rows[0], 0, "jsonl").write_bytes(mark + "".join(map(to_line, rows)).encode())


@file_case("files", UNKNOWN)
def empty_line(folder: Path, events: Trace) -> None:
    """A file of JSON lines has an empty line in the middle."""
    for rows in lives_of(events).values():
        lines = [to_line(row) for row in rows]
        if rows[0].member == ODD:
            lines.insert(len(lines) // 2, "\n")
        segment(folder, rows[0], 0, "jsonl").write_text("".join(lines))


@file_case("files", PASS)
def segment_without_rows(folder: Path, events: Trace) -> None:
    """A life has a further segment that holds no row, and a row group of another one is empty."""
    for rows in lives_of(events).values():
        table = table_of(rows)
        with pq.ParquetWriter(segment(folder, rows[0]), table.schema) as writer:
            writer.write_table(table.slice(0, 0))
            writer.write_table(table)
            writer.write_table(table.slice(0, 0))
        write_parquet(segment(folder, rows[0], 1), [])


@file_case("files", PASS)
def lines_without_rows(folder: Path, events: Trace) -> None:
    """A life has a further segment of JSON lines that is empty."""
    as_segments(folder, events)
    segment(folder, events[0], 1, "jsonl").write_text("")


@file_case("files", UNKNOWN)
def damaged_file_of_a_stranger(folder: Path, events: Trace) -> None:
    """A file that cannot be read has the name of a member that no view lists."""
    as_segments(folder, events)
    segment(folder, replace(events[0], member="z")).write_bytes(b"PAR1 damaged PAR1")


@file_case("files", UNKNOWN)
def all_files_damaged(folder: Path, events: Trace) -> None:
    """No file of the run can be read."""
    as_segments(folder, events)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-100] + path.name.encode())


@file_case("files", UNKNOWN, is_named=False)
def bad_row_in_one_file(folder: Path, events: Trace) -> None:
    """All rows are in one file, and one of them cannot be used."""
    rows = list(events)
    put(rows, rows_of(rows, DELIVER)[0], ordinal=None)
    one_file(folder, rows)


@file_case("files", UNKNOWN)
def missing_segment(folder: Path, events: Trace) -> None:
    """The second of three segments of a life is gone."""
    split_segments(folder, events)
    segment(folder, next(event for event in events if event.member == ODD), 1).unlink()


@file_case("files", UNKNOWN)
def truncated_segment(folder: Path, events: Trace) -> None:
    """A Parquet file ends too early."""
    as_segments(folder, events)
    path = segment(folder, next(event for event in events if event.member == ODD))
    path.write_bytes(path.read_bytes()[:-100])


@file_case("files", UNKNOWN)
def empty_segment(folder: Path, events: Trace) -> None:
    """A Parquet file is empty."""
    as_segments(folder, events)
    segment(folder, next(event for event in events if event.member == ODD)).write_bytes(b"")


@file_case("files", UNKNOWN)
def torn_line(folder: Path, events: Trace) -> None:
    """An open segment ends in the middle of its last line."""
    for rows in lives_of(events).values():
        lines = "".join(map(to_line, rows))
        segment(folder, rows[0], 0, "open.jsonl").write_text(lines[:-20] if rows[0].member == ODD else lines)


@file_case("files", UNKNOWN)
def line_that_is_not_json(folder: Path, events: Trace) -> None:
    """A line in the middle cannot be read."""
    for rows in lives_of(events).values():
        lines = [to_line(row) for row in rows]
        if rows[0].member == ODD:
            lines[len(lines) // 2] = "{\n"
        segment(folder, rows[0], 0, "jsonl").write_text("".join(lines))


@file_case("files", FAIL)
def overlapping_segments(folder: Path, events: Trace) -> None:
    """A second segment repeats the last rows of the first."""
    as_segments(folder, events)
    rows = [event for event in events if event.member == ODD]
    write_parquet(segment(folder, rows[0], 1), rows[-2:])


@file_case("files", FAIL)
def rows_in_two_forms(folder: Path, events: Trace) -> None:
    """A life is there as Parquet, and as JSON lines that call themselves its next segment."""
    as_segments(folder, events)
    rows = [event for event in events if event.member == ODD]
    segment(folder, rows[0], 1, "jsonl").write_text("".join(map(to_line, rows)))


@file_case("files", PASS)
def split_segments(folder: Path, events: Trace) -> None:
    """Every life lies in three segments."""
    for rows in lives_of(events).values():
        third = -(-len(rows) // 3)
        for number in range(3):
            write_parquet(segment(folder, rows[0], number), rows[number * third : (number + 1) * third])


@file_case("files", PASS)
def rows_in_another_order(folder: Path, events: Trace) -> None:
    """The rows of every file lie in it backwards."""
    as_segments(folder, list(reversed(events)))


@file_case("files", PASS)
def segments_in_another_order(folder: Path, events: Trace) -> None:
    """The numbers of the segments run against their rows."""
    for rows in lives_of(events).values():
        third = -(-len(rows) // 3)
        for number in range(3):
            write_parquet(segment(folder, rows[0], 2 - number), rows[number * third : (number + 1) * third])


@file_case("files", PASS)
def small_row_groups(folder: Path, events: Trace) -> None:
    """Files have row groups of seven rows."""
    for rows in lives_of(events).values():
        pq.write_table(table_of(rows), segment(folder, rows[0]), row_group_size=7)


@file_case("files", PASS)
def json_lines(folder: Path, events: Trace) -> None:
    """The rows are written as JSON lines."""
    for rows in lives_of(events).values():
        segment(folder, rows[0], 0, "jsonl").write_text("".join(map(to_line, rows)))


@file_case("files", PASS)
def subfolders(folder: Path, events: Trace) -> None:
    """Every life lies in a folder of its own."""
    for (member, _), rows in lives_of(events).items():
        (folder / member).mkdir()
        as_segments(folder / member, rows)


@file_case("files", PASS)
def open_twin(folder: Path, events: Trace) -> None:
    """The open form of a finished segment is still there."""
    as_segments(folder, events)
    rows = [event for event in events if event.member == ODD]
    segment(folder, rows[0], 0, "open.jsonl").write_text("".join(map(to_line, rows)))


def some_lines(folder: Path, events: Trace, change: Callable[[list[str]], str], ending: str = "jsonl") -> None:
    """Every life as lines of JSON, those of the odd member changed."""
    for rows in lives_of(events).values():
        lines = [to_line(row) for row in rows]
        text = change(lines) if rows[0].member == ODD else "".join(lines)
        segment(folder, rows[0], 0, ending).write_text(text)


@file_case("files", UNKNOWN)
def torn_line_after_the_end(folder: Path, events: Trace) -> None:
    """An open segment goes on after the END of its member, with half a line."""
    some_lines(folder, events, lambda lines: "".join([*lines, lines[0][:20]]), "open.jsonl")


@file_case("files", UNKNOWN)
def torn_line_of_a_stranger(folder: Path, events: Trace) -> None:
    """The open segment of a member that no view lists is half a line."""
    as_segments(folder, events)
    segment(folder, replace(events[0], member="z"), 0, "open.jsonl").write_text('{"run":')


@file_case("files", UNKNOWN)
def open_twin_of_another_story(folder: Path, events: Trace) -> None:
    """The open form of a finished segment is still there, and one of its rows says something else."""
    as_segments(folder, events)
    rows = [event for event in events if event.member == ODD]
    put(rows, len(rows) // 2, time_ns=rows[len(rows) // 2].time_ns + 1)
    segment(folder, rows[0], 0, "open.jsonl").write_text("".join(map(to_line, rows)))


@file_case("files", PASS)
def open_twin_with_a_torn_line(folder: Path, events: Trace) -> None:
    """The open form of a finished segment is still there, and its last line is torn."""
    as_segments(folder, events)
    rows = [event for event in events if event.member == ODD]
    segment(folder, rows[0], 0, "open.jsonl").write_text("".join(map(to_line, rows))[:-20])


@file_case("files", FAIL, is_named=False)
def open_file_with_a_name_of_its_own(folder: Path, events: Trace) -> None:
    """A run in `log.open.jsonl` has lost a delivery; `log.parquet` beside it holds another run."""
    rows = list(events)
    swap(rows)
    write_parquet(folder / f"{folder.name}.parquet", [replace(event, run=f"{event.run}, clean") for event in events])
    (folder / f"{folder.name}.open.jsonl").write_text("".join(map(to_line, rows)))


@file_case("files", PASS)
def folder_named_as_a_file(folder: Path, events: Trace) -> None:
    """The files lie in a folder that is named as a file, with a link that leads nowhere and a FIFO beside them."""
    (folder / "trace.parquet").mkdir()
    as_segments(folder / "trace.parquet", events)
    (folder / "gone.jsonl").symlink_to(folder / "nothing")
    os.mkfifo(folder / "fifo.parquet")


@file_case("files", PASS)
def number_in_other_digits(folder: Path, events: Trace) -> None:
    """An empty file is named as a segment, with a number in digits of another kind."""
    as_segments(folder, events)
    (folder / f"{folder.name.replace('.', '-')}.b.\N{SUPERSCRIPT TWO}.000001.jsonl").write_text("")


@file_case("files", UNKNOWN)
def digest_twice_in_a_line(folder: Path, events: Trace) -> None:
    """Every digest of a member is there twice in its line, and the first one is another."""
    some_lines(folder, events, lambda lines: "".join(lines).replace('"digest":', '"digest":5,"digest":'))


@file_case("files", UNKNOWN)
def digests_that_have_lost_digits(folder: Path, events: Trace) -> None:
    """The digests are numbers of floating point."""
    with_tables(folder, events, other_column("digest", lambda column: column.cast(pyarrow.float64(), safe=False)))


@file_case("files", PASS)
def names_of_other_lives(folder: Path, events: Trace) -> None:
    """The files of two members have each other's names."""
    lives = list(lives_of(events).values())
    for rows, other in zip(lives, [*lives[1:], lives[0]], strict=True):
        write_parquet(segment(folder, other[0]), rows)


@file_case("files", PASS, is_named=False)
def renamed_files(folder: Path, events: Trace) -> None:
    """The files have names of their own."""
    for number, rows in enumerate(lives_of(events).values()):
        write_parquet(folder / f"{folder.name}-{number}.parquet", rows)


@file_case("files", PASS, is_named=False)
def one_file(folder: Path, events: Trace) -> None:
    """All rows are compacted into one file, in the order of their times."""
    write_parquet(folder / f"{folder.name}.parquet", sorted(events, key=lambda event: event.time_ns))


# Claims that used to excuse what they should not, and rows whose absence nobody noticed.


def primary_of(events: Trace) -> None:
    for at, event in enumerate(events):
        if event.kind == VIEW:
            put(events, at, attributes={**(event.attributes or {}), "primary": "true"})


@case("rows", FAIL)
def safe_index_cast_twice(events: Trace) -> None:
    """A safe message is cast again under its index, to some."""
    at = rows_of(events, CAST)[0]
    put(events, at, attributes={**(events[at].attributes or {}), "safe": "true"})
    events.insert(at + 1, replace(events[at], destinations=("a", "b", "c")))
    primary_of(events)
    count_anew(events)


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


@case("rows", FAIL)
def payload_that_is_void_beside_its_caster(events: Trace) -> bool:
    """All addressees of a message call it void, though its caster, which is none of them, stays."""
    row = next((e for e in events if e.kind == CAST and e.destinations and e.member not in e.destinations), None)
    if row is None:
        return False
    for at, event in enumerate(events):
        if event.kind == DELIVER and same_message(event, row):
            put(events, at, kind=PLACE, digest=None, attributes={**(event.attributes or {}), "void": "true"})
    return True


def commits(events: Trace) -> bool:
    return any(event.kind == DECIDE for event in events)


@case("labels", UNKNOWN)
def no_transactions(events: Trace) -> bool:
    """No row names a transaction, and there are no votes and decisions."""
    if not commits(events):
        return False
    events[:] = [event for event in events if event.kind not in (VOTE, DECIDE)]
    put_all(events, lambda event: True, transaction=None)
    count_anew(events)
    return True


@case("labels", FAIL)
def no_transactions_on_decisions_and_deliveries(events: Trace) -> bool:
    """One member's decisions and deliveries do not say of which transaction they are."""
    return put_all(events, lambda e: e.member == ODD and e.kind in (DECIDE, DELIVER), transaction=None) > 0 and commits(
        events
    )


@case("labels", FAIL)
def delivered_though_aborted(events: Trace) -> bool:
    """All decide to abort everything, and deliver it without a word of transactions."""
    put_all(events, lambda event: event.kind == DELIVER, transaction=None)
    return put_all(events, lambda event: event.kind == DECIDE, decision="abort") > 0


@case("labels", FAIL)
def recovery_without_a_failure(events: Trace) -> bool:
    """A member never votes, and all call their decisions a recovery."""
    if not commits(events):
        return False
    events[:] = [event for event in events if event.kind != VOTE or event.member != ODD]
    put_all(events, lambda event: event.kind == DECIDE, attributes={"recovery": "true"})
    count_anew(events)
    return True


@case("schema", UNKNOWN)
def decision_in_capitals(events: Trace) -> bool:
    """A member decides again, in a word that there is not."""
    row = next((event for event in events if event.kind == DECIDE and event.member == ODD), None)
    if row is None:
        return False
    events.insert(events.index(row), replace(row, decision="ABORT"))
    count_anew(events)
    return True


@case("labels", FAIL)
def wrong_vector_of_a_safe_message(events: Trace) -> bool:
    """A vector counts too much, and its message is called safe."""
    at = rows_of(events, CAST)[-1]
    if "vector" not in (events[at].attributes or {}):
        return False
    put(events, at, attributes={"vector": "[7,7]", "safe": "true"})
    return True


@case("labels", UNKNOWN)
def safe_messages_without_vectors(events: Trace) -> bool:
    """No vectors, and all messages are called safe."""
    return (
        _without_vectors(events, "abc") > 0
        and put_all(events, lambda e: e.kind == CAST, attributes={"safe": "true"}) > 0
    )


@case("orders", UNKNOWN)
def list_with_a_service_that_nobody_judges(events: Trace) -> bool:
    """A list owes a total order, and all messages are of a service in capitals; two are swapped."""
    if not swapped_origins(events):
        return False
    listed(events, "P1,P9a,P9c,P14")
    put_all(events, lambda event: event.service is not None, service="TOTAL")
    count_anew(events)
    return True


@case("orders", UNKNOWN)
def list_of_what_nobody_recorded(events: Trace) -> None:
    """A list owes what needs rows that there are not."""
    listed(events, "P17,P19,P20,P22,P23")


@case("orders", FAIL)
def list_beside_a_known_order(events: Trace) -> None:
    """VIEW rows name a short list, the other columns the order that the members ran, and a message is lost."""
    put_all(events, lambda event: event.kind == VIEW, reason="owes P0")
    lose(events)


# What applications are shown.


def receipt(events: Trace) -> int | None:
    return next(iter(rows_of(events, RECEIPT)), None)


def _receipt_case(name: str, expected: str, meaning: str, **values: Any) -> None:
    def change(events: Trace) -> bool:
        at = receipt(events)
        if at is not None:
            put(events, at, **values)
        return at is not None

    CASES[name] = Case(name, "labels", expected, change, as_segments, True, meaning)


_receipt_case("receipt of what was not cast", FAIL, "A receipt is of an index that was never cast.", first=10**6)
_receipt_case("receipt of another's message", FAIL, "A receipt is of another member's message.", origin="a")
_receipt_case("receipt of another life", FAIL, "A receipt is of a later life's message.", origin_incarnation=7)
_receipt_case("receipt without attributes", UNKNOWN, "A receipt says nothing.", attributes=None)
_receipt_case(
    "receipt of an unknown stage", UNKNOWN, "A receipt names no stage.", attributes={"stage": "stabel", "outcome": "ok"}
)


@case("rows", FAIL)
def receipt_before_its_cast(events: Trace) -> bool:
    """A receipt comes before its message is cast."""
    at = receipt(events)
    if at is not None:
        row = events.pop(at)
        events.insert(rows_of(events, VIEW)[0] + 1, row)
        count_anew(events)
    return at is not None


def shown_last(events: Trace, **values: str) -> bool:
    """Give the last SHOW row of the odd member other attributes."""
    rows = rows_of(events, SHOW)
    if rows:
        put(events, rows[-1], attributes={**(events[rows[-1]].attributes or {}), **values})
    return bool(rows)


WRONG_TOTALS = {"digest": "0" * 16, "shown": "3"}


@case("labels", FAIL)
def restored_from_nothing(events: Trace) -> bool:
    """An application was shown other messages, and its state is said to have been restored."""
    return shown_last(events, restored="true", **WRONG_TOTALS)


@case("rows", UNKNOWN)
def state_from_nobody(events: Trace) -> bool:
    """… or a STATE row says so, where no member could have given one."""
    if not shown_last(events, **WRONG_TOTALS):
        return False
    at = rows_of(events, TRANSITION)[-1]
    events.insert(at, replace(events[at], kind=STATE, attributes=None))
    put(events, at + 1, attributes={**(events[at + 1].attributes or {}), "shown": "1"})
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
    if receipt(events) is None:
        return False
    events[:] = [event for event in events if event.member != ODD or event.kind not in (SHOW, TRANSITION)]
    count_anew(events)
    return True


@case("rows", UNKNOWN)
def view_that_was_not_shown(events: Trace) -> bool:
    """A member comes to its END in a view that its application was not shown."""
    rows = rows_of(events, SHOW)
    if not rows:
        return False
    gone = {rows[-1], rows_of(events, TRANSITION)[-1]}
    events[:] = [event for at, event in enumerate(events) if at not in gone]
    count_anew(events)
    return True


@case("labels", FAIL)
def primary_for_all_but_one(events: Trace) -> bool:
    """One application is told that a view is not primary."""
    return shown_last(events, primary="false")


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
