"""The swarm of whole groups: a seed is a group, a load and a handful of faults; then all heals, and everything must come to rest.

Faults come in twos by default, close together, because most bugs of view changes need the second one. A run has a safety phase,
in which anything may happen and nothing promised may break, and a liveness phase: all faults end, and within the bound there is
one view with everything delivered (P22).

A part of the groups has a state, with or without a way to merge it; in the end all members of one view must have the same.

Beside faults, a seed draws how reports travel, whether the order is switched now and then (the run then owes what all its orders
promise), and whether only a primary view may cast (others refuse, which a workload takes as an answer; P20 is owed then).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random

from unisono.core.config import MILLISECOND, SECOND
from unisono.core.member import Member, Settings
from unisono.core.membership import Policy
from unisono.core.options import CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.types import MemberId, Service
from unisono.orders.registry import ORDERS
from unisono.sim.group_state import StatefulProcess, differences
from unisono.sim.group_world import QUICK, GroupWorld, Process
from unisono.trace.sinks import Sink

NAMES = "abcdefgh"
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
    "lossy link",
    "drift",
    "narrow",
    "switch",
)


@dataclass(frozen=True)
class SwarmRun:
    """What one seed did and showed. It travels between processes and into files, so it holds plain values."""

    order: str
    seed: int
    result: str
    sentence: str | None = None
    """What is wrong, if anything."""
    faults: dict[str, int] = field(default_factory=dict)
    simulated_ns: int = 0
    views: int = 0
    deliveries: int = 0
    datagrams: int = 0


class StatefulWorld(GroupWorld):
    """A world in which every application has a state."""

    can_merge = True

    def process(self, id: MemberId, settings: Settings, record: bytes | None) -> Process:
        return StatefulProcess(self, id, settings, record, can_merge=self.can_merge)

    def is_at_rest(self) -> bool:
        """Nor does any application lack its state, or messages that are still on their way to it."""
        apps = [process for process in self.up if isinstance(process, StatefulProcess)]
        return (
            super().is_at_rest()
            and all(one.transfer.is_live for one in apps)
            and (self.is_read_only or len({len(one.app.log) for one in apps}) < 2)
        )

    @property
    def is_read_only(self) -> bool:
        return not all(process.member.is_primary for process in self.up)

    def give_up_lost_state(self) -> None:
        """If the last member that had the state is gone, do what an operator would do."""
        self.network.heal()
        self.run(20, lambda: self.is_one([process.id.address for process in self.up]))
        waiting = [process for process in self.up if process.member.lost_state is not None]
        if waiting and waiting[0].paused_until <= self.now:
            lost = waiting[0].member.lost_state
            assert lost is not None
            self.count("give up")
            waiting[0].member.give_up(lost)
            waiting[0].turn()

    def wrong_states(self) -> list[str]:
        """What is wrong with the states at the end, as sentences."""
        apps = [life for life in self.lives if isinstance(life, StatefulProcess)]
        found = [f"{life.id}: {fault}" for life in apps for fault in life.app.faults]
        last = [life for life in apps if life.alive and not life.member.is_gone]
        may_differ = not all(life.member.is_primary for life in last)
        return found if may_differ else found + differences(last)


class Script:
    """Plays the faults and casts of one seed on a world."""

    def __init__(self, world: GroupWorld, rng: Random, switching: bool) -> None:
        self.world = world
        self.rng = rng
        self.names = list(NAMES[: rng.randint(2, 6)])
        self.spare = [name for name in NAMES if name not in self.names]
        self.duration_ns = rng.randint(1_500, 4_000) * MILLISECOND
        self.switching = switching
        self.subset_share = rng.choice((0.0, 0.0, 0.3))
        self.safe_share = rng.choice((0.0, 0.0, 0.3, 1.0))
        self.causal_share = rng.choice((0.0, 0.3)) if world.order in ("toto", "all-ack") else 0.0
        self.waits = world.stream("receipts")
        self.waiting_share = self.waits.choice((0.0, 0.2, 1.0))
        self.checks = world.stream("checks")
        self.check_gap_ns = self.checks.choice((0, 0, 20, 200)) * MILLISECOND

    def play(self) -> None:
        world, rng = self.world, self.rng
        network = world.network
        network.loss = rng.choice((0.0, 0.0, 0.02, 0.1, 0.3))
        network.duplicate = rng.choice((0.0, 0.1))
        network.reorder = rng.choice((0.0, 0.1, 0.3))
        network.replay = rng.choice((0.0, 0.05))
        for kind in ("loss", "duplicate", "reorder", "replay"):
            if getattr(network, kind):
                world.count(kind)
        for name in self.names:
            world.at(rng.randrange(300 * MILLISECOND), self._starter(name))
        self._load()
        if self.check_gap_ns:
            world.after(self.check_gap_ns, self._check)
        for _ in range(rng.randint(1, 3)):
            start = rng.randint(200, self.duration_ns // MILLISECOND) * MILLISECOND
            for _ in range(rng.choice((1, 2, 2, 3))):
                world.at(start + rng.randrange(60 * MILLISECOND), self._striker(rng.choice(KINDS)))
        world.run(self.duration_ns / SECOND + 0.3)

    def _starter(self, name: str) -> Callable[[], None]:
        def start() -> None:
            self.world.start(name, seeds=self.names)

        return start

    def _load(self) -> None:
        gap = self.rng.choice((3, 10, 40)) * MILLISECOND

        def cast() -> None:
            world, rng = self.world, self.rng
            up = world.up
            if up:
                process = rng.choice(up)
                world.casts += 1
                size = rng.choice((4, 4, 60, 1_000)) if rng.random() < 0.97 else 12_000
                payload = f"{process.id}/{world.casts}/".encode().ljust(size, b".")
                process.cast(payload, self._options(process.id), self.waits.random() < self.waiting_share)
            if world.now < self.duration_ns:
                world.after(1 + int(rng.expovariate(1.0) * gap), cast)

        self.world.at(100 * MILLISECOND, cast)

    def _check(self) -> None:
        """A member compares what all have delivered, now and then."""
        world, rng = self.world, self.checks
        if world.up and rng.choice(world.up).check() is not None:
            world.count("check")
        if world.now < self.duration_ns:
            world.after(1 + int(rng.expovariate(1.0) * self.check_gap_ns), self._check)

    def _options(self, me: MemberId) -> CastOptions:
        rng = self.rng
        service = Service.CAUSAL if self.causal_share and rng.random() < self.causal_share else None
        safe = True if self.safe_share and rng.random() < self.safe_share else None
        view = self.world.processes[me.address].view
        if view is None or not self.subset_share or rng.random() >= self.subset_share:
            return CastOptions(None, service, safe)
        return CastOptions(tuple(rng.sample(view.members, rng.randint(1, len(view)))), service, safe)

    # Faults.

    def _striker(self, kind: str) -> Callable[[], None]:
        return lambda: self._strike(kind)

    def _strike(self, kind: str) -> None:
        world, rng = self.world, self.rng
        up = [process.id.address for process in world.up]
        length = rng.randint(50, 1_500) * MILLISECOND
        if kind == "join":
            if self.spare:
                name = self.spare.pop()
                self.names.append(name)
                world.count(kind)
                world.start(name, seeds=self.names)
            return
        if len(up) < 2:
            return
        one, other = rng.sample(up, 2)
        match kind:
            case "crash":
                world.crash(one)
            case "restart":
                world.restart(one, self.names)
            case "restart later":
                world.crash(one)
                world.after(length, lambda: world.restart(one, self.names))
            case "pause":
                world.pause(one, rng.randint(20, 200) * MILLISECOND)
            case "long pause":
                world.pause(one, rng.randint(400, 1_500) * MILLISECOND)
            case "leave":
                world.leave(one)
            case "partition":
                rng.shuffle(up)
                cuts = sorted(rng.sample(range(1, len(up)), min(len(up) - 1, rng.choice((1, 1, 2)))))
                bounds = [0, *cuts, len(up)]
                world.partition(*(up[a:b] for a, b in pairwise(bounds)))
                world.after(length, lambda: world.network.partition(()))
            case "one way":
                world.count(kind)
                world.network.cut(one, other)
            case "triangle":
                world.count(kind)
                world.network.cut(one, other)
                world.network.cut(other, one)
            case "clog":
                world.count(kind)
                world.network.clog(one, other, world.now + length)
            case "lossy link":
                world.count(kind)
                world.network.lose(one, other, rng.uniform(0.1, 0.9))
            case "drift":
                world.count(kind)
                world.processes[one].drift(1 + rng.uniform(-0.1, 0.1))
            case "narrow":
                world.count(kind)
                world.network.bytes_per_s[one] = rng.choice((20_000, 100_000))
            case "switch":
                if self.switching:
                    world.count(kind)
                    world.processes[one].member.switch(rng.choice(sorted(ORDERS)))


def run_group_seed(
    order: str,
    seed: int,
    *,
    kind: type[Member] = Member,
    orders: dict[str, type[AnyOrdering]] | None = None,
    sinks: Callable[[MemberId], Sequence[Sink]] = lambda member: (),
) -> SwarmRun:
    """Run and judge one seed."""
    rng = Random(f"group swarm/{order}/{seed}")
    draw = Random(f"group swarm/options/{order}/{seed}")
    collect = draw.choice(("ring", "ring", "ring", "star") if order == "rmp" else ("star", "star", "ring"))
    is_primary, is_switching = draw.random() < 0.25, draw.random() < 0.3
    states = Random(f"group swarm/states/{order}/{seed}")
    has_state, can_merge = states.random() < 0.4, states.random() < 0.6
    world = (StatefulWorld if has_state else GroupWorld)(
        order,
        f"{order}/{seed}",
        delay=rng.choice(DELAYS),
        orders=orders or ORDERS,
        kind=kind,
        sinks=sinks,
    )
    world.run_name = f"swarm-{order}-{seed}"
    script = Script(world, rng, is_switching)
    # With lists of recipients a state may be taken over before a message has its turn that is not for its taker, such as the
    # marker of a check, which is for no member.
    is_chained = has_state and can_merge and not script.subset_share and not script.check_gap_ns
    world.ask([*(["P20"] if is_primary else []), *(["P19"] if is_chained else [])])
    membership = replace(QUICK.membership, collect=collect)
    if is_primary:
        world.count("primary")
        membership = replace(membership, policy=Policy.PRIMARY, peers=tuple(script.names))
    if isinstance(world, StatefulWorld):
        world.count("state")
        world.can_merge = can_merge
        membership = replace(membership, has_state=True, has_merge=can_merge)
    world.count(collect)
    world.settings = replace(QUICK, membership=membership)
    script.play()
    if isinstance(world, StatefulWorld):
        world.give_up_lost_state()
    verdict = world.finish()
    first = next(iter(verdict.violations), None)
    sentence = f"{first.property}: {first.sentence}" if first else None
    wrong = [f"states: {fault}" for fault in world.wrong_states()] if isinstance(world, StatefulWorld) else []
    wrong += [f"members compared: {found}" for found in world.diverged]
    if wrong and first is None:
        return SwarmRun(order, seed, "FAIL", wrong[0], world.faults, world.now)
    return SwarmRun(
        order,
        seed,
        verdict.result.value,
        sentence if first or verdict.result == "PASS" else f"the verdict is {verdict.result}",
        world.faults,
        world.now,
        sum(len(process.views) for process in world.lives),
        world.deliveries,
        world.network.sent,
    )


def try_group_seed(order: str, seed: int, kind: type[Member] = Member) -> SwarmRun:
    """Run and judge one seed; an exception inside the run is a failure like any other. Never raises."""
    try:
        return run_group_seed(order, seed, kind=kind)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {error}"
        return SwarmRun(order, seed, "FAULT", text)
