"""Live members on real sockets in this process, a tap on what they send, and an attacker with a socket of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import wraps
from itertools import count
from typing import Any, NamedTuple

import unisono
from tests.runtime.ports import free_addresses
from unisono.core.membership.tickets import PAIR
from unisono.core.types import MemberId
from unisono.core.wire.control import ControlCodec
from unisono.core.wire.envelope import HEAD
from unisono.core.wire.frame import CONTROL, HEAD_BYTES, STREAM, VERSION, Frames, group_tag
from unisono.runtime.addresses import sockaddr_of
from unisono.runtime.checksum import Checksum
from unisono.runtime.udp import Datagram

GROUP = "besieged"
PACE = 0.3
DEADLINE_S = 60
DATAGRAM_BYTES_MAX = 65_507


class Sent(NamedTuple):
    """A datagram that left a member's socket."""

    sender: MemberId
    to: tuple[str, ...]
    data: bytes


Change = Callable[[Sent], Iterable[tuple[tuple[str, ...], bytes]]]


class Besieged:
    """Members of one group whose datagrams are seen by the attacker, who also sends some."""

    def __init__(self, groups: list[unisono.Group]) -> None:
        self.groups = groups
        self.seen: list[Sent] = []
        self.change: Change | None = None
        """Makes of each datagram that leaves what leaves instead."""
        self.delivered: list[list[bytes]] = [[] for _ in groups]
        self.views: list[unisono.View | None] = [None for _ in groups]
        self.history: list[list[unisono.View]] = [[] for _ in groups]
        self.errors: list[Exception] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self._tasks = [asyncio.create_task(self._watch(number)) for number in range(len(groups))]
        for group in groups:
            self._tap(group)

    def _tap(self, group: unisono.Group) -> None:
        port = group.running.driver._port
        send = port.send

        def tapped(datagrams: Sequence[tuple[tuple[str, ...], Datagram]]) -> None:
            out: list[tuple[tuple[str, ...], Datagram]] = []
            for to, data in datagrams:
                sent = Sent(group.id, to, data if isinstance(data, bytes) else b"".join(data))
                self.seen.append(sent)
                out += [(to, data)] if self.change is None else self.change(sent)
            send(out)

        port.send = tapped  # type: ignore[method-assign]

    async def _watch(self, number: int) -> None:
        try:
            async for event in self.groups[number]:
                if isinstance(event, unisono.Delivery):
                    self.delivered[number].append(event.payload)
                elif isinstance(event, unisono.View):
                    self.views[number] = event
                    self.history[number].append(event)
        except Exception as error:  # told by `until`
            self.errors.append(error)

    def replace(self, number: int, group: unisono.Group) -> None:
        """A new life of a member that has left."""
        self.groups[number] = group
        self._tasks.append(asyncio.create_task(self._watch(number)))
        self._tap(group)

    def close(self) -> None:
        self._socket.close()
        for task in self._tasks:
            task.cancel()

    # Doing.

    def hit(self, victim: int, *datagrams: bytes) -> None:
        """Send datagrams to one member from a stranger's socket."""
        address = sockaddr_of(self.groups[victim].id.address)
        for datagram in datagrams:
            with suppress(BlockingIOError):
                self._socket.sendto(datagram, address)

    async def storm(self, victim: int, datagrams: Iterable[bytes], burst: int = 32) -> None:
        """Send many, no faster than the victim takes them: what the kernel drops proves nothing."""
        waiting: list[bytes] = []
        for datagram in datagrams:
            waiting.append(datagram)
            if len(waiting) == burst:
                await self._push(victim, waiting)
                waiting = []
        await self._push(victim, waiting)

    async def _push(self, victim: int, datagrams: list[bytes]) -> None:
        before = self.received(victim)
        self.hit(victim, *datagrams)
        await self.until(lambda: self.received(victim) >= before + len(datagrams), "the victim takes what was sent")

    async def cast(self, count: int, payload_bytes: int = 40) -> None:
        """Every member casts."""
        for number, group in enumerate(self.groups):
            for i in range(count):
                await group.cast(f"{number}/{i}".encode().ljust(payload_bytes, b"."))

    async def cast_and_agree(self, count: int = 20) -> None:
        """The group still works: what is cast now arrives everywhere, in one order."""
        marks = [f"mark {number} of {len(self.seen)} {count}".encode() for number in range(len(self.groups))]
        for _ in range(count):
            for group, mark in zip(self.groups, marks, strict=True):
                await group.cast(mark)
        await self.until(
            lambda: all(delivered.count(mark) >= count for delivered in self.delivered for mark in marks), "all agree"
        )
        tails = [[one for one in delivered if one in marks] for delivered in self.delivered]
        assert all(tail == tails[0] for tail in tails)

    async def agree_in_the_end(self) -> None:
        """Without a key a stranger can disturb the group for a while; then it must agree again, in a view that lasts."""
        for attempt in count():
            await self.one_view()
            view, mark = self.views[0], f"attempt {attempt}".encode()
            for group in self.groups:
                await group.cast(mark)

            def has_all(mark: bytes = mark) -> bool:
                return all(delivered.count(mark) == len(self.groups) for delivered in self.delivered)

            def has_moved(view: unisono.View | None = view) -> bool:
                return any(one is None or view is None or one.id != view.id for one in self.views)

            await self.until(lambda: has_all() or has_moved(), "all agree, or the view changes")
            if has_all():
                return

    # Looking.

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not condition():
                    self.check_alive()
                    await asyncio.sleep(0.002)
        except TimeoutError:
            said = [(group.status(), group.explain()) for group in self.groups]
            raise AssertionError(f"{what}: not after {DEADLINE_S} s. {said}") from None

    def check_alive(self) -> None:
        for error in self.errors:
            raise AssertionError("a member did not survive") from error

    async def one_view(self) -> None:
        size = len(self.groups)
        await self.until(
            lambda: (
                len({view and view.id for view in self.views}) == 1
                and all(view is not None and len(view.members) == size for view in self.views)
            ),
            "one view again",
        )

    def received(self, victim: int) -> int:
        return self.groups[victim].running.driver.counters()["datagrams received"]

    def refused(self, victim: int) -> dict[str, int]:
        """Everything that a member has dropped, by reason, from the seal down."""
        driver = self.groups[victim].running.driver
        seal = {f"{driver.seal.name}: {reason}": count for reason, count in driver.seal.refused.items()}
        return {reason: count for reason, count in (dict(driver.member.counters.dropped) | seal).items() if count}

    def more(self, victim: int, before: dict[str, int]) -> dict[str, int]:
        """What was refused since then, by reason."""
        now = self.refused(victim)
        return {reason: count - before.get(reason, 0) for reason, count in now.items() if count > before.get(reason, 0)}

    def rank(self, number: int) -> int:
        """The rank of a member in the view: not its number here."""
        view = self.views[0]
        assert view is not None
        return view.members.index(self.groups[number].id)

    # Forging, for groups without a key.

    def control(self, as_member: MemberId, message: tuple[object, ...], victim: int = 0) -> bytes:
        """A control message in a member's name, or in a stranger's, with the ticket that the victim would give it."""
        codec = ControlCodec(self.groups[victim].running.member.settings.config)
        return self.proven(as_member, codec.encode(message), victim)

    def proven(self, as_member: MemberId, message: bytes, victim: int = 0) -> bytes:
        member = self.groups[victim].running.member
        own = {group.id.address: group.running.member.tickets for group in self.groups}
        given = own[as_member.address].ticket(member.id.address) if as_member.address in own else 1
        pair = PAIR.pack(given, member.tickets.ticket(as_member.address))
        return with_checksum(Frames(GROUP, as_member).control(pair + message))

    def stream(self, rank: int, body: bytes = b"", tail: bytes = b"", **lies: int) -> bytes:
        """A datagram of the current view, from the member of that rank, with a counter that is fresh."""
        self._counter = getattr(self, "_counter", 1_000_000) + 1
        member = self.groups[0].running.member
        values = {
            "version": 1, "flags": 0, "sender": rank, "to": 0xFFFF, "view": member._tag, "counter": self._counter, "tries": 0,
            "naks": 0, "rows": 0, "body_bytes": len(body), "room": 2**32 - 1, "cast_end": 0, "send_end": 0, **lies,
        }  # fmt: skip
        return with_checksum(head(STREAM) + HEAD.pack(*values.values()) + tail + body)


