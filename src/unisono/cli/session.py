"""A member in the foreground: what happens is shown, what is typed is cast, until a signal or the end of the input."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from unisono.cli.keyboard import Keyboard, ending_signals
from unisono.cli.show import err
from unisono.cli.streams import to_text
from unisono.core.errors import UnisonoError
from unisono.core.text import shorten
from unisono.runtime.errors import TimedOut
from unisono.runtime.events import Delivery, Event, View
from unisono.runtime.group import Group
from unisono.runtime.join import Joining
from unisono.runtime.named_peers import Trouble
from unisono.trace.sanitize import sanitize

WAIT_TOLD_S = 2.0
"""How long a member waits for its group before the reasons are printed; the wait doubles each time."""

PEERS_LOOK_S = 1.0
"""How often to check for reasons that keep named peers away."""

VIEW_WAIT_S = 2.0
"""How long a member whose input has ended with nothing to cast waits for its first view …"""
LINES_WAIT_S = 20.0
"""… and how long if lines wait to be cast."""


async def attend(
    joining: Joining,
    keyboard: Keyboard,
    show: Callable[[Event], None],
    take: Callable[[Group, str], Awaitable[bool]],
    *,
    begin: Callable[[Group], None] = lambda _: None,
    finish: Callable[[], None] = lambda: None,
    stay: bool = False,
    warn: Callable[[str], None] | None = None,
    leave_s: float = 5.0,
    long: bool = False,
) -> int:
    """Be a member until a signal, or the end of the input unless told to stay, or until `take` says False.

    `warn` gets each sentence about a named peer that another key, group or name keeps away; without it, standard error.
    How many lines were refused.
    """
    refused: list[UnisonoError] = []
    with ending_signals() as end:
        ended = asyncio.create_task(end.wait())
        joined = asyncio.ensure_future(joining)
        idle = asyncio.create_task(_idle(keyboard, stay))
        patience_s = WAIT_TOLD_S
        while True:
            done, _ = await asyncio.wait({ended, joined, idle}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            if done:
                break
            for sentence in joining.explain():
                complain(sentence, long)
            patience_s *= 2
        if not joined.done():
            is_idle, why = idle.done() and not ended.done(), " ".join(joining.explain())
            for task in (ended, joined, idle):
                task.cancel()
            await asyncio.gather(ended, joined, idle, return_exceptions=True)
            if is_idle:
                lines = f"{keyboard.waiting} lines that were not cast" if keyboard.waiting else "nothing to cast"
                raise TimedOut(f"the input has ended with {lines}, and --stay is not given: no view. {why}")
            return 0
        idle.cancel()
        group = joined.result()
        begin(group)
        shown = asyncio.create_task(_show_all(group, show))
        watched = asyncio.create_task(_watch_peers(group, warn or complain))
        typed = asyncio.create_task(_take_all(group, keyboard, take, stay, refused, long))
        try:
            await asyncio.wait({ended, shown, typed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (ended, typed, watched):
                task.cancel()
            finish()
            try:
                await group.leave(leave_s)
            finally:
                results = await asyncio.gather(shown, typed, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return len(refused)


def tell_if_alone(group: Group, warn: Callable[[str], None] | None = None) -> None:
    """Say that no peer has answered: the wrong ones may be named. Known causes follow, while the member runs (`attend`)."""
    sought = group.running.peers.sought()
    if not sought or len(group.members) > 1:
        return
    text = f"no answer from {', '.join(sought)}: this member starts alone and merges with them when it hears them."
    for sentence in (text, *group.running.explain_strangers()):
        (warn or complain)(sentence)


async def _watch_peers(group: Group, warn: Callable[[str], None]) -> None:
    """Say what keeps a named peer away, once each. Silence alone is not mentioned: a peer may start later."""
    peers, told = group.running.peers, set[tuple[str, Trouble]]()
    while True:
        missed = {(report.peer, report.trouble): report for report in peers.missed()}
        for what, report in missed.items():
            if what not in told and report.trouble is not Trouble.SILENT:
                warn(report.sentence)
        told = told.union(missed) if missed else set()
        await asyncio.sleep(PEERS_LOOK_S)


def complain(sentence: str, long: bool = False) -> None:
    """Write a sentence for people to standard error, beside what the command prints."""
    err.print("unisono:", sanitize(sentence if long else shorten(sentence)), markup=False, soft_wrap=True)


async def _idle(keyboard: Keyboard, stay: bool) -> None:
    """Wait until a member without a view is of no use: its input has ended, and it has waited long enough."""
    if stay:
        await asyncio.Event().wait()
    await asyncio.sleep(LINES_WAIT_S if await keyboard.ended() else VIEW_WAIT_S)


async def _show_all(group: Group, show: Callable[[Event], None]) -> None:
    async for event in group:
        show(event)


async def _take_all(
    group: Group,
    keyboard: Keyboard,
    take: Callable[[Group, str], Awaitable[bool]],
    stay: bool,
    refused: list[UnisonoError],
    long: bool,
) -> None:
    async for line in keyboard:
        try:
            if not await take(group, line):
                return
        except UnisonoError as error:
            refused.append(error)
            complain(str(error), long)
    if stay:
        await asyncio.Event().wait()  # until a signal ends it


# What events look like.


def line_of(event: Event, long: bool = False) -> str:
    """Format an event for people; with `long`, print whole incarnations. Payloads are never shortened."""
    if isinstance(event, Delivery):
        return f"{event.sender if long else event.sender.short}:{event.index} {to_text(event.payload)}"
    return event.long if long else str(event)


def row_of(event: Event) -> dict[str, Any]:
    """The fields of an event, for programs. A payload that is not UTF-8 is encoded in base64."""
    row = event._asdict()
    if isinstance(event, Delivery):
        row |= _payload(row.pop("payload"))
    if isinstance(event, View):
        row = {"view": row.pop("id")} | row
        del row["number"]  # is in its id
    if "is_primary" in row:
        row["primary"] = row.pop("is_primary")
    return {"event": type(event).__name__.lower(), **{name: _plain(value) for name, value in row.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(member): str(why) for member, why in value.items()}
    if type(value) is tuple:  # identifiers are tuples too
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, int | str) else str(value)


def _payload(payload: bytes) -> dict[str, str]:
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"payload_base64": b64encode(payload).decode()}
