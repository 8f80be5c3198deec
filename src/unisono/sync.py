"""The same verbs without asyncio, for programs that block: a thin facade over a group on an event loop in its own thread.

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
from types import TracebackType
from typing import Any, TypeVar

from unisono.core.errors import Misuse
from unisono.core.member import Check
from unisono.core.options import addressees
from unisono.core.types import Key, MemberId, Service, ViewId
from unisono.runtime import group as asynchronous
from unisono.runtime import receipts
from unisono.runtime.errors import Closed
from unisono.runtime.events import Delivery, Event, View
from unisono.runtime.forks import disown_in_children, sentence
from unisono.runtime.join import Joining
from unisono.runtime.options import JoinOptions, taking_options
from unisono.runtime.receipts import Stage
from unisono.runtime.running import RunningMember

T = TypeVar("T")
EVENTS_AT_ONCE = 1_024


@taking_options(JoinOptions)
def join(*arguments: Any, **options: Any) -> Group:
    """Join a group and wait for its first view. The arguments are those of `unisono.join`, the fields of `JoinOptions`."""
    return Group(Joining(JoinOptions(*arguments, **options)))


class _Thread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._is_disowned = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="unisono", daemon=True)
        self._thread.start()
        disown_in_children(self)

    def disown(self) -> None:
        """In a forked child there is no such thread."""
        self._is_disowned = True

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

    def post(self, function: Callable[[], None]) -> None:
        """Let the thread call this, and do not wait for it."""
        self._loop.call_soon_threadsafe(function)

    def check(self) -> None:
        """Raise `Misuse` where no thread can wait for the group."""
        if threading.current_thread() is self._thread:
            raise Misuse(
                "a hook runs in the group's own thread and cannot wait for the group: let another thread do that."
            )
        self.check_process()

    def check_process(self) -> None:
        if self._is_disowned:
            raise Misuse(sentence("this group was joined", self._process))

    def stop(self) -> None:
        self.call(self._loop.shutdown_asyncgens())
        self.call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Session:
    """One member in a thread of its own, and which of the program's threads reads from it."""

    def __init__(self, joining: Joining) -> None:
        self.thread = _Thread()
        self.handled: Event | None = None
        """The event that was handed out last."""
        self.reader: int | None = None
        """The thread that has it."""
        self.iterating: int | None = None
        """The thread that has it inside `for`."""
        self.has_left = False
        try:
            self.member: RunningMember = self.thread.call(joining.enter())
        except BaseException:
            self.thread.stop()
            raise
        self.group = asynchronous.Group(self.member)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await this in the group's thread, and wait for its result here."""
        if self.has_left:
            coroutine.close()
            raise Closed(f"{self.member.id} has left {self.member.name!r}: join again.")
        return self.thread.call(coroutine)

    def ask(self, question: Callable[[], T]) -> T:
        """Ask in the group's thread."""

        async def ask() -> T:
            return question()

        return self.call(ask())

    async def take(self, timeout: float | None) -> list[Event]:
        """The next event, and those that are there besides: crossing threads once for many. With state to carry, one by one: to ask
        for more would say that the application is done with it."""
        event = await self.group.next(timeout)
        if self.member.has_state:
            return [event]
        inbox = self.member.inbox
        try:
            return [event, *inbox.ready(EVENTS_AT_ONCE, is_done=False)]
        except Exception as error:  # a hook's: this event comes first
            inbox.fail_next(error)
            return [event]

    def note_done(self) -> None:
        """The last event is done with, though the group's thread has handed out more. Only own messages are of interest."""
        done, inbox = self.handled, self.member.inbox
        if isinstance(done, Delivery) and done.sender == self.member.id:
            inbox.done = done
            if self.member.receipts.is_applied_awaited and not self.has_left:
                self.thread.post(inbox.note_done)

    def leave(self, timeout: float) -> None:
        if not self.has_left:
            self.thread.check()
            self.has_left = True
            try:
                self.thread.call(self.group.leave(timeout))
            finally:
                self.thread.stop()


