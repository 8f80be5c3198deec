"""One scenario of a whole group from beginning to verdict: play it, heal everything, let it come to rest, judge.

A run has a safety phase, in which anything may happen and nothing promised may break, and a liveness phase: all faults end, and
within the bound there is one view with everything delivered (P22). Where applications have a state, in the end all members of one
view must have the same. One run in eight has a twin that is not recorded and must be the same run (`group_twins`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from unisono.core.config import SECOND
from unisono.core.member import Member
from unisono.core.membership import Policy
from unisono.core.options import CastOptions
from unisono.core.ordering import AnyOrdering
from unisono.core.types import MemberId, Service
from unisono.orders.registry import ORDERS
from unisono.sim.checked import blame
from unisono.sim.faults import Fault
from unisono.sim.group_scenario import GroupScenario, PlannedCast, PlannedCheck
from unisono.sim.group_state import StatefulWorld
from unisono.sim.group_twins import first_difference, has_twin
from unisono.sim.group_world import QUICK, GroupWorld, SimulatedProcess
from unisono.trace.sinks import Sink

OnTurn: TypeAlias = Callable[[SimulatedProcess], None]
NETWORK_SHARES = ("loss", "duplicate", "reorder", "replay")


@dataclass(frozen=True)
class GroupOutcome:
    """What one run did and showed. It travels between processes and into files, so it holds plain values."""

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
    replay: str | None = None
    """The replay file of a failure."""


class Script:
    """Lets what a scenario holds happen in a world."""

    def __init__(self, world: GroupWorld, scenario: GroupScenario) -> None:
        self.world = world
        self.scenario = scenario
        self.seeds = list(scenario.members)

    def play(self) -> None:
        """To the end of the safety phase."""
        world, scenario = self.world, self.scenario
        for share in NETWORK_SHARES:
            setattr(world.network, share, getattr(scenario, share))
            if getattr(scenario, share):
                world.count(share)
        for name, start in scenario.members.items():
            world.at(start, self._starter(name))
        for cast in scenario.casts:
            world.at(cast.at_ns, lambda cast=cast: self._cast(cast))  # type: ignore[misc]
        for check in scenario.checks:
            world.at(check.at_ns, lambda check=check: self._check(check))  # type: ignore[misc]
        for fault in scenario.faults:
            world.at(fault.at_ns, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
        world.run(scenario.duration_ns / SECOND + 0.3)

    def _starter(self, name: str) -> Callable[[], object]:
        return lambda: self.world.start(name, seeds=self.seeds)

    def _is_up(self, name: str) -> bool:
        process = self.world.processes.get(name)
        return process is not None and process.is_up

    def _cast(self, cast: PlannedCast) -> None:
        """The payload names the message, whatever else is cast."""
        if not self._is_up(cast.who):
            return
        process = self.world.processes[cast.who]
        view = process.view
        to = tuple(m for m in view.members if m.address in cast.to) if view is not None and cast.to else None
        service = Service.CAUSAL if cast.is_causal else None
        payload = f"{process.id}/{cast.at_ns // 1_000}/".encode().ljust(cast.size_bytes, b".")
        process.cast(payload, CastOptions(to or None, service, cast.is_safe or None), cast.is_awaited)

    def _check(self, check: PlannedCheck) -> None:
        if self._is_up(check.who) and self.world.processes[check.who].check() is not None:
            self.world.count("check")

    def _strike(self, fault: Fault) -> None:
        world, network = self.world, self.world.network
        if fault.kind == "join":
            world.count("join")
            self.seeds.extend(fault.who)
            world.start(*fault.who, seeds=self.seeds)
            return
        if not all(map(self._is_up, fault.who)):
            return
        one, other = (*fault.who, "", "")[:2]
        match fault.kind:
            case "crash":
                world.crash(one)
            case "restart":
                world.crash(one)
                world.after(fault.duration_ns, lambda: world.restart(one, self.seeds))
            case "pause":
                world.pause(one, fault.duration_ns)
            case "leave":
                world.leave(one)
            case "partition":
                world.partition(*fault.parts)
                world.after(fault.duration_ns, lambda: network.partition(()))
            case _:
                world.count(fault.kind)
                self._hinder(fault, one, other)

    def _hinder(self, fault: Fault, one: str, other: str) -> None:
        world, network = self.world, self.world.network
        match fault.kind:
            case "one way":
                network.cut(one, other)
            case "triangle":
                network.cut(one, other)
                network.cut(other, one)
            case "drift":
                world.processes[one].drift(1 + fault.amount)
            case "narrow":
                network.bytes_per_s[one] = int(fault.amount)
            case "switch":
                world.processes[one].member.switch(fault.order)
            case _:
                network.strike(fault, one, other, world)


def play(
    scenario: GroupScenario,
    *,
    kind: type[Member] = Member,
    orders: Mapping[str, type[AnyOrdering]] = ORDERS,
    sinks: Callable[[MemberId], Sequence[Sink]] = lambda member: (),
    on_turn: OnTurn | None = None,
    is_recorded: bool = True,
) -> GroupWorld:
    """Run a scenario to its end, when everything is healed and has come to rest."""
    order, seed = scenario.order, scenario.seed
    world = (StatefulWorld if scenario.has_state else GroupWorld)(
        order,
        f"{order}/{seed}",
        delay=scenario.delay,
        orders=orders,
        kind=kind,
        sinks=sinks,
        run_name=f"swarm-{order}-{seed}",
        is_recorded=is_recorded,
    )
    # With lists of recipients a state may be taken over before a message has its turn that is not for its taker, such as the
    # marker of a check, which is for no member.
    is_chained = scenario.can_merge and not scenario.checks and not any(cast.to for cast in scenario.casts)
    world.ask([*(["P20"] if scenario.is_primary else []), *(["P19"] if is_chained else [])])
    membership = replace(QUICK.membership, collect=scenario.collect)
    if scenario.is_primary:
        world.count("primary")
        membership = replace(membership, policy=Policy.PRIMARY, peers=tuple(scenario.members))
    if isinstance(world, StatefulWorld):
        world.count("state")
        world.can_merge = scenario.can_merge
        membership = replace(membership, has_state=True, has_merge=scenario.can_merge)
    world.count(scenario.collect)
    world.settings = replace(QUICK, membership=membership)
    world.on_turn = on_turn
    Script(world, scenario).play()
    if isinstance(world, StatefulWorld):
        world.give_up_lost_state()
    world.end()
    return world


def judge(
    scenario: GroupScenario,
    *,
    kind: type[Member] = Member,
    orders: Mapping[str, type[AnyOrdering]] = ORDERS,
    sinks: Callable[[MemberId], Sequence[Sink]] = lambda member: (),
    on_turn: OnTurn | None = None,
) -> GroupOutcome:
    """Run and judge a scenario."""
    order, seed = scenario.order, scenario.seed
    world = play(scenario, kind=kind, orders=orders, sinks=sinks, on_turn=on_turn)
    verdict = world.observer.finish()
    first = next(iter(verdict.violations), None)
    sentence = f"{first.property}: {first.sentence}" if first else None
    wrong = [f"states: {fault}" for fault in world.wrong_states()] if isinstance(world, StatefulWorld) else []
    wrong += [f"members compared: {found}" for found in world.diverged]
    if has_twin(order, seed):
        world.count("twin")
        twin = play(scenario, kind=kind, orders=orders, is_recorded=False)
        if (difference := first_difference(world, twin)) is not None:
            wrong.append(difference)
    if wrong and first is None:
        return GroupOutcome(order, seed, "FAIL", wrong[0], world.faults, world.now)
    return GroupOutcome(
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


def try_group(
    scenario: GroupScenario,
    kind: type[Member] = Member,
    orders: Mapping[str, type[AnyOrdering]] = ORDERS,
    sinks: Callable[[MemberId], Sequence[Sink]] = lambda member: (),
    on_turn: OnTurn | None = None,
) -> GroupOutcome:
    """Run and judge a scenario; an exception inside the run is a failure like any other. Never raises."""
    try:
        return judge(scenario, kind=kind, orders=orders, sinks=sinks, on_turn=on_turn)
    except Exception as error:
        return GroupOutcome(scenario.order, scenario.seed, "FAULT", blame(error))


def failure_of(scenario: GroupScenario) -> str | None:
    """The first thing that is wrong with a run, as a sentence; None: it kept its promises."""
    return try_group(scenario).sentence
