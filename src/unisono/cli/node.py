"""`unisono node`: a member that prints what happens and casts what it reads."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from unisono.cli import group_options as o
from unisono.cli.keyboard import Keyboard
from unisono.cli.options import taking
from unisono.cli.session import attend, line_of, row_of, tell_if_alone
from unisono.cli.show import json_line
from unisono.cli.streams import to_bytes
from unisono.core.errors import Misuse
from unisono.runtime import logs
from unisono.runtime.events import Event
from unisono.runtime.group import Group
from unisono.runtime.join import join
from unisono.runtime.loop import run


@taking(o.MemberOptions)
def node(
    name: o.Name,
    asked: o.MemberOptions,
    log: Annotated[
        str | None, typer.Option(help="Write a log to standard error: `text` or `json`.", rich_help_panel=o.LOOK)
    ] = None,
    stay: Annotated[
        bool,
        typer.Option(
            "--stay", help="Stay in the group at the end of the input, until a signal.", rich_help_panel=o.GROUP
        ),
    ] = False,
    long: o.Long = False,
    json: o.Json = False,
) -> None:
    """Run a member: print views and deliveries, and cast every line of standard input.

    Without --listen and --peers, members on this machine find each other on ports 7400 to 7407. The member leaves the group at
    the end of the input (unless --stay is given) and at SIGINT or SIGTERM. While it runs, it answers `unisono status`. It is
    an observer: it keeps no state, so it can join any group.
    """
    if log not in (None, "text", "json"):
        raise Misuse(f"there is no log {log!r}: choose text or json.")
    if log is not None:
        logs.configure(logging.INFO, as_json=log == "json")
    joining = join(name, **asked.arguments(), control=True, role="observer")

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

            begin = tell_if_alone if asked.peers else lambda _: None
            return await attend(joining, keyboard, show, take, begin=begin, stay=stay, long=long)

    if run(main()):
        raise typer.Exit(1)  # some of the input was not cast
