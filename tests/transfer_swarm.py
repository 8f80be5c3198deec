"""The swarm of groups with a state: the faults of `sim.group_swarm`, judged with the states besides."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.transfer_world import TransferWorld
from unisono.sim.group_state import BRISK, Reading
from unisono.sim.group_swarm import DELAYS, Script
from unisono.trace.checks.judge import Verdict

ORDERS = ("fifo", "causal", "sequencer", "toto")


def run_transfer_seed(order: str, seed: int, **options: Any) -> tuple[TransferWorld, Verdict]:
    """One seed: a group, a load, faults by twos, then all heals. Raises `AssertionError` if a state is wrong."""
    rng = Random(f"transfer swarm/{order}/{seed}")
    founders = rng.choice(("all", "all", "one"))
    world = TransferWorld(
        order,
        f"{order}/{seed}",
        delay=rng.choice(DELAYS),
        transfer_settings=options.pop("transfer_settings", BRISK),
        ballast=rng.choice((0, 2_000, 60_000)),
        initial=lambda member: founders == "all" or member.address in "ab",
        reading=lambda member: Reading.draw(world.stream(f"reading {member}")),
        **options,
    )
    script = Script(world, rng, switching=False)
    script.subset_share = script.causal_share = 0.0
    script.check_gap_ns = 0  # a marker is for no member, and P19 is asked here
    script.play()
    assert world.come_together(), f"there is no one view:\n{world.story()}"
    verdict = world.conclude()
    return world, verdict
