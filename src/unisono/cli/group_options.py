"""The options of commands that join a group, and how they become a call of `join`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from unisono.core.errors import Misuse
from unisono.orders.registry import ORDERS
from unisono.runtime import logs
from unisono.runtime.seal import is_key_text

_WHERE, _GROUP, _SAFETY, _LOOK = "Where", "Group", "Safety", "Looking at it"

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name; all members say the same.")]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        "-l",
        help="HOST:PORT where this member receives; port 0: any free one. Without it: the first of --peers that is local and free.",
        rich_help_panel=_WHERE,
    ),
]
Peers = Annotated[
    list[str] | None,
    typer.Option(
        "--peers",
        "-p",
        help="HOST:PORT,HOST:PORT where other members may be. One that is up is enough.",
        rich_help_panel=_WHERE,
    ),
]
Advertise = Annotated[
    str | None,
    typer.Option(help="HOST:PORT at which the others reach this member, if not --listen.", rich_help_panel=_WHERE),
]
Order = Annotated[
    str,
    typer.Option(
        "--order",
        "-o",
        help="Which order: see `unisono sim orders`.",
        rich_help_panel=_GROUP,
        autocompletion=lambda incomplete: [name for name in ORDERS if name.startswith(incomplete)],
    ),
]
MinMembers = Annotated[
    int, typer.Option("--min-members", help="Begin with no fewer members than this.", rich_help_panel=_GROUP)
]
Policy = Annotated[
    str,
    typer.Option(
        help="What a partition may do: partitionable, or primary (one part goes on; with --journal).",
        rich_help_panel=_GROUP,
    ),
]
Bootstrap = Annotated[
    bool, typer.Option("--bootstrap", help="Primary: this member may be the first primary.", rich_help_panel=_GROUP)
]
Slow = Annotated[
    str,
    typer.Option(help="What to do about a receiver that stays slow: block, shed or evict.", rich_help_panel=_GROUP),
]
Safe = Annotated[bool, typer.Option("--safe", help="Deliver only what every member has.", rich_help_panel=_GROUP)]
Pace = Annotated[
    float,
    typer.Option(help="All timers by this factor; 0.25 notices failures four times as fast.", rich_help_panel=_GROUP),
]


def refuse_key_text(file: str | None) -> str | None:
    """A command line can be read by every user of the machine while the program runs."""
    if is_key_text(file):
        raise Misuse(
            "--key takes a file, because every user of this machine can read a command line: consider this key known, make "
            "another with `unisono keygen FILE`, and give --key FILE or set UNISONO_KEY."
        )
    return file


KeyFile = Annotated[
    str | None,
    typer.Option(
        "--key",
        "-k",
        help="File with the group's key (`unisono keygen`); else the environment's UNISONO_KEY or UNISONO_KEY_FILE.",
        callback=refuse_key_text,
        rich_help_panel=_SAFETY,
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Go beyond loopback without a key: anyone may read and cast.", rich_help_panel=_SAFETY
    ),
]
Journal = Annotated[
    Path | None, typer.Option(help="Where to keep what must outlive the process.", rich_help_panel=_SAFETY)
]
Trace = Annotated[
    Path | None, typer.Option(help="Record everything into this folder, for `unisono trace`.", rich_help_panel=_LOOK)
]
Metrics = Annotated[
    str | None, typer.Option(help="HOST:PORT where Prometheus finds this member's numbers.", rich_help_panel=_LOOK)
]
Log = Annotated[
    str | None,
    typer.Option(help="Write a log to standard error: `text` or `json`.", rich_help_panel=_LOOK),
]
Watchdog = Annotated[
    str | None, typer.Option(help="Tell what has waited for so long, as in 10s.", rich_help_panel=_LOOK)
]
Timeout = Annotated[
    str | None,
    typer.Option(help="Give up if no view of --min-members is there within this, as in 10s.", rich_help_panel=_GROUP),
]
Stay = Annotated[
    bool, typer.Option("--stay", help="Do not leave at the end of the input, only at a signal.", rich_help_panel=_GROUP)
]
Long = Annotated[
    bool,
    typer.Option("--long", help="Print incarnations whole; else three hex digits of each.", rich_help_panel=_LOOK),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.", rich_help_panel=_LOOK)]


def split_list(texts: list[str] | None) -> list[str]:
    """Values that are given one by one, or several with commas between them."""
    return [one.strip() for text in texts or () for one in text.split(",") if one.strip()]


def start_log(kind: str | None) -> None:
    if kind is None:
        return
    if kind not in ("text", "json"):
        raise Misuse(f"there is no log {kind!r}: choose text or json.")
    logs.configure(logging.INFO, as_json=kind == "json")