def with_checksum(frame: bytes) -> bytes:
    """An attacker knows how to make one."""
    return Checksum(GROUP).close(frame)


def head(kind: int, group: str = GROUP, version: int = VERSION) -> bytes:
    return bytes((version, kind)) + group_tag(group).to_bytes(4, "little")


def is_stream(datagram: bytes) -> bool:
    return len(datagram) > HEAD_BYTES and datagram[1] == STREAM


def is_control(datagram: bytes) -> bool:
    return len(datagram) > HEAD_BYTES and datagram[1] == CONTROL


async def leave(group: unisono.Group) -> None:
    """Leave, whoever may lack the last messages: a member that was stopped does not acknowledge them."""
    with suppress(unisono.NotFlushed):
        await group.leave()


@asynccontextmanager
async def besieged(size: int = 3, addresses: Sequence[str] = (), **wishes: Any) -> AsyncIterator[Besieged]:
    addresses = addresses or free_addresses(size)
    wishes = {"pace": PACE, "timeout": DEADLINE_S, "min_members": size} | wishes
    async with AsyncExitStack() as stack:
        groups = await asyncio.gather(
            *(unisono.join(GROUP, listen=address, peers=addresses, **wishes) for address in addresses)
        )
        for group in groups:
            stack.push_async_callback(leave, group)
        siege = Besieged(list(groups))
        stack.callback(siege.close)
        await siege.one_view()
        yield siege


def live(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test on a real event loop, with a limit of time."""

    @wraps(test)
    def wrapper(*arguments: Any, **fixtures: Any) -> None:
        async def main() -> None:
            async with asyncio.timeout(3 * DEADLINE_S):
                await test(*arguments, **fixtures)

        asyncio.run(main())

    return wrapper
