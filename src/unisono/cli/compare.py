"""`unisono compare`: several orders under the same load, network and seed."""

from __future__ import annotations

from dataclasses import replace
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


@o.taking(o.RunOptions, but="order causal_share subset_share phi", members=5, rate=500.0, messages=2_000)
def compare(
    orders: Annotated[
        str, typer.Argument(metavar="ORDER,ORDER,…", help="Orders to compare, with commas between them.")
    ],
    asked: o.RunOptions,
    json: o.Json = False,
) -> None:
    """Compare orders on the same load and network: latency, its parts, cost beside the formula."""
    names = [name.strip() for name in orders.split(",") if name.strip()]
    if not names:
        raise Misuse("there is nothing to compare: name orders with commas between them, such as sequencer,toto.")
    for name in names:
        find_order(name)
    scenarios = [replace(asked, order=name).scenario() for name in names]
    outcomes = []
    each = asked.messages
    with bar("simulating", each * len(names)) as update:
        for done, scenario in enumerate(scenarios):
            update(done * each, scenario.order)
            outcomes.append(simulate(scenario, progress=run_progress(lambda n, d=done: update(d * each + n))))
    failed = [outcome for outcome in outcomes if outcome.verdict.result != "PASS"]
    if json:
        print_json(
            {
                "seed": asked.seed,
                "orders": {
                    outcome.measures.order: outcome.measures.to_json() | {"verdict": outcome.verdict.result}
                    for outcome in outcomes
                },
            }
        )
    else:
        load = f"{asked.members} members, {each} messages, {describe(scenarios[0].source)}"
        text = f"{load}, delay {asked.delay}, seed {asked.seed}"
        out.print(measures_table([outcome.measures for outcome in outcomes], text))
        out.print(CAPTION, style="dim")
        for outcome in failed:
            for line in verdict_lines(outcome):
                out.print(line)
    if failed:
        raise typer.Exit(1 if any(outcome.verdict.result == "FAIL" for outcome in failed) else 2)
