"""Clients outside of a group, at both ends: the desk beside a member, and the client itself on an event loop.

At a member, `join(…, answer=hook)` serves them: a request reaches the hook at its place in the stream, at every member alike, and
is not shown among the events. What the hook returns is this member's answer; None: it has nothing to say.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from unisono.core.errors import Misuse, UnisonoError
from unisono.core.membership import DetectorSettings
from unisono.core.types import Batch, Key, MemberId
from unisono.core.types import View as CoreView
from unisono.environment import Environment, Port
from unisono.runtime.addresses import Endpoint, outer_host, resolve, resolve_all, split
from unisono.runtime.checksum import Checksum
from unisono.runtime.events import Delivery, deliveries
from unisono.runtime.forks import disown_in_children, sentence
from unisono.runtime.hub import find_hub
from unisono.runtime.machine import find_or_this_machine
from unisono.runtime.pace import check_seconds
from unisono.runtime.seal import Seal, find_key
from unisono.services.client import Answered, Client, ClientSettings, Failed
from unisono.services.client_desk import ClientDesk
from unisono.services.client_messages import TAG, Wanted

if TYPE_CHECKING:
    from unisono.runtime.running import RunningMember

Answer = Callable[[MemberId, bytes], bytes | None]

PAUSE_NS = DetectorSettings().pause_ns
"""A client that has sent nothing for this long takes a new salt, as members do."""


class Unanswered(UnisonoError):
    """A client's request got no answer; whether the group has served it is not known."""


class Desk:
    """A client desk between the driver and the stream of one member."""

    def __init__(self, member: RunningMember, hook: Answer) -> None:
        self._member = member
        self._hook = hook
        secret = member.member.tickets.secret_for("clients")
        self._desk = ClientDesk(_Caster(member), member.name, secret=secret)
        self.dropped = self._desk.dropped

    def receive(
        self, datagrams: Sequence[bytes | memoryview], senders: Sequence[MemberId | None]
    ) -> tuple[list[bytes | memoryview], list[MemberId | None]]:
        """Take what clients sent; what is left is for the member, with who has sealed it."""
        rest = [pair for pair in zip(datagrams, senders, strict=True) if not self._desk.takes(pair[0])]
        return [datagram for datagram, _ in rest], [sender for _, sender in rest]

    def drain(self) -> list[tuple[tuple[str, ...], bytes]]:
        return [((address,), frame) for address, frame in self._desk.drain()]

    def deliveries(self, batch: Batch, members: tuple[MemberId, ...]) -> Iterator[Delivery]:
        """The messages of a batch for the application. What the hook raises comes out here, and what lies behind stays."""
        return filter(self._is_for_application, deliveries(batch, members))

    def _is_for_application(self, delivery: Delivery) -> bool:
        """Or else it is a client's request, which is answered now that its turn has come. Only what can be read as one is."""
        if not delivery.payload.startswith(TAG):
            return True
        self._member.driver.wake()
        errand = self._desk.open(delivery.payload)
        if errand is None:
            return True
        if errand.is_new:
            try:
                answer = self._hook(errand.client, errand.payload)
            except BaseException:
                self._desk.fail(errand)
                raise
            self._desk.answer(errand, answer)
        return False

    def snapshot(self) -> bytes:
        return self._desk.snapshot()

    def restore(self, state: bytes) -> None:
        self._desk.restore(state)


class _Caster:
    """The member as a desk sees it. Its casts count among the application's."""

    def __init__(self, member: RunningMember) -> None:
        self._member = member
        self.id = member.id

    @property
    def view(self) -> CoreView | None:
        return self._member.core_view

    def cast(self, payload: bytes, /) -> Key | None:
        casting = self._member.casting
        return None if casting.is_leaving else casting.cast_now(payload)


def client(
    group: str,
    *,
    contacts: Sequence[str],
    listen: str | None = None,
    key: str | bytes | os.PathLike[str] | None = None,
    insecure: bool = False,
    timeout: float = 10.0,
) -> Outside:
    """A client of a group that it is no member of: `async with unisono.client("shop", contacts=[…]) as client`.

    `contacts` are addresses of members; any of them will do, and a silent one is passed over. `listen` is where answers come to
    (without it: any free port of the address from which the first contact is reached). `timeout` is how long a request may take.
    """
    if isinstance(contacts, str) or not contacts:
        raise Misuse("a client needs contacts: a list of members' addresses.")
    for text, what in ((listen, "listen"), *((contact, "the contact") for contact in contacts)):
        if text is not None:
            split(text, what)
    check_seconds(timeout, "timeout")
    return Outside(group, tuple(contacts), listen, key, insecure, timeout)


