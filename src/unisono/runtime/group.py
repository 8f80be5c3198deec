"""A group as an application sees it, on asyncio: cast, iterate over deliveries and views, leave.

One task iterates; any task casts. Deliveries and views come in one stream and in the order that was promised; what is not yet
taken by the application waits in a queue whose length slows the casters down (flow control), so memory stays bounded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from inspect import iscoroutinefunction
from threading import get_ident
from typing import TYPE_CHECKING, Any

from unisono.core.errors import Misuse, UnisonoError
from unisono.core.events import Entered, Happening, Replaced
from unisono.core.member.comparison import Check, Checking
from unisono.core.types import DEFAULT, Batch, CastOptions, Key, MemberId, Service, ViewId, addressees
from unisono.runtime.casters import Casters
from unisono.runtime.clients import Answer, Desk
from unisono.runtime.errors import Closed, Outdated, TimedOut
from unisono.runtime.events import Delivery, Event, View, view_of
from unisono.runtime.forks import disown_in_children, sentence
from unisono.runtime.hooks import Carrier
from unisono.runtime.inbox import Deliver, Handle, Inbox
from unisono.runtime.own_messages import OwnMessages
from unisono.runtime.pace import check_seconds
from unisono.runtime.receipts import DatagramReceipt, Receipt, Receipts
from unisono.runtime.recording import Recording
from unisono.runtime.watchers import Watchers
from unisono.services.transfer.transfer import Status, Transfer

if TYPE_CHECKING:
    from unisono.runtime.driver import Driver
    from unisono.runtime.hooks import Hooks
    from unisono.runtime.journal.journal import Journal

BREATH_BYTES = 224 << 10
"""After so much without a pause, casting lets the event loop run once."""
MESSAGE_COST = 64
"""What a message counts besides its bytes."""
UNREAD_BYTES_MAX = 256 << 20
"""Beyond so much that its own application has not taken, a member casts nothing more."""
LINGER_S = 0.1
"""So long a member that has left still answers: whoever missed its last word can ask again."""


class Group:
    """One member of a group. `unisono.join` makes it."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self._loop = loop
        self._process = os.getpid()
        self._thread = get_ident()  # the event loop's; 0: of no thread, because this is a forked child's copy
        self._driver: Driver
        self._id: MemberId
        self._receipts = Receipts(loop)
        self._inbox = self._receipts.reader = Inbox(loop, self._receipts)
        self._own = OwnMessages(self._receipts)
        self._casters = Casters(loop)
        self._watchers = Watchers(loop)
        self._budget = 0  # what may be cast before the next turn without asking: bytes, and MESSAGE_COST a message
        self._is_fast = False  # a budget is given: no payload within it can be too large
        self._is_breathless = False  # the budget was used up
        self._is_ahead = False  # a message has left before the end of this pass of the loop
        self._index = 0  # of the next own message
        self._is_leaving = False
        self._end: Callable[[], None] = lambda: None
        self._is_replaced = False  # the application was told that its state is thrown away, and has no other one yet
        self.on_replaced: Callable[[Replaced], None] = lambda replaced: None
        """The application's state is thrown away for another one: for the log."""
        self._transfer: Transfer | None = None
        self._journal: Journal | None = None
        self._recording: Recording | None = None
        disown_in_children(self)

    def _open(
        self, identity: MemberId, driver: Driver, hooks: Hooks | None, journal: Journal | None, answer: Answer | None
    ) -> None:
        self._id = identity
        self._driver = driver
        self._receipts.member = identity
        self._receipts.urge = self._urge
        self._is_fast = driver.member.settings.config.payload_bytes_max >= BREATH_BYTES
        self._journal = journal
        self._inbox.tell_room = self._tell_room
        self._own.take_doubts = driver.member.take_doubts
        if driver.peers is not None:
            peers = driver.peers
            self._own.on_entered = lambda entered: peers.entered(entered.view.members, entered.left)
        if driver.recorder is not None:
            self._recording = Recording(driver, driver.recorder)
            self._inbox.witness, self._receipts.witness = self._recording.event, self._recording.receipt
        desk = None
        if answer is not None:
            desk = driver.desk = Desk(self, answer)
            self._inbox.expand = desk.deliveries
        if hooks is not None:
            self._own.follow_transfer()
            carrier = Carrier(hooks, desk, self._show, self._skip, self._restored)
            transfer = carrier.transfer = Transfer(driver.member, carrier, initial=True, now=driver.clock())
            transfer.is_untouched = lambda: self._inbox.view is None
            self._transfer = transfer
            self._inbox.go_on = self._go_on
            driver.also_wake_at(lambda: transfer.deadline)

    @property
    def _entered(self) -> Entered | None:
        """The latest view that was installed."""
        return self._own.entered

    def _at_end(self, end: Callable[[], None]) -> None:
        self._end = end

    # Where it may be used.

    def disown(self) -> None:
        """In a forked child: whatever is asked of this copy is refused, and it gives nothing back that is the parent's."""
        self._thread = self._budget = 0
        self._end = lambda: None
        failure = self._disowned()
        self._receipts.disown(failure)
        self._inbox.disown(failure)

    def _disowned(self) -> Misuse:
        return Misuse(sentence(f"the group {self.name!r} was joined", self._process))

    def _check_process(self) -> None:
        if not self._thread:
            raise self._disowned()

    def _check_thread(self) -> None:
        """Nothing here is locked: only the event loop's thread may change anything."""
        if get_ident() != self._thread:
            self._change_thread()

    def _change_thread(self) -> None:
        """The loop may have been stopped, and go on in this thread. Else this is none of its threads."""
        self._check_process()
        try:
            is_at_home = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_at_home = False
        if not is_at_home:
            raise Misuse(
                f"{self._id} of {self.name!r} was used in another thread than its event loop's: pass plain calls to "
                "`loop.call_soon_threadsafe` and coroutines to `asyncio.run_coroutine_threadsafe`, or join with `unisono.sync`, "
                "whose groups every thread may use."
            )
        self._thread = get_ident()

    # Questions.

    @property
    def id(self) -> MemberId:
        """This member: its address, and which life of the process there."""
        return self._id

    @property
    def view(self) -> View:
        """The latest view that the application has taken from the stream; before that, the one that is installed."""
        self._check_process()
        return self._inbox.view or self._installed_view()

    @property
    def members(self) -> tuple[MemberId, ...]:
        """Those of `view`, by rank."""
        return self.view.members

    @property
    def order(self) -> str:
        """The order of the installed view; `switch` changes it."""
        self._check_process()
        return self._driver.member.order

    def _is_whole(self, members_min: int) -> bool:
        """Whether the first view is there, and with it the state: what is cast before that may be in the state already, and
        then it is not shown any more."""
        if self._entered is None or len(self._entered.view) < members_min:
            return False
        return self._transfer is None or self._transfer.status is Status.LIVE

    def _installed_view(self) -> View:
        assert self._entered is not None, "joining waits for the first view"
        return view_of(self._entered)

    def explain(self, key: Key | None = None, *, most: int | None = None) -> list[str]:
        """Why something waits, and which of the named peers are missing: a sentence each, at most `most`."""
        self._check_process()
        said = self._explain(key, most)
        if key is None and (most is None or len(said) < most):
            said += self._missing_peers()
        return said[:most]

    def _missing_peers(self) -> list[str]:
        peers = self._driver.peers
        return [] if peers is None or self._driver.is_stopped else peers.sentences()

    def _explain(self, key: Key | None = None, most: int | None = None) -> list[str]:
        """Why something waits."""
        said = [] if self._transfer is None else self._transfer.explain()
        if self._inbox.is_full:
            said.append(
                f"{self._id} has {len(self._inbox)} batches ({self._inbox.bytes} bytes) that its application has not taken; "
                "the others were asked to wait."
            )
        rest = None if most is None else max(0, most - len(said))
        return (self._driver.member.explain(key, rest) + said)[:most]

    def status(self) -> dict[str, Any]:
        """How this member stands, in plain values."""
        self._check_process()
        member, entered = self._driver.member, self._entered
        view = None if entered is None else entered.view
        undecided = None if self._journal is None else self._journal.undecided
        return {
            "group": self.name,
            "member": str(self._id),
            "order": member.order,
            "view": None if view is None else str(view.id),
            "members": [] if view is None else [str(one) for one in view.members],
            "primary": member.is_primary,
            "lost_state": None if member.lost_state is None else str(member.lost_state),
            "changing": member.is_blocked,
            "suspects": [str(one) for one in member.suspects],
            "unfinished": member.unfinished,
            "queued_batches": len(self._inbox),
            "queued_bytes": self._inbox.bytes,
            "turns": self._driver.turns,
            "waits": self._explain(most=8),
            "peers": self._missing_peers(),
            "leaving": self._is_leaving,
            "undecided": None if undecided is None else str(undecided),
        }

    # Casting.

    async def cast(
        self,
        payload: bytes,
        *,
        to: MemberId | Iterable[MemberId] | None = None,
        safe: bool | None = None,
        service: Service | str | None = None,
    ) -> Receipt:
        """Cast a message to the group. Waits only while there is no room, or for the event loop to breathe."""
        options = DEFAULT
        if to is not None or safe is not None or service is not None:
            options = CastOptions.of(to, safe, service)
        while (receipt := self._cast(payload, options)) is None:
            await self.room()
        return receipt

    def try_cast(
        self,
        payload: bytes,
        *,
        to: MemberId | Iterable[MemberId] | None = None,
        safe: bool | None = None,
        service: Service | str | None = None,
    ) -> Receipt | None:
        """Cast without waiting, for code that is no coroutine. None: there is no room now; `room` waits until there is."""
        if to is None and safe is None and service is None:
            return self._cast(payload, DEFAULT)
        return self._cast(payload, CastOptions.of(to, safe, service))

    async def room(self) -> None:
        """Wait until there may be room again, or for the event loop to breathe."""
        self._check_thread()
        if self._inbox.is_over:
            self._raise_closed()
        if self._is_breathless:
            await self._breathe()
            return
        self._budget = 0  # casts from now on see the line
        self._driver.wake()
        await self._casters.wait()
        self._refill()

    def _cast(self, payload: bytes, options: CastOptions) -> Receipt | None:
        """Without asking the member while there is a budget, which is what makes single casts cheap. None: it has to wait."""
        if get_ident() != self._thread:
            self._change_thread()
        if options is DEFAULT and type(payload) is bytes:
            budget = self._budget - len(payload) - MESSAGE_COST
            if budget >= 0:
                self._budget = budget
                index = self._index
                self._index = index + 1
                casting = self._driver.casting
                if casting:
                    casting.append(payload)
                else:
                    casting.append(payload)
                    self._leave_soon()
                return Receipt(self._receipts, index)
        if not isinstance(payload, bytes):
            raise Misuse(f"a payload is bytes, not {type(payload).__name__}: encode it first.")
        if self._is_leaving or self._inbox.is_over:
            self._raise_closed()
        if self._is_breathless or not self._casters.admits:
            return None
        unread = self._unread_bytes()
        if unread > UNREAD_BYTES_MAX:
            raise Misuse(
                f"{self._id} casts, and its application does not take what is delivered: {unread} bytes wait. "
                "Read them (`async for`, `each`), or cast less."
            )
        key = self._cast_now(payload, options)
        if key is None:
            return None
        if options.to is not None and self._id not in options.to:  # as far as it ever will be here
            self._receipts.delivered(key.index, 1)
            self._receipts.applied(key.index, 1)
        self._casters.has_cast()
        self._budget = max(0, self._budget - len(payload) - MESSAGE_COST)
        self._is_breathless = self._budget == 0 and not self._casters
        kind = DatagramReceipt if options.service is Service.DATAGRAM else Receipt
        return kind(self._receipts, key.index)

    def _unread_bytes(self) -> int:
        return self._inbox.bytes + (0 if self._transfer is None else self._transfer.queue_bytes)

    def _leave_soon(self) -> None:
        """With all else that is cast in this pass of the loop; after a quiet moment, at once. What that shows is shown later: who
        casts does not expect to be called meanwhile. Once a pass: turns without reading would make the others look silent."""
        if self._is_ahead or self._transfer is not None or not self._driver.is_calm():
            self._driver.wake()
            return
        self._is_ahead = self._inbox.is_held = True
        self._loop.call_soon(self._catch_up)
        self._driver.turn()
        self._inbox.is_held = False

    def _catch_up(self) -> None:
        self._is_ahead = False

    def _cast_now(self, payload: bytes, options: CastOptions = DEFAULT) -> Key | None:
        """Ask the member. None: there is no room."""
        if self._driver.casting:
            self._driver.hand_in()
        key = self._driver.member.cast(payload, options)
        if key is not None:
            self._index = key.index + 1
            self._driver.wake()
        return key

    async def cast_many(
        self,
        payloads: Iterable[bytes],
        *,
        to: MemberId | Iterable[MemberId] | None = None,
        safe: bool | None = None,
        service: Service | str | None = None,
    ) -> Receipt | None:
        """Cast messages one after the other; the receipt is the last one's. None: there were none."""
        receipt, to = None, addressees(to)
        for payload in payloads:
            receipt = await self.cast(payload, to=to, safe=safe, service=service)
        return receipt

    async def _breathe(self) -> None:
        """Let the event loop run once: what was cast leaves, what has arrived is taken."""
        self._is_breathless = False
        self._driver.turn()
        await asyncio.sleep(0)

    def _urge(self) -> None:
        """Somebody waits until what was cast is stable."""
        self._driver.member.urge()
        self._driver.wake()

    def _raise_closed(self) -> None:
        self._inbox.raise_failure()
        raise Closed(f"{self._id} has left {self.name!r}: join again.")

    async def until(self, predicate: Callable[[View], bool], timeout: float | None = None) -> View:
        """Wait until `predicate(view)` holds of the installed view, and return that view.

        It is asked now and after each turn of the member, and whenever the reader takes something. It is no reader: any task may
        wait here, the one that reads too, because the installed view does not wait to be read (`view` does). Raises `TimedOut`
        with what `explain` says, `Closed` once the group is left, and what `predicate` raises.
        """
        check_seconds(timeout, "timeout", 0)
        if not callable(predicate) or iscoroutinefunction(predicate):
            raise Misuse("until asks a plain function of the view, as in `lambda view: len(view.members) >= 3`.")
        self._check_thread()
        if self._inbox.is_over:
            self._raise_closed()
        view = self._installed_view()

        def holds() -> bool:
            nonlocal view
            view = self._installed_view()
            return bool(predicate(view))

        self._inbox.taken = self._driver.wake
        await self._until(holds, timeout, "what `until` waits for did not happen")
        return view

    async def switch(self, order: str, timeout: float | None = None) -> None:
        """Ask for another order, and wait until a view has it. Nothing is lost."""
        self._check_thread()
        if self._inbox.is_over:
            self._raise_closed()
        member = self._driver.member
        member.switch(order)
        before = member.order
        self._driver.wake()

        def has_changed() -> bool:
            return member.order == order or member.order != before

        await self._until(has_changed, timeout, f"the order {order} did not take effect")
        if member.order != order:
            raise Misuse(f"somebody asked for another order at the same time: it is {member.order} now, not {order}.")

    async def check(self, timeout: float | None = 10.0) -> Check:
        """Compare what the members of the view have delivered, everything that this one has delivered by now.

        Members compare by themselves at every view change; this asks for it now. A difference is also shown as `Diverged`, at all
        members. If the view changes meanwhile, the next one is compared. Raises `TimedOut` with the members that have not answered,
        `NotPrimary` in a view that is read-only, and `Closed` once the group is left.
        """
        check_seconds(timeout, "timeout", 0)
        self._check_thread()
        if self._is_leaving or self._inbox.is_over:
            self._raise_closed()
        checking: Checking | None = None
        try:
            async with asyncio.timeout(timeout):
                while checking is None or not checking.is_answered:
                    await self._until(lambda: self._driver.member.can_check, None, "")
                    checking = self._begin_check()
                    if checking is not None:
                        await self._until(lambda one=checking: one.is_over, None, "")  # type: ignore[misc]
        except TimeoutError:
            raise TimedOut(self._unchecked(checking, timeout)) from None
        finally:
            if checking is not None:
                checking.abandon()
        return Check(checking.view.id, checking.view.members, checking.differences)

    def _begin_check(self) -> Checking | None:
        """Cast the markers of a check. None: there is no room after all."""
        if self._is_leaving or self._inbox.is_over:
            self._raise_closed()
        if self._driver.casting:
            self._driver.hand_in()
        checking = self._driver.member.check()
        self._count_markers()
        return checking

    def _count_markers(self) -> None:
        """The member has cast markers: own messages that no application is shown."""
        end = self._driver.member.cast_index
        if end > self._index:
            self._receipts.delivered(self._index, end - self._index)
            self._receipts.applied(self._index, end - self._index)
            self._index = end
            self._driver.wake()

    def _unchecked(self, checking: Checking | None, timeout: float | None) -> str:
        missing = () if checking is None else checking.missing(self._id)
        if missing:
            why = f"{', '.join(map(str, missing))} did not answer."
        else:
            why = " ".join(self.explain(most=3)) or "there was no room to cast."
        return f"{self._id} could not compare deliveries within {timeout:g} s: {why}"

    async def give_up(self, state: ViewId | str, timeout: float | None = None) -> None:
        """Give up the state of a primary view that no member here has, and wait until a view is primary without it.

        The state is named by its view, as `status()["lost_state"]` and `explain` show it, so that nothing else can be lost. It is
        written to the journal first. What comes instead is the latest state that a member still has, else the initial one.
        """
        self.begin_to_give_up(state)
        await self._until(
            lambda: self._installed_view().is_primary and self._is_whole(1),
            timeout,
            f"no view became primary without {state}",
        )

    def begin_to_give_up(self, state: ViewId | str) -> None:
        """The same without waiting, for code that is no coroutine."""
        self._check_thread()
        if self._inbox.is_over:
            self._raise_closed()
        lost = self._driver.member.lost_state
        if lost is None:
            raise Misuse(f"{self._id} lacks no state, so none can be given up: explain says what it waits for.")
        if str(state) not in (str(lost), lost.short):
            raise Misuse(f"{self._id} lacks the state of view {lost}, not of {state}: name that one to give it up.")
        self._driver.member.give_up(lost)
        self._driver.wake()

    # The stream.

    def __aiter__(self) -> AsyncIterator[Event]:
        self._check_thread()
        return self._inbox.events()

    async def each(self, deliver: Deliver, handle: Handle = lambda event: None) -> None:
        """Call `deliver(sender, payload)` with every message and `handle(event)` with every other event, until the group is left.

        A `deliver` with three parameters (none of them with a default) gets the message's `Key` too.
        They are called in the order of the stream, as soon as something is there. No other way to take messages is as fast.

        Like iterating, it is the one reader. Both are plain functions, which the member waits for; they cast with `try_cast`.
        What they raise ends this call, and nothing behind that event is lost.
        """
        if iscoroutinefunction(deliver) or iscoroutinefunction(handle):
            raise Misuse("each calls plain functions: iterate with `async for` to await something for every event.")
        self._check_thread()
        await self._inbox.each(deliver, handle)

    def batches(self) -> AsyncIterator[Sequence[Delivery] | Event]:
        """Deliveries of one origin that came together as lists, and all other events as they are, in the same stream."""
        self._check_thread()
        return self._inbox.batches()

    def ready(self, most: int = 1_024) -> list[Event]:
        """Up to so many events that are there already, without waiting."""
        self._check_thread()
        return self._inbox.ready(most)

    async def next(self, timeout: float | None = None) -> Event:
        """The next event of the stream. Raises `TimedOut` if there is none in time, `Closed` if there will be none."""
        self._check_thread()
        if there := self._inbox.ready(1):
            return there[0]
        events = self._inbox.events()
        try:
            event = await asyncio.wait_for(anext(events), timeout)
        except StopAsyncIteration:
            raise Closed(f"{self._id} has left {self.name!r}: nothing more happens.") from None
        except TimeoutError:
            raise TimedOut(f"nothing happened to {self._id} within {timeout:g} s.") from None
        finally:
            await events.aclose()  # type: ignore[attr-defined]
        self._inbox.took(event)
        return event

    # What the driver shows.

    def _shown_by_driver(self, events: list[Happening], now: int) -> None:
        """What a turn showed: to the application, or first to state transfer, which holds back what a joiner must not see yet."""
        try:
            if self._transfer is not None:
                self._transfer_turn(self._transfer, events, now)
            elif events:
                self._happen(events)
        except Exception as error:  # a hook of the application, or its journal
            self._fail(error)

    def _transfer_turn(self, transfer: Transfer, events: list[Happening], now: int) -> None:
        sent = transfer.sent
        if events:
            self._note_own(events)
            transfer.take(events, now)
        else:
            transfer.tick(now)
        if transfer.sent != sent:
            self._driver.wake()

    def _tell_room(self, is_free: bool) -> None:
        self._driver.member.set_free_room(None if is_free else 0)
        self._driver.wake()

    def _go_on(self) -> None:
        """The application is done with what it was shown."""
        assert self._transfer is not None
        sent = self._transfer.sent
        self._transfer.go_on(self._driver.clock())
        if self._transfer.sent != sent:
            self._driver.wake()

    def _happen(self, events: list[Happening]) -> None:
        """Something happened to the member: into the journal, then into the queue, in its order."""
        if self._journal is not None:
            self._journal.deliver(events)
        if self._transfer is None:
            self._note_own(events)
        self._inbox.put(events)

    def _show(self, event: Happening) -> None:
        """State transfer lets the application see this."""
        self._own.shown(event)
        if isinstance(event, Replaced):
            self._is_replaced = True
            self.on_replaced(event)
        self._happen([event])

    def _skip(self, batch: Batch, is_in_state: bool) -> None:
        """State transfer does not let the application see this."""
        self._own.skipped(batch, is_in_state)
        if self._journal is not None:
            self._journal.skip(batch)

    def _restored(self) -> None:
        """A state was taken over. If another one is thrown away for it, the application has just been told."""
        if self._recording is not None and not self._is_replaced:
            self._recording.state_taken()
        self._is_replaced = False

    def _note_own(self, events: list[Happening]) -> None:
        """What a turn's events say about this member: its own deliveries, its view, its end."""
        if self._own.note(events):
            self._inbox.is_over = True
        if (outlived := self._own.outlived) is not None:
            self._fail(Outdated(self._id, self.name, outlived.by, outlived.newest))

    def _turned(self) -> None:
        """A turn is over: see who need not wait any longer."""
        member = self._driver.member
        if member.owes_markers:
            if self._driver.casting:
                self._driver.hand_in()
            member.mark()
            self._count_markers()
        self._receipts.settled(member.settled_index)
        self._is_breathless = False
        if not self._casters:
            self._refill()
        else:
            self._budget = 0
            if member.is_writable or self._inbox.is_over:
                self._casters.call()
            else:
                self._casters.hold()
        if self._watchers:
            self._watch()
        elif self._inbox.taken is not None:
            self._inbox.taken = None

    def _refill(self) -> None:
        """Find how much may be cast without asking the member."""
        if not self._is_leaving and self._is_fast and self._unread_bytes() <= UNREAD_BYTES_MAX:
            room = MESSAGE_COST * (self._driver.member.room_messages() - len(self._driver.casting))
            self._budget = self._casters.share(BREATH_BYTES, room) if self._casters else min(BREATH_BYTES, room)

    def _watch(self) -> None:
        left = Closed(f"{self._id} has left {self.name!r}.") if self._driver.is_stopped else None
        self._watchers.look(self._inbox.failure, left)

    def _fail(self, error: Exception) -> None:
        """The member cannot go on: everyone who waits hears why."""
        if self._inbox.failure is None:
            self._inbox.failure = error
            self._close(error)

    async def _until(self, condition: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Wait until something holds after a turn."""
        self._inbox.raise_failure()
        if condition():
            return
        try:
            await self._watchers.wait(condition, timeout)
        except TimeoutError:
            why = " ".join(self.explain(most=3))
            raise TimedOut(f"{what} within {timeout:g} s at {self._id}.{' ' + why if why else ''}") from None

    # The end.

    async def leave(self, timeout: float = 5.0) -> None:
        """Flush own casts, then leave the group in an orderly way; both within the time given.

        Raises `NotFlushed` if some of the last casts are not known to be at all members (the condition of `Receipt.stable`): then
        the member has left all the same. What has ended the member before is raised here if nobody has heard of it.
        """
        self._check_thread()
        if self._is_leaving:
            if not self._driver.is_stopped:  # another task is at it, within its own time
                await self._until(lambda: self._driver.is_stopped, None, "leaving did not end")
            return
        self._is_leaving = self._own.is_leaving = True
        self._budget = 0
        is_over = self._inbox.is_over  # by a failure, perhaps
        try:
            if not is_over:
                await self._flush(timeout)
                await self._depart(timeout)
        finally:
            self._close()
        if not self._inbox.is_told:
            self._inbox.raise_failure()
        if not is_over:
            self._own.raise_not_flushed(self.name, self._index)

    async def _flush(self, timeout: float) -> None:
        """Wait until all own casts are stable or in doubt."""
        receipts = self._receipts
        self._urge()
        with suppress(UnisonoError):
            await self._until(lambda: self._index <= receipts.settled_to, timeout, "own casts did not get stable")

    async def _depart(self, timeout: float) -> None:
        self._driver.member.leave()
        self._driver.wake()
        try:
            await self._until(lambda: self._inbox.is_over, timeout, "leaving did not end")
            await asyncio.sleep(LINGER_S)  # whoever missed the last word can ask again
        except UnisonoError:
            return  # it goes without the others' consent

    def _close(self, error: Exception | None = None) -> None:
        """Take no more turns, give everything back, and tell everyone who waits."""
        self._inbox.is_over = True
        self._budget = 0
        self._driver.stop()
        self._receipts.fail(error or Closed(f"{self._id} has left {self.name!r}."))
        self._watch()
        self._casters.call()
        self._inbox.wake()
        end, self._end = self._end, lambda: None
        end()
