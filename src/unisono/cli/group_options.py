"""The options of commands that join a group, and how they become a call of `join`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from unisono.cli.options import refuse_other_storage
from unisono.core.errors import Misuse
from unisono.orders.registry import DEFAULT_ORDER, ORDERS
from unisono.runtime.seal import is_key_text
from unisono.sim.units import parse_duration

LOCAL_PEERS = tuple(f"127.0.0.1:{port}" for port in range(7400, 7408))
"""Default peers: eight addresses on this machine."""
WHERE, GROUP, SAFETY, LOOK = "Where", "Group", "Safety", "Looking at it"

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name, the same at all members.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.", rich_help_panel=LOOK)]
Long = Annotated[
    bool,
    typer.Option("--long", help="Print whole incarnations. Default: three hex digits of each.", rich_help_panel=LOOK),
]


def split_list(texts: list[str] | None) -> list[str]:
    """Split repeated or comma-separated values into one list."""
    return [one.strip() for text in texts or () for one in text.split(",") if one.strip()]


def _orders(incomplete: str) -> list[str]:
    return [name for name in ORDERS if name.startswith(incomplete)]


def _seconds(text: str | None) -> float | None:
    return None if text is None else parse_duration(text) / 1e9


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
        rich_help_panel=SAFETY,
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Use the network without a key: anyone can read and cast.", rich_help_panel=SAFETY),
]


@dataclass(frozen=True, kw_only=True)
class MeetingOptions:
    """The options with which a program meets others: arguments of `join`."""

    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            "-l",
            help="HOST:PORT to receive on; port 0 picks a free one. Default: the first of --peers that is local and free.",
            rich_help_panel=WHERE,
        ),
    ] = None
    peers: Annotated[
        list[str] | None,
        typer.Option(
            "--peers",
            "-p",
            help="HOST:PORT,HOST:PORT where members may be; without an answer from any, this one founds the group.",
            rich_help_panel=WHERE,
            callback=split_list,
        ),
    ] = None
    advertise: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT at which others reach this member, if it differs from --listen.", rich_help_panel=WHERE
        ),
    ] = None
    order: Annotated[
        str,
        typer.Option(
            "--order",
            "-o",
            help="The order; `unisono sim orders` lists them.",
            rich_help_panel=GROUP,
            autocompletion=_orders,
        ),
    ] = DEFAULT_ORDER
    key: KeyFile = None
    insecure: Insecure = False
    pace: Annotated[
        float,
        typer.Option(help="Factor for all timers; 0.25 detects failures four times as fast.", rich_help_panel=GROUP),
    ] = 1.0

    def arguments(self) -> dict[str, Any]:
        """The arguments for `join`. Without an address, members on this machine find each other."""
        return vars(self) | {"peers": self.peers or (() if self.listen else LOCAL_PEERS)}


@dataclass(frozen=True, kw_only=True)
class MemberOptions(MeetingOptions):
    """… and all others that a member in the foreground takes."""

    min_members: Annotated[
        int,
        typer.Option("--min-members", help="Smallest number of members for the first view.", rich_help_panel=GROUP),
    ] = 1
    policy: Annotated[
        str,
        typer.Option(
            help="Behaviour in a partition: partitionable (all parts continue) or primary (one part continues; needs "
            "--journal).",
            rich_help_panel=GROUP,
        ),
    ] = "partitionable"
    bootstrap: Annotated[
        bool,
        typer.Option(
            "--bootstrap", help="With --policy primary: this member may form the first primary.", rich_help_panel=GROUP
        ),
    ] = False
    safe: Annotated[
        bool, typer.Option("--safe", help="Deliver a message only once every member has it.", rich_help_panel=GROUP)
    ] = False
    slow: Annotated[
        str,
        typer.Option(
            help="Slow receivers: block the sender, shed (refuse casts), or evict the receiver.", rich_help_panel=GROUP
        ),
    ] = "block"
    timeout: Annotated[
        str | None,
        typer.Option(
            help="Give up if there is no view of --min-members within this time, as in 10s.",
            rich_help_panel=GROUP,
            callback=_seconds,
        ),
    ] = None
    journal: Annotated[
        Path | None,
        typer.Option(
            help="Folder for what must outlive the process.", callback=refuse_other_storage, rich_help_panel=SAFETY
        ),
    ] = None
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Record everything into this folder, for `unisono trace`.",
            callback=refuse_other_storage,
            rich_help_panel=LOOK,
        ),
    ] = None
    metrics: Annotated[
        str | None, typer.Option(help="HOST:PORT to serve metrics for Prometheus on.", rich_help_panel=LOOK)
    ] = None
    watchdog: Annotated[
        str | None,
        typer.Option(
            help="Report what has waited longer than this, as in 10s.", rich_help_panel=LOOK, callback=_seconds
        ),
    ] = None
