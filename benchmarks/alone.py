"""What a message alone costs: Python calls and CPU time, by role.

    ./dev bench alone [--messages 300] [--order sequencer] [--json]

Three members in one process, on real sockets on loopback: one casts, one numbers the message, one only delivers it. The next
message is cast when all is quiet again. A role's cost runs from the cast, or from the datagram that wakes the member, until its
application has the message; for the caster, until its datagram has left. What is done afterwards (acknowledgements, timers)
is not in it.

Each member joins in a context of its own (`contextvars`), which the event loop hands on to everything that this member does.
So the roles are told apart without a hook in the product.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from asyncio.events import Handle
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from statistics import median
from time import thread_time_ns
from types import FrameType
from typing import Any, TypeVar

import unisono
from unisono.orders.registry import ORDERS

ResultT = TypeVar("ResultT")
ROLES = ("cast", "sequence", "deliver")
WARM_UP = 100
QUIET_S = 0.006
MEMBER: ContextVar[int | None] = ContextVar("member", default=None)
"""Which member the code that runs now belongs to."""


@dataclass
class Meter:
    """Counts and times what each role does while it is open for that role."""

    roles: dict[int, str] = field(default_factory=dict)  # by member, once there is a view
    is_open: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(ROLES, False))
    calls: Counter[str] = field(default_factory=Counter)
    spent_ns: Counter[str] = field(default_factory=Counter)
    names: Counter[tuple[str, str]] = field(default_factory=Counter)

    def role(self, member: int | None) -> str | None:
        """The role of a member, if it is still at work."""
        role = None if member is None else self.roles.get(member)
        return role if role is not None and self.is_open[role] else None

    def begin(self) -> None:
        self.is_open = dict.fromkeys(ROLES, True)
        self.spent_ns.clear()

    def end(self, role: str) -> None:
        self.is_open[role] = False

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """A function for `sys.setprofile`: one more call of unisono's, if the role is still at work."""
        role = self.role(MEMBER.get()) if event == "call" else None
        if role is not None:
            code = frame.f_code
            if "unisono" in code.co_filename and "benchmarks" not in code.co_filename:
                self.calls[role] += 1
                self.names[role, f"{code.co_filename.rpartition('unisono/')[2]}:{code.co_name}"] += 1

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Time every callback of the event loop, by the role in whose context it runs."""
        run: Callable[[Handle], None] = Handle._run
        meter = self

        def timed(handle: Handle) -> None:
            role = meter.role(handle._context.get(MEMBER))  # type: ignore[attr-defined]
            if role is None:
                return run(handle)
            start = thread_time_ns()
            run(handle)
            meter.spent_ns[role] += thread_time_ns() - start

        Handle._run = timed  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            Handle._run = run  # type: ignore[assignment, method-assign]


@dataclass
class Party:
    """One member, and the task that reads its events."""

    number: int
    group: unisono.Group
    meter: Meter
    delivered: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        async for event in self.group:
            if isinstance(event, unisono.Delivery):
                if role := self.meter.role(self.number):
                    self.meter.end(role)
                self.delivered.set()

    async def cast_one(self, payload: bytes) -> None:
        await self.group.cast(payload)
        self.meter.end("cast")


async def run_as(member: int, work: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run a coroutine in a context that says whose it is."""
    context = copy_context()
    context.run(MEMBER.set, member)
    return await asyncio.get_running_loop().create_task(work(), context=context)


async def measure(order: str, messages: int) -> dict[str, Any]:
    meter = Meter()
    parties: list[Party] = []
    readers: list[asyncio.Task[None]] = []
    for number in range(len(ROLES)):
        peers = [str(party.group.id.address) for party in parties]

        async def join(peers: list[str] = peers) -> unisono.Group:
            return await unisono.join(
                "alone", listen="127.0.0.1:0", peers=peers, order=order, min_members=len(peers) + 1
            )

        party = Party(number, await run_as(number, join), meter)
        parties.append(party)
        readers.append(asyncio.create_task(run_as(number, party.read)))
    # The member of rank 0, with the lowest address, numbers the messages.
    ranked = sorted(parties, key=lambda party: party.group.id)
    meter.roles = {party.number: role for party, role in zip(ranked, ("sequence", "cast", "deliver"), strict=True)}
    caster = ranked[1]

    async def one(payload: bytes) -> None:
        for party in parties:
            party.delivered.clear()
        meter.begin()
        await run_as(caster.number, lambda: caster.cast_one(payload))
        for party in parties:
            await party.delivered.wait()
        await asyncio.sleep(QUIET_S)

    payload = b"x" * 100
    for _ in range(WARM_UP):
        await one(payload)
    times: dict[str, list[int]] = {role: [] for role in ROLES}
    with meter.timing():
        for _ in range(messages):
            await one(payload)
            for role in ROLES:
                times[role].append(meter.spent_ns[role])
    calls: dict[str, list[int]] = {role: [] for role in ROLES}
    meter.names.clear()
    counted = min(messages, 50)
    sys.setprofile(meter.profile)
    for _ in range(counted):
        meter.calls.clear()
        await one(payload)
        for role in ROLES:
            calls[role].append(meter.calls[role])
    sys.setprofile(None)
    for reader in readers:
        reader.cancel()
    for party in parties:
        await party.group.leave()
    return {
        "order": order,
        "messages": messages,
        "calls": {role: int(median(calls[role])) for role in ROLES},
        "cpu_us": {role: round(median(times[role]) / 1e3, 1) for role in ROLES},
        "names": {
            role: {
                name: round(count / counted, 1)
                for (of, name), count in meter.names.most_common()
                if of == role and 2 * count > counted
            }
            for role in ROLES
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench alone", description="What a message alone costs, by role.")
    parser.add_argument("--messages", type=int, default=300, help="messages whose CPU time is measured")
    parser.add_argument("--order", choices=sorted(ORDERS), default="sequencer", help="the order of the group")
    parser.add_argument("--names", action="store_true", help="also list which functions are called for most messages")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    found = asyncio.run(measure(chosen.order, chosen.messages))
    if chosen.json:
        print(json.dumps(found))
        return 0
    print(f"{'role':10} {'Python calls':>12} {'CPU, µs':>9}   (medians of {chosen.messages} messages, {chosen.order})")
    for role in ROLES:
        print(f"{role:10} {found['calls'][role]:12} {found['cpu_us'][role]:9.1f}")
    print(f"{'all':10} {sum(found['calls'].values()):12} {sum(found['cpu_us'].values()):9.1f}")
    if chosen.names:
        for role in ROLES:
            print(f"\n{role}")
            for name, count in found["names"][role].items():
                print(f"  {count:6.1f}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
