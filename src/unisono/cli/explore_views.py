"""`unisono sim explore-views`: every way in which a small group can change its view."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import Annotated, Any

import typer

from unisono.cli import options as o
from unisono.cli.show import bar, out, print_json
from unisono.core.errors import Misuse
from unisono.sim.explore.search import SearchProgress
from unisono.sim.explore.views import Scope
from unisono.sim.explore.views import explore_views as search


def _often(what: str) -> Any:
    return Annotated[int, typer.Option(help=f"How often, at any point: {what}")]


OPTIONS = {
    "order": o.Order,
    "members": o.Members,
    "casts": _often("a member casts a message."),
    "crashes": _often("a member crashes."),
    "joins": _often("another member joins."),
    "suspicions": _often("a member suspects a live one."),
    "ticks": _often("time passes for a member while messages are under way."),
    "detours": _often("a control message overtakes another on its link."),
    "losses": _often("a control message is lost."),
    "repeats": _often("a control message arrives twice."),
    "blackout": Annotated[bool, typer.Option("--blackout", help="In every state, also lose everything under way.")],
    "cuts": _often("a member is cut off from all others."),
    "cut_off": Annotated[str, typer.Option(help="Members that may be cut off, as in ab. Default: any.")],
    "greetings": _often("a member greets the others, so that a cut can heal."),
    "restarts": _often("a process crashes and restarts with its record."),
    "leaves": _often("a member leaves."),
    "switches": _often("a member asks for another order."),
    "switch_to": Annotated[str, typer.Option(help="The order that --switches asks for.")],
    "safe": Annotated[bool, typer.Option("--safe", help="Cast messages as safe.")],
    "primary": Annotated[bool, typer.Option("--primary", help="Use the primary policy.")],
    "has_state": Annotated[bool, typer.Option("--state", help="Give applications a state; needs --primary.")],
}
"""Those that are fields of a scope, which has their defaults."""


@o.taking(Scope, options=OPTIONS)
def explore_views(
    scope: Scope,
    late_heal: Annotated[
        bool, typer.Option("--late-heal", help="End a cut only at the end of a run, not at any point.")
    ] = False,
    states: Annotated[int | None, typer.Option(help="Maximum number of states.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Time limit in seconds.")] = None,
    json: o.Json = False,
) -> None:
    """Explore every way in which a small group can change its view, with the real membership and order."""
    scope = replace(scope, heals=not late_heal)
    begun = monotonic()
    with bar("exploring views", None) as update:

        def show(progress: SearchProgress) -> None:
            update(progress.states, f"{scope.order}, {progress.depth} steps deep")

        report = search(scope, states, seconds, show)
    spent = monotonic() - begun
    violation = report.violation
    if json:
        print_json(
            {
                "order": scope.order,
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
