"""Stories with everything that P15–P24 ask about: `told` writes them, `Histories` makes them up.

Beyond the words of `trace.story`, a word ``name=value`` sets a column or, if there is no such column, an attribute (`digest` is
always one); a list is separated by commas, and ``-`` is null. ``at=500`` sets the clock. STABLE names a message, and rows
of a message belong to the transaction of its CAST.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from unisono.trace.checks.p19_state_transfer import START, chained, summed
from unisono.trace.schema import CRASH, LEAVE, NAMES, STABLE, Event
from unisono.trace.story import Story

Trace = list[Event]
LISTS, NUMBERS = ("members", "transitional", "parts", "destinations"), ("ordinal", "time_ns", "incarnation")
OF_MESSAGES = ("RECEIVE", "ORDERED", "DELIVER", "PLACE", "STABLE")


class Teller(Story):
    clock = 0

    def event(self, name: str, kind: str, words: list[str], where: str) -> None:
        options = dict(word.split("=", 1) for word in words if "=" in word)
        words = [word for word in words if "=" not in word]
        super().event(name, kind, words, where)
        event = self.events[-1]
        if kind == STABLE:
            self.message(self.tellers[name], event, words, where)
            event.reason = None
        if kind in OF_MESSAGES:
            event.transaction = self.casts[words[0].partition("[")[0]].transaction
        if "at" in options:
            self.clock = int(options.pop("at")) - len(self.events)
        event.time_ns = self.clock + len(self.events)
        for key, value in options.items():
            if key not in NAMES or key == "digest":
                event.attributes = {**(event.attributes or {}), key: value}
            elif key in LISTS:
                setattr(event, key, None if value == "-" else tuple(filter(None, value.split(","))))
            else:
                setattr(event, key, None if value == "-" else int(value) if key in NUMBERS else value)


def told(text: str, run: str = "story", service: str = "total") -> Trace:
    return Teller(run, "causal-total", service).tell(text)


# Made up.

STEPS = (
    "cast",
    "transaction",
    "snapshot",
    "count",
    "attack",
    "split",
    "merge",
    "crash",
    "crash_in_transaction",
    "join",
)


@dataclass
class Component:
    """Members that have one view, and what they have delivered in it."""

    view: str
    members: list[str]
    ordinal: int = 0


@dataclass
class Histories:
    """A random history of joins, crashes, partitions and merges, with messages, transactions, snapshots, primaries and attacks."""

    random: Random
    service: str = "total"
    favourites: Sequence[str] = ()
    """Steps that come more often than others."""
    lines: list[str] = field(default_factory=list)
    number: int = 1
    titles: int = 0
    casts: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    injected: dict[str, int] = field(default_factory=dict)
    needs_state: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.components = [Component("1@a", list("abcd"[: self.random.randint(2, 4)]))]
        self.primary = ("1@a", frozenset(self.components[0].members))
        self.key = "chain" if self.service == "total" else "digest"

    def story(self) -> str:
        members = self.components[0].members
        self._say(members, f"VIEW 1@a {' '.join(members)} primary=true")
        for _ in range(self.random.randint(2, 6)):
            self._step(*STEPS, *self.favourites, *self.favourites)
        if self.random.random() < 0.7:
            bound = self.random.choice((60, 100, 1000))
            for one in self.components:
                label = f"component={one.view}" if len(self.components) > 1 else ""
                self._say(one.members, f"HEAL bound_ns={bound} {label}")
        for _ in range(self.random.randint(0, 3)):
            self._step("cast", "transaction", "snapshot", "count")
        self.lines.append(self.random.choice(("all END", "all END", "all END cut")))
        return "\n".join(self.lines)

    def _step(self, *names: str) -> None:
        step: Callable[[], None] = getattr(self, self.random.choice(names))
        step()

    def _say(self, who: list[str], what: str) -> None:
        if who:
            self.lines.append(f"{','.join(who)} {what}")

    def _any(self) -> Component:
        return self.random.choice(self.components)

    def _title(self, origin: str) -> tuple[str, str]:
        index = self.casts.get(origin, 0)
        self.casts[origin] = index + 1
        self.titles += 1
        return f"m{self.titles}", f"{origin}:{index}"

    def _deliver(self, one: Component, title: str, message: str) -> None:
        step = chained if self.service == "total" else summed
        self._say(one.members, f"DELIVER {title}")
        one.ordinal += 1
        for name in one.members:
            self.states[name] = step(self.states.get(name, START), message)

    def cast(self) -> None:
        one = self._any()
        origin = self.random.choice(one.members)
        title, message = self._title(origin)
        safe = self.random.random() < 0.8
        self._say([origin], f"CAST {title}" + (" safe=true" if safe else ""))
        self._say([name for name in one.members if name != origin], f"RECEIVE {title}")
        if safe:
            self._say(one.members, f"STABLE {title}")
        self._deliver(one, title, message)

    def transaction(self) -> None:
        one = self._any()
        origin = self.random.choice(one.members)
        title, message = self._title(origin)
        name = f"transaction=t{self.titles}"
        against = self.random.choice([*one.members, None, None])
        self._say([origin], f"CAST {title} {name}")
        self._say([other for other in one.members if other != origin], f"RECEIVE {title}")
        self._say([other for other in one.members if other != against], f"VOTE {name} decision=yes")
        self._say([against] if against else [], f"VOTE {name} decision=no")
        self._say(one.members, f"DECIDE {name} decision={'abort' if against else 'commit'}")
        if against is None:
            self._deliver(one, title, message)

    def crash_in_transaction(self) -> None:
        one = self._any()
        if len(one.members) < 2:
            return
        origin = one.members[-1]
        title, message = self._title(origin)
        name = f"transaction=t{self.titles}"
        others = one.members[:-1]
        safe = self.random.random() < 0.7
        self._say([origin], f"CAST {title} {name}" + (" safe=true" if safe else ""))
        self._say(others, f"RECEIVE {title}")
        self._say([origin], "CRASH")
        self._say(others, "BLOCK")
        self._say(others if safe else [], f"STABLE {title}")
        one.members = others
        self._say(others, f"DECIDE {name} decision=commit recovery=true")
        self._deliver(one, title, message)
        self._install([one], others)

    def snapshot(self) -> None:
        one = self._any()
        donors = [name for name in one.members if name not in self.needs_state]
        joiners = [name for name in one.members if name in self.needs_state]
        if not donors:
            return
        donor = self.random.choice(donors)
        state = self.states.get(donor, START)
        at = f"ordinal={one.ordinal} service={self.service} {self.key}={state}"
        self._say([donor], f"SNAPSHOT_OUT {at}")
        for name in joiners:
            self.states[name] = state
        if joiners and self.random.random() < 0.5:
            title, message = self._title(donor)
            self._say([donor], f"CAST {title}")
            self._deliver(one, title, message)
        self._say(joiners, f"SNAPSHOT_IN {at}")
        self.needs_state -= set(joiners)

    def count(self) -> None:
        name = self.random.choice(self._any().members)
        injected = f"injected={self.injected.get(name, 0)} accepted_forged=0"
        self._say([name], f"COUNTERS queue_max=3 queue_max_limit=4 resends=1.5 resends_limit=1.5 packets=9 {injected}")

    def attack(self) -> None:
        name, packets = self.random.choice(self._any().members), self.random.randint(1, 3)
        self.injected[name] = self.injected.get(name, 0) + packets
        self._say([name], f"DROP forged injected={packets}")

    def split(self) -> None:
        one = self._any()
        if len(one.members) > 1:
            cut = self.random.randint(1, len(one.members) - 1)
            self.components.remove(one)
            for some in (one.members[:cut], one.members[cut:]):
                self._install([replace(one, members=some)], some)

    def merge(self) -> None:
        if len(self.components) > 1:
            some = self.random.sample(self.components, 2)
            for one in some:
                self.components.remove(one)
            self.needs_state |= set(some[1].members)
            self._install(some, some[0].members + some[1].members)

    def crash(self) -> None:
        one = self._any()
        if len(one.members) > 1:
            gone = one.members[-1]
            self._say([gone], self.random.choice((CRASH, LEAVE)))
            self._install([one], one.members[:-1])

    def join(self) -> None:
        one = self._any()
        name = f"j{self.number}" if self.random.random() < 0.5 else f"z#{self.number}"
        self._say([name], "JOIN")
        self.needs_state.add(name)
        self._install([one], [*one.members, name])

    def _install(self, parts: list[Component], members: list[str]) -> None:
        """A new view for these members, who come from these parts or from nowhere."""
        self.number += 1
        view = f"{self.number}@{members[0]}"
        marks = "parts=" + ",".join(sorted(part.view for part in parts))
        last, voters = self.primary
        if 2 * len(voters.intersection(members)) > len(voters):
            marks += f" primary=true previous_primary={last}"
            self.primary = (view, frozenset(members))
        for part in parts:
            came = [name for name in part.members if name in members]
            if self.random.random() < 0.5:
                self._say(came, "BLOCK")
            self._say(came, f"VIEW {view} {' '.join(members)} from {' '.join(came)} {marks}")
            if self.random.random() < 0.2:
                self._say(came, "UNBLOCK")
        new = [name for name in members if not any(name in part.members for part in parts)]
        self._say(new, f"VIEW {view} {' '.join(members)} {marks}")
        self.components = [one for one in self.components if one not in parts] + [Component(view, members)]
