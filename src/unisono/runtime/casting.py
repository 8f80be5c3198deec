"""Own messages on their way to the member: one at a time while there is room, else in line.

Casting one message must be cheap, so the member is not asked for each: after a turn it says how much it has room for, and that much
(the budget) is cast with the next turn without asking.
"""

from __future__ import annotations

import asyncio
from threading import get_ident

from unisono.core.errors import Misuse
from unisono.core.options import DEFAULT, CastOptions
from unisono.core.types import Key, Service
from unisono.runtime.casters import Casters
from unisono.runtime.driver import Driver
from unisono.runtime.errors import Closed
from unisono.runtime.home import Home
from unisono.runtime.inbox import Inbox
from unisono.runtime.receipts import DatagramReceipt, Receipt, Receipts
from unisono.services.transfer import Transfer

BREATH_BYTES = 224 << 10
"""After casting this much without a pause, the event loop runs once."""
MESSAGE_COST = 64
"""What a message counts besides its bytes."""
UNREAD_BYTES_MAX = 256 << 20
"""With more than this unread by its own application, a member casts nothing more."""


class CastAdmission:
    """Casts for one member, and makes the receipts."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        home: Home,
        driver: Driver,
        inbox: Inbox,
        receipts: Receipts,
        transfer: Transfer | None,
    ) -> None:
        self._loop = loop
        self._home = home
        self._driver = driver
        self._inbox = inbox
        self._receipts = receipts
        self._transfer = transfer
        self._line = Casters(loop)
        self._had_line = False  # a task was in it, and may be still
        member = driver.member
        self._id = member.id
        self._is_fast = (
            member.settings.config.payload_bytes_max >= BREATH_BYTES
        )  # no payload within a budget is too large
        self._budget = 0  # what may be cast before the next turn without asking: bytes, and MESSAGE_COST a message
        self.is_breathless = False
        """The budget was used up: the event loop has to run once."""
        self._is_ahead = False  # a message has left before the end of this iteration of the loop
        self.index = 0
        """Of the next own message."""
        self.is_leaving = False
        receipts.urge = self.urge

    def stop(self) -> None:
        """Cast nothing more without asking."""
        self._budget = 0

    def call_line(self) -> None:
        """Wake all tasks in the line: nothing will ever be cast any more."""
        self._line.call()

    def cast(self, payload: bytes, options: CastOptions) -> Receipt | None:
        """Cast a message. None: it has to wait (`wait_for_room`)."""
        home = self._home
        if get_ident() != home.loop_thread:
            home.check_thread()
        if options is DEFAULT and type(payload) is bytes:
            budget = self._budget - len(payload) - MESSAGE_COST
            if budget >= 0:
                self._budget = budget
                index = self.index
                self.index = index + 1
                casting = self._driver.casting
                if casting:
                    casting.append(payload)
                else:
                    casting.append(payload)
                    self._leave_soon()
                return Receipt(self._receipts, index)
        return self._cast_asking(payload, options)

    def _cast_asking(self, payload: bytes, options: CastOptions) -> Receipt | None:
        if not isinstance(payload, bytes):
            raise Misuse(f"a payload is bytes, not {type(payload).__name__}: encode it first.")
        self.check_open()
        if self.is_breathless or not self._line.admits:
            return None
        unread = self._unread_bytes()
        if unread > UNREAD_BYTES_MAX:
            raise Misuse(
                f"{self._id} has {unread} bytes of unread events: read from the group (`async for`, `each`) before casting more."
            )
        key = self.cast_now(payload, options)
        if key is None:
            return None
        kind = DatagramReceipt if options.service is Service.DATAGRAM else Receipt
        receipt = kind(self._receipts, key.index)
        if options.to is not None and self._id not in options.to:
            receipt.pass_by()
        self._line.has_cast()
        self._budget = max(0, self._budget - len(payload) - MESSAGE_COST)
        self.is_breathless = self._budget == 0 and not self._line
        return receipt

    def cast_now(self, payload: bytes, options: CastOptions = DEFAULT) -> Key | None:
        """Ask the member. None: there is no room."""
        if self._driver.casting:
            self._driver.hand_in()
        key = self._driver.member.cast(payload, options)
        if key is not None:
            self.index = key.index + 1
            self._driver.wake()
        return key

    def check_open(self) -> None:
        if self.is_leaving or self._inbox.is_over:
            self._inbox.raise_failure()
            raise Closed(f"{self._id} has left {self._driver.group!r}: join again.")

    def _leave_soon(self) -> None:
        """Let a message leave with all else that is cast in this iteration of the loop; after a quiet moment, at once.

        What a turn at once shows is handed out later: code that casts does not expect to be called meanwhile.
        There is one such turn per iteration, because turns without reading would make the other members look silent.
        """
        driver, inbox = self._driver, self._inbox
        if self._is_ahead or self._transfer is not None or driver.clock() < driver.calm_at:
            driver.wake()
            return
        self._is_ahead = inbox.is_held = True
        self._loop.call_soon(self._catch_up)
        driver.turn()
        inbox.is_held = False

    def _catch_up(self) -> None:
        self._is_ahead = False

    # Waiting for room.

    async def wait_for_room(self) -> None:
        """Wait until there may be room again, or for the event loop to run once."""
        self._home.check_thread()
        if self._inbox.is_over:
            self.check_open()
        if self.is_breathless:
            await self._breathe()
            return
        self._budget = 0  # casts from now on see the line
        self._driver.wake()
        self._had_line = True
        await self._line.wait()
        self._refill()

    async def _breathe(self) -> None:
        """Let the event loop run once: what was cast leaves, what has arrived is taken."""
        self.is_breathless = False
        self._driver.turn()
        await asyncio.sleep(0)

    def urge(self) -> None:
        """Ask peers to acknowledge immediately: a caller is waiting for stability."""
        self._driver.member.urge()
        self._driver.wake()

    # After a turn.

    def turned(self) -> None:
        """A turn is over: cast the member's own markers if it owes some, and find the budget until the next turn."""
        member = self._driver.member
        if member.markers.are_owed:
            if self._driver.casting:
                self._driver.hand_in()
            member.markers.cast_owed()
            self.count_markers()
        settled_to = member.state.settled_index
        if settled_to > self._receipts.settled_to:
            self._receipts.settled(settled_to)
        self.is_breathless = False
        if not self._had_line:  # as in `_refill`: this runs after every turn, and every call counts
            if self._is_fast and not self.is_leaving:
                unread = self._inbox.bytes if self._transfer is None else self._unread_bytes()
                if unread <= UNREAD_BYTES_MAX:
                    room = MESSAGE_COST * (member.state.room_messages() - len(self._driver.casting))
                    self._budget = BREATH_BYTES if room > BREATH_BYTES else room
            return
        if not self._line:
            self._had_line = False
            self._refill()
            return
        self._budget = 0
        if member.state.is_writable or self._inbox.is_over:
            self._line.call()
        else:
            self._line.hold()

    def count_markers(self) -> None:
        """The member has cast markers: own messages that no application is shown."""
        end = self._driver.member.state.accepted
        if end > self.index:
            self._receipts.delivered(self.index, end - self.index)
            self._receipts.applied(self.index, end - self.index)
            self.index = end
            self._driver.wake()

    def _refill(self) -> None:
        """Find how much may be cast without asking the member."""
        if not self.is_leaving and self._is_fast and self._unread_bytes() <= UNREAD_BYTES_MAX:
            room = MESSAGE_COST * (self._driver.member.state.room_messages() - len(self._driver.casting))
            self._budget = self._line.share(BREATH_BYTES, room) if self._line else min(BREATH_BYTES, room)

    def _unread_bytes(self) -> int:
        return self._inbox.bytes + (0 if self._transfer is None else self._transfer.queue_bytes)
