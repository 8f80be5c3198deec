"""Ways to spoil a trace with the rows that P15–P24 ask about, and random traces, each with a fault or two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from tests.view_stories import Histories, Trace, told
from unisono.trace.schema import CAST, CRASH, DELIVER, END, ENDINGS, LEAVE, VIEW
from unisono.trace.story import renumber

Damage = Callable[[Trace, Random], Trace]


def _at(events: Trace, random: Random, *kinds: str) -> int:
    return random.choice([at for at, event in enumerate(events) if not kinds or event.kind in kinds] or [0])


def _changed(events: Trace, at: int, **columns: Any) -> Trace:
    events[at] = replace(events[at], **columns)
    return events


def lose_row(events: Trace, random: Random) -> Trace:
    del events[random.randrange(len(events))]
    return events if random.random() < 0.4 else renumber(events)


def lose(*kinds: str) -> Damage:
    """A row of that kind was never written, and nobody can tell by the numbers."""

    def damage(events: Trace, random: Random) -> Trace:
        del events[_at(events, random, random.choice(kinds))]
        return renumber(events)

    return damage


def lose_end(events: Trace, random: Random) -> Trace:
    one = random.choice(events)
    alike = [event for event in events if event.member == one.member and event.local_index >= one.local_index]
    return [event for event in events if event not in alike] or events


def swap(events: Trace, random: Random) -> Trace:
    at = random.randrange(len(events))
    life = (events[at].member, events[at].incarnation)
    later = [o for o in range(at + 1, len(events)) if (events[o].member, events[o].incarnation) == life]
    if later and CAST not in (events[at].kind, events[later[0]].kind):
        events[at], events[later[0]] = events[later[0]], events[at]
    return renumber(events)


def deliver_later(events: Trace, random: Random) -> Trace:
    """A delivery moves behind the member's next row, and behind its next view, if that is what comes."""
    at = _at(events, random, DELIVER)
    row = events.pop(at)
    mine = [o for o in range(at, len(events)) if events[o].member == row.member and events[o].kind in (VIEW, "STABLE")]
    view = random.choice((row.view, events[mine[0]].view)) if mine else row.view
    events.insert(mine[0] + 1 if mine else at, replace(row, view=view))
    return renumber(events)


def change_list(*columns: str) -> Damage:
    def damage(events: Trace, random: Random) -> Trace:
        at, column = _at(events, random, VIEW), random.choice(columns)
        old = list(getattr(events[at], column) or ())
        names = [event.view or "" if column == "parts" else event.member for event in events]
        new = random.choice((old[1:], [*old, random.choice(names)], [*old, "9@x" if column == "parts" else "x"], None))
        return _changed(events, at, **{column: None if new is None and column != "members" else tuple(new or old)})

    return damage


def change_view(column: str, *kinds: str) -> Damage:
    def damage(events: Trace, random: Random) -> Trace:
        views = sorted({event.view for event in events if event.view is not None})
        at = _at(events, random, *kinds)
        if column == "view" and events[at].kind == VIEW and random.random() < 0.7:
            return events
        return _changed(events, at, **{column: random.choice([*views, "9@x"])})

    return damage


VALUES = ("true", "false", "0", "2", "7", "40", "1@a", "2@b,1@a", "", "0" * 16, "12x")


def change_attribute(*kinds: str) -> Damage:
    def damage(events: Trace, random: Random) -> Trace:
        rows = [at for at, event in enumerate(events) if event.attributes and (not kinds or event.kind in kinds)]
        if not rows:
            return events
        kind = random.choice(sorted({events[at].kind for at in rows}))
        at = random.choice([at for at in rows if events[at].kind == kind])
        attributes = dict(events[at].attributes or {})
        key = random.choice(sorted(attributes))
        attributes[key] = random.choice(VALUES)
        if random.random() < 0.2:
            del attributes[key]
        return _changed(events, at, attributes=attributes or None)

    return damage


def add(*choices: tuple[str, str, str]) -> Damage:
    """An attribute: kind of row, name, value."""

    def damage(events: Trace, random: Random) -> Trace:
        kind, key, value = random.choice(choices)
        at = _at(events, random, kind)
        return _changed(events, at, attributes={**(events[at].attributes or {}), key: value})

    return damage


def change_decision(events: Trace, random: Random) -> Trace:
    at = _at(events, random, "DECIDE", "DECIDE", "VOTE")
    turned = {"commit": "abort", "abort": "commit", "yes": "no", "no": "yes"}
    return _changed(events, at, decision=turned.get(events[at].decision or "", "no"))


def change_transaction(events: Trace, random: Random) -> Trace:
    at = _at(events, random, "DECIDE", "VOTE", "DELIVER", "CAST", "RECEIVE")
    names = sorted({event.transaction for event in events if event.transaction}) or ["t"]
    return _changed(events, at, transaction=random.choice([*names, None]))


def change_ending(events: Trace, random: Random) -> Trace:
    at = _at(events, random, *ENDINGS)
    if events[at].kind in ENDINGS:
        kind, reason = random.choice(((CRASH, None), (LEAVE, None), (END, "cut"), (END, None)))
        events[at] = replace(events[at], kind=kind, reason=reason)
    return events


