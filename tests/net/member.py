"""One process of the tests: joins through the public interface, does what standard input says, and tells what it sees.

Its first argument is a JSON object, `Options`. Each line of standard input is a JSON object with `do`: cast, rate, speed, status,
switch, rest, again or leave. What it says has `is`: joined, view, progress, status, snapshot, rest, left, error, or the name of
another event.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from importlib import import_module
from time import monotonic
from typing import Any

import unisono
from unisono.core.membership.detector import DetectorSettings

SAY_EVERY_S = 0.05
TURN_S = 0.02


@dataclass
class Options:
    """What the stage asks of a process. Whatever else it is given goes to `unisono.join`."""

    rate: float = 0.0
    """Casts a second."""
    payload_bytes: int = 60
    delay_s: float = 0.0
    """How long the application takes over each message."""
    hooks: bool = False
    """Whether it holds a replicated map, which joiners get."""
    state_bytes: int = 0
    """The map's snapshot is so large at least."""
    silence_s: float | None = None
    """Nobody is suspected before so much silence."""
    file_bytes_max: int | None = None
    """No file of this process may become larger."""
    mutant: str | None = None
    """A fault of this process: `module:function`, called before it joins."""
    wishes: dict[str, Any] = field(default_factory=dict)


def say(kind: str, **words: object) -> None:
    print(json.dumps({"is": kind, **words}), flush=True)


