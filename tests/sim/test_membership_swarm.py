"""Seeds of the group swarm with ambushes: reports and cuts in small pieces, and faults that wait for a step of a view change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pytest

from tests.group_tools import ClosingWorld, watch_control
from unisono.core.config import MILLISECOND, SECOND
from unisono.core.departure import Cause
from unisono.core.membership.settings import Policy
from unisono.core.wire.control import Chunk, Confirm, Control, Fetch, Hello, Install, Propose
from unisono.sim.group_run import Script
from unisono.sim.group_swarm import scenario_of
from unisono.sim.group_world import QUICK, GroupWorld

ORDERS = ("fifo", "causal", "sequencer", "abcast", "toto")
STEPS = (Propose, Chunk, Chunk, Fetch, Confirm, Install, Hello)
STRIKES = ("crash", "crash", "one way", "both ways", "partition", "pause", "suspect")


@dataclass
class Ambush:
    """Waits for one step of a view change, and strikes there: at its sender or receiver, the link, or the network."""

    world: GroupWorld
    random: Random
    step: type
    strike: str
    begin_ns: int
    skip: int

    def __call__(self, src: str, dst: str, message: Control) -> bool:
        if not isinstance(message, self.step) or self.world.now < self.begin_ns:
            return False
        self.skip -= 1
        if self.skip == -1:
            self.world.after(0, lambda: self._strike(src, dst))
            return self.random.random() < 0.5
        return False

    def _strike(self, src: str, dst: str) -> None:
        world = self.world
        ends = [name for name in (src, dst) if name in world.processes and world.processes[name].is_up]
        if not ends or len(world.up) < 2:
            return
        victim = self.random.choice(ends)
        match self.strike:
            case "crash":
                world.crash(victim)
            case "one way" | "both ways":
                world.network.cut(src, dst)
                if self.strike == "both ways":
                    world.network.cut(dst, src)
            case "partition":
                names = sorted(world.processes)
                self.random.shuffle(names)
                at = self.random.randint(1, len(names))
                world.partition(names[:at], names[at:])
            case "pause":
                world.pause(victim, SECOND)
            case _:
                member = world.processes[victim].member
                if member.view is not None and (others := [one for one in member.view.members if one != member.id]):
                    member.suspect(self.random.choice(others), Cause.SUSPECTED)
                    world.processes[victim].turn()


def keeps_its_promises(order: str, seed: int, collect: str | None = None) -> None:
    random, scenario = Random(f"ambush/{order}/{seed}"), scenario_of(order, seed)
    membership = replace(
        QUICK.membership, collect=collect or scenario.collect, chunk_bytes_max=random.choice((64, 200, 1_200))
    )
    if scenario.is_primary:
        membership = replace(membership, policy=Policy.PRIMARY, peers=tuple(scenario.members))
    world = ClosingWorld(
        order,
        f"{order}/{seed}",
        replace(QUICK, membership=membership),
        scenario.delay,
        owed={"P20"} if scenario.is_primary else (),
    )
    ambushes = [
        Ambush(
            world,
            random,
            random.choice(STEPS),
            random.choice(STRIKES),
            random.randrange(scenario.duration_ns // MILLISECOND) * MILLISECOND,
            random.randrange(4),
        )
        for _ in range(random.randint(1, 5))
    ]
    watch_control(world, *ambushes)
    Script(world, scenario).play()
    verdict = world.finish()
    assert verdict.result == "PASS", f"{order}, seed {seed}: {verdict}\n{world.story()}"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("first", range(0, 8, 4))
def test_seeds_with_ambushes(order: str, first: int) -> None:
    for seed in range(first, first + 4):
        keeps_its_promises(order, seed)


@pytest.mark.parametrize("order", ["fifo", "sequencer", "rmp"])
def test_seeds_with_ambushes_by_ring_alone(order: str) -> None:
    for seed in range(500, 503):
        keeps_its_promises(order, seed, "ring")


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("first", range(1_000, 1_120, 20))
def test_hundreds_of_seeds_with_ambushes(order: str, first: int) -> None:
    for seed in range(first, first + 20):
        keeps_its_promises(order, seed)
