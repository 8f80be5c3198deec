"""Random traces: clean ones raise nothing, and on damaged ones the checkers agree with a naive restatement.

A clean trace follows one global order: a cast is put at its end, and everyone delivers along it. So it is total, causal
and FIFO, whatever the members' speeds, recipients, services, batches and crashes.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from unisono.trace.checks import CHECKERS, Result, judge
from unisono.trace.promises import promises
from unisono.trace.schema import CAST, DELIVER, PLACE, VIEW, Event
from unisono.trace.story import renumber, tell

OWED = promises("causal-total") | {"P10"}
Message = tuple[str | None, int]


class Generator:
    """Tells a random story, line by line."""

    def __init__(self, random: Random, *, services: tuple[str, ...]) -> None:
        self.random = random
        self.services = services
        self.lines: list[str] = []
        self.alive = list("abcd"[: random.randint(2, 4)])
        self.view = 0
        self.titles = 0

    def story(self) -> str:
        for _ in range(self.random.randint(1, 3)):
            self.one_view()
        self.lines.append("all END")
        return "\n".join(self.lines)

    def one_view(self) -> None:
        members = list(self.alive)
        self.view += 1
        came = f" from {' '.join(members)}" if self.view > 1 else ""
        self.lines.append(f"{','.join(members)} VIEW {self.view}@{members[0]} {' '.join(members)}{came}")
        order: list[tuple[str, int, list[str]]] = []
        reached = dict.fromkeys(members, 0)
        for _ in range(self.random.randint(0, 14)):
            member = self.random.choice(self.alive)
            if self.random.random() < 0.45:
                order.append(self.cast(member, members))
            else:
                self.advance(member, order, reached, self.random.randint(1, 3))
        if len(self.alive) > 2 and self.random.random() < 0.4:
            crashed = self.alive.pop(self.random.randrange(len(self.alive)))
            self.lines.append(f"{crashed} CRASH")
        for member in self.alive:
            self.lines.append(f"{member} BLOCK")
            self.advance(member, order, reached, len(order))

    def cast(self, member: str, members: list[str]) -> tuple[str, int, list[str]]:
        title, count = f"m{self.titles}", self.random.randint(1, 3)
        self.titles += 1
        to = (
            members if self.random.random() < 0.7 else self.random.sample(members, self.random.randint(1, len(members)))
        )
        limited = "" if to is members else f" to {','.join(to)}"
        self.lines.append(f"{member} CAST {title} count {count}{limited} {self.random.choice(self.services)}")
        return title, count, to

    def advance(
        self, member: str, order: list[tuple[str, int, list[str]]], reached: dict[str, int], steps: int
    ) -> None:
        for title, count, to in order[reached[member] : reached[member] + steps]:
            kind = DELIVER if member in to else PLACE
            cut = self.random.randint(1, count)
            self.lines.append(f"{member} {kind} {title}[0:{cut}]")
            if cut < count:
                self.lines.append(f"{member} {kind} {title}[{cut}:{count}]")
            reached[member] += 1


def shuffled(events: list[Event], random: Random) -> list[Event]:
    """Another interleaving that keeps each member's own order."""
    queues: dict[str, list[Event]] = {}
    for event in events:
        queues.setdefault(event.member, []).append(event)
    merged = []
    while queues:
        member = random.choice(sorted(queues))
        merged.append(queues[member].pop(0))
        if not queues[member]:
            del queues[member]
    return merged


def damaged(events: list[Event], random: Random) -> list[Event]:
    """Swap, drop or repeat some deliveries, as a faulty protocol would; numbered as its recorder would."""
    events = list(events)
    for _ in range(random.randint(1, 3)):
        rows = [at for at, event in enumerate(events) if event.kind in (DELIVER, PLACE)]
        if not rows:
            break
        at = random.choice(rows)
        same = [other for other in rows if events[other].member == events[at].member and other > at]
        what = random.choice(["swap", "swap", "swap", "drop", "repeat"])
        if what == "swap" and same:
            other = same[0] if random.random() < 0.7 else random.choice(same)
            one_view, other_view = events[at].view, events[other].view
            events[at], events[other] = replace(events[other], view=one_view), replace(events[at], view=other_view)
        elif what == "drop":
            del events[at]
        elif what == "repeat":
            events.insert(at, events[at])
    return renumber(events)


def messages(event: Event) -> list[Message]:
    assert event.first is not None
    assert event.count is not None
    return [(event.origin, event.first + step) for step in range(event.count)]


# The naive restatement: sets of messages, all pairs.


def naive_pasts(events: list[Event]) -> dict[Message, set[Message]]:
    casts = {message: event for event in events if event.kind == CAST for message in messages(event)}
    pasts: dict[Message, set[Message]] = {message: set() for message in casts}
    while True:
        before = sum(map(len, pasts.values()))
        known: dict[tuple[str, str | None], set[Message]] = {}
        for event in events:
            past = known.setdefault((event.member, event.view), set())
            if event.kind == CAST:
                for message in messages(event):
                    pasts[message] |= past
                    past |= {message} | pasts[message]
            elif event.kind in (DELIVER, PLACE):
                for message in messages(event):
                    if message in casts and casts[message].view == event.view:
                        past |= {message} | pasts[message]
        if sum(map(len, pasts.values())) == before:
            return pasts


