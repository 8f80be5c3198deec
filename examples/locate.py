"""A client outside of a group asks where a resource is, and the member that has it answers.

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
import json
import sys

import unisono


class Keeper:
    """Which keeper has what, and who has taken it. The same at all members: it changes only by what all are shown."""

    def __init__(self) -> None:
        self.name = ""  # known when it is a member
        self.shelves: dict[str, list[str]] = {}  # by keeper, as each has told
        self.taken: dict[str, str] = {}

    def learn(self, keeper: str, shelf: list[str]) -> None:
        self.shelves[keeper] = shelf

    def forget_all_but(self, keepers: set[str]) -> None:
        self.shelves = {keeper: shelf for keeper, shelf in self.shelves.items() if keeper in keepers}

    def answer(self, client: unisono.MemberId, payload: bytes) -> bytes | None:
        """Called at every member at the same place of the stream. Only the member that has the thing answers."""
        try:
            verb, thing = map(str, json.loads(payload))
        except (ValueError, TypeError, RecursionError):
            return None  # a client must not be able to end a keeper
        borrower = self.taken.get(thing)
        if verb == "take" and borrower is None and any(thing in shelf for shelf in self.shelves.values()):
            self.taken[thing] = str(client)
        if thing not in self.shelves.get(self.name, []):
            return None
        if borrower is not None:
            return f"{thing} is at {self.name}, but taken".encode()
        return f"{thing} is at {self.name}{', and yours now' if verb == 'take' else ''}".encode()

    def snapshot(self) -> bytes:
        return json.dumps([self.shelves, self.taken], sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        self.shelves, self.taken = json.loads(state)


async def keep(options: argparse.Namespace) -> None:
    keeper = Keeper()
    async with unisono.join(
        "shelves",
        listen=options.addresses[0],
        peers=options.addresses,
        answer=keeper.answer,
        snapshot=keeper.snapshot,
        restore=keeper.restore,
    ) as group:
        keeper.name = group.id.address
        async for event in group:
            if isinstance(event, unisono.Delivery):
                keeper.learn(event.sender.address, json.loads(event.payload))
                print(f"-- {event.sender.address} has {', '.join(keeper.shelves[event.sender.address])}", flush=True)
            elif isinstance(event, unisono.View):
                keeper.forget_all_but({member.address for member in event.members})
                await group.cast(json.dumps(options.has).encode())  # so that new members learn it
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
        unisono.run(keep(chosen) if chosen.command == "keep" else ask(chosen))
    except unisono.UnisonoError as error:
        sys.exit(f"locate: {error}")
