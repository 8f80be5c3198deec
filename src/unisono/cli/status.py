"""`unisono status`, `members`, `explain`, `give-up`: ask a member that runs on this machine."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.live import Live
from rich.table import Table

from unisono.cli.show import cell, make_table, out, print_json, tell
from unisono.core.errors import Misuse
from unisono.core.text import shorten
from unisono.runtime.control_socket import Found, ask, choose, find_members
from unisono.runtime.errors import TimedOut, Unavailable
from unisono.sim.units import parse_duration

Group = Annotated[str | None, typer.Option("--group", "-g", help="Group to ask about, if members of several run here.")]
Member = Annotated[
    str | None, typer.Option("--member", "-m", help="Address of the member to ask, if several run here.")
]
Long = Annotated[bool, typer.Option("--long", help="Print whole incarnations. Default: three hex digits of each.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object; with --watch, one per line.")]


def status(
    group: Group = None,
    member: Member = None,
    everyone: Annotated[bool, typer.Option("--all", help="All members that run here.")] = False,
    watch: Annotated[str | None, typer.Option(help="Repeat at this interval, as in 1s.")] = None,
    long: Long = False,
    json: Json = False,
) -> None:
    """Show the state of a member: its view, what waits, and what was dropped."""
    every_s = None if watch is None else parse_duration(watch) / 1e9
    if every_s is not None and every_s < 0.05:
        raise Misuse(f"--watch {watch} is too often: choose 50ms or more.")
    if every_s is None:
        answers = _statuses(group, member, everyone)
        if json:
            print_json(answers if everyone else answers[0])
        else:
            out.print(_page(answers, long))
        return
    try:
        _watch(group, member, everyone, every_s, long, json)
    except KeyboardInterrupt:
        return  # the user ends it


def _watch(group: str | None, member: str | None, everyone: bool, every_s: float, long: bool, json: bool) -> None:
    if json:
        while True:
            answers = _statuses(group, member, everyone)
            print_json(answers if everyone else answers[0])
            time.sleep(every_s)
    with Live(_page(_statuses(group, member, everyone), long), console=out, auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            live.update(_page(_statuses(group, member, everyone), long), refresh=True)


def _statuses(group: str | None, member: str | None, everyone: bool) -> list[dict[str, Any]]:
    found = find_members()
    if not everyone:
        return [choose(found, group, member).status]
    fitting = [one.status for one in found if group is None or one.status["group"] == group]
    if not fitting:
        choose(found, group, member)  # its error lists the members
    return fitting


def _page(statuses: list[dict[str, Any]], long: bool = False) -> RenderableType:
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for number, one in enumerate(statuses):
        if number:
            table.add_row("", "")
        for name, text in _lines(one):
            table.add_row(name, cell(text if long else shorten(text)))
    return table


def _lines(one: dict[str, Any]) -> list[tuple[str, str]]:
    members, has_view = one["members"], one["view"] is not None
    state = "leaving" if one["leaving"] else "running"
    if not has_view:
        state = "looking for its group"
    elif one["changing"]:
        state = "changing its view"
    view = f"{one['view']} of {len(members)}{'' if one['primary'] else ', not primary'}"
    lines = [
        ("group", f"{one['group']} (order {one['order']})"),
        ("member", f"{one['member']}, process {one['pid']}, {state}"),
        (
            "view",
            view if has_view else f"none yet: {' '.join(one['waits']) or 'it has just started to look for others'}",
        ),
        *(("", member) for member in members),
        ("unfinished", f"{one['unfinished']} own messages cast and not yet delivered here"),
        ("queued", f"{one['queued_batches']} batches, {one['queued_bytes']} bytes not yet read by the application"),
    ]
    if one["suspects"]:
        lines.append(("suspects", ", ".join(one["suspects"])))
    if one["undecided"]:
        lines.append(("undecided", f"{one['undecided']}, voted for by an earlier life, decision unknown"))
    if one.get("lost_state"):
        lines.append(("lost state", f"{one['lost_state']}, which no member of this view has"))
    lines += [("drops", f"{reason}: {count}") for reason, count in one["drops"].items()]
    lines += [("waits", sentence) for sentence in one["waits"] if has_view]
    lines += [("peers", sentence) for sentence in one.get("peers", ())]
    return lines


def members(group: Group = None, member: Member = None, long: Long = False, json: Json = False) -> None:
    """List the members of a view, and how much each has yet to acknowledge."""
    found = choose(find_members(), group, member)
    rows = _ask(found, {"ask": "members"})
    if json:
        print_json(rows)
        return
    cells = (
        (
            row["rank"],
            row["member"] if long else shorten(row["member"]),
            row["unacknowledged"],
            "this one" if row["self"] else "suspected" if row["suspected"] else "",
        )
        for row in rows
    )
    out.print(make_table((">rank", "member", ">unacknowledged", ""), cells))


def explain(
    key: Annotated[
        str | None,
        typer.Argument(metavar="[MESSAGE]", help="One message, as MEMBER:NUMBER. Default: everything that waits."),
    ] = None,
    group: Group = None,
    member: Member = None,
    long: Long = False,
    json: Json = False,
) -> None:
    """Explain what waits, one sentence each: for whom, and since when."""
    found = choose(find_members(), group, member)
    sentences = _ask(found, {"ask": "explain"} if key is None else {"ask": "explain", "key": key})
    if json:
        print_json(sentences)
    else:
        for sentence in sentences or ["nothing waits"]:
            tell(sentence if long else shorten(sentence))


def give_up(
    state: Annotated[
        str, typer.Argument(metavar="VIEW", help="The view whose state is lost, as `unisono status` shows it.")
    ],
    group: Group = None,
    member: Member = None,
    timeout: Annotated[str, typer.Option(help="How long to wait for a primary view.")] = "30s",
) -> None:
    """Give up the state of a primary view that no member has any more, so that the group can go on without it.

    What only that state held is lost for good. It is written to the member's journal, and names the view, so that repeating the
    command cannot lose anything else.
    """
    ends_at = time.monotonic() + parse_duration(timeout) / 1e9
    found = choose(find_members(), group, member)
    now = _ask(found, {"ask": "give_up", "state": state})
    while time.monotonic() < ends_at:
        now = _ask(found, {"ask": "status"})
        if now["primary"] and not now["changing"]:
            tell(f"the state of view {state} is given up; view {now['view']} is primary")
            return
        time.sleep(0.1)
    waits = " ".join(now["waits"][:3])
    raise TimedOut(
        f"the state of view {state} is given up, but no view is primary after {timeout}: {waits or 'ask explain'}"
    )


def _ask(found: Found, question: dict[str, str]) -> Any:
    try:
        return ask(found.path, question)
    except (OSError, ValueError) as error:
        raise Unavailable(f"{found.name} does not answer ({error}): it may have ended, ask again.") from None