class Group:
    """One member of a group, for programs without asyncio."""

    def __init__(self, joining: Joining) -> None:
        self._leave_timeout = joining.options.leave_timeout
        self._events: deque[Event] = deque()  # crossed the threads, and are not handed out yet
        self._session = _Session(joining)
        self._group = self._session.group

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
        return self._session.ask(self._group.status)

    def explain(self, key: Key | None = None) -> list[str]:
        return self._session.ask(lambda: self._group.explain(key))

    def cast(
        self,
        payload: bytes,
        *,
        to: MemberId | Iterable[MemberId] | None = None,
        safe: bool | None = None,
        service: Service | str | None = None,
    ) -> Receipt:
        return Receipt(self._session, self._session.call(self._group.cast(payload, to=to, safe=safe, service=service)))

    def cast_many(
        self,
        payloads: Iterable[bytes],
        *,
        to: MemberId | Iterable[MemberId] | None = None,
        safe: bool | None = None,
        service: Service | str | None = None,
    ) -> Receipt | None:
        """Cast messages one after the other; the receipt is the last one's. None: there were none.

        A list costs the calling thread one wait, where `cast` waits for the group's thread with each message.
        """
        to = addressees(to)
        if isinstance(payloads, Sequence):
            last = self._session.call(self._cast_all(payloads, to, safe, service))
            return None if last is None else Receipt(self._session, last)
        receipt = None
        for payload in payloads:  # made one by one, perhaps slowly: the group's thread does not wait for that
            receipt = self.cast(payload, to=to, safe=safe, service=service)
        return receipt

    async def _cast_all(
        self, payloads: Sequence[bytes], to: Sequence[MemberId] | None, safe: bool | None, service: Service | str | None
    ) -> receipts.Receipt | None:
        receipt = None
        for payload in payloads:
            receipt = await self._group.cast(payload, to=to, safe=safe, service=service)
        return receipt

    def switch(self, order: str, timeout: float | None = None) -> None:
        self._session.call(self._group.switch(order, timeout))

    def check(self, timeout: float | None = 10.0) -> Check:
        """Compare what the members of the view have delivered, everything that this one has delivered by now."""
        return self._session.call(self._group.check(timeout))

    def until(self, predicate: Callable[[View], bool], timeout: float | None = None) -> View:
        """Wait until `predicate(view)` holds of the installed view, and return that view. It is asked in the group's thread."""
        return self._session.call(self._group.until(predicate, timeout))

    def give_up(self, state: ViewId | str, timeout: float | None = None) -> None:
        """Give up the state of a primary view that no member here has, and wait until a view is primary without it."""
        self._session.call(self._group.give_up(state, timeout))

    def next(self, timeout: float | None = None) -> Event:
        """The next event. Raises `TimedOut` if there is none in time, `Closed` if there will be none."""
        session = self._session
        session.thread.check_process()
        if self._events:
            session.note_done()
        else:
            self._events.extend(session.call(session.take(timeout)))
        session.reader = threading.get_ident()
        event = session.handled = self._events.popleft()
        return event

    def __iter__(self) -> Iterator[Event]:
        try:
            while True:
                try:
                    event = self.next()
                except Closed:
                    return
                self._session.iterating = self._session.reader
                yield event
        finally:
            self._session.iterating = None

    def leave(self, timeout: float = 5.0) -> None:
        """Flush own casts, then leave the group in an orderly way; both within the time given."""
        self._session.leave(timeout)


class Receipt:
    """Says how far one message has come."""

    def __init__(self, session: _Session, receipt: receipts.Receipt) -> None:
        self._session = session
        self._receipt = receipt

    @property
    def key(self) -> Key:
        return self._receipt.key

    def delivered(self, timeout: float | None = None) -> None:
        """Wait until the message was delivered here, in its place."""
        self._wait(Stage.DELIVERED, timeout)

    def applied(self, timeout: float | None = None) -> None:
        """Wait until the thread that reads is done with the message, and has asked for the next event.

        In the thread that reads it is `Misuse`.
        """
        self._wait(Stage.APPLIED, timeout)

    def stable(self, timeout: float | None = None) -> None:
        """Wait until every member is certain to deliver the message, unless that member itself crashes."""
        self._wait(Stage.STABLE, timeout)

    @property
    def is_delivered(self) -> bool:
        return self._has(Stage.DELIVERED)

    @property
    def is_applied(self) -> bool:
        return self._has(Stage.APPLIED)

    @property
    def is_stable(self) -> bool:
        return self._has(Stage.STABLE)

    def _wait(self, stage: Stage, timeout: float | None) -> None:
        session, receipt = self._session, self._receipt
        if session.has_left:  # nothing changes any more
            if not receipt.check(stage):
                member = session.member
                raise Closed(f"{member.id} has left {member.name!r}: message {self.key.index} is not {stage}.")
        elif receipt.is_observed or not receipt.is_plainly(stage):
            session.call(receipt.wait(stage, timeout, _ThreadReading(session)))

    def _has(self, stage: Stage) -> bool:
        session, receipt = self._session, self._receipt
        if receipt.is_plainly(stage):
            return True
        return receipt.has(stage) if session.has_left else session.ask(lambda: receipt.has(stage))


class _ThreadReading:
    """Which thread reads a group, seen from the thread that makes this."""

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._caller = threading.get_ident()

    def note_done(self) -> None:
        self._session.member.inbox.note_done()

    def is_inside(self) -> bool:
        return self._session.iterating == self._caller

    def who_reads(self) -> object:
        return self._session.reader

    def who_asks(self) -> object:
        return self._caller
