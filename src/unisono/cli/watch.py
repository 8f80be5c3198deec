"""`unisono pipeline watch`: how groups stand while they run, in the terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from unisono.cli import options as o
from unisono.cli.show import cell, make_table, out, print_json, tell
from unisono.core.errors import Misuse

if TYPE_CHECKING:
    from unisono.pipeline.lake import LakeTable
    from unisono.pipeline.views_table import GroupState

FAILURES_SHOWN = 10
GROUPS_SHOWN = 30
COLOURS = {"FAIL": "bold red", "UNKNOWN": "yellow"}


def watch(
    tables: Annotated[str, typer.Option("--out", help="The folder of tables that `pipeline run` writes to.")],
    once: Annotated[bool, typer.Option("--once", help="Print the current state and stop.")] = False,
    every_s: Annotated[float, typer.Option("--every", help="Seconds between updates.", min=0.1)] = 1.0,
    json: o.Json = False,
) -> None:
    """Show runs and groups as their views are judged. Needs no Spark.

    With --once, exit code 0: nothing has failed so far. 1: a violation. 2: a verdict cannot be given.
    """
    from unisono.pipeline.session import PipelineError

    if json and not once:
        raise Misuse("--json shows one moment: add --once.")
    table = _views(tables)
    if once:
        if table is None:
            raise PipelineError(
                f"{tables} has no verdicts on views yet: `unisono pipeline run` writes them, with --once only if "
                "--views is given."
            )
        states = _states(tables, table)
        if json:
            print_json([_as_json(run, group, state) for (run, group), state in states.items()])
        elif out.is_terminal:
            out.print(_page(states))
        else:
            for line in _lines(states):
                tell(line)
        results = {state.result for state in states.values()}
        if results & {"FAIL", "UNKNOWN"}:
            raise typer.Exit(1 if "FAIL" in results else 2)
        return
    try:
        if table is None:
            tell(f"waiting: {tables} has no verdicts on views yet; `unisono pipeline run` writes them.")
        while table is None:  # it is started first or at the same time, and Spark takes a while
            time.sleep(every_s)
            table = _views(tables)
        _follow(tables, table, every_s)
    except KeyboardInterrupt:
        return


def _views(tables: str) -> LakeTable | None:
    """The table of verdicts on views, if there is one yet."""
    from unisono.pipeline.session import PipelineError

    try:
        from unisono.pipeline.lake import open_table, table_names
    except ImportError as error:
        raise PipelineError(f"tables need the package {error.name}: install `unisono[spark]`.") from None
    return open_table(tables, "views") if "views" in table_names(tables) else None


def _states(tables: str, table: LakeTable) -> dict[tuple[str, str], GroupState]:
    """How every group stands, by its views and by the verdict on its run."""
    from unisono.pipeline.storage import place
    from unisono.pipeline.views_table import group_states, run_violations

    of_runs = (row for row, is_in_views in run_violations(place(tables)) if not is_in_views)
    return group_states(table.read().to_pylist(), of_runs)


def _versions(tables: str, table: LakeTable) -> tuple[int, int]:
    """Of the tables that tell how groups stand."""
    from unisono.pipeline.lake import open_table, table_names

    table.refresh()
    is_judged = "violations" in table_names(tables)
    return table.version, open_table(tables, "violations").version if is_judged else -1


def _follow(tables: str, table: LakeTable, every_s: float) -> None:
    versions = _versions(tables, table)
    states = _states(tables, table)
    if not out.is_terminal:
        said: set[str] = set()
        while True:
            lines = _lines(states)
            for line in lines:
                if line not in said:
                    tell(line)
            said = set(lines)
            while (now := _versions(tables, table)) == versions:
                time.sleep(every_s)
            versions, states = now, _states(tables, table)
    with Live(_page(states), console=out, auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            if (now := _versions(tables, table)) != versions:
                versions = now
                live.update(_page(_states(tables, table)), refresh=True)


def _lines(states: Mapping[tuple[str, str], Any]) -> list[str]:
    lines = []
    for (run, group), state in states.items():
        lines.append(f"{run}/{group}: {state}")
        for failure in state.failures.values():
            lines.append(f"{run}/{group}: {failure['property']} in {_place(failure)}: {failure['sentence']}")
    return lines


def _place(failure: Mapping[str, Any]) -> str:
    return "the whole run" if failure["by"] == "run" and not failure["view"] else f"view {failure['view'] or '?'}"


def _as_json(run: str, group: str, state: Any) -> dict[str, Any]:
    return {
        "run": run,
        "group": group,
        "order": state.order,
        "result": state.result,
        "passes_to": state.passes_to,
        "open": state.open_views,
        "violations": [
            {name: failure[name] for name in ("id", "view", "property", "members", "sentence")}
            for failure in state.failures.values()
        ],
    }


def _page(states: Mapping[tuple[str, str], Any]) -> RenderableType:
    if not states:
        return Text("no view has been judged yet")
    worst_first = sorted(states.items(), key=lambda item: (item[1].result not in COLOURS, item[0]))
    rows = (
        (run, group, state.order, Text(str(state), COLOURS.get(state.result, "green")), ", ".join(state.open_views))
        for (run, group), state in worst_first[:GROUPS_SHOWN]
    )
    table = make_table(("run", "group", "order", "so far", "open"), rows, pad_edge=False)
    lines: list[RenderableType] = [table]
    failures = [failure for _, state in worst_first for failure in state.failures.values()]
    for failure in failures[:FAILURES_SHOWN]:
        lines.append(cell(f"{failure['property']} in {_place(failure)} of {failure['run']}: {failure['sentence']}"))
    for text, count in (("groups", len(states) - GROUPS_SHOWN), ("violations", len(failures) - FAILURES_SHOWN)):
        if count > 0:
            lines.append(Text(f"... and {count} more {text}"))
    return Group(*lines)
