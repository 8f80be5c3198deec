"""The places where a member can be observed. An unobserved member pays nothing for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from unisono.core.member import Happening, Replaced
from unisono.core.outbox import Note
from unisono.core.types import MemberId

if TYPE_CHECKING:
    from unisono.runtime.inbox import Shown
    from unisono.runtime.receipts import Stage

TurnObserver: TypeAlias = "Callable[[list[Happening], int], None]"
ReceiptObserver: TypeAlias = "Callable[[Stage, int, str, Sequence[MemberId]], None]"


class Observers:
    """Functions to call, by the place where they are called and in the order in which they were added.

    Add to the lists to observe. A function must not change the member within the call; it may call `Driver.wake`.
    """

    def __init__(self) -> None:
        self.noted: list[Callable[[int, Sequence[Note]], None]] = []
        """After the records of a turn are written and before anything is sent: the time and the member's notes."""
        self.turn: list[TurnObserver] = []
        """After each turn: the events that it brought, and the time by the member's clock."""
        self.shown: list[Callable[[Shown], None]] = []
        """Each event that enters the application's stream."""
        self.receipt: list[ReceiptObserver] = []
        """Each answer of a receipt: stage, index, "ok" or "uncertain", and the members known to have the message."""
        self.replaced: list[Callable[[Replaced], None]] = []
        """The application's state is thrown away for another part's, before the application is told."""
        self.end: list[Callable[[], None]] = []
        """Once, when the member has left or failed."""

    def call_end(self) -> None:
        """Call the observers of the end, and no observer of it again."""
        ends, self.end = self.end, []
        for end in ends:
            end()

    def disown(self) -> None:
        """In a forked child: files, sockets and timers are the parent's."""
        for place in (self.noted, self.turn, self.shown, self.receipt, self.replaced, self.end):
            place.clear()
