"""One process of the demo: joins, casts at random moments until told to stop, and says in JSON lines what it sees.

It is what an application of unisono looks like, plus the printing. Standard input is its remote control: the line `stop` ends
the casting, and it leaves when everything has come to rest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from hashlib import blake2b
from random import Random

import unisono


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)


async def cast_until(stop: asyncio.Event, group: unisono.Group, rate: float) -> int:
    random, count = Random(str(group.id)), 0
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), random.expovariate(rate))
            break
        await group.cast(f"message {count} of {group.id.address}".encode())
        count += 1
    return count


async def watch(group: unisono.Group, stop: asyncio.Event, quiet_s: float) -> None:
    """Deliver; after the stop, until nothing comes any more. The hash stands for all of it, in its order."""
    delivered, chain, said = 0, blake2b(digest_size=8), 0.0
    loop = asyncio.get_running_loop()
    while True:
        try:
            event = await group.next(quiet_s)
        except unisono.TimedOut:
            if stop.is_set():
                break
            continue
        match event:
            case unisono.Delivery(sender, payload):
                delivered += 1
                chain.update(str(sender).encode() + payload)
            case unisono.View(number, members, _, left):
                gone = {one.address: str(why) for one, why in left.items()}
                say(view=number, members=[one.address for one in members], left=gone)
        if loop.time() - said > 0.1:
            said = loop.time()
            say(delivered=delivered)
    say(delivered=delivered, chain=chain.hexdigest())


async def listen_to(stop: asyncio.Event) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if line.strip() == b"stop":
            break
    stop.set()


async def main(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    remote = asyncio.create_task(listen_to(stop))
    async with unisono.join(
        "demo",
        listen=options.listen,
        peers=options.peers.split(","),
        min_members=options.together,
        trace=options.trace,
        run=options.run,
        pace=options.pace,
        timeout=30,
    ) as group:
        say(joined=str(group.id))
        casting = asyncio.create_task(cast_until(stop, group, options.rate))
        await watch(group, stop, quiet_s=0.7)
        say(cast=await casting)
    await remote


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("listen", "peers", "trace", "run"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--rate", type=float, default=40.0)
    parser.add_argument("--pace", type=float, default=0.3)
    return parser.parse_args()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(arguments()))
