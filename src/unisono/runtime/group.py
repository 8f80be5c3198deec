"""A group as an application sees it, on asyncio: cast, iterate over deliveries and views, leave.

One task iterates; any task casts. Deliveries and views come in one stream, in the promised order. Events that the application has
not taken yet wait in a queue whose length slows the casters down (flow control), so memory stays bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from inspect import iscoroutinefunction
from typing import Any

from unisono.core.errors import Misuse
from unisono.core.member import Check
from unisono.core.options import DEFAULT, CastOptions
from unisono.core.types import Key, MemberId, Service, ViewId
from unisono.runtime.errors import Closed, TimedOut
from unisono.runtime.events import Delivery, Event, View
from unisono.runtime.inbox import Deliver, Handle
from unisono.runtime.pace import check_seconds
from unisono.runtime.receipts import Receipt
from unisono.runtime.running import RunningMember


class Group:
    """One member of a group. `unisono.join` makes it.

    Three parts do the work: casting (`CastAdmission`), reading (`Inbox`) and the member's life (`RunningMember`).

    Which call to cast with: `cast` in coroutines; `try_cast` and `room` in plain functions, such as those given to `each`.

    Which call to read with: `async for event in group` unless there is a reason; `each` when throughput matters and plain
    functions do; `batches` to handle messages of one sender together; `next` to wait for one event, with a timeout; `ready` for
    what is there, without waiting. All of them take from the same stream, which has one reader.
    """

    def __init__(self, member: RunningMember) -> None:
        self._member = member
        self._casting = member.casting
        self._inbox = member.inbox
        self._home = member.home

    @property
    def running(self) -> RunningMember:
        """What is behind this group, for tools (the commands of `unisono`, observers). It may change with any version."""
        return self._member

    # Questions.

    @property
    def name(self) -> str:
        """The group's name."""
        return self._member.name

    @property
    def id(self) -> MemberId:
        """This member: its address, and which life of the process there."""
        return self._member.id

    @property
    def view(self) -> View:
        """The latest view that the application has taken from the stream; before that, the installed one."""
        self._home.check_process()
        return self._inbox.view or self._member.installed_view

    @property
    def members(self) -> tuple[MemberId, ...]:
        """The members of `view`, by rank."""
        return self.view.members

    @property
    def order(self) -> str:
        """The order of the installed view; `switch` changes it."""
        self._home.check_process()
        return self._member.member.state.order

    def explain(self, key: Key | None = None, *, most: int | None = None) -> list[str]:
        """Why something waits, and which of the named peers are missing: a sentence each, at most `most`."""
        return self._member.explain(key, most)

    def status(self) -> dict[str, Any]:
        """How this member stands, in plain values."""
        return self._member.status()

    # Casting.

    async def cast(
        self,
        payload: bytes,
        *,
        to: MemberId | Iterable[MemberId] | None = None,
        safe: bool | None = None,
        service: Service | str | None = None,
    ) -> Receipt:
        """Cast a message to the group. Waits only while there is no room, or for the event loop to run once.

        Take this unless the caller cannot await.
        """
        options = DEFAULT
        if to is not None or safe is not None or service is not None:
            options = CastOptions.of(to, safe, service)
        while (receipt := self._casting.cast(payload, options)) is None:
            await self._casting.wait_for_room()
        return receipt

    def try_cast(
        self,
        payload: bytes,
        *,
        to: MemberId | Iterable[MemberId] | None = None,
        safe: bool | None = None,
        service: Service | str | None = None,
    ) -> Receipt | None:
        """Cast without waiting. None: there is no room now; `room` waits until there is.

        Take this in plain functions, such as those given to `each`.
        """
        if to is None and safe is None and service is None:
            return self._casting.cast(payload, DEFAULT)
        return self._casting.cast(payload, CastOptions.of(to, safe, service))

    async def room(self) -> None:
        """Wait until there may be room again, or for the event loop to run once. For use after `try_cast` returned None."""
        await self._casting.wait_for_room()

    # Reading.

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over all events, one at a time, until the group is left. Take this unless one of the others is needed."""
        self._home.check_thread()
        return self._inbox.events()

    async def each(self, deliver: Deliver, handle: Handle = lambda event: None) -> None:
        """Call `deliver(sender, payload)` with every message and `handle(event)` with every other event, until the group is left.

        Take this for throughput: no other way to take messages is as fast. A `deliver` with three parameters (none of them with a
        default) gets the message's `Key` too. Both are called in the order of the stream, as soon as something is there.

        Like iterating, it is the one reader. Both are plain functions, which the member waits for; they cast with `try_cast`.
        What they raise ends this call, and nothing behind that event is lost.
        """
        if iscoroutinefunction(deliver) or iscoroutinefunction(handle):
            raise Misuse("each calls plain functions: iterate with `async for` to await something for every event.")
        self._home.check_thread()
        await self._inbox.each(deliver, handle)

    def batches(self) -> AsyncIterator[Sequence[Delivery] | Event]:
        """Iterate over lists of deliveries of one origin that came together, and all other events as they are.

        Take this to handle messages together, such as one database transaction for several.
        """
        self._home.check_thread()
        return self._inbox.batches()

    def ready(self, most: int = 1_024) -> list[Event]:
        """Take at most `most` events that are there already, without waiting. Take this in a loop of the program's own."""
        self._home.check_thread()
        return self._inbox.ready(most)

    async def next(self, timeout: float | None = None) -> Event:
        """Take the next event of the stream. Raises `TimedOut` if there is none in time, `Closed` if there will be none.

        Take this to wait for one event, or with a timeout.
        """
        self._home.check_thread()
        if there := self._inbox.ready(1):
            return there[0]
        events = self._inbox.events()
        try:
            event = await asyncio.wait_for(anext(events), timeout)
        except StopAsyncIteration:
            raise Closed(f"{self.id} has left {self.name!r}: nothing more happens.") from None
        except TimeoutError:
            raise TimedOut(f"nothing happened to {self.id} within {timeout:g} s.") from None
        finally:
            await events.aclose()  # type: ignore[attr-defined]
        self._inbox.took(event)
        return event

    # The member's life.

    async def until(self, predicate: Callable[[View], bool], timeout: float | None = None) -> View:
        """Wait until `predicate(view)` holds of the installed view, and return that view.

        It is asked now and after each turn of the member, and whenever the reader takes something. This does not read the
        stream: any task may wait here, the reader too, because the installed view does not wait to be read (`view` does).
        Raises `TimedOut` with what `explain` says, `Closed` once the group is left, and what `predicate` raises.
        """
        check_seconds(timeout, "timeout", 0)
        if not callable(predicate) or iscoroutinefunction(predicate):
            raise Misuse("until asks a plain function of the view, as in `lambda view: len(view.members) >= 3`.")
        self._home.check_thread()
        self._member.check_open()
        return await self._member.until_view(predicate, timeout)

    async def switch(self, order: str, timeout: float | None = None) -> None:
        """Ask for another order, and wait until a view has it. Nothing is lost."""
        self._home.check_thread()
        self._member.check_open()
        await self._member.switch(order, timeout)

    async def check(self, timeout: float | None = 10.0) -> Check:
        """Compare what the members of the view have delivered, everything that this one has delivered by now.

        Members compare by themselves at every view change; this asks for it now. A difference is also shown as `Diverged`, at all
        members. If the view changes meanwhile, the next one is compared. Raises `TimedOut` with the members that have not answered,
        `NotPrimary` in a view that is read-only, and `Closed` once the group is left.
        """
        check_seconds(timeout, "timeout", 0)
        self._home.check_thread()
        self._casting.check_open()
        return await self._member.check(timeout)

    async def give_up(self, state: ViewId | str, timeout: float | None = None) -> None:
        """Give up the state of a primary view that no member here has, and wait until a view is primary without it.

        The state is named by its view, as `status()["lost_state"]` and `explain` show it, so that nothing else can be lost. It is
        written to the journal first. What comes instead is the latest state that a member still has, else the initial one.
        """
        member = self._member
        member.begin_to_give_up(state)
        await member.until(
            lambda: member.installed_view.is_primary and member.is_whole(1),
            timeout,
            f"no view became primary without {state}",
        )

    def begin_to_give_up(self, state: ViewId | str) -> None:
        """Do the same without waiting, in plain functions."""
        self._member.begin_to_give_up(state)

    async def leave(self, timeout: float = 5.0) -> None:
        """Flush own casts, then leave the group in an orderly way; both within the time given.

        Raises `NotFlushed` if some of the last casts are not known to be at all members (the condition of `Receipt.stable`): then
        the member has left all the same. What has ended the member before is raised here unless it was raised already.
        """
        await self._member.leave(timeout)
