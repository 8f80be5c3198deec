"""A score board for a game of several processes, which all see the same player win, to the point.

    python examples/score_board.py 127.0.0.1:7400 127.0.0.1:7401 127.0.0.1:7402 --player ann --goal 10

Each line that is typed scores a point for the player. Points are cast in total order, so two players who score at the same
moment are ordered the same way everywhere: all boards stop at the same winner. Points are cast `safe`: one is shown
only when every member has it, so no player celebrates a win that dies with the process that saw it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator

import unisono


class ScoreBoard:
    """Points by player, up to a goal; later points do not count."""

    def __init__(self, goal: int) -> None:
        self.goal = goal
        self.points: dict[str, int] = {}
        self.winner: str | None = None

    def score(self, player: str) -> str:
        if self.winner is not None:
            return f"{player} is too late: {self.winner} has won"
        self.points[player] = self.points.get(player, 0) + 1
        if self.points[player] == self.goal:
            self.winner = player
            return f"{player} has won"
        return f"{player} {self.points[player]}"

    def snapshot(self) -> bytes:
        return json.dumps([self.goal, self.points, self.winner]).encode()

    def restore(self, state: bytes) -> None:
        self.goal, self.points, self.winner = json.loads(state)


async def follow(group: unisono.Group, board: ScoreBoard) -> None:
    async for event in group:
        if isinstance(event, unisono.Delivery):
            print(board.score(event.payload.decode()), flush=True)
        elif isinstance(event, unisono.View):
            print(f"-- {len(event.members)} playing", flush=True)


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
    board = ScoreBoard(options.goal)
    async with unisono.join(
        "scores",
        listen=options.addresses[0],
        peers=options.addresses,
        safe=True,
        snapshot=board.snapshot,
        restore=board.restore,
    ) as group:
        following = asyncio.create_task(follow(group, board))
        async for _ in typed():
            await group.cast(options.player.encode())
    await following


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("addresses", nargs="+", help="where this one listens, then where the others may be")
    parser.add_argument("--player", required=True)
    parser.add_argument("--goal", type=int, default=10)
    try:
        unisono.run(main(parser.parse_args()))
    except unisono.UnisonoError as error:
        sys.exit(f"score_board: {error}")