class Outside:
    """A client on an event loop. Enter it with `async with`, or await it and call `close`."""

    def __init__(
        self,
        group: str,
        contacts: tuple[str, ...],
        listen: str | None,
        key: str | bytes | os.PathLike[str] | None,
        insecure: bool,
        timeout: float,
    ) -> None:
        self._group, self._contacts, self._listen = group, contacts, listen
        self._key, self._insecure, self._timeout = key, insecure, timeout
        self._loop: asyncio.AbstractEventLoop
        self._port: Port | None = None
        self._client: Client
        self._seal: Seal | Checksum
        self._environment: Environment
        self._turned_at = 0  # by the clock
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[int, asyncio.Future[Answered]] = {}
        self._room: list[asyncio.Future[None]] = []
        self._process = os.getpid()
        self._is_disowned = False
        disown_in_children(self)

    def disown(self) -> None:
        """In a forked child: the port and the requests under way are the parent's."""
        self._is_disowned = True
        self._port = None
        self._waiting, self._room = {}, []

    @property
    def id(self) -> MemberId:
        return self._client.id

    def __await__(self) -> Generator[Any, None, Outside]:
        return self._open().__await__()

    async def __aenter__(self) -> Outside:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def _open(self) -> Outside:
        loop = self._loop = asyncio.get_running_loop()
        environment = self._environment = find_or_this_machine()
        ports = environment.ports

        async def numeric(text: str, what: str, family: int = 0) -> Endpoint:
            if ports is not None:
                return Endpoint(*split(text, what))
            return await loop.run_in_executor(None, resolve, text, what, family)

        if ports is not None:
            contacts = [await numeric(contact, "the contact") for contact in self._contacts]
        else:
            contacts = await loop.run_in_executor(None, resolve_all, self._contacts, "the contact")
        listen = await self._find_listen(contacts, numeric)
        key = find_key(self._key)
        outside = [one for one in (listen, *contacts) if not one.is_loopback]
        if key is None and outside and not self._insecure and ports is None:
            raise Misuse(
                f"{outside[0]} can be reached from outside, and there is no key: give key (`unisono keygen` makes one), "
                "or insecure=True if everyone on the network may read and ask."
            )
        settings = ClientSettings(wait_ns=int(self._timeout * 1e9))
        port: Port = find_hub(loop, listen, ()) if ports is None else ports.port(listen, ())
        identity = MemberId(str(port.endpoint), environment.wall_clock())
        self._client = Client(identity, self._group, [str(one) for one in contacts], settings)
        self._seal = Checksum(self._group) if key is None else Seal(self._group, identity, key)
        try:
            port.open(self._group, self._receive)
        except Misuse:
            port.release()
            raise
        self._port, self._turned_at = port, environment.clock()
        return self

    async def _find_listen(self, contacts: Sequence[Endpoint], numeric: Any) -> Endpoint:
        """Where answers come to: as told, or at a free port of the address from which the first contact is reached."""
        if self._listen is not None:
            found: Endpoint = await numeric(self._listen, "listen", int(contacts[0].family))
            return found
        if self._environment.ports is not None:
            raise Misuse("in virtual time this machine's addresses mean nothing: give the client listen.")
        return Endpoint(outer_host(contacts[0], contacts), 0)

    async def request(self, payload: bytes, wanted: str = "contact") -> bytes | None:
        """Ask the group, and wait for one answer: of the `contact`, or of `any` member that has something to say."""
        if wanted not in ("contact", "any"):
            raise Misuse(f"wanted = {wanted!r} is impossible: choose contact or any; `request_all` asks everyone.")
        answered = await self._ask(payload, Wanted.CONTACT if wanted == "contact" else Wanted.ANY)
        return answered.answers[0][1]

    async def request_all(self, payload: bytes) -> dict[MemberId, bytes | None]:
        """Ask the group, and wait for every member's answer; for those that came in time, if not all did."""
        return dict((await self._ask(payload, Wanted.ALL)).answers)

    async def _ask(self, payload: bytes, wanted: Wanted) -> Answered:
        number = None
        while number is None:
            if self._is_disowned:
                raise Misuse(sentence(f"this client of {self._group!r} was opened", self._process))
            if self._port is None:
                raise Misuse("this client is closed, or was never opened: use `async with unisono.client(…)`.")
            number = self._client.request(payload, self._environment.clock(), wanted)
            if number is None:
                waiter = self._loop.create_future()
                self._room.append(waiter)
                await waiter
        future: asyncio.Future[Answered] = self._loop.create_future()
        self._waiting[number] = future
        self._turn()
        try:
            return await future
        finally:
            self._waiting.pop(number, None)

    def close(self) -> None:
        if self._port is not None:
            self._port.close(self._group)
            self._port = None
            if self._timer is not None:
                self._timer.cancel()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(Unanswered("the client was closed before an answer came."))
            self._wake_askers()

    def _receive(self, datagrams: list[memoryview]) -> None:
        open_one = self._seal.open
        self._client.receive(
            [frame for one in datagrams if (frame := open_one(one)) is not None], self._environment.clock()
        )
        self._turn()

    def _turn(self) -> None:
        if self._port is None:
            return
        now = self._environment.clock()
        if now - self._turned_at > PAUSE_NS:
            self._seal.resalt()  # while it stood still, the process may have been copied
        self._turned_at = now
        effects = self._client.drain(now)
        close = self._seal.close
        self._port.send([((address,), close(frame)) for address, frame in effects.datagrams])
        for outcome in effects.events:
            self._tell(outcome)
        if effects.events:
            self._wake_askers()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if effects.deadline is not None:
            self._timer = self._loop.call_later(max(0, effects.deadline - now) / 1e9, self._turn)

    def _wake_askers(self) -> None:
        """There is room for another request, or there never will be."""
        room, self._room = self._room, []
        for waiter in room:
            if not waiter.done():
                waiter.set_result(None)

    def _tell(self, outcome: Answered | Failed) -> None:
        future = self._waiting.get(outcome.number)
        if future is None or future.done():
            return
        if isinstance(outcome, Answered):
            future.set_result(outcome)
        else:
            future.set_exception(
                Unanswered(f"no answer from {self._group!r} within {self._timeout:g} s: {outcome.reason}.")
            )
