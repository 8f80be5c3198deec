"""The swarm of groups with a state: the faults of `sim.group_swarm`, judged with the states besides."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.transfer_world import TransferWorld
from unisono.sim.group_run import Script
from unisono.sim.group_scenario import GroupScenario
from unisono.sim.group_state import BRISK, Reading
from unisono.sim.group_swarm import scenario_of
from unisono.trace.checks.judge import Verdict

ORDERS = ("fifo", "causal", "sequencer", "toto")


def transfer_scenario(order: str, seed: int) -> GroupScenario:
    """Without markers, which are for no member: P19 is asked here."""
    drawn = scenario_of(order, seed)
    casts = tuple(replace(cast, to=(), is_causal=False) for cast in drawn.casts)
    faults = tuple(fault for fault in drawn.faults if fault.kind != "switch")
    return replace(drawn, casts=casts, faults=faults, checks=())


def run_transfer_seed(order: str, seed: int, **options: Any) -> tuple[TransferWorld, Verdict]:
    """One seed: a group, a load, faults by twos, then all heals. Raises `AssertionError` if a state is wrong."""
    rng, scenario = Random(f"transfer swarm/{order}/{seed}"), transfer_scenario(order, seed)
    founders = rng.choice(("all", "all", "one"))
    world = TransferWorld(
        order,
        f"{order}/{seed}",
        delay=scenario.delay,
        transfer_settings=options.pop("transfer_settings", BRISK),
        ballast=rng.choice((0, 2_000, 60_000)),
        initial=lambda member: founders == "all" or member.address in "ab",
        reading=lambda member: Reading.draw(world.stream(f"reading {member}")),
        **options,
    )
    Script(world, scenario).play()
    return world, world.conclude()
