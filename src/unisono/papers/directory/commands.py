"""`unisono directory`: names for groups, without a server."""

from __future__ import annotations

import os
import time
from pathlib import Path
from time import time_ns
from typing import Annotated, Any

import typer

from unisono.cli import group_options as o
from unisono.cli.keyboard import ending_signals
from unisono.cli.show import make_table, out, print_json, tell
from unisono.core.errors import Misuse
from unisono.core.text import shorten
from unisono.core.types import MemberId
from unisono.papers.directory.node import DirectoryNode, read_permanent
from unisono.runtime.addresses import bind, bind_first, bound_endpoint, resolve, resolve_all
from unisono.runtime.control_socket import ControlSocket, ask, find_place, find_sockets, remove
from unisono.runtime.loop import run as run_loop
from unisono.runtime.seal import find_key
from unisono.trace.sanitize import sanitize

LOCAL_MANAGERS = tuple(f"127.0.0.1:{port}" for port in range(7411, 7419))
CLAIM_WAIT_S = 30.0

app = typer.Typer(
    help="Names for groups without a server: managers agree on who owns which name. For study: `node`, `chat` and `join` find "
    "members by their peers and do not ask it.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="The group's name.")]
Manager = Annotated[str | None, typer.Option(help="Address of the manager to ask, if several run here.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("run")
def run(
    managers: Annotated[
        list[str] | None,
        typer.Option(
            "--managers", help="HOST:PORT,HOST:PORT of all managers. Default: ports 7411 to 7418 of this machine."
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", "-l", help="This manager's address in the list. Default: the first that is local and free."
        ),
    ] = None,
    permanent: Annotated[
        Path | None, typer.Option(help="File with the permanent groups: one name and number per line.")
    ] = None,
    key: o.KeyFile = None,
    insecure: o.Insecure = False,
) -> None:
    """Run a manager until a signal: claim names for this machine, and defend those taken."""
    texts = o.split_list(managers) or list(LOCAL_MANAGERS)
    endpoints = resolve_all(texts, "the manager")
    found = find_key(key)
    outside = [one for one in endpoints if not one.is_loopback]
    if outside and found is None and not insecure:
        raise Misuse(
            f"{outside[0]} is not on this machine, and there is no key: pass --key, or --insecure to run without one."
        )
    table = {} if permanent is None else read_permanent(permanent)
    family = int(endpoints[0].family)
    udp = bind_first(endpoints)[0] if listen is None else bind(resolve(listen, "listen", family))
    own = bound_endpoint(udp)
    if own not in endpoints:
        udp.close()
        raise Misuse(f"{own} is not among --managers: the list must be the same everywhere.")

    async def main() -> None:
        node = DirectoryNode(udp, MemberId(str(own), time_ns()), endpoints, found, table, tell=_say)
        place = find_place()
        if place.warning is not None:
            _say(place.warning)
        control = ControlSocket(place.folder / f"directory-{os.getpid()}.sock", node.answer)
        await control.open()
        node.open()
        _say(f"manager {own} runs, with {len(endpoints) - 1} other places")
        try:
            with ending_signals() as end:
                await end.wait()
        finally:
            node.close()
            control.close()

    with udp:
        run_loop(main())


def _say(text: str) -> None:
    print(sanitize(text), flush=True)


@app.command("claim")
def claim(name: Name, manager: Manager = None, json: Json = False) -> None:
    """Claim a name for a group; the manager keeps it until it is released or ends."""
    path = _find(manager)
    outcome = _ask(path, {"ask": "claim", "name": name})
    end = time.monotonic() + CLAIM_WAIT_S
    while outcome is None and time.monotonic() < end:
        time.sleep(0.05)
        outcome = _ask(path, {"ask": "outcome", "name": name})
    if outcome is None:
        raise Misuse(f"the claim to {name!r} is still under way: ask with `unisono directory list`.")
    if json:
        print_json(outcome)
    else:
        tell(outcome.get("refused") or f"{name} is {outcome['address']}")
    if "refused" in outcome:
        raise typer.Exit(1)


@app.command("release")
def release(name: Name, manager: Manager = None) -> None:
    """Release a name."""
    _ask(_find(manager), {"ask": "release", "name": name})
    tell(f"{name} is free again")


@app.command("lookup")
def lookup(name: Name, manager: Manager = None, json: Json = False) -> None:
    """Look up the address of a name. A manager that does not know it asks the others."""
    path = _find(manager)
    found = _ask(path, {"ask": "lookup", "name": name})
    for _ in range(20):
        if found is not None:
            break
        time.sleep(0.05)
        found = _ask(path, {"ask": "lookup", "name": name})
    if json:
        print_json(found)
    else:
        tell(f"{name} is unknown" if found is None else f"{name} is {found['address']}")
    if found is None:
        raise typer.Exit(1)


@app.command("list")
def list_names(manager: Manager = None, json: Json = False) -> None:
    """List all names that the manager knows, its own and others'."""
    _show(_ask(_find(manager), {"ask": "list"}), json)


@app.command("permanent")
def list_permanent(manager: Manager = None, json: Json = False) -> None:
    """List the manager's permanent groups, which need no claim."""
    _show(_ask(_find(manager), {"ask": "permanent"}), json)


def _show(rows: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(rows)
        return
    cells = ((row["name"], row["address"], shorten(row["owner"] or "permanent")) for row in rows)
    out.print(make_table(("name", "address", "manager"), cells) if rows else "no names")


def _ask(path: Path, question: dict[str, str]) -> Any:
    try:
        return ask(path, question)
    except (OSError, ValueError):
        raise Misuse("the manager has ended: start one with `unisono directory run`.") from None


def _find(manager: str | None) -> Path:
    found = {}
    for path in find_sockets("directory-*.sock"):
        try:
            found[ask(path, {"ask": "status"})["manager"].partition("#")[0]] = path
        except (ConnectionRefusedError, FileNotFoundError):
            remove(path)  # left behind by a killed manager
        except (OSError, ValueError):
            continue
    if not found:
        raise Misuse("no manager runs here: start one with `unisono directory run`.")
    if manager is None and len(found) > 1:
        raise Misuse(f"several managers run here, choose one with --manager: {', '.join(found)}.")
    if manager is not None and manager not in found:
        raise Misuse(f"no manager {manager} runs here. These do: {', '.join(found)}.")
    return found[manager] if manager is not None else next(iter(found.values()))
