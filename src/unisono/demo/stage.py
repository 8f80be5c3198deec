"""The stage of the demo: real processes on loopback, and what is done to them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from unisono.core.errors import UnisonoError

WAIT_S = 30.0


@dataclass
class Actor:
    """One process, and what it has said so far."""

    name: str
    address: str
    process: subprocess.Popen[str]
    state: str = "starts"
    view: int | None = None
    members: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)  # the reasons that its last view gave
    delivered: int = 0
    cast: int | None = None
    chain: str | None = None
    errors: list[str] = field(default_factory=list)

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.hear(json.loads(line))

    def hear(self, words: dict[str, object]) -> None:
        if "joined" in words:
            self.state = "casts"
        if "view" in words:
            self.view, self.members, self.left = words["view"], words["members"], words["left"]  # type: ignore[assignment]
        for name in ("delivered", "chain", "cast"):
            if name in words:
                setattr(self, name, words[name])


class DemoStage:
    """Starts, kills, stops, continues and ends processes, each by its own pid."""

    def __init__(self, traces: Path, run: str, count: int) -> None:
        self.traces, self.run = traces, run
        self.addresses = free_addresses(count)
        self.actors: dict[str, Actor] = {}

    def start(self, together: int, count: int) -> None:
        for _ in range(count):
            number = len(self.actors)
            name, address = "abcdefgh"[number], self.addresses[number]
            command = [
                sys.executable, "-m", "unisono.demo.member", "--listen", address, "--peers", ",".join(self.addresses),
                "--trace", str(self.traces), "--run", self.run, "--together", str(together),
            ]  # fmt: skip
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            actor = self.actors[name] = Actor(name, address, process)
            threading.Thread(target=actor.listen, daemon=True).start()

    def signal(self, name: str, what: signal.Signals, state: str) -> None:
        actor = self.actors[name]
        os.kill(actor.process.pid, what)
        actor.state = state

    def name_of(self, address: str) -> str:
        return next((actor.name for actor in self.actors.values() if actor.address == address), address)

    def agree(self, names: str) -> bool:
        """Whether these are in one view of exactly them."""
        wanted = sorted(self.actors[name].address for name in names)
        views = {self.actors[name].view for name in names}
        return len(views) == 1 and all(sorted(self.actors[name].members) == wanted for name in names)

    def wait(self, condition: Callable[[], bool], what: str, look: Callable[[], None]) -> float:
        """Wait until something holds; how long it took. A process that ends by itself meanwhile is an error."""
        begun = monotonic()
        while not condition():
            look()
            for actor in self.actors.values():
                if actor.state in ("starts", "casts") and actor.process.poll() not in (None, 0):
                    assert actor.process.stderr is not None
                    raise UnisonoError(f"process {actor.name} ended: {actor.process.stderr.read().strip()[-300:]}")
            if monotonic() - begun > WAIT_S:
                raise UnisonoError(f"after {WAIT_S:g} s {what} has not happened; is the machine very busy? Try again.")
            sleep(0.02)
        look()
        return monotonic() - begun

    def pass_time(self, seconds: float, look: Callable[[], None]) -> None:
        end = monotonic() + seconds
        while monotonic() < end:
            look()
            sleep(0.02)

    def stop_casting(self) -> None:
        for actor in self.actors.values():
            if actor.state == "casts":
                actor.state = "comes to rest"
                assert actor.process.stdin is not None
                actor.process.stdin.write("stop\n")
                actor.process.stdin.flush()

    def all_ended(self) -> bool:
        for actor in self.actors.values():
            if actor.state == "comes to rest" and actor.process.poll() is not None:
                actor.state = "left"
        return all(actor.state in ("left", "killed") for actor in self.actors.values())

    def clear(self) -> None:
        """End what still runs: by its pid, and only what was started here."""
        for actor in self.actors.values():
            if actor.process.poll() is None:
                actor.process.kill()
            actor.process.wait()
            for pipe in (actor.process.stdin, actor.process.stdout, actor.process.stderr):
                if pipe is not None:
                    pipe.close()


@contextmanager
def staged(traces: Path, run: str, count: int) -> Iterator[DemoStage]:
    stage = DemoStage(traces, run, count)
    try:
        yield stage
    finally:
        stage.clear()


def free_addresses(count: int) -> list[str]:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return sorted(f"127.0.0.1:{one.getsockname()[1]}" for one in sockets)  # as a picture sorts them
    finally:
        for one in sockets:
            one.close()
