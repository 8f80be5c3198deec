"""Asyncio in virtual time: the application's own code, tasks, timeouts and all, on a simulated network.

Nothing sleeps: when every task waits, the clock jumps to the next timer. Everything random comes from the seed, so a run that
fails once fails again. A test looks like this:

    @unisono.sim.test(seeds=50, loss=0.1)
    async def test_two_members_agree(network):
        async with (
            unisono.join("chat", listen="10.0.0.1:7400", peers=["10.0.0.2:7400"], min_members=2) as a,
            unisono.join("chat", listen="10.0.0.2:7400", peers=["10.0.0.1:7400"], min_members=2) as b,
        ):
            ...

`network` is the `Network` below: it can lose, cut, partition, pause and heal, crash a member, and run processes that can be killed.
"""

from __future__ import annotations

import asyncio
import inspect
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import Context, copy_context
from functools import wraps
from math import ceil, inf
from random import Random
from typing import Any, Protocol, TypeVar, TypeVarTuple

from unisono.core.errors import Misuse, UnisonoError
from unisono.core.types import MemberId
from unisono.core.wire import group_tag
from unisono.core.wire.frame import HEAD_BYTES
from unisono.environment import Address, Environment, Resident, within
from unisono.sim.group_network import DatagramNetwork
from unisono.sim.process import Crashed, Guarded, Process, ProcessLife, life_of

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
BEGIN_NS = 10**9
"""When the clock starts: incarnations are taken from it, and must be above 0."""
PASSES_MAX = 4_000
"""After this many iterations of the loop in a row without a wait, a task polls for what time has to bring: time goes on …"""
PASSES_MORE = 10
"""… and again after this many more, until there is a wait: there may be thousands of datagrams to come before there is room."""
PASSES_STUCK = 1_000_000
"""… and if no timer is set, after this many nothing can bring it. Programs that are only busy take fewer."""
LIMIT_S = 3_600.0
"""Default limit of virtual time: a member always has a timer, so a run that waits in vain would never end."""


class JoinedGroup(Protocol):
    """A group as tests have it from `unisono.join`."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> MemberId: ...


class Stuck(UnisonoError):
    """Every task waits, or asks without an end, and no timer is set: nothing can ever happen. Or it took longer than it may."""


class Residents:
    """The members that were started on a loop."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, MemberId], Resident] = {}
        self._open: list[Resident] = []  # in the order of their joining

    def welcome(self, member: Resident) -> None:
        """Keep a member; a process knows its own."""
        self._members[member.name, member.id] = member
        self._open.append(member)
        member.call_at_end(lambda: self._open.remove(member))
        life = life_of(None)
        if life is not None:
            life.members.append(member)

    def find(self, group: JoinedGroup) -> Resident:
        """The member behind a group of the application's, whether it has left or not."""
        return self._members[group.name, group.id]

    def is_open(self, member: Resident) -> bool:
        return member in self._open

    def explain(self) -> str:
        """What each member waits for."""
        return "".join(f" {member.id}: {' '.join(member.explain()) or 'nothing waits.'}" for member in self._open)


