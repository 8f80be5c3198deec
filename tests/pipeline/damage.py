"""Damage done to a trace, of every kind that a checker must find, or must not hold against anyone.

It comes in two kinds: as a faulty protocol would do it (numbered anew, as its recorder would number), and as a lost or
mixed-up file looks (numbers as they were).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from random import Random

from unisono.trace.schema import CAST, CRASH, DELIVER, END, ENDINGS, LEAVE, PLACE, VIEW, Event
from unisono.trace.story import renumber

Trace = list[Event]
Damage = Callable[[Trace, Random], Trace | None]
"""Takes a trace that it may change; None where there is nothing to damage."""


def at_row(*kinds: str) -> Callable[[Callable[[Trace, Random, int], Trace | None]], Damage]:
    """Damage that begins at a row of one of these kinds."""

    def made(change: Callable[[Trace, Random, int], Trace | None]) -> Damage:
        @wraps(change)
        def damage(events: Trace, random: Random) -> Trace | None:
            rows = [at for at, event in enumerate(events) if event.kind in kinds]
            return change(events, random, random.choice(rows)) if rows else None

        return damage

    return made


def _later(events: Trace, at: int, *kinds: str) -> list[int]:
    """Later rows of the same life."""
    one = events[at]
    return [
        other
        for other in range(at + 1, len(events))
        if events[other].kind in kinds
        and (events[other].member, events[other].incarnation) == (one.member, one.incarnation)
    ]


@at_row(DELIVER, PLACE)
def drop(events: Trace, random: Random, at: int) -> Trace | None:
    del events[at]
    return renumber(events)


@at_row(DELIVER)
def duplicate(events: Trace, random: Random, at: int) -> Trace | None:
    places = [at, *_later(events, at, DELIVER)]
    to = random.choice(places)
    events.insert(to + 1, replace(events[at], view=events[to].view))
    return renumber(events)


def _swap(events: Trace, one: int, other: int) -> None:
    first, second = events[one], events[other]
    events[one], events[other] = replace(second, view=first.view), replace(first, view=second.view)


def _swapped(events: Trace, one: int, other: int) -> Trace:
    _swap(events, one, other)
    return renumber(events)


@at_row(DELIVER)
def swap_one_origin(events: Trace, random: Random, at: int) -> Trace | None:
    same = [o for o in _later(events, at, DELIVER) if events[o].origin == events[at].origin]
    return _swapped(events, at, same[0]) if same else None


@at_row(DELIVER, PLACE)
def swap_neighbours(events: Trace, random: Random, at: int) -> Trace | None:
    later = _later(events, at, DELIVER, PLACE)
    return _swapped(events, at, later[0]) if later else None


@at_row(DELIVER, PLACE)
def swap_far(events: Trace, random: Random, at: int) -> Trace | None:
    later = _later(events, at, DELIVER, PLACE)
    return _swapped(events, at, random.choice(later)) if later else None


@at_row(DELIVER)
def swap_everywhere(events: Trace, random: Random, at: int) -> Trace | None:
    """Two messages change places at every member: the sequences stay equal."""
    later = [o for o in _later(events, at, DELIVER) if events[o].view == events[at].view]
    if not later:
        return None
    x, y = ((events[o].origin, events[o].first, events[o].count, events[o].view) for o in (at, later[0]))
    for member in {event.member for event in events}:
        mine = [
            o
            for o, event in enumerate(events)
            if event.member == member
            and event.kind == DELIVER
            and (event.origin, event.first, event.count, event.view) in (x, y)
        ]
        if len(mine) == 2:
            _swap(events, *mine)
    return renumber(events)


@at_row(DELIVER)
def move_across_view(events: Trace, random: Random, at: int) -> Trace | None:
    """Delivered in the next view, as a faulty protocol would do it."""
    views = _later(events, at, VIEW)
    if not views:
        return None
    row = events.pop(at)
    events.insert(views[0], replace(row, view=events[views[0] - 1].view))
    return renumber(events)


@at_row(DELIVER, CAST)
def move_in_file(events: Trace, random: Random, at: int) -> Trace | None:
    """The row still names its old view."""
    views = _later(events, at, VIEW)
    if not views:
        return None
    row = events.pop(at)
    events.insert(views[0], row)
    return renumber(events)


@at_row(DELIVER, CAST)
def alter_digest(events: Trace, random: Random, at: int) -> Trace | None:
    events[at] = replace(events[at], digest=4711)
    return events


@at_row(CAST)
def remove_cast(events: Trace, random: Random, at: int) -> Trace | None:
    del events[at]
    return renumber(events)


@at_row(VIEW)
def change_members(events: Trace, random: Random, at: int) -> Trace | None:
    members = list(events[at].members or ())
    what = random.choice(("leave out", "order", "stranger", "twin"))
    if what == "leave out":
        members.pop(random.randrange(len(members)))
    elif what == "order":
        members.reverse()
    elif what == "stranger":
        members.append("zz")
    else:
        members.append(f"{members[0].partition('#')[0]}#7")
    events[at] = replace(events[at], members=tuple(members))
    return events


@at_row(VIEW)
def change_view(events: Trace, random: Random, at: int) -> Trace | None:
    """A later view gets a number that is not higher."""
    later = _later(events, at, VIEW)
    if not later:
        return None
    old, new = events[later[0]].view, f"{(events[at].view or '').partition('@')[0]}@other"
    return [replace(event, view=new) if event.view == old else event for event in events]


@at_row(VIEW)
def change_transitional(events: Trace, random: Random, at: int) -> Trace | None:
    if not events[at].transitional:
        return None
    events[at] = replace(events[at], transitional=(events[at].transitional or ())[1:])
    return events


def delete_rows(events: Trace, random: Random) -> Trace | None:
    """Rows are lost, and the gap shows it."""
    lost = {random.randrange(len(events)) for _ in range(random.randint(1, 4))}
    return [event for at, event in enumerate(events) if at not in lost]


def truncate_life(events: Trace, random: Random) -> Trace | None:
    at = random.randrange(len(events))
    gone = set(_later(events, at, *{event.kind for event in events}))
    return [event for other, event in enumerate(events) if other not in gone]


def drop_life(events: Trace, random: Random) -> Trace | None:
    member = random.choice(events).member
    return [event for event in events if event.member != member] or None


@at_row(DELIVER, PLACE)
def shift_ordinal(events: Trace, random: Random, at: int) -> Trace | None:
    events[at] = replace(events[at], ordinal=(events[at].ordinal or 0) + random.choice((1, 2)))
    return events


@at_row(END, CRASH, LEAVE)
def same_index_twice(events: Trace, random: Random, at: int) -> Trace | None:
    if events[at].local_index == 0:
        return None
    events[at] = replace(events[at], local_index=events[at].local_index - 1)
    return events


@at_row(*ENDINGS)
def go_on_after_end(events: Trace, random: Random, at: int) -> Trace | None:
    last = events[at]
    events.append(replace(last, kind=random.choice(("SUSPECT", "END", "CRASH")), local_index=last.local_index + 1))
    return events


def begin_otherwise(events: Trace, random: Random) -> Trace | None:
    at = random.randrange(len(events))
    first = next(event for event in events if event.member == events[at].member)
    return renumber([replace(first, kind="SUSPECT", view=None, members=None), *events])


@at_row(*ENDINGS)
def change_ending(events: Trace, random: Random, at: int) -> Trace | None:
    kind, reason = random.choice(((CRASH, None), (LEAVE, None), (END, "cut"), (END, None)))
    events[at] = replace(events[at], kind=kind, reason=reason)
    return events


@at_row(CAST)
def address_others(events: Trace, random: Random, at: int) -> Trace | None:
    """Somebody delivers what is not addressed to it; or, the whole batch is addressed to one, wherever it is told."""
    cast = events[at]
    to = (random.choice(events).member,)
    everywhere = random.random() < 0.6
    for other, event in enumerate(events):
        if other == at or (everywhere and event.kind in (CAST, DELIVER, PLACE) and _overlap(event, cast)):
            kind = PLACE if everywhere and event.kind == DELIVER and event.member not in to else event.kind
            events[other] = replace(event, destinations=to, kind=kind)
    return renumber(events)


def _overlap(one: Event, other: Event) -> bool:
    """Whether two rows are about some message in common."""
    if one.origin != other.origin or one.first is None or other.first is None:
        return False
    return one.first < other.first + (other.count or 1) and other.first < one.first + (one.count or 1)


@at_row(DELIVER)
def make_void(events: Trace, random: Random, at: int) -> Trace | None:
    """One addressee places what others deliver; sometimes everyone does."""
    one = events[at]
    to = tuple(sorted({event.member for event in events}))
    void = random.random() < 0.7
    for other, event in enumerate(events):
        if event.kind in (CAST, DELIVER, PLACE) and _overlap(event, one):
            events[other] = replace(event, destinations=to)
            if other == at or (event.kind == DELIVER and random.random() < 0.3):
                attributes = {**(event.attributes or {}), **({"void": "true"} if void else {})}
                events[other] = replace(event, kind=PLACE, destinations=to, attributes=attributes or None)
    if random.random() < 0.5:
        later = _later(events, at, DELIVER)
        if later:
            _swap(events, at, later[0])
    return renumber(events)


def alter_vector(events: Trace, random: Random) -> Trace | None:
    rows = [at for at, event in enumerate(events) if event.kind in (CAST, DELIVER, PLACE)]
    stamped = [at for at in rows if (events[at].attributes or {}).get("vector")] or rows
    if not stamped:
        return None
    at = random.choice(stamped)
    vector = random.choice(("[7,7]", "[ 0, 0 ]", "[0]", "nonsense", "[0,0,0]"))
    events[at] = replace(events[at], attributes={**(events[at].attributes or {}), "vector": vector})
    return events


@at_row(CAST)
def deliver_before_cast(events: Trace, random: Random, at: int) -> Trace | None:
    own = [o for o in _later(events, at, DELIVER) if events[o].origin == events[at].origin]
    if not own or events[own[0]].view != events[at].view:
        return None
    events.insert(at, events.pop(own[0]))
    return renumber(events)


def split_batch(events: Trace, random: Random) -> Trace | None:
    """One member delivers a batch in two rows: the same messages, cut otherwise."""
    rows = [at for at, event in enumerate(events) if event.kind in (DELIVER, PLACE) and (event.count or 0) > 1]
    if not rows:
        return None
    at = random.choice(rows)
    row = events[at]
    assert row.first is not None
    assert row.count is not None
    cut = random.randint(1, row.count - 1)
    events[at : at + 1] = [
        replace(row, count=cut, digest=None),
        replace(row, first=row.first + cut, count=row.count - cut, digest=None),
    ]
    return renumber(events)


@at_row(CAST)
def another_service(events: Trace, random: Random, at: int) -> Trace | None:
    """A message, or everything of one origin, is of the other service."""
    one, all_of_it = events[at], random.random() < 0.5
    service = "causal" if one.service == "total" else "total"
    for other, event in enumerate(events):
        same = event.origin == one.origin if all_of_it else _overlap(event, one)
        if same and event.kind in (CAST, DELIVER, PLACE):
            events[other] = replace(event, service=service)
    return renumber(events)


DAMAGES: dict[str, Damage] = {
    damage.__name__: damage
    for damage in (
        drop, duplicate, swap_one_origin, swap_neighbours, swap_far, swap_everywhere, move_across_view, move_in_file,
        alter_digest, remove_cast, change_members, change_view, change_transitional, delete_rows, truncate_life, drop_life,
        shift_ordinal, same_index_twice, go_on_after_end, begin_otherwise, change_ending, address_others, make_void,
        alter_vector, deliver_before_cast, split_batch, another_service,
    )
}  # fmt: skip
