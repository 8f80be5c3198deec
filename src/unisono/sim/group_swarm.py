"""The swarm of whole groups: a seed is a group, a load and a handful of faults.

Faults come in twos by default, close together, because most bugs of view changes need the second one. Beside faults, a seed draws
how reports travel, whether the order is switched now and then (the run then owes what all its orders promise), whether only a
primary view may cast (others refuse, which a workload takes as an answer; P20 is owed then), and whether applications have a
state, with or without a way to merge it.

Everything is drawn ahead of the run, so a failure can be shrunk and kept. Who is struck is drawn among those who are up by then
if all goes as the scenario says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

from unisono.core.config import MILLISECOND
from unisono.core.member import Member
from unisono.core.ordering import AnyOrdering
from unisono.core.types import MemberId
from unisono.orders.registry import ORDERS
from unisono.sim.faults import Fault
from unisono.sim.group_run import GroupOutcome, failure_of, judge, try_group
from unisono.sim.group_scenario import GroupScenario, PlannedCast, PlannedCheck
from unisono.sim.replays import keep_smallest
from unisono.trace.sinks import Sink

NAMES = "abcdefgh"
MICROSECOND = MILLISECOND // 1_000
DELAYS = (
    "constant:1ms",
    "uniform:0.1ms:3ms",
    "exponential:1ms",
    "lognormal:1ms:1.0",
    "bimodal:0.5ms:20ms:0.1",
    "wan:3",
)
KINDS = (
    "crash",
    "restart",
    "restart later",
    "pause",
    "long pause",
    "leave",
    "join",
    "partition",
    "one way",
    "triangle",
    "clog",
    "lossy",
    "drift",
    "narrow",
    "switch",
)
LEAVE_NS = 60 * MILLISECOND
"""How long one that leaves still counts as up."""


class Attendance:
    """Which members are up when, as far as a scenario alone decides it. Faults are taken in the order of time."""

    def __init__(self, starts: Mapping[str, int], faults: Iterable[Fault] = ()) -> None:
        self._lives: dict[str, list[tuple[int, int | None]]] = {name: [(start, None)] for name, start in starts.items()}
        """From and until when; None: to the end."""
        self._paused: dict[str, int] = {}  # until when
        for fault in faults:
            self.take(fault)

    def up(self, now: int) -> list[str]:
        return [
            name
            for name, lives in self._lives.items()
            if any(start <= now and (end is None or now < end) for start, end in lives)
        ]

    def spare(self) -> tuple[str, ...]:
        """Names that no member has had."""
        return tuple(name for name in NAMES if name not in self._lives)

    def is_paused(self, name: str, now: int) -> bool:
        return self._paused.get(name, 0) > now

    def take(self, fault: Fault) -> None:
        """A fault strikes: who is up after it?"""
        name, at, until = (*fault.who, "")[0], fault.at_ns, fault.at_ns + fault.duration_ns
        match fault.kind:
            case "crash":
                self._end(name, at)
            case "restart" if fault.duration_ns:
                self._end(name, at)
                self._begin(name, until)
            case "pause":
                self._paused[name] = max(until, self._paused.get(name, 0))
            case "leave":
                self._end(name, at + LEAVE_NS)
            case "join":
                self._begin(name, at)

    def _begin(self, name: str, now: int) -> None:
        self._lives.setdefault(name, []).append((now, None))

    def _end(self, name: str, now: int) -> None:
        lives = self._lives.get(name, [])
        self._lives[name] = [(start, now if end is None else end) for start, end in lives if start <= now]


def draw_fault(kind: str, at: int, attendance: Attendance, rng: Random) -> Fault | None:
    """A fault of this kind, among the members that are up then. None: no member fits."""
    if kind == "join":
        return Fault(kind, at, attendance.spare()[-1:]) if attendance.spare() else None
    up = attendance.up(at)
    if len(up) < 2:
        return None
    one, other = rng.sample(up, 2)
    length = rng.randint(50, 1_500) * MILLISECOND
    match kind:
        case "crash" | "restart":
            return Fault(kind, at, (one,))
        case "restart later":
            return Fault("restart", at, (one,), length)
        case "pause" | "long pause":
            shortest, longest = (20, 200) if kind == "pause" else (400, 1_500)
            return Fault("pause", at, (one,), rng.randint(shortest, longest) * MILLISECOND)
        case "leave":
            return None if attendance.is_paused(one, at) else Fault(kind, at, (one,))
        case "partition":
            rng.shuffle(up)
            cuts = sorted(rng.sample(range(1, len(up)), min(len(up) - 1, rng.choice((1, 1, 2)))))
            parts = tuple(tuple(up[a:b]) for a, b in pairwise([0, *cuts, len(up)]))
            return Fault(kind, at, (), length, parts=parts)
        case "clog":
            return Fault(kind, at, (one, other), length)
        case "lossy":
            return Fault(kind, at, (one, other), amount=rng.uniform(0.1, 0.9))
        case "drift":
            return Fault(kind, at, (one,), amount=rng.uniform(-0.1, 0.1))
        case "narrow":
            return Fault(kind, at, (one,), amount=rng.choice((20_000.0, 100_000.0)))
        case "switch":
            return Fault(kind, at, (one,), order=rng.choice(sorted(ORDERS)))
        case _:  # a link in one direction, or in both
            return Fault(kind, at, (one, other))


class Draw:
    """Draws the scenario of one seed."""

    def __init__(self, order: str, seed: int) -> None:
        self.order, self.seed = order, seed
        self.rng = rng = self.stream("script")
        names = NAMES[: rng.randint(2, 6)]
        self.duration_ns = rng.randint(1_500, 4_000) * MILLISECOND
        self.starts = {name: rng.randrange(300 * MILLISECOND) for name in names}
        self.attendance = Attendance(self.starts)

    def stream(self, purpose: str) -> Random:
        return Random(f"group swarm/{purpose}/{self.order}/{self.seed}")

    def scenario(self) -> GroupScenario:
        rng, options, states = self.rng, self.stream("options"), self.stream("states")
        collect = options.choice(("ring", "ring", "ring", "star") if self.order == "rmp" else ("star", "star", "ring"))
        is_primary, is_switching = options.random() < 0.25, options.random() < 0.3
        has_state, can_merge = states.random() < 0.4, states.random() < 0.6
        plain = GroupScenario(
            self.order,
            self.seed,
            self.starts,
            self.duration_ns,
            delay=rng.choice(DELAYS),
            loss=rng.choice((0.0, 0.0, 0.02, 0.1, 0.3)),
            duplicate=rng.choice((0.0, 0.1)),
            reorder=rng.choice((0.0, 0.1, 0.3)),
            replay=rng.choice((0.0, 0.05)),
            collect=collect,
            is_primary=is_primary,
            has_state=has_state,
            can_merge=has_state and can_merge,
        )
        faults = tuple(self._faults(is_switching))
        return replace(plain, faults=faults, casts=tuple(self._casts()), checks=tuple(self._checks()))

    # Faults, in the order of time, because each decides who is up at the next.

    def _faults(self, is_switching: bool) -> Iterator[Fault]:
        rng = self.rng
        strikes: list[tuple[int, str]] = []
        for _ in range(rng.randint(1, 3)):
            start = rng.randint(200, self.duration_ns // MILLISECOND) * MILLISECOND
            for _ in range(rng.choice((1, 2, 2, 3))):
                strikes.append((start + rng.randrange(60 * MILLISECOND), rng.choice(KINDS)))
        for at, kind in sorted(strikes):
            fault = draw_fault(kind, at, self.attendance, rng) if kind != "switch" or is_switching else None
            if fault is not None:
                self.attendance.take(fault)
                yield fault

    # Load.

    def _casts(self) -> Iterator[PlannedCast]:
        rng = self.stream("casts")
        subset_share = rng.choice((0.0, 0.0, 0.3))
        safe_share = rng.choice((0.0, 0.0, 0.3, 1.0))
        causal_share = rng.choice((0.0, 0.3)) if self.order in ("toto", "all-ack") else 0.0
        awaited_share = rng.choice((0.0, 0.2, 1.0))
        gap = rng.choice((3, 10, 40)) * MILLISECOND
        for now in self._times(rng, 100 * MILLISECOND, gap):
            if up := self.attendance.up(now):
                to = rng.sample(up, rng.randint(1, len(up))) if rng.random() < subset_share else ()
                yield PlannedCast(
                    now,
                    rng.choice(up),
                    rng.choice((4, 4, 60, 1_000)) if rng.random() < 0.97 else 12_000,
                    tuple(to),
                    rng.random() < safe_share,
                    rng.random() < causal_share,
                    rng.random() < awaited_share,
                )

    def _checks(self) -> Iterator[PlannedCheck]:
        rng = self.stream("checks")
        gap = rng.choice((0, 0, 20, 200)) * MILLISECOND
        if gap:
            for now in self._times(rng, gap, gap):
                if up := self.attendance.up(now):
                    yield PlannedCheck(now, rng.choice(up))

    def _times(self, rng: Random, first: int, gap: int) -> Iterator[int]:
        """Whole microseconds, no two alike."""
        now = first
        while now <= self.duration_ns:
            yield now
            now += (1 + int(rng.expovariate(1.0) * gap / MICROSECOND)) * MICROSECOND


def scenario_of(order: str, seed: int) -> GroupScenario:
    """The scenario of a seed. Changing what it draws changes what old seeds mean; regressions are kept as replay files."""
    return Draw(order, seed).scenario()


def run_group_seed(
    order: str,
    seed: int,
    *,
    kind: type[Member] = Member,
    orders: Mapping[str, type[AnyOrdering]] = ORDERS,
    sinks: Callable[[MemberId], Sequence[Sink]] = lambda member: (),
) -> GroupOutcome:
    """Run and judge one seed."""
    return judge(scenario_of(order, seed), kind=kind, orders=orders, sinks=sinks)


def try_group_seed(order: str, seed: int, kind: type[Member] = Member) -> GroupOutcome:
    """Run and judge one seed; an exception inside the run is a failure like any other. Never raises."""
    return try_group(scenario_of(order, seed), kind)


def hunt(order: str, seed: int, folder: str) -> GroupOutcome:
    """Run and judge one seed; a failure is shrunk to a replay file. For worker processes."""
    return keep(scenario_of(order, seed), try_group_seed(order, seed), Path(folder) / f"{order}-{seed}.replay.json")


def keep(scenario: GroupScenario, found: GroupOutcome, path: Path) -> GroupOutcome:
    """What a run showed, and where its replay file lies if it failed: shrunk."""
    if found.sentence is None:
        return found
    keep_smallest(path, scenario, found.sentence, failure_of)
    return replace(found, replay=str(path))
