"""One running member, from its first turn to its end: what its turns bring, what tasks wait for, and how it leaves or fails.

`Group` is what an application sees of it; `log`, metrics and control socket, and the environment, look at it here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from unisono.core.errors import Misuse, UnisonoError
from unisono.core.member import Check, Checking, Entered, Happening, Member
from unisono.core.membership import Left, Outlived
from unisono.core.types import Key, MemberId, ViewId
from unisono.core.types import View as CoreView
from unisono.environment import Port
from unisono.runtime.casting import CastAdmission
from unisono.runtime.clients import Answer, Desk
from unisono.runtime.driver import Driver
from unisono.runtime.errors import Closed, Outdated, TimedOut
from unisono.runtime.events import View, view_of
from unisono.runtime.forks import disown_in_children
from unisono.runtime.home import Home
from unisono.runtime.hooks import Carrier
from unisono.runtime.inbox import Inbox
from unisono.runtime.named_peers import NamedPeers
from unisono.runtime.observers import Observers
from unisono.runtime.own_messages import OwnMessages
from unisono.runtime.receipts import Receipts
from unisono.runtime.watchers import Watchers
from unisono.services.transfer import Status, Transfer

if TYPE_CHECKING:
    from unisono.runtime.checksum import Checksum
    from unisono.runtime.driver import Clock
    from unisono.runtime.hooks import Hooks
    from unisono.runtime.journal import Journal
    from unisono.runtime.recording import Recording
    from unisono.runtime.seal import Seal

LINGER_S = 0.1
"""A member that has left still answers for this long, so that a peer that missed its last word can ask again."""


class RunningMember:
    """The life cycle of one member, and its parts: driver, inbox, receipts, casting."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        port: Port,
        member: Member,
        peers: NamedPeers,
        *,
        clock: Clock,
        seal: Seal | Checksum | None = None,
        journal: Journal | None = None,
        recording: Recording | None = None,
        hooks: Hooks | None = None,
        answer: Answer | None = None,
        shows_stalls: bool = True,
    ) -> None:
        self.name = name
        self.id: MemberId = member.id
        self.observers = observers = Observers()
        self.home = Home(loop, name, member.id)
        self.receipts = receipts = Receipts(loop, member.id, observers)
        self.inbox = inbox = receipts.reader = Inbox(loop, receipts, observers)
        inbox.shows_stalls = shows_stalls
        self._journal = journal
        self._recording = recording
        self._own = OwnMessages(
            receipts,
            member.take_doubts,
            lambda entered: peers.entered(entered.view.members, entered.left),
            follows_transfer=hooks is not None,
        )
        self._watchers = Watchers(loop)
        pause_ns = member.settings.detector.pause_ns
        self.driver = driver = Driver(
            loop, port, name, member, self._show_turn,
            seal=seal, observers=observers, keeper=journal, fail=self.fail, clock=clock, pause_ns=pause_ns,
        )  # fmt: skip
        driver.watch_peers(peers)
        self._transfer: Transfer | None = None
        desk = None
        if answer is not None:
            desk = driver.desk = Desk(self, answer)
            inbox.expand = desk.deliveries
        if hooks is not None:
            self._transfer = self._carry(hooks, desk)
        self.casting = CastAdmission(loop, self.home, driver, inbox, receipts, self._transfer)
        driver.turned = self.casting.turned
        inbox.tell_room = self._tell_room
        disown_in_children(self)

    def _carry(self, hooks: Hooks, desk: Desk | None) -> Transfer:
        """Put state transfer between the member and the application."""
        carrier = Carrier(hooks, desk, self.inbox, self._own, self.observers, self._journal, self._recording)
        transfer = carrier.transfer = Transfer(self.driver.member, carrier, initial=True, now=self.driver.clock())
        self.inbox.go_on = self._go_on
        self.driver.also_wake_at(lambda: transfer.deadline)
        return transfer

    def disown(self) -> None:
        """In a forked child: refuse whatever is asked of this copy, and give nothing back that is the parent's."""
        failure = self.home.disown()
        self.casting.stop()
        self.observers.disown()
        self.receipts.disown(failure)
        self.inbox.disown(failure)

    def wrap_member(self, wrap: Callable[[Member], Member]) -> Member:
        """Put something between the member and its network: what `wrap` returns takes the member's place."""
        member = self.driver.member = wrap(self.driver.member)
        return member

    def call_at_end(self, end: Callable[[], None]) -> None:
        """Call this when the member has left or failed."""
        self.observers.end.append(end)

    # Questions.

    @property
    def member(self) -> Member:
        return self.driver.member

    @property
    def now(self) -> int:
        """The time by the member's clock."""
        return self.driver.clock()

    @property
    def peers(self) -> NamedPeers:
        """What is known of the peers that the member was told to look for."""
        assert self.driver.peers is not None
        return self.driver.peers

    @property
    def journal(self) -> Journal | None:
        return self._journal

    @property
    def entered(self) -> Entered | None:
        """The latest view that was installed."""
        return self._own.entered

    @property
    def core_view(self) -> CoreView | None:
        return self.driver.member.view

    @property
    def installed_view(self) -> View:
        entered = self._own.entered
        assert entered is not None, "joining waits for the first view"
        return view_of(entered)

    @property
    def failure(self) -> Exception | None:
        """Why the member cannot go on."""
        return self.inbox.failure

    @property
    def has_state(self) -> bool:
        """Whether the application carries a state. Then asking for an event confirms that the last one was processed."""
        return self._transfer is not None

    def is_whole(self, members_min: int) -> bool:
        """Whether a view of at least `members_min` members is installed and the state has arrived.

        What is cast earlier may already be part of that state, and is then not shown any more.
        """
        entered = self._own.entered
        if entered is None or len(entered.view) < members_min:
            return False
        return self._transfer is None or self._transfer.status is Status.LIVE

    def explain(self, key: Key | None = None, most: int | None = None) -> list[str]:
        """Why something waits, and which of the named peers are missing: a sentence each, at most `most`."""
        self.home.check_process()
        said = self._explain(key, most)
        if key is None and (most is None or len(said) < most):
            said += self._missing_peers()
        return said[:most]

    def _missing_peers(self) -> list[str]:
        return [] if self.driver.is_stopped else self.peers.sentences()

    def _explain(self, key: Key | None = None, most: int | None = None) -> list[str]:
        said = [] if self._transfer is None else self._transfer.explain()
        if self.inbox.is_full:
            said.append(
                f"{self.id} has {len(self.inbox)} batches ({self.inbox.bytes} bytes) that its application has not taken; "
                "the others were asked to wait."
            )
        rest = None if most is None else max(0, most - len(said))
        return (self.driver.member.explain(key, rest) + said)[:most]

    def explain_strangers(self) -> list[str]:
        """Which programs seem to be near and have another key, group or version of the wire format, a sentence each."""
        said = self.peers.strangers()
        dropped, refused = self.driver.member.counters.dropped, self.driver.seal.refused
        versions = (dropped.get("frame: version", 0), dropped.get("control: version", 0), refused.get("version", 0))
        foreign = sum(versions) - self.peers.sealed
        if foreign > 0:
            said.append(
                f"{foreign} messages came in another version of the wire format: run the same version of unisono at all members."
            )
        return said

    def count_drops(self) -> dict[str, int]:
        """What was refused or lost here so far, also on the disk, by layer and reason; only what happened at all."""
        seal = self.driver.seal
        drops = dict(self.driver.member.counters.dropped)
        drops |= {f"{seal.name}: {reason}": count for reason, count in seal.refused.items()}
        drops |= {name: count for name, count in self.driver.counters().items() if name.startswith("socket ")}
        if self._recording is not None:
            drops["trace: rows not written"] = self._recording.gaps
        if self._journal is not None:
            drops["journal: deliveries not written"] = self._journal.missing_messages
        return {reason: count for reason, count in drops.items() if count}

    def status(self) -> dict[str, Any]:
        """How this member stands, in plain values."""
        self.home.check_process()
        member, entered = self.driver.member, self._own.entered
        view = None if entered is None else entered.view
        undecided = None if self._journal is None else self._journal.undecided
        return {
            "group": self.name,
            "member": str(self.id),
            "order": member.state.order,
            "view": None if view is None else str(view.id),
            "members": [] if view is None else [str(one) for one in view.members],
            "primary": member.state.is_primary,
            "lost_state": None if member.state.lost_state is None else str(member.state.lost_state),
            "changing": member.state.is_blocked,
            "suspects": [str(one) for one in member.state.suspects],
            "unfinished": member.state.unfinished,
            "queued_batches": len(self.inbox),
            "queued_bytes": self.inbox.bytes,
            "turns": self.driver.turns,
            "waits": self._explain(most=8),
            "peers": self._missing_peers(),
            "leaving": self.casting.is_leaving,
            "undecided": None if undecided is None else str(undecided),
        }

    # What turns bring.

    def _show_turn(self, events: list[Happening], now: int) -> None:
        """Show a turn's events to the application, or first to state transfer, which holds back what a joiner must not see yet."""
        try:
            if self._transfer is not None:
                self._transfer_turn(self._transfer, events, now)
            elif events:
                if self._journal is not None:
                    self._journal.deliver(events)
                end = self._own.note(events)
                if end is not None:
                    self._end(end)
                self.inbox.put(events)
        except Exception as error:  # a hook of the application, or its journal
            self.fail(error)

    def _transfer_turn(self, transfer: Transfer, events: list[Happening], now: int) -> None:
        sent = transfer.sent
        if events:
            end = self._own.note(events)
            if end is not None:
                self._end(end)
            transfer.take(events, now)
        else:
            transfer.tick(now)
        if transfer.sent != sent:
            self.driver.wake()

    def _tell_room(self, is_free: bool) -> None:
        self.driver.member.set_free_room(None if is_free else 0)
        self.driver.wake()

    def _go_on(self) -> None:
        """The application is done with what it was shown."""
        assert self._transfer is not None
        sent = self._transfer.sent
        self._transfer.go_on(self.driver.clock())
        if self._transfer.sent != sent:
            self.driver.wake()

    def _end(self, end: Left | Outlived) -> None:
        """The member has left, or the group takes it for a ghost."""
        if isinstance(end, Left):
            self.inbox.is_over = True
        else:
            self.fail(Outdated(self.id, self.name, end.by, end.newest))

    def _look_after_turn(self) -> None:
        """Let tasks go on whose condition holds; without any, stop looking."""
        if self._watchers:
            self._watch()
        else:
            self.inbox.taken = self.driver.watched = None

    # Waiting.

    def _watch(self) -> None:
        left = Closed(f"{self.id} has left {self.name!r}.") if self.driver.is_stopped else None
        self._watchers.look(self.inbox.failure, left)

    async def until(self, condition: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Wait until a condition holds after a turn. `what` begins the error of a timeout."""
        self.inbox.raise_failure()
        if condition():
            return
        self.driver.watched = self._look_after_turn
        try:
            await self._watchers.wait(condition, timeout)
        except TimeoutError:
            why = " ".join(self.explain(most=3))
            raise TimedOut(f"{what} within {timeout:g} s at {self.id}.{' ' + why if why else ''}") from None

    async def until_view(self, predicate: Callable[[View], bool], timeout: float | None) -> View:
        """Wait until a predicate holds of the installed view; it is also asked when the reader takes something."""
        view = self.installed_view

        def holds() -> bool:
            nonlocal view
            view = self.installed_view
            return bool(predicate(view))

        self.inbox.taken, self.driver.watched = self.driver.wake, self._look_after_turn
        await self.until(holds, timeout, "what `until` waits for did not happen")
        return view

    async def switch(self, order: str, timeout: float | None) -> None:
        member = self.driver.member
        member.switch(order)
        before = member.state.order
        self.driver.wake()

        def has_changed() -> bool:
            return member.state.order == order or member.state.order != before

        await self.until(has_changed, timeout, f"the order {order} did not take effect")
        if member.state.order != order:
            raise Misuse(
                f"{self.name!r} has the order {member.state.order} now, not {order}: another member asked for that one at the same "
                "time. Switch again if it still matters."
            )

    async def check(self, timeout: float | None) -> Check:
        """Compare what the members of the view have delivered."""
        checking: Checking | None = None
        try:
            async with asyncio.timeout(timeout):
                while checking is None or not checking.is_answered:
                    await self.until(lambda: self.driver.member.markers.have_room, None, "")
                    checking = self._begin_check()
                    if checking is not None:
                        await self.until(lambda one=checking: one.is_over, None, "")  # type: ignore[misc]
        except TimeoutError:
            raise TimedOut(self._unchecked(checking, timeout)) from None
        finally:
            if checking is not None:
                checking.abandon()
        return Check(checking.view.id, checking.view.members, checking.differences)

    def _begin_check(self) -> Checking | None:
        """Cast the markers of a check. None: there is no room after all."""
        self.casting.check_open()
        if self.driver.casting:
            self.driver.hand_in()
        checking = self.driver.member.markers.begin_check()
        self.casting.count_markers()
        return checking

    def _unchecked(self, checking: Checking | None, timeout: float | None) -> str:
        missing = () if checking is None else checking.missing(self.id)
        if missing:
            why = f"{', '.join(map(str, missing))} did not answer."
        else:
            why = " ".join(self.explain(most=3)) or "there was no room to cast."
        return f"{self.id} could not compare deliveries within {timeout:g} s: {why}"

    def begin_to_give_up(self, state: ViewId | str) -> None:
        """Give up the state of a primary view that no member here has."""
        self.home.check_thread()
        self.check_open()
        lost = self.driver.member.state.lost_state
        if lost is None:
            raise Misuse(f"{self.id} lacks no state, so none can be given up: explain says what it waits for.")
        if str(state) not in (str(lost), lost.short):
            raise Misuse(
                f"{self.id} cannot give up the state of view {state}: it lacks the state of view {lost}; name that view."
            )
        self.driver.member.give_up(lost)
        self.driver.wake()

    # The end.

    def check_open(self) -> None:
        """Raise what has ended the member, or `Closed`. While it is leaving, questions are still answered."""
        if self.inbox.is_over:
            self.casting.check_open()

    def fail(self, error: Exception) -> None:
        """End the member, which cannot go on, and let every waiting task raise the error."""
        if self.inbox.failure is None:
            self.inbox.failure = error
            self.close(error)

    def crash(self, error: Exception) -> None:
        """End here and now, without a word to the other members and without what the journal has not written yet."""
        if self._journal is not None:
            self._journal.abandon()
        self.fail(error)
        self.inbox.is_told = True  # it was on purpose, so leaving its block is no second surprise

    def freeze(self) -> None:
        """Stand still, as a stopped process does, until `thaw`."""
        self.driver.freeze()

    def thaw(self) -> None:
        self.driver.thaw()

    async def leave(self, timeout: float) -> None:
        """Flush own casts, then leave in an orderly way; both within the time given."""
        self.home.check_thread()
        if self.casting.is_leaving:
            if not self.driver.is_stopped:  # another task is at it, within its own time
                await self.until(lambda: self.driver.is_stopped, None, "leaving did not end")
            return
        self.casting.is_leaving = self._own.is_leaving = True
        self.casting.stop()
        is_over = self.inbox.is_over  # by a failure, perhaps
        try:
            if not is_over:
                await self._flush(timeout)
                await self._depart(timeout)
        finally:
            self.close()
        if not self.inbox.is_told:
            self.inbox.raise_failure()
        if not is_over:
            self._own.raise_not_flushed(self.name, self.casting.index)

    async def _flush(self, timeout: float) -> None:
        """Wait until all own casts are stable or in doubt."""
        self.casting.urge()
        with suppress(UnisonoError):
            await self.until(
                lambda: self.casting.index <= self.receipts.settled_to, timeout, "own casts did not get stable"
            )

    async def _depart(self, timeout: float) -> None:
        self.driver.member.leave()
        self.driver.wake()
        try:
            await self.until(lambda: self.inbox.is_over, timeout, "leaving did not end")
            await asyncio.sleep(LINGER_S)
        except UnisonoError:
            return  # it goes without the others' consent

    def close(self, error: Exception | None = None) -> None:
        """Take no more turns, give everything back, and tell every task that waits."""
        self.inbox.is_over = True
        self.casting.stop()
        self.driver.stop()
        self.receipts.fail(error or Closed(f"{self.id} has left {self.name!r}."))
        self._watch()
        self.casting.call_line()
        self.inbox.wake()
        self.observers.call_end()