def naive_p8(events: list[Event]) -> set[tuple[str, Message]]:
    """Who delivered something before which message of its past."""
    casts = {message: event for event in events if event.kind == CAST for message in messages(event)}
    pasts = naive_pasts(events)
    late = set()
    done: dict[tuple[str, str | None], set[Message]] = {}
    for event in events:
        if event.kind not in (DELIVER, PLACE):
            continue
        here = done.setdefault((event.member, event.view), set())
        for message in messages(event):
            if event.kind == DELIVER and casts[message].view == event.view:
                for earlier in pasts[message] - here:
                    to, service = casts[earlier].destinations, casts[earlier].service
                    if (to is None or event.member in to) and not (service == "total" != event.service):
                        late.add((event.member, earlier))
            here.add(message)
    return late


def naive_p9a(events: list[Event]) -> set[frozenset[str]]:
    """Which pairs of members disagree about a pair of messages, in one (V→V')."""
    sequences: dict[tuple[str, str | None], list[Message]] = {}
    ways: dict[tuple[str, str | None], object] = {}
    for event in events:
        if event.kind == VIEW:
            ways[event.member, event.previous_view] = (event.view, frozenset(event.transitional or ()))
        elif event.kind == "END":
            ways[event.member, event.view] = "END"
        elif event.kind in (DELIVER, PLACE) and event.service == "total":
            sequence = sequences.setdefault((event.member, event.view), [])
            sequence += [message for message in messages(event) if message not in sequence]
    broken = set()
    for (a, view_a), of_a in sequences.items():
        for (b, view_b), of_b in sequences.items():
            if a == b or view_a != view_b or (a, view_a) not in ways or ways[a, view_a] != ways.get((b, view_b)):
                continue
            common = [message for message in of_a if message in of_b]
            if common != [message for message in of_b if message in of_a]:
                broken.add(frozenset({a, b}))
    return broken


@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([("total",), ("causal",), ("total", "causal")]))
def test_a_clean_trace_raises_nothing_in_any_interleaving(random: Random, services: tuple[str, ...]) -> None:
    events = tell(Generator(random, services=services).story(), protocol="toto")
    for rows in (events, shuffled(events, random), sorted(events, key=lambda event: event.member)):
        verdict = judge(rows, OWED)
        assert not verdict.violations, str(verdict)
        assert all("no digest" in why for why in verdict.unknown.values()), "of batches that members cut otherwise"


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([("total",), ("causal",), ("total", "causal")]))
def test_on_damaged_traces_p8_agrees_with_the_naive_restatement(random: Random, services: tuple[str, ...]) -> None:
    events = damaged(tell(Generator(random, services=services).story(), protocol="toto"), random)
    # Nothing is delivered, or placed by its own caster, before it is cast: such a trace has no past to speak of.
    assume("P1" not in judge(events, ["P1"]).broken)
    assume(all(message not in past for message, past in naive_pasts(events).items()))
    expected = naive_p8(events)
    found = set()
    for violation in judge(shuffled(events, random), ["P8"]).violations:
        origin, _, indices = str(violation.witness["past"]).partition(":")
        first, _, last = indices.partition("-")
        found |= {(violation.members[0], (origin, index)) for index in range(int(first), int(last or first) + 1)}
    assert found == expected


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([("total",), ("total", "causal")]))
def test_on_damaged_traces_p9a_agrees_with_the_naive_restatement(random: Random, services: tuple[str, ...]) -> None:
    events = damaged(tell(Generator(random, services=services).story(), protocol="toto"), random)
    verdict = judge(shuffled(events, random), ["P9a", "P9b", "P9c"])
    found = {frozenset(violation.members) for violation in verdict.violations if violation.property == "P9a"}
    expected = naive_p9a(events)
    # Members with the same sequence are told once, so a pair may stand for others; but nobody is accused wrongly.
    assert found <= expected
    assert bool(found) == bool(expected)
    for stronger, weaker in (("P9b", "P9a"), ("P9c", "P9b")):
        assert weaker not in verdict.broken or stronger in verdict.broken


@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False))
def test_what_a_gap_hides_is_never_held_against_anyone(random: Random) -> None:
    """Rows that are lost from a clean trace make the verdict unknown, and raise nothing."""
    events = tell(Generator(random, services=("total", "causal")).story(), protocol="toto")
    lost = {at for at in range(len(events)) if random.random() < 0.15}
    kept = [event for at, event in enumerate(events) if at not in lost]
    verdict = judge(shuffled(kept, random), OWED)
    assert not verdict.violations, str(verdict)
    assert verdict.result is (Result.UNKNOWN if lost else Result.PASS)


def test_the_naive_restatement_needs_every_checker_it_names() -> None:
    assert CHECKERS.keys() >= OWED
