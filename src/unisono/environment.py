"""What a running member takes from the world around it: clocks, randomness and a network.

`unisono.join` and `unisono.client` run on this machine unless another environment is in force where they are called:

    with within(environment):
        asyncio.run(main())

Everything that `main` starts inherits the environment, as it inherits every context variable. Simulations in virtual time hand in
theirs this way, and a test may hand in a clock that runs ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Protocol

from unisono.core.types import MemberId


class Address(Protocol):
    """A host and a port, whose text is the address."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class Port(Protocol):
    """Where a member sends and receives: a socket, or an address of a simulated network."""

    @property
    def endpoint(self) -> Address: ...

    def open(self, group: str, receiver: Callable[[list[memoryview]], None]) -> None:
        """Hand the datagrams of this group to `receiver`."""

    def close(self, group: str) -> None: ...

    def release(self) -> None:
        """Give the address back unless another member uses it."""

    def send(self, datagrams: Sequence[tuple[tuple[str, ...], bytes | tuple[bytes, ...]]]) -> None:
        """Send each datagram, whole or in pieces, to its addresses."""

    def counters(self) -> dict[str, int]: ...

    def source_of(self, datagram: memoryview) -> str:
        """Where the datagram that is being received came from; empty: not known."""


class Ports(Protocol):
    """A network without sockets. Its addresses are numbers, and nothing outside can reach it."""

    datagram_bytes: int
    """The largest datagram."""

    def port(self, listen: Address | None, peers: Sequence[Address]) -> Port:
        """The port at an address; without one, at the first of `peers` that is free."""


class Resident(Protocol):
    """A running member as its environment sees it."""

    @property
    def name(self) -> str:
        """Its group's."""

    @property
    def id(self) -> MemberId: ...

    def explain(self) -> list[str]: ...

    def crash(self, error: Exception) -> None:
        """End here and now, without a word to the other members."""

    def freeze(self) -> None:
        """Stand still, as a stopped process does."""

    def thaw(self) -> None: ...

    def call_at_end(self, end: Callable[[], None]) -> None:
        """Call this when the member has left or failed."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a member is given by the program that starts it."""

    clock: Callable[[], int]
    """Nanoseconds that never go back."""
    wall_clock: Callable[[], int]
    """Nanoseconds since 1970, for incarnations."""
    random: Random
    ports: Ports | None = None
    """None: the sockets of this machine."""
    welcome: Callable[[Resident], None] | None = None
    """Called with every member that starts here. None: members write the log instead."""


_CURRENT: ContextVar[Environment | None] = ContextVar("unisono_environment", default=None)


def find_environment() -> Environment | None:
    """The environment in force here; None: this machine."""
    return _CURRENT.get()


@contextmanager
def within(environment: Environment) -> Iterator[None]:
    """Run the members and clients that this block starts, also in tasks that it creates, in `environment`."""
    token = _CURRENT.set(environment)
    try:
        yield
    finally:
        _CURRENT.reset(token)
