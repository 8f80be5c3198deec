"""Declines state transfer at an observer, which never has a state.

Without an answer, an asker would wait for a timeout before it asks the next member.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from unisono.core.member import Aside, Happening
from unisono.core.types import MemberId
from unisono.services.transfer import messages as wire


class Sender(Protocol):
    """What a decliner needs of its member."""

    def send(self, to: MemberId, data: bytes) -> bool: ...


class Decliner:
    """Declines each request for a state. One for each observer."""

    def __init__(self, member: Sender) -> None:
        self._member = member
        self._codec = wire.make_transfer_codec()
        self.declined = 0
        """How often the observer was asked."""

    def take(self, events: Iterable[Happening]) -> bool:
        """Take the member's events. True: an answer was sent, so the member needs a turn."""
        before = self.declined
        for event in events:
            if isinstance(event, Aside) and event.data[:1] == wire.TAG:
                ask = self._codec.decode(memoryview(event.data)[1:], 0, 1)
                if isinstance(ask, wire.Ask):
                    decline = wire.Decline(ask.view, ask.serial, wire.Why.OBSERVER, False)
                    self.declined += self._member.send(event.sender, wire.TAG + self._codec.encode(decline))
        return self.declined != before