def change_time(events: Trace, random: Random) -> Trace:
    at = random.randrange(len(events))
    late = random.choice((20, 200, 2000))
    if random.random() < 0.5:
        return [replace(event, time_ns=event.time_ns + (late if o >= at else 0)) for o, event in enumerate(events)]
    events[at] = replace(events[at], time_ns=events[at].time_ns + late)
    return events


def tighten(events: Trace, random: Random) -> Trace:
    """Everyone had less time than it took."""
    bound = {"bound_ns": random.choice(("0", "3", "8", "15"))}
    return [
        replace(event, attributes={**(event.attributes or {}), **bound}) if event.kind == "HEAL" else event
        for event in events
    ]


def change_clock(events: Trace, random: Random) -> Trace:
    whose = random.choice(events).member
    return [replace(event, clock="real" if event.member == whose else event.clock) for event in events]


def change_snapshot(events: Trace, random: Random) -> Trace:
    at = _at(events, random, "SNAPSHOT_OUT", "SNAPSHOT_IN")
    if events[at].ordinal is not None:
        events[at] = replace(events[at], ordinal=max(0, (events[at].ordinal or 0) + random.choice((-1, 1, 2))))
    return events


COMMON: tuple[Damage, ...] = (lose_row, lose_row, lose_end, swap, change_ending, change_time, change_view("view"))

FOCUS: dict[str, tuple[tuple[str, ...], tuple[Damage, ...]]] = {
    "P15": (
        ("split", "merge", "join", "crash"),
        (
            change_list("transitional"), change_list("members"), change_view("previous_view", VIEW), lose(VIEW),
            add((VIEW, "cut", "c")),
        ),
    ),
    "P16": (
        ("split", "merge", "join", "cast"),
        (change_list("parts"), change_list("parts", "members"), lose(VIEW), deliver_later, change_view("view", "RECEIVE")),
    ),
    "P17": (
        ("cast", "cast", "crash_in_transaction"),
        (lose("STABLE", "RECEIVE"), lose("STABLE"), deliver_later, swap, add((CAST, "safe", "true")), lose("BLOCK")),
    ),
    "P18": (
        ("transaction", "crash_in_transaction", "split"),
        (
            lose("VOTE", "DECIDE", DELIVER), change_decision, change_decision, change_transaction, swap,
            add(("DECIDE", "recovery", "true")),
        ),
    ),
    "P19": (
        ("snapshot", "snapshot", "join", "cast", "merge"),
        (
            change_attribute("SNAPSHOT_OUT", "SNAPSHOT_IN"), change_snapshot, lose(DELIVER),
            lose("SNAPSHOT_OUT", "SNAPSHOT_IN"), change_view("view", "SNAPSHOT_IN", "SNAPSHOT_OUT"), swap,
        ),
    ),
    "P20": (
        ("split", "crash", "join", "merge"),
        (change_attribute(VIEW), add((VIEW, "primary", "true"), (VIEW, "previous_primary", "1@a")), lose(VIEW)),
    ),
    "P21": (
        ("attack", "count", "attack", "count", "cast"),
        (
            lose("DROP"), change_attribute("COUNTERS", "DROP"), change_list("members"),
            add(("RECEIVE", "sender", "x"), ("RECEIVE", "authenticated", "false"), ("RECEIVE", "sender", "a")),
        ),
    ),
    "P22": (
        ("crash", "split", "merge", "cast"),
        (
            change_time, change_clock, lose(VIEW, DELIVER, "UNBLOCK"), change_attribute("HEAL"), change_ending,
            add(("HEAL", "component", "left")), lose(CRASH), tighten, tighten,
        ),
    ),
    "P23": (
        ("count", "count", "count", "count"),
        (change_attribute("COUNTERS"), change_attribute("COUNTERS"), add(("COUNTERS", "packets_limit", "8.9"))),
    ),
}  # fmt: skip
"""By property: steps that a history has more often, and damage that is done to it."""


def damaged(
    focus: str, count: int, choice: tuple[tuple[str, ...], tuple[Damage, ...]], tell: Callable[..., Trace]
) -> Iterator[tuple[str, Trace]]:
    """So many traces, one in eight of them as it was recorded."""
    favourites, damages = choice
    for seed in range(count):
        random = Random(f"{focus}/{seed}")
        service = random.choice(("total", "causal"))
        run = f"{focus}-{seed:04}"
        events = tell(random, service, favourites, run)
        for _ in range(random.choice((1, 2, 2, 3)) if seed % 8 else 0):
            events = random.choice((*damages * 4, *COMMON))(list(events), random) or events
        yield run, events


def histories(focus: str, count: int) -> Iterator[tuple[str, Trace]]:
    def tell(random: Random, service: str, favourites: tuple[str, ...], run: str) -> Trace:
        return told(Histories(random, service, favourites).story(), run, service)

    return damaged(focus, count, FOCUS[focus], tell)
