"""The same verbs without asyncio, for programs that wait: a thin facade over a group on an event loop of its own thread.

    with unisono.sync.join("chat", peers=[…]) as group:
        group.cast(b"hello").stable(timeout=2)
        for event in group:
            ...

Every call may be made from any thread; one thread iterates. The hooks (`snapshot`, `restore`, `merge`, `answer`) run in the
group's own thread and must not wait for the group.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from inspect import signature
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from unisono.core.errors import Misuse
from unisono.core.types import Key, MemberId, Service
from unisono.runtime import group as asynchronous
from unisono.runtime import join as joining
from unisono.runtime import receipts
from unisono.runtime.errors import Closed
from unisono.runtime.events import Event, View

T = TypeVar("T")
P = ParamSpec("P")
EVENTS_AT_ONCE = 1_024


def _with_wishes_of(
    model: Callable[P, joining.Joining],
) -> Callable[[Callable[Concatenate[str, ...], Group]], Callable[P, Group]]:
    """The same arguments, for whoever checks types and for whoever asks for help."""

    def dress(function: Callable[Concatenate[str, ...], Group]) -> Callable[P, Group]:
        function.__signature__ = signature(model).replace(return_annotation="Group")  # type: ignore[attr-defined]
        return function  # type: ignore[return-value]

    return dress


@_with_wishes_of(joining.join)
def join(group: str, **wishes: Any) -> Group:
    """Join a group and wait for its first view. The arguments are those of `unisono.join`."""
    return Group(joining.join(group, **wishes), wishes.get("leave_timeout", 5.0))


class _Thread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name="unisono", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            self.check()
        except Misuse:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def check(self) -> None:
        """Whether anybody here can wait for the group."""
        if threading.current_thread() is self._thread:
            raise Misuse(
                "a hook runs in the group's own thread and cannot wait for the group: let another thread do that."
            )
        if os.getpid() != self._pid:
            raise Misuse(
                "this process was forked from the one that has joined: join in the process that uses the group."
            )

    def stop(self) -> None:
        self.call(self._loop.shutdown_asyncgens())
        self.call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Group:
    """One member of a group, for programs without asyncio."""

    def __init__(self, wanted: joining.Joining, leave_timeout: float) -> None:
        self._thread = _Thread()
        self._leave_timeout = leave_timeout
        self._events: deque[Event] = deque()
        self._has_left = False
        try:
            self._group: asynchronous.Group = self._thread.call(_await(wanted))
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.leave(self._leave_timeout)
        except Exception:
            if error is None:
                raise

    @property
    def id(self) -> MemberId:
        return self._group.id

    @property
    def view(self) -> View:
        return self._group.view

    @property
    def members(self) -> tuple[MemberId, ...]:
        return self._group.members

    def status(self) -> dict[str, Any]:
        return self._ask(self._group.status)

    def explain(self, key: Key | None = None) -> list[str]:
        return self._ask(lambda: self._group.explain(key))

    def cast(
        self,
        payload: bytes,
        *,
        to: Iterable[MemberId] | None = None,
        safe: bool | None = None,
        service: Service | str | None = None,
    ) -> Receipt:
        return Receipt(self, self._call(self._group.cast(payload, to=to, safe=safe, service=service)))

    def cast_many(
        self,
        payloads: Iterable[bytes],
        *,
        to: Iterable[MemberId] | None = None,
        safe: bool | None = None,
        service: Service | str | None = None,
    ) -> Receipt | None:
        """Cast messages one after the other; the receipt is the last one's. None: there were none."""
        to = None if to is None else tuple(to)
        if isinstance(payloads, Sequence):
            last = self._call(self._group.cast_many(payloads, to=to, safe=safe, service=service))
            return None if last is None else Receipt(self, last)
        receipt = None
        for payload in payloads:  # made one by one, perhaps slowly: the group's thread does not wait for that
            receipt = self.cast(payload, to=to, safe=safe, service=service)
        return receipt

    def switch(self, order: str, timeout: float | None = None) -> None:
        self._call(self._group.switch(order, timeout))

    def next(self, timeout: float | None = None) -> Event:
        """The next event. Raises `TimedOut` if there is none in time, `Closed` if there will be none."""
        if not self._events:
            self._events.extend(self._call(_take(self._group, timeout)))
        return self._events.popleft()

    def __iter__(self) -> Iterator[Event]:
        while True:
            try:
                yield self.next()
            except Closed:
                return

    def leave(self, timeout: float = 5.0) -> None:
        if not self._has_left:
            self._thread.check()
            self._has_left = True
            try:
                self._thread.call(self._group.leave(timeout))
            finally:
                self._thread.stop()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._has_left:
            coroutine.close()
            raise Closed(f"{self.id} has left {self._group.name!r}: join again.")
        return self._thread.call(coroutine)

    def _ask(self, question: Callable[[], T]) -> T:
        async def ask() -> T:
            return question()

        return self._call(ask())


class Receipt:
    """Says how far one message has come."""

    def __init__(self, group: Group, receipt: receipts.Receipt) -> None:
        self._group = group
        self._receipt = receipt

    @property
    def key(self) -> Key:
        return self._receipt.key

    def delivered(self, timeout: float | None = None) -> None:
        """Wait until the message was delivered here, in its place."""
        if not self._receipt.is_delivered:
            self._group._call(self._receipt.delivered(timeout))

    def stable(self, timeout: float | None = None) -> None:
        """Wait until every member has taken the message in."""
        if not self._receipt.is_stable:
            self._group._call(self._receipt.stable(timeout))


async def _await(wanted: joining.Joining) -> asynchronous.Group:
    return await wanted


async def _take(group: asynchronous.Group, timeout: float | None) -> list[Event]:
    """The next event, and those that are there besides: crossing threads once for many. With state to carry, one by one: to ask for
    more would say that the application is done with it."""
    event = await group.next(timeout)
    if group._transfer is not None:
        return [event]
    try:
        return [event, *group.ready(EVENTS_AT_ONCE)]
    except Exception as error:  # a hook's: this event comes first
        group._inbox.fail_next(error)
        return [event]
