"""The options of commands that join a group, and how they become a call of `join`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from unisono.cli.options import refuse_other_storage
from unisono.core.errors import Misuse
from unisono.orders.registry import ORDERS
from unisono.runtime import logs
from unisono.runtime.seal import is_key_text

_WHERE, _GROUP, _SAFETY, _LOOK = "Where", "Group", "Safety", "Looking at it"

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name, the same at all members.")]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        "-l",
        help="HOST:PORT to receive on; port 0 picks a free one. Default: the first of --peers that is local and free.",
        rich_help_panel=_WHERE,
    ),
]
Peers = Annotated[
    list[str] | None,
    typer.Option(
        "--peers",
        "-p",
        help="HOST:PORT,HOST:PORT where members may be; without an answer from any, this one founds the group.",
        rich_help_panel=_WHERE,
    ),
]
Advertise = Annotated[
    str | None,
    typer.Option(
        help="HOST:PORT at which others reach this member, if it differs from --listen.", rich_help_panel=_WHERE
    ),
]
Order = Annotated[
    str,
    typer.Option(
        "--order",
        "-o",
        help="The order; `unisono sim orders` lists them.",
        rich_help_panel=_GROUP,
        autocompletion=lambda incomplete: [name for name in ORDERS if name.startswith(incomplete)],
    ),
]
MinMembers = Annotated[
    int, typer.Option("--min-members", help="Smallest number of members for the first view.", rich_help_panel=_GROUP)
]
Policy = Annotated[
    str,
    typer.Option(
        help="Behaviour in a partition: partitionable (all parts continue) or primary (one part continues; needs --journal).",
        rich_help_panel=_GROUP,
    ),
]
Bootstrap = Annotated[
    bool,
    typer.Option(
        "--bootstrap", help="With --policy primary: this member may form the first primary.", rich_help_panel=_GROUP
    ),
]
Slow = Annotated[
    str,
    typer.Option(
        help="Slow receivers: block the sender, shed (refuse casts), or evict the receiver.", rich_help_panel=_GROUP
    ),
]
Safe = Annotated[
    bool, typer.Option("--safe", help="Deliver a message only once every member has it.", rich_help_panel=_GROUP)
]
Pace = Annotated[
    float,
    typer.Option(help="Factor for all timers; 0.25 detects failures four times as fast.", rich_help_panel=_GROUP),
]


def refuse_key_text(file: str | None) -> str | None:
    """Refuse a key given as text: every user of the machine can read the command line."""
    if is_key_text(file):
        raise Misuse(
            "--key takes a file, because every user of this machine can read the command line: treat this key as compromised, "
            "create another with `unisono keygen FILE`, and pass --key FILE or set UNISONO_KEY."
        )
    return file


KeyFile = Annotated[
    str | None,
    typer.Option(
        "--key",
        "-k",
        help="File with the group's key (`unisono keygen`). Default: the environment's UNISONO_KEY or UNISONO_KEY_FILE.",
        callback=refuse_key_text,
        rich_help_panel=_SAFETY,
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Use the network without a key: anyone can read and cast.", rich_help_panel=_SAFETY
    ),
]
Journal = Annotated[
    Path | None,
    typer.Option(
        help="Folder for what must outlive the process.", callback=refuse_other_storage, rich_help_panel=_SAFETY
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        help="Record everything into this folder, for `unisono trace`.",
        callback=refuse_other_storage,
        rich_help_panel=_LOOK,
    ),
]
Metrics = Annotated[
    str | None, typer.Option(help="HOST:PORT to serve metrics for Prometheus on.", rich_help_panel=_LOOK)
]
Log = Annotated[
    str | None,
    typer.Option(help="Write a log to standard error: `text` or `json`.", rich_help_panel=_LOOK),
]
Watchdog = Annotated[
    str | None, typer.Option(help="Report what has waited longer than this, as in 10s.", rich_help_panel=_LOOK)
]
Timeout = Annotated[
    str | None,
    typer.Option(
        help="Give up if there is no view of --min-members within this time, as in 10s.", rich_help_panel=_GROUP
    ),
]
Stay = Annotated[
    bool,
    typer.Option("--stay", help="Stay in the group at the end of the input, until a signal.", rich_help_panel=_GROUP),
]
Long = Annotated[
    bool,
    typer.Option("--long", help="Print whole incarnations. Default: three hex digits of each.", rich_help_panel=_LOOK),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.", rich_help_panel=_LOOK)]


def split_list(texts: list[str] | None) -> list[str]:
    """Split repeated or comma-separated values into one list."""
    return [one.strip() for text in texts or () for one in text.split(",") if one.strip()]


def start_log(kind: str | None) -> None:
    if kind is None:
        return
    if kind not in ("text", "json"):
        raise Misuse(f"there is no log {kind!r}: choose text or json.")
    logs.configure(logging.INFO, as_json=kind == "json")
