"""RMP's exclusive lock on the group: to transmit, a member connects to all the others. Paper 002, section 3.

The paper says that "the n-way connection set-up described here serves as an exclusive lock on the group", and not what happens
when two members set up at once. Ours answers as Ricart and Agrawala do: a request carries a stamp from a Lamport counter,
and of two requests the one with the lower (stamp, rank) is served first. A member that has the better request, or the lock
itself, lets the other wait, and accepts its request on release. The lock is taken when all have accepted.

L1  at most one member has the lock. Say A and B both had everyone's acceptance, A's request being the better one. Then A
    accepted B's request either before it asked itself, and then A's stamp is higher and A's the worse one; or after it
    released.
L2  no request starves. A new one is stamped above every request that its member has met, so only finitely many requests
    come before a given one, and a hold ends (`Rmp` bounds it while others wait).
L3  to have the lock is to come after everything that was transmitted before: the last holder accepted after its release.

The holder keeps the lock until another member asks, so a lone transmitter connects once. A holder that dies is not
asked any more: the view change ends the lock with the view.
"""

from __future__ import annotations

from unisono.core.errors import PeerFault
from unisono.core.types import Rank
from unisono.orders.holdback import AHEAD_MAX


class GroupLock:
    """One member's part in the lock."""

    def __init__(self, rank: Rank, size: int) -> None:
        self._rank = rank
        self._everyone = (1 << size) - 1
        self._clock = 0  # no less than any stamp that was given or met here
        self._met = [0] * size  # by member: the stamp of its last request
        self._accepted = 0  # who accepted my request, as bits
        self.asked: int | None = None  # the stamp of my request that is under way
        self.held = size == 1  # alone, one need not ask
        self.waiting: dict[Rank, int] = {}  # who asked me and has not been accepted yet, with the stamp

    def request(self) -> int:
        """Ask for the lock: returns the stamp to cast."""
        assert self.asked is None
        assert not self.held
        self._clock += 1
        self.asked = self._clock
        self._accepted = 1 << self._rank
        return self._clock

    def meet(self, sender: Rank, stamp: int) -> bool:
        """Another member asks. True: accept at once; otherwise it waits for `release`."""
        if sender in self.waiting or not self._met[sender] < stamp <= self._clock + AHEAD_MAX:
            raise PeerFault("a member asks for the lock twice, or with a stamp that cannot be")
        self._met[sender] = stamp
        self._clock = max(self._clock, stamp)
        if self.held or (self.asked is not None and (self.asked, self._rank) < (stamp, sender)):
            self.waiting[sender] = stamp
            return False
        return True

    def accept(self, sender: Rank, stamp: int) -> bool:
        """Another member accepts my request. True: it was the last one, and the lock is mine."""
        if stamp != self.asked or self._accepted >> sender & 1:
            raise PeerFault("a member accepts what this one has not asked for, or accepts it twice")
        self._accepted |= 1 << sender
        if self._accepted == self._everyone:
            self.held, self.asked = True, None
        return self.held

    def release(self) -> list[tuple[Rank, int]]:
        """Give the lock up: returns whose requests to accept now."""
        assert self.held
        self.held = False
        waiting, self.waiting = self.waiting, {}
        return list(waiting.items())

    def lacking(self) -> tuple[Rank, ...]:
        """Who has not accepted my request yet."""
        missing = self._everyone & ~self._accepted if self.asked is not None else 0
        return tuple(rank for rank in range(missing.bit_length()) if missing >> rank & 1)
