"""`unisono compare`: several orders under the same load, network and seed."""

from __future__ import annotations

from typing import Annotated

import typer

from unisono.cli import options as o
from unisono.cli.show import bar, measures_table, out, print_json, run_progress, verdict_lines
from unisono.core.errors import Misuse
from unisono.orders.registry import find_order
from unisono.sim.run import simulate
from unisono.sim.workload import describe

CAPTION = (
    "Latency in ms: cast to delivery, at all members. t1: received until its place is known; t2: from then until delivered. "
    "Packets and bytes: on the wire for each message that was delivered. Index: members heard of before delivery."
)


def compare(
    orders: Annotated[
        str, typer.Argument(metavar="ORDER,ORDER,…", help="Orders to compare, with commas between them.")
    ],
    members: o.Members = 5,
    seed: o.Seed = 1,
    source: o.SourceKind = "poisson",
    rate: o.Rate = 500.0,
    messages: o.Messages = 2_000,
    size: o.Size = "64",
    burst: o.Burst = 10,
    depth: o.Depth = 8,
    ack_delay: o.AckDelay = "5ms",
    delay: o.Delay = "uniform:0.5ms:2ms",
    loss: o.Loss = 0.0,
    duplicate: o.Duplicate = 0.0,
    reorder: o.Reorder = 0.0,
    turn: o.Turn = "0ms",
    faults: o.Faults = None,
    json: o.Json = False,
) -> None:
    """Compare orders on the same load and network: latency, its parts, cost beside the formula."""
    names = [name.strip() for name in orders.split(",") if name.strip()]
    if not names:
        raise Misuse("there is nothing to compare: name orders with commas between them, such as sequencer,toto.")
    for name in names:
        find_order(name)
    scenarios = [
        o.scenario_from(
            order=name,
            members=members,
            seed=seed,
            source=source,
            rate=rate,
            messages=messages,
            size=size,
            burst=burst,
            depth=depth,
            ack_delay=ack_delay,
            delay=delay,
            loss=loss,
            duplicate=duplicate,
            reorder=reorder,
            turn=turn,
            faults=faults,
        )
        for name in names
    ]
    outcomes = []
    with bar("simulating", messages * len(names)) as update:
        for done, scenario in enumerate(scenarios):
            update(done * messages, scenario.order)
            outcomes.append(simulate(scenario, progress=run_progress(lambda n, d=done: update(d * messages + n))))
    failed = [outcome for outcome in outcomes if outcome.verdict.result != "PASS"]
    if json:
        print_json(
            {
                "seed": seed,
                "orders": {
                    outcome.measures.order: outcome.measures.to_json() | {"verdict": outcome.verdict.result}
                    for outcome in outcomes
                },
            }
        )
    else:
        load = f"{members} members, {messages} messages, {describe(scenarios[0].source)}, delay {delay}, seed {seed}"
        out.print(measures_table([outcome.measures for outcome in outcomes], load))
        out.print(CAPTION, style="dim")
        for outcome in failed:
            for line in verdict_lines(outcome):
                out.print(line)
    if failed:
        raise typer.Exit(1 if any(outcome.verdict.result == "FAIL" for outcome in failed) else 2)
