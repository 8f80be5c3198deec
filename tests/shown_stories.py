"""Stories with what applications are shown: `shown` writes them, `ShownHistories` makes them up, and damage is done to both.

Beyond the words of `view_stories`:

    a,b TRANSITION                the view that was shown last ends: after what was delivered before BLOCK
    a,b SHOW                      the view that was installed last, with all that a recorder would write
    a RECEIPT x stable            the receipt of a message; its outcome is ok unless `uncertain` follows
    c STATE replaced=false        the application's state was replaced

``together``, ``joined``, ``left`` and ``known`` are lists of names separated by commas, ``-`` for an empty one. A word
``name=value`` has the last say, so a story may be as wrong as its author likes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from tests.view_damage import Damage, add, change_attribute, change_view, damaged, lose, swap
from tests.view_stories import Histories, Teller, Trace
from unisono.trace.schema import (
    BLOCK,
    CAST,
    DATAGRAM,
    DELIVER,
    RECEIPT,
    SHOW,
    STATE,
    TOTAL,
    TRANSITION,
    VIEW,
    Event,
    member_name,
)
from unisono.trace.shown import Shown, ShownTotals
from unisono.trace.story import renumber

LISTS = ("together", "joined", "left", "known")


@dataclass
class Viewer:
    """What one application was shown so far, as its recorder counts it."""

    installed: Event | None = None
    view: Event | None = None
    """The SHOW row of the view that it was shown last."""
    totals: dict[str | None, ShownTotals] = field(default_factory=dict)
    blocked: dict[str | None, Shown] = field(default_factory=dict)
    is_restored: bool = False


class ShownTeller(Teller):
    def __init__(self, run: str, protocol: str, service: str) -> None:
        super().__init__(run, protocol, service)
        self.viewers: dict[str, Viewer] = {}

    def event(self, name: str, kind: str, words: list[str], where: str) -> None:
        viewer = self.viewers.setdefault(name, Viewer())
        lists = [word for word in words if word.partition("=")[0] in LISTS]
        plain = [word for word in words if word not in lists]
        title = plain.pop(0) if kind == RECEIPT else ""
        outcome = [word for word in plain if "=" not in word] if kind == RECEIPT else []
        super().event(name, kind, [word for word in plain if word not in outcome], where)
        event = self.events[-1]
        told = self._told(name, viewer, event, outcome)
        if kind == RECEIPT:
            cast = self.casts[title]
            event.origin, event.origin_incarnation = event.member, event.incarnation
            event.first, event.count = cast.first, cast.count
        for word in lists:
            key, _, value = word.partition("=")
            told[key] = json.dumps([one for one in value.split(",") if one not in ("", "-")], separators=(",", ":"))
        if told:
            event.attributes = {**told, **(event.attributes or {})}
        self._book(viewer, event)

    def _told(self, name: str, viewer: Viewer, event: Event, outcome: list[str]) -> dict[str, str]:
        last = viewer.view
        if event.kind == RECEIPT:
            return {"stage": outcome[0], "outcome": outcome[1] if outcome[1:] else "ok"}
        if event.kind not in (SHOW, TRANSITION) or viewer.installed is None:
            return {}
        along = viewer.installed.transitional or (name,) if last is not None else (name,)
        told = {"together": _json(along), "primary": (viewer.installed.attributes or {}).get("primary", "true")}
        if event.kind == TRANSITION:
            event.view = event.view if last is None else last.view
            early = viewer.blocked.get(event.view) or viewer.totals.get(event.view, ShownTotals()).told()
            return told | _totals(early)
        members, before = viewer.installed.members or (), () if last is None else last.members or ()
        event.members = event.members or members
        told |= {"joined": _json(one for one in members if one not in along)}
        told |= {"left": _json(one for one in before if one not in along)}
        if last is not None:
            told |= {"previous": last.view or "", **_totals(viewer.totals.get(last.view, ShownTotals()).told())}
        return told | ({"restored": "true"} if viewer.is_restored else {})

    def _book(self, viewer: Viewer, event: Event) -> None:
        if event.kind == VIEW:
            viewer.installed = event
        elif event.kind == BLOCK:
            viewer.blocked.setdefault(event.view, viewer.totals.setdefault(event.view, ShownTotals()).told())
        elif event.kind == DELIVER and event.destinations is None and event.service != DATAGRAM:
            origin = member_name(event.origin or "", event.origin_incarnation or 0)
            totals = viewer.totals.setdefault(event.view, ShownTotals())
            totals.add(origin, event.first or 0, event.count or 0, event.digest, event.service == TOTAL)
        elif event.kind == SHOW:
            viewer.view, viewer.is_restored = event, False
        elif event.kind == STATE:
            viewer.is_restored = True


def _json(names: object) -> str:
    assert not isinstance(names, str)
    return json.dumps(list(names), separators=(",", ":"))  # type: ignore[call-overload]


def _totals(told: Shown) -> dict[str, str]:
    return {"shown": str(told.shown), "digest": told.digest, "chain": told.chain}


def shown(text: str, run: str = "story", service: str = "total") -> Trace:
    return ShownTeller(run, "causal-total", service).tell(text)


# Made up.


class ShownHistories(Histories):
    """Histories in which every view is shown as soon as it is installed, and casters are given receipts."""

    def story(self) -> str:
        lines = super().story().splitlines()
        seen: set[str] = set()
        told: list[str] = []
        for line in lines:
            who, kind, *words = line.split()
            told.append(line)
            if kind == VIEW:
                again = [name for name in who.split(",") if name in seen]
                seen.update(who.split(","))
                told += [f"{','.join(again)} TRANSITION"] if again else []
                told.append(f"{who} SHOW")
            elif kind == "SNAPSHOT_IN":
                told.append(f"{who} STATE replaced=false")
            elif kind == CAST:
                caster, title = who, words[0]
            elif kind == DELIVER and words[0] == title and caster in who.split(","):
                told += [f"{caster} RECEIPT {title} {stage}" for stage in self.random.choice(STAGES_TOLD)]
        return "\n".join(told)


STAGES_TOLD: tuple[tuple[str, ...], ...] = (
    (),
    ("delivered", "applied", "stable"),
    ("stable",),
    ("delivered", "stable uncertain"),
    ("applied uncertain",),
)


def change_names(*kinds: str) -> Damage:
    """Somebody more, or somebody fewer, in one of the lists of names."""

    def damage(events: Trace, random: Random) -> Trace:
        rows = [at for at, event in enumerate(events) if event.kind in kinds and event.attributes]
        if not rows:
            return events
        at = random.choice(rows)
        attributes = dict(events[at].attributes or {})
        lists = sorted(attributes.keys() & set(LISTS))
        if lists:
            key = random.choice(lists)
            names = json.loads(attributes[key]) if attributes[key].startswith("[") else []
            others = sorted({member_name(event.member, event.incarnation) for event in events} - set(names))
            names = names[1:] if names and random.random() < 0.5 else [*names, random.choice(others or ["x"])]
            attributes[key] = _json(names)
        events[at] = replace(events[at], attributes=attributes)
        return events

    return damage


def tell_again(*kinds: str) -> Damage:
    """A row of such a kind comes once more, at the end of its life."""

    def damage(events: Trace, random: Random) -> Trace:
        rows = [event for event in events if event.kind in kinds]
        if not rows:
            return events
        one = random.choice(rows)
        last = max(at for at, event in enumerate(events) if event.member == one.member)
        events.insert(last, replace(one))
        return renumber(events)

    return damage


def split_primary(events: Trace, random: Random) -> Trace:
    """All views of one life are told otherwise: as primary ones with a state that it holds or lacks."""
    state, holds = random.choice(("1@a/", "2@a/", "2@b/", "")), random.choice(("true", "false"))
    whose = random.choice([event.member for event in events])
    for at, event in enumerate(events):
        if event.kind == VIEW and (event.member == whose or random.random() < 0.7):
            attributes = {**(event.attributes or {}), "primary": "true", "holds": holds}
            events[at] = replace(event, attributes=attributes | ({"state": state} if state else {}))
    return events


def make_safe(events: Trace, random: Random) -> Trace:
    for at, event in enumerate(events):
        if event.kind == CAST:
            events[at] = replace(event, attributes={**(event.attributes or {}), "safe": "true"})
    return lose(DELIVER)(events, random)


SHOWN_FOCUS: dict[str, tuple[tuple[str, ...], tuple[Damage, ...]]] = {
    "P25": (
        ("cast", "split", "merge", "join", "crash"),
        (
            change_names(SHOW, TRANSITION), change_attribute(SHOW, TRANSITION), lose(SHOW, TRANSITION), lose(DELIVER), lose(BLOCK),
            tell_again(SHOW, TRANSITION), change_view("view", SHOW, TRANSITION), add((SHOW, "restored", "true")), swap,
        ),
    ),
    "P26": (
        ("cast", "cast", "split", "crash"),
        (lose(DELIVER), lose(DELIVER), lose(VIEW), change_attribute(RECEIPT), tell_again(RECEIPT, "SNAPSHOT_IN")),
    ),
    "P27": (
        ("cast", "cast", "crash", "split", "join"),
        (make_safe, make_safe, lose(BLOCK), split_primary, add((VIEW, "primary", "true"), (CAST, "safe", "true"))),
    ),
    "P28": (
        ("cast", "cast", "cast"),
        (tell_again(RECEIPT), tell_again(RECEIPT), change_attribute(RECEIPT), lose(DELIVER), swap, swap),
    ),
    "P29": (
        ("split", "crash", "join", "snapshot", "merge", "snapshot"),
        (split_primary, split_primary, lose(STATE), tell_again(STATE), change_attribute(VIEW), lose(VIEW), swap),
    ),
}  # fmt: skip
"""By property: steps that a history has more often, and damage that is done to it."""


def shown_histories(focus: str, count: int) -> Iterator[tuple[str, Trace]]:
    def tell(random: Random, service: str, favourites: tuple[str, ...], run: str) -> Trace:
        return shown(ShownHistories(random, service, favourites).story(), run, service)

    return damaged(focus, count, SHOWN_FOCUS[focus], tell)