class Map:
    """A replicated map: each message sets a key. Two histories are merged by taking the larger value of each key."""

    def __init__(self, state_bytes: int) -> None:
        self.entries: dict[str, str] = {}
        self.state_bytes = state_bytes

    def apply(self, payload: bytes) -> None:
        name, _, value = payload.decode().partition("=")
        self.entries[name] = value

    def snapshot(self) -> bytes:
        say("snapshot")
        return self.encode().ljust(self.state_bytes)

    def encode(self) -> bytes:
        return json.dumps(self.entries, sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        self.entries = json.loads(state)

    def merge(self, parts: Sequence[bytes]) -> None:
        merged: dict[str, str] = {}
        for part in parts:
            for name, value in json.loads(part).items():
                merged[name] = max(value, merged.get(name, value))
        self.entries = merged

    @property
    def digest(self) -> str:
        return blake2b(self.encode(), digest_size=8).hexdigest()


class Actor:
    """The application."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.map = Map(options.state_bytes)
        self.group: unisono.Group
        self.cast_count = self.delivered = self.shed = self.refused = 0
        self.view_count = self.view_sum = 0  # of the messages of this view: how many, and an order-free digest
        self.said_at = 0.0
        self.is_casting = asyncio.Lock()
        self.has_left = asyncio.Event()
        self.comes_again = False

    # Casting.

    def payload(self) -> bytes:
        self.cast_count += 1
        if self.options.hooks:
            return f"k{self.cast_count % 97}={self.group.id}/{self.cast_count:08d}".encode()
        head = f"{self.group.id}/{self.cast_count}".encode()
        return head.ljust(self.options.payload_bytes, b".")

    async def cast(self, count: int) -> None:
        for _ in range(count):
            payload = self.payload()
            try:
                await self.group.cast(payload)
            except unisono.Shed:
                self.shed += 1
                self.cast_count -= 1
                await asyncio.sleep(TURN_S)
            except unisono.Closed:
                return
            except (unisono.NotPrimary, unisono.Misuse) as error:
                self.refused += 1
                self.cast_count -= 1
                say("not primary" if isinstance(error, unisono.NotPrimary) else "misuse", text=str(error))
                await asyncio.sleep(5 * TURN_S)

    async def cast_at_rate(self) -> None:
        """So many a second; what could not be cast in time is made up for, but not more than a quarter of a second of it."""
        owed, last = 0.0, monotonic()
        while not self.has_left.is_set():
            await asyncio.sleep(TURN_S)
            now = monotonic()
            owed = min(owed + (now - last) * self.options.rate, max(1.0, self.options.rate / 4))
            last = now
            count = int(owed)
            owed -= count
            if count:
                async with self.is_casting:
                    await self.cast(count)

    # Looking on.

    async def watch(self) -> None:
        async for event in self.group:
            match event:
                case unisono.Delivery(sender, payload, index):
                    self.delivered += 1
                    self.view_count += 1
                    key = f"{sender}/{index}/".encode() + payload
                    self.view_sum ^= int.from_bytes(blake2b(key, digest_size=8).digest(), "little")
                    if self.options.hooks:
                        self.map.apply(payload)
                    if self.options.delay_s:
                        await asyncio.sleep(self.options.delay_s)
                case unisono.View():
                    self.view_count = self.view_sum = 0
                    self.tell_view(event)
                case unisono.Refused(by, reason):
                    say("refused", by=str(by), reason=reason)
                case unisono.Stalled(sentences):
                    say("stalled", sentences=sentences)
                case _:
                    say(type(event).__name__.lower())
            if monotonic() - self.said_at > SAY_EVERY_S:
                self.tell_progress()
        self.tell_progress()

    async def tell_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(SAY_EVERY_S)
            self.tell_progress()

    def tell_view(self, view: unisono.View) -> None:
        say(
            "view",
            id=str(view.id),
            number=view.number,
            members=[one.address for one in view.members],
            order=view.order,
            primary=view.is_primary,
            left={one.address: str(why) for one, why in view.left.items()},
        )

    def tell_progress(self) -> None:
        self.said_at = monotonic()
        say("progress", **self.progress())

    def progress(self) -> dict[str, object]:
        view = str(self.group.view.id)
        place = [view, self.view_count, f"{self.view_sum:016x}", self.map.digest if self.options.hooks else ""]
        return {"delivered": self.delivered, "cast": self.cast_count, "shed": self.shed, "place": place}

    def status(self) -> dict[str, object]:
        running = self.group.running
        counters, drops = running.member.counters, running.count_drops()
        return {
            **self.group.status(),
            **self.progress(),
            "dropped": drops,
            "seal": {reason: n for reason, n in running.driver.seal.refused.items() if n},
            "port": running.driver.counters(),
            "streams": counters.streams,
            "kept_bytes": counters.kept_bytes,
            "gaps": drops.get("trace: rows not written", 0),
            "rss_kib": rss_kib(),
            "files": len(os.listdir("/proc/self/fd")),
            "tasks": len(asyncio.all_tasks()),
            "explain": self.group.explain(),
        }

    # The remote control.

    async def obey(self) -> None:
        reader = asyncio.StreamReader(limit=1 << 20)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            await self.do(json.loads(line))
        self.has_left.set()

    async def do(self, order: dict[str, Any]) -> None:
        match order:
            case {"do": "cast", "count": count}:
                self.options.payload_bytes = order.get("payload_bytes", self.options.payload_bytes)
                self.later(self.cast(count))
            case {"do": "rate", "rate": rate}:
                self.options.rate = rate
            case {"do": "speed", "delay_s": delay_s}:
                self.options.delay_s = delay_s
            case {"do": "switch", "order": name}:
                self.later(self.group.switch(name))
            case {"do": "status"}:
                say("status", **self.status())
            case {"do": "rest"}:
                self.options.rate = 0.0
                self.later(self.come_to_rest())
            case {"do": "again"}:
                self.comes_again = True
                self.has_left.set()
            case {"do": "leave"}:
                self.has_left.set()

    def later(self, work: Any) -> None:
        async def done() -> None:
            async with self.is_casting:
                await work

        task = asyncio.create_task(done())
        _WORK.add(task)
        task.add_done_callback(_WORK.discard)

    async def come_to_rest(self) -> None:
        """Say when everything that was cast here has been delivered here."""
        say("rest")

    async def run(self) -> None:
        obeying: asyncio.Task[None] | None = None
        while not self.has_left.is_set():
            async with self.join() as group:
                self.group = group
                say("joined", id=str(group.id))
                obeying = obeying or asyncio.create_task(self.obey())
                work = (self.watch(), self.cast_at_rate(), self.tell_now_and_then(), self.has_left.wait())
                watching, *others = [asyncio.create_task(one) for one in work]
                done, _ = await asyncio.wait([obeying, watching, *others], return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # an error ends the process, with its reason
                for task in others:
                    task.cancel()
            await watching  # it ends with the group
            say("left", delivered=self.delivered, cast=self.cast_count)
            if self.comes_again:
                self.comes_again = False
                self.has_left.clear()
        if obeying is not None:
            obeying.cancel()

    def join(self) -> unisono.Joining:
        options = self.options
        wishes = dict(options.wishes)
        if options.hooks:
            wishes |= {"snapshot": self.map.snapshot, "restore": self.map.restore, "merge": self.map.merge}
        if options.silence_s is not None:
            silence_ns = int(options.silence_s * 1e9)
            detector = DetectorSettings(suspicion_ns_min=silence_ns, suspicion_ns_max=silence_ns)
            wishes["settings"] = unisono.Settings(detector=detector)
        return unisono.join(wishes.pop("group", "stage"), **wishes)


_WORK: set[asyncio.Task[None]] = set()


def rss_kib() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def main() -> None:
    given = json.loads(sys.argv[1])
    own = {name.name for name in fields(Options)}
    options = Options(**{name: value for name, value in given.items() if name in own})
    options.wishes = {name: value for name, value in given.items() if name not in own}
    if options.file_bytes_max is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.file_bytes_max, options.file_bytes_max))
    if options.mutant is not None:
        module, _, name = options.mutant.partition(":")
        getattr(import_module(module), name)()

    async def go() -> None:
        await Actor(options).run()

    try:
        asyncio.run(go())
    except unisono.UnisonoError as error:
        say("error", text=str(error))
        sys.exit(2)


if __name__ == "__main__":
    main()