class _Selector(selectors.BaseSelector):
    """Has no files. Where a real one would wait, the clock jumps; where it would only look, time stands still, but not for ever."""

    def __init__(self, wait: Callable[[float | None], None], look: Callable[[int], bool]) -> None:
        self._wait = wait
        self._look = look  # with the number of looks since the last wait; whether time went on
        self._looks = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, -1, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self._looks = 0
            self._wait(timeout)
        else:
            self._looks += 1
            if self._looks >= PASSES_MAX:
                looks, self._looks = self._looks, 0  # a task that catches `Stuck` may end in peace
                self._looks = PASSES_MAX - PASSES_MORE if self._look(looks) else looks
        return []

    def get_map(self) -> Any:
        return self._keys

    def close(self) -> None:
        self._keys.clear()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual, with a simulated network. Threads have no place in it."""

    def __init__(self, seed: object = 0, delay: str = "uniform:0.2ms:2ms", limit: float | None = LIMIT_S) -> None:
        self.now_ns = BEGIN_NS
        super().__init__(_Selector(self._jump, self._look))
        self.seed = seed
        self._limit_s = inf if limit is None else limit
        self._end_ns = BEGIN_NS + self._limit_s * 1e9
        self.residents = Residents()
        self.network = Network(self, delay)
        self.environment = Environment(
            clock=self.read_clock,
            wall_clock=self.read_clock,
            random=Random(f"{seed}/members"),
            ports=self.network,
            welcome=self.residents.welcome,
        )

    def read_clock(self) -> int:
        return self.now_ns

    def time(self) -> float:
        return self.now_ns / 1e9

    def _jump(self, timeout: float | None) -> None:
        if timeout is None:
            raise Stuck("every task waits and no timer is set, so nothing can ever happen: which event was to come?")
        self._go_to(self.now_ns + max(1, ceil(timeout * 1e9)))

    def _go_to(self, then_ns: int) -> None:
        if then_ns <= self._end_ns:
            self.now_ns = then_ns
            return
        self._end_ns = then_ns + self._limit_s * 1e9  # a task that catches `Stuck` may end in peace
        raise Stuck(
            f"with seed {self.seed!r} it is not over after {self._limit_s:g} s of virtual time: which event was to come? Give a "
            f"larger limit if it takes so long.{self.residents.explain()}"
        )

    def _look(self, passes: int) -> bool:
        """A task that polls (`sleep(0)` until there is room) keeps every pass from waiting, and waits for a timer all the same."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # the first is the next to ring
        if timers:
            self._go_to(max(self.now_ns + 1, ceil(timers[0].when() * 1e9)))
            return True
        if passes >= PASSES_STUCK:
            raise Stuck(
                f"the event loop went round {passes} times while no timer was set, so what is asked for cannot come: which "
                "task awaits `sleep(0)` without an end?"
            )
        return False

    # What belongs to a process runs when that process does.

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        life = life_of(context)
        if life is None:
            return super().call_soon(callback, *args, context=context)
        guarded = Guarded(life, callback, args, context or copy_context())
        guarded.handle = super().call_soon(guarded, context=guarded.context)
        return guarded.handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        life = life_of(context)
        if life is None:
            return super().call_at(when, callback, *args, context=context)
        guarded = Guarded(life, callback, args, context or copy_context())
        guarded.handle = handle = super().call_at(when, guarded, context=guarded.context)
        return handle

    def create_task(self, coro: Any, *, name: Any = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = super().create_task(coro, name=name, context=context)
        life = life_of(context)
        if life is not None:
            life.adopt(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Pass errors on, except crashes: they are on purpose, so a task that ends with one need not be awaited."""
        if not isinstance(context.get("exception"), Crashed):
            super().call_exception_handler(context)

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """At once and in place: a thread would not be deterministic."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


DATAGRAM_BYTES = 1_472
"""The largest datagram on the simulated network: what an Ethernet frame holds."""


class Network(DatagramNetwork):
    """The simulated network of a loop, with its faults. Addresses are free: no machine has them."""

    def __init__(self, loop: VirtualLoop, delay: str) -> None:
        super().__init__(loop.seed, delay)
        self.datagram_bytes = DATAGRAM_BYTES
        self._loop = loop
        self._ports: dict[str, SimulatedPort] = {}
        self._thaws: dict[Resident, asyncio.TimerHandle] = {}  # of members that stand still
        self._outside = Context()  # of no process
        self._owners: dict[str, tuple[ProcessLife, Context]] = {}  # by address, of ports of processes
        self._processes: list[Process] = []

    # Processes.

    def process(
        self, main: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any, name: str | None = None, **named: Any
    ) -> Process:
        """Run `main(*arguments, **named)` like a process of its own, which can be killed, started again and paused."""
        if not inspect.iscoroutinefunction(main):
            raise Misuse(f"a process runs an `async def`, not {main!r}: give the function, and then its arguments.")
        number = len(self._processes) + 1
        made = Process(
            self, self._loop, name or f"process {number} ({main.__name__})", lambda: main(*arguments, **named)
        )
        self._processes.append(made)
        return made

    def close_ports_of(self, life: ProcessLife) -> None:
        """A process is gone: its addresses are free again."""
        for address in [address for address, (owner, _) in self._owners.items() if owner is life]:
            del self._owners[address]
            self._ports.pop(address, None)

    def bury(self) -> None:
        """The test is over: nothing of a process stays behind."""
        for process in self._processes:
            process.bury()

    def take_errors(self) -> list[tuple[str, BaseException]]:
        """What has ended processes, and no task has heard of it."""
        return [(one.name, error) for one in self._processes if (error := one.take_error()) is not None]

    def note_outside(self) -> None:
        """What belongs to no process runs in the context of this call."""
        self._outside = copy_context()

    # Ports and faults.

    def port(self, listen: Address | None, peers: Sequence[Address]) -> SimulatedPort:
        """The port at an address; without one, the first of `peers` that is free."""
        if listen is None:
            free = [peer for peer in peers if str(peer) not in self._ports]
            if not free:
                raise Misuse(
                    "this member has no address to listen on: give listen, or peers with a free address among them."
                )
            listen = free[0]
        address, life = str(listen), life_of(None)
        if life is not None:
            life.check()
        owner = self._owners.get(address)
        if address not in self._ports:
            self._ports[address] = SimulatedPort(self, listen)
            if life is not None:
                self._owners[address] = (life, copy_context())
        elif (None if owner is None else owner[0]) is not life:
            raise Misuse(f"{address} belongs to another process: give each process an address of its own.")
        return self._ports[address]

    def crash(self, group: JoinedGroup) -> None:
        """End the member here and now, without a word. Its application goes on; `process` runs applications that end with it."""
        self.crash_member(self._loop.residents.find(group))

    def crash_member(self, member: Resident) -> None:
        member.crash(Crashed(f"{member.id} was crashed."))

    def pause(self, group: JoinedGroup, seconds: float) -> None:
        """Let the member's process stand still for a while; what is sent to it waits in its socket.

        Of several pauses the last to end counts.
        """
        member = self._loop.residents.find(group)
        member.freeze()
        before = self._thaws.get(member)
        if before is not None:
            if before.when() >= self._loop.time() + seconds:
                return
            before.cancel()
        self._thaws[member] = self._loop.call_later(seconds, self._thaw, member)

    def _thaw(self, member: Resident) -> None:
        del self._thaws[member]
        member.thaw()

    def transmit(self, source: str, target: str, datagram: bytes) -> None:
        life = life_of(None)
        if life is not None and life.is_over:
            return
        for arrival, copy in self.fate(source, target, datagram, self._loop.now_ns):
            delay = max(0, arrival - self._loop.now_ns) / 1e9
            self._loop.call_later(
                delay, self._arrive, source, target, copy, context=None if life is None else self._outside.copy()
            )

    def _arrive(self, source: str, target: str, datagram: bytes) -> None:
        port = self._ports.get(target)
        if port is None or not self.reaches(source, target):
            return
        if target in self._owners:
            life, context = self._owners[target]
            context.run(Guarded(life, port.take, (datagram, source), context))
        else:
            port.take(datagram, source)

    def forget(self, port: SimulatedPort) -> None:
        address = str(port.endpoint)
        if self._ports.get(address) is port:
            del self._ports[address]
            self._owners.pop(address, None)


class SimulatedPort:
    """Where members at one simulated address send and receive: what a socket is elsewhere."""

    def __init__(self, network: Network, endpoint: Address) -> None:
        self._network = network
        self.endpoint = endpoint
        self._receivers: dict[bytes, Callable[[list[memoryview]], None]] = {}
        self._counted = {"datagrams sent": 0, "datagrams received": 0}
        self._source = ""  # of the datagram that is being taken

    def open(self, group: str, receiver: Callable[[list[memoryview]], None]) -> None:
        tag = group_tag(group).to_bytes(4, "little")
        if tag in self._receivers:
            raise Misuse(f"{self.endpoint} already has a member of {group!r}: one address has one member of a group.")
        self._receivers[tag] = receiver

    def close(self, group: str) -> None:
        self._receivers.pop(group_tag(group).to_bytes(4, "little"), None)
        self.release()

    def release(self) -> None:
        """Give the address back unless it is in use."""
        if not self._receivers:
            self._network.forget(self)

    def send(self, datagrams: Iterable[tuple[tuple[str, ...], bytes | tuple[bytes, ...]]]) -> None:
        for addresses, pieces in datagrams:
            datagram = pieces if isinstance(pieces, bytes) else b"".join(pieces)
            for address in addresses:
                self._counted["datagrams sent"] += 1
                try:
                    self._network.transmit(str(self.endpoint), address, datagram)
                except OSError:
                    self._counted["socket errors"] = self._counted.get("socket errors", 0) + 1

    def take(self, datagram: bytes, source: str = "") -> None:
        self._counted["datagrams received"] += 1
        self._source = source
        found = self._receivers.get(bytes(datagram[2:HEAD_BYTES]))
        for receiver in tuple(self._receivers.values()) if found is None else (found,):  # each refuses what is foreign
            receiver([memoryview(datagram)])
        self._source = ""

    def source_of(self, datagram: memoryview) -> str:
        return self._source

    def counters(self) -> dict[str, int]:
        return dict(self._counted)


def in_virtual_time(
    main: Callable[[Network], Awaitable[T]],
    seed: object = 0,
    delay: str = "uniform:0.2ms:2ms",
    loss: float = 0.0,
    limit: float | None = LIMIT_S,
) -> T:
    """Run a coroutine function, which is given the network, in virtual time, for at most `limit` seconds of it."""
    if limit is not None and not limit > 0:
        raise Misuse(f"limit = {limit!r} is impossible: choose seconds of virtual time above 0, or None for no limit.")
    loop = VirtualLoop(seed, delay, limit)
    network = loop.network
    network.loss = loss
    try:
        with within(loop.environment):
            network.note_outside()
            result = loop.run_until_complete(main(network))
        for name, error in network.take_errors():
            error.add_note(f"raised by {name}")
            raise error
        return result
    except BaseException as error:
        for name, earlier in network.take_errors():
            error.add_note(f"{name} had failed: {type(earlier).__name__}: {earlier}")
        raise
    finally:
        try:
            network.bury()
            _cancel_all(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_all(loop: VirtualLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())


def test(
    *,
    seeds: int | Iterable[object] = 1,
    delay: str = "uniform:0.2ms:2ms",
    loss: float = 0.0,
    limit: float | None = LIMIT_S,
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test of an async function: it runs in virtual time, once with each seed. An argument `network` gets the network.

    A run that is not over after `limit` seconds of virtual time raises `Stuck`; None: it may take for ever.
    """
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)

    def decorate(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        signature = inspect.signature(function)
        wants_network = "network" in signature.parameters

        @wraps(function)
        def wrapper(*arguments: Any, **fixtures: Any) -> None:
            for seed in chosen:

                async def main(network: Network) -> None:
                    more = {"network": network} if wants_network else {}
                    await function(*arguments, **fixtures, **more)

                try:
                    in_virtual_time(main, seed, delay, loss, limit)
                except BaseException as error:
                    error.add_note(f"in virtual time, with seed {seed!r}")
                    raise

        del wrapper.__wrapped__  # pytest would look through it and ask for a fixture `network`
        kept = [parameter for name, parameter in signature.parameters.items() if name != "network"]
        wrapper.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return wrapper

    return decorate


test.__test__ = False  # type: ignore[attr-defined]  # it makes tests and is none
