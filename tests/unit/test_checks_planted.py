"""The checker is checked: every planted fault raises exactly the properties that the table lists for it.

The story is told twice, once in causal order and once in causal total order. In view 1 x and y are concurrent, and every
other message follows all before it; y and z are of one origin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from unisono.trace.checks import Result, judge
from unisono.trace.promises import promises
from unisono.trace.schema import CAST, DELIVER, VIEW, Event
from unisono.trace.story import renumber, tell

STORY = """
a,b,c VIEW 1@a a b c
a CAST x vector 0,0,0
b CAST y vector 0,0,0
a,b,c DELIVER x
a,b,c DELIVER y
b CAST z vector 1,1,0
a,b,c DELIVER z
c CAST w vector 1,2,0
a,b,c DELIVER w
a,b,c BLOCK
a,b,c VIEW 2@a a b c from a b c
a CAST u vector 0,0,0
a,b,c DELIVER u
b CAST v vector 1,0,0
a,b,c DELIVER v
all END
"""
KEYS = {"x": ("a", 0), "y": ("b", 0), "z": ("b", 1), "w": ("c", 0), "u": ("a", 1), "v": ("b", 2)}
TOTAL = {"P9a", "P9b", "P9c"}

Fault = Callable[[list[Event]], list[Event]]


def place(events: list[Event], member: str, kind: str, title: str) -> int:
    """Where the row is that says what `member` did with the message or view of that title."""
    for at, event in enumerate(events):
        if (event.member, event.kind) == (member, kind) and title in (event.view, *_titles(event)):
            return at
    raise LookupError(f"{member} {kind} {title}")


def _titles(event: Event) -> list[str]:
    return [title for title, key in KEYS.items() if key == (event.origin, event.first)]


def drop(member: str, title: str) -> Fault:
    def fault(events: list[Event]) -> list[Event]:
        del events[place(events, member, DELIVER, title)]
        return renumber(events)

    return fault


def duplicate(member: str, title: str) -> Fault:
    def fault(events: list[Event]) -> list[Event]:
        at = place(events, member, DELIVER, title)
        return renumber([*events[: at + 1], events[at], *events[at + 1 :]])

    return fault


def swap(members: str, one: str, other: str) -> Fault:
    def fault(events: list[Event]) -> list[Event]:
        for member in members:
            first, second = (place(events, member, DELIVER, title) for title in (one, other))
            events[first], events[second] = events[second], events[first]
        return renumber(events)

    return fault


def move_across_view(member: str, title: str, *, restamp: bool) -> Fault:
    """As a faulty protocol would do it (its recorder stamps the new view), or as a mixed-up file looks."""

    def fault(events: list[Event]) -> list[Event]:
        row = events.pop(place(events, member, DELIVER, title))
        at = place(events, member, VIEW, "2@a")
        return renumber([*events[: at + 1], replace(row, view="2@a") if restamp else row, *events[at + 1 :]])

    return fault


def alter_digest(member: str, title: str) -> Fault:
    def fault(events: list[Event]) -> list[Event]:
        at = place(events, member, DELIVER, title)
        events[at] = replace(events[at], digest=4711)
        return events

    return fault


def remove_cast(member: str, title: str) -> Fault:
    def fault(events: list[Event]) -> list[Event]:
        del events[place(events, member, CAST, title)]
        return renumber(events)

    return fault


def change_members(member: str, view: str, members: str) -> Fault:
    def fault(events: list[Event]) -> list[Event]:
        at = place(events, member, VIEW, view)
        events[at] = replace(events[at], members=tuple(members))
        return events

    return fault


def delete_row(member: str, title: str) -> Fault:
    def fault(events: list[Event]) -> list[Event]:
        del events[place(events, member, DELIVER, title)]
        return events

    return fault


# The fault; what it raises in causal order; what it raises in causal total order.
TABLE: dict[str, tuple[Fault, set[str], set[str]]] = {
    "nothing": (renumber, set(), set()),
    "drop a DELIVER": (drop("a", "y"), {"P5", "P7", "P8", "P14"}, {"P5", "P7", "P8", "P9c", "P14"}),
    "drop an origin's last DELIVER": (drop("a", "z"), {"P5", "P8", "P14"}, {"P5", "P8", "P9c", "P14"}),
    "drop the very last DELIVER": (drop("c", "v"), {"P5", "P14"}, {"P5", "P14"}),
    "drop the caster's own DELIVER": (drop("a", "x"), {"P4", "P5", "P8", "P14"}, {"P4", "P5", "P8", "P9c", "P14"}),
    "drop a DELIVER that a cast followed": (drop("c", "z"), {"P5", "P8c", "P14"}, {"P5", "P9c", "P14"}),
    "duplicate a DELIVER": (duplicate("a", "y"), {"P2", "P6"}, {"P2", "P6", "P9c"}),
    "swap two of one origin": (swap("a", "y", "z"), {"P6", "P7", "P8"}, {"P6", "P7", "P8", *TOTAL}),
    "swap two with a causal link": (swap("a", "z", "w"), {"P8"}, {"P8", *TOTAL}),
    "swap two without a causal link": (swap("c", "x", "y"), set(), TOTAL),
    "swap two without a causal link everywhere": (swap("abc", "x", "y"), set(), set()),
    "move a DELIVER across a VIEW": (
        move_across_view("a", "w", restamp=True),
        {"P5", "P13", "P14"},
        {"P5", "P9c", "P13", "P14"},
    ),
    "move a DELIVER across a VIEW in the file": (move_across_view("a", "w", restamp=False), {"P0"}, {"P0"}),
    "alter a digest": (alter_digest("c", "z"), {"P1"}, {"P1"}),
    "remove a CAST": (remove_cast("a", "u"), {"P1"}, {"P1"}),
    "remove an earlier CAST of two": (remove_cast("b", "y"), {"P1", "P8c"}, {"P1"}),
    "leave a member out of a list": (change_members("c", "2@a", "ac"), {"P3", "P11", "P15"}, {"P3", "P11", "P15"}),
    "change the order of a list": (change_members("c", "2@a", "cba"), {"P11"}, {"P11"}),
    "delete a middle row": (delete_row("a", "z"), set(), set()),
}


@pytest.mark.parametrize("fault", TABLE)
@pytest.mark.parametrize("order", ["causal", "causal-total"])
def test_a_planted_fault_raises_exactly_what_the_table_says(fault: str, order: str) -> None:
    change, in_causal, in_total = TABLE[fault]
    service = "causal" if order == "causal" else "total"
    verdict = judge(change(tell(STORY, protocol=order, service=service)), promises(order))
    assert verdict.broken == (in_causal if order == "causal" else in_total), str(verdict)


def test_a_deleted_row_leaves_the_verdict_unknown() -> None:
    """It raises nothing, because a full disk looks the same; but it can never pass."""
    verdict = judge(delete_row("a", "z")(tell(STORY)), promises("causal-total"))
    assert verdict.result is Result.UNKNOWN
    assert verdict.unknown == {"a": "row 4 is missing"}


@pytest.mark.parametrize("fault", TABLE)
def test_the_verdict_does_not_depend_on_the_interleaving(fault: str) -> None:
    """One member's whole trace after another's, in both directions, says the same as the order of the story."""
    events = TABLE[fault][0](tell(STORY))
    owed = promises("causal-total") | {"P8c", "P10"}
    told = judge(events, owed)
    for backwards in (False, True):
        grouped = sorted(events, key=lambda event: event.member, reverse=backwards)
        again = judge(grouped, owed)
        assert again.counts == told.counts
        assert again.result == told.result
