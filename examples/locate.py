"""Who has it? A client outside of a group asks where a resource is, and whoever has it answers.

Start two or three keepers, each with what it has:

    python examples/locate.py keep 127.0.0.1:7400 127.0.0.1:7401 --has printer --has scanner
    python examples/locate.py keep 127.0.0.1:7401 127.0.0.1:7400 --has plotter

and ask from anywhere; the client is no member, knows some addresses, and tries the next if one is silent:

    python examples/locate.py find plotter --contact 127.0.0.1:7400 --contact 127.0.0.1:7401
    python examples/locate.py take plotter --contact 127.0.0.1:7400

`take` asks for the resource: the request is ordered among all others, so of two clients that want the same thing at the same
moment exactly one gets it, and it gets it once, however often the request had to be sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

import unisono


class Keeper:
    """What one member has, and who has borrowed what: the borrowing is the same at all members, the shelf is each one's own."""

    def __init__(self, name: str, shelf: list[str]) -> None:
        self.name = name
        self.shelf = shelf
        self.taken: dict[str, str] = {}

    def answer(self, client: unisono.MemberId, payload: bytes) -> bytes | None:
        """Called at every member at the same place of the stream. Only the one that has the thing speaks."""
        verb, thing = json.loads(payload)
        borrower = self.taken.get(thing)
        if verb == "take" and borrower is None:
            self.taken[thing] = str(client)
        if thing not in self.shelf:
            return None
        if borrower is not None:
            return f"{thing} is at {self.name}, but taken".encode()
        return f"{thing} is at {self.name}{', and yours now' if verb == 'take' else ''}".encode()

    def snapshot(self) -> bytes:
        return json.dumps(self.taken, sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        self.taken = json.loads(state)


async def keep(options: argparse.Namespace) -> None:
    keeper = Keeper(options.addresses[0], options.has)
    async with unisono.join(
        "shelves",
        listen=options.addresses[0],
        peers=options.addresses,
        answer=keeper.answer,
        snapshot=keeper.snapshot,
        restore=keeper.restore,
    ) as group:
        async for event in group:
            if isinstance(event, unisono.View):
                print(f"-- {len(event.members)} keepers", flush=True)


async def ask(options: argparse.Namespace) -> None:
    async with unisono.client("shelves", contacts=options.contact, timeout=5) as client:
        try:
            answer = await client.request(json.dumps([options.command, options.thing]).encode(), wanted="any")
        except unisono.Unanswered:
            sys.exit(f"nobody has {options.thing}")
        print((answer or b"").decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    keeping = commands.add_parser("keep", help="be a member that has things")
    keeping.add_argument("addresses", nargs="+", help="where this one listens, then where the others may be")
    keeping.add_argument("--has", action="append", default=[])
    for verb in ("find", "take"):
        asking = commands.add_parser(verb, help=f"{verb} a thing")
        asking.add_argument("thing")
        asking.add_argument("--contact", action="append", required=True)
    chosen = parser.parse_args()
    try:
        asyncio.run(keep(chosen) if chosen.command == "keep" else ask(chosen))
    except KeyboardInterrupt:
        pass
    except unisono.UnisonoError as error:
        sys.exit(f"locate: {error}")
