"""One process of a chaos run: an application of the public interface that writes down everything it is shown.

    python -m tests.chaos.member '{"log": "a-1.jsonl", "name": "a", "life": 1, "join": {…}, …}'

Its first argument is a JSON object, `Options`. Each line of standard input is a JSON object with `do`: rate, burst, speed, switch,
probe, rest, leave. Its log has a JSON object a line, each written with one system call before the program goes on, so that a
killed process loses nothing that it has seen. Every line has `t` (seconds of the monotonic clock, which all processes of a
machine share) and `is`:

| is | when | fields |
|---|---|---|
| start | first of all | name, life, hooks |
| joined | `join` has returned | id |
| cast | before `cast` is called | m (the message), safe, crc, probe |
| accepted | `cast` has returned | m, sender, index |
| refused_cast | `cast` has raised | m, error, text |
| receipt | one stage of a receipt is decided | m, stage, outcome (yes, uncertain, error), known, text |
| delivery | a message was taken from the stream | m, sender, index, crc |
| transition | likewise | view, together, primary |
| view | likewise | id, number, members, joined, left, together, primary, order |
| replaced, refused, evicted, stalled, … | likewise, any other event | text |
| snapshot, restore, merge | a state hook was called | digest, state (after the call), parts (of a merge: digests) |
| rest | no cast is under way and every receipt is decided | |
| end | the runner has asked for the last state | state |
| switched, error, left | what the names say | order; error, text |
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from time import monotonic
from typing import Any
from zlib import crc32

import unisono

TURN_S = 0.02
UNCERTAIN: type[BaseException] | None = getattr(unisono, "Uncertain", None)


@dataclass
class Options:
    """What the runner asks of a process."""

    log: str
    name: str
    life: int
    join: dict[str, Any]
    """Options of `unisono.join`."""
    hooks: str = "none"
    """none; restore: snapshot and restore; merge: all three."""
    rate: float = 30.0
    """Casts a second."""
    payload_bytes: int = 60
    safe_share: float = 0.0
    """Fraction of the casts with `safe=True`; the others leave it to the group."""


class Log:
    """A file that loses nothing when its process is killed."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(self, kind: str, **words: object) -> None:
        line = json.dumps({"t": round(monotonic(), 6), "is": kind, **words}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")


class State:
    """The replicated state: the messages that were applied, in their order."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.applied: list[str] = []

    def snapshot(self) -> bytes:
        data = encode(self.applied)
        self._log.say("snapshot", digest=digest(data), state=self.applied)
        return data

    def restore(self, data: bytes) -> None:
        self.applied = json.loads(data)
        self._log.say("restore", digest=digest(data), state=self.applied)

    def merge(self, parts: Sequence[bytes]) -> None:
        """The first part's messages, then what each further part has besides."""
        merged: dict[str, None] = {}
        for part in parts:
            merged.update(dict.fromkeys(json.loads(part)))
        self.applied = list(merged)
        self._log.say(
            "merge", digest=digest(encode(self.applied)), state=self.applied, parts=[digest(p) for p in parts]
        )


def encode(applied: list[str]) -> bytes:
    return json.dumps(applied, separators=(",", ":")).encode()


def digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


class Program:
    """The application."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.log = Log(options.log)
        self.state = State(self.log)
        self.group: unisono.Group
        self.number = 0  # of the next message
        self.delay_s = 0.0
        self.rate = options.rate
        self.casting = 0
        self.waiting = 0  # receipts with an undecided stage
        self.has_joined = self.is_resting = False
        self.has_left = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.log.say("error", error=type(error).__name__, text=str(error))
            self.has_left.set()

    # Casting.

    async def cast(self, probe: bool = False) -> bool:
        """Cast one message, and follow its receipt. False: the group does not take any."""
        self.number += 1
        message = f"{self.options.name}{self.options.life}:{self.number}"
        payload = f"{message}|".encode().ljust(self.options.payload_bytes, b".")
        share = self.options.safe_share
        safe = True if share and (self.number * share) % 1 < share else None
        is_safe = bool(safe or self.options.join.get("safe"))
        self.log.say("cast", m=message, safe=is_safe, crc=crc32(payload), probe=probe)
        self.casting += 1
        try:
            receipt = await self.group.cast(payload, safe=safe)
        except unisono.UnisonoError as error:
            self.log.say("refused_cast", m=message, error=type(error).__name__, text=str(error))
            return False
        finally:
            self.casting -= 1
        key = receipt.key
        self.log.say("accepted", m=message, sender=str(key.origin), index=key.index)
        for stage in ("delivered", "applied", "stable"):
            if hasattr(receipt, stage):
                self.waiting += 1
                self.start(self.follow(message, receipt, stage))
        return True

    async def follow(self, message: str, receipt: unisono.Receipt, stage: str) -> None:
        try:
            await getattr(receipt, stage)()
        except unisono.UnisonoError as error:
            is_uncertain = UNCERTAIN is not None and isinstance(error, UNCERTAIN)
            known = [str(one) for one in getattr(error, "known", ())]
            outcome = "uncertain" if is_uncertain else "error"
            self.log.say("receipt", m=message, stage=stage, outcome=outcome, known=known, text=str(error))
        else:
            self.log.say("receipt", m=message, stage=stage, outcome="yes")
        finally:
            self.waiting -= 1

    async def cast_at_rate(self) -> None:
        """Cast at the rate wanted; at most a quarter of a second of missed casts is made up for."""
        owed, last = 0.0, monotonic()
        while True:
            await asyncio.sleep(TURN_S)
            now = monotonic()
            owed = min(owed + (now - last) * self.rate, max(1.0, self.rate / 4))
            last = now
            while owed >= 1 and not self.is_resting:
                owed -= 1
                if not await self.cast():
                    await asyncio.sleep(5 * TURN_S)

    async def cast_probes(self, count: int) -> None:
        for _ in range(count):
            await self.cast(probe=True)

    async def cast_burst(self, count: int) -> None:
        for _ in range(count):
            if not await self.cast():
                return

    async def rest(self) -> None:
        """Cast nothing more, and say when all receipts are decided."""
        self.is_resting = True
        while self.casting or self.waiting:
            await asyncio.sleep(TURN_S)
        self.log.say("rest")

    # Reading.

    async def read(self) -> None:
        async for event in self.group:
            self.take(event)
            if self.delay_s:
                await asyncio.sleep(self.delay_s)

    def take(self, event: unisono.Event) -> None:
        if isinstance(event, unisono.Delivery):
            message = event.payload.partition(b"|")[0].decode()
            self.state.applied.append(message)
            crc = crc32(event.payload)
            self.log.say("delivery", m=message, sender=str(event.sender), index=event.index, crc=crc)
        elif isinstance(event, unisono.Transition):
            together = names(event.together)
            self.log.say("transition", view=str(event.view), together=together, primary=event.is_primary)
        elif isinstance(event, unisono.View):
            self.log.say(
                "view", id=str(event.id), number=event.number, members=names(event.members),
                joined={str(one): str(why) for one, why in event.joined.items()},
                left={str(one): str(why) for one, why in event.left.items()},
                together=names(event.together), primary=event.is_primary, order=event.order,
            )  # fmt: skip
        else:
            self.log.say(type(event).__name__.lower(), text=str(event))

    # The remote control.

    async def obey(self) -> None:
        reader = asyncio.StreamReader(limit=1 << 20)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            self.do(json.loads(line))
        self.has_left.set()  # the runner is gone

    def do(self, order: dict[str, Any]) -> None:
        if not self.has_joined and order["do"] in ("burst", "switch"):
            return  # there is no group yet
        match order:
            case {"do": "rate", "rate": rate}:
                self.rate = rate
            case {"do": "burst", "count": count}:
                self.start(self.cast_burst(count))
            case {"do": "speed", "delay_s": delay_s}:
                self.delay_s = delay_s
            case {"do": "switch", "order": name}:
                self.start(self.switch(name))
            case {"do": "probe", "count": count}:
                self.start(self.cast_probes(count))
            case {"do": "rest"}:
                self.start(self.rest())
            case {"do": "end"}:
                self.log.say("end", state=self.state.applied)
            case {"do": "leave"}:
                self.has_left.set()

    async def switch(self, order: str) -> None:
        try:
            await self.group.switch(order, timeout=30)
        except unisono.UnisonoError as error:
            self.log.say("switch_failed", order=order, text=str(error))
        else:
            self.log.say("switched", order=order)

    async def run(self) -> None:
        options = self.options
        self.log.say("start", name=options.name, life=options.life, hooks=options.hooks)
        wishes = dict(options.join)
        if options.hooks != "none":
            wishes |= {"snapshot": self.state.snapshot, "restore": self.state.restore}
        if options.hooks == "merge":
            wishes["merge"] = self.state.merge
        obeying = asyncio.create_task(self.obey())
        joining = asyncio.ensure_future(self._join(wishes))
        gone = asyncio.create_task(self.has_left.wait())
        await asyncio.wait([joining, gone], return_when=asyncio.FIRST_COMPLETED)
        if not joining.done():
            joining.cancel()
            self.log.say("left", text="it was never in a view")
            return
        self.group = group = joining.result()
        self.has_joined = True
        self.log.say("joined", id=str(group.id))
        reading = asyncio.create_task(self.read())
        casting = asyncio.create_task(self.cast_at_rate())
        await asyncio.wait([gone, reading, casting], return_when=asyncio.FIRST_COMPLETED)
        self.is_resting = True
        casting.cancel()
        try:
            await group.leave()
        except unisono.NotFlushed as error:
            self.log.say("not_flushed", text=str(error))
        await reading
        if casting.done() and not casting.cancelled():
            casting.result()
        obeying.cancel()
        self.log.say("left")

    async def _join(self, wishes: dict[str, Any]) -> unisono.Group:
        return await unisono.join("chaos", **wishes)


def names(members: Sequence[unisono.MemberId]) -> list[str]:
    return [str(one) for one in members]


async def main(program: Program) -> None:
    try:
        await program.run()
    except Exception as error:
        program.log.say("error", error=type(error).__name__, text=str(error))
        raise


if __name__ == "__main__":
    asyncio.run(main(Program(Options(**json.loads(sys.argv[1])))))
