"""`unisono chat`: a conversation in which everyone sees the same lines in the same order."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from getpass import getuser
from typing import Annotated

import typer

from unisono.cli import group_options as o
from unisono.cli.keyboard import Keyboard
from unisono.cli.options import taking
from unisono.cli.session import attend, line_of, tell_if_alone
from unisono.cli.streams import to_bytes, to_text
from unisono.core.departure import Origin
from unisono.core.errors import UnisonoError
from unisono.core.text import shorten
from unisono.core.transition import Transition
from unisono.core.types import MemberId
from unisono.runtime.events import Delivery, Event, View
from unisono.runtime.group import Group
from unisono.runtime.join import join
from unisono.runtime.loop import run
from unisono.trace.sanitize import sanitize

HELP = "/who lists the members, /why explains what waits, /quit (or Ctrl-D) leaves; any other line goes to all."
NAME_LETTERS_MAX = 32
NAME_WAIT_S = 2.0
"""How long to wait for a newcomer's name before its address is shown instead."""


class Conversation:
    """What one user sees: all lines in delivery order, own lines included, with names instead of addresses.

    Each member announces its name when it sees a newcomer, and with each of its lines.
    """

    def __init__(self, keyboard: Keyboard, name: str) -> None:
        self._keyboard = keyboard
        self._name = name
        self._names: dict[MemberId, str] = {}
        self._unnamed: set[MemberId] = set()  # here, and yet to announce a name
        self._group: Group | None = None

    def begin(self, group: Group) -> None:
        self._group = group
        self._names[group.id] = self._name
        self._keyboard.say(f"You are in {group.name!r} as {self._name}. {HELP}")

    def show(self, event: Event) -> None:
        if isinstance(event, Delivery):
            self._hear(event)
        elif isinstance(event, View):
            self._meet(event)
        elif not isinstance(event, Transition):  # the view that follows shows the members
            self._keyboard.say(f"* {line_of(event)}")

    def _hear(self, delivery: Delivery) -> None:
        name, text = read(delivery.payload)
        if name:
            self._names[delivery.sender] = name
            self._greet(delivery.sender)
        if text:
            self._greet(delivery.sender)
            self._keyboard.say(f"{self.name_of(delivery.sender)}: {text}")

    def _meet(self, view: View) -> None:
        for member, why in view.left.items():
            if member not in view.joined:
                self._keyboard.say(f"* {self.name_of(member)} is gone: {shorten(str(why))}")
                self._names.pop(member, None)
                self._unnamed.discard(member)
        for member, arrival in view.joined.items():
            if self._group is None or member == self._group.id:
                continue
            if arrival.origin is Origin.NEW:
                self._unnamed.add(member)
            else:  # it was here before, but may have missed lines
                self._keyboard.say(f"* {self.name_of(member)} {arrival}: you may not have read the same lines")
        if self._group is not None and view.joined:
            with suppress(UnisonoError):  # this member is leaving
                self._group.try_cast(write(self._name, ""))
        if self._unnamed:
            asyncio.get_running_loop().call_later(NAME_WAIT_S, self._greet, *self._unnamed)

    def _greet(self, *members: MemberId) -> None:
        """Announce new members once: when their names are known, or when the wait for a name is over."""
        for member in members:
            if member in self._unnamed:
                self._unnamed.discard(member)
                self._keyboard.say(f"* {self.name_of(member)} is here")

    def name_of(self, member: MemberId) -> str:
        return self._names.get(member, member.address)

    async def take(self, group: Group, line: str) -> bool:
        line = line.strip()
        if line in ("/quit", "/exit"):
            return False
        if line == "/who":
            self._keyboard.say(f"* here: {', '.join(map(self.name_of, group.members))}")
        elif line == "/why":
            for sentence in group.explain() or ["nothing waits"]:
                self._keyboard.say(f"* {shorten(sentence)}")
        elif line.startswith("/"):
            self._keyboard.say(f"* {HELP}")
        elif line:
            await group.cast(write(self._name, line))
        return True


def write(name: str, text: str) -> bytes:
    return to_bytes(json.dumps({"name": name, "text": text}, ensure_ascii=False))


def read(payload: bytes) -> tuple[str, str]:
    """Read a name and a text, made safe to show. A payload from another program is a text without a name."""
    try:
        said = json.loads(to_text(payload))
        return sanitize(str(said["name"]))[:NAME_LETTERS_MAX], sanitize(str(said["text"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return "", sanitize(to_text(payload))


def _user() -> str:
    try:
        return getuser()
    except (KeyError, OSError):  # the user has no name, as in many containers
        return f"user {os.getuid()}"


@taking(o.MeetingOptions)
def chat(
    group: o.Name,
    asked: o.MeetingOptions,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Your name in the chat.")] = None,
) -> None:
    """Chat: every line goes to all members, and all see the same lines in the same order.

    Without --listen and --peers, chats on this machine find each other on ports 7400 to 7407.
    """
    called = sanitize(name or _user())[:NAME_LETTERS_MAX]
    joining = join(group, **asked.arguments(), control=True)

    async def main() -> None:
        with Keyboard(f"{called}> ") as keyboard:
            talk = Conversation(keyboard, called)

            def warn(sentence: str) -> None:
                keyboard.say(f"* {shorten(sentence)}")

            def begin(joined: Group) -> None:
                talk.begin(joined)
                if asked.peers:
                    tell_if_alone(joined, warn)

            await attend(joining, keyboard, talk.show, talk.take, begin=begin, warn=warn)

    run(main())
