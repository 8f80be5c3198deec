"""`unisono sim explore-views`: every way in which a small group can change its view."""

from __future__ import annotations

from time import monotonic
from typing import Annotated

import typer

from unisono.cli import options as o
from unisono.cli.show import bar, out, print_json
from unisono.core.errors import Misuse
from unisono.orders.registry import find_order
from unisono.sim.explore.search import SearchProgress
from unisono.sim.explore.views import Scope
from unisono.sim.explore.views import explore_views as search

_OFTEN = "How often, at any point: "


def explore_views(
    order: o.Order = "fifo",
    members: o.Members = 3,
    casts: Annotated[int, typer.Option(help=_OFTEN + "a member casts a message.")] = 1,
    crashes: Annotated[int, typer.Option(help=_OFTEN + "a member crashes.")] = 1,
    joins: Annotated[int, typer.Option(help=_OFTEN + "another member joins.")] = 1,
    suspicions: Annotated[int, typer.Option(help=_OFTEN + "a member suspects a live one.")] = 0,
    ticks: Annotated[int, typer.Option(help=_OFTEN + "time passes for a member while messages are under way.")] = 1,
    detours: Annotated[int, typer.Option(help=_OFTEN + "a control message overtakes another on its link.")] = 0,
    losses: Annotated[int, typer.Option(help=_OFTEN + "a control message is lost.")] = 0,
    repeats: Annotated[int, typer.Option(help=_OFTEN + "a control message arrives twice.")] = 0,
    blackout: Annotated[
        bool, typer.Option("--blackout", help="In every state, also lose everything under way.")
    ] = False,
    cuts: Annotated[int, typer.Option(help=_OFTEN + "a member is cut off from all others.")] = 0,
    cut_off: Annotated[str, typer.Option(help="Members that may be cut off, as in ab. Default: any.")] = "",
    late_heal: Annotated[
        bool,
        typer.Option("--late-heal", help="End a cut only at the end of a run, not at any point."),
    ] = False,
    greetings: Annotated[int, typer.Option(help=_OFTEN + "a member greets the others, so that a cut can heal.")] = 0,
    restarts: Annotated[int, typer.Option(help=_OFTEN + "a process crashes and restarts with its record.")] = 0,
    leaves: Annotated[int, typer.Option(help=_OFTEN + "a member leaves.")] = 0,
    switches: Annotated[int, typer.Option(help=_OFTEN + "a member asks for another order.")] = 0,
    switch_to: Annotated[str, typer.Option(help="The order that --switches asks for.")] = "sequencer",
    safe: Annotated[bool, typer.Option("--safe", help="Cast messages as safe.")] = False,
    primary: Annotated[bool, typer.Option("--primary", help="Use the primary policy.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Give applications a state; needs --primary.")] = False,
    states: Annotated[int | None, typer.Option(help="Maximum number of states.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Time limit in seconds.")] = None,
    json: o.Json = False,
) -> None:
    """Explore every way in which a small group can change its view, with the real membership and order."""
    find_order(order)
    find_order(switch_to)
    scope = Scope(
        order,
        members,
        casts,
        crashes,
        joins,
        suspicions,
        ticks,
        detours,
        losses,
        blackout,
        repeats,
        cuts,
        restarts,
        greetings,
        leaves,
        switches,
        switch_to,
        cut_off,
        heals=not late_heal,
        safe=safe,
        primary=primary,
        has_state=state,
    )
    begun = monotonic()
    with bar("exploring views", None) as update:

        def show(progress: SearchProgress) -> None:
            update(progress.states, f"{order}, {progress.depth} steps deep")

        report = search(scope, states, seconds, show)
    spent = monotonic() - begun
    violation = report.violation
    if json:
        print_json(
            {
                "order": order,
                "states": report.states,
                "transitions": report.transitions,
                "local_states": report.local_states,
                "ends": report.ends,
                "depth": report.depth,
                "complete": report.complete,
                "seconds": round(spent, 1),
                "steps": list(violation.steps) if violation else [],
                "violation": violation.sentence if violation else None,
            }
        )
    else:
        seen = "all" if report.complete else "NOT all"
        out.print(
            f"{report.states:,} states, {report.transitions:,} transitions, up to {report.depth} steps deep, in {spent:.1f} s: "
            f"{seen} states seen, {report.ends:,} different traces judged"
        )
    if violation is not None:
        if not json:
            out.print(str(violation), markup=False)
        raise typer.Exit(1)
    if not report.complete:
        raise Misuse(
            f"{report.states:,} states were not enough: raise --states or --seconds, or choose a smaller scope."
        )
    if not json:
        out.print("[green]no violation[/]")
