"""A bulletin board without a server: items with an author and a subject, replies, and one numbering everywhere.

Start it in two or three terminals, each with another first port:

    python examples/bulletin_board.py 127.0.0.1:7400 127.0.0.1:7401 127.0.0.1:7402 --name ann

then type `post SUBJECT`, `reply NUMBER TEXT`, `show`. The order `causal-total` gives what a board needs: an author's items come in
the order in which they were written, a reply never comes before what it answers, and item 7 is item 7 at all members. A member
that joins late gets the whole board before its first item (`snapshot` and `restore`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field

import unisono


@dataclass
class Item:
    key: str  # its sender and number in the group: two items with the same words are still two
    author: str
    subject: str
    replies: dict[str, str] = field(default_factory=dict)  # by their keys


class Board:
    """The replicated state. It changes only by `apply`, with the same messages in the same order at every member."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def apply(self, key: str, message: dict[str, str | int]) -> str:
        """Apply one message, and return the line that a reader sees."""
        author, text = str(message["from"]), str(message["text"])
        if message["kind"] == "post":
            self.items.append(Item(key, author, text))
            return f"{len(self.items)}. {author}: {text}"
        number = int(message["to"])
        if not 1 <= number <= len(self.items):
            return f"({author} replied to item {number}, which is not there)"
        self.items[number - 1].replies[key] = f"{author}: {text}"
        return f"{number}. ↳ {author}: {text}"

    def snapshot(self) -> bytes:
        return json.dumps([asdict(item) for item in self.items]).encode()

    def restore(self, state: bytes) -> None:
        self.items = [Item(**item) for item in json.loads(state)]

    def merge(self, parts: object) -> None:
        """After a partition: the first part's items, then those of the others that it does not have."""
        assert isinstance(parts, list | tuple)
        merged: dict[str, Item] = {}
        for part in parts:
            for item in (Item(**one) for one in json.loads(part)):
                known = merged.setdefault(item.key, item)
                known.replies |= item.replies
        self.items = list(merged.values())

    def lines(self) -> list[str]:
        shown = []
        for number, item in enumerate(self.items, 1):
            shown.append(f"{number}. {item.author}: {item.subject}")
            shown += [f"   ↳ {reply}" for reply in item.replies.values()]
        return shown


def message_of(line: str, name: str) -> dict[str, str | int] | None:
    """The message that a typed line makes, or None if it makes none."""
    verb, _, rest = line.strip().partition(" ")
    if verb == "post" and rest:
        return {"kind": "post", "from": name, "text": rest}
    if verb == "reply":
        number, _, text = rest.partition(" ")
        if number.isdigit() and text:
            return {"kind": "reply", "from": name, "to": int(number), "text": text}
    return None


async def follow(group: unisono.Group, board: Board) -> None:
    async for event in group:
        match event:
            case unisono.Delivery(sender, payload, index):
                print(board.apply(f"{sender}:{index}", json.loads(payload)), flush=True)
            case unisono.View(_, members, _, left):
                gone = "".join(f"; {one.address} {why}" for one, why in left.items())
                print(f"-- {len(members)} members{gone}", flush=True)


async def typed() -> AsyncIterator[str]:
    """Lines of standard input: a terminal, a pipe or a file. A thread reads them, so that the group never waits for a person."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        with open(0, "rb", buffering=0, closefd=False) as stdin:
            for line in stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line.decode(errors="replace"))
        loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line


async def main(options: argparse.Namespace) -> None:
    board = Board()
    async with unisono.join(
        "board",
        listen=options.addresses[0],
        peers=options.addresses,
        order="causal-total",
        snapshot=board.snapshot,
        restore=board.restore,
        merge=board.merge,
    ) as group:
        following = asyncio.create_task(follow(group, board))
        async for line in typed():
            message = message_of(line, options.name)
            if message is not None:
                await group.cast(json.dumps(message).encode())
            elif line.strip() == "show":
                print("\n".join(board.lines()) or "(empty)", flush=True)
            else:
                print("post SUBJECT | reply NUMBER TEXT | show", flush=True)
    await following


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("addresses", nargs="+", help="where this one listens, then where the others may be")
    parser.add_argument("--name", required=True, help="who writes")
    try:
        unisono.run(main(parser.parse_args()))
    except unisono.UnisonoError as error:
        sys.exit(f"bulletin_board: {error}")
