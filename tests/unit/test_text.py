"""Text for people: short incarnations, and events that read as one line."""

from __future__ import annotations

from itertools import pairwise

import pytest

import unisono
from unisono.core.departure import Arrival, Cause, Departure, Origin
from unisono.core.member import Diverged, Replaced, Resumed, Stalled
from unisono.core.membership.context import Evicted, Refused
from unisono.core.text import one_line, shorten
from unisono.core.transition import Transition
from unisono.core.types import MemberId, ViewId
from unisono.runtime.events import Delivery, Event, View

A, B = MemberId("127.0.0.1:7400", 1794968746464401682), MemberId("[::1]:7401", 1794968746473364303)
ONE, TWO = ViewId(1, A), ViewId(2, B)


def test_the_short_form_tells_the_lives_of_one_address_apart() -> None:
    lives = [MemberId("h:1", A.incarnation + number).short for number in range(20)]
    assert all(len(life) == len("h:1#a3f") for life in lives)
    assert all(one != other for one, other in pairwise(lives))
    assert MemberId("h:1", 17).short == "h:1#17"
    assert MemberId("h:1").short == "h:1"


def test_the_whole_form_stays_what_data_is_made_of() -> None:
    assert str(A) == f"127.0.0.1:7400#{A.incarnation}"
    assert str(ONE) == f"1@{A}"
    assert f"{A}" == str(A)


def test_text_is_shortened_to_the_same_digits() -> None:
    assert shorten(f"{A} waits for {B}, since {ONE}:3.") == f"{A.short} waits for {B.short}, since {ONE.short}:3."
    for kept in ("order #123456", "h:1#17", "h:1#12345x", "#1794968746464401682"):
        assert shorten(kept) == kept


def test_foreign_text_is_one_harmless_line() -> None:
    assert one_line("a\x1b[31m\nb\x85\u202e\x7f") == "a\\x1b[31m\\nb\\x85\\u202e\\x7f"
    assert one_line("x" * 9, 4) == "xxxx…"


VIEW = View(
    2, (A, B), {B: Arrival(B, Origin.NEW)}, {A: Departure(A, Cause.SUSPECTED, B, 10**9)}, TWO, "fifo-total", False, (A,)
)

EVENTS: list[tuple[Event, str]] = [
    (Delivery(A, b"hello", 3), f"{A.short}:3 hello"),
    (Delivery(A, b"a\x1b[31m\xff\n", 0), f"{A.short}:0 a\\x1b[31m\\xff\\n"),
    (Delivery(A, b"x" * 100_000, 0), f"{A.short}:0 {'x' * 80}… (100,000 bytes)"),
    (Transition((A, B), True, ONE), f"view 1@{A.short} ends; together: {A.short}, {B.short}"),
    (Transition((A,), False, ONE), f"view 1@{A.short} ends; together: {A.short}; the next view is not primary"),
    (Refused(A, "no\x1b"), f"refused by {A.short}: no\\x1b"),
    (Evicted(A, 1_500_000_000, 0), f"evicted by {A.short}, which could not cast for 1.500 s because of this member"),
    (Stalled((f"{A} waits.", f"{B} too.")), f"stalled: {A.short} waits. {B.short} too."),
    (Resumed(2_000_000_000), "nothing waits any longer, after 2.000 s"),
    (
        Replaced(ONE, (A,), TWO, (B,)),
        f"the state that {A.short} had since view {ONE.short} is thrown away here; that of {B.short} is taken over",
    ),
    (
        Diverged(ONE, ((A,), (B,)), None, 8, 16),
        f"in view {ONE.short}, {A.short} delivered other messages than {B.short}: the first difference is between message 9 and "
        "message 16",
    ),
    (
        VIEW,
        f"view {TWO.short} of 2: {A.short}, {B.short}; joined: {B.short} (new); gone: {A.short} "
        f"({shorten(str(VIEW.left[A]))}); not primary, so read-only",
    ),
]


@pytest.mark.parametrize(("event", "line"), EVENTS, ids=lambda one: type(one).__name__)
def test_an_event_reads_as_one_line(event: Event, line: str) -> None:
    assert str(event) == line


def test_every_event_of_an_application_reads_as_a_line() -> None:
    shown = {type(event) for event, _ in EVENTS}
    assert shown == set(Event.__args__)
    assert unisono.Delivery in shown
