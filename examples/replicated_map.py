"""A key-value map that every process has, always the same: reads are local, writes are cast in total order.

    python examples/replicated_map.py 127.0.0.1:7400 127.0.0.1:7401 127.0.0.1:7402

then type `set KEY VALUE`, `add KEY NUMBER`, `del KEY`, `get KEY`, `all`. `swap KEY OLD NEW` changes a value only if it is
still OLD: all members see the same writes in the same order, so all agree on which was first, without a lock. A process
that joins gets the map first (`snapshot`, `restore`); after a partition both sides' maps are merged, the same way everywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from itertools import count

import unisono


class ReplicatedMap:
    """A map whose writes go through a group. `apply` is the only place that changes it."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._group: unisono.Group | None = None
        self._numbers = count()
        self._answers: dict[int, asyncio.Future[str]] = {}  # by number of an own write: who waits for what came of it

    # The state, as joiners get it.

    def snapshot(self) -> bytes:
        return json.dumps(self.values, sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        self.values = json.loads(state)
        self._answer_unknown()

    def merge(self, parts: Sequence[bytes]) -> None:
        """Parts come in the same order everywhere; the first one that has a key decides."""
        self.values = {}
        for part in parts:
            for key, value in json.loads(part).items():
                self.values.setdefault(key, value)
        self._answer_unknown()

    def _answer_unknown(self) -> None:
        """A state that was taken over may hold own writes already; then they are not delivered here any more."""
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_result("unknown: another state was taken over meanwhile; look with get")
        self._answers.clear()

    # Reading is local; writing is a cast, and its answer is there when it is delivered here.

    async def write(self, *words: str) -> str:
        assert self._group is not None
        number = next(self._numbers)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self._group.cast(json.dumps([number, *words]).encode())
        return await answer

    async def run(self, group: unisono.Group) -> None:
        self._group = group
        async for event in group:
            if isinstance(event, unisono.Delivery):
                number, *words = json.loads(event.payload)
                said = self.apply(words)
                waiting = self._answers.pop(number, None) if event.sender == group.id else None
                if waiting is not None and not waiting.done():
                    waiting.set_result(said)

    def apply(self, words: Sequence[str]) -> str:
        """One write, the same one at the same place at every member."""
        match words:
            case ["set", key, value]:
                self.values[key] = value
                return value
            case ["add", key, number]:
                try:
                    self.values[key] = str(int(self.values.get(key, "0")) + int(number))
                except ValueError:
                    return "not a number"
                return self.values[key]
            case ["swap", key, old, new]:
                if self.values.get(key) != old:
                    return f"no: {key} is {self.values.get(key)}"
                self.values[key] = new
                return new
            case ["del", key]:
                return "gone" if self.values.pop(key, None) is not None else "was not there"
        return f"what is {' '.join(words)!r}?"


async def converse(map_: ReplicatedMap, line: str) -> str:
    words = line.split()
    match words:
        case ["get", key]:
            return map_.values.get(key, "(not there)")
        case ["all"]:
            return json.dumps(map_.values, sort_keys=True)
        case [("set" | "add" | "swap" | "del"), *_]:
            return await map_.write(*words)
    return "set KEY VALUE | add KEY NUMBER | swap KEY OLD NEW | del KEY | get KEY | all"


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


async def main(addresses: list[str]) -> None:
    map_ = ReplicatedMap()
    async with unisono.join(
        "map",
        listen=addresses[0],
        peers=addresses,
        snapshot=map_.snapshot,
        restore=map_.restore,
        merge=map_.merge,
    ) as group:
        running = asyncio.create_task(map_.run(group))
        print(f"ready: {len(group.members)} members", flush=True)
        async for line in typed():
            if line.strip():
                print(await converse(map_, line), flush=True)
    await running


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("addresses", nargs="+", help="where this one listens, then where the others may be")
    try:
        unisono.run(main(parser.parse_args().addresses))
    except unisono.UnisonoError as error:
        sys.exit(f"replicated_map: {error}")
