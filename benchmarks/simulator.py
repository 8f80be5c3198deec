"""How fast the simulator is: simulated deliveries per second of CPU, one core, trace off.

One message a batch: a Poisson source at a load at which casts hardly ever meet in a turn.

    ./dev bench simulator [--members 5] [--messages 20000] [--json]
"""

from __future__ import annotations

import argparse
import json
from time import process_time

from unisono.orders.registry import ORDERS
from unisono.sim.scenario import Scenario, Source
from unisono.sim.world import World


def measure(order: str, members: int, messages: int, rounds: int = 3) -> dict[str, float]:
    """The best of a few rounds."""
    best = 0.0
    scenario = Scenario(order=order, members=members, source=Source(kind="poisson", rate=1_000, messages=messages))
    for _ in range(rounds):
        start = process_time()
        world = World(scenario).play()
        spent = process_time() - start
        assert world.deliveries == messages * members, "every member delivers every message"
        best = max(best, world.deliveries / spent)
    return {
        "deliveries_per_second": round(best),
        "turns_per_delivery": world.turns / world.deliveries,
        "packets_per_delivery": world.packets / world.deliveries,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./dev bench simulator", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = {name: measure(name, options.members, options.messages) for name in ORDERS}
    if options.json:
        print(json.dumps({"members": options.members, "orders": rows}))
        return
    print(f"simulated deliveries per second of CPU, {options.members} members, one message a batch")
    for name, row in rows.items():
        print(f"{name:14}{row['deliveries_per_second']:>12,.0f}   {row['packets_per_delivery']:.2f} packets a delivery")


if __name__ == "__main__":
    main()
