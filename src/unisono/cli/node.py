"""`unisono node`: a member that prints what happens and casts what it reads."""

from __future__ import annotations

import typer

from unisono.cli import group_options as o
from unisono.cli.keyboard import Keyboard
from unisono.cli.session import attend, line_of, places, row_of, tell_if_alone
from unisono.cli.show import json_line
from unisono.cli.streams import to_bytes
from unisono.orders.registry import DEFAULT_ORDER
from unisono.runtime.events import Event
from unisono.runtime.group import Group
from unisono.runtime.join import join
from unisono.runtime.loop import run
from unisono.sim.units import parse_duration


def node(
    name: o.Name,
    listen: o.Listen = None,
    peers: o.Peers = None,
    advertise: o.Advertise = None,
    order: o.Order = DEFAULT_ORDER,
    min_members: o.MinMembers = 1,
    policy: o.Policy = "partitionable",
    bootstrap: o.Bootstrap = False,
    safe: o.Safe = False,
    slow: o.Slow = "block",
    pace: o.Pace = 1.0,
    timeout: o.Timeout = None,
    key: o.KeyFile = None,
    insecure: o.Insecure = False,
    journal: o.Journal = None,
    trace: o.Trace = None,
    metrics: o.Metrics = None,
    log: o.Log = None,
    watchdog: o.Watchdog = None,
    stay: o.Stay = False,
    long: o.Long = False,
    json: o.Json = False,
) -> None:
    """Run a member: print views and deliveries, and cast every line of standard input.

    Without --listen and --peers, members on this machine find each other on ports 7400 to 7407. The member leaves the group at
    the end of the input (unless --stay is given) and at SIGINT or SIGTERM. While it runs, it answers `unisono status`. It is
    an observer: it keeps no state, so it can join any group.
    """
    o.start_log(log)
    joining = join(
        name,
        **places(listen, o.split_list(peers)),
        order=order,
        min_members=min_members,
        advertise=advertise,
        policy=policy,
        bootstrap=bootstrap,
        safe=safe,
        slow=slow,
        watchdog=None if watchdog is None else parse_duration(watchdog) / 1e9,
        key=key,
        insecure=insecure,
        journal=journal,
        trace=trace,
        pace=pace,
        timeout=None if timeout is None else parse_duration(timeout) / 1e9,
        metrics=metrics,
        control=True,
        role="observer",
    )

    async def take(group: Group, line: str) -> bool:
        await group.cast(to_bytes(line))
        return True

    async def main() -> int:
        with Keyboard() as keyboard:

            def show(event: Event) -> None:
                if json:
                    keyboard.write_line(json_line(row_of(event)))
                else:
                    keyboard.say(line_of(event, long))

            begin = tell_if_alone if peers else lambda _: None
            return await attend(joining, keyboard, show, take, begin=begin, stay=stay, long=long)

    if run(main()):
        raise typer.Exit(1)  # some of the input was not cast
